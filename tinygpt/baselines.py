"""What a model has to beat."""

import numpy as np


class CharacterFrequency:
    """Guess by how often each token stands in the training stream, whatever came before.

    p(token) = (count + 1) / (n + V): one imagined sight of every entry keeps the cost of an entry
    that training never showed finite (Laplace's rule of succession).
    """

    def __init__(self, train_stream: np.ndarray, vocab_size: int) -> None:
        counts = np.bincount(train_stream[1:], minlength=vocab_size) + 1  # the first token is no target
        self.nats = -np.log(counts / counts.sum())  # (V,)

    def stream_nats(self, stream: np.ndarray) -> float:
        """The summed cost of the targets that a model is scored on: all tokens but the first."""
        counts = np.bincount(stream[1:], minlength=len(self.nats))
        return float(counts @ self.nats)
