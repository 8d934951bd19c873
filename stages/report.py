"""Tell the run as a Markdown report with an SVG figure."""

import csv
from pathlib import Path

from stages.command import SetParam, need, run
from tinygpt.charts import loss_curve
from tinygpt.files import read_json, write_text
from tinygpt.params import load_params
from tinygpt.report import LOSS_FIGURE, headline, make_report


def report(
    split_path: Path = Path("reports/split.json"),
    leaks_path: Path = Path("reports/leaks.json"),
    encoded_dir: Path = Path("data/encoded"),
    curve_path: Path = Path("reports/training.csv"),
    metrics_path: Path = Path("reports/metrics.json"),
    samples_path: Path = Path("reports/samples.json"),
    cost_path: Path = Path("reports/cost.json"),
    report_path: Path = Path("reports/report.md"),
    figure_path: Path = Path("reports") / LOSS_FIGURE,
    set_param: SetParam = None,
) -> None:
    """Tell the run as a Markdown report with an SVG figure."""
    params = load_params(Path("params.yaml"), set_param)
    split = read_json(need(split_path, "split"))
    leaks = read_json(need(leaks_path, "split"))
    encoded = read_json(need(encoded_dir / "meta.json", "encode"))
    curve = read_curve(need(curve_path, "train"))
    metrics = read_json(need(metrics_path, "evaluate"))
    samples = read_json(need(samples_path, "sample"))
    cost = read_json(need(cost_path, "train"))

    steps = [int(row["step"]) for row in curve]
    train, val = ([row[f"{name}_nats_per_token"] for row in curve] for name in ("train", "val"))
    baseline = metrics["val"]["baseline"]["nats_per_token"]
    write_text(figure_path, loss_curve(steps, train, val, baseline, metrics["best_step"]))
    write_text(report_path, make_report(params, split, leaks, encoded, curve, metrics, samples, cost))
    print(f"report: {headline(metrics)} Read {report_path}")


def read_curve(path: Path) -> list[dict[str, float]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


if __name__ == "__main__":
    run(report)
