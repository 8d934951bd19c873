import math

import numpy as np
import pytest

from tinygpt.measures import intervals, measures, paired_interval, story_sums, targets_of, unknown_nats
from tinygpt.vocab import Vocab

TEXTS = ["小兔跑。", "小猫。"]
STREAM = np.array([1, 5, 4, 6, 3, 2, 1, 5, 0, 3, 2], dtype=np.uint16)  # 猫 is unknown
# targets                5  4  6  3  2  1  5  0  3  2
BITS = np.array([1, 1, 1, 1, 4, 4, 1, 1, 1, 4])


@pytest.fixture
def evaluate_params(params):
    return params.evaluate.model_copy(update={"n_bootstrap": 2000})


def stories_of_one_character(n):
    """n stories with the targets <bos>, a character, <eos>; the first lacks <bos>."""
    return targets_of(np.tile([1, 3, 2], n).astype(np.uint16), ["。"] * n)


def test_the_targets_and_their_stories():
    targets = targets_of(STREAM, TEXTS)
    assert targets.ids.tolist() == [5, 4, 6, 3, 2, 1, 5, 0, 3, 2]
    assert targets.story.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert targets.n_chars.tolist() == [4, 3]
    assert targets.n_bytes.tolist() == [12, 9]
    assert story_sums(BITS, targets).tolist() == [8, 11]
    assert len(set(targets.keys)) == 2 and targets.keys == targets_of(STREAM, TEXTS).keys


@pytest.mark.parametrize("texts", [TEXTS[:1], [*TEXTS, "兔"], ["小兔跑", "小猫。。"]])
def test_stories_that_are_not_those_of_the_stream_are_refused(texts):
    with pytest.raises(ValueError, match="do not fit each other; run: dvc repro -f encode"):
        targets_of(STREAM, texts)


def test_every_unit_by_hand(evaluate_params):
    # 7 characters at 1 bit, 3 marks at 4 bits: 19 bits for 10 targets, 7 characters, 21 bytes
    vocab = Vocab("。兔小跑")
    figures = measures(BITS * math.log(2), targets_of(STREAM, TEXTS), unknown_nats(vocab), evaluate_params)
    assert figures["nats_per_token"] == pytest.approx(1.9 * math.log(2))
    assert figures["nats_per_token_without_marks"] == pytest.approx(math.log(2))
    assert figures["perplexity"] == pytest.approx(2**1.9)
    assert figures["bits_per_char"] == pytest.approx(19 / 7)
    assert figures["bits_per_byte"] == pytest.approx(19 / 21)
    # 猫 is one of the 1,114,112 - 4 code points outside of the vocabulary: log2 = 20.0875 bits more
    assert figures["bits_per_char_unknown_charged"] == pytest.approx((19 + 20.0875) / 7, abs=1e-4)
    assert figures["bits_per_byte_unknown_charged"] == pytest.approx((19 + 20.0875) / 21, abs=1e-4)
    low, high = figures["bits_per_char_95"]
    assert low == pytest.approx(8 / 4) and high == pytest.approx(11 / 3)  # two stories: only one, or only the other


def test_bytes_are_those_of_utf8():
    targets = targets_of(np.array([1, 3, 3, 3, 2], dtype=np.uint16), ["aé🐉"])
    assert targets.n_bytes.tolist() == [1 + 2 + 4]


def test_an_interval_is_as_wide_as_theory_says(evaluate_params):
    n = 400
    targets = stories_of_one_character(n)
    cost = np.random.default_rng(1).normal(3, 1, size=n)
    low, high = intervals(cost[targets.story], targets, evaluate_params)["nats_per_token"]
    # A story's targets cost the same here: they are one observation, not three.
    assert (high - low) / 2 == pytest.approx(1.96 * cost.std() / math.sqrt(n), rel=0.1)
    assert low < cost.mean() < high


def test_intervals_are_seeded(evaluate_params):
    targets = stories_of_one_character(50)
    nats = np.random.default_rng(1).random(149)
    again = [intervals(nats, targets, evaluate_params)["bits_per_char"] for _ in range(2)]
    other = intervals(nats, targets, evaluate_params.model_copy(update={"seed": 1}))["bits_per_char"]
    assert again[0] == again[1] != other


def test_what_two_runs_share_drops_out_of_a_paired_interval(evaluate_params):
    n_targets = np.random.default_rng(0).integers(50, 500, size=300)
    reference = n_targets * np.random.default_rng(1).normal(3, 1, size=300)
    exactly = paired_interval(reference - 0.1 * n_targets, reference, n_targets, evaluate_params)
    assert exactly == pytest.approx((-0.1, -0.1, -0.1))
    noise = np.random.default_rng(2).normal(0, 0.1, size=300)
    difference, low, high = paired_interval(reference + noise * n_targets, reference, n_targets, evaluate_params)
    assert low < difference < high and low < 0 < high and high - low < 0.04
