"""Heat maps as SVG, with the characters of a sentence on their axes.

Written by hand, not by matplotlib: it measures text by fonts, and brings none that has Chinese.
"""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from torch import Tensor

from tinygpt.charts import BLUE, FONTS, INK, ORANGE, THEME
from tinygpt.words import word

GAP = 14  # pixels between panels, and the room that a line of labels takes
LEVELS = 20  # of opacity
STRONGEST = 0.8  # opacity of the largest value: numbers on top of it stay readable
MAX_BLOCKS = MAX_HEADS = 8  # of a big model the first ones
HEADS_IN_A_ROW = 4
BASELINE = 3.5  # how far below the middle of a line of 10 pixels its text stands


class Panel(NamedTuple):
    """One heat map: a (rows, columns) matrix, its title, the labels of its axes, the size of a cell.

    `largest` is the absolute value that gets the full colour; `digits` writes the values into the cells.
    """

    matrix: Tensor
    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    cell: tuple[float, float]
    largest: float
    digits: int | None = None

    @property
    def width(self) -> float:
        return GAP + self.matrix.shape[1] * self.cell[0]

    @property
    def height(self) -> float:
        return GAP + self.matrix.shape[0] * self.cell[1] + (GAP if self.columns else 0)


def attention_figure(weights: Sequence[Tensor], labels: Sequence[str], language: str) -> str:
    """The weights of all heads, (H, T, T) a block: rows of panels, a block begins a row."""
    cell = max(10.0, min(16.0, 620 / (HEADS_IN_A_ROW * len(labels))))
    rows = []
    for block, heads in enumerate(weights[:MAX_BLOCKS], start=1):
        panels = [
            Panel(head, word("block and head", language).format(block, number), labels, labels, (cell, cell), 1.0)
            for number, head in enumerate(heads[:MAX_HEADS], start=1)
        ]
        rows += [panels[first : first + HEADS_IN_A_ROW] for first in range(0, len(panels), HEADS_IN_A_ROW)]
    return _figure(rows)


def head_figure(stages: dict[str, Tensor], labels: Sequence[str], language: str) -> str:
    """One head, stage by stage: q, k, v and read (T, D); scores, scaled, masked, weights (T, T)."""
    D, T = stages["q"].shape[1], len(labels)
    flat, square = (216 / D, 14), (max(22.0, 312 / T), 20)
    most = stages["scores"].abs().max().item()

    def vectors(name: str, key: str, sign: str) -> Panel:
        matrix = stages[key]
        title = f"{sign} {word(name, language)}"
        return Panel(matrix, title, labels, (), flat, matrix.abs().max().item())

    def table(name: str, key: str, sign: str, largest: float, digits: int) -> Panel:
        return Panel(stages[key], f"{sign} {word(name, language)}", labels, labels, square, largest, digits)

    return _figure(
        [
            [vectors("queries", "q", "Q"), vectors("keys", "k", "K"), vectors("values", "v", "V")],
            [table("scores", "scores", "① QKᵀ", most, 1), table("scaled", "scaled", "② QKᵀ / √D", most, 1)],
            [table("masked", "masked", "③ + M", most, 1), table("weights", "weights", "④ A = softmax", 1.0, 2)],
            [table("weights unscaled", "unscaled", "softmax(QKᵀ + M)", 1.0, 2), vectors("read", "read", "⑤ AV")],
        ]
    )


def _figure(rows: Sequence[Sequence[Panel]]) -> str:
    parts, y, width = [], 0.0, 0.0
    for row in rows:
        x = 0.0
        for panel in row:
            parts.append(f'<g transform="translate({x:g},{y:g})">{_panel(panel)}</g>')
            x += panel.width + GAP
        y += max(panel.height for panel in row) + GAP
        width = max(width, x)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{y:g}" viewBox="0 0 {width:g} {y:g}">'
        f'{THEME}<g text-anchor="middle" style="font:10px {FONTS};fill:var(--ink, {INK})">{"".join(parts)}</g></svg>\n'
    )


def _panel(panel: Panel) -> str:
    """Title on top, labels on the left and below, cells as one path for each strength of colour."""
    width, height = panel.cell
    n_rows, n_columns = panel.matrix.shape
    parts = [f'<text x="{GAP}" y="10" text-anchor="start">{escape(panel.title)}</text>']
    parts += _texts(panel.rows, [(GAP / 2, GAP + (row + 0.5) * height) for row in range(n_rows)])
    below = GAP + n_rows * height + GAP / 2
    parts += _texts(panel.columns, [(GAP + (column + 0.5) * width, below) for column in range(n_columns)])

    # A cell is a thick line of length 1 on a grid of units, the shortest form there is for thousands of them.
    cells: dict[tuple[str, int], str] = defaultdict(str)
    numbers = []
    for row, values in enumerate(panel.matrix.tolist()):
        for column, value in enumerate(values):
            if abs(value) != float("inf"):
                level = round(LEVELS * min(1.0, abs(value) / (panel.largest or 1.0)))
                cells[BLUE if value >= 0 else ORANGE, level] += f"M{column} {row}h1"
            if panel.digits is not None:
                place = (GAP + (column + 0.5) * width, GAP + (row + 0.5) * height)
                numbers.append((_number(value, panel.digits), place))
    parts.append(f'<g transform="matrix({width:.4g} 0 0 {height:.4g} {GAP} {GAP + height / 2:g})">')
    for (color, level), path in sorted(cells.items()):
        if level:
            parts.append(f'<path stroke="{color}" stroke-opacity="{STRONGEST * level / LEVELS:.2g}" d="{path}"/>')
    parts.append("</g>")
    if numbers:
        texts = "".join(_texts(*zip(*numbers, strict=True)))
        parts.append(f'<g style="font-size:9px;fill:var(--strong, {INK})">{texts}</g>')
    frame = f'x="{GAP}" y="{GAP}" width="{n_columns * width:g}" height="{n_rows * height:g}"'
    parts.append(f'<rect {frame} fill="none" style="stroke:var(--ink, {INK})" stroke-opacity="0.35"/>')
    return "".join(parts)


def _number(value: float, digits: int) -> str:
    """Like the format .1f, but −∞ as it is written, and no -0.0."""
    if value == float("-inf"):
        return "−∞"
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.lstrip("-")


def _texts(texts: Sequence[str], centres: Sequence[tuple[float, float]]) -> list[str]:
    return [
        f'<text x="{x:.4g}" y="{y + BASELINE:.4g}">{escape(text)}</text>'
        for text, (x, y) in zip(texts, centres, strict=False)
    ]
