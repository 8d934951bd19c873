"""The training loop."""

import csv
import io
import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from tinygpt.batches import fixed_starts, random_starts, windows
from tinygpt.checkpoint import WorkFolder
from tinygpt.evaluation import window_nats
from tinygpt.files import write_text
from tinygpt.model import GPT, next_token_nats
from tinygpt.optim import learning_rate_at, make_optimizer, set_learning_rate
from tinygpt.params import TrainParams


class Evaluation(NamedTuple):
    """One row of training.csv: the fixed windows of train and val, scored at `step`."""

    step: int
    train_nats_per_token: float
    val_nats_per_token: float
    learning_rate: float


class Display(Protocol):
    """What `train` tells while it runs."""

    def on_step(self, step: int, nats_per_token: float, learning_rate: float) -> None: ...
    def on_evaluation(self, evaluation: Evaluation) -> None: ...


class Interrupted(Exception):
    """A signal stopped the run after a whole step, with everything saved."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; the same command goes on from there")
        self.exit_code = 128 + signal_number


class Run:
    """All that changes while a model trains; saved and loaded as a whole."""

    def __init__(self, model: GPT, params: TrainParams) -> None:
        self.model = model
        self.optimizer = make_optimizer(model, params)
        self.step = 0  # updates made so far
        self.history: list[Evaluation] = []
        self.best: Evaluation | None = None
        self.best_weights: dict[str, torch.Tensor] = {}
        self.seconds = {"training": 0.0, "evaluating": 0.0}  # over all sittings

    def state(self) -> dict[str, Any]:
        """Everything to go on exactly: the schedule and the windows follow from `step` and the seed."""
        return {
            "step": self.step,
            "weights": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "history": [tuple(evaluation) for evaluation in self.history],
            "best": tuple(self.best) if self.best else None,
            "best_weights": self.best_weights,
            "seconds": dict(self.seconds),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.model.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        if state["cuda_rng"]:
            torch.cuda.set_rng_state_all(state["cuda_rng"])
        self.history = [Evaluation(*row) for row in state["history"]]
        self.best = Evaluation(*state["best"]) if state["best"] else None
        self.best_weights = state["best_weights"]
        self.seconds = state["seconds"]

    @contextmanager
    def timed(self, activity: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[activity] += time.perf_counter() - start


def train(
    run: Run,
    streams: dict[str, np.ndarray],
    seed: int,
    params: TrainParams,
    work: WorkFolder,
    curve_path: Path,
    display: Display,
) -> None:
    """Train `run.model` until `params.max_steps` updates are made, going on from the checkpoint in `work`.

    Evaluates at step 0, every `eval_every` steps and after the last; each evaluation keeps the
    weights if they are the best so far, saves a checkpoint and rewrites `curve_path`.

    Raises:
        FloatingPointError: the loss is not finite.
        Interrupted: SIGINT or SIGTERM came; the step was finished and saved.
    """
    if state := work.load():
        run.restore(state)
        write_curve(curve_path, run.history)
    with deferred_signals() as received:
        while True:
            last_step = run.step == params.max_steps
            evaluated = bool(run.history) and run.history[-1].step == run.step  # before an interruption
            if (last_step or run.step % params.eval_every == 0) and not evaluated:
                with run.timed("evaluating"):
                    evaluate(run, streams, params)
                work.save(run.state())
                write_curve(curve_path, run.history)
                display.on_evaluation(run.history[-1])
            if last_step:
                return
            if received:
                work.save(run.state())
                raise Interrupted(received[0], run.step)
            with run.timed("training"):
                nats, learning_rate = update(run, streams["train"], seed, params)
            display.on_step(run.step, nats, learning_rate)


def update(run: Run, stream: np.ndarray, seed: int, params: TrainParams) -> tuple[float, float]:
    """Learn from one batch; return its loss in nats per token and the learning rate."""
    context_size, device = run.model.params.context_size, next(run.model.parameters()).device
    learning_rate = learning_rate_at(run.step, params)
    set_learning_rate(run.optimizer, learning_rate)
    starts = random_starts(stream, context_size, params.batch_size, seed, run.step)
    x, y = (part.to(device) for part in windows(stream, starts, context_size))  # (B, T)

    run.optimizer.zero_grad(set_to_none=True)
    loss = next_token_nats(run.model(x), y).mean()
    nats = loss.item()
    if not math.isfinite(nats):
        raise FloatingPointError(
            f"the loss is {nats} at step {run.step}, learning rate {learning_rate:.3g}; "
            "try a lower train.learning_rate or more train.warmup_steps"
        )
    loss.backward()
    torch.nn.utils.clip_grad_norm_(run.model.parameters(), params.grad_clip)
    run.optimizer.step()
    run.step += 1
    return nats, learning_rate


def evaluate(run: Run, streams: dict[str, np.ndarray], params: TrainParams) -> None:
    """Score the fixed windows of train and val; keep the weights with the lowest val loss."""
    losses = {}
    context_size = run.model.params.context_size
    for split in ("train", "val"):
        starts = fixed_starts(streams[split], context_size, params.eval_windows)
        losses[split] = window_nats(run.model, streams[split], starts, context_size) / (len(starts) * context_size)
    evaluation = Evaluation(run.step, losses["train"], losses["val"], learning_rate_at(run.step, params))
    run.history.append(evaluation)
    if run.best is None or evaluation.val_nats_per_token < run.best.val_nats_per_token:
        run.best = evaluation
        run.best_weights = {name: tensor.detach().clone() for name, tensor in run.model.state_dict().items()}


def write_curve(path: Path, history: list[Evaluation]) -> None:
    """training.csv so far: whole at any moment, so that a run in progress can be plotted."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(Evaluation._fields)
    rows.writerows((row.step, *(f"{value:.6g}" for value in row[1:])) for row in history)
    write_text(path, text.getvalue())


@contextmanager
def deferred_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying of them; a second one acts at once."""
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def collect(number: int, _frame: Any) -> None:
        received.append(number)
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, collect)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
