"""Score the selected model and its baselines on the whole val and test streams."""

from pathlib import Path
from typing import Any

import numpy as np

from stages.command import SetParam, need, run
from tinygpt.analysis import baseline_table, hits, model_tables
from tinygpt.baselines import FREQUENCY, compressible, count_targets, fit_compressors, fit_guessers
from tinygpt.batches import fixed_starts
from tinygpt.checkpoint import load_model
from tinygpt.devices import choose_device
from tinygpt.evaluation import score_stream, sliding_stride
from tinygpt.files import read_csv, read_json, write_csv, write_json
from tinygpt.measures import Targets, measures, story_sums, targets_of, unknown_nats
from tinygpt.params import load_params
from tinygpt.tables import first_shard, read_texts
from tinygpt.tokens import TokenStream
from tinygpt.vocab import UNK

SCORED = ("val", "test")
HEADLINE = ("nats_per_token", "perplexity", "bits_per_char", "bits_per_byte")


def evaluate(
    split_dir: Path = Path("data/split"),
    encoded_dir: Path = Path("data/encoded"),
    model_dir: Path = Path("data/model"),
    curve_path: Path = Path("reports/training.csv"),
    metrics_path: Path = Path("reports/metrics.json"),
    analysis_path: Path = Path("reports/analysis.json"),
    stories_path: Path = Path("reports/stories.csv"),
    set_param: SetParam = None,
) -> None:
    """Score the selected model and its baselines on the whole val and test streams."""
    params = load_params(Path("params.yaml"), set_param)
    trained = load_model(need(model_dir / "best.pt", "train"))
    vocab, context_size = trained.vocab, trained.model.params.context_size
    meta = read_json(need(encoded_dir / "meta.json", "encode"))
    if meta["vocab_sha256"] != vocab.sha256:
        raise ValueError(f"{model_dir} was trained with another vocabulary than {encoded_dir}; run: dvc repro train")
    need(first_shard(split_dir, "test"), "split")
    curve = read_csv(need(curve_path, "train"))
    stride = sliding_stride(params.evaluate.stride, context_size)
    model = trained.model.to(choose_device(params.runtime))
    streams = {split: TokenStream(encoded_dir / f"{split}.bin") for split in ("train", *SCORED)}
    targets = {split: targets_of(streams[split], list(read_texts(split_dir, split))) for split in SCORED}

    chunked = {split: score_stream(model, streams[split]) for split in SCORED}
    sliding = {split: score_stream(model, streams[split], stride) for split in SCORED}
    guesses = guess(streams, len(vocab), params.evaluate.baseline_tokens)

    metrics: dict[str, Any] = {"best_step": trained.step}
    charge = unknown_nats(vocab)
    for split in SCORED:
        costs = {"model": chunked[split].nats, "sliding": sliding[split].nats, "baseline": guesses[FREQUENCY][split]}
        figures = {name: measures(nats, targets[split], charge, params.evaluate) for name, nats in costs.items()}
        figures["model"] |= hits(chunked[split], targets[split])
        figures["baseline"] = {name: figures["baseline"][name] for name in HEADLINE}  # more is in the analysis
        counts = {name: meta[split][name] for name in ("n_stories", "n_chars", "n_bytes", "n_unknown")}
        unknown_share = counts["n_unknown"] / counts["n_chars"]
        metrics[split] = {**figures, "n_targets": len(costs["model"]), **counts, "unknown_share": unknown_share}

    windows = fixed_starts(streams["val"], context_size, params.train.eval_windows)[:, None] + np.arange(context_size)
    compressed = compress(split_dir, params.evaluate.baseline_tokens)
    baselines = baseline_table(
        guesses, compressed, chunked["test"].nats, targets, windows.ravel(), curve, params.evaluate
    )
    train_counts = count_targets(streams["train"], len(vocab))
    tables = model_tables(chunked["test"], targets["test"], vocab, train_counts, context_size)
    write_json(metrics_path, metrics)
    write_json(analysis_path, {"baselines": baselines, **tables})
    write_csv(stories_path, story_rows(targets["test"], chunked["test"].nats, sliding["test"].nats, charge))
    print(summary(metrics["test"], baselines))


def guess(streams: dict[str, TokenStream], vocab_size: int, max_tokens: int) -> dict[str, dict[str, np.ndarray]]:
    """The costs of the targets of val and test by baseline, (N - 1,) each."""
    guessers = fit_guessers(streams["train"], vocab_size, max_tokens)
    return {
        name: {split: guesser.target_nats(streams[split][:]) for split in SCORED} for name, guesser in guessers.items()
    }


def compress(split_dir: Path, max_chars: int) -> dict[str, dict[str, int]]:
    """The bits that val and test take by compressor, after the training stories."""
    texts = {split: compressible(read_texts(split_dir, split)) for split in SCORED}
    compressors = fit_compressors(compressible(read_texts(split_dir, "train"), max_chars))
    return {
        name: {split: compressor.bits(texts[split]) for split in SCORED} for name, compressor in compressors.items()
    }


def story_rows(targets: Targets, chunked: np.ndarray, sliding: np.ndarray, charge: float) -> list[dict[str, Any]]:
    """A row a test story, for comparisons in pairs: what its targets cost, and what its unknown characters add."""
    columns = {
        "story": targets.keys,
        "n_chars": targets.n_chars.tolist(),
        "n_targets": story_sums(np.ones(len(chunked)), targets).astype(int).tolist(),
        "nats": story_sums(chunked, targets).tolist(),
        "sliding_nats": story_sums(sliding, targets).tolist(),
        "unknown_nats": story_sums((targets.ids == UNK) * charge, targets).tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def summary(test: dict[str, Any], baselines: list[dict[str, Any]]) -> str:
    best = min(baselines, key=lambda row: row["test_nats_per_token"])
    return (
        f"evaluate: test {test['model']['nats_per_token']:.4f} nats per token "
        f"(character frequency {test['baseline']['nats_per_token']:.4f}, "
        f"best baseline {best['baseline']} {best['test_nats_per_token']:.4f}) over {test['n_targets']:,} targets"
    )


if __name__ == "__main__":
    run(evaluate)
