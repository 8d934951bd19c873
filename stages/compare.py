"""Put experiments side by side: params, test losses with paired intervals, curves, samples. Nothing is run."""

import csv
import json
from pathlib import Path
from typing import Annotated

import dvc.api
import typer
from dvc.exceptions import DvcException
from ruamel.yaml import YAML

from stages.command import run
from tinygpt.charts import overlaid_curves
from tinygpt.comparison import CURVES_FIGURE, RunResult, group_runs, make_comparison
from tinygpt.files import write_text
from tinygpt.params import load_params

UNFINISHED = ("Queued", "Running", "Failed")  # these show the results of the commit they started from


def compare(
    revisions: Annotated[
        list[str] | None, typer.Argument(help="Git revisions or experiments; without any, HEAD and its experiments.")
    ] = None,
    report_path: Path = Path("reports/compare.md"),
) -> None:
    """Put experiments side by side: params, test losses with paired intervals, curves, samples."""
    params = load_params(Path("params.yaml")).evaluate
    try:
        found = experiments()
        runs = [read_run(name, found.get(name, name)) for name in revisions or ["HEAD", *found]]
    except DvcException as error:
        raise ValueError(f"{error}; the experiments are listed by: dvc exp show -A") from None
    groups = group_runs(runs)
    curves = {group.name: [result.curve for result in group.runs.values()] for group in groups}
    write_text(report_path.with_name(CURVES_FIGURE), overlaid_curves(curves))
    write_text(report_path, make_comparison(groups, params))
    print(f"compare: {len(runs)} runs, {len(groups)} different but for the seed. Read {report_path}")


def experiments() -> dict[str, str]:
    """The finished experiments of the current commit: name -> revision, the oldest first."""
    rows = [row for row in dvc.api.exp_show() if row["Experiment"] and row["State"] not in UNFINISHED]
    return {row["Experiment"]: row["rev"] for row in reversed(rows)}


def read_run(name: str, revision: str) -> RunResult:
    """Read what a run left in git.

    Raises:
        ValueError: a file is missing there; the run was made before the file was.
    """
    files = dvc.api.DVCFileSystem(".", rev=revision)

    def text(path: str) -> str:
        try:
            return files.read_text(path, encoding="utf-8")
        except FileNotFoundError:
            raise ValueError(f"{name} has no {path}; run it again with this version: dvc exp run") from None

    def rows(path: str) -> list[dict[str, str]]:
        return list(csv.DictReader(text(path).splitlines()))

    return RunResult(
        name,
        YAML(typ="safe").load(text("params.yaml")),
        json.loads(text("reports/metrics.json")),
        rows("reports/stories.csv"),
        rows("reports/training.csv"),
        json.loads(text("reports/samples.json")),
        json.loads(text("reports/cost.json")),
    )


if __name__ == "__main__":
    run(compare)
