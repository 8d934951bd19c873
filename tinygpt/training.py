"""The training loop."""

import copy
import csv
import io
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from tinygpt.batches import Stream, fixed_starts, random_starts, story_starts, windows
from tinygpt.checkpoint import WorkFolder
from tinygpt.devices import autocast_dtype, compiled
from tinygpt.evaluation import window_nats
from tinygpt.files import write_text
from tinygpt.head_loss import head_loss
from tinygpt.model import GPT
from tinygpt.optim import learning_rate_at, make_optimizer, set_learning_rate
from tinygpt.params import TrainParams
from tinygpt.processes import Group

SPIKE_NATS = 1.0  # a batch loss is a spike if it is so far above the average of the last ones ...
SPIKE_DEVIATIONS = 6.0  # ... and so many of their standard deviations
AVERAGE_OVER = 50  # batches


class Evaluation(NamedTuple):
    """One row of training.csv: the fixed windows of train and val, scored at `step`.

    `grad_norm` is the length of the gradient before clipping, averaged over the updates since the
    evaluation before; 0 at step 0.
    """

    step: int
    train_nats_per_token: float
    val_nats_per_token: float
    learning_rate: float
    grad_norm: float


class Update(NamedTuple):
    """What one update tells; `spike` says what is wrong with its loss, if something is."""

    step: int
    nats_per_token: float
    learning_rate: float
    spike: str | None


class Display(Protocol):
    """What `train` tells while it runs."""

    def on_update(self, update: Update) -> None: ...
    def on_evaluation(self, evaluation: Evaluation) -> None: ...


class Interrupted(Exception):
    """A signal stopped the run after a whole step, with everything saved."""

    def __init__(self, signal_number: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; the same command goes on from there")
        self.exit_code = 128 + signal_number


class BatchLoss(nn.Module):
    """The mean loss of a batch, as one module to compile and to share between processes."""

    def __init__(self, model: GPT, features: Callable[[Tensor], Tensor], precision: torch.dtype | None) -> None:
        super().__init__()
        self.model = model
        self.features = features  # the model's own, or compiled
        self.precision = precision

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(x.device.type, self.precision, enabled=self.precision is not None):
            return head_loss(self.model.lm_head, self.features(x), y, self.model.params.logit_soft_cap)


class Run:
    """A model in training: all that changes, saved and loaded as a whole."""

    def __init__(self, model: GPT, params: TrainParams, seed: int, group: Group | None = None) -> None:
        self.model = model
        self.averaged = copy.deepcopy(model) if params.ema_decay else model  # what is evaluated and kept
        self.params = params
        self.seed = seed
        self.group = group or Group()
        self.device = next(model.parameters()).device
        self.precision = autocast_dtype(params.precision, self.device)  # None: float32
        tell = print if self.group.is_main else lambda text: None
        features = compiled(model.features, params.compile, self.device, tell)
        self.loss = self.group.wrap(BatchLoss(model, features, self.precision))
        self.optimizer = make_optimizer(model, params)
        self.step = 0  # updates made so far
        self.history: list[Evaluation] = []
        self.best: Evaluation | None = None
        self.best_weights: dict[str, Tensor] = {}
        self.grad_norms: list[float] = []  # since the last evaluation
        self.average = self.variance = 0.0  # of the batch losses, over the last ones
        self.stories: np.ndarray | None = None  # where the training stream's stories begin, once it matters
        self.seconds = {"training": 0.0, "evaluating": 0.0}  # over all sittings

    def state(self) -> dict[str, Any]:
        """Everything to go on exactly.

        Step and seed stand for the schedule, the sampler and every generator of random numbers: the
        windows of a step and its dropout are drawn from them alone.
        """
        return {
            "step": self.step,
            "seed": self.seed,
            "weights": self.model.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": [tuple(evaluation) for evaluation in self.history],
            "best": tuple(self.best) if self.best else None,
            "best_weights": self.best_weights,
            "grad_norms": self.grad_norms,
            "average": self.average,
            "variance": self.variance,
            "seconds": dict(self.seconds),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["weights"])
        self.averaged.load_state_dict(state["averaged"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history = [Evaluation(*row) for row in state["history"]]
        self.best = Evaluation(*state["best"]) if state["best"] else None
        for name in ("step", "best_weights", "grad_norms", "average", "variance", "seconds"):
            setattr(self, name, state[name])

    @property
    def elapsed(self) -> float:
        """Seconds of training and evaluating over all sittings; resuming does not reset it."""
        return sum(self.seconds.values())

    @property
    def is_done(self) -> bool:
        """Whether a stop rule holds: steps, seconds, or evaluations without a better val loss."""
        params = self.params
        out_of_time = params.max_seconds is not None and self.elapsed >= params.max_seconds
        waited = sum(evaluation.step > self.best.step for evaluation in self.history) if self.best else 0
        out_of_patience = params.patience is not None and waited >= params.patience
        return self.step >= params.max_steps or out_of_time or out_of_patience

    @property
    def is_evaluation_due(self) -> bool:
        """On schedule and for the last weights, unless done already before an interruption."""
        evaluated = bool(self.history) and self.history[-1].step == self.step
        return not evaluated and (self.step % self.params.eval_every == 0 or self.is_done)

    @contextmanager
    def timed(self, activity: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[activity] += time.perf_counter() - start


def train(run: Run, streams: dict[str, Stream], work: WorkFolder, curve_path: Path, display: Display) -> None:
    """Train `run` until a stop rule holds, going on from the checkpoint in `work` if there is one.

    Evaluates at step 0, every `eval_every` steps and at the end; each evaluation keeps the weights
    if they are the best so far, saves a checkpoint and rewrites `curve_path`.

    Raises:
        FloatingPointError: a loss is not finite; the last checkpoint is from before it.
        Interrupted: SIGINT or SIGTERM came; the step was finished and saved.
    """
    group = run.group
    if state := group.share(work.load() if group.is_main else None):
        run.restore(state)
        if group.is_main:
            write_curve(curve_path, run.history)
    with deferred_signals() as received:
        while True:
            stop_signal = agree(run, received)
            if run.is_evaluation_due:
                with run.timed("evaluating"):
                    evaluate(run, streams)
                if group.is_main:
                    work.save(run.state())
                    write_curve(curve_path, run.history)
                    display.on_evaluation(run.history[-1])
                stop_signal = agree(run, received)
            if run.is_done:
                return
            if stop_signal:
                if group.is_main:
                    work.save(run.state())
                raise Interrupted(stop_signal, run.step)
            with run.timed("training"):
                done = update(run, streams["train"])
            display.on_update(done)


def update(run: Run, stream: Stream) -> Update:
    """Learn from one batch: this process takes its share of the windows, in `grad_accum` parts."""
    params, group, step = run.params, run.group, run.step
    learning_rate = learning_rate_at(step, params, run.elapsed)
    set_learning_rate(run.optimizer, learning_rate)
    context_size = run.model.params.context_size
    if params.story_start_share and run.stories is None:
        run.stories = story_starts(stream, context_size)
    starts = random_starts(
        stream, context_size, params.batch_size, run.seed, step, run.stories, params.story_start_share
    )[group.rank :: group.size]
    if run.model.params.dropout:
        torch.manual_seed(dropout_seed(run.seed, step, group.rank))

    run.optimizer.zero_grad(set_to_none=True)
    nats = 0.0
    for part, some in enumerate(np.split(starts, params.grad_accum), 1):
        x, y = windows(stream, some, context_size, run.device)  # (B, T)
        is_last = group.size == 1 or part == params.grad_accum
        with nullcontext() if is_last else run.loss.no_sync():  # the processes meet once a step
            loss = run.loss(x, y) / params.grad_accum
            loss.backward()
        nats += loss.item()
    nats = group.sum([nats / group.size])[0]
    check_finite(nats, "the loss", run, learning_rate)

    grad_norm = torch.nn.utils.clip_grad_norm_(run.model.parameters(), params.grad_clip).item()
    run.optimizer.step()
    average_weights(run)
    run.grad_norms.append(grad_norm)
    run.step += 1
    return Update(run.step, nats, learning_rate, watch_for_spike(run, nats, learning_rate, grad_norm))


@torch.no_grad()
def average_weights(run: Run) -> None:
    """Exponential moving average: of the average the share d stays, the new weights make up the rest.

    d grows up to `ema_decay`: min(ema_decay, (1 + t) / (10 + t)) after t updates. So the initial weights,
    which the average starts from, are soon gone, and it is ready to use at any step with no correction;
    early on it reaches back over the last ninth of the way. Source: tf.train.ExponentialMovingAverage.
    """
    if run.params.ema_decay:
        decay = min(run.params.ema_decay, (1 + run.step) / (10 + run.step))
        for average, weight in zip(run.averaged.parameters(), run.model.parameters(), strict=True):
            average.lerp_(weight, 1 - decay)


def evaluate(run: Run, streams: dict[str, Stream]) -> None:
    """Score the fixed windows of train and val; keep the weights with the lowest val loss."""
    losses = {}
    context_size, group = run.model.params.context_size, run.group
    learning_rate = learning_rate_at(run.step, run.params, run.elapsed)
    for split in ("train", "val"):
        starts = fixed_starts(streams[split], context_size, run.params.eval_windows)
        nats = window_nats(run.averaged, streams[split], starts[group.rank :: group.size], context_size)
        losses[split] = group.sum([nats])[0] / (len(starts) * context_size)
        check_finite(losses[split], f"the {split} loss", run, learning_rate)
    grad_norm = sum(run.grad_norms) / max(1, len(run.grad_norms))
    run.grad_norms.clear()
    evaluation = Evaluation(run.step, losses["train"], losses["val"], learning_rate, grad_norm)
    run.history.append(evaluation)
    if run.best is None or evaluation.val_nats_per_token < run.best.val_nats_per_token:
        run.best = evaluation
        run.best_weights = {name: tensor.detach().clone() for name, tensor in run.averaged.state_dict().items()}


def check_finite(nats: float, what: str, run: Run, learning_rate: float) -> None:
    if not math.isfinite(nats):
        last = f"; the last good checkpoint is of step {run.history[-1].step}" if run.history else ""
        raise FloatingPointError(
            f"{what} is {nats} at step {run.step}, learning rate {learning_rate:.3g}{last}; "
            "try a lower train.learning_rate or more train.warmup_steps"
        )


def watch_for_spike(run: Run, nats: float, learning_rate: float, grad_norm: float) -> str | None:
    """Compare a batch loss with the running average of those before, then add it to the average."""
    excess = nats - run.average
    is_spike = run.step > AVERAGE_OVER and excess > max(SPIKE_NATS, SPIKE_DEVIATIONS * math.sqrt(run.variance))
    text = (
        f"the loss jumped from {run.average:.3f} to {nats:.3f} at step {run.step}, learning rate {learning_rate:.3g}, "
        f"gradient norm {grad_norm:.3g}; the last checkpoint before is of step {run.history[-1].step}"
        if is_spike
        else None
    )
    weight = 1 / min(run.step, AVERAGE_OVER)
    run.average += weight * excess
    run.variance += weight * (excess**2 - run.variance)
    return text


def agree(run: Run, received: list[int]) -> int | None:
    """Give all processes rank 0's clock and a signal that any of them got, so that they stop at the same step."""
    if run.group.size == 1:
        return received[0] if received else None
    clock = [seconds if run.group.is_main else 0.0 for seconds in run.seconds.values()]
    *clock, interrupts, terminates = run.group.sum([*clock, signal.SIGINT in received, signal.SIGTERM in received])
    run.seconds = dict(zip(run.seconds, clock, strict=True))
    if interrupts:
        return signal.SIGINT
    return signal.SIGTERM if terminates else None


def dropout_seed(seed: int, step: int, rank: int) -> int:
    return int(np.random.SeedSequence((seed, step, rank)).generate_state(1, np.uint64)[0])


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
