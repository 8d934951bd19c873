"""Text and numbers as pieces of Markdown that GitHub shows unchanged."""

import html
import re
from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

DOLLAR = "<span>&#36;</span>"  # what keeps GitHub, and our page, from reading a formula between two of them


def percent(share: float, digits: int = 0) -> str:
    return f"{share:.{digits}%}"


def interval(ends: Sequence[float], digits: int) -> str:
    return "–".join(f"{end:.{digits}f}" for end in ends).replace("-", "−")


def plain(text: str) -> str:
    """`text` as Markdown shows it unchanged, in one line: signs with a meaning are escaped."""
    escaped = re.sub(r"([\\`*_{}\[\]<>|&~#])", r"\\\1", re.sub(r"\s+", " ", text))
    return escaped.replace("$", DOLLAR)


def html_cell(text: str, marked: str = "") -> str:
    """`text` for a cell of an HTML table: in one line, line ends as <br>, the first `marked` piece in bold.

    Blank lines would end the HTML, and a dollar sign would start a formula.
    """
    before, piece, after = text.partition(marked) if marked else (text, "", "")
    whole = html.escape(before, quote=False) + (f"<b>{html.escape(piece, quote=False)}</b>" if piece else "")
    whole += html.escape(after, quote=False)
    return re.sub(r"\r\n|[\r\n\v\f\x85\u2028\u2029]", "<br>", whole).replace("$", DOLLAR)


def table(rows: Sequence[Sequence[Any]], headers: Sequence[str], n_left: int = 1) -> str:
    """A GitHub table; the first `n_left` columns to the left, the others, which are numbers, to the right."""
    align = ["left"] * n_left + ["right"] * (len(headers) - n_left)
    return tabulate(rows, headers, tablefmt="pipe", disable_numparse=True, colalign=align)


def block(text: str) -> str:
    """A fenced block whose fence is longer than any in `text`."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"
