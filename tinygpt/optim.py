"""The optimizer's parameter groups and the learning-rate schedule."""

import math

import torch
from torch import nn

from tinygpt.params import TrainParams


def make_optimizer(model: nn.Module, params: TrainParams) -> torch.optim.AdamW:
    """AdamW; weight decay pulls on matrices and embeddings, not on biases and norm scales.

    Source: Loshchilov and Hutter 2017, arXiv 1711.05101.
    """
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": params.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=params.learning_rate, betas=(params.beta1, params.beta2), fused=True)


def learning_rate_at(step: int, params: TrainParams, seconds: float = 0.0) -> float:
    """Linear from near zero to the peak, then half a cosine down to `min_lr_ratio` of it at the end.

    The end is `max_steps`, or `max_seconds` if `seconds` of training bring it nearer.
    Source of the cosine: Loshchilov and Hutter 2016, arXiv 1608.03983.
    """
    if step < params.warmup_steps:
        return params.learning_rate * (step + 1) / (params.warmup_steps + 1)
    progress = (step - params.warmup_steps) / max(1, params.max_steps - params.warmup_steps)  # 0 to 1
    if params.max_seconds is not None:
        progress = max(progress, seconds / params.max_seconds)
    above_floor = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))  # 1 to 0
    return params.learning_rate * (params.min_lr_ratio + (1 - params.min_lr_ratio) * above_floor)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
