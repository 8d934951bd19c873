"""Total nats over a stream or over chosen windows: sum, count, divide once."""

import math

import numpy as np
import torch

from tinygpt.batches import Stream, windows
from tinygpt.model import GPT, next_token_nats

EVAL_BATCH_SIZE = 32  # windows at once; has no influence on the result beyond rounding


@torch.no_grad()
def window_nats(model: GPT, stream: Stream, starts: np.ndarray, context_size: int) -> float:
    """The summed cost, in nats, of all targets in the windows at `starts`; summed in float64."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    total = 0.0
    for first in range(0, len(starts), EVAL_BATCH_SIZE):
        chunk = starts[first : first + EVAL_BATCH_SIZE]
        x, y = windows(stream, chunk, context_size, device)  # (B, T)
        total += next_token_nats(model(x), y).cpu().double().sum().item()  # mps has no float64
    model.train(was_training)
    return total


def stream_nats(model: GPT, stream: Stream) -> float:
    """The summed cost of every target of `stream`, each exactly once.

    The stream is read in non-overlapping windows of the model's context size; the last one is
    shorter. A target sees what stands before it in its own window. The first token is no target.

    Example: 300 tokens and a context of 128 make windows of 128, 128 and 43 targets: 299 in all.
    """
    T = model.params.context_size
    n_targets = len(stream) - 1
    n_full = n_targets // T
    total = window_nats(model, stream, np.arange(n_full) * T, T)
    if n_targets % T:
        total += window_nats(model, stream, np.array([n_full * T]), n_targets % T)
    return total


def measures(nats: float, n_targets: int, n_chars: int) -> dict[str, float]:
    """A summed cost in three units.

    nats_per_token = nats / n_targets; perplexity = e^nats_per_token; bits_per_char = nats / ln 2 /
    n_chars, which spreads the cost of `<bos>` and `<eos>` over the characters of the stories.
    """
    return {
        "nats_per_token": nats / n_targets,
        "perplexity": math.exp(nats / n_targets),
        "bits_per_char": nats / math.log(2) / n_chars,
    }
