import xml.etree.ElementTree as ElementTree

import pytest

from tinygpt.charts import overlaid_curves
from tinygpt.comparison import (
    RunResult,
    changed_keys,
    difference_by_seed,
    difference_by_story,
    flat,
    group_runs,
    make_comparison,
)
from tinygpt.measures import paired_t

COSTS = {"a": 10.0, "b": 30.0, "c": 20.0}  # nats; ten targets each


def make_run(name, seed=0, n_layer=4, add=0.0, stories=COSTS, unknown=0.0, text="有猫。"):
    """A run whose test stories cost `add` nats a target more."""
    rows = [
        {"story": story, "n_targets": "10", "nats": str(nats + 10 * add), "unknown_nats": str(unknown)}
        for story, nats in stories.items()
    ]
    loss = sum(float(row["nats"]) for row in rows) / 10 / len(rows)
    figures = {"nats_per_token": loss, "bits_per_char": loss * 1.5}
    return RunResult(
        name,
        {"seed": seed, "model": {"n_layer": n_layer}, "runtime": {"n_threads": seed}},
        {"test": {"model": figures, "sliding": figures}},
        rows,
        [{"step": "0", "val_nats_per_token": "8"}, {"step": "10", "val_nats_per_token": str(loss)}],
        {
            "stories": {"ended_share": 0.5},
            "samples": [{"prompt": "从前，", "seed": 100, "after": {"text": text}}],
        },
        {"minutes": 5.0},
    )


def test_runs_that_differ_in_seed_alone_are_one_group():
    runs = [make_run("HEAD"), make_run("again"), make_run("s1", seed=1), make_run("deep", n_layer=6)]
    groups = group_runs(runs)
    assert [(group.name, list(group.runs)) for group in groups] == [("HEAD, s1", [0, 1]), ("deep", [0])]
    assert groups[0].runs[0].name == "HEAD"  # the same run again counts once
    assert changed_keys(groups) == ["model.n_layer"]


def test_params_are_flat_without_what_makes_no_other_experiment():
    params = {"seed": 1, "vocab": {"min_count": 1}, "split": {"seed": 2}, "runtime": {"n_threads": 3}}
    assert flat(params) == {"vocab.min_count": 1, "split.seed": 2}


def test_a_param_that_one_run_does_not_know_differs():
    old = make_run("old")._replace(params={"seed": 0, "model": {}})
    assert changed_keys(group_runs([make_run("new"), old])) == ["model.n_layer"]


def test_pairs_are_made_by_story_whatever_their_order(params):
    reversed_costs = dict(reversed(COSTS.items()))
    one, other = group_runs([make_run("a"), make_run("b", n_layer=6, add=0.25, stories=reversed_costs)])
    assert difference_by_story(other, one, params.evaluate) == pytest.approx((0.25, 0.25, 0.25))


def test_only_shared_stories_are_compared(params):
    one, other = group_runs([make_run("a"), make_run("b", n_layer=6, add=0.25, stories={"b": 30.0, "d": 99.0})])
    assert difference_by_story(other, one, params.evaluate) == pytest.approx((0.25, 0.25, 0.25))
    assert "only the shared ones count: b." in make_comparison([one, other], params.evaluate)
    one, other = group_runs([make_run("a"), make_run("b", n_layer=6, stories={"d": 99.0})])
    assert difference_by_story(other, one, params.evaluate) is None


def test_unknown_characters_are_charged(params):
    one, other = group_runs([make_run("a"), make_run("b", n_layer=6, add=-0.25, unknown=5.0)])
    assert difference_by_story(other, one, params.evaluate) == pytest.approx((0.25, 0.25, 0.25))


def test_differences_are_of_the_means_over_seeds(params):
    runs = [make_run("a0"), make_run("a1", seed=1, add=0.1)]
    runs += [make_run(f"b{seed}", seed=seed, n_layer=6, add=add) for seed, add in [(0, 0.2), (1, 0.4), (2, 9.9)]]
    one, other = group_runs(runs)
    difference, _, _ = difference_by_story(other, one, params.evaluate)
    assert difference == pytest.approx((0.2 + 0.4 + 9.9) / 3 - 0.05)
    # by seed only those that both have: 0.2 and 0.3, mean 0.25, t = 12.706 for one degree of freedom
    assert difference_by_seed(other, one) == pytest.approx((0.25, 12.706 * 0.1 / 2))
    assert difference_by_seed(group_runs([make_run("x", n_layer=9)])[0], one) is None


def test_students_t_beyond_the_table():
    for n, t in ((11, 2.228), (21, 2.086), (61, 2.000)):
        values = [float(i % 2) for i in range(n)]
        deviation = (sum(values) * (1 - sum(values) / n) / (n - 1)) ** 0.5
        assert paired_t(values, [0.0] * n)[1] == pytest.approx(t * deviation / n**0.5, rel=2e-3)


def test_the_page_holds_params_differences_and_samples(params):
    runs = [make_run("HEAD"), make_run("s1", seed=1, add=0.1), make_run("deep", n_layer=6, add=-0.25, text="a|b\n<c>")]
    page = make_comparison(group_runs(runs), params.evaluate)
    table = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in page.splitlines() if "|" in line]
    header, _, first, second = table[:4]
    assert header[:4] == ["run", "`model.n_layer`", "seeds", "test nats per token"]
    assert first[:5] == ["HEAD, s1", "4", "2", "2.0500 ± 0.0707", ""]
    assert second[:5] == ["deep", "6", "1", "1.7500", "-0.3000 [-0.3000, -0.3000]"]
    assert "| 从前， (100)" in page and "a\\|b<br>&lt;c&gt;" in page and "![Loss by step](compare.svg)" in page


def test_the_curves_are_svg_with_text_theme_and_the_same_bytes():
    curves = {name: [make_run(name).curve] * 2 for name in ("HEAD, s1", "深", *"cdefg")}
    figures = [overlaid_curves(curves) for _ in range(2)]
    assert figures[0] == figures[1]
    root = ElementTree.fromstring(figures[0])
    texts = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("HEAD, s1") == 1 and "深" in texts and "val windows, nats per token" in texts
    assert "prefers-color-scheme:dark" in figures[0]
