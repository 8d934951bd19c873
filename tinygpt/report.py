"""The report: numbers in, Markdown and figures out.

The prose stands in templates/report.en.md and report.zh.md; here is what they say it about.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tinygpt.charts import (
    funnel_chart,
    loss_chart,
    position_chart,
    rope_chart,
    scaling_chart,
    schedule_chart,
    weakness_chart,
)
from tinygpt.heatmaps import MAX_BLOCKS, MAX_HEADS, attention_figure, head_figure
from tinygpt.inside import SHARP
from tinygpt.markdown import block, html_cell, interval, percent, plain, table
from tinygpt.model import mlp_width, parameter_table
from tinygpt.params import SPLITS, Params
from tinygpt.words import word

# The run that the textbook reports in chapter 8, on TinyStories-Zh.
TEXTBOOK_TEST_NATS = 2.5864
TEXTBOOK_BASELINE_NATS = 5.6841

TEMPLATES = Path(__file__).parent / "templates"
WRITTEN = (("before", "written"), ("after", "written"), ("stories", "written"), ("stories", "real"))


class Run(NamedTuple):
    """What the other stages left: params.yaml, data/encoded/meta.json and the files in reports/."""

    params: Params
    split: dict[str, Any]
    leaks: dict[str, Any]
    encoded: dict[str, Any]
    curve: list[dict[str, float]]
    metrics: dict[str, Any]
    analysis: dict[str, Any]
    samples: dict[str, Any]
    cost: dict[str, Any]


def headline(metrics: dict[str, Any]) -> str:
    """The result in one line."""
    model, baseline = (metrics["test"][name]["nats_per_token"] for name in ("model", "baseline"))
    side = "below" if model < baseline else "ABOVE"
    gap = f"{abs(baseline - model):.2f} {side} character frequency ({baseline:.4f})"
    return f"Test loss {model:.4f} nats per token, {gap}."


def make_figures(run: Run, look: dict[str, Any]) -> dict[str, str]:
    """The SVG figures by name; `look` is what `inside.look` saw in the model."""
    language, analysis = run.params.report.language, run.analysis
    position = rope_chart if run.params.model.position == "rope" else position_chart
    baselines = {row["baseline"]: row["on_curve"] for row in analysis["baselines"]}
    tables = (analysis[name] for name in ("by_window_position", "by_story_position", "calibration"))
    return {
        "loss": loss_chart(run.curve, baselines, run.metrics["best_step"], language),
        "funnel": funnel_chart(funnel(run.split), language),
        "schedule": schedule_chart(run.curve, run.params.train.grad_clip, language),
        "head": head_figure(look["stages"], look["labels"][: len(look["stages"]["q"])], language),
        "attention": attention_figure(look["weights"], look["labels"], language),
        "scaling": scaling_chart(look["habits"], language),
        "position": position(look["position"]["lines"], language),
        "weakness": weakness_chart(*tables, language),
    }


def make_report(run: Run, look: dict[str, Any]) -> str:
    """The report as Markdown, in the language of `report.language`."""
    language = run.params.report.language
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES, encoding="utf-8"),
        undefined=StrictUndefined,  # a name that is missing here is an error, not a gap in the text
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"n": "{:,}".format, "percent": percent, "interval": interval, "plain": plain}
    environment.filters["fixed"] = lambda value, digits: f"{value:.{digits}f}"
    environment.filters["counts"] = lambda counts, sign=", ": named_counts(counts, language, sign)
    environment.globals |= {"table": table, "cell": html_cell, "block": block}
    environment.globals["word"] = lambda name: word(name, language)
    return environment.get_template(f"report.{language}.md").render(facts(run, look))


def facts(run: Run, look: dict[str, Any]) -> dict[str, Any]:
    """All that a template may name."""
    params, metrics = run.params, run.metrics
    model, language = params.model, params.report.language
    baselines = run.analysis["baselines"]
    heads = look["habits"]
    return {
        **run._asdict(),
        "test": metrics["test"],
        "gap": metrics["test"]["baseline"]["nats_per_token"] - metrics["test"]["model"]["nats_per_token"],
        "best_baseline": min(baselines, key=lambda row: row["test_nats_per_token"]),
        "passed": sorted((row for row in baselines if row["passed_at_step"] is not None), key=_passed_at),
        "textbook": {"nats": TEXTBOOK_TEST_NATS, "baseline": TEXTBOOK_BASELINE_NATS},
        "unknown_share": metrics["test"]["n_unknown"] / metrics["test"]["n_chars"],
        "statistics": {name: _statistics(run.samples, *name) for name in WRITTEN},
        "longest_copy": max(run.samples["written"], key=lambda story: len(story["copied"]["text"]))["copied"],
        "worst_leak": max((pair for name in SPLITS[1:] for pair in run.leaks[name]["worst"]), key=_share, default=None),
        "n_steps": run.cost["n_positions"] // (params.train.batch_size * model.context_size),
        "passes": run.cost["n_positions"] / run.encoded["train"]["n_tokens"],
        "n_parameters": sum(count for *_, count in parameter_table(model, run.encoded["vocab_size"])),
        "head_size": model.n_embd // model.n_head,
        "mlp_width": mlp_width(model),
        "look": look,
        "sharp": {"limit": SHARP, **{name: _mean(row[name] for row in heads) for name in ("sharp", "sharp_unscaled")}},
        "mean_entropy": {name: _mean(row[name] for row in heads) for name in ("entropy", "entropy_unscaled")},
        "most": {name: max(heads, key=lambda row: row[name]) for name in ("itself", "previous", "first", "distance")},
        "most_focused": min(heads, key=lambda row: row["entropy"]),
        "panels": {"blocks": MAX_BLOCKS, "heads": MAX_HEADS},
        "rows": {
            "baselines": _baselines(metrics, baselines, language),
            "units": _units(metrics["test"]),
            "writing": _writing(run.samples, language),
            "splits": _splits(run.encoded, language),
            "leaks": _leaks(run.leaks, language),
            "parameters": _parameters(params, run.encoded["vocab_size"], language),
            "shapes": _shapes(params, run.encoded["vocab_size"], look["shapes"], language),
            "nearest": [[plain(row["character"]), _pairs(row["nearest"], 2)] for row in look["nearest"]],
            "sizes": [
                [str(number), *(f"{value:.2f}" for value in row.values())] for number, row in _numbered(look["sizes"])
            ],
            "habits": _habits(heads),
            "random": [
                [str(row["width"]), f"{row['std']:.2f}", percent(row["largest"]), percent(row["largest_scaled"])]
                for row in look["random"]
            ],
            "predictions": _predictions(look["predictions"]),
            "temperatures": [
                [plain(row["character"] or word("all others", language)), *(percent(p, 1) for p in row["odds"])]
                for row in look["temperatures"]
            ],
            "classes": _classes(run.analysis["by_class"], language),
            "worst": _worst(run.analysis["worst_characters"]),
            "params": _all_params(params),
        },
    }


def funnel(split: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Bars of the data funnel, (name, first, last): all stories, each reason to drop some, the splits.

    Example: of 10 stories 2 are too short; 6, 1 and 1 are left for the splits:
    rows_in 0-10, too_short 8-10, train 0-6, val 6-7, test 7-8.
    """
    end = split["rows_in"]
    rows = [("rows_in", 0, end)]
    for reason, n in split["dropped"].items():
        if n:
            rows.append((reason, end - n, end))
            end -= n
    start = 0
    for name in SPLITS:
        n = split[name]["n_stories"]
        rows.append((name, start, start + n))
        start += n
    return rows


def _baselines(metrics: dict[str, Any], baselines: Sequence[dict[str, Any]], language: str) -> list[list[str]]:
    rows = []
    for name in ("model", "sliding"):
        val, test = metrics["val"][name], metrics["test"][name]
        losses = [f"{val['nats_per_token']:.4f}", f"**{test['nats_per_token']:.4f}**"]
        rows.append([f"**{word(name, language)}**", *losses, *_bits(test, ""), "", ""])
    for row in sorted(baselines, key=lambda row: -row["test_nats_per_token"]):
        losses = [f"{row[f'{split}_nats_per_token']:.4f}" for split in ("val", "test")]
        gap = f"{row['gap']:.3f}" + (f" ({interval(row['gap_95'], 3)})" if row["gap_95"] else "")
        step = row["passed_at_step"]
        passed = word("never", language) if step is None else f"{step:,}"
        rows.append([word(row["baseline"], language), *losses, *_bits(row, "test_"), gap.replace("-", "−"), passed])
    return rows


def _bits(row: dict[str, float], prefix: str) -> list[str]:
    return [f"{row[f'{prefix}bits_per_char']:.3f}", f"{row[f'{prefix}bits_per_byte']:.3f}"]


def _units(test: dict[str, Any]) -> list[list[str]]:
    """A row a unit, chunked beside sliding; the templates name the units in this order."""
    digits = {
        "nats_per_token": 4,
        "nats_per_token_without_marks": 4,
        "perplexity": 2,
        "bits_per_char": 3,
        "bits_per_byte": 3,
        "bits_per_char_unknown_charged": 3,
    }
    rows = []
    for name, n in digits.items():
        cells = [f"{test[protocol][name]:.{n}f}" for protocol in ("model", "sliding")]
        if f"{name}_95" in test["model"]:
            ends = (test[protocol][f"{name}_95"] for protocol in ("model", "sliding"))
            cells = [f"{cell} ({interval(pair, n)})" for cell, pair in zip(cells, ends, strict=True)]
        rows.append(cells)
    return rows


def _statistics(samples: dict[str, Any], name: str, whose: str) -> dict[str, Any]:
    return next(row for row in samples["statistics"] if (row["set"], row["whose"]) == (name, whose))


def _writing(samples: dict[str, Any], language: str) -> list[list[str]]:
    rows = []
    for name, whose in WRITTEN:
        row = _statistics(samples, name, whose)
        shown = name if name != "stories" else whose
        shares = [percent(row[key]) for key in ("ended_share", "finished_share")]
        counted = [percent(row[key], 1) for key in ("distinct_2", "distinct_4", "repeated_4")]
        copied = [f"{row['copied_median']:g}", f"{row['copied_longest']:,}"]
        n, length = f"{row['n_stories']:,}", f"{row['n_chars_mean']:.0f}"
        rows.append([word(shown, language), n, shares[0], length, shares[1], *counted, *copied])
    return rows


def _splits(encoded: dict[str, Any], language: str) -> list[list[str]]:
    keys = ("n_stories", "n_chars", "n_bytes", "n_tokens", "n_unknown")
    return [[word(name, language), *(f"{encoded[name][key]:,}" for key in keys)] for name in SPLITS]


def _leaks(leaks: dict[str, Any], language: str) -> list[list[str]]:
    rows = []
    for name in SPLITS[1:]:
        shares = [percent(leaks[name]["largest_share"][key], 1) for key in ("mean", "p50", "p90", "p99", "max")]
        rows.append([word(name, language), f"{leaks[name]['n_stories']:,}", *shares])
    return rows


def _passed_at(row: dict[str, Any]) -> int:
    return row["passed_at_step"]


def _share(pair: dict[str, Any]) -> float:
    return pair["share"]


def _parameters(params: Params, vocab_size: int, language: str) -> list[list[str]]:
    parts = parameter_table(params.model, vocab_size)
    total = sum(count for *_, count in parts)
    rows = [[word(part, language), f"`{formula}`", f"{n:,}", percent(n / total, 1)] for part, formula, n in parts]
    return [*rows, [f"**{word('total', language)}**", "", f"**{total:,}**", "100.0%"]]


def _shapes(params: Params, vocab_size: int, letters: dict[str, str], language: str) -> list[list[str]]:
    """The shapes of a batch of training, in letters and in numbers."""
    model = params.model
    lengths = {
        "B": params.train.batch_size,
        "T": model.context_size,
        "C": model.n_embd,
        "3C": 3 * model.n_embd,
        "H": model.n_head,
        "D": model.n_embd // model.n_head,
        "F": mlp_width(model),
        "V": vocab_size,
    }
    numbers = {shape: ", ".join(str(lengths[letter]) for letter in shape.split(", ")) for shape in letters.values()}
    return [[word(step, language), f"[{shape}]", f"[{numbers[shape]}]"] for step, shape in letters.items()]


def _habits(heads: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for row in heads:
        shares = [percent(row[name]) for name in ("itself", "previous", "first")]
        entropies = [f"{row[name]:.2f}" for name in ("entropy", "entropy_unscaled")]
        sharp = [percent(row[name]) for name in ("sharp", "sharp_unscaled")]
        rows.append([f"{row['block']}.{row['head']}", *shares, f"{row['distance']:.1f}", *entropies, *sharp])
    return rows


def _predictions(predictions: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for row in predictions:
        came = [plain(row["came"]), _small_percent(row["p"]), f"{row['nats']:.2f}"] if "came" in row else ["", "", ""]
        rows.append([plain(row["read"]), _pairs(row["likeliest"], 2), *came])
    return rows


def _small_percent(share: float) -> str:
    return percent(share, 2) if share >= 0.0001 else "< 0.01%"


def _pairs(pairs: Sequence[tuple[str, float]], digits: int) -> str:
    return " · ".join(f"{plain(character)} {value:.{digits}f}" for character, value in pairs)


def _classes(table: Sequence[dict[str, Any]], language: str) -> list[list[str]]:
    rows = []
    for row in sorted(table, key=lambda row: row["nats_per_token"]):
        shares = [percent(row[key], 2) for key in ("observed_share", "expected_share")]
        counts = [f"{row['n_distinct']:,}", f"{row['n_targets']:,}"]
        cells = [f"{row['nats_per_token']:.2f}", percent(row["accuracy"]), *shares]
        rows.append([plain(word(row["class"], language)), *counts, *cells])
    return rows


def _worst(table: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for row in table:
        mistaken = (
            "" if row["mistaken_for"] is None else f"{plain(row['mistaken_for'])} ({percent(row['mistaken_share'])})"
        )
        cells = [f"{row['n_targets']:,}", f"{row['nats_per_token']:.2f}", percent(row["accuracy"]), mistaken]
        rows.append([plain(row["character"]), *cells])
    return rows


def _all_params(params: Params) -> list[list[str]]:
    rows = []
    for name, value in params.model_dump(exclude={"runtime"}).items():
        section = value.items() if isinstance(value, dict) else [(None, value)]
        for key, item in section:
            items = item if isinstance(item, list) else [item]
            rows.append([f"`{name}.{key}`" if key else f"`{name}`", "<br>".join(plain(str(each)) for each in items)])
    return rows


def _numbered(rows: Sequence[Any]) -> list[tuple[int, Any]]:
    return list(enumerate(rows, start=1))


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def named_counts(counts: dict[str, int], language: str, sign: str = ", ") -> str:
    """The counts that are not zero, with their names; empty if there is none."""
    return sign.join(f"{word(name, language)} {n:,}" for name, n in counts.items() if n)
