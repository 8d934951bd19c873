"""Figures as SVG: real text, readable on light and dark pages, the same bytes for the same numbers."""

import io
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure

INK = "#57606a"  # text and axes; replaced by a colour that follows the page's theme
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "tinygpt",  # ids do not change from run to run
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that the layout is the same everywhere
    "font.size": 10,
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
}
THEME = "<style>:root{--ink:#57606a}@media(prefers-color-scheme:dark){:root{--ink:#9198a1}}</style>"
BLUE, ORANGE, GREY = "#2f81f7", "#db6d28", "#8b949e"


def loss_curve(
    steps: Sequence[int], train: Sequence[float], val: Sequence[float], baseline: float, best_step: int
) -> str:
    """Train and val loss (nats per token) by step, the baseline as a line, the chosen step marked."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.axhline(baseline, color=GREY, linestyle="--", label="character frequency (val)")
        axes.plot(steps, train, color=ORANGE, label="train windows")
        axes.plot(steps, val, color=BLUE, label="val windows")
        best = list(steps).index(best_step)
        axes.plot(best_step, val[best], "o", color=BLUE, label=f"chosen: step {best_step:,}")
        axes.set_xlabel("step")
        axes.set_ylabel("nats per token")
        axes.legend(frameon=False)
        return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue().replace(INK, f"var(--ink, {INK})").replace("'DejaVu Sans'", "system-ui, sans-serif")
    start = svg.index("<defs>")  # the first element inside <svg>
    return svg[:start] + THEME + svg[start:]
