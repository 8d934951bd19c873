"""What a model has to beat: guesses from counts, and compressors."""

import lzma
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import zstandard

from tinygpt.batches import Stream
from tinygpt.kneser_ney import KneserNey, distinct_grams
from tinygpt.tokens import pieces

FREQUENCY = "character frequency"
ORDERS = {"bigram": 2, "trigram": 3, "5-gram": 5}

ROOM = 2**20  # bytes of text that a compressor's window holds beside the training text


class Guesser(Protocol):
    """Says of each target of (N,) ids what it costs: (N - 1,) nats."""

    def target_nats(self, ids: np.ndarray) -> np.ndarray: ...


def fit_guessers(train_stream: Stream, vocab_size: int, max_tokens: int) -> dict[str, Guesser]:
    """Character frequency, and n-grams with Kneser-Ney smoothing on the first `max_tokens` tokens."""
    tables = distinct_grams(train_stream[:max_tokens], vocab_size, max(ORDERS.values()))
    ngrams = {name: KneserNey(tables, order, vocab_size) for name, order in ORDERS.items()}
    return {FREQUENCY: CharacterFrequency(train_stream, vocab_size), **ngrams}


class CharacterFrequency:
    """Guess by how often each token stands in the training stream, whatever came before.

    p(token) = (count + 1) / (n + V): one imagined sight of every entry keeps the cost of an entry
    that training never showed finite (Laplace's rule of succession).
    """

    def __init__(self, train_stream: Stream, vocab_size: int) -> None:
        counts = count_targets(train_stream, vocab_size) + 1
        self.nats = -np.log(counts / counts.sum())  # (V,)

    def target_nats(self, ids: np.ndarray) -> np.ndarray:
        """The cost of the targets that a model is scored on: (N,) ids -> (N - 1,)."""
        return self.nats[ids[1:]]


def count_targets(stream: Stream, vocab_size: int) -> np.ndarray:
    """How often each id is a target, (V,) int64: all tokens of the stream but the first."""
    counts = sum(np.bincount(piece, minlength=vocab_size) for piece in pieces(stream))
    counts[stream[0]] -= 1
    return counts


class Compressor(Protocol):
    """Says how many bits a text takes, given the training text."""

    def bits(self, text: bytes) -> int: ...


def fit_compressors(train_text: bytes) -> dict[str, Compressor]:
    return {"xz": Xz(train_text), "zstd": Zstd(train_text)}


def compressible(texts: Iterable[str], max_chars: int | None = None) -> bytes:
    """The texts in UTF-8, each with an end mark, as in the stream of tokens; whole texts up to `max_chars`.

    Example:
        >>> compressible(["a", "bc", "d"], 3)
        b'a\\x00bc\\x00'
    """
    parts, n_chars = [], 0
    for text in texts:
        n_chars += len(text)
        if max_chars is not None and n_chars > max_chars:
            break
        parts.append(text.encode("utf-8", "surrogatepass") + b"\0")
    return b"".join(parts)


class Xz:
    """LZMA2 at its strongest: what a text adds to the compressed size of the training text before it."""

    def __init__(self, train: bytes) -> None:
        window = 1 << (len(train) + ROOM).bit_length()
        # pb = 0: UTF-8 has no alignment to 4 bytes that the default could use.
        self.filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": window, "pb": 0}]
        self.train = train
        self.train_size = self._size(train)

    def bits(self, text: bytes) -> int:
        return 8 * (self._size(self.train + text) - self.train_size)

    def _size(self, text: bytes) -> int:
        return len(lzma.compress(text, lzma.FORMAT_RAW, filters=self.filters))  # raw: no header, no checksum


class Zstd:
    """Zstandard at level 19 with the training text as its dictionary."""

    def __init__(self, train: bytes) -> None:
        window_log = min((len(train) + ROOM).bit_length(), zstandard.WINDOWLOG_MAX)
        params = zstandard.ZstdCompressionParameters.from_level(
            19, window_log=window_log, write_content_size=False, write_dict_id=False
        )
        dictionary = zstandard.ZstdCompressionDict(train, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
        self.compressor = zstandard.ZstdCompressor(dict_data=dictionary, compression_params=params)

    def bits(self, text: bytes) -> int:
        return 8 * len(self.compressor.compress(text))
