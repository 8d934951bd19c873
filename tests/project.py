"""A small copy of the project to run its real commands in."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ruamel.yaml import YAML

from tests.conftest import ROOT

BIN = Path(sys.executable).parent
TRACKED = ("dvc.yaml", "params.yaml", "Makefile", "stages", "tinygpt", ".dvcignore", ".gitignore", ".gitattributes")
TRAIN = ("python", "-m", "stages.train")
TINY = {
    "clean.min_chars": 10,
    "split.val_share": 0.2,
    "split.test_share": 0.2,
    "model.n_layer": 1,
    "model.n_embd": 16,
    "model.context_size": 16,
    "train.max_steps": 30,
    "train.eval_every": 10,
    "train.warmup_steps": 5,
    "train.eval_windows": 4,
    "evaluate.n_bootstrap": 200,
    "sample.max_new_chars": 20,
    "sample.n_stories": 6,
    "runtime.n_threads": 1,
}


def run(folder: Path, *command: str, code: int = 0) -> str:
    """Run a command of the environment in `folder`; return all that it printed."""
    process = start(folder, *command)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == code, f"{command} ended with {process.returncode}:\n{output}"
    return output


def start(folder: Path, *command: str) -> subprocess.Popen:
    """Begin a command in a session of its own, so that a test can signal it and all its children."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "GIT_"))}
    env |= {"PATH": f"{BIN}{os.pathsep}{env['PATH']}", "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=env, encoding="utf-8", stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True
    )


def copy_project(folder: Path, stories: list[str]) -> None:
    """The tracked files, a small corpus, small params."""
    for name in TRACKED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    (folder / ".dvc").mkdir()
    for name in ("config", ".gitignore", "plots.html"):
        shutil.copy(ROOT / ".dvc" / name, folder / ".dvc" / name)
    (folder / "data" / "stories").mkdir(parents=True)
    (folder / "reports").mkdir()
    lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in stories]
    (folder / "data" / "stories" / "01.jsonl").write_text("".join(lines), encoding="utf-8")
    set_params(folder, TINY)


def set_params(folder: Path, changes: dict) -> None:
    yaml = YAML()
    params = yaml.load((folder / "params.yaml").read_text(encoding="utf-8"))
    for key, value in changes.items():
        section, name = key.split(".")
        params[section][name] = value
    with (folder / "params.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(params, file)


def copy_encoded_project(folder: Path, stories: list[str], changes: dict) -> None:
    """As `copy_project`, with these params, and ready to train."""
    copy_project(folder, stories)
    set_params(folder, changes)
    for stage in ("download", "split", "vocab", "encode"):
        run(folder, "python", "-m", f"stages.{stage}")


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
