import csv
import itertools
import math
import signal

import numpy as np
import pytest
import torch

from tinygpt.checkpoint import WorkFolder
from tinygpt.model import initial_model
from tinygpt.training import Evaluation, Interrupted, Run, train

V = 20


class Recorder:
    """A display that remembers, and can break in at a step."""

    def __init__(self, break_in=None, at_step=None):
        self.steps, self.evaluations = [], []
        self.break_in, self.at_step = break_in, at_step

    def on_step(self, step, nats_per_token, learning_rate):
        self.steps.append(step)
        if step == self.at_step:
            self.break_in()

    def on_evaluation(self, evaluation):
        self.evaluations.append(evaluation)


@pytest.fixture
def streams():
    """An easy language: count up, begin again."""
    stream = np.tile(np.arange(V, dtype=np.uint16), 40)
    return {"train": stream, "val": stream[: 10 * V]}


@pytest.fixture
def train_params(params):
    return params.train.model_copy(
        update={"batch_size": 4, "max_steps": 25, "eval_every": 10, "warmup_steps": 5, "eval_windows": 8}
    )


@pytest.fixture
def start(tmp_path, tiny_params, streams, train_params):
    """Begin or go on: a new model in the same work folder."""

    def start(display=None, dropout=0.1, **changes):
        changed = train_params.model_copy(update=changes)
        model = initial_model(tiny_params.model_copy(update={"dropout": dropout}), V, seed=0)
        run = Run(model, changed)
        display = display or Recorder()
        train(run, streams, 0, changed, WorkFolder(tmp_path / "work"), tmp_path / "training.csv", display)
        return run

    return start


def test_the_loop_evaluates_at_the_start_on_schedule_and_at_the_end(start, tmp_path):
    display = Recorder()
    run = start(display)
    assert [evaluation.step for evaluation in display.evaluations] == [0, 10, 20, 25]
    assert display.steps == list(range(1, 26))
    assert display.evaluations[0].val_nats_per_token == pytest.approx(math.log(V), rel=0.03)
    assert run.best == min(display.evaluations, key=lambda evaluation: evaluation.val_nats_per_token)
    with (tmp_path / "training.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == list(Evaluation._fields)
    assert [row[0] for row in rows[1:]] == ["0", "10", "20", "25"]


def test_it_learns(start):
    run = start(max_steps=150, eval_every=50, dropout=0.0)
    assert run.history[-1].val_nats_per_token < 1.0 < run.history[0].val_nats_per_token


def test_the_best_weights_are_those_of_the_best_evaluation(start):
    run = start()
    run.best_weights["lm_head.bias"].zero_()  # a copy of its own: the model goes on unharmed
    assert run.model.lm_head.bias.abs().sum() > 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_saves_and_the_next_run_goes_on(start, number, code):
    with pytest.raises(Interrupted, match="stopped at step 13") as stop:
        start(Recorder(lambda: signal.raise_signal(number), at_step=13))
    assert stop.value.exit_code == code
    resumed = Recorder()
    start(resumed)
    assert resumed.steps == list(range(14, 26))
    assert [evaluation.step for evaluation in resumed.evaluations] == [20, 25]


def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(start, tmp_path):
    whole = start()
    curve = (tmp_path / "training.csv").read_bytes()
    WorkFolder(tmp_path / "work").clear()
    for at_step in (3, 10, 21):
        with pytest.raises(Interrupted):
            start(Recorder(lambda: signal.raise_signal(signal.SIGTERM), at_step))
        torch.rand(7)  # what else the process draws in between must not matter
    resumed = start()
    assert resumed.history == whole.history and resumed.best == whole.best
    assert (tmp_path / "training.csv").read_bytes() == curve
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
        assert torch.equal(whole.best_weights[name], resumed.best_weights[name]), name


def test_a_crash_goes_on_from_the_last_evaluation(start):
    def crash():
        raise MemoryError

    with pytest.raises(MemoryError):
        start(Recorder(crash, at_step=17))
    resumed = Recorder()
    start(resumed)
    assert resumed.steps[0] == 11


def test_a_loss_that_is_not_finite_names_step_loss_and_learning_rate(start, monkeypatch):
    losses = itertools.chain([1.0] * 7, [math.nan])
    monkeypatch.setattr(
        "tinygpt.training.next_token_nats",
        lambda logits, targets: logits.sum() * 0 + next(losses),
    )
    with pytest.raises(FloatingPointError, match=r"the loss is nan at step 7, learning rate 0\.00\d+"):
        start()
