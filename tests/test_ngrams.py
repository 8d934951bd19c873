import itertools

import numpy as np
import pytest

from tinygpt.ngrams import ngram_hashes


def grams(texts, n, only_letters=False):
    hashes, ends = ngram_hashes(texts, n, only_letters)
    assert len(ends) == len(texts) + 1 and ends[-1] == len(hashes)
    return [hashes[first:last].tolist() for first, last in itertools.pairwise(ends)]


@pytest.mark.parametrize("n", [1, 3, 8])
def test_equal_ngrams_have_equal_hashes_and_others_do_not(n):
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("小兔跑。\n𠀀a"), length)) for length in (0, 1, 2, 3, 7, 8, 9, 200, 200)]
    meaning = {}
    for text, hashes in zip(texts, grams(texts, n), strict=True):
        words = [text[i : i + n] for i in range(len(text) - n + 1)] or [text.ljust(n, "\0")]
        assert len(words) == len(hashes)
        for word, value in zip(words, hashes, strict=True):
            assert meaning.setdefault(word, value) == value
    assert len(set(meaning.values())) == len(meaning)


def test_marks_and_spaces_can_be_left_out():
    assert grams(["“小兔，跑！”"], 3, only_letters=True) == grams(["小兔跑"], 3)
    assert grams(["小兔，跑"], 3) != grams(["小兔跑"], 3)


def test_a_text_does_not_depend_on_its_neighbours():
    texts = ["", "。", "小", "小兔跑呀跑", "", "猫"]
    for only_letters in (False, True):
        assert grams(texts, 3, only_letters) == [grams([text], 3, only_letters)[0] for text in texts]
    assert grams([], 3) == []
