"""Make the explorer: the trained model in one HTML page, to look inside and to let it write."""

from pathlib import Path

from stages.command import SetParam, need, run
from tinygpt.checkpoint import load_model
from tinygpt.explorer import headline, make_explorer, pack
from tinygpt.files import read_json, write_text
from tinygpt.params import load_params


def explore(
    model_dir: Path = Path("data/model"),
    split_path: Path = Path("reports/split.json"),
    metrics_path: Path = Path("reports/metrics.json"),
    page_path: Path = Path("reports/explorer.html"),
    set_param: SetParam = None,
) -> None:
    """Make the explorer: the trained model in one HTML page, to look inside and to let it write."""
    params = load_params(Path("params.yaml"), set_param)
    split = read_json(need(split_path, "split"))
    metrics = read_json(need(metrics_path, "evaluate"))
    trained = load_model(need(model_dir / "best.pt", "train"))
    if metrics["best_step"] != trained.step:
        raise ValueError(f"{metrics_path} is about another model than {model_dir}; run first: dvc repro evaluate")
    data = pack(trained, headline(trained, metrics, split), params.train, params.sample)
    write_text(page_path, make_explorer(data))
    print(f"explore: {page_path.stat().st_size / 1e6:.1f} MB, the model inside; open {page_path} in a browser")


if __name__ == "__main__":
    run(explore)
