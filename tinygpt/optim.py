"""The optimizer's parameter groups and the learning-rate schedule."""

import math
from typing import Any

import torch
from torch import nn

from tinygpt.model import GPT
from tinygpt.params import TrainParams


class MuonWithAdamW:
    """Muon for the matrices of the blocks and AdamW for all else, as one optimizer.

    Muon replaces a matrix's averaged gradient by the nearest matrix with orthogonal rows or columns,
    so that rare directions are learned as fast as common ones. That makes no sense for tables that
    are looked up row by row, nor for vectors.
    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/.
    """

    def __init__(self, muon: torch.optim.Muon, adamw: torch.optim.AdamW) -> None:
        self.parts = (muon, adamw)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self.parts[0].state_dict(), "adamw": self.parts[1].state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.parts[0].load_state_dict(state["muon"])
        self.parts[1].load_state_dict(state["adamw"])


def make_optimizer(model: GPT, params: TrainParams) -> torch.optim.AdamW | MuonWithAdamW:
    """AdamW, or Muon with it; weight decay pulls on matrices and embeddings, not on biases and norm scales.

    A group's `lr_ratio` is its learning rate divided by `params.learning_rate`.
    Source of AdamW: Loshchilov and Hutter 2017, arXiv 1711.05101.
    """
    embeddings = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    head = [] if model.params.tie_embeddings else [model.lm_head.weight]
    matrices = [p for p in model.blocks.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]

    decay = params.weight_decay
    groups = [
        {"params": embeddings, "weight_decay": decay, "lr_ratio": params.embedding_lr_ratio},
        {"params": head, "weight_decay": decay, "lr_ratio": params.head_lr_ratio},
        {"params": vectors, "weight_decay": 0.0, "lr_ratio": 1.0},
    ]
    if params.optimizer == "adamw":
        groups.append({"params": matrices, "weight_decay": decay, "lr_ratio": 1.0})
    adamw = torch.optim.AdamW(groups, lr=params.learning_rate, betas=(params.beta1, params.beta2), fused=True)
    if params.optimizer == "adamw":
        return adamw
    group = {"params": matrices, "lr_ratio": params.muon_learning_rate / params.learning_rate}
    muon = torch.optim.Muon([group], lr=params.muon_learning_rate, weight_decay=decay)
    return MuonWithAdamW(muon, adamw)


def learning_rate_at(step: int, params: TrainParams, seconds: float = 0.0) -> float:
    """Linear from near zero to the peak, then down to `min_lr_ratio` of it at the end.

    Schedule cosine goes down by half a cosine, linear stays at the peak and goes straight down in the
    last `decay_share` of the way. The end is `max_steps`, or `max_seconds` if `seconds` of training
    bring it nearer. Source of the cosine: Loshchilov and Hutter 2016, arXiv 1608.03983.
    """
    if step < params.warmup_steps:
        return params.learning_rate * (step + 1) / (params.warmup_steps + 1)
    progress = (step - params.warmup_steps) / max(1, params.max_steps - params.warmup_steps)  # 0 to 1
    if params.max_seconds is not None:
        progress = max(progress, seconds / params.max_seconds)
    progress = min(progress, 1.0)
    if params.schedule == "cosine":
        above_floor = 0.5 * (1 + math.cos(math.pi * progress))  # 1 to 0
    else:
        above_floor = min(1.0, (1 - progress) / params.decay_share)
    return params.learning_rate * (params.min_lr_ratio + (1 - params.min_lr_ratio) * above_floor)


def set_learning_rate(optimizer: torch.optim.AdamW | MuonWithAdamW, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["lr_ratio"]
