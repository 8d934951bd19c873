"""Put whole stories on one side, train, val or test, and near duplicates on the same one.

The stories pass by in batches. What stays in memory is about 100 bytes a story; the texts lie on disk.
"""

import hashlib
import shutil
from array import array
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tinygpt.duplicates import N_BANDS, all_candidate_pairs, band_keys, near_clusters
from tinygpt.examples import Examples
from tinygpt.parallel import map_batches
from tinygpt.params import SPLITS, CleanParams, SplitParams
from tinygpt.progress import progress
from tinygpt.stories import REASONS, RULES, Rule, clean_steps, drop_reason
from tinygpt.tables import Row, Shelf, StoryWriter

N_EXAMPLES = 5  # of each rule and each reason
DUPLICATES = {
    "duplicate": Rule("equal to another story after cleaning", ""),
    "near_duplicate": Rule(
        "shares `split.similarity` or more of its 3-grams with the story that is kept (`+`), or with one of its others",
        "split.near_duplicates=ignore",
    ),
}
DROPPED_MD = {"Changed by cleaning": RULES, "Dropped": REASONS, "Stood more than once": DUPLICATES}


class Outcome(NamedTuple):
    counts: dict[str, Any]  # reports/split.json
    examples: Examples  # for reports/dropped.md


def split_stories(
    batches: Iterable[list[Row]], folder: Path, params: SplitParams, clean: CleanParams, n_procs: int = 1
) -> Outcome:
    """Clean, drop, deduplicate and split the rows of `batches`; write the tables train, val and test to `folder`.

    Every row is in exactly one of the tables or of the counts of what was dropped.

    Raises:
        ValueError: a split is left empty.
    """
    examples = Examples(N_EXAMPLES)
    with Stories(folder / "stories") as stories:
        for sifted in map_batches(partial(sift, params=params, clean=clean), batches, n_procs):
            stories.add(sifted)
            examples.merge(sifted.examples)
        rows_in = len(stories.shelf) + sum(examples.counts[reason] for reason in REASONS)

        examples.counts["duplicate"] = stories.keep_unique()
        clusters = find_clusters(stories, params)
        _show_near_duplicates(stories, clusters, examples)
        written = _write(stories, clusters, folder, params)

    dropped = {reason: examples.counts[reason] for reason in (*REASONS, *DUPLICATES)}
    dropped |= {f"over_{split}_chars": n_over for split, (_, n_over) in written.items()}
    counts = {
        "rows_in": rows_in,
        **{split: sizes for split, (sizes, _) in written.items()},
        "cleaned": {rule: examples.counts[rule] for rule in RULES},
        "dropped": dropped,
        "near_duplicates": clusters.figures,
    }
    return Outcome(counts, examples)


def _show_near_duplicates(stories: "Stories", clusters: "Clusters", examples: Examples) -> None:
    dropped = np.flatnonzero(~clusters.is_kept)
    for number in dropped[:N_EXAMPLES]:
        (id, text, _), kept = stories[number], stories.text(clusters.first[number])
        examples.add("near_duplicate", id, text, kept)
    examples.counts["near_duplicate"] = len(dropped)


def _write(
    stories: "Stories", clusters: "Clusters", folder: Path, params: SplitParams
) -> dict[str, tuple[dict[str, int], int]]:
    """Write the tables; return for each split its sizes and how many stories did not fit under its cap."""
    written = {}
    for split, numbers in deal(stories.keys, clusters, params).items():
        fitting = numbers[np.cumsum(stories.n_chars[numbers]) <= getattr(params, f"{split}_chars")]
        if not len(fitting):
            raise ValueError(_why_empty(split, len(stories), params))
        with StoryWriter(folder, split) as table:
            table.write(stories[number] for number in progress(fitting, f"write {split}"))
        sizes = {"n_stories": table.n_stories, "n_chars": table.n_chars}
        written[split] = sizes, len(numbers) - len(fitting)
    return written


def _why_empty(split: str, n_kept: int, params: SplitParams) -> str:
    share = f"split.{split}_share = {getattr(params, f'{split}_share')}, " if split != "train" else ""
    return (
        f"the {split} split is empty: {n_kept} stories are left after cleaning, "
        f"{share}split.{split}_chars = {getattr(params, f'{split}_chars')}; add stories or raise these"
    )


class Sifted(NamedTuple):
    """What is left of a batch, N rows, and what happened to it."""

    rows: list[Row]  # clean
    keys: np.ndarray  # (N, 2) uint64, see `story_key`
    bands: np.ndarray  # (N_BANDS, N) uint64, see `band_keys`; (0, N) if nobody looks for near duplicates
    examples: Examples  # which also count the stories by rule that changed them and by reason to drop them


def sift(rows: list[Row], params: SplitParams, clean: CleanParams) -> Sifted:
    """Clean each row of a batch, drop what is no story."""
    kept, examples = [], Examples(N_EXAMPLES)
    for id, raw, source in rows:
        text, changed = raw, set()
        for rule, before, text in clean_steps(raw, clean):
            if rule not in changed:  # a story counts once, however often the rule came to act
                examples.add(rule, id, before, text)
            changed.add(rule)
        if reason := drop_reason(text, clean):
            examples.add(reason, id, text)
        else:
            kept.append((id, text, source))
    texts = [text for _, text, _ in kept]
    keys = np.array([story_key(text, params.seed) for text in texts], np.uint64).reshape(-1, 2)
    bands = np.empty((0, len(texts)), np.uint64) if params.near_duplicates == "ignore" else band_keys(texts)
    return Sifted(kept, keys, bands, examples)


def story_key(text: str, seed: int) -> tuple[int, int]:
    """128 bits that depend on the story and the seed alone; they decide its side and its place in the order.

    So a story keeps its side whatever order it comes in and whatever other stories come with it.
    """
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")


def sides(keys: np.ndarray, params: SplitParams) -> np.ndarray:
    """(N,) of "train", "val", "test" for (N, 2) story keys: what they are as a number in [0, 1)."""
    place = (keys[:, 0] >> np.uint64(16)) / 2**48
    is_test, is_val = place < params.test_share, place < params.test_share + params.val_share
    return np.select([is_test, is_val], ["test", "val"], "train")


class Stories:
    """Clean stories: texts and bands in files in `folder`, keys and lengths in memory. A context manager."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.shelf = Shelf(folder / "rows")
        self.band_files = [(folder / f"band-{band}").open("wb") for band in range(N_BANDS)]
        self.key_parts = [np.empty((0, 2), np.uint64)]
        self.lengths = array("q")

    def add(self, sifted: Sifted) -> None:
        for row in sifted.rows:
            self.shelf.append(row)
            self.lengths.append(len(row[1]))
        self.key_parts.append(sifted.keys)
        for file, keys in zip(self.band_files, sifted.bands, strict=False):
            keys.tofile(file)

    def keep_unique(self) -> int:
        """From here on the stories are numbered in the order of their keys; of equal ones the smallest id stays.

        Returns how many are gone.
        """
        keys = np.concatenate(self.key_parts)
        by_key = np.lexsort((keys[:, 1], keys[:, 0]))
        repeats = (keys[by_key[1:]] == keys[by_key[:-1]]).all(axis=1)
        for number in np.flatnonzero(repeats):  # the smallest id moves to the end of the run of equals
            one, other = by_key[number], by_key[number + 1]
            if self.shelf[one][0] < self.shelf[other][0]:
                by_key[number], by_key[number + 1] = other, one
        self.numbers = by_key[np.concatenate((~repeats, [True]))[: len(by_key)]]
        self.keys = keys[self.numbers]
        self.n_chars = np.frombuffer(self.lengths, np.int64)[self.numbers]
        return len(keys) - len(self.keys)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, number: int) -> Row:
        return self.shelf[self.numbers[number]]

    def text(self, number: int) -> str:
        return self[number][1]

    def bands(self) -> Iterator[np.ndarray]:
        """(N,) uint64, the keys of one band, for one band after the other."""
        for file in self.band_files:
            file.flush()
            yield np.fromfile(file.name, np.uint64)[self.numbers]

    def __enter__(self) -> "Stories":
        return self

    def __exit__(self, *error: object) -> None:
        for file in (self.shelf, *self.band_files):
            file.close()
        shutil.rmtree(self.folder)


class Clusters(NamedTuple):
    """Which stories are near duplicates and what becomes of them."""

    first: np.ndarray  # (N,) int64, the first member of each story's cluster: it decides the side
    is_kept: np.ndarray  # (N,) bool
    figures: dict[str, Any]  # for reports/split.json


def find_clusters(stories: Stories, params: SplitParams) -> Clusters:
    """Look for near duplicates, and say what they are worth: how many would have stood on two sides."""
    n = len(stories)
    own, everyone = np.arange(n), np.full(n, True)
    if params.near_duplicates == "ignore":
        return Clusters(own, everyone, {"policy": "ignore"})
    pairs = all_candidate_pairs(progress(stories.bands(), "bands", N_BANDS, "band"), n)
    first = near_clusters(progress(pairs.tolist(), "compare", unit="pair"), n, stories.text, params.similarity)

    sizes = np.bincount(first, minlength=n)
    alone = sides(stories.keys, params)  # where each story would stand if clusters did not count
    has_train = np.bincount(first, alone == "train", minlength=n) > 0
    figures = {
        "policy": params.near_duplicates,
        "similarity": params.similarity,
        "n_clusters": int((sizes > 1).sum()),
        "n_stories": int(sizes[sizes > 1].sum()),
        "largest_cluster": int(sizes.max(initial=0)),
        "would_have_leaked": int((has_train[first] & (alone != "train")).sum()),
    }
    return Clusters(first, own == first if params.near_duplicates == "drop" else everyone, figures)


def deal(keys: np.ndarray, clusters: Clusters, params: SplitParams) -> dict[str, np.ndarray]:
    """The numbers of the stories of each split, in the order of their clusters' keys."""
    kept = np.flatnonzero(clusters.is_kept)
    kept = kept[np.argsort(clusters.first[kept], kind="stable")]
    side = sides(keys[clusters.first[kept]], params)
    return {split: kept[side == split] for split in SPLITS}
