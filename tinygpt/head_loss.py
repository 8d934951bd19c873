"""The head and the loss in one: the same numbers as `next_token_nats(model.scores(features), targets).mean()`.

The plain way keeps (B · T, V) scores, their log-softmax and both gradients: at a batch of 8 × 128
and 3,035 entries 12 MB each, written and read again several times. Here the scores of a few hundred
positions are made, turned into their gradient where they lie, used and dropped, while they are still
in the processor's cache.
"""

from typing import Any

import torch
from torch import Tensor, nn

CHUNK_ON_CPU = 256  # positions at once; a row of scores holds V numbers
CHUNK_ELSEWHERE = 4096


def head_loss(lm_head: nn.Linear, features: Tensor, targets: Tensor, soft_cap: float = 0.0) -> Tensor:
    """Mean cost in nats of (B, T) targets, given the (B, T, C) features that lm_head reads."""
    return _HeadLoss.apply(features.flatten(0, 1), lm_head.weight, lm_head.bias, targets.flatten(), soft_cap)


class _HeadLoss(torch.autograd.Function):
    """The gradient of the mean of -ln softmax(z)[target] by z is (softmax(z) - onehot(target)) / N.

    With a soft cap c, z = c · t with t = tanh(score / c), and the gradient by the score is (1 - t²) of that.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, soft_cap: float
    ) -> Tensor:
        device = features.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
        n = len(targets)
        with torch.autocast(device, enabled=False):
            x, w = features.to(dtype), weight.to(dtype)  # (N, C), (V, C)
            d_features, d_weight = torch.empty_like(x), torch.zeros_like(weight)
            d_bias = None if bias is None else torch.zeros_like(bias)
            nats = features.new_zeros((), dtype=torch.float32)
            chunk = CHUNK_ON_CPU if device == "cpu" else CHUNK_ELSEWHERE
            for first in range(0, n, chunk):
                rows = slice(first, first + chunk)
                scores = nn.functional.linear(x[rows], w, None if bias is None else bias.to(dtype))  # (n, V)
                if soft_cap:
                    t = torch.tanh(scores.float() / soft_cap)
                    scores = soft_cap * t
                odds = scores.softmax(dim=-1, dtype=torch.float32)
                target = targets[rows, None]  # (n, 1)
                odds_of_target = odds.gather(1, target)
                nats -= odds_of_target.log().sum()
                d_scores = odds.scatter_(1, target, odds_of_target - 1)
                if soft_cap:
                    d_scores *= 1 - t.square()
                if d_bias is not None:
                    d_bias += d_scores.sum(0)
                d_scores = d_scores.to(dtype)
                torch.mm(d_scores, w, out=d_features[rows])
                if dtype == weight.dtype:
                    d_weight.addmm_(d_scores.T, x[rows])
                else:
                    d_weight += d_scores.T @ x[rows]
        ctx.save_for_backward(d_features, d_weight, *(() if d_bias is None else (d_bias,)))
        ctx.feature_dtype, ctx.n = features.dtype, n
        return nats / n

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        scale = d_loss / ctx.n
        d_features, d_weight, *rest = ctx.saved_tensors
        d_bias = rest[0] * scale if rest else None
        return (d_features * scale).to(ctx.feature_dtype), d_weight * scale, d_bias, None, None
