"""Train variants of the default run over several seeds and compare them in pairs.

    python -m benchmarks.compare 'fp32: train.precision=fp32' 'bf16: train.precision=bf16' --seeds 3

Each variant is a name and overrides of params.yaml. A run is the real train and evaluate stage in a
folder of its own; finished runs are kept under data/compare, so that a stopped comparison goes on.
The first variant is the reference: a difference is the mean over the seeds of (variant - reference),
with a 95 % interval from Student's t over these pairs.
"""

import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from tabulate import tabulate

from tinygpt.files import read_json
from tinygpt.measures import paired_t


def compare(
    variants: list[str],
    seeds: Annotated[int, typer.Option(min=2, max=10, help="Runs of each variant, with seeds 0, 1, …")] = 3,
    runs_dir: Path = Path("data/compare"),
    split_dir: Path = Path("data/split"),
    encoded_dir: Path = Path("data/encoded"),
    vocab_path: Path = Path("data/vocab.json"),
) -> None:
    """Print a Markdown table: one row a variant, test loss by seed, mean, difference with interval."""
    named = {name.strip(): overrides for name, _, overrides in (variant.partition(":") for variant in variants)}
    losses: dict[str, list[float]] = {name: [] for name in named}
    speeds: dict[str, list[float]] = {name: [] for name in named}
    for seed in range(seeds):
        for name, overrides in named.items():
            folder = runs_dir / f"{name}-{seed}"
            metrics, cost = run_once(
                folder, [f"seed={seed}", *shlex.split(overrides)], split_dir, encoded_dir, vocab_path
            )
            losses[name].append(metrics["test"]["model"]["nats_per_token"])
            speeds[name].append(cost["positions_per_second"])
            print(f"{name} seed {seed}: test {losses[name][-1]:.4f}", file=sys.stderr, flush=True)

    headers = ["variant", *(f"seed {seed}" for seed in range(seeds)), "mean", "difference", "positions/s"]
    reference = next(iter(named))
    rows = []
    for name in named:
        row = [name, *(f"{loss:.4f}" for loss in losses[name]), f"{statistics.mean(losses[name]):.4f}"]
        row.append("" if name == reference else difference(losses[name], losses[reference]))
        row.append(f"{statistics.median(speeds[name]):,.0f}")
        rows.append(row)
    print(tabulate(rows, headers, tablefmt="github", disable_numparse=True))


def run_once(
    folder: Path, overrides: list[str], split_dir: Path, encoded_dir: Path, vocab_path: Path
) -> tuple[dict, dict]:
    metrics_path = folder / "metrics.json"
    if not metrics_path.exists():
        train_once(folder, overrides, encoded_dir, vocab_path)
        where = ["--encoded-dir", encoded_dir, "--model-dir", folder / "model", "--curve-path", folder / "training.csv"]
        tables = ["--analysis-path", folder / "analysis.json", "--stories-path", folder / "stories.csv"]
        stage("evaluate", overrides, *where, "--split-dir", split_dir, *tables, "--metrics-path", metrics_path)
    return read_json(metrics_path), read_json(folder / "cost.json")


def train_once(folder: Path, overrides: list[str], encoded_dir: Path, vocab_path: Path) -> None:
    """The train stage in a folder of its own; what is there already goes on, or is done."""
    ins = ["--encoded-dir", encoded_dir, "--vocab-path", vocab_path]
    outs = ["--model-dir", folder / "model", "--curve-path", folder / "training.csv"]
    outs += ["--cost-path", folder / "cost.json", "--checkpoint-dir", folder / "checkpoints"]
    stage("train", overrides, *ins, *outs)


def stage(name: str, overrides: list[str], *arguments: object) -> None:
    options = [word for override in overrides for word in ("-S", override)]
    command = [sys.executable, "-m", f"stages.{name}", *map(str, arguments), *options]
    subprocess.run(command, check=True, stdout=sys.stderr)


def difference(losses: list[float], reference: list[float]) -> str:
    return "{:+.4f} ± {:.4f}".format(*paired_t(losses, reference))


if __name__ == "__main__":
    typer.run(compare)
