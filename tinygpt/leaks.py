"""An audit of the split that knows nothing of how it was made: what of val and test also stands in train?"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from tinygpt.ngrams import ngram_hashes
from tinygpt.tables import Row

NGRAM = 8  # characters, all of them: letters, marks, spaces
PREFILTER_BITS = 24
STORIES_AT_ONCE = 500
N_WORST = 5
SHARE_BINS = 10
EXCERPT_CHARS = 200


class Overlap(NamedTuple):
    """Of a held-out story: the largest share of its distinct n-grams that stand in one training story, and which."""

    share: float
    train_number: int  # -1 if it shares none


def largest_overlaps(held_out: Sequence[str], train: Iterable[Sequence[str]]) -> list[Overlap]:
    """Find for each held-out text the training text that has most of it.

    Memory follows `held_out` and the size of a batch of `train`, not the number of batches.
    """
    index = _Index(held_out)
    best = np.zeros(len(held_out), np.int64)
    best_number = np.full(len(held_out), -1)
    first = 0
    for batch in _small_batches(train):
        shared = index.count_shared(batch)  # (batch, held out)
        winner = shared.argmax(axis=0)
        n_shared = shared[winner, np.arange(len(held_out))]
        better = n_shared > best
        best[better], best_number[better] = n_shared[better], first + winner[better]
        first += len(batch)
    return [Overlap(*pair) for pair in zip((best / index.n_grams).tolist(), best_number.tolist(), strict=True)]


def _small_batches(batches: Iterable[Sequence[str]]) -> Iterator[Sequence[str]]:
    for batch in batches:
        for first in range(0, len(batch), STORIES_AT_ONCE):
            yield batch[first : first + STORIES_AT_ONCE]


class _Index:
    """For each n-gram of the held-out texts, in which of them it stands."""

    def __init__(self, texts: Sequence[str]) -> None:
        grams, numbers = _ngrams(texts)
        order = np.lexsort((numbers, grams))
        grams, numbers = grams[order], numbers[order]
        distinct = np.append(True, (grams[1:] != grams[:-1]) | (numbers[1:] != numbers[:-1]))
        grams, self.numbers = grams[distinct], numbers[distinct]
        self.n_texts = len(texts)
        self.n_grams = np.bincount(self.numbers, minlength=len(texts))
        self.grams, starts = np.unique(grams, return_index=True)
        self.bounds = np.append(starts, len(grams))  # n-gram i stands in texts numbers[bounds[i] : bounds[i + 1]]
        # Most n-grams of train stand in no held-out text: a look at one bit sends them away.
        self.may_hold = np.zeros(2**PREFILTER_BITS, bool)
        self.may_hold[_low_bits(self.grams)] = True

    def count_shared(self, batch: Sequence[str]) -> np.ndarray:
        """(len(batch), n_texts) int64: how many distinct n-grams each pair of texts shares."""
        grams, rows = _ngrams(batch)
        may_hold = self.may_hold[_low_bits(grams)]
        grams, rows = grams[may_hold], rows[may_hold]
        places = np.searchsorted(self.grams, grams).clip(max=len(self.grams) - 1)
        holds = self.grams[places] == grams
        rows, places = np.divmod(np.unique(rows[holds] * len(self.grams) + places[holds]), len(self.grams))

        n_held = self.bounds[places + 1] - self.bounds[places]  # each hit counts for all texts with the n-gram
        ends = np.cumsum(n_held)
        hits = np.arange(n_held.sum()) + np.repeat(self.bounds[places] - ends + n_held, n_held)
        pairs = np.repeat(rows, n_held) * self.n_texts + self.numbers[hits]
        return np.bincount(pairs, minlength=len(batch) * self.n_texts).reshape(len(batch), self.n_texts)


def _ngrams(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The hash of each n-gram and the number of the text that it stands in, both (N,)."""
    hashes, ends = ngram_hashes(texts, NGRAM, only_letters=False)
    return hashes, np.repeat(np.arange(len(texts)), np.diff(ends))


def _low_bits(hashes: np.ndarray) -> np.ndarray:
    return hashes & np.uint64(2**PREFILTER_BITS - 1)


def audit(held_out: dict[str, list[Row]], train: Callable[[], Iterable[list[Row]]]) -> dict[str, Any]:
    """What reports/leaks.json tells of each held-out split: the distribution of the shares and the worst pairs.

    Args:
        held_out: the rows to look for, by split.
        train: gives the batches of training rows, each time from the start.
    """
    rows = list(chain.from_iterable(held_out.values()))
    overlaps = largest_overlaps([text for _, text, _ in rows], ([text for _, text, _ in batch] for batch in train()))
    pairs = iter(zip(overlaps, rows, strict=True))
    by_split = {split: sorted(islice(pairs, len(of_split)), key=_worst_first) for split, of_split in held_out.items()}

    numbers = {overlap.train_number for of_split in by_split.values() for overlap, _ in of_split[:N_WORST]}
    train_rows = {number: row for number, row in enumerate(chain.from_iterable(train())) if number in numbers}
    return {"n_gram": NGRAM, **{split: _summary(of_split, train_rows) for split, of_split in by_split.items()}}


def _worst_first(pair: tuple[Overlap, Row]) -> tuple[float, str]:
    overlap, (id, _, _) = pair
    return -overlap.share, id


def _summary(pairs: list[tuple[Overlap, Row]], train_rows: dict[int, Row]) -> dict[str, Any]:
    shares = np.array([overlap.share for overlap, _ in pairs])
    histogram, _ = np.histogram(shares, SHARE_BINS, (0, 1))
    worst = [
        {"share": overlap.share, **_excerpt("", row), **_excerpt("train_", train_rows[overlap.train_number])}
        for overlap, row in pairs[:N_WORST]
        if overlap.share > 0
    ]
    quantiles = {f"p{q}": float(np.percentile(shares, q, method="inverted_cdf")) for q in (50, 90, 99)}
    return {
        "n_stories": len(pairs),
        "largest_share": {"mean": float(shares.mean()), **quantiles, "max": float(shares.max())},
        "histogram": histogram.tolist(),  # stories by share: 0 to 0.1, 0.1 to 0.2, …
        "worst": worst,
    }


def _excerpt(prefix: str, row: Row) -> dict[str, str]:
    id, text, _ = row
    return {f"{prefix}id": id, f"{prefix}text": text[:EXCERPT_CHARS]}
