import numpy as np
import pytest
import torch

from tinygpt.batches import check_fits, fixed_starts, random_starts, story_starts, windows

STREAM = np.array([1, 5, 4, 6, 3, 2, 1, 5, 0, 6, 3, 2], dtype=np.uint16)


def test_targets_are_the_inputs_one_later():
    x, y = windows(STREAM, np.array([0, 3]), context_size=4, device=torch.device("cpu"))
    assert x.tolist() == [[1, 5, 4, 6], [6, 3, 2, 1]]  # the second crosses from <eos> to <bos>
    assert y.tolist() == [[5, 4, 6, 3], [3, 2, 1, 5]]
    assert x.dtype == y.dtype and str(x.dtype) == "torch.int64"


def test_random_starts_reach_both_ends_and_no_further():
    starts = random_starts(STREAM, context_size=4, batch_size=1000, seed=0, step=0)
    assert set(starts) == set(range(8))  # the last window is 7..11, with targets up to the last token


def test_random_starts_are_a_function_of_seed_and_step():
    draws = [tuple(random_starts(STREAM, 4, 16, seed, step)) for seed, step in [(0, 0), (0, 0), (0, 1), (1, 0)]]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


def test_story_starts_are_those_whose_window_fits():
    assert [story_starts(STREAM, size).tolist() for size in (4, 5, 6)] == [[0, 6], [0, 6], [0]]
    assert np.array_equal(story_starts(np.tile(STREAM, 60_000), 4), np.arange(0, 720_000, 6))  # several pieces


def test_a_share_of_the_windows_starts_at_stories_and_the_others_stay():
    stories = np.array([100, 200, 300])  # where no other window starts
    plain = random_starts(STREAM, 4, 2000, seed=0, step=3)
    half = random_starts(STREAM, 4, 2000, 0, 3, stories, 0.5)
    moved = half != plain
    assert 900 < moved.sum() < 1100 and set(half[moved]) == set(stories)
    assert np.array_equal(half, random_starts(STREAM, 4, 2000, 0, 3, stories, 0.5))
    for seed, step in ((1, 3), (0, 4)):
        assert not np.array_equal(moved, random_starts(STREAM, 4, 2000, seed, step, stories, 0.5) >= 100)
    assert set(random_starts(STREAM, 4, 2000, 0, 3, stories, 1.0)) == set(stories)


@pytest.mark.parametrize(
    ("n_tokens", "n_windows", "starts"),
    [
        (13, 99, [0, 4, 8]),  # three whole windows of 4 inputs, 12 targets
        (12, 99, [0, 4]),
        (101, 3, [0, 32, 64]),  # spread over 25 windows
        (5, 3, [0]),
    ],
)
def test_fixed_starts(n_tokens, n_windows, starts):
    assert fixed_starts(np.zeros(n_tokens), 4, n_windows).tolist() == starts


def test_a_context_longer_than_the_stream_is_named():
    check_fits(STREAM, 11, "train.bin")
    with pytest.raises(ValueError, match=r"context_size = 12 needs a stream of at least 13 tokens, but train.bin"):
        check_fits(STREAM, 12, "train.bin")
