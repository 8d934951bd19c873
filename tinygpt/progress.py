"""A bar for what takes more than a moment."""

from collections.abc import Iterable
from typing import TypeVar

from tqdm import tqdm

Item = TypeVar("Item")


def progress(items: Iterable[Item], label: str, total: int | None = None, unit: str = "story") -> Iterable[Item]:
    """`items`, with a bar on a terminal's stderr once they have taken three seconds."""
    return tqdm(items, label, total, unit=f" {unit}", disable=None, delay=3, leave=False)
