"""Tell the run as Markdown and as one HTML page, with figures and looks inside the model."""

from pathlib import Path

from stages.command import SetParam, need, run
from tinygpt.checkpoint import load_model
from tinygpt.files import read_csv, read_json, replacing, write_text
from tinygpt.inside import look
from tinygpt.page import make_page
from tinygpt.params import load_params
from tinygpt.report import Run, headline, make_figures, make_report
from tinygpt.tokens import TokenStream


def report(
    split_path: Path = Path("reports/split.json"),
    leaks_path: Path = Path("reports/leaks.json"),
    encoded_dir: Path = Path("data/encoded"),
    model_dir: Path = Path("data/model"),
    curve_path: Path = Path("reports/training.csv"),
    metrics_path: Path = Path("reports/metrics.json"),
    analysis_path: Path = Path("reports/analysis.json"),
    samples_path: Path = Path("reports/samples.json"),
    cost_path: Path = Path("reports/cost.json"),
    report_path: Path = Path("reports/report.md"),
    page_path: Path = Path("reports/report.html"),
    figures_dir: Path = Path("reports/figures"),
    set_param: SetParam = None,
) -> None:
    """Tell the run as Markdown and as one HTML page, with figures and looks inside the model."""
    params = load_params(Path("params.yaml"), set_param)
    result = Run(
        params=params,
        split=read_json(need(split_path, "split")),
        leaks=read_json(need(leaks_path, "split")),
        encoded=read_json(need(encoded_dir / "meta.json", "encode")),
        curve=[{name: float(value) for name, value in row.items()} for row in read_csv(need(curve_path, "train"))],
        metrics=read_json(need(metrics_path, "evaluate")),
        analysis=read_json(need(analysis_path, "evaluate")),
        samples=read_json(need(samples_path, "sample")),
        cost=read_json(need(cost_path, "train")),
    )
    trained = load_model(need(model_dir / "best.pt", "train"))
    if trained.vocab.sha256 != result.encoded["vocab_sha256"] or trained.model.params != params.model:
        raise ValueError(
            f"{model_dir} was trained with another vocabulary or other values of model: than these; "
            "run: dvc repro train"
        )
    seen = look(trained, TokenStream(encoded_dir / "val.bin"), params.report.sentence, params.sample)
    figures, markdown = make_figures(result, seen), make_report(result, seen)
    with replacing(figures_dir) as folder:
        folder.mkdir()
        for name, svg in figures.items():
            write_text(folder / f"{name}.svg", svg)
    write_text(page_path, make_page(markdown, figures, params.report.language))
    write_text(report_path, markdown)
    print(f"report: {headline(result.metrics)} Read {report_path}, or {page_path} as one file")


if __name__ == "__main__":
    run(report)
