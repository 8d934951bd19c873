import math

import numpy as np
import pytest

from tinygpt.baselines import CharacterFrequency, Xz, Zstd, compressible, fit_guessers


def test_character_frequency_by_hand():
    train = np.array([1, 3, 3, 4, 2], dtype=np.uint16)  # targets: 3 3 4 2; V = 6
    baseline = CharacterFrequency(train, vocab_size=6)
    p = {0: 1 / 10, 1: 1 / 10, 2: 2 / 10, 3: 3 / 10, 4: 2 / 10, 5: 1 / 10}
    assert np.exp(-baseline.nats) == pytest.approx(list(p.values()))
    stream = np.array([1, 3, 5, 2], dtype=np.uint16)  # 5 was never seen, and costs a finite amount
    assert baseline.target_nats(stream) == pytest.approx([-math.log(p[id]) for id in (3, 5, 2)])


def test_no_context_free_guess_beats_it_on_its_own_stream():
    stream = np.random.default_rng(0).geometric(0.2, size=5000).clip(max=19).astype(np.uint16)
    baseline = CharacterFrequency(stream, vocab_size=20)
    uniform = 4999 * math.log(20)
    assert baseline.target_nats(stream).sum() < uniform


def test_longer_contexts_help_where_there_is_something_to_see():
    """In a text where two ids decide the third, the trigram knows it and the bigram cannot."""
    rng = np.random.default_rng(0)
    ids = [1, 2]
    for _ in range(4000):
        ids.append((ids[-1] + ids[-2]) % 7 if rng.random() < 0.9 else int(rng.integers(7)))
    stream = np.array(ids, dtype=np.uint16)
    guessers = fit_guessers(stream[:3000], 7, max_tokens=3000)
    nats = {name: guesser.target_nats(stream[3000:]).mean() for name, guesser in guessers.items()}
    assert nats["trigram"] < 0.7 < 1.8 < nats["bigram"] < nats["character frequency"] + 0.1
    assert list(nats) == ["character frequency", "bigram", "trigram", "5-gram"]


def test_ngrams_are_fitted_on_so_many_tokens_and_no_more():
    stream = np.random.default_rng(0).integers(7, size=400).astype(np.uint16)
    some, all_of_less = (fit_guessers(s, 7, max_tokens=100)["trigram"] for s in (stream, stream[:100]))
    assert some.target_nats(stream).tolist() == all_of_less.target_nats(stream).tolist()


def test_what_is_compressed_has_end_marks_and_a_limit():
    assert compressible(["小猫", "é"]) == "小猫\0é\0".encode()
    assert compressible(["小猫", "é", "狗"], max_chars=3) == "小猫\0é\0".encode()
    assert compressible(["小猫", "é", "狗"], max_chars=2) == "小猫\0".encode()


@pytest.mark.parametrize("compressor", [Xz, Zstd])
def test_a_compressor_uses_the_training_text_and_cannot_shrink_noise(compressor):
    rng = np.random.default_rng(0)
    train, other = (rng.integers(16, size=20_000, dtype=np.uint8).tobytes() for _ in range(2))
    fitted = compressor(train)
    assert fitted.bits(train[5000:9000]) < 8 * 60  # references to where it stands; by themselves 4 bits each
    assert fitted.bits(other) == pytest.approx(4 * 20_000, rel=0.1) and fitted.bits(other) >= 4 * 20_000
