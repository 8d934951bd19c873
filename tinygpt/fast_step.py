"""One more position of each row, fast: what the readable model does with T = 1, in few NumPy calls.

At this size a step is a hundred small calls, and what a call costs beside its arithmetic decides.
NumPy's calls cost a third of PyTorch's, and there is no module and no dispatch between them. What a
norm, an attention scale or a LayerNorm's mean does to all positions alike is put into the weights
once. The numbers are the model's own up to rounding; tests/test_fast_step.py holds all variants to
that, benchmarks/generation.md says what it brings.
"""

import math
from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tinygpt.model import GPT, KVCache, RMSNorm, TokenShift

MANY_ROWS = 16  # from here on PyTorch's arithmetic is so much faster that its calls are paid for
SQRT_HALF = np.float32(math.sqrt(0.5))  # a float64 would make all that it touches one
ACTIVATIONS = {"gelu": F.gelu, "swiglu": F.silu, "relu2": lambda x: F.relu(x).square()}


class Affine(NamedTuple):
    """x @ weight + bias: (B, N) -> (B, M)."""

    weight: np.ndarray  # (N, M)
    bias: np.ndarray  # (M,)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        if len(x) >= MANY_ROWS:
            return torch.addmm(*map(torch.from_numpy, (self.bias, x, self.weight))).numpy()
        y = x @ self.weight
        y += self.bias
        return y


class Shift(NamedTuple):
    """What a norm does behind its division by the length, and the token shift that follows: not to be folded away."""

    scale: np.ndarray  # (C,) each
    bias: np.ndarray
    share: np.ndarray

    def __call__(self, x: np.ndarray, seen: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """(B, C) -> (B, C); `seen` (B, S, C) holds what was read, by position modulo S."""
        rows, S = np.arange(len(x)), seen.shape[1]
        x = x * self.scale + self.bias
        seen[rows, lengths % S] = x
        before = seen[rows, (lengths - 1) % S] * (lengths > 0)[:, None]
        return x + self.share * before


class BlockWeights(NamedTuple):
    shifts: tuple[Shift, Shift] | None
    qkv: Affine
    qk_scale: np.ndarray | None  # (2, 1, 1, D)
    out: Affine
    up: Affine
    gate: Affine | None
    down: Affine


class Weights(NamedTuple):
    """A model's weights as the step multiplies them."""

    tokens: np.ndarray  # (V, C)
    positions: np.ndarray | None  # (T, C)
    theta: np.ndarray | None  # (D / 2,)
    blocks: list[BlockWeights]
    head: Affine


class FastStep:
    """Calling it with the next id of each row gives the scores of the one after: (B,) -> (B, V).

    Works on the memory of `cache`, which the readable model fills and can read on from at any time.
    """

    def __init__(self, model: GPT, cache: KVCache) -> None:
        params = model.params
        self.n_head, self.context_size, self.qk_norm = params.n_head, params.context_size, params.qk_norm
        self.soft_cap = params.logit_soft_cap
        self.eps = model.final_norm.eps * params.n_embd
        self.activation = ACTIVATIONS[params.mlp]
        self.lengths = cache.lengths.numpy()
        self.layers = list(zip(cache.keys.numpy(), cache.values.numpy(), strict=True))  # (B, H, S, D) each
        self.shifted = cache.shifted.numpy()  # (L, 2, B, S, C)
        self.tokens, self.positions, self.theta, self.blocks, self.head = weights_of(model)

    def __call__(self, ids: list[int]) -> np.ndarray:
        lengths = self.lengths[: len(ids)]
        shortest, longest = int(lengths.min()), int(lengths.max())
        used = min(longest + 1, self.context_size)
        if shortest == longest:
            rows, slots, mask = slice(len(ids)), longest % self.context_size, None
        else:  # hide what longer rows have and this one has not
            rows, slots = np.arange(len(ids)), lengths % self.context_size
            mask = np.where(np.arange(used) > lengths[:, None], np.float32(-np.inf), np.float32(0))[:, None, None]
        x = self.tokens[ids]  # (B, C)
        if self.positions is not None:
            x += self.positions[lengths]
        for block, (keys, values), seen in zip(self.blocks, self.layers, self.shifted, strict=True):
            normed = _unit(x, self.eps)
            if block.shifts:
                normed = block.shifts[0](normed, seen[0], lengths)
            q, k, v = self._project(block, normed, lengths)
            keys[rows, :, slots], values[rows, :, slots] = k, v
            x += block.out(_attend(q, keys[: len(x), :, :used], values[: len(x), :, :used], mask))
            normed = _unit(x, self.eps)
            if block.shifts:
                normed = block.shifts[1](normed, seen[1], lengths)
            wide = block.up(normed)
            x += block.down(self._bend(block.gate(normed)) * wide if block.gate else self._bend(wide))
        lengths += 1
        logits = self.head(_unit(x, self.eps))
        return self.soft_cap * np.tanh(logits / self.soft_cap) if self.soft_cap else logits

    def _project(self, block: BlockWeights, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Query, key and value of every head: (B, C) -> (3, B, H, D)."""
        qkv = block.qkv(x).reshape(len(x), 3, self.n_head, -1).transpose(1, 0, 2, 3)
        if self.qk_norm:
            qkv[:2] = _unit(qkv[:2], RMSNorm.EPS * qkv.shape[-1]) * block.qk_scale
        if self.theta is not None:
            angles = lengths[:, None, None] * self.theta
            qkv[:2] = _rotate(qkv[:2], np.cos(angles), np.sin(angles))  # (B, 1, D / 2)
        return qkv

    def _bend(self, x: np.ndarray) -> np.ndarray:
        if self.activation is F.gelu and len(x) < MANY_ROWS:
            return _gelu(x)
        return self.activation(torch.from_numpy(x)).numpy()


_KNOWN: WeakKeyDictionary[GPT, tuple[list, Weights]] = WeakKeyDictionary()


def weights_of(model: GPT) -> Weights:
    """Made once for a model, and again when a weight has changed."""
    weights = list(model.parameters())
    # what inference_mode made has no version, and cannot change
    versions = [(weight.data_ptr(), 0 if weight.is_inference() else weight._version) for weight in weights]
    if model not in _KNOWN or _KNOWN[model][0] != versions:
        _KNOWN[model] = (versions, _make_weights(model))
    return _KNOWN[model][1]


def _make_weights(model: GPT) -> Weights:
    params = model.params
    # LayerNorm subtracts the mean of a vector first. If whatever is added up has none, the sum has none.
    centred = _centred if params.norm == "layernorm" else lambda x: x
    learned = params.position == "learned"
    return Weights(
        tokens=centred(_array(model.token_embedding.weight)),
        positions=centred(_array(model.position_embedding.weight)) if learned else None,
        theta=None if learned else _array(model.blocks[0].attention.rotate.theta),
        blocks=[_block_weights(block, centred) for block in model.blocks],
        head=_affine(model.lm_head, model.final_norm),
    )


def _attend(q: np.ndarray, keys: np.ndarray, values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """One query a head against all keys: (B, H, D), (B, H, S, D) twice -> (B, C)."""
    scores = q[:, :, None] @ keys.swapaxes(-2, -1)  # (B, H, 1, S)
    if mask is not None:
        scores += mask
    scores -= np.maximum.reduce(scores, axis=-1, keepdims=True)  # softmax, as it stays under the largest float
    weights = np.exp(scores)
    return (weights @ values / np.add.reduce(weights, axis=-1, keepdims=True)).reshape(len(q), -1)


def _gelu(x: np.ndarray) -> np.ndarray:
    """x Φ(x) = x (1 + erf(x / √2)) / 2: for few numbers this costs half of what calling F.gelu does."""
    y = torch.erf(torch.from_numpy(x * SQRT_HALF)).numpy()
    y += 1
    y *= x
    y *= 0.5
    return y


def _unit(x: np.ndarray, eps: float) -> np.ndarray:
    """Every vector at length 1. A norm makes it sqrt(C) long and scales it: the weights behind it do that."""
    square = np.vecdot(x, x, keepdims=True)
    square += eps
    return x / np.sqrt(square)


def _rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = even * cos - odd * sin
    turned[..., 1::2] = even * sin + odd * cos
    return turned


def _centred(x: np.ndarray) -> np.ndarray:
    return x - x.mean(axis=-1, keepdims=True)


def _block_weights(block: nn.Module, centred: Callable[[np.ndarray], np.ndarray]) -> BlockWeights:
    attention, mlp = block.attention, block.mlp
    shifts, norm1, norm2 = None, block.norm1, block.norm2
    if isinstance(block.shift1, TokenShift):
        shifts, norm1, norm2 = (_shift(norm1, block.shift1), _shift(norm2, block.shift2)), None, None
    qkv, qk_scale = _affine(attention.qkv_proj, norm1), None
    D = len(qkv.bias) // 3 // attention.n_head
    if isinstance(attention.q_norm, RMSNorm):
        scales = [norm.scale * math.sqrt(D) for norm in (attention.q_norm, attention.k_norm)]
        qk_scale = _array(torch.stack(scales))[:, None, None]  # (2, 1, 1, D)
        qk_scale[0] /= math.sqrt(D)  # attention divides q k by this; here q has it already
    else:
        for part in qkv:
            part[..., : len(qkv.bias) // 3] /= math.sqrt(D)
    return BlockWeights(
        shifts=shifts,
        qkv=qkv,
        qk_scale=qk_scale,
        out=Affine(*map(centred, _affine(attention.o_proj))),
        up=_affine(mlp.up_proj, norm2),
        gate=_affine(mlp.gate_proj, norm2) if mlp.kind == "swiglu" else None,
        down=Affine(*map(centred, _affine(mlp.down_proj))),
    )


def _shift(norm: nn.Module, shift: TokenShift) -> Shift:
    rms = isinstance(norm, RMSNorm)
    scale = norm.scale if rms else norm.weight
    bias = torch.zeros_like(scale) if rms or norm.bias is None else norm.bias
    return Shift(_array(scale * math.sqrt(len(scale))), _array(bias), _array(shift.share))


def _affine(linear: nn.Linear, norm: nn.Module | None = None) -> Affine:
    """A linear layer, with what the norm before it does to a vector of length 1.

    W (sqrt(C) s x + t) + b = (W sqrt(C) s) x + (W t + b) for a norm of scale s and bias t.
    """
    weight = linear.weight.detach()  # (M, N)
    bias = torch.zeros(len(weight)) if linear.bias is None else linear.bias.detach().clone()
    if norm is not None:
        rms = isinstance(norm, RMSNorm)
        if not rms and norm.bias is not None:
            bias += weight @ norm.bias.detach()
        weight = weight * ((norm.scale if rms else norm.weight).detach() * math.sqrt(weight.shape[1]))
    return Affine(weight.T.contiguous().numpy(), bias.numpy())


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()
