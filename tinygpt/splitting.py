"""Put whole stories on one side: train, val or test."""

import hashlib

import pandas as pd

from tinygpt.duplicates import exact_duplicates
from tinygpt.params import SPLITS, SplitParams
from tinygpt.stories import clean_story, drop_reason


def place(text: str, seed: int) -> float:
    """A number in [0, 1) that depends on the story and the seed alone.

    So a story keeps its side whatever order it comes in and whatever other stories come with it.
    """
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def side(place: float, params: SplitParams) -> str:
    if place < params.test_share:
        return "test"
    if place < params.test_share + params.val_share:
        return "val"
    return "train"


def split_stories(raw: pd.DataFrame, params: SplitParams) -> tuple[dict[str, pd.DataFrame], dict[str, int]]:
    """Clean, drop, deduplicate and split the rows (`id, text, source`) of `raw`.

    Returns the three splits, each in an order drawn by `place`, and the count of rows by drop reason.
    Every row of `raw` is in exactly one of the splits or the counts.

    Raises:
        ValueError: a split is left empty.
    """
    stories = raw.assign(text=raw["text"].map(clean_story)).sort_values(["text", "id"], ignore_index=True)
    reason = stories["text"].map(lambda text: drop_reason(text, params)).astype(object)
    repeated = pd.Series(exact_duplicates(stories["text"]), dtype=bool)
    reason = reason.mask(reason.isna() & repeated, "duplicate")

    drops = {name: int((reason == name).sum()) for name in ("empty", "too_short", "too_long", "duplicate")}
    kept = stories[reason.isna()]
    kept = kept.assign(place=kept["text"].map(lambda text: place(text, params.seed))).sort_values(["place", "id"])
    sides = kept["place"].map(lambda value: side(value, params))

    splits = {}
    for split in SPLITS:
        of_side = kept[sides == split].drop(columns="place").reset_index(drop=True)
        cap = getattr(params, f"{split}_chars")
        fits = of_side["text"].str.len().cumsum() <= cap
        splits[split] = of_side[fits]
        drops[f"over_{split}_chars"] = int((~fits).sum())
    _check_none_empty(splits, len(kept), params)
    return splits, drops


def _check_none_empty(splits: dict[str, pd.DataFrame], n_kept: int, params: SplitParams) -> None:
    for split, stories in splits.items():
        if stories.empty:
            share = f"split.{split}_share = {getattr(params, f'{split}_share')}, " if split != "train" else ""
            raise ValueError(
                f"the {split} split is empty: {n_kept} stories are left after cleaning, "
                f"{share}split.{split}_chars = {getattr(params, f'{split}_chars')}; add stories or raise these"
            )
