"""What can be counted in written stories, beside the same counts in real ones."""

import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tinygpt.copies import Copy, longest_copies

# Up to an end mark and the quotes or brackets that close behind it; a line end is no mark.
FINISHED_SENTENCE = re.compile(r"[^。！？!?….\n]*[。！？!?….]+[”’」』）)\"']*")


class Writing(NamedTuple):
    """A set of stories, cut at the same limit, and how many of them came to their own end before it."""

    texts: list[str]
    n_ended: int


def real_writing(stories: Sequence[str], max_chars: int) -> Writing:
    """Real stories cut where generation would have cut them."""
    return Writing([story[:max_chars] for story in stories], sum(len(story) < max_chars for story in stories))


def compare_writing(
    sets: dict[str, Writing], real: Sequence[str], max_chars: int, sources: Iterable[tuple[str, str]]
) -> tuple[list[dict[str, Any]], dict[str, list[Copy]]]:
    """A row of figures for each set and a row for as many real stories; the longest copies of each text.

    What depends on length (distinct n-grams, repetition, copies) is measured on both sides after the
    longest written story and the longest real one, the second longest and so on, were cut to the same
    length. The other figures are of the texts as they are, both cut at `max_chars`.
    """
    pairs = {}
    for name, written in sets.items():
        for_comparison = real_writing(real[: len(written.texts)], max_chars)
        pairs[name] = (written, for_comparison, *equal_lengths(written.texts, for_comparison.texts))
    whole = [text for written, *_ in pairs.values() for text in written.texts]
    cut = [text for *_, ours, theirs in pairs.values() for text in (*ours, *theirs)]
    found = dict(zip([*whole, *cut], longest_copies([*whole, *cut], sources), strict=True))

    rows = []
    for name, (written, for_comparison, ours, theirs) in pairs.items():
        for whose, writing, texts in (("written", written, ours), ("real", for_comparison, theirs)):
            copies = [len(found[text].text) for text in texts]
            rows.append({"set": name, "whose": whose, **figures(writing, texts, copies)})
    return rows, {name: [found[text] for text in written.texts] for name, (written, *_) in pairs.items()}


def figures(writing: Writing, cut: Sequence[str], copies: Sequence[int]) -> dict[str, Any]:
    """All figures of a set; `cut` are its texts at comparable lengths, `copies` the lengths of their copies."""
    lengths = [len(text) for text in writing.texts]
    return {
        "n_stories": len(lengths),
        "ended_share": writing.n_ended / len(lengths),
        "n_chars_mean": statistics.mean(lengths),
        "finished_share": finished_share(writing.texts),
        "n_chars_compared": sum(map(len, cut)),
        "distinct_2": distinct(cut, 2),
        "distinct_4": distinct(cut, 4),
        "repeated_4": repeated(cut, 4),
        "copied_median": statistics.median(copies),
        "copied_longest": max(copies),
    }


def equal_lengths(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Pair the texts by rank of length, cut both of a pair to the shorter; as many as there are pairs.

    Example:
        >>> equal_lengths(["abcd", "ab"], ["x", "xyz"])
        (['abc', 'a'], ['xyz', 'x'])
    """
    pairs = list(zip(sorted(ours, key=len, reverse=True), sorted(theirs, key=len, reverse=True), strict=False))
    lengths = [min(len(one), len(other)) for one, other in pairs]
    cut = [(one[:n], other[:n]) for (one, other), n in zip(pairs, lengths, strict=True)]
    return [one for one, _ in cut], [other for _, other in cut]


def distinct(texts: Sequence[str], n: int) -> float:
    """How many different n-grams of characters there are among all of a set: 1 is no repetition at all.

    It falls as a set grows, so it compares only with sets of the same size.
    Source: Li et al. 2016, arXiv 1510.03055.

    Example: 小猫小猫 and 小狗 have the 2-grams 小猫 猫小 小猫 小狗: 3 different ones of 4, 0.75.
    """
    grams = [gram for text in texts for gram in _grams(text, n)]
    return len(set(grams)) / max(1, len(grams))


def repeated(texts: Sequence[str], n: int) -> float:
    """Which share of the n-grams stood in the same text before.

    Example: of the 2-grams of 小猫小猫 and 小狗, one of 4 is a repetition: 0.25.
    """
    n_grams = sum(len(_grams(text, n)) for text in texts)
    return sum(len(grams) - len(set(grams)) for grams in (_grams(text, n) for text in texts)) / max(1, n_grams)


def _grams(text: str, n: int) -> list[str]:
    return [text[i : i + n] for i in range(len(text) - n + 1)]


def finished_share(texts: Iterable[str]) -> float:
    """Which share of the characters is in sentences that end in a mark; line ends are not counted.

    Example: 他说：“好。”\\n小猫 has 7 characters in a finished sentence and 2 in none: 0.778.
    """
    texts = list(texts)
    n_finished = sum(len(match[0]) for text in texts for match in FINISHED_SENTENCE.finditer(text))
    return n_finished / max(1, sum(len(text) - text.count("\n") for text in texts))
