"""Character n-grams of many texts at once, as hashes in one array."""

import sys
from collections.abc import Sequence

import numpy as np

from tinygpt.vocab import code_points

IS_LETTER_OR_DIGIT = np.array([chr(code).isalnum() for code in range(sys.maxunicode + 1)])


def ngram_hashes(texts: Sequence[str], n: int, only_letters: bool) -> tuple[np.ndarray, np.ndarray]:
    """The hashes of all character n-grams of each text, one text behind the other.

    A text shorter than `n` counts as one n-gram, padded: so it has something to be known by.

    Returns:
        hashes: (N,) uint64; a repeated n-gram is repeated here.
        ends: (len(texts) + 1,) int64; the hashes of text i are `hashes[ends[i] : ends[i + 1]]`.
    """
    # One long array: each text, then n zeros, which no text contains. A window belongs to the text it starts in.
    codes = code_points("".join(text.replace("\0", "") + "\0" * n for text in texts)).astype(np.uint64)
    if only_letters:
        codes = codes[IS_LETTER_OR_DIGIT[codes] | (codes == 0)]
    text_ends = np.flatnonzero(codes == 0)[::n]
    text_starts = np.concatenate(([0], text_ends + n))[:-1]
    n_grams = np.maximum(text_ends - text_starts - n + 1, 1)
    ends = np.concatenate(([0], np.cumsum(n_grams)))
    windows = np.repeat(text_starts - ends[:-1], n_grams) + np.arange(ends[-1])

    n_windows = max(len(codes) - n + 1, 0)
    hashes = np.zeros(n_windows, np.uint64)
    for k in range(n):  # a polynomial in the code points, modulo 2^64
        hashes *= np.uint64(0x9E3779B97F4A7C15)
        hashes += codes[k : k + n_windows]
    hashes = hashes[windows]
    hashes ^= hashes >> np.uint64(29)  # mixed, so that every bit depends on every character
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    return hashes ^ (hashes >> np.uint64(32)), ends
