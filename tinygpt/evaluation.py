"""What a model pays for the targets of a stream: each one scored once, or chosen windows summed."""

from typing import NamedTuple

import numpy as np
import torch

from tinygpt.batches import Stream, windows
from tinygpt.model import GPT, next_token_nats

EVAL_BATCH_SIZE = 32  # windows at once; has no influence on the result beyond rounding
HEAD_ROWS_ON_CPU = 256  # positions whose scores, V each, are held at once: few enough for the processor's cache
HEAD_ROWS_ELSEWHERE = 4096


@torch.no_grad()
def window_nats(model: GPT, stream: Stream, starts: np.ndarray, context_size: int) -> float:
    """The summed cost, in nats, of all targets in the windows at `starts`; summed in float64.

    This is how training measures itself on a few fixed windows; it is no figure of a whole stream.
    """
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


class Scores(NamedTuple):
    """What a model said of each of the N - 1 targets of a stream, in order.

    nats (N - 1,) is -ln p(target), in float64 for the sums to come; top_id (N - 1,) the likeliest id
    and top_p (N - 1,) its probability; expected (V,) is how often the model expected each id: the sum
    of its probabilities.
    """

    nats: np.ndarray
    top_id: np.ndarray
    top_p: np.ndarray
    expected: np.ndarray


def sliding_stride(stride: int | None, context_size: int) -> int:
    """The stride of the `sliding` protocol: as given, or half a window.

    Raises:
        ValueError: a larger one would leave targets with less than half a window before them.
    """
    most = max(1, context_size // 2)
    if stride is not None and stride > most:
        raise ValueError(
            f"evaluate.stride = {stride} leaves targets with less than half of the window "
            f"(model.context_size = {context_size}) before them; use at most {most}, or null"
        )
    return stride or most


def score_stream(model: GPT, stream: Stream, stride: int | None = None) -> Scores:
    """Score every target of `stream` exactly once; the first token is no target.

    Without a stride (`chunked`) the stream is read in windows of the model's context size that do
    not overlap; the last one is shorter. A target sees what stands before it in its own window.

    With a stride s (`sliding`) a window starts every s tokens and only its last s targets count, so
    that each has at least T - s + 1 tokens before it, except within the first T of the stream.

    Example: 300 tokens and a context of 128 make windows of 128, 128 and 43 targets: 299 in all. A
    stride of 64 makes windows at 0, 64 and 128 that count 128, 64 and 64 targets, and one at the end
    that counts the last 43.
    """
    T, n_targets = model.params.context_size, len(stream) - 1
    assert stride is None or 1 <= stride <= T
    step = stride or T
    starts = np.arange(0, n_targets - T + 1, step)
    done = starts[-1] + T if len(starts) else 0
    rest = n_targets - done
    parts = [_score_windows(model, stream, starts[:1], T, T), _score_windows(model, stream, starts[1:], T, step)]
    if rest:
        length = min(T, n_targets) if stride else rest
        parts.append(_score_windows(model, stream, np.array([n_targets - length]), length, rest))
    nats, top_id, top_p, expected = zip(*parts, strict=True)
    return Scores(np.concatenate(nats), np.concatenate(top_id), np.concatenate(top_p), sum(expected))


@torch.no_grad()
def _score_windows(model: GPT, stream: Stream, starts: np.ndarray, length: int, n_scored: int) -> Scores:
    """Score the last `n_scored` targets of each window of `length` tokens at `starts`."""
    assert not model.training
    device = next(model.parameters()).device
    n_rows = HEAD_ROWS_ON_CPU if device.type == "cpu" else HEAD_ROWS_ELSEWHERE
    n = len(starts) * n_scored
    nats, top_id, top_p = np.empty(n), np.empty(n, dtype=np.int64), np.empty(n)
    expected = torch.zeros(model.lm_head.out_features, dtype=torch.float64)
    done = 0
    for first in range(0, len(starts), EVAL_BATCH_SIZE):
        x, y = windows(stream, starts[first : first + EVAL_BATCH_SIZE], length, device)  # (B, T)
        features = model.features(x)[:, -n_scored:].flatten(0, 1)  # (B · n_scored, C)
        targets = y[:, -n_scored:].flatten()
        for vectors, target in zip(features.split(n_rows), targets.split(n_rows), strict=True):
            log_odds = model.scores(vectors).float().log_softmax(dim=-1)  # (rows, V)
            top = log_odds.max(dim=-1)
            rows = slice(done, done + len(target))
            done += len(target)
            nats[rows] = -log_odds.gather(1, target[:, None])[:, 0].cpu().numpy()
            top_id[rows], top_p[rows] = top.indices.cpu().numpy(), top.values.exp().cpu().numpy()
            expected += log_odds.exp_().sum(dim=0).cpu().double()  # mps has no float64
    return Scores(nats, top_id, top_p, expected.numpy())
