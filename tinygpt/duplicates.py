"""Find stories that stand more than once: to the letter, or nearly.

Two stories are nearly the same if their sets of character n-grams overlap by `similarity` or more (Jaccard:
what both have, divided by what either has). Comparing all pairs of two million stories is out of reach, so
MinHash finds the candidates (Broder 1997; bands as in Leskovec, Rajaraman, Ullman, "Mining of Massive
Datasets", ch. 3) and the true Jaccard decides.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from rensa import RMinHash

from tinygpt.ngrams import ngram_hashes

NGRAM = 3  # characters; letters and digits alone count, so that other quotes or line ends hide nothing
# A pair with Jaccard J meets in some band with probability 1 - (1 - J^N_ROWS)^N_BANDS:
# 0.98 at 0.6, 0.9999 at 0.7, 0.0005 at 0.1.
N_BANDS, N_ROWS = 50, 5
HASH_SEED = 1


def band_keys(texts: Sequence[str]) -> np.ndarray:
    """(N_BANDS, len(texts)) uint64: two texts that agree in a row of this are candidates."""
    hashes, ends = ngram_hashes(texts, NGRAM, only_letters=True)
    digests = RMinHash.digest_matrix_from_flat_token_hashes(hashes, ends.astype(np.uint64), N_BANDS * N_ROWS, HASH_SEED)
    digests = np.array(digests.to_rows(), np.uint64).reshape(len(texts), N_BANDS, N_ROWS)
    keys = np.zeros((len(texts), N_BANDS), np.uint64)
    for row in range(N_ROWS):
        keys = keys * np.uint64(0x9E3779B97F4A7C15) + digests[:, :, row]
    return np.ascontiguousarray(keys.T)


def jaccard(one: str, other: str) -> float:
    """The share of their distinct character n-grams that two texts have in common, as above.

    Example: without its mark 小兔跑呀跑。 has the 3-grams 小兔跑 兔跑呀 跑呀跑, and 小兔跑了。 has 小兔跑 兔跑了.
        >>> jaccard("小兔跑呀跑。", "小兔跑了。")
        0.25
    """
    one_grams, other_grams = _ngrams(one), _ngrams(other)
    return len(one_grams & other_grams) / len(one_grams | other_grams)


def _ngrams(text: str) -> set[str]:
    letters = "".join(filter(str.isalnum, text))
    return {letters[i : i + NGRAM] for i in range(max(1, len(letters) - NGRAM + 1))}


def candidate_pairs(keys: np.ndarray) -> np.ndarray:
    """The pairs of one band to compare: in each group of equal keys every text with the first and with the next.

    A group of m texts gives less than 2m pairs, so that many copies of one text cost no more than their number.

    Args:
        keys: (N,) uint64.

    Returns:
        (P, 2) int64, pairs of positions in `keys`, the smaller first.
    """
    members = np.argsort(keys, kind="stable")
    follows = keys[members[1:]] == keys[members[:-1]]
    is_first = np.concatenate(([True], ~follows))
    firsts = members[np.maximum.accumulate(np.where(is_first, np.arange(len(members)), 0))]
    seconds = np.flatnonzero(follows) + 1
    with_first = np.stack((firsts[seconds], members[seconds]), axis=1)
    with_next = np.stack((members[seconds - 1], members[seconds]), axis=1)
    return np.concatenate((with_first, with_next))


def all_candidate_pairs(bands: Iterable[np.ndarray], n: int) -> np.ndarray:
    """(P, 2) int64: the distinct pairs of `n` texts that meet in any of the bands, sorted; see `candidate_pairs`."""
    codes = np.empty(0, np.int64)
    for keys in bands:
        pairs = candidate_pairs(keys)
        codes = np.union1d(codes, pairs[:, 0] * n + pairs[:, 1])
    return np.stack(np.divmod(codes, n), axis=1)


def near_clusters(
    pairs: Iterable[tuple[int, int]], n: int, text: Callable[[int], str], similarity: float
) -> np.ndarray:
    """Join texts whose Jaccard is at least `similarity`, directly or through others.

    Args:
        pairs: the candidates, see `all_candidate_pairs`.
        n: how many texts there are.
        text: gives the text at a position.

    Returns:
        (n,) int64: for each text the first member of its cluster, often itself.
    """
    first = list(range(n))  # leads from each text to an earlier one of its cluster, and in the end to the first

    def find(i: int) -> int:
        while first[i] != i:
            first[i] = first[first[i]]
            i = first[i]
        return i

    for one, other in pairs:
        a, b = find(one), find(other)
        if a != b and jaccard(text(one), text(other)) >= similarity:
            first[max(a, b)] = min(a, b)
    return np.array([find(i) for i in range(n)], np.int64)
