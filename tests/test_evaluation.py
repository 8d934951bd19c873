import math

import numpy as np
import pytest
import torch

from tinygpt.evaluation import measures, stream_nats, window_nats
from tinygpt.model import next_token_nats


def random_stream(n, seed=0):
    return np.random.default_rng(seed).integers(20, size=n).astype(np.uint16)


@pytest.mark.parametrize("n_tokens", [2, 12, 13, 14, 500])  # context_size is 12
def test_every_target_is_scored_exactly_once(tiny_model, n_tokens):
    stream = random_stream(n_tokens)
    one_by_one = 0.0
    for target in range(1, n_tokens):
        start = (target - 1) // 12 * 12
        ids = torch.from_numpy(stream[start : target + 1].astype(np.int64))[None]
        one_by_one += next_token_nats(tiny_model(ids[:, :-1]), ids[:, 1:])[0, -1].item()
    assert stream_nats(tiny_model, stream) == pytest.approx(one_by_one, rel=1e-6)


def test_a_model_that_knows_nothing_costs_ln_v_a_target(tiny_model):
    torch.nn.init.zeros_(tiny_model.lm_head.weight)
    assert stream_nats(tiny_model, random_stream(100)) == pytest.approx(99 * math.log(20), rel=1e-6)


def test_evaluation_leaves_the_mode_as_it_was(tiny_model):
    for training in (True, False):
        tiny_model.train(training)
        window_nats(tiny_model, random_stream(100), np.array([0, 50]), 12)
        assert tiny_model.training is training


def test_measures_by_hand():
    # 8 targets, 6 of them characters, at 1 bit each
    assert measures(8 * math.log(2), n_targets=8, n_chars=6) == pytest.approx(
        {"nats_per_token": math.log(2), "perplexity": 2, "bits_per_char": 8 / 6}
    )
