"""The whole DAG on a few dozen stories, by the commands that a user types."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.project import BIN, copy_project, run
from tinygpt.checkpoint import load_model
from tinygpt.markdown import html_cell

STAGES = ("download", "split", "vocab", "encode", "train", "evaluate", "sample", "report", "explore")
OUTPUTS = [
    *("data/raw/stories.parquet", "data/vocab.json", "data/encoded/meta.json"),
    *(f"data/split/{name}.parquet" for name in ("train", "val", "test")),
    *(f"data/encoded/{name}.bin" for name in ("train", "val", "test")),
    *("data/model/best.pt", "data/model/last.pt"),
    *("reports/source.json", "reports/split.json", "reports/training.csv", "reports/cost.json", "reports/metrics.json"),
    *("reports/analysis.json", "reports/stories.csv"),
    *("reports/samples.json", "reports/report.md", "reports/report.html", "reports/explorer.html"),
    *(f"reports/figures/{name}.svg" for name in ("loss", "attention", "head", "position")),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory, stories) -> Path:
    """A git clone in which `dvc repro` has run once, and been committed."""
    folder = tmp_path_factory.mktemp("project")
    copy_project(folder, [*stories, stories[0], "短"])
    run(folder, "git", "init", "-q", "-b", "main")
    run(folder, "dvc", "repro")
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    run(folder, "git", "add", "-A")
    run(folder, "git", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "run")


def test_every_output_is_there_and_fits_the_others(project, stories):
    assert [name for name in OUTPUTS if not (project / name).is_file()] == []
    split = json.loads((project / "reports/split.json").read_text(encoding="utf-8"))
    assert split["rows_in"] == len(stories) + 2
    assert {name: n for name, n in split["dropped"].items() if n} == {"too_short": 1, "duplicate": 1}
    assert sum(split[name]["n_stories"] for name in ("train", "val", "test")) == len(stories)

    meta = json.loads((project / "data/encoded/meta.json").read_text(encoding="utf-8"))
    metrics = json.loads((project / "reports/metrics.json").read_text(encoding="utf-8"))
    vocab = load_model(project / "data/model/best.pt").vocab
    for name in ("train", "val", "test"):
        stream = np.fromfile(project / f"data/encoded/{name}.bin", dtype="<u2")
        texts = pd.read_parquet(project / f"data/split/{name}.parquet")["text"]
        assert len(stream) == meta[name]["n_tokens"] == texts.str.len().sum() + 2 * len(texts)
        if name == "train":
            assert vocab.decode(stream) == "".join(texts)
        else:
            assert metrics[name]["n_targets"] == len(stream) - 1

    by_story = pd.read_csv(project / "reports/stories.csv")
    test = metrics["test"]
    for column, protocol in (("nats", "model"), ("sliding_nats", "sliding")):
        assert by_story[column].sum() / test["n_targets"] == pytest.approx(test[protocol]["nats_per_token"], rel=1e-5)
    assert by_story["n_targets"].sum() == test["n_targets"] and by_story["n_chars"].sum() == test["n_chars"]
    analysis = json.loads((project / "reports/analysis.json").read_text(encoding="utf-8"))
    assert all(isinstance(table, list) for table in analysis.values())  # so that dvc shows none of it as metrics
    assert analysis["baselines"][0]["test_nats_per_token"] == test["baseline"]["nats_per_token"]
    for name in ("by_window_position", "by_class", "calibration"):
        assert sum(row["n_targets"] for row in analysis[name]) == test["n_targets"]

    content = json.loads((project / "reports/samples.json").read_text(encoding="utf-8"))
    assert len(content["written"]) == 6 and len(content["statistics"]) == 6
    train = dict(pd.read_parquet(project / "data/split/train.parquet")[["id", "text"]].to_numpy())
    for story in content["written"]:
        copied = story["copied"]
        assert copied["text"] in story["text"] and (not copied["text"] or copied["text"] in train[copied["source"]])
    samples = content["samples"]
    assert [sample["seed"] for sample in samples] == [100, 101, 102, 103, 104]
    report = (project / "reports/report.md").read_text(encoding="utf-8")
    for sample in samples:
        assert f'<td valign="top">{html_cell(sample["before"]["text"])}</td>' in report


def test_what_is_written_has_unix_line_ends_and_no_partial_files(project):
    for path in project.glob("reports/**/*.*"):
        assert b"\r" not in path.read_bytes(), path
    assert list(project.rglob("*.partial")) == []
    assert [path for path in (project / "data/checkpoints").iterdir() if path.is_dir()] == []


def test_a_second_repro_has_nothing_to_do(project):
    assert "up to date" in run(project, "dvc", "repro")
    assert run(project, "git", "status", "--porcelain") == ""


def test_stages_run_alone_write_the_same_bytes(project):
    names = [
        name for name in OUTPUTS if not name.endswith(("cost.json", "report.md", "report.html"))
    ]  # these tell the time it took
    before = {name: (project / name).read_bytes() for name in names}
    for stage in STAGES:
        assert f"{stage}: " in run(project, "python", "-m", f"stages.{stage}")
    for name in names:
        assert (project / name).read_bytes() == before[name], name
    run(project, "git", "checkout", "-q", ".")


def test_several_samples_of_a_prompt_have_seeds_of_their_own(project, tmp_path):
    path = tmp_path / "samples.json"
    run(project, "python", "-m", "stages.sample", "-S", "sample.n_samples=2", "--samples-path", str(path))
    samples = json.loads(path.read_text(encoding="utf-8"))["samples"]
    once = json.loads((project / "reports/samples.json").read_text(encoding="utf-8"))["samples"]
    assert samples[:5] == once
    assert [(sample["prompt"], sample["seed"]) for sample in samples[5:]] == [
        (sample["prompt"], sample["seed"] + 5) for sample in once
    ]


def test_a_change_to_the_report_does_not_retrain(project):
    code = project / "tinygpt" / "templates" / "report.en.md"
    before = code.read_text(encoding="utf-8")
    code.write_text(before.replace("# TinyGPT report", "# Our report"), encoding="utf-8")
    output = run(project, "dvc", "repro")
    assert "Running stage 'report'" in output
    assert "Running stage 'train'" not in output and "Running stage 'sample'" not in output
    assert (project / "reports/report.md").read_text(encoding="utf-8").startswith("# Our report\n")
    run(project, "git", "checkout", "-q", ".")


def test_an_experiment_runs_compares_and_costs_nothing_the_second_time(project):
    options = ("-S", "model.n_layer=2", "-S", "train.max_steps=20")
    assert "Running stage 'train'" in run(project, "dvc", "exp", "run", "-n", "deeper", *options)
    table = run(project, "dvc", "exp", "show", "--only-changed", "--md")
    assert "deeper" in table and "model.n_layer" in table and "test.model.nats_per_token" in table
    assert "test.model.nats_per_token" in run(project, "dvc", "metrics", "diff", "HEAD")
    assert "file://" in run(project, "dvc", "plots", "show")
    page = (project / "dvc_plots" / "index.html").read_text(encoding="utf-8")
    assert page.count("vegaEmbed(") >= 3 and "<script src" not in page  # drawn by what is inside, no network

    run(project, "git", "restore", "-SW", ".")
    run(project, "dvc", "checkout")
    assert run(project, "git", "status", "--porcelain").replace("?? dvc_plots/", "").strip() == ""
    again = run(project, "dvc", "exp", "run", "-n", "deeper-again", *options)
    for stage in ("train", "evaluate", "sample"):
        assert f"Stage '{stage}' is cached - skipping run" in again
    run(project, "git", "restore", "-SW", ".")
    run(project, "dvc", "checkout")

    assert "3 runs, 2 different but for the seed" in run(project, "python", "-m", "stages.compare")
    page = (project / "reports" / "compare.md").read_text(encoding="utf-8")
    assert "`model.n_layer`" in page and "`train.max_steps`" in page and "| deeper" in page
    for name in ("compare.md", "compare.svg"):
        (project / "reports" / name).unlink()


def test_an_unpacked_archive_is_enough(tmp_path, stories):
    """No git repository; the Makefile's own target, its environment being the one that runs the tests."""
    copy_project(tmp_path, stories)
    make = ("make", "-o", ".venv/installed", f"BIN={BIN}", "repro")
    assert "nats per token" in run(tmp_path, *make).splitlines()[-2]
    assert "reports/report.md" in (again := run(tmp_path, *make)).splitlines()[-1]
    assert "up to date" in again


@pytest.mark.parametrize(
    ("stage", "missing", "first"),
    [
        ("split", "data/raw", "download"),
        ("vocab", "data/split", "split"),
        ("encode", "data/vocab.json", "vocab"),
        ("train", "data/encoded", "encode"),
        ("evaluate", "data/model", "train"),
        ("sample", "data/model", "train"),
        ("report", "reports/samples.json", "sample"),
        ("explore", "reports/metrics.json", "evaluate"),
    ],
)
def test_a_missing_input_names_the_stage_to_run_first(project, tmp_path, stage, missing, first):
    shutil.copytree(project, tmp_path / "copy", ignore=shutil.ignore_patterns(".git", ".dvc"))
    gone = tmp_path / "copy" / missing
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    output = run(tmp_path / "copy", "python", "-m", f"stages.{stage}", code=1)
    assert output.startswith(f"{stage}: {missing}") and f"run first: dvc repro {first} " in output
    assert output.count("\n") == 1


@pytest.mark.parametrize(
    ("stage", "override", "message"),
    [
        ("train", "model.n_layers=2", "did you mean n_layer?"),
        ("train", "model.n_head=3", "n_embd = 16 does not divide by n_head = 3"),
        ("train", "model.context_size=100000", "model.context_size = 100000 needs a stream of at least 100001 tokens"),
        ("train", "runtime.device=cuda", "runtime.device = cuda, but PyTorch finds none here"),
        ("train", "train.learning_rate=1e30", "the loss is nan at step"),
        ("evaluate", "evaluate.stride=9", "evaluate.stride = 9 leaves targets with less than half of the window"),
        ("split", "clean.max_chars=10", "the train split is empty: 0 stories are left"),
        ("report", "model.n_layer=2", "was trained with another vocabulary or other values of model: than these"),
        ("download", "download.source=files", "download.files is empty"),
    ],
)
def test_bad_values_end_as_one_line_before_anything_is_written(project, stage, override, message):
    before = {name: (project / name).read_bytes() for name in OUTPUTS if name != "reports/training.csv"}
    output = run(project, "python", "-m", f"stages.{stage}", "-S", override, code=1)
    assert message in output.splitlines()[-1]
    assert "Traceback" not in output
    assert {name: (project / name).read_bytes() for name in before} == before
    run(project, "git", "checkout", "-q", ".")


def test_a_prompt_with_unknown_characters_is_named(project):
    output = run(project, "python", "-m", "stages.sample", "-S", "sample.prompts=[小龍兔🐉]")
    assert "'小龍兔🐉': the vocabulary lacks 龍 🐉: read as <unk>" in output
    run(project, "git", "checkout", "-q", ".")


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_help(project, stage):
    assert "Usage:" in run(project, "python", "-m", f"stages.{stage}", "--help")
