"""Train the model; goes on from its last checkpoint if an earlier run was stopped."""

import hashlib
import json
import sys
from pathlib import Path
from typing import Annotated

import filelock
import typer
from tqdm import tqdm

from stages.command import SetParam, need, run
from tinygpt.batches import check_fits
from tinygpt.checkpoint import WorkFolder, describe_model, save_checkpoint
from tinygpt.devices import choose_device, describe_machine, peak_memory_bytes
from tinygpt.files import replacing, write_json
from tinygpt.model import initial_model
from tinygpt.params import Params, load_params
from tinygpt.processes import Group, join_group, launch, launched
from tinygpt.tokens import TokenStream, pieces
from tinygpt.training import Display, Evaluation, Interrupted, Run, Update
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
    need(vocab_path, "vocab")
    for split in ("train", "val"):
        stream = TokenStream(need(encoded_dir / f"{split}.bin", "encode"))
        check_fits(stream, params.model.context_size, f"{split}.bin")
    paths = (encoded_dir, vocab_path, model_dir, curve_path, cost_path, checkpoint_dir)
    if params.runtime.n_procs > 1 and not launched():
        raise typer.Exit(launch(params.runtime.n_procs, train_in_group, params, *paths))
    raise typer.Exit(train_in_group(params, *paths) if launched() else train_here(Group(), params, *paths))


def train_in_group(params: Params, *paths: Path) -> int:
    """As one of several processes: return an exit code, and let rank 0 alone say what went wrong."""
    group = join_group(choose_device(params.runtime))
    try:
        return train_here(group, params, *paths)
    except (ValueError, FloatingPointError) as error:
        if group.is_main:
            print(f"train: {error}", file=sys.stderr)
        return 1
    except RuntimeError as error:  # what a lost connection raises
        print(f"train: rank {group.rank} of {group.size} gave up: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1


def train_here(
    group: Group,
    params: Params,
    encoded_dir: Path,
    vocab_path: Path,
    model_dir: Path,
    curve_path: Path,
    cost_path: Path,
    checkpoint_dir: Path,
) -> int:
    """Train in this process, write the outputs if it is the main one; return the exit code."""
    check_shares(params, group)
    vocab = Vocab.load(vocab_path)
    streams = {split: TokenStream(encoded_dir / f"{split}.bin") for split in ("train", "val")}
    model = initial_model(params.model, len(vocab), params.seed).to(choose_device(params.runtime))
    state = Run(model, params.train, params.seed, group)
    work = WorkFolder(checkpoint_dir / run_key(params, vocab, streams))
    lock = take(work.folder) if group.is_main else None
    display = make_display(params, group)
    try:
        run_training(state, streams, work, curve_path, display)
    except Interrupted as stop:
        display.close()
        group.leave()
        if group.is_main:
            print(f"train: {stop}", file=sys.stderr)
        return stop.exit_code if group.is_main else 0
    display.close()
    if lock:
        save_outputs(state, vocab, model_dir)
        write_json(cost_path, cost(state, params))
        work.clear()
        lock.release()
        print_result(state)
    group.leave()
    return 0


def check_shares(params: Params, group: Group) -> None:
    parts = group.size * params.train.grad_accum
    if params.train.batch_size % parts:
        raise ValueError(
            f"train.batch_size = {params.train.batch_size} does not divide into {parts} equal parts: "
            f"{group.size} processes (runtime.n_procs) × train.grad_accum = {params.train.grad_accum}"
        )


def run_key(params: Params, vocab: Vocab, streams: dict[str, TokenStream]) -> str:
    """Names what a run depends on, so that a checkpoint of another run is never taken for this one's."""
    digest = hashlib.sha256(vocab.sha256.encode())
    for stream in streams.values():
        for piece in pieces(stream):
            digest.update(piece)
    digest.update(json.dumps(params.model_dump(include={"seed", "model", "train"}), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def take(folder: Path) -> filelock.BaseFileLock:
    """Hold the work folder; a second trainer of the same run is refused."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(f"another process is training this very run ({folder}); wait for it or stop it") from None
    return lock


def save_outputs(state: Run, vocab: Vocab, model_dir: Path) -> None:
    """best.pt to use, last.pt to look into: weights with all that describes them."""
    last = state.history[-1]
    with replacing(model_dir) as partial:
        for name, evaluation, weights in (
            ("best.pt", state.best, state.best_weights),
            ("last.pt", last, state.averaged.state_dict()),
        ):
            content = describe_model(state.model, weights, vocab, state.seed)
            content |= {"step": evaluation.step, "val_nats_per_token": evaluation.val_nats_per_token}
            if name == "last.pt":
                content["optimizer"] = state.optimizer.state_dict()
                if state.params.ema_decay:
                    content["raw_weights"] = state.model.state_dict()  # what the optimizer goes on from
            save_checkpoint(partial / name, content)


def cost(state: Run, params: Params) -> dict:
    n_positions = state.step * params.train.batch_size * params.model.context_size
    return {
        "n_positions": n_positions,
        "positions_per_second": n_positions / state.seconds["training"],
        "minutes": state.elapsed / 60,
        "peak_memory_mib": peak_memory_bytes(state.device) / 2**20,
        "machine": {
            **describe_machine(state.device),
            "n_procs": state.group.size,
            "precision": "fp32" if state.precision is None else "bf16",
        },
    }


def print_result(state: Run) -> None:
    best = state.best
    print(f"train: {state.step:,} steps; best at step {best.step:,}: val {best.val_nats_per_token:.4f} nats per token")


def make_display(params: Params, group: Group) -> Display:
    if not group.is_main:
        return Silence()
    return ProgressBar(params) if sys.stderr.isatty() else PlainLines()


class Silence:
    """For the processes beside the main one."""

    def on_update(self, update: Update) -> None:
        pass

    def on_evaluation(self, evaluation: Evaluation) -> None:
        pass

    def close(self) -> None:
        pass


class PlainLines(Silence):
    """For a log file: a line an evaluation."""

    def on_update(self, update: Update) -> None:
        if update.spike:
            print(f"train: {update.spike}", file=sys.stderr, flush=True)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        print(evaluation_line(evaluation), flush=True)


class ProgressBar:
    """For a terminal: tokens done and left, tokens per second, step, loss, learning rate."""

    def __init__(self, params: Params) -> None:
        self.batch_tokens = params.train.batch_size * params.model.context_size
        self.max_steps = params.train.max_steps
        self.bar: tqdm | None = None

    def on_update(self, update: Update) -> None:
        if self.bar is None:  # only now is it known where a resumed run goes on
            done, total = (update.step - 1) * self.batch_tokens, self.max_steps * self.batch_tokens
            self.bar = tqdm(initial=done, total=total, unit="token", unit_scale=True, dynamic_ncols=True)
        if update.spike:
            tqdm.write(f"train: {update.spike}", file=sys.stderr)
        step, loss, rate = f"{update.step:,}/{self.max_steps:,}", update.nats_per_token, update.learning_rate
        self.bar.set_postfix_str(f"step {step}, loss {loss:.3f}, lr {rate:.1e}", refresh=False)
        self.bar.update(self.batch_tokens)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        tqdm.write(evaluation_line(evaluation))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()  # what is printed next begins a line


def evaluation_line(evaluation: Evaluation) -> str:
    return (
        f"step {evaluation.step:>6,}  train {evaluation.train_nats_per_token:.4f}  "
        f"val {evaluation.val_nats_per_token:.4f} nats per token  lr {evaluation.learning_rate:.1e}"
    )


if __name__ == "__main__":
    run(train)
