"""Score the selected model and its baseline on the whole val and test streams."""

from pathlib import Path

from stages.command import SetParam, need, run
from tinygpt.baselines import CharacterFrequency
from tinygpt.checkpoint import load_model
from tinygpt.devices import choose_device
from tinygpt.evaluation import measures, stream_nats
from tinygpt.files import read_json, write_json
from tinygpt.params import load_params
from tinygpt.tokens import TokenStream


def evaluate(
    encoded_dir: Path = Path("data/encoded"),
    model_dir: Path = Path("data/model"),
    metrics_path: Path = Path("reports/metrics.json"),
    set_param: SetParam = None,
) -> None:
    """Score the selected model and its baseline on the whole val and test streams."""
    params = load_params(Path("params.yaml"), set_param)
    trained = load_model(need(model_dir / "best.pt", "train"))
    meta = read_json(need(encoded_dir / "meta.json", "encode"))
    if meta["vocab_sha256"] != trained.vocab.sha256:
        raise ValueError(f"{model_dir} was trained with another vocabulary than {encoded_dir}; run: dvc repro train")
    model = trained.model.to(choose_device(params.runtime))
    baseline = CharacterFrequency(TokenStream(encoded_dir / "train.bin"), len(trained.vocab))

    metrics: dict = {"best_step": trained.step}
    for split in ("val", "test"):
        stream = TokenStream(encoded_dir / f"{split}.bin")
        metrics[split] = {
            "model": measures(stream_nats(model, stream), len(stream) - 1, meta[split]["n_chars"]),
            "baseline": measures(baseline.stream_nats(stream), len(stream) - 1, meta[split]["n_chars"]),
            "n_targets": len(stream) - 1,
            **{name: meta[split][name] for name in ("n_stories", "n_chars", "n_unknown")},
        }
    write_json(metrics_path, metrics)
    test = metrics["test"]
    print(
        f"evaluate: test {test['model']['nats_per_token']:.4f} nats per token "
        f"(character frequency {test['baseline']['nats_per_token']:.4f}) over {test['n_targets']:,} targets"
    )


if __name__ == "__main__":
    run(evaluate)
