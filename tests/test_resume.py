"""Kill the real training command in every way, run it again, compare bytes."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from tests.project import TRAIN, copy_encoded_project, run, set_params, start, wait_for
from tinygpt.checkpoint import load_checkpoint

OUTPUTS = ("data/model/best.pt", "data/model/last.pt", "reports/training.csv")

# Puts a SIGKILL behind the n-th call of a function, then runs the stage as `python -m stages.train` would.
KILL_AT = """
import os, runpy, signal, sys
import tinygpt.checkpoint, tinygpt.files, tinygpt.training
owner, name, countdown = {owner}, {name!r}, {n}
real = getattr(owner, name)
def killing(*args, **options):
    global countdown
    countdown -= 1
    if {before} and countdown == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    result = real(*args, **options)
    if countdown == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, name, killing)
sys.argv = ["stages.train"]
runpy.run_module("stages.train", run_name="__main__")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory, stories) -> Path:
    """Encoded stories, ready to train on; dropout draws random numbers at each step, an average runs along."""
    folder = tmp_path_factory.mktemp("resume")
    changes = {"model.dropout": 0.1, "train.max_steps": 35, "train.ema_decay": 0.9, "train.story_start_share": 0.5}
    copy_encoded_project(folder, stories, changes)
    return folder


@pytest.fixture(scope="module")
def uninterrupted(project) -> dict[str, bytes]:
    run(project, *TRAIN)
    return {name: (project / name).read_bytes() for name in OUTPUTS}


def test_the_last_checkpoint_has_the_average_and_the_weights_that_went_into_it(project, uninterrupted):
    last = load_checkpoint(project / "data/model/last.pt")
    assert set(last["weights"]) == set(last["raw_weights"])
    assert not torch.equal(last["weights"]["lm_head.weight"], last["raw_weights"]["lm_head.weight"])


def kill(project: Path, owner: str, name: str, n: int, before: bool = False) -> None:
    script = KILL_AT.format(owner=owner, name=name, n=n, before=before)
    run(project, "python", "-c", script, code=-signal.SIGKILL)


def check_same(project: Path, uninterrupted: dict[str, bytes]) -> None:
    for name in OUTPUTS:
        assert (project / name).read_bytes() == uninterrupted[name], name
    assert [path for path in (project / "data/checkpoints").iterdir() if path.is_dir()] == []


def test_killed_at_several_steps(project, uninterrupted):
    for n_updates in (1, 13, 10, 9):  # steps 1, 13, then 10 + 10 = 20, then 20 + 9
        kill(project, "tinygpt.training", "update", n_updates)
    assert "step      0" not in run(project, *TRAIN)
    check_same(project, uninterrupted)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_killed_while_a_checkpoint_is_written(project, uninterrupted, n, before):
    """fsync comes when the bytes are in the file beside; replace when they take its place."""
    kill(project, "tinygpt.checkpoint.os", "fsync", n, before)
    kill(project, "os", "replace", n, before)
    run(project, *TRAIN)
    check_same(project, uninterrupted)


def test_killed_while_the_outputs_are_written(project, uninterrupted):
    """After the last checkpoint: the two model files, the cost file, the clearing away."""
    kill(project, "tinygpt.files", "_remove", 13)
    run(project, *TRAIN)
    check_same(project, uninterrupted)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_says_how_to_go_on(project, uninterrupted, number, code):
    script = KILL_AT.replace("SIGKILL", number.name).format(owner="tinygpt.training", name="update", n=12, before=False)
    output = run(project, "python", "-c", script, code=code)
    assert output.endswith("train: stopped at step 12; the same command goes on from there\n")
    run(project, *TRAIN)
    check_same(project, uninterrupted)


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(project, uninterrupted):
    kill(project, "tinygpt.training", "update", 25)
    (latest,) = (project / "data/checkpoints").glob("*/latest.pt")
    latest.write_bytes(latest.read_bytes()[:-100])
    output = run(project, *TRAIN)
    assert "latest.pt is damaged" in output and "going back to the checkpoint before it" in output
    check_same(project, uninterrupted)


def test_other_params_are_another_run(project, uninterrupted):
    kill(project, "tinygpt.training", "update", 25)
    assert "step      0" in run(project, *TRAIN, "-S", "train.max_steps=10")
    run(project, *TRAIN)
    check_same(project, uninterrupted)


def test_a_second_trainer_of_the_same_run_is_refused(project):
    long = ("-S", "train.max_steps=100000", "-S", "train.eval_every=100000")
    first = start(project, *TRAIN, *long)
    try:
        wait_for(lambda: list((project / "data/checkpoints").glob("*/latest.pt")))
        output = run(project, *TRAIN, *long, code=1)
        assert output.startswith("train: another process is training this very run (data/checkpoints/")
        other = run(project, *TRAIN, "-S", "train.max_steps=3")  # another run is free to go
        assert "train: 3 steps" in other
    finally:
        first.terminate()
        first.communicate()
    assert first.returncode == 143


def test_dvc_repro_goes_on_after_ctrl_c(project):
    shutil.rmtree(project / "data/checkpoints")  # of the tests before
    run(project, "git", "init", "-q")
    set_params(project, {"train.max_steps": 4000, "train.eval_every": 50})
    repro = start(project, "dvc", "repro", "train")
    wait_for(lambda: list((project / "data/checkpoints").glob("*/previous.pt")))
    os.killpg(repro.pid, signal.SIGINT)  # as the terminal does
    output, _ = repro.communicate(timeout=60)
    assert repro.returncode != 0 and "the same command goes on from there" in output
    output = run(project, "dvc", "repro", "train")
    assert "step      0" not in output and "train: 4,000 steps" in output
