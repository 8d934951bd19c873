"""The command, in a repository with two experiments whose results are written by hand."""

import csv
import json

import pytest

from tests.project import copy_project, run, set_params


def write_results(folder, nats):
    reports = folder / "reports"
    figures = {"nats_per_token": nats, "bits_per_char": nats * 1.5}
    metrics = {"test": {"model": figures, "sliding": figures}}
    (reports / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")
    (reports / "cost.json").write_text('{"minutes": 5.0}', encoding="utf-8")
    sample = {"prompt": "从前，", "seed": 100, "after": {"text": f"猫{nats}"}}
    samples = {"stories": {"ended_share": 0.5}, "samples": [sample]}
    (reports / "samples.json").write_text(json.dumps(samples, ensure_ascii=False), encoding="utf-8")
    tables = {
        "training.csv": [{"step": 0, "val_nats_per_token": 8}, {"step": 10, "val_nats_per_token": nats}],
        "stories.csv": [{"story": key, "n_targets": 10, "nats": 10 * nats, "unknown_nats": 0} for key in "ab"],
    }
    for name, rows in tables.items():
        with (reports / name).open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, rows[0], lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    copy_project(folder, ["从前，有一只小猫。"])
    (folder / "dvc.yaml").write_text("metrics:\n  - reports/metrics.json\nparams:\n  - params.yaml\n", encoding="utf-8")
    write_results(folder, 3.0)
    run(folder, "git", "init", "-q", "-b", "main")
    run(folder, "git", "add", "-A")
    run(folder, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "run")
    for name, changes, nats in (("other-seed", {}, 3.1), ("e6", {"model.n_layer": 6}, 2.75)):
        set_params(folder, changes)
        if not changes:
            text = (folder / "params.yaml").read_text(encoding="utf-8")
            (folder / "params.yaml").write_text(text.replace("seed: 0 #", "seed: 1 #", 1), encoding="utf-8")
        write_results(folder, nats)
        run(folder, "dvc", "exp", "save", "-n", name)
        run(folder, "git", "restore", "-SW", ".")
    return folder


def test_all_experiments_of_the_commit_by_default(project):
    output = run(project, "python", "-m", "stages.compare")
    assert "3 runs, 2 different but for the seed" in output
    page = (project / "reports" / "compare.md").read_text(encoding="utf-8")
    assert "| HEAD, other-seed | 1 " in page and "3.0500 ± 0.0707" in page
    assert "| e6 " in page and "-0.3000 [-0.3000, -0.3000]" in page
    assert "猫3.0" in page and "猫2.75" in page
    assert (project / "reports" / "compare.svg").is_file()
    assert run(project, "git", "status", "--porcelain").split() == [
        "??",
        "reports/compare.md",
        "??",
        "reports/compare.svg",
    ]


def test_revisions_and_experiments_by_name(project):
    run(project, "python", "-m", "stages.compare", "e6", "main")
    page = (project / "reports" / "compare.md").read_text(encoding="utf-8")
    assert "+0.2500 [+0.2500, +0.2500]" in page and "other-seed" not in page


def test_what_is_not_there_is_named(project):
    assert "unknown Git revision 'nothing'" in run(project, "python", "-m", "stages.compare", "nothing", code=1)
    run(project, "git", "rm", "-q", "--cached", "reports/stories.csv")
    run(project, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "older")
    output = run(project, "python", "-m", "stages.compare", "HEAD", code=1)
    assert output == "compare: HEAD has no reports/stories.csv; run it again with this version: dvc exp run\n"
    run(project, "git", "reset", "-q", "--hard", "HEAD~")
