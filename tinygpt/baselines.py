"""What a model has to beat."""

import numpy as np

from tinygpt.batches import Stream
from tinygpt.tokens import pieces


class CharacterFrequency:
    """Guess by how often each token stands in the training stream, whatever came before.

    p(token) = (count + 1) / (n + V): one imagined sight of every entry keeps the cost of an entry
    that training never showed finite (Laplace's rule of succession).
    """

    def __init__(self, train_stream: Stream, vocab_size: int) -> None:
        counts = count_targets(train_stream, vocab_size) + 1
        self.nats = -np.log(counts / counts.sum())  # (V,)

    def stream_nats(self, stream: Stream) -> float:
        """The summed cost of the targets that a model is scored on."""
        return float(count_targets(stream, len(self.nats)) @ self.nats)


def count_targets(stream: Stream, vocab_size: int) -> np.ndarray:
    """How often each id is a target, (V,) int64: all tokens of the stream but the first."""
    counts = sum(np.bincount(piece, minlength=vocab_size) for piece in pieces(stream))
    counts[stream[0]] -= 1
    return counts
