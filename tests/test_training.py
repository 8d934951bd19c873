import csv
import itertools
import math
import shutil
import signal

import numpy as np
import pytest
import torch

from tinygpt.batches import fixed_starts, windows
from tinygpt.checkpoint import WorkFolder
from tinygpt.evaluation import window_nats
from tinygpt.head_loss import head_loss
from tinygpt.model import initial_model, next_token_nats
from tinygpt.training import Evaluation, Interrupted, Run, train, update
from tinygpt.vocab import BOS

V = 20


class Recorder:
    """A display that remembers, and can break in at a step."""

    def __init__(self, break_in=None, at_step=None):
        self.updates, self.evaluations = [], []
        self.break_in, self.at_step = break_in, at_step

    @property
    def steps(self):
        return [update.step for update in self.updates]

    def on_update(self, update):
        self.updates.append(update)
        if update.step == self.at_step:
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
    small = {"batch_size": 4, "max_steps": 25, "eval_every": 10, "warmup_steps": 5, "eval_windows": 8}
    return params.train.model_copy(update=small | {"precision": "fp32"})


@pytest.fixture
def start(tmp_path, tiny_params, streams, train_params):
    """Begin or go on: a new model in the same work folder."""

    def start(display=None, dropout=0.1, **changes):
        changed = train_params.model_copy(update=changes)
        model = initial_model(tiny_params.model_copy(update={"dropout": dropout}), V, seed=0)
        run = Run(model, changed, seed=0)
        train(run, streams, WorkFolder(tmp_path / "work"), tmp_path / "training.csv", display or Recorder())
        return run

    return start


def interrupt(number=signal.SIGTERM):
    return lambda: signal.raise_signal(number)


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
    assert float(rows[1][4]) == 0 and all(float(row[4]) > 0 for row in rows[2:])  # gradient norms


def test_the_curve_grows_while_the_run_goes_on(start, tmp_path):
    lengths = []
    count = lambda: lengths.append(len((tmp_path / "training.csv").read_text().splitlines()))  # noqa: E731
    start(Recorder(count, at_step=15))
    assert lengths == [3]  # header, steps 0 and 10


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_it_learns(start, precision):
    run = start(max_steps=150, eval_every=50, dropout=0.0, precision=precision)
    assert run.history[-1].val_nats_per_token < 1.0 < run.history[0].val_nats_per_token


def test_the_best_weights_are_those_of_the_best_evaluation(start):
    run = start()
    run.best_weights["lm_head.bias"].zero_()  # a copy of its own: the model goes on unharmed
    assert run.model.lm_head.bias.abs().sum() > 0


def test_the_default_recipe_is_plain_adamw_under_a_cosine_to_the_bit(start, streams, tiny_params):
    """What the other optimizers, schedules and rates by group must leave as it is."""
    trained = start(dropout=0.0).model
    model = initial_model(tiny_params, V, seed=0)
    matrices, vectors = ([p for p in model.parameters() if (p.dim() == 2) == wanted] for wanted in (True, False))
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), fused=True)
    for step in range(25):
        above_floor = 0.5 * (1 + math.cos(math.pi * (step - 5) / 20))
        for group in optimizer.param_groups:
            group["lr"] = 0.003 * (step + 1) / 6 if step < 5 else 0.003 * (0.1 + 0.9 * above_floor)
        starts = np.random.default_rng((0, step)).integers(len(streams["train"]) - 12, size=4)
        spans = torch.from_numpy(streams["train"][starts[:, None] + np.arange(13)].astype(np.int64))
        optimizer.zero_grad()
        head_loss(model.lm_head, model.features(spans[:, :-1]), spans[:, 1:]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, trained.state_dict()[name]), name


def test_the_loss_of_a_batch_is_softly_capped(tiny_params, streams, train_params):
    model = initial_model(tiny_params.model_copy(update={"logit_soft_cap": 0.05}), V, seed=0)
    spans = torch.from_numpy(streams["train"][None, :13].astype(np.int64))
    x, y = spans[:, :-1], spans[:, 1:]
    loss = Run(model, train_params, seed=0).loss(x, y).item()
    assert loss == pytest.approx(next_token_nats(model(x), y).mean().item(), rel=1e-6)


# The average of the weights, and windows at story starts.


def test_the_average_of_the_weights_by_hand(tiny_params, streams, train_params):
    model = initial_model(tiny_params.model_copy(update={"tie_embeddings": True}), V, seed=0)
    run = Run(model, train_params.model_copy(update={"ema_decay": 0.3}), seed=0)
    expected = model.token_embedding.weight.detach().clone()
    for decay in (1 / 10, 2 / 11, 3 / 12, 0.3, 0.3):
        update(run, streams["train"])
        expected = decay * expected + (1 - decay) * model.token_embedding.weight.detach()
        assert torch.allclose(run.averaged.token_embedding.weight, expected, atol=1e-7)
    assert run.averaged.lm_head.weight is run.averaged.token_embedding.weight


def test_the_average_is_evaluated_and_kept_while_the_weights_train_on_as_without(start, streams, tmp_path):
    plain = start()
    assert plain.averaged is plain.model
    WorkFolder(tmp_path / "work").clear()
    run = start(ema_decay=0.9)
    for name, tensor in plain.model.state_dict().items():
        assert torch.equal(tensor, run.model.state_dict()[name]), name
    starts = fixed_starts(streams["val"], 12, 8)
    val, raw_val = (
        window_nats(model, streams["val"], starts, 12) / (12 * len(starts)) for model in (run.averaged, run.model)
    )
    assert run.history[-1].val_nats_per_token == pytest.approx(val) != pytest.approx(raw_val)
    assert run.best.step == 25
    for name, tensor in run.averaged.state_dict().items():
        assert torch.equal(tensor, run.best_weights[name]), name


@pytest.mark.parametrize("grad_accum", [1, 2])
def test_all_windows_can_begin_at_story_starts(start, monkeypatch, grad_accum):
    first = []

    def watched(*args):
        x, y = windows(*args)
        first.extend(x[:, 0].tolist())
        return x, y

    monkeypatch.setattr("tinygpt.training.windows", watched)
    start(story_start_share=1.0, grad_accum=grad_accum)
    assert first == [BOS] * (25 * 4)


# Stopping and going on.


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_step_saves_and_the_next_run_goes_on(start, number, code):
    with pytest.raises(Interrupted, match="stopped at step 13") as stop:
        start(Recorder(interrupt(number), at_step=13))
    assert stop.value.exit_code == code
    resumed = Recorder()
    start(resumed)
    assert resumed.steps == list(range(14, 26))
    assert [evaluation.step for evaluation in resumed.evaluations] == [20, 25]


@pytest.mark.parametrize("changes", [{}, {"precision": "bf16"}, {"ema_decay": 0.9, "story_start_share": 0.5}])
def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit(start, tmp_path, changes):
    whole = start(**changes)
    curve = (tmp_path / "training.csv").read_bytes()
    WorkFolder(tmp_path / "work").clear()
    for at_step in (3, 10, 21):
        with pytest.raises(Interrupted):
            start(Recorder(interrupt(), at_step), **changes)
        torch.rand(7)  # what else the process draws in between must not matter
    resumed = start(**changes)
    assert resumed.history == whole.history and resumed.best == whole.best
    assert (tmp_path / "training.csv").read_bytes() == curve
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, resumed.model.state_dict()[name]), name
        assert torch.equal(whole.averaged.state_dict()[name], resumed.averaged.state_dict()[name]), name
        assert torch.equal(whole.best_weights[name], resumed.best_weights[name]), name


def test_a_crash_goes_on_from_the_last_evaluation(start):
    def crash():
        raise MemoryError

    with pytest.raises(MemoryError):
        start(Recorder(crash, at_step=17))
    resumed = Recorder()
    start(resumed)
    assert resumed.steps[0] == 11


def test_seconds_are_summed_over_resumes(start, tmp_path):
    with pytest.raises(Interrupted):
        start(Recorder(interrupt(), at_step=13))
    state = WorkFolder(tmp_path / "work").load()
    state["seconds"]["training"] += 1000
    WorkFolder(tmp_path / "work").save(state)
    assert 1000 < start().elapsed < 1100


# Stop rules.


def test_time_ends_a_run_with_an_evaluation_of_its_last_weights(start):
    run = start(max_steps=10_000, max_seconds=0.2)
    assert 0 < run.step < 10_000
    assert run.history[-1].step == run.step
    assert 0.2 <= run.elapsed < 5
    assert run.history[-1].learning_rate < 0.2 * run.params.learning_rate  # the schedule came down by then


def test_patience_ends_a_run_that_gets_no_better(start):
    run = start(max_steps=10_000, eval_every=5, patience=3, learning_rate=1e-12)
    assert run.history[-1].step == run.step < 10_000
    assert run.history[-1].step == run.best.step + 15


# Guards.


def test_a_loss_that_is_not_finite_names_step_loss_learning_rate_and_checkpoint(start, monkeypatch, tmp_path):
    losses = itertools.chain([1.0] * 17, [math.nan])
    monkeypatch.setattr(
        "tinygpt.training.head_loss", lambda head, features, targets, soft_cap: head(features).sum() * 0 + next(losses)
    )
    with pytest.raises(FloatingPointError, match=r"the loss is nan at step 17, learning rate 0\.00\d+.*is of step 10;"):
        start()
    assert WorkFolder(tmp_path / "work").load()["step"] == 10


def test_weights_that_are_not_finite_are_never_saved(start, monkeypatch, tmp_path):
    display = Recorder(at_step=19)
    display.break_in = lambda: monkeypatch.setattr("tinygpt.training.window_nats", lambda *_: math.nan)
    with pytest.raises(FloatingPointError, match="the train loss is nan at step 20"):
        start(display)
    assert WorkFolder(tmp_path / "work").load()["step"] == 10


def test_a_spike_is_named_and_noise_is_not(start, monkeypatch):
    noise = np.random.default_rng(0).normal(3.0, 0.1, size=99)
    noise[80] = 5.0
    losses = iter(noise)
    monkeypatch.setattr(
        "tinygpt.training.head_loss", lambda head, features, targets, soft_cap: head(features).sum() * 0 + next(losses)
    )
    display = Recorder()
    start(display, max_steps=99)
    (spike,) = [update.spike for update in display.updates if update.spike]
    assert spike.startswith("the loss jumped from 3.0") and "to 5.000 at step 81, learning rate" in spike
    assert spike.endswith("the last checkpoint before is of step 80")


# The same batch, divided.


@pytest.mark.parametrize("grad_accum", [2, 4])
def test_accumulated_gradients_give_the_same_run(start, tmp_path, grad_accum):
    whole = start(dropout=0.0)
    WorkFolder(tmp_path / "work").clear()
    parts = start(dropout=0.0, grad_accum=grad_accum)
    for one, other in zip(whole.history, parts.history, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no compiler here")
def test_a_compiled_run_learns_the_same(start, tmp_path):
    whole = start(dropout=0.0, max_steps=10)
    WorkFolder(tmp_path / "work").clear()
    compiled = start(dropout=0.0, max_steps=10, compile="on")
    assert whole.history[-1] == pytest.approx(compiled.history[-1], abs=1e-4)


def test_without_a_compiler_auto_goes_on_and_on_is_refused(start, monkeypatch, capsys):
    def broken(*args, **options):
        raise RuntimeError("no g++ anywhere\nand more")

    monkeypatch.setattr(torch, "compile", broken)
    assert start(compile="auto").step == 25
    assert "nothing compiles here, going on without (no g++ anywhere)" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"train\.compile = on, but nothing compiles here \(no g\+\+ anywhere\)"):
        start(compile="on")
