import random
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from benchmarks.corpus import EDITS, make_corpus, read_pool
from tests.conftest import ROOT
from tinygpt.duplicates import N_ROWS, all_candidate_pairs, band_keys, candidate_pairs, jaccard, near_clusters


@pytest.fixture(scope="module")
def corpus():
    """2,000 stories of which 1 in 10 is a copy, to the letter or edited: texts and kinds."""
    texts, kinds = zip(*make_corpus(2000, read_pool(ROOT / "data" / "stories")), strict=True)
    return list(texts), list(kinds)


def clusters(texts, similarity=0.6):
    pairs = all_candidate_pairs(band_keys(texts), len(texts))
    return near_clusters(pairs.tolist(), len(texts), texts.__getitem__, similarity)


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("小兔跑呀跑。", "小兔跑了。", 1 / 4),
        ("“小兔跑！”", '"小兔，跑"', 1),  # marks do not count
        ("小兔跑跑跑跑跑", "小兔跑跑跑", 1),  # sets: a repeated n-gram counts once
        ("小兔", "小兔", 1),  # shorter than n: the whole text
        ("小兔", "小猫", 0),
        ("", "。", 1),
        ("小兔跑", "猫爬树", 0),
    ],
)
def test_jaccard_by_hand(one, other, share):
    assert jaccard(one, other) == jaccard(other, one) == pytest.approx(share)


def test_signatures_agree_as_often_as_the_jaccard_says(corpus):
    """What MinHash promises: each of the N_BANDS * N_ROWS values agrees with probability J, so a band with J^N_ROWS."""
    rng, texts = random.Random(0), corpus[0][:400]
    edited = [EDITS["shorten"](EDITS["mistype"](text, rng), rng) for text in texts]
    expected = [jaccard(*pair) ** N_ROWS for pair in zip(texts, edited, strict=True)]
    agree = (band_keys(texts) == band_keys(edited)).mean()
    assert agree == pytest.approx(np.mean(expected), abs=0.02)


def test_candidates_are_those_who_share_a_key_each_with_the_first_and_the_next():
    keys = np.array([7, 5, 7, 9, 7, 5], np.uint64)
    assert sorted(map(tuple, candidate_pairs(keys).tolist())) == [(0, 2), (0, 2), (0, 4), (1, 5), (1, 5), (2, 4)]
    assert all_candidate_pairs([keys, keys[::-1]], 6).tolist() == [[0, 2], [0, 4], [1, 3], [1, 5], [2, 4], [3, 5]]
    assert len(candidate_pairs(np.empty(0, np.uint64))) == 0


def test_many_equal_texts_cost_no_more_than_their_number():
    texts = ["从前有一只小兔子住在山里。"] * 3000
    assert len(all_candidate_pairs(band_keys(texts), len(texts))) < 2 * len(texts)
    assert set(clusters(texts).tolist()) == {0}


def test_clusters_join_through_others():
    """a~b and b~c make one cluster though a and c have less in common than asked for."""
    letters = [chr(0x4E00 + i) for i in range(60)]
    a, b, c = ("".join(letters[first : first + 40]) for first in (0, 6, 12))
    assert jaccard(a, b) >= 0.7 > jaccard(a, c)
    assert clusters([a, "猫" * 30, b, c], similarity=0.7).tolist() == [0, 1, 0, 0]


def test_the_true_jaccard_decides_not_the_signature():
    texts = ["从前有一只小兔子住在山里", "从前有一只小兔子住在山上"]
    similarity = jaccard(*texts)
    assert clusters(texts, similarity).tolist() == [0, 0]
    pairs = [(0, 1)]
    assert near_clusters(pairs, 2, texts.__getitem__, similarity + 1e-9).tolist() == [0, 1]


def test_planted_duplicates_are_found_and_others_left_alone(corpus):
    """Recall by kind of edit, and precision against a comparison of all pairs of a part."""
    texts, kinds = corpus
    found = clusters(texts)
    sizes = Counter(found.tolist())
    planted, caught = Counter(kinds), Counter(k for k, c in zip(kinds, found.tolist(), strict=True) if sizes[c] > 1)
    recall = {kind: caught[kind] / planted[kind] for kind in ("exact", *EDITS)}
    assert min(planted.values()) > 15
    assert all(recall[kind] == 1 for kind in ("exact", "swap", "requote", "mistype", "rename")), recall
    assert recall["shorten"] >= 0.9, recall


def test_what_is_joined_is_similar_and_what_is_similar_is_joined(corpus):
    """Against a comparison of all pairs, on a part: no pair is joined that is not alike, and none is missed."""
    texts = corpus[0][:400]
    alike = [pair for pair in combinations(range(len(texts)), 2) if jaccard(*(texts[i] for i in pair)) >= 0.6]
    assert len(alike) > 20
    found = clusters(texts)
    assert all(found[i] == found[j] for i, j in alike)
    assert sorted({i for pair in alike for i in pair}) == [
        i for i, cluster in enumerate(found) if np.count_nonzero(found == cluster) > 1
    ]
