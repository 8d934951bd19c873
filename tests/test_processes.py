"""Two real processes train one model."""

import csv
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.project import TRAIN, copy_encoded_project, run, start, wait_for

TWO = ("-S", "runtime.n_procs=2")


@pytest.fixture(scope="module")
def project(tmp_path_factory, stories) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    copy_encoded_project(folder, stories, {"train.precision": "fp32"})
    return folder


@pytest.fixture(scope="module")
def alone(project) -> list[list[float]]:
    run(project, *TRAIN)
    return curve(project)


def curve(project: Path) -> list[list[float]]:
    with (project / "reports/training.csv").open(newline="") as file:
        return [[float(value) for value in row] for row in list(csv.reader(file))[1:]]


def check_near(project: Path, alone: list[list[float]], within: float = 1e-4) -> None:
    for one, other in zip(curve(project), alone, strict=True):
        assert one == pytest.approx(other, abs=within)


def test_two_processes_learn_what_one_learns_and_one_of_them_speaks(project, alone):
    output = run(project, *TRAIN, *TWO)
    check_near(project, alone)
    assert [line.split()[1] for line in output.splitlines() if line.startswith("step")] == ["0", "10", "20", "30"]
    assert output.count("train: 30 steps") == 1


def test_muon_takes_the_same_steps_in_two_processes(project):
    muon = ("-S", "train.optimizer=muon")
    run(project, *TRAIN, *muon)
    alone = curve(project)
    run(project, *TRAIN, *TWO, *muon)
    check_near(project, alone, within=1e-3)  # Muon rounds to bfloat16 on its way


def test_the_average_and_the_story_starts_are_the_same_in_two_processes(project):
    options = ("-S", "train.ema_decay=0.9", "-S", "train.story_start_share=0.5")
    run(project, *TRAIN, *options)
    alone = curve(project)
    run(project, *TRAIN, *TWO, *options)
    check_near(project, alone)


def test_torchrun_does_the_same(project, alone):
    run(project, "torchrun", "--standalone", "--nproc-per-node=2", "-m", "stages.train")
    check_near(project, alone)


def test_a_stopped_run_goes_on_with_another_number_of_processes(project, alone):
    slow = start(project, *TRAIN, *TWO, "-S", "train.max_steps=100000")
    wait_for(lambda: list((project / "data/checkpoints").glob("*/previous.pt")))
    slow.terminate()
    output, _ = slow.communicate(timeout=60)
    assert slow.returncode == 143
    assert output.count("the same command goes on from there") == 1
    stopped_at = int(output.partition("stopped at step ")[2].partition(";")[0])
    goes_on = start(project, *TRAIN, "-S", "train.max_steps=100000")
    line = goes_on.stdout.readline()  # the first evaluation after the stop
    goes_on.terminate()
    goes_on.communicate(timeout=60)
    assert goes_on.returncode == 143
    assert int(line.split()[1].replace(",", "")) >= stopped_at


def test_all_processes_end_with_the_time_of_the_first(project):
    output = run(project, *TRAIN, *TWO, "-S", "train.max_steps=1000000", "-S", "train.max_seconds=3")
    steps = [int(line.split()[1].replace(",", "")) for line in output.splitlines() if line.startswith("step")]
    assert f"train: {steps[-1]:,} steps" in output and steps[-1] < 1_000_000


def test_a_dead_process_ends_the_run_with_its_rank(project):
    shutil.rmtree(project / "data/checkpoints")  # of the tests before
    run_ = start(project, *TRAIN, *TWO, "-S", "train.max_steps=100000", "-S", "train.eval_every=1000")
    wait_for(lambda: list((project / "data/checkpoints").glob("*/latest.pt")))
    os.kill(rank_pids(run_.pid)[1], signal.SIGKILL)
    output, _ = run_.communicate(timeout=90)
    assert run_.returncode == 1
    assert "train: the process of rank 1 was ended by SIGKILL, and the run with it" in output


def rank_pids(parent: int) -> list[int]:
    """The spawned workers, in the order of their ranks; multiprocessing's tracker is another child."""
    children = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            command = (path / "cmdline").read_text()
        except OSError:  # ended meanwhile
            continue
        if int(fields[1]) == parent and "spawn_main" in command:
            children.append(int(path.name))
    return sorted(children)


@pytest.mark.parametrize(
    "overrides", [("runtime.n_procs=3",), ("runtime.n_procs=2", "train.batch_size=12", "train.grad_accum=4")]
)
def test_a_batch_that_does_not_divide_is_named_once(project, overrides):
    options = [option for override in overrides for option in ("-S", override)]
    output = run(project, *TRAIN, *options, code=1)
    assert output.count("does not divide into") == 1 and "runtime.n_procs" in output
