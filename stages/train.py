"""Train the model; goes on from its last checkpoint if an earlier run was stopped."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Annotated

import filelock
import numpy as np
import typer
from tqdm import tqdm

from stages.command import SetParam, need, run
from tinygpt.batches import check_fits
from tinygpt.checkpoint import WorkFolder, describe_model, save_checkpoint
from tinygpt.devices import choose_device, describe_machine, peak_memory_bytes
from tinygpt.files import replacing, write_json
from tinygpt.model import initial_model
from tinygpt.params import Params, load_params
from tinygpt.tokens import read_stream
from tinygpt.training import Evaluation, Interrupted, Run
from tinygpt.training import train as run_training
from tinygpt.vocab import Vocab


def train(
    encoded_dir: Path = Path("data/encoded"),
    vocab_path: Path = Path("data/vocab.json"),
    model_dir: Path = Path("data/model"),
    curve_path: Path = Path("reports/training.csv"),
    cost_path: Path = Path("reports/cost.json"),
    checkpoint_dir: Annotated[
        Path, typer.Option(envvar="TINYGPT_CHECKPOINTS", help="Where runs in progress are kept.")
    ] = Path("data/checkpoints"),
    set_param: SetParam = None,
) -> None:
    """Train the model; goes on from its last checkpoint if an earlier run was stopped."""
    params = load_params(Path("params.yaml"), set_param)
    vocab = Vocab.load(need(vocab_path, "vocab"))
    streams = {split: read_stream(need(encoded_dir / f"{split}.bin", "encode")) for split in ("train", "val")}
    for split, stream in streams.items():
        check_fits(stream, params.model.context_size, f"{split}.bin")

    device = choose_device(params.runtime)
    model = initial_model(params.model, len(vocab), params.seed).to(device)
    state = Run(model, params.train)
    work = WorkFolder(checkpoint_dir / run_key(params, vocab, streams))
    display = ProgressBar(params) if sys.stderr.isatty() else PlainLines()
    try:
        with alone_in(work.folder):
            run_training(state, streams, params.seed, params.train, work, curve_path, display)
            save_outputs(state, vocab, params, model_dir)
            write_json(cost_path, cost(state, params))
            work.clear()
    except Interrupted as stop:
        print(f"train: {stop}", file=sys.stderr)
        raise typer.Exit(stop.exit_code) from None
    best = state.best
    print(f"train: {state.step:,} steps; best at step {best.step:,}: val {best.val_nats_per_token:.4f} nats per token")


def run_key(params: Params, vocab: Vocab, streams: dict[str, np.ndarray]) -> str:
    """Names what a run depends on, so that a checkpoint of another run is never taken for this one's."""
    digest = hashlib.sha256(vocab.sha256.encode())
    for stream in streams.values():
        digest.update(stream)
    digest.update(json.dumps(params.model_dump(include={"seed", "model", "train"}), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def alone_in(folder: Path) -> filelock.BaseFileLock:
    """Hold the work folder; a second trainer of the same run is refused."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder.with_suffix(".lock"))
    try:
        return lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(f"another process is training this very run ({folder}); wait for it or stop it") from None


def save_outputs(state: Run, vocab: Vocab, params: Params, model_dir: Path) -> None:
    """best.pt to use, last.pt to look into: weights with all that describes them."""
    last = state.history[-1]
    with replacing(model_dir) as partial:
        for name, evaluation, weights in (
            ("best.pt", state.best, state.best_weights),
            ("last.pt", last, state.model.state_dict()),
        ):
            content = describe_model(state.model, weights, vocab, params.seed)
            content |= {"step": evaluation.step, "val_nats_per_token": evaluation.val_nats_per_token}
            if name == "last.pt":
                whole = state.state()
                content |= {key: whole[key] for key in ("optimizer", "rng", "cuda_rng")}
            save_checkpoint(partial / name, content)


def cost(state: Run, params: Params) -> dict:
    device = next(state.model.parameters()).device
    n_positions = state.step * params.train.batch_size * params.model.context_size
    return {
        "n_positions": n_positions,
        "positions_per_second": n_positions / state.seconds["training"],
        "minutes": sum(state.seconds.values()) / 60,
        "peak_memory_mib": peak_memory_bytes(device) / 2**20,
        "machine": describe_machine(device),
    }


class ProgressBar:
    """For a terminal: tokens done and left, tokens per second, step, loss, learning rate."""

    def __init__(self, params: Params) -> None:
        self.batch_tokens = params.train.batch_size * params.model.context_size
        self.max_steps = params.train.max_steps
        self.bar: tqdm | None = None

    def on_step(self, step: int, nats_per_token: float, learning_rate: float) -> None:
        if self.bar is None:  # only now is it known where a resumed run goes on
            done, total = (step - 1) * self.batch_tokens, self.max_steps * self.batch_tokens
            self.bar = tqdm(initial=done, total=total, unit="token", unit_scale=True, dynamic_ncols=True)
        text = f"step {step:,}/{self.max_steps:,}, loss {nats_per_token:.3f}, lr {learning_rate:.1e}"
        self.bar.set_postfix_str(text, refresh=False)
        self.bar.update(self.batch_tokens)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        tqdm.write(evaluation_line(evaluation))


class PlainLines:
    """For a log file: a line an evaluation."""

    def on_step(self, step: int, nats_per_token: float, learning_rate: float) -> None:
        pass

    def on_evaluation(self, evaluation: Evaluation) -> None:
        print(evaluation_line(evaluation), flush=True)


def evaluation_line(evaluation: Evaluation) -> str:
    return (
        f"step {evaluation.step:>6,}  train {evaluation.train_nats_per_token:.4f}  "
        f"val {evaluation.val_nats_per_token:.4f} nats per token  lr {evaluation.learning_rate:.1e}"
    )


if __name__ == "__main__":
    run(train)
