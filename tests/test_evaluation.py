import math

import numpy as np
import pytest
import torch

from tinygpt.evaluation import score_stream, sliding_stride, window_nats
from tinygpt.model import initial_model, next_token_nats


def random_stream(n, seed=0):
    return np.random.default_rng(seed).integers(20, size=n).astype(np.uint16)


def one_by_one(model, stream, start_of):
    """The cost of each target from a window that begins at start_of(target) and ends before it."""
    nats = []
    for target in range(1, len(stream)):
        ids = torch.from_numpy(stream[start_of(target) : target + 1].astype(np.int64))[None]
        nats.append(next_token_nats(model(ids[:, :-1]), ids[:, 1:])[0, -1].item())
    return np.array(nats)


@pytest.mark.parametrize("n_tokens", [2, 12, 13, 14, 500])  # context_size is 12
def test_chunked_scores_every_target_once_in_its_own_window(tiny_model, n_tokens):
    stream = random_stream(n_tokens)
    expected = one_by_one(tiny_model, stream, lambda target: (target - 1) // 12 * 12)
    assert score_stream(tiny_model, stream).nats == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("n_tokens", [2, 12, 13, 14, 19, 20, 500])
@pytest.mark.parametrize("stride", [1, 5, 6])
def test_sliding_scores_every_target_once_with_half_a_window_before_it(tiny_model, n_tokens, stride):
    stream = random_stream(n_tokens)
    last = max(0, n_tokens - 1 - 12)  # where the last window starts

    def start(target):  # of the first window that reaches the target
        start = min(math.ceil(max(0, target - 12) / stride) * stride, last)
        assert target - start >= min(target, 12 - stride + 1) >= min(target, 6)
        return start

    expected = one_by_one(tiny_model, stream, start)
    assert score_stream(tiny_model, stream, stride).nats == pytest.approx(expected, rel=1e-5)


def test_windows_that_do_not_overlap_slide_by_a_whole_window(tiny_model):
    stream = random_stream(12 * 7 + 1)
    assert score_stream(tiny_model, stream, 12).nats.tolist() == score_stream(tiny_model, stream).nats.tolist()


def test_scores_are_softly_capped(tiny_params):
    capped = initial_model(tiny_params.model_copy(update={"logit_soft_cap": 0.1}), 20, seed=0).eval()
    stream = random_stream(100)
    expected = one_by_one(capped, stream, lambda target: (target - 1) // 12 * 12)
    assert score_stream(capped, stream).nats == pytest.approx(expected, rel=1e-5)


def test_a_model_that_knows_nothing_costs_ln_v_a_target(tiny_model):
    torch.nn.init.zeros_(tiny_model.lm_head.weight)
    scores = score_stream(tiny_model, random_stream(100))
    assert scores.nats == pytest.approx(np.full(99, math.log(20)), rel=1e-6)
    assert scores.top_p == pytest.approx(np.full(99, 1 / 20), rel=1e-6)
    assert scores.expected == pytest.approx(np.full(20, 99 / 20), rel=1e-6)


def test_the_likeliest_id_and_its_probability(tiny_model):
    stream = random_stream(40)
    scores = score_stream(tiny_model, stream)
    odds = tiny_model(torch.from_numpy(stream[:12].astype(np.int64))[None])[0].softmax(-1)  # the first window
    assert scores.top_id[:12].tolist() == odds.argmax(-1).tolist()
    assert scores.top_p[:12] == pytest.approx(odds.max(-1).values.tolist(), rel=1e-5)
    assert scores.expected.sum() == pytest.approx(39, rel=1e-5)


def test_the_sum_over_windows_is_that_of_their_targets(tiny_model):
    stream = random_stream(100)
    by_target = score_stream(tiny_model, stream).nats
    assert window_nats(tiny_model, stream, np.array([12, 60]), 12) == pytest.approx(
        by_target[12:24].sum() + by_target[60:72].sum(), rel=1e-6
    )


def test_evaluation_leaves_the_mode_as_it_was(tiny_model):
    for training in (True, False):
        tiny_model.train(training)
        window_nats(tiny_model, random_stream(100), np.array([0, 50]), 12)
        assert tiny_model.training is training


def test_a_stride_beyond_half_a_window_is_named():
    assert [sliding_stride(None, size) for size in (128, 13, 1)] == [64, 6, 1]
    assert sliding_stride(64, 128) == 64
    with pytest.raises(ValueError, match=r"evaluate.stride = 65 .*context_size = 128\) before them; use at most 64"):
        sliding_stride(65, 128)
