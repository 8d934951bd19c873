"""Recipes at equal positions: each against the textbook's, tuned, seed by seed.

    python -m benchmarks.recipe                               # every variant, the default run's data
    python -m benchmarks.recipe textbook winner --seeds 3 --data-dir elsewhere/data

A run is the real train stage; its selected model then pays for the test stream, as the evaluate stage
reports it. A finished run becomes a line of results.jsonl in the runs folder and is not repeated, so
that a stopped search goes on. The first variant is the reference. Step times are measured at the end,
the variants taking turns.
"""

import json
import shlex
import statistics
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from tabulate import tabulate

from benchmarks.compare import difference, train_once
from benchmarks.training import seconds_per_step
from tinygpt.checkpoint import load_model
from tinygpt.evaluation import score_stream
from tinygpt.files import read_csv, read_json
from tinygpt.model import initial_model
from tinygpt.params import Params, load_params
from tinygpt.tokens import TokenStream
from tinygpt.training import Run, update

WINNER = (
    "model.n_layer=5 model.n_head=2 model.position=rope model.qk_norm=true model.mlp=relu2 model.bias=false "
    "model.head_bias=false model.tie_embeddings=true model.token_shift=true model.zero_init_outputs=true "
    "train.optimizer=muon train.learning_rate=0.012 train.muon_learning_rate=0.01 "
    "train.schedule=linear train.decay_share=0.7 train.min_lr_ratio=0 train.precision=auto"
)
VARIANTS = {
    "textbook": "",
    "textbook, rate 0.001": "train.learning_rate=0.001",
    "textbook, rate 0.002": "train.learning_rate=0.002",
    "textbook, rate 0.006": "train.learning_rate=0.006",
    "textbook, bf16": "train.precision=bf16",
    "winner": WINNER,
    "winner, fp32": f"{WINNER} train.precision=fp32",
    "winner, a third": f"{WINNER} train.max_steps=1667",  # of the positions, beside others at all of them
    # One part of the winner taken away.
    "winner, AdamW": f"{WINNER} train.optimizer=adamw train.learning_rate=0.003 train.embedding_lr_ratio=4",
    "winner, cosine": f"{WINNER} train.schedule=cosine",
    "winner, learned positions": f"{WINNER} model.position=learned",
    "winner, no qk-norm": f"{WINNER} model.qk_norm=false",
    "winner, 4 heads": f"{WINNER} model.n_head=4",
    "winner, GELU": f"{WINNER} model.mlp=gelu",
    "winner, SwiGLU": f"{WINNER} model.mlp=swiglu",
    "winner, untied": f"{WINNER} model.tie_embeddings=false",
    "winner, no token shift": f"{WINNER} model.token_shift=false",
    "winner, outputs not zero": f"{WINNER} model.zero_init_outputs=false",
    # One part changed.
    "winner, Muon 0.02": f"{WINNER} train.muon_learning_rate=0.02",
    "winner, rate 0.003": f"{WINNER} train.learning_rate=0.003",
    "winner, rate 0.024": f"{WINNER} train.learning_rate=0.024",
    "winner, beta2 0.95": f"{WINNER} train.beta2=0.95",
    "winner, beta2 0.999": f"{WINNER} train.beta2=0.999",
    "winner, decay over all steps": f"{WINNER} train.decay_share=1.0",
    "winner, weight decay 0.03": f"{WINNER} train.weight_decay=0.03",
    "winner, init 0.05": f"{WINNER} model.init_std=0.05",
    "winner, batch 4": f"{WINNER} train.batch_size=4 train.max_steps=10000 train.warmup_steps=200 train.eval_every=500",
    "winner, batch 16": f"{WINNER} train.batch_size=16 train.max_steps=2500",
    "winner, dropout 0.1": f"{WINNER} model.dropout=0.1",
    "winner, 1 head": f"{WINNER} model.n_head=1",
    "winner, 4 layers": f"{WINNER} model.n_layer=4",
    "winner, 6 layers": f"{WINNER} model.n_layer=6",
    "winner, soft cap 15": f"{WINNER} model.logit_soft_cap=15",
    "winner, EMA 0.99": f"{WINNER} train.ema_decay=0.99",
    "winner, half the windows at story starts": f"{WINNER} train.story_start_share=0.5",
}


class Result(NamedTuple):
    """One finished run; `curve` is (positions, val nats per token) at each evaluation."""

    variant: str
    overrides: str
    seed: int
    corpus: str  # the vocabulary's sha256
    n_parameters: int
    test_nats: float
    curve: list[tuple[int, float]]

    def params(self) -> Params:
        return load_params(Path("params.yaml"), [f"seed={self.seed}", *shlex.split(self.overrides)])

    @property
    def best_val(self) -> float:
        return min(val for _, val in self.curve)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Of VARIANTS; the first is the reference.")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10, help="Runs of each variant, with seeds 0, 1, …")] = 3,
    extra: Annotated[str, typer.Option(help="Overrides for all, such as 'train.precision=bf16'.")] = "",
    share: Annotated[float, typer.Option(min=0, max=1, help="Of each variant's steps.")] = 1,
    data_dir: Annotated[Path, typer.Option(help="Holds encoded/ and vocab.json.")] = Path("data"),
    runs_dir: Path = Path("data/recipe"),
    rounds: Annotated[int, typer.Option(help="Rounds of the step timing; 0 leaves it out.")] = 10,
) -> None:
    """Train what is missing, then print a Markdown table."""
    variants = {name: overrides_of(name, share, extra) for name in names or VARIANTS}
    results: dict[str, list[Result]] = {name: [] for name in variants}
    for seed in range(seeds):
        for name, overrides in variants.items():
            result = result_of(name, overrides, seed, data_dir, runs_dir)
            results[name].append(result)
            print(f"{name} seed {seed}: test {result.test_nats:.4f}", file=sys.stderr, flush=True)
    times = step_times(variants, data_dir, rounds) if rounds else {}
    print(table(results, times))


def overrides_of(name: str, share: float, extra: str) -> str:
    """The variant's overrides, those for all, and fewer steps where only a share of them is taken."""
    overrides = f"{VARIANTS[name]} {extra}".strip()
    if share == 1:
        return overrides
    max_steps = load_params(Path("params.yaml"), shlex.split(overrides)).train.max_steps
    return f"{overrides} train.max_steps={round(max_steps * share)}".strip()


def result_of(name: str, overrides: str, seed: int, data_dir: Path, runs_dir: Path) -> Result:
    """The line of this run in results.jsonl; trains it first if there is none."""
    path = runs_dir / "results.jsonl"
    corpus = read_json(data_dir / "vocab.json")["sha256"]
    options = [f"seed={seed}", *shlex.split(overrides)]
    params = load_params(Path("params.yaml"), options)
    for result in load_results(path):
        if result.corpus == corpus and result.params() == params:
            return result
    folder = runs_dir / f"{name}-{seed}-{corpus[:8]}"
    train_once(folder, options, data_dir / "encoded", data_dir / "vocab.json")
    trained = load_model(folder / "model" / "best.pt")
    test_nats = score_stream(trained.model, TokenStream(data_dir / "encoded" / "test.bin")).nats.mean()
    step_positions = params.train.batch_size * params.model.context_size
    rows = read_csv(folder / "training.csv")
    curve = [(int(row["step"]) * step_positions, float(row["val_nats_per_token"])) for row in rows]
    n_parameters = sum(p.numel() for p in trained.model.parameters())
    result = Result(name, overrides, seed, corpus, n_parameters, float(test_nats), curve)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result._asdict()) + "\n")
    return result


def load_results(path: Path) -> list[Result]:
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Result(**row | {"curve": [tuple(point) for point in row["curve"]]}) for row in rows]


def new_run(params: Params, data_dir: Path) -> Run:
    vocab_size = read_json(data_dir / "encoded" / "meta.json")["vocab_size"]
    return Run(initial_model(params.model, vocab_size, params.seed), params.train, params.seed)


def step_times(variants: dict[str, str], data_dir: Path, rounds: int) -> dict[str, float]:
    """Seconds a position, the variants taking turns of 5 updates."""
    stream = TokenStream(data_dir / "encoded" / "train.bin")
    steps, positions = {}, {}
    for name, overrides in variants.items():
        params = load_params(Path("params.yaml"), shlex.split(overrides))
        run = new_run(params, data_dir)
        steps[name] = lambda run=run: update(run, stream)
        positions[name] = params.train.batch_size * params.model.context_size
    times = seconds_per_step(steps, rounds, 5)
    return {name: times[name] / positions[name] for name in variants}


def table(results: dict[str, list[Result]], times: dict[str, float]) -> str:
    """One row a variant; `times` may be empty."""
    reference, *_ = results
    rows = []
    for name, runs in results.items():
        losses = [run.test_nats for run in runs]
        spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
        against = "" if name == reference else paired(losses, [run.test_nats for run in results[reference]])
        reached = "" if name == reference else share_to_reach(runs, results[reference])
        time = f"{times[name] / times[reference]:.2f}" if times else ""
        row = [name, f"{runs[0].n_parameters:,}", len(runs), f"{statistics.mean(losses):.4f}{spread}"]
        rows.append([*row, against, reached, time])
    headers = ["variant", "parameters", "seeds", "test", "difference", "reaches its val at", "× step time"]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=["left"] + ["right"] * 6)


def paired(losses: list[float], reference: list[float]) -> str:
    return difference(losses, reference) if len(losses) > 1 else f"{losses[0] - reference[0]:+.4f}"


def share_to_reach(runs: list[Result], reference: list[Result]) -> str:
    """The median share of the reference's positions at which a run evaluates as well as it ever did."""
    shares = []
    for run, other in zip(runs, reference, strict=True):
        reached = [positions for positions, val in run.curve if val <= other.best_val]
        shares.append(reached[0] / other.curve[-1][0] if reached else float("inf"))
    share = statistics.median(shares)
    return f"{share:.0%}" if share < float("inf") else "never"


if __name__ == "__main__":
    typer.run(main)
