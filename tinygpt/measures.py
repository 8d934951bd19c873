"""Summed costs as figures: units, the price of unknown characters, uncertainty."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tinygpt.files import sha256_of_text
from tinygpt.params import EvaluateParams
from tinygpt.tokens import TokenStream
from tinygpt.vocab import BOS, EOS, UNK, Vocab

N_CODE_POINTS = 0x110000
DRAWS_AT_ONCE = 500
# Quantiles of Student's t at 0.975 by degrees of freedom.
STUDENT_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


class Targets(NamedTuple):
    """The N - 1 targets of a stream and the S stories that they belong to.

    ids (N - 1,); story (N - 1,) is the number of each target's story; keys (S,) name the stories by
    their text, n_chars (S,) and n_bytes (S,) count them; bytes are UTF-8.

    A story's targets are its `<bos>`, its characters and its `<eos>`; the first story of the stream
    lacks its `<bos>`, which is nobody's target.
    """

    ids: np.ndarray
    story: np.ndarray
    keys: list[str]
    n_chars: np.ndarray
    n_bytes: np.ndarray

    @property
    def is_character(self) -> np.ndarray:
        """(N - 1,): whether a target stands for a character; `<unk>` does."""
        return (self.ids != BOS) & (self.ids != EOS)


def targets_of(stream: TokenStream | np.ndarray, texts: Sequence[str]) -> Targets:
    """The targets of the stream that `texts` were encoded to.

    Raises:
        ValueError: the stream is not that of these stories.
    """
    ids = np.asarray(stream[:])
    n_chars = np.array([len(text) for text in texts])
    if not np.array_equal(np.diff(np.flatnonzero(np.append(ids, BOS) == BOS)) - 2, n_chars):
        raise ValueError("the stories and their stream do not fit each other; run: dvc repro -f encode")
    n_bytes = np.array([len(text.encode("utf-8", "surrogatepass")) for text in texts])
    keys = [sha256_of_text(text)[:16] for text in texts]
    return Targets(ids[1:], np.cumsum(ids == BOS)[1:] - 1, keys, n_chars, n_bytes)


def unknown_nats(vocab: Vocab) -> float:
    """What it costs to say which character an `<unk>` stands for: ln of how many it can be.

    A model that gives `<unk>` the probability p has said nothing yet about which of the code points
    outside of its vocabulary it is. With equal shares each of them gets p / (1,114,112 - known
    characters), and the model is a complete code for any text. That is a fixed, high price, about 20
    bits: it depends on no list of characters and no version of Unicode, and it cannot flatter.
    """
    return math.log(N_CODE_POINTS - len(vocab.characters))


def measures(nats: np.ndarray, targets: Targets, unknown_nats: float, params: EvaluateParams) -> dict:
    """The cost of all targets, (N - 1,) nats, in several units; sums are divided once.

    nats_per_token = nats / targets; perplexity = e^nats_per_token; bits_per_char and bits_per_byte =
    nats / ln 2 / characters or UTF-8 bytes of the stories, which spreads the cost of `<bos>` and
    `<eos>` over them; nats_per_token_without_marks leaves those two out above and below the line; keys
    in _unknown_charged have `unknown_nats` more for every unknown character. Keys in _95 are intervals
    [low, high].
    """
    bits = nats.sum() / math.log(2)
    charged = bits + (targets.ids == UNK).sum() * unknown_nats / math.log(2)
    n_chars, n_bytes, is_character = targets.n_chars.sum(), targets.n_bytes.sum(), targets.is_character
    low_high = intervals(nats, targets, params)
    return {
        "nats_per_token": float(nats.sum() / len(nats)),
        "nats_per_token_95": low_high["nats_per_token"],
        "nats_per_token_without_marks": float(nats[is_character].sum() / is_character.sum()),
        "perplexity": math.exp(nats.sum() / len(nats)),
        "bits_per_char": float(bits / n_chars),
        "bits_per_char_95": low_high["bits_per_char"],
        "bits_per_char_unknown_charged": float(charged / n_chars),
        "bits_per_byte": float(bits / n_bytes),
        "bits_per_byte_unknown_charged": float(charged / n_bytes),
    }


def story_sums(values: np.ndarray, targets: Targets) -> np.ndarray:
    """The values of the targets, (N - 1,), summed by story: (S,)."""
    return np.bincount(targets.story, values, len(targets.n_chars))


def intervals(nats: np.ndarray, targets: Targets, params: EvaluateParams) -> dict[str, list[float]]:
    """95 % intervals, [low, high], of the loss and of bits per character."""
    sums = np.stack(
        [story_sums(nats, targets), story_sums(np.ones(len(nats)), targets), targets.n_chars * math.log(2)], axis=1
    )
    drawn = resampled_sums(sums, params.n_bootstrap, params.seed)
    return {
        "nats_per_token": interval(drawn[:, 0] / drawn[:, 1]),
        "bits_per_char": interval(drawn[:, 0] / drawn[:, 2]),
    }


def resampled_sums(sums: np.ndarray, n_bootstrap: int, seed: int) -> np.ndarray:
    """Draw as many stories as there are, with replacement, again and again: (S, K) -> (n_bootstrap, K) sums.

    Stories are drawn whole, because the characters of one are no independent observations.
    Source: Efron and Tibshirani 1993, chapter 13 (percentile intervals).
    """
    rng = np.random.default_rng(seed)
    n_stories = len(sums)
    odds = np.full(n_stories, 1 / n_stories)
    parts = []
    for first in range(0, n_bootstrap, DRAWS_AT_ONCE):
        times = rng.multinomial(n_stories, odds, size=min(DRAWS_AT_ONCE, n_bootstrap - first))  # (draws, S)
        parts.append(times @ sums)
    return np.concatenate(parts)


def interval(values: np.ndarray) -> list[float]:
    """Where the middle 95 % of `values` lie: [low, high]."""
    return np.quantile(values, [0.025, 0.975]).tolist()


def paired_interval(
    nats: np.ndarray, reference: np.ndarray, n_targets: np.ndarray, params: EvaluateParams
) -> tuple[float, float, float]:
    """How much more nats per token than the reference on the same stories: (difference, low, high).

    All arguments are sums by story, (S,). What makes a story hard for both drops out of the
    difference, so that this interval is narrower than those of the two figures.
    """
    sums = np.stack([nats - reference, n_targets], axis=1)
    drawn = resampled_sums(sums, params.n_bootstrap, params.seed)
    low, high = interval(drawn[:, 0] / drawn[:, 1])
    total, n = sums.sum(axis=0)
    return float(total / n), low, high


def paired_t(values: Sequence[float], reference: Sequence[float]) -> tuple[float, float]:
    """The mean of value - reference over pairs, and half of its 95 % interval (Student's t)."""
    pairs = [value - other for value, other in zip(values, reference, strict=True)]
    freedom = len(pairs) - 1
    # Beyond the table the start of the series in 1 / freedom is right to 0.001.
    t = STUDENT_T.get(freedom, 1.96 + 2.372 / freedom + 2.822 / freedom**2)
    return statistics.mean(pairs), t * statistics.stdev(pairs) / math.sqrt(len(pairs))
