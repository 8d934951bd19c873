"""Charts as SVG: real text, readable on light and dark pages, the same bytes for the same numbers."""

import io
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tinygpt.words import word

INK = "#57606a"  # text and axes; replaced by a colour that follows the page's theme
FONTS = (
    "system-ui, 'PingFang SC', 'Hiragino Sans GB', 'Microsoft YaHei', 'Noto Sans CJK SC', 'Source Han Sans SC', "
    "'WenQuanYi Micro Hei', sans-serif"
)
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "tinygpt",  # ids do not change from run to run
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that the layout is the same everywhere
    "font.size": 10,
    "axes.unicode_minus": False,
    "axes.titlesize": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": INK,
    "grid.alpha": 0.2,
    "legend.frameon": False,
}
THEME = (
    "<style>:root{--ink:#57606a;--strong:#1f2328}"
    "@media(prefers-color-scheme:dark){:root{--ink:#9198a1;--strong:#e6edf3}}</style>"
)
BLUE, ORANGE, GREY = "#2f81f7", "#db6d28", "#8b949e"
COLOURS = (BLUE, ORANGE, "#2da44e", "#a371f7", "#d29922", "#e5534b")  # each readable on white and on near-black
LINES = ("-", "--", ":")
WIDTH = 7.2  # inches, of every chart


@contextmanager
def _figure(height: float, n_columns: int = 1) -> Iterator[tuple[Figure, Any]]:
    with rc_context(STYLE), warnings.catch_warnings():
        # Chinese labels: the fonts of whoever looks at the page draw them, not the one that lays out.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure, figure.subplots(1, n_columns)


def _label(name: str, language: str) -> str:
    """The word, with room for what the laying-out font lacks: it takes 0.6 of a width of 1 for a Chinese sign."""
    text = word(name, language)
    n_wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return text + " " * round(n_wide * 0.4 / 0.318)  # 0.318 is the width of a space


def loss_chart(curve: Sequence[dict[str, float]], baselines: dict[str, float], best_step: int, language: str) -> str:
    """Train and val loss (nats per token) by step, the baselines as lines, the chosen step marked."""
    steps = [row["step"] for row in curve]
    with _figure(4.2) as (figure, axes):
        for name, color in (("train", ORANGE), ("val", BLUE)):
            losses = [row[f"{name}_nats_per_token"] for row in curve]
            axes.plot(steps, losses, color=color, label=_label(f"{name} windows", language))
        best = next(row for row in curve if row["step"] == best_step)
        chosen = f"{word('chosen', language)}: {best_step:,}"
        axes.plot(best_step, best["val_nats_per_token"], "o", color=BLUE, label=chosen + " " * 4)
        for nats in baselines.values():
            axes.axhline(nats, color=GREY, linestyle="--", linewidth=1)
        low, high = axes.get_ylim()
        places = spread(list(baselines.values()), (high - low) * 0.055)
        for name, place in zip(baselines, places, strict=True):
            axes.annotate(
                _label(name, language), (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=8
            )
        axes.set_xlabel(_label("step", language))
        axes.set_ylabel(_label("nats per token", language))
        axes.legend()
        return _svg(figure)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """The places, moved up where they are closer than `gap` to the one below, so that labels do not overlap.

    Example: 1.0 1.1 3.0 with a gap of 0.5 become 1.0 1.5 3.0.
    """
    moved, last = list(places), float("-inf")
    for number in sorted(range(len(places)), key=lambda number: places[number]):
        moved[number] = last = max(places[number], last + gap)
    return moved


def schedule_chart(curve: Sequence[dict[str, float]], grad_clip: float, language: str) -> str:
    """The learning rate and the length of the gradient by step."""
    with _figure(2.6, 2) as (figure, (left, right)):
        left.plot([row["step"] for row in curve], [row["learning_rate"] for row in curve], color=BLUE)
        left.set_title(_label("learning rate", language))
        trained = [row for row in curve if row["grad_norm"]]  # step 0 has no gradient yet
        right.plot([row["step"] for row in trained], [row["grad_norm"] for row in trained], color=ORANGE)
        right.axhline(grad_clip, color=GREY, linestyle="--", label=_label("clipped above", language))
        right.set_title(_label("gradient norm", language))
        right.set_ylim(bottom=0)
        right.legend()
        for axes in (left, right):
            axes.set_xlabel(_label("step", language))
        return _svg(figure)


def funnel_chart(rows: Sequence[tuple[str, int, int]], language: str) -> str:
    """Stories from the source to the splits: (name, first, last) a bar, of what is read, dropped, kept."""
    with _figure(0.7 + 0.32 * len(rows)) as (figure, axes):
        colors = [{"rows_in": GREY, "train": BLUE, "val": BLUE, "test": BLUE}.get(name, ORANGE) for name, *_ in rows]
        places = range(len(rows))
        axes.barh(places, [last - first for _, first, last in rows], left=[first for _, first, _ in rows], color=colors)
        most = max(last for *_, last in rows)
        for place, (_, first, last) in enumerate(rows):
            axes.annotate(f"{last - first:,}", (last + most * 0.01, place), va="center", fontsize=9)
        axes.set_yticks(places, [_label(name, language) for name, *_ in rows])
        axes.invert_yaxis()
        axes.set_xlim(0, most * 1.1)
        axes.set_xlabel(_label("stories", language))
        axes.grid(False)
        return _svg(figure)


def weakness_chart(
    by_window: Sequence[dict[str, Any]],
    by_story: Sequence[dict[str, Any]],
    calibration: Sequence[dict[str, Any]],
    language: str,
) -> str:
    """The loss by place in the window and in the story; how often the likeliest character was right."""
    with _figure(2.9, 3) as (figure, (left, middle, right)):
        _bins(left, by_window, "tokens_seen", _label("seen in window", language))
        _bins(middle, by_story, "place", _label("place in story", language))
        losses = [row["nats_per_token"] for row in (*by_window, *by_story)]
        for axes in (left, middle):
            axes.set_ylim(min(losses) - 0.1, max(losses) + 0.1)
        left.set_ylabel(_label("nats per token", language))
        right.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label=_label("perfect", language))
        right.plot([row["expected"] for row in calibration], [row["observed"] for row in calibration], "o-", color=BLUE)
        right.set_xlabel(_label("expected", language))
        right.set_ylabel(_label("observed", language))
        right.legend(fontsize=8, loc="upper left")
        return _svg(figure)


def _bins(axes: Axes, rows: Sequence[dict[str, Any]], name: str, label: str) -> None:
    axes.plot(range(len(rows)), [row["nats_per_token"] for row in rows], "o-", color=BLUE)
    axes.set_xticks(range(len(rows)), [bounds(row, name) for row in rows], rotation=60, fontsize=8)
    axes.set_xlabel(label)


def bounds(row: dict[str, Any], name: str) -> str:
    """The first and the last of a bin: `1`, `3–4`."""
    first, last = row[f"{name}_from"], row[f"{name}_to"]
    return f"{first}" if first == last else f"{first}–{last}"


def scaling_chart(habits: Sequence[dict[str, Any]], language: str) -> str:
    """The entropy of each head's attention, with the division by sqrt(D) and without."""
    with _figure(3.0) as (figure, axes):
        places = range(len(habits))
        scaled, unscaled = ([row[name] for row in habits] for name in ("entropy", "entropy_unscaled"))
        axes.vlines(places, unscaled, scaled, color=GREY, linewidth=1)
        axes.plot(places, scaled, "o", color=BLUE, label=_label("with scaling", language))
        axes.plot(places, unscaled, "o", color=ORANGE, label=_label("without scaling", language))
        axes.set_xticks(places, [f"{row['block']}.{row['head']}" for row in habits], rotation=60, fontsize=8)
        axes.set_ylim(0, max(scaled + unscaled) * 1.3 or 1)
        axes.set_xlabel(_label("block.head", language))
        axes.set_ylabel(_label("entropy", language))
        axes.legend(ncols=2)
        return _svg(figure)


def rope_chart(dots: dict[int, Sequence[float]], language: str) -> str:
    """q · k by distance, a line for each place of the key: with RoPE they lie on each other."""
    with _figure(3.0) as (figure, axes):
        widths = (6, 3.5, 1.5)
        for (place, line), width, color in zip(dots.items(), widths, (GREY, BLUE, ORANGE), strict=False):
            label = f"{_label('key at', language)} n = {place}"
            axes.plot(range(len(line)), line, color=color, linewidth=width, label=label)
        axes.set_xlabel(_label("distance", language))
        axes.set_ylabel(_label("dot product", language))
        axes.legend()
        return _svg(figure)


def position_chart(cosines: dict[int, Sequence[float]], language: str) -> str:
    """How alike the vectors of a few positions are to those of all (learned positions)."""
    with _figure(3.0) as (figure, axes):
        for (place, line), color in zip(cosines.items(), (GREY, BLUE, ORANGE), strict=False):
            axes.plot(range(len(line)), line, color=color, label=f"{_label('vector of', language)} {place}")
        axes.set_xlabel(_label("position", language))
        axes.set_ylabel(_label("cosine", language))
        axes.legend(ncols=3)
        axes.set_ylim(top=1.25)
        return _svg(figure)


def overlaid_curves(curves: dict[str, Sequence[Sequence[dict[str, str]]]]) -> str:
    """Val loss by step of several experiments; the runs of one, its seeds, share a colour."""
    with _figure(3.6) as (figure, axes):
        for number, (name, runs) in enumerate(curves.items()):
            style = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number // len(COLOURS) % len(LINES)]}
            for run, rows in enumerate(runs):
                steps, losses = ([float(row[key]) for row in rows] for key in ("step", "val_nats_per_token"))
                axes.plot(steps, losses, **style, label=None if run else name)
        axes.set_xlabel("step")
        axes.set_ylabel("val windows, nats per token")
        axes.legend()
        return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue().replace(INK, f"var(--ink, {INK})").replace("'DejaVu Sans'", FONTS)
    start = svg.index("<defs>")  # the first element inside <svg>
    return svg[:start] + THEME + svg[start:]
