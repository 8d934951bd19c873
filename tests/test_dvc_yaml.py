"""dvc.yaml says what the code reads and writes, no more and no less."""

import ast
import hashlib
import importlib
import inspect
import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.conftest import ROOT

STAGES = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
NO_OUTS = {"data/checkpoints"}  # work in progress belongs to nobody
BESIDE_THE_PIPELINE = {"compare", "describe", "export"}  # commands that are no stages
NOT_IN_GIT = {"reports/report.html", "reports/explorer.html"}
READ_BESIDE_PARAMS = {"runtime"}  # how to run, not what


def test_the_stages_in_order():
    assert list(STAGES) == ["download", "split", "vocab", "encode", "train", "evaluate", "sample", "report", "explore"]
    assert sorted(STAGES) == sorted(path.stem for path in (ROOT / "stages").glob("*.py") if is_stage(path))


def is_stage(path: Path) -> bool:
    return path.stem not in ("__init__", "command", *BESIDE_THE_PIPELINE)


def names(stage: dict, *kinds: str) -> set[str]:
    entries = [entry for kind in kinds for entry in stage.get(kind, [])]
    return {next(iter(entry)) if isinstance(entry, dict) else entry for entry in entries}


@pytest.mark.parametrize("name", STAGES)
def test_the_default_paths_are_the_deps_and_outs(name):
    stage = STAGES[name]
    main = getattr(importlib.import_module(f"stages.{name}"), name)
    defaults = {parameter.default for parameter in inspect.signature(main).parameters.values()}
    paths = {default.as_posix() for default in defaults if isinstance(default, Path)} - NO_OUTS
    files = names(stage, "deps") - code_deps(stage)
    assert paths == files | names(stage, "outs", "metrics", "plots")
    assert stage["cmd"] == f"python -m stages.{name}"


@pytest.mark.parametrize("name", STAGES)
def test_the_code_deps_are_the_imports(name):
    code = imported(Path(f"stages/{name}.py"))
    if {"tinygpt/report.py", "tinygpt/page.py"} & code:  # these read them
        code |= files_in("tinygpt/templates")
    if "tinygpt/explorer.py" in code:
        code |= files_in("tinygpt/web")
    assert code_deps(STAGES[name]) == code


def files_in(folder: str) -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()}


def code_deps(stage: dict) -> set[str]:
    return {dep for dep in names(stage, "deps") if dep.startswith(("stages/", "tinygpt/"))}


def imported(path: Path) -> set[str]:
    """`path` and all that it imports of this project, directly or not."""
    found, waiting = set(), [path]
    while waiting:
        current = waiting.pop()
        if current.as_posix() in found:
            continue
        found.add(current.as_posix())
        for node in ast.walk(ast.parse((ROOT / current).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in ("tinygpt", "stages"):
                waiting.append(Path(*node.module.split(".")).with_suffix(".py"))
    return found


@pytest.mark.parametrize("name", STAGES)
def test_the_params_are_the_sections_that_the_stage_reads(name):
    """Sections appear in a stage's code as attributes of what load_params returns."""
    text = (ROOT / "stages" / f"{name}.py").read_text(encoding="utf-8")
    sections = list(YAML(typ="safe").load((ROOT / "params.yaml").read_text(encoding="utf-8")))
    if name == "report":  # shows them all
        assert set(names(STAGES[name], "params")) == set(sections) - READ_BESIDE_PARAMS
        return
    read = {
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute)
        and node.attr in sections
        and (
            (isinstance(node.value, ast.Name) and node.value.id == "params")
            or (isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "load_params")
        )
    }
    assert read - READ_BESIDE_PARAMS == names(STAGES[name], "params")


def test_modules_import_one_way():
    """The order of design: a module imports only what stands above it."""
    order = [
        *("files", "params", "progress", "tables", "decoding", "rows", "hub", "sources", "stories", "examples"),
        *("parallel", "vocab", "ngrams", "duplicates", "splitting", "leaks", "tokens", "batches", "model", "head_loss"),
        *("checkpoint", "optim", "devices", "processes", "evaluation", "training", "measures", "kneser_ney"),
        *("baselines", "analysis", "fast_step", "generation", "writing", "scoring", "copies"),
        *("sample_stats", "markdown", "comparison"),
        *("walk", "inside", "words", "charts", "heatmaps", "report", "page", "explorer"),
        *("huggingface", "export", "model_card", "cli", "__main__"),
    ]
    modules = {path.stem for path in (ROOT / "tinygpt").glob("*.py")} - {"__init__"}
    assert modules == set(order)
    for module in modules:
        direct = imported(Path(f"tinygpt/{module}.py")) - {f"tinygpt/{module}.py"}
        assert all(order.index(Path(dep).stem) < order.index(module) for dep in direct), module
    assert (ROOT / "tinygpt" / "__init__.py").read_bytes() == b""


def test_the_committed_lock_belongs_to_the_committed_code_and_params():
    """The reports in git are those of this very code: nothing would run again but for missing data."""
    lock = YAML(typ="safe").load((ROOT / "dvc.lock").read_text(encoding="utf-8"))["stages"]
    params = YAML(typ="safe").load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for name in STAGES:
        for dep in lock[name]["deps"]:
            if dep["path"].startswith(("stages/", "tinygpt/")):
                assert dep["md5"] == hashlib.md5((ROOT / dep["path"]).read_bytes()).hexdigest(), (name, dep["path"])
        locked = lock[name].get("params", {}).get("params.yaml", {})
        assert locked == {section: params[section] for section in names(STAGES[name], "params")}, name
        for out in lock[name]["outs"]:
            if out["path"].startswith("reports/") and out["path"] not in NOT_IN_GIT:
                assert out["md5"] == dvc_hash(ROOT / out["path"]), f"{out['path']}; run: dvc repro"


def dvc_hash(path: Path) -> str:
    """The md5 that dvc.lock holds of a file, or of the list of a folder's files."""
    if path.is_file():
        return hashlib.md5(path.read_bytes()).hexdigest()
    files = [{"md5": dvc_hash(file), "relpath": file.name} for file in sorted(path.iterdir())]
    return hashlib.md5(json.dumps(files, sort_keys=True).encode()).hexdigest() + ".dir"
