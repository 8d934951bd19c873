import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tinygpt.charts import loss_curve
from tinygpt.report import headline, make_report


def measure(nats):
    return {"nats_per_token": nats, "perplexity": 2.0, "bits_per_char": nats * 1.5}


SHARES = {"mean": 0.0125, "p50": 0.01, "p90": 0.02, "p99": 0.05, "max": 0.0625}
WORST = {"share": 0.375, "id": "a:1", "text": "小兔```跑。", "train_id": "b:2", "train_text": "小猫爬树。"}


@pytest.fixture
def facts(params):
    counts = {"n_stories": 1234, "n_chars": 99000, "n_bytes": 297000, "n_tokens": 101468, "n_unknown": 7}
    scored = {"n_targets": 101467, "n_stories": 1234, "n_chars": 99000, "n_unknown": 7}
    sample = {"prompt": "从前，", "seed": 100, "unknown": ["龙"]}
    return {
        "params": params,
        "split": {
            "rows_in": 1300,
            "cleaned": {"html": 17, "spaced": 0},
            "dropped": {"empty": 3, "too_short": 0, "duplicate": 63},
            "near_duplicates": {
                "policy": "drop",
                "similarity": 0.6,
                "n_clusters": 21,
                "n_stories": 45,
                "largest_cluster": 5,
                "would_have_leaked": 9,
            },
        },
        "leaks": {
            "n_gram": 8,
            "val": {"n_stories": 70, "largest_share": SHARES, "worst": []},
            "test": {"n_stories": 80, "largest_share": SHARES | {"max": 0.375}, "worst": [WORST]},
        },
        "encoded": {"vocab_size": 3035, "train": counts, "val": counts, "test": counts},
        "curve": [
            {"step": 0.0, "val_nats_per_token": 8.0},
            {"step": 250.0, "val_nats_per_token": 5.9},
            {"step": 500.0, "val_nats_per_token": 4.2},
        ],
        "metrics": {
            "best_step": 500,
            "val": {"model": measure(3.125), "baseline": measure(5.75), **scored},
            "test": {"model": measure(3.0625), "baseline": measure(5.6875), **scored},
        },
        "samples": {
            "temperature": 0.8,
            "top_k": 40,
            "max_new_chars": 200,
            "samples": [
                sample
                | {"before": {"text": "```\n龘", "ended_by": "limit"}, "after": {"text": "有猫。", "ended_by": "eos"}}
            ],
        },
        "cost": {
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
    }


def test_the_report_tells_every_number(facts):
    report = make_report(**facts)
    for part in (
        "3.0625", "5.6875", "3.1250", "5.7500",  # model and baseline
        "2.5864", "5.6841", "on other stories",  # the textbook, marked as another data set
        "1,588,571", "`V × C`", "388,480",  # the parameter table
        "**512,000 positions**", "5.05 times",  # 512,000 / 101,468
        "step 500 on",  # the first evaluation under the baseline
        "cleaning: html 17.", "empty 3, duplicate 63",
        "45 stories in\n21 clusters, at most 5 in one", "character\n3-grams",
        "9 stories of val and test would have had",
        "37.5%", "6.2%", "`a:1`, held out, and `b:2`, in train", "小猫爬树。",
 "1,234", "99,000", "297,000", "101,468",
        "12,346 positions a second", "7.2 minutes", "543 MiB", "Test CPU", "products in bfloat16",
        "`train.learning_rate`", "`sample.top_k`",
    ):  # fmt: skip
        assert part in report, part


def test_samples_stand_whole_between_fences_that_they_cannot_break(facts):
    report = make_report(**facts)
    assert "````text\n```\n龘\n````" in report
    assert "```text\n有猫。\n```" in report
    assert "### 从前，\n" in report
    assert "lacks 龙" in report
    assert "cut at the limit" in report and "the model ended the story" in report


def test_a_model_that_lost_to_the_baseline_is_not_praised(facts):
    facts["metrics"]["test"]["model"] = measure(6.0)
    facts["curve"] = facts["curve"][:2]
    assert "0.31 ABOVE the character-frequency baseline" in headline(facts["metrics"])
    assert "never gets under the baseline" in make_report(**facts)


def test_every_param_is_in_the_report(facts, params):
    report = make_report(**facts)
    keys = re.findall(r"^\| `([\w.]+)` +\|", report.partition("## All params")[2], re.MULTILINE)
    sections = json.loads(params.model_dump_json(exclude={"runtime"}))
    wanted = [
        f"{name}.{key}" if key else name
        for name, section in sections.items()
        for key in (section if isinstance(section, dict) else [""])
    ]
    assert keys == wanted


def test_the_figure_is_svg_with_text_theme_and_the_same_bytes():
    figures = [loss_curve([0, 250, 500], [8.0, 4, 3], [8.0, 4.1, 3.2], 5.7, 500) for _ in range(2)]
    assert figures[0] == figures[1]
    root = ElementTree.fromstring(figures[0])
    texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "nats per token" in texts and "character frequency (val)" in texts
    assert "prefers-color-scheme:dark" in figures[0] and "var(--ink" in figures[0]


def test_what_was_not_looked_for_is_not_told_as_found(facts):
    facts["split"]["near_duplicates"] = {"policy": "ignore"}
    facts["leaks"]["test"] = facts["leaks"]["val"]
    report = make_report(**facts)
    assert "were not looked for" in report and "No story shares any" in report
