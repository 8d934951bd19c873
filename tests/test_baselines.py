import math

import numpy as np
import pytest

from tinygpt.baselines import CharacterFrequency


def test_character_frequency_by_hand():
    train = np.array([1, 3, 3, 4, 2], dtype=np.uint16)  # targets: 3 3 4 2; V = 6
    baseline = CharacterFrequency(train, vocab_size=6)
    p = {0: 1 / 10, 1: 1 / 10, 2: 2 / 10, 3: 3 / 10, 4: 2 / 10, 5: 1 / 10}
    assert np.exp(-baseline.nats) == pytest.approx(list(p.values()))
    stream = np.array([1, 3, 5, 2], dtype=np.uint16)  # 5 was never seen, and costs a finite amount
    assert baseline.stream_nats(stream) == pytest.approx(-sum(math.log(p[id]) for id in (3, 5, 2)))


def test_no_context_free_guess_beats_it_on_its_own_stream():
    stream = np.random.default_rng(0).geometric(0.2, size=5000).clip(max=19).astype(np.uint16)
    baseline = CharacterFrequency(stream, vocab_size=20)
    uniform = 4999 * math.log(20)
    assert baseline.stream_nats(stream) < uniform
