"""The longest piece of a text that stands word for word in other texts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

SOURCE_CHARS = 2**20  # of the sources that are searched at once; about 100 bytes of memory each


class Copy(NamedTuple):
    """The piece, and the id of the first source that holds it; None if no character of the text does."""

    text: str
    source: str | None


def longest_copies(texts: Sequence[str], sources: Iterable[tuple[str, str]]) -> list[Copy]:
    """The longest piece of each text that stands in one of the sources, (id, text).

    All places of texts and sources are sorted by what is written from there on; the longest match of
    a place of a text is then one of the two source places next to it. Sorting takes n log n steps for
    each doubling of the length that is compared, whatever the texts hold.
    """
    best = [Copy("", None) for _ in texts]
    for portion in _portions(sources):
        ids, source_texts = zip(*portion, strict=True)
        for number, (length, start, source) in enumerate(_longest_matches(texts, source_texts)):
            if length > len(best[number].text):
                best[number] = Copy(texts[number][start : start + length], ids[source])
    return best


def _portions(sources: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    portion, n_chars = [], 0
    for source in sources:
        portion.append(source)
        n_chars += len(source[1])
        if n_chars >= SOURCE_CHARS:
            yield portion
            portion, n_chars = [], 0
    if portion:
        yield portion


def _longest_matches(texts: Sequence[str], sources: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """For each text: how long its longest match is, where it starts in the text, which source holds it."""
    codes, starts = _joined([*((source, 0) for source in sources), *((text, 1) for text in texts)])
    n_source = starts[len(sources)]  # the places before belong to sources
    own = np.arange(n_source, len(codes))  # those of the texts
    nearest = _neighbours(_ranks(codes, n_source), n_source)  # (2, places of texts)
    lengths = np.stack([_match_lengths(codes, own, there) for there in nearest])  # (2, places of texts)
    place_of = np.where(lengths[0] >= lengths[1], nearest[0], nearest[1])
    lengths = lengths.max(axis=0)
    for start, end in zip(starts[len(sources) : -1] - n_source, starts[len(sources) + 1 :] - n_source, strict=True):
        at = start + lengths[start:end].argmax()
        source = np.searchsorted(starts, place_of[at], side="right") - 1
        yield int(lengths[at]), int(at - start), int(source)


def _joined(parts: Iterable[tuple[str, int]]) -> tuple[np.ndarray, np.ndarray]:
    """The code points of all texts plus 2, each text with its end mark 0 or 1, and where each one starts."""
    pieces = []
    for text, end_mark in parts:
        code_points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)
        pieces.append(np.append(code_points + 2, end_mark))
    return np.concatenate(pieces), np.cumsum([0, *map(len, pieces)])


def _ranks(codes: np.ndarray, n_source: int) -> np.ndarray:
    """The order of all places by what follows, to the length at which no text agrees with a source.

    Prefix doubling: the order by 2h characters is that by two numbers, the ranks of both halves.
    Source: Manber and Myers 1993.
    """
    rank, h = codes, 1
    while True:
        second = np.zeros_like(rank)
        second[:-h] = rank[h:]
        rank = np.unique(rank * (rank.max() + 1) + second, return_inverse=True)[1]
        h *= 2
        in_source = np.zeros(rank.max() + 1, dtype=bool)
        in_source[rank[:n_source]] = True
        if h >= len(codes) or not in_source[rank[n_source:]].any():
            return rank


def _neighbours(rank: np.ndarray, n_source: int) -> np.ndarray:
    """For each place of a text the source places next before and next after it in the order, (2, n)."""
    order = np.argsort(rank, kind="stable")
    is_source = order < n_source
    at = np.arange(len(order))
    before = np.maximum.accumulate(np.where(is_source, at, -1))
    after = np.minimum.accumulate(np.where(is_source, at, len(order))[::-1])[::-1]
    before, after = np.where(before < 0, after, before), np.where(after == len(order), before, after)
    nearest = np.empty((2, len(order)), dtype=np.int64)
    nearest[:, order] = order[before], order[after]
    return nearest[:, n_source:]


def _match_lengths(codes: np.ndarray, places: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How many characters are the same from each place and from its other on; end marks never are."""
    lengths = np.zeros(len(places), dtype=np.int64)
    going = np.arange(len(places))
    while len(going):
        going = going[codes[places[going] + lengths[going]] == codes[others[going] + lengths[going]]]
        lengths[going] += 1
    return lengths
