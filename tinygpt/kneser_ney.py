"""N-gram models with Kneser-Ney smoothing: the strongest guess that needs no training."""

from typing import NamedTuple

import numpy as np


class Grams(NamedTuple):
    """The distinct k-grams of a stream, for one k; a k-gram is named by its row.

    key = (row of the first k - 1 ids among the (k-1)-grams) · V + last id, sorted; (U,) int64.
    `suffix` is the row of the last k - 1 ids among the (k-1)-grams; `count` how often it stands there.
    """

    key: np.ndarray
    suffix: np.ndarray
    count: np.ndarray

    def rows(self, key: np.ndarray) -> np.ndarray:
        """The row of each key, -1 where the stream never showed it."""
        row = np.searchsorted(self.key, key).clip(max=len(self.key) - 1)
        return np.where(self.key[row] == key, row, -1)


def distinct_grams(ids: np.ndarray, vocab_size: int, max_order: int) -> list[Grams]:
    """The distinct 1-, 2-, … `max_order`-grams of a stream of (N,) ids, or up to N-grams if that is shorter."""
    tables = []
    row = np.zeros(len(ids) + 1, dtype=np.int64)  # of the k-gram that starts at each place; there is one 0-gram
    for k in range(1, min(max_order, len(ids)) + 1):
        keys = row[:-1] * vocab_size + ids[k - 1 :]  # (N - k + 1,)
        suffix_row = row[1:]
        key, first, row, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        tables.append(Grams(key, suffix_row[first], count))
    return tables


class KneserNey:
    """Interpolated, modified Kneser-Ney smoothing of order n, on ids.

    p(w | h) = max(c(h w) - D, 0) / c(h) + γ(h) · p(w | h without its first id), down to 1 / V.
    At order n, c counts; below, c is the number of different ids that stand before (h w). D is one of
    three discounts, for counts 1, 2 and more; γ(h) is what the discounts leave over. After an h that
    training never showed, p is that of the shorter h. Source: Chen and Goodman 1998, TR-10-98.
    """

    def __init__(self, tables: list[Grams], order: int, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.levels = []
        n_contexts = 1
        tables = tables[:order]
        for k, grams in enumerate(tables, start=1):
            counts = grams.count if k == len(tables) else np.bincount(tables[k].suffix, minlength=len(grams.key))
            self.levels.append(Level(grams, counts, vocab_size, n_contexts))
            n_contexts = len(grams.key)

    def target_nats(self, ids: np.ndarray) -> np.ndarray:
        """The cost of each target, -ln p: (N,) ids -> (N - 1,). The first ones have a shorter h."""
        ids = ids.astype(np.int64)
        p = np.full(len(ids), 1 / self.vocab_size)
        context = np.zeros(len(ids), dtype=np.int64)  # the row of h, -1 where training never showed it
        for level in self.levels:
            row = level.grams.rows(context * self.vocab_size + ids)
            p = level.odds(row, context, p)
            context = np.concatenate(([-1], row[:-1]))
        return -np.log(p[1:])


class Level:
    """One order of a Kneser-Ney model: what each k-gram keeps, what each context leaves to the order below."""

    def __init__(self, grams: Grams, counts: np.ndarray, vocab_size: int, n_contexts: int) -> None:
        self.grams = grams
        discount = np.append(0, discounts(counts))[counts.clip(max=3)]
        context = grams.key // vocab_size
        self.kept = counts - discount  # (U,)
        self.left = np.bincount(context, discount, n_contexts)  # (U of the order below,)
        self.total = np.bincount(context, counts, n_contexts)

    def odds(self, row: np.ndarray, context: np.ndarray, shorter: np.ndarray) -> np.ndarray:
        """p(w | h) of the k-grams `row` after the contexts `context`, given p(w | shorter h)."""
        kept = np.where(row >= 0, self.kept[row], 0)
        seen = (context >= 0) & (self.total[context] > 0)
        total = np.where(seen, self.total[context], 1)
        return np.where(seen, (kept + self.left[context] * shorter) / total, shorter)


def discounts(counts: np.ndarray) -> np.ndarray:
    """What is taken off counts of 1, 2 and 3 or more, from how many counts are n = 1, 2, 3, 4.

    Y = n₁ / (n₁ + 2 n₂); D₁ = 1 - 2 Y n₂ / n₁, D₂ = 2 - 3 Y n₃ / n₂, D₃ = 3 - 4 Y n₄ / n₃. Where a stream is too
    small for these, Y for all three, or one half.

    Example: 10, 5, 3 and 2 counts of 1 to 4 give Y = 1/2 and the discounts 0.5, 1.1 and 1.667.
    """
    n1, n2, n3, n4 = (int((counts == count).sum()) for count in (1, 2, 3, 4))
    if n1 == 0:
        return np.full(3, 0.5)
    Y = n1 / (n1 + 2 * n2)
    if n2 and n3:
        three = np.array([1 - 2 * Y * n2 / n1, 2 - 3 * Y * n3 / n2, 3 - 4 * Y * n4 / n3])
        if (three > 0).all():  # else some context would leave nothing to what it never showed
            return three
    return np.full(3, Y)
