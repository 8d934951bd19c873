import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from jinja2 import Environment, nodes
from markdown_it import MarkdownIt

from tests.test_page import read
from tinygpt.checkpoint import TrainedModel
from tinygpt.inside import look
from tinygpt.model import initial_model
from tinygpt.page import make_page
from tinygpt.report import TEMPLATES, Run, facts, funnel, headline, make_figures, make_report, named_counts
from tinygpt.vocab import Vocab
from tinygpt.words import LANGUAGES

HOSTILE = "有| `x` **b** $p$ <td></table>&amp;\n\n# 题\n```\n![a](http://e.org/x.png)\n\\|_k_~~s~~ [l](j)"
SHARES = {"mean": 0.0125, "p50": 0.01, "p90": 0.02, "p99": 0.05, "max": 0.0625}
WORST = {"share": 0.375, "id": "a:1", "text": "小兔```跑。", "train_id": "b:2", "train_text": "小猫爬树。"}


def measure(nats: float) -> dict[str, Any]:
    return {
        "nats_per_token": nats,
        "nats_per_token_95": [nats - 0.0125, nats + 0.0125],
        "nats_per_token_without_marks": nats + 0.0625,
        "perplexity": 2.0 * nats,
        "bits_per_char": nats * 1.5,
        "bits_per_char_95": [nats * 1.5 - 0.03125, nats * 1.5 + 0.03125],
        "bits_per_byte": nats / 2,
        "bits_per_char_unknown_charged": nats * 1.75,
        "accuracy": 0.4375,
        "calibration_error": 0.0325,
    }


def baseline(name: str, nats: float, model: float, passed_at_step: int | None) -> dict[str, Any]:
    return {
        "baseline": name,
        **{f"{split}_nats_per_token": nats for split in ("val", "test")},
        **{f"{split}_bits_per_char": nats * 1.5 for split in ("val", "test")},
        **{f"{split}_bits_per_byte": nats / 2 for split in ("val", "test")},
        "gap": nats - model,
        "gap_95": None if name == "xz" else [nats - model - 0.25, nats - model + 0.25],
        "on_curve": nats,
        "passed_at_step": passed_at_step,
    }


def written(set: str, whose: str, n_stories: int) -> dict[str, Any]:
    shares = ("ended_share", "finished_share", "distinct_2", "distinct_4", "repeated_4")
    figures = {name: 0.125 + number / 16 for number, name in enumerate(shares)}
    lengths = {"n_chars_mean": 123.4, "n_chars_compared": 617, "copied_median": 18.5, "copied_longest": 233}
    return {"set": set, "whose": whose, "n_stories": n_stories, **figures, **lengths}


def make_run(params, **report) -> Run:
    """Made-up files of a run; every figure is one of a kind, so that a test can find it."""
    counts = {"n_stories": 1234, "n_chars": 99000, "n_bytes": 297000, "n_tokens": 101468, "n_unknown": 7}
    scored = {"n_targets": 101467, **{name: counts[name] for name in ("n_stories", "n_chars", "n_bytes", "n_unknown")}}
    continued = {"text": HOSTILE, "ended_by": "eos", "copied": {"text": "# 题\n```", "source": "a`|b:3"}}
    untrained = {"text": "```\n龘", "ended_by": "limit", "copied": {"text": "", "source": None}}
    losses = [(0, 8.0), (250, 5.65), (500, 4.2)]
    return Run(
        params=params.model_copy(update={"report": params.report.model_copy(update=report)}),
        split={
            "rows_in": 4000,
            **{name: {"n_stories": 1234, "n_chars": 99000} for name in ("train", "val", "test")},
            "cleaned": {"html": 17, "spaced": 0},
            "dropped": {"empty": 3, "too_short": 0, "duplicate": 295},
            "near_duplicates": {
                "policy": "drop",
                "similarity": 0.6,
                "n_clusters": 1021,
                "n_stories": 2045,
                "largest_cluster": 555,
                "would_have_leaked": 909,
            },
        },
        leaks={
            "n_gram": 8,
            "val": {"n_stories": 70, "largest_share": SHARES, "worst": []},
            "test": {"n_stories": 80, "largest_share": SHARES | {"max": 0.375}, "worst": [WORST]},
        },
        encoded={"vocab_size": 3035, "train": counts, "val": counts, "test": counts},
        curve=[
            {
                "step": step,
                "train_nats_per_token": nats - 0.5,
                "val_nats_per_token": nats,
                "learning_rate": 0.001,
                "grad_norm": 0.5 * bool(step),
            }
            for step, nats in losses
        ],
        metrics={
            "best_step": 500,
            "val": {"model": measure(3.125), "sliding": measure(3.03125), "baseline": measure(5.75), **scored},
            "test": {"model": measure(3.0625), "sliding": measure(2.96875), "baseline": measure(5.6875), **scored},
        },
        analysis={
            "baselines": [
                baseline("character frequency", 5.6875, 3.0625, 250),
                baseline("5-gram", 3.75, 3.0625, None),
                baseline("xz", 4.375, 3.0625, 500),
            ],
            "by_window_position": [{"tokens_seen_from": 1, "tokens_seen_to": 2, "n_targets": 9, "nats_per_token": 4.0}],
            "by_story_position": [{"place_from": 1, "place_to": 1, "n_targets": 9, "nats_per_token": 3.5}],
            "by_class": [
                {
                    "class": name,
                    "n_distinct": 12,
                    "n_targets": 3456,
                    "nats_per_token": nats,
                    "accuracy": 0.71,
                    "observed_share": 0.1723,
                    "expected_share": 0.1712,
                }
                for name, nats in (("rare Chinese", 5.01), ("<eos>", 2.2), ("punctuation", 1.19))
            ],
            "worst_characters": [
                {
                    "character": "|",
                    "n_targets": 159,
                    "nats_per_token": 5.51,
                    "accuracy": 0.03,
                    "mistaken_for": "<unk>",
                    "mistaken_share": 0.13,
                },
                {
                    "character": "灯",
                    "n_targets": 109,
                    "nats_per_token": 5.42,
                    "accuracy": 1.0,
                    "mistaken_for": None,
                    "mistaken_share": 0.0,
                },
            ],
            "calibration": [{"p_from": 0.0, "p_to": 0.1, "n_targets": 10, "expected": 0.07, "observed": 0.08}],
        },
        samples={
            "statistics": [
                written("before", "written", 1),
                written("after", "written", 1),
                written("stories", "written", 1077),
                written("stories", "real", 1077),
            ],
            "samples": [
                {"prompt": HOSTILE, "seed": 100, "unknown": ["龙", "|"], "before": untrained, "after": continued}
            ],
            "written": [
                {"seed": 100, "text": "有猫。", "ended_by": "eos", "copied": {"text": "有|\n猫", "source": "c:4"}}
            ],
        },
        cost={
            "n_positions": 512000,
            "positions_per_second": 12345.6,
            "minutes": 7.25,
            "peak_memory_mib": 543.21,
            "machine": {
                "device": "cpu",
                "processor": "Test CPU",
                "n_threads": 2,
                "n_procs": 1,
                "precision": "bf16",
                "system": "Linux",
                "python": "3.11",
                "torch": "2.13",
            },
        },
    )


@pytest.fixture(scope="module")
def seen(params, tiny_params):
    """A look into a tiny model whose vocabulary has what Markdown and HTML would trip over."""
    vocab = Vocab("".join(sorted("\n$&*<`|小兔跑。")))
    trained = TrainedModel(initial_model(tiny_params, len(vocab), seed=0).eval(), vocab, 0, 500, 3.1)
    return look(trained, np.arange(60) % len(vocab), "小|兔`$\n<", params.sample)


@pytest.fixture(scope="module")
def reports(params, seen):
    return {language: make_report(make_run(params, language=language), seen) for language in LANGUAGES}


NUMBERS = (
    *("3.0625", "3.0500–3.0750", "5.6875", "3.1250", "2.9688", "4.594", "1.531"),  # the losses
    *("0.688 (0.438–0.938)", "1.312", "2.625 (2.375–2.875)", "3.1250", "6.12", "5.359"),  # gaps, units
    *("101,467", "99,000", "297,000", "101,468", "10,000"),
    *("2.5864", "5.6841"),  # the textbook
    *("1,588,571", "`V × C`", "388,480", "`L × 2 × C`", "[8, 4, 128, 128]", "[8, 128, 3035]"),
    *("**512,000", "5.05"),  # 512,000 / 101,468
    *("4,000", "1,234", "37.5%", "1.2%", "6.2%", "60%", "2,045", "1,021", "555", "909"),  # the data
    *("<code>a:1</code>", "<code>b:2</code>", "小兔```跑。"),
    *("12,346", "7.2", "543 MiB", "Test CPU", "bfloat16"),
    *("12%", "19%", "25.0%", "31.2%", "37.5%", " 123 |", "18.5", "233", "1,077 |"),  # what was written
    *("3,456", "71%", "17.23%", "17.12%", "159", "5.51", "3.2%", "43.8%"),  # where it is weak
    *("`train.learning_rate`", "`sample.top_k`", "`report.language`"),
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_report_tells_every_number(reports, language):
    assert [number for number in NUMBERS if number not in reports[language]] == []


def test_the_words_of_each_language(reports):
    for part in ("HTML 17", "empty 3, duplicate 295", "character frequency at step 250, xz at step 500"):
        assert part in reports["en"]
    for part in ("HTML 17", "空白 3，重复 295", "字符频率（第 250 步）、xz（第 500 步）", "少用汉字", "尚未"):
        assert part in reports["zh"]


def test_both_languages_name_the_same_facts():
    paths = [facts_of((TEMPLATES / f"report.{language}.md").read_text(encoding="utf-8")) for language in LANGUAGES]
    assert paths[0] == paths[1] and len(paths[0]) > 100


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_table_that_is_made_is_shown(params, seen, language):
    used = facts_of((TEMPLATES / f"report.{language}.md").read_text(encoding="utf-8"))
    made = facts(make_run(params, language=language), seen)["rows"]
    assert {f"rows.{name}" for name in made} == {path for path in used if re.fullmatch(r"rows\.\w+", path)}


def facts_of(template: str) -> set[str]:
    """The names that a template reads, with their attributes: `cost.machine.torch`."""

    def path(node: nodes.Node) -> str:
        if isinstance(node, nodes.Name):
            return node.name
        if isinstance(node, nodes.Getattr):
            return f"{path(node.node)}.{node.attr}"
        return path(node.node) + "[]" if isinstance(node, nodes.Getitem) else ""

    return {path(node) for node in Environment().parse(template).find_all((nodes.Name, nodes.Getattr))}


@pytest.mark.parametrize("language", LANGUAGES)
def test_formulas_are_set_off_so_that_github_finds_them(language):
    """A formula in a line needs white space or ASCII punctuation around it, also among Chinese characters."""
    text = (TEMPLATES / f"report.{language}.md").read_text(encoding="utf-8")
    formulas = re.findall(r"(.)\$([^$\n]+)\$(.)", text)
    assert len(formulas) > 10
    for before, formula, after in formulas:
        assert before in " (" and after in " .,;:)", (before, formula, after)
        assert formula == formula.strip()


@pytest.mark.parametrize("language", LANGUAGES)
def test_tables_have_as_many_cells_in_every_row(reports, language):
    n_tables, width = 0, None
    for line in reports[language].split("\n"):
        if not line.startswith("|"):
            width = None
            continue
        n_cells = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) - 1
        if width is None:
            width, n_tables = n_cells, n_tables + 1
        assert n_cells == width, line
    assert n_tables == 16


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_of_a_model_is_shown_and_never_obeyed(params, reports, language):
    """What the page shows of a hostile sample is the sample, and it starts no element of its own."""
    run = make_run(params, language=language)
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(reports[language])
    cells = Cells()
    cells.feed(page)
    shown = HOSTILE.replace("\n", "⏎")
    assert cells.texts.count(shown) == 2  # the prompt and what the trained model wrote
    assert "```⏎龘" in cells.texts
    assert '<img src="http://e.org' not in page and "<h1>题" not in page
    assert page.count("<table>") == page.count("</table>") == 16 + len(run.samples["samples"])
    assert "<b># 题<br>```</b>" in reports[language]  # the copied piece


class Cells(HTMLParser):
    """The texts of the cells of all tables, line breaks as ⏎."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag in ("td", "th"):
            self.inside = True
            self.texts.append("")
        if tag == "br" and self.inside:
            self.texts[-1] += "⏎"

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[-1] += data


def test_a_model_that_lost_is_not_praised(params, seen):
    run = make_run(params)
    run.metrics["test"]["model"] = measure(6.0)
    for row in run.analysis["baselines"]:
        row |= {"gap": row["test_nats_per_token"] - 6.0, "passed_at_step": None}
    report = make_report(run, seen)
    assert "0.31 ABOVE character frequency (5.6875)" in headline(run.metrics)
    assert "0.31 **ABOVE** guessing by character frequency" in report
    assert "**No.**" in report and "It never fell below any of them" in report and "not yet" in report
    assert "−0.312 (−" not in report.partition("xz")[0]


def test_a_model_between_the_baselines_is_told_so(params, seen):
    run = make_run(params)
    run.analysis["baselines"][1] |= {"gap": -0.125, "test_nats_per_token": 2.9375}
    report = make_report(run, seen)
    assert "**In part.**" in report and "5-gram is still 0.125 nats per token better" in report
    assert "**Yes.**" in make_report(make_run(params), seen)


def test_data_without_leaks_or_near_duplicates_is_told_so(params, seen):
    run = make_run(params)
    run.leaks["test"]["worst"] = []
    run.split["near_duplicates"] = {"policy": "ignore"}
    run.split["dropped"], run.split["cleaned"] = {"empty": 0}, {}
    report = make_report(run, seen)
    assert "No story shares any with a training story." in report and "Dropped: none" in report
    assert "were not looked for" in report
    run.split["near_duplicates"] = make_run(params).split["near_duplicates"] | {"policy": "together"}
    assert "All were kept, a cluster wholly on one side." in make_report(run, seen)


def test_every_param_is_in_the_report(reports, params):
    keys = re.findall(r"^\| `([\w.]+)` +\|", reports["en"].partition("## All params")[2], re.MULTILINE)
    sections = json.loads(params.model_dump_json(exclude={"runtime"}))
    wanted = [
        f"{name}.{key}" if key else name
        for name, section in sections.items()
        for key in (section if isinstance(section, dict) else [""])
    ]
    assert keys == wanted


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_figure_of_the_report_is_made_and_shown(params, seen, reports, language):
    figures = make_figures(make_run(params, language=language), seen)
    shown = re.findall(r"!\[([^]]+)\]\(figures/(\w+)\.svg\)", reports[language])
    assert sorted(name for _, name in shown) == sorted(figures)
    assert all(caption for caption, _ in shown)
    assert all(len(svg.encode()) < 200_000 for svg in figures.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_needs_nothing_else(params, seen, reports, language):
    page = read(make_page(reports[language], make_figures(make_run(params, language=language), seen), language))
    assert [target for target in page.loads if not target.startswith("#")] == []
    assert page.tags["svg"] == 8 and page.tags["img"] == page.tags["script"] == page.tags["link"] == 0
    assert len(page.ids) == len(set(page.ids)) > 100
    anchors = [link.removeprefix("#") for link in page.links if link.startswith("#")]
    assert len(anchors) == page.tags["h2"] == 9 and set(anchors) <= set(page.ids)
    assert page.tags["math"] >= 20


def test_the_same_run_gives_the_same_bytes(params, seen):
    run = make_run(params, language="zh")
    assert make_figures(run, seen) == make_figures(run, seen)
    assert make_report(run, seen) == make_report(run, seen)


@pytest.mark.parametrize(
    ("language", "variant"),
    [
        ("zh", {"norm": "layernorm", "position": "rope", "mlp": "swiglu", "qk_norm": True}),
        ("en", {"mlp": "relu2", "bias": False, "tie_embeddings": True, "context_size": 1, "n_layer": 1, "n_head": 1}),
    ],
)
def test_every_model_has_a_report(params, tiny_params, book_vocab, language, variant):
    model = tiny_params.model_copy(update=variant)
    trained = TrainedModel(initial_model(model, len(book_vocab), seed=0).eval(), book_vocab, 0, 500, 3.1)
    looked = look(trained, np.array([1, 5, 4, 6, 3, 2]), "小兔", params.sample)
    run = make_run(params.model_copy(update={"model": model}), language=language)
    report = make_report(run, looked)
    assert ("theta_i" in report) == (model.position == "rope")
    assert make_page(report, make_figures(run, looked), language).count("<svg") == 8


def test_the_data_funnel_by_hand():
    splits = {"train": {"n_stories": 6}, "val": {"n_stories": 1}, "test": {"n_stories": 1}}
    rows = funnel({"rows_in": 11, "dropped": {"empty": 0, "too_short": 2, "duplicate": 1}, **splits})
    assert rows == [
        *(("rows_in", 0, 11), ("too_short", 9, 11), ("duplicate", 8, 9)),
        *(("train", 0, 6), ("val", 6, 7), ("test", 7, 8)),
    ]


def test_counts_of_zero_are_left_out():
    assert named_counts({"empty": 0, "duplicate": 1234}, "en") == "duplicate 1,234"


@pytest.mark.parametrize(
    ("language", "adamw", "muon"),
    [
        ("en", "falls along a cosine to 10% of that", "in the last 70% of the steps falls straight to 0% of that"),
        ("zh", "再沿余弦曲线降到它的 10%", "到最后 70% 的步数里再直线降到它的 0%"),
    ],
)
def test_the_report_names_optimizer_and_schedule(params, seen, language, adamw, muon):
    text = make_report(make_run(params, language=language), seen)
    assert adamw in text and "Muon" not in text
    update = {"optimizer": "muon", "schedule": "linear", "decay_share": 0.7, "min_lr_ratio": 0.0}
    changed = params.model_copy(update={"train": params.train.model_copy(update=update)})
    text = make_report(make_run(changed, language=language), seen)
    assert muon in text and "Muon" in text and "6.7" in text


@pytest.mark.parametrize(
    ("language", "found"), [("en", "None were found.\n\n**Leaks.**"), ("zh", "一篇也没有找到。\n\n**泄漏。**")]
)
def test_no_near_duplicates_are_told_as_none(params, seen, language, found):
    run = make_run(params, language=language)
    none = {"n_clusters": 0, "n_stories": 0, "largest_cluster": 1, "would_have_leaked": 0}
    split = run.split | {"near_duplicates": run.split["near_duplicates"] | none}
    assert found in make_report(run._replace(split=split), seen)
