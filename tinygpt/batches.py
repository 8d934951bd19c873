"""Windows of a token stream: random ones to train on, fixed ones to evaluate."""

import numpy as np
import torch

from tinygpt.tokens import TokenStream, pieces
from tinygpt.vocab import BOS

Stream = TokenStream | np.ndarray


def check_fits(stream: Stream, context_size: int, name: str) -> None:
    """Raise ValueError if `stream` cannot fill one window of `context_size` inputs and their targets."""
    if len(stream) < context_size + 1:
        raise ValueError(
            f"model.context_size = {context_size} needs a stream of at least {context_size + 1} tokens, "
            f"but {name} holds {len(stream)}; choose a smaller context or add stories"
        )


def random_starts(
    stream: Stream,
    context_size: int,
    batch_size: int,
    seed: int,
    step: int,
    stories: np.ndarray | None = None,
    story_share: float = 0.0,
) -> np.ndarray:
    """Where the windows of `step` start: (B,), uniform over the stream.

    With the probability `story_share` a window starts at one of `stories` (S,) instead, uniform over them;
    the other windows are those of a run without.

    A function of seed and step alone: there is no sampler state to save, and a resumed run, or one
    split over several processes, draws the same windows.
    """
    rng = np.random.default_rng((seed, step))
    starts = rng.integers(len(stream) - context_size, size=batch_size)
    if story_share:
        starts = np.where(rng.random(batch_size) < story_share, rng.choice(stories, batch_size), starts)
    return starts


def story_starts(stream: Stream, context_size: int) -> np.ndarray:
    """Where the stories begin whose window fits into the stream: (S,), in order."""
    found, first = [], 0
    for piece in pieces(stream):
        found.append(first + np.flatnonzero(piece == BOS))
        first += len(piece)
    starts = np.concatenate(found)
    return starts[starts < len(stream) - context_size]


def fixed_starts(stream: Stream, context_size: int, n_windows: int) -> np.ndarray:
    """Where `n_windows` windows start that are spread evenly over the stream and do not overlap.

    A short stream has fewer; at least one.
    """
    n_full = max(1, (len(stream) - 1) // context_size)
    n_windows = min(n_windows, n_full)
    return np.arange(n_windows) * n_full // n_windows * context_size


def windows(
    stream: Stream, starts: np.ndarray, context_size: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs x and targets y, both (B, T) int64 on `device`: the same windows, y one token later.

    A window may cross from one story's `<eos>` to the next one's `<bos>`.

    Example: context_size 4 at start 0 of the stream 1 5 4 6 3 2 gives x = 1 5 4 6, y = 5 4 6 3.
    """
    spans = stream[starts[:, None] + np.arange(context_size + 1)]  # (B, T + 1)
    spans = torch.from_numpy(spans.astype(np.int64))
    if device.type == "cuda":
        spans = spans.pin_memory()  # from there the copy runs beside the computation
    spans = spans.to(device, non_blocking=True)
    return spans[:, :-1], spans[:, 1:]
