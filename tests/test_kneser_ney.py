import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from tinygpt.kneser_ney import KneserNey, discounts, distinct_grams


def fit(ids, order, vocab_size):
    ids = np.asarray(ids)
    return KneserNey(distinct_grams(ids, vocab_size, order), order, vocab_size)


def odds(model, context, vocab_size):
    """p(w | context) for every w."""
    return np.exp([-model.target_nats(np.array([*context, w]))[-1] for w in range(vocab_size)])


def test_a_bigram_by_hand():
    # 12 twice, 21 twice, 13 once. n1 = 1, n2 = 2, no threes: D = 1/5 for all counts.
    # Each of 1, 2, 3 stands behind one kind of id: n1 = 3, D = 1, all mass goes down to 1/4.
    model = fit([1, 2, 1, 2, 1, 3], 2, 4)
    after_1 = [(0 + 0.4 / 4) / 3, (0 + 0.4 / 4) / 3, (2 - 0.2 + 0.4 / 4) / 3, (1 - 0.2 + 0.4 / 4) / 3]
    assert odds(model, [1], 4) == pytest.approx(after_1)
    assert sum(after_1) == pytest.approx(1)
    assert odds(model, [3], 4) == pytest.approx([0.25] * 4)  # nothing ever followed a 3
    assert odds(model, [0], 4) == pytest.approx([0.25] * 4)


def test_the_discounts_by_hand():
    counts = np.repeat([1, 2, 3, 4, 9], [10, 5, 3, 2, 7])
    assert discounts(counts) == pytest.approx([1 - 2 * 0.5 * 5 / 10, 2 - 3 * 0.5 * 3 / 5, 3 - 4 * 0.5 * 2 / 3])
    assert discounts(np.array([1, 1, 2])).tolist() == [0.5] * 3  # 2 / (2 + 2 · 1)
    assert discounts(np.array([2, 5])).tolist() == [0.5] * 3


def reference(ids, order, vocab_size):
    """Interpolated modified Kneser-Ney as the paper defines it, with dictionaries and loops."""
    counts = {order: Counter(tuple(ids[i : i + order]) for i in range(len(ids) - order + 1))}
    for k in range(order - 1, 0, -1):
        before = defaultdict(set)
        for i in range(len(ids) - k):
            before[tuple(ids[i + 1 : i + 1 + k])].add(ids[i])
        counts[k] = {gram: len(kinds) for gram, kinds in before.items()}
    discount = {k: [0.0, *discounts(np.array(list(table.values())))] for k, table in counts.items()}

    def p(context, w):
        k = len(context) + 1
        shorter = p(context[1:], w) if context else 1 / vocab_size
        followers = {gram[-1]: n for gram, n in counts[k].items() if gram[:-1] == context}
        if not followers:
            return shorter
        D = discount[k]
        left = sum(D[min(n, 3)] for n in followers.values())
        n = followers.get(w, 0)
        return (max(n - D[min(n, 3)], 0) + left * shorter) / sum(followers.values())

    return p


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_it_is_the_definition(order):
    rng = np.random.default_rng(0)
    train = (rng.zipf(1.5, size=600) % 9).tolist()
    stream = [*train[100:120], *rng.integers(11, size=15).tolist()]  # 9 and 10 were never seen
    p = reference(train, order, 11)
    nats = fit(train, order, 11).target_nats(np.array(stream))
    expected = [-math.log(p(tuple(stream[max(0, i - order + 1) : i]), stream[i])) for i in range(1, len(stream))]
    assert nats == pytest.approx(expected)


@pytest.mark.parametrize("order", [2, 3, 5])
def test_the_odds_sum_to_one(order):
    train = np.random.default_rng(0).zipf(1.3, size=500) % 12
    model = fit(train, order, 12)
    for context in ([3], [0, 0, 0, 0], train[:4].tolist(), train[-4:].tolist(), [11, 11, 11, 11]):
        assert odds(model, context, 12).sum() == pytest.approx(1)


def test_the_distinct_grams_and_their_suffixes():
    first, second = distinct_grams(np.array([1, 2, 1, 2, 3]), 4, 2)
    assert first.key.tolist() == [1, 2, 3] and first.count.tolist() == [2, 2, 1]
    # rows 0, 1, 2 are the ids 1, 2, 3: the bigrams 12, 21, 23
    assert second.key.tolist() == [0 * 4 + 2, 1 * 4 + 1, 1 * 4 + 3]
    assert second.suffix.tolist() == [1, 0, 2] and second.count.tolist() == [2, 1, 1]
    assert second.rows(np.array([2, 3, 99, -4])).tolist() == [0, -1, -1, -1]


def test_a_stream_shorter_than_the_order():
    assert odds(fit([1, 2], 5, 4), [1], 4).sum() == pytest.approx(1)
