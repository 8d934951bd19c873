"""TinyGPT: ids in, a score for every possible next character out.

Shapes: B batch, T position, C channel (n_embd), H head, D head size (C / H), V vocabulary.

Read from the top: normalisation, attention, MLP, the block that joins them, the model that stacks
blocks. Everything that `model:` in params.yaml can choose is here. The key-value cache matters for
generation alone: without it (`cache=None`) the lines that mention it do nothing.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.params import ModelParams


class RMSNorm(nn.Module):
    """Divide each position's vector by its root mean square, then scale each channel.

    y = x / sqrt(mean(x²) + eps) · scale. Source: Zhang and Sennrich 2019, arXiv 1910.07467.

    Example: [0, 0, 0, 4] has the root mean square 2 and becomes [0, 0, 0, 2].
    """

    EPS = 1e-6

    def __init__(self, n_channels: int, eps: float = EPS) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(n_channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean_square = x.float().square().mean(dim=-1, keepdim=True)  # (..., 1)
        return (x * torch.rsqrt(mean_square + self.eps) * self.scale).type_as(x)


def make_norm(params: ModelParams) -> nn.Module:
    if params.norm == "layernorm":
        return nn.LayerNorm(params.n_embd, bias=params.bias)
    return RMSNorm(params.n_embd)


class RotaryPosition(nn.Module):
    """Rotate adjacent pairs of channels by an angle that grows with the position.

    At position m, pair i turns by m · θ_i with θ_i = 10000^(-2i / D). The dot product of a rotated
    query and a rotated key then depends on their distance alone.
    Source: Su et al. 2021, arXiv 2104.09864.
    """

    def __init__(self, head_size: int, context_size: int) -> None:
        super().__init__()
        theta = 10000.0 ** (-torch.arange(0, head_size, 2) / head_size)  # (D / 2,)
        angles = torch.outer(torch.arange(context_size), theta)  # (T, D / 2)
        self.register_buffer("theta", theta, persistent=False)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """Rotate (B, H, T, D) at the positions 0 to T - 1, or at `positions` (B, T), which know no end."""
        if positions is None:
            T = x.shape[-2]
            cos, sin = self.cos[:T], self.sin[:T]  # (T, D / 2)
        else:
            angles = (positions[..., None] * self.theta)[:, None]  # (B, 1, T, D / 2)
            cos, sin = angles.cos(), angles.sin()
        even, odd = x[..., 0::2], x[..., 1::2]  # (B, H, T, D / 2)
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)  # (B, H, T, D / 2, 2)
        return turned.flatten(-2).type_as(x)  # (B, H, T, D)


def causal_mask(context_size: int) -> Tensor:
    """(T, T): 0 where a position may read (itself and before), minus infinity where the future is."""
    return torch.full((context_size, context_size), -math.inf).triu(diagonal=1)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """How much each position reads from each earlier one: (B, H, T, T), every row sums to 1.

    softmax(q kᵀ / sqrt(D) + mask). Source: Vaswani et al. 2017, arXiv 1706.03762.
    """
    D = q.shape[-1]
    scores = (q / math.sqrt(D)) @ k.transpose(-2, -1) + mask  # (B, H, T, T)
    return scores.softmax(dim=-1)


def readable_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
    """Sum the values, weighted by `attention_weights`: (B, H, T, D) each, and the result."""
    return F.dropout(attention_weights(q, k, mask), dropout) @ v


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
    """The same as `readable_attention` in one kernel that never stores the (T, T) weights."""
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)


def fast_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
    """The faster of the two forms: on a CPU the fused kernel loses in bfloat16 (see benchmarks/training.md)."""
    slow_kernel = v.device.type == "cpu" and v.dtype == torch.bfloat16
    return (readable_attention if slow_kernel else fused_attention)(q, k, v, mask, dropout)


class LayerCache(NamedTuple):
    """What one block has read, and what it reads next.

    Keys and values (B, H, S, D); what its two token shifts have read, (2, B, S, C), or nothing without them.
    `positions` (B, T) says where the new ids stand, `mask` (B, 1, T, S) which slots each of them sees.
    """

    keys: Tensor
    values: Tensor
    shifted: Tensor
    positions: Tensor
    mask: Tensor

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Write (B, H, T, D) where the new ids stand; return all keys, all values and the mask."""
        rows = torch.arange(len(k), device=k.device)[:, None]  # (B, 1)
        slots = self.positions % self.keys.shape[2]  # (B, T)
        self.keys[rows, :, slots] = k.transpose(1, 2).to(self.keys.dtype)  # (B, T, H, D)
        self.values[rows, :, slots] = v.transpose(1, 2).to(self.values.dtype)
        return self.keys, self.values, self.mask

    def add_shifted(self, site: int, x: Tensor) -> Tensor:
        """Write (B, T, C) where the new ids stand; return what stands before each, zeros before the first."""
        seen, S = self.shifted[site], self.shifted.shape[2]
        rows = torch.arange(len(x), device=x.device)[:, None]  # (B, 1)
        seen[rows, self.positions % S] = x.to(seen.dtype)
        return seen[rows, (self.positions - 1) % S] * (self.positions > 0)[..., None]


class KVCache:
    """Keys and values of B texts of different lengths, so that each position is computed once.

    `GPT.features(ids, cache)` reads on from where each row is, `lengths` (B,), and writes what it
    read. A shorter row of `ids` is filled up on its right: nothing before the filling can see it,
    and `lengths` is set to the true length, so that the next position overwrites it.

    Position p stands in slot p mod S. So it sees all slots up to its own, and every slot once it is
    beyond S, which RoPE allows: there the newest key has taken the place of the oldest.
    """

    def __init__(self, params: ModelParams, n_rows: int, device: torch.device | None = None) -> None:
        H, S, D = params.n_head, params.context_size, params.n_embd // params.n_head
        self.keys = torch.zeros(params.n_layer, n_rows, H, S, D, device=device)
        self.values = torch.zeros_like(self.keys)
        width = params.n_embd if params.token_shift else 0
        self.shifted = torch.zeros(params.n_layer, 2, n_rows, S, width, device=device)
        self.lengths = torch.zeros(n_rows, dtype=torch.long, device=device)

    def advance(self, B: int, T: int) -> list[LayerCache]:
        """The first B rows of every layer, about to read T more."""
        device, S = self.keys.device, self.keys.shape[3]
        positions = self.lengths[:B, None] + torch.arange(T, device=device)  # (B, T)
        hidden = torch.arange(S, device=device) > positions[:, None, :, None]  # (B, 1, T, S)
        mask = torch.zeros(hidden.shape, device=device).masked_fill(hidden, -math.inf)
        self.lengths[:B] += T
        layers = zip(self.keys, self.values, self.shifted, strict=True)
        return [LayerCache(k[:B], v[:B], shifted[:, :B], positions, mask) for k, v, shifted in layers]

    def copy_rows(self, rows: list[int] | int, other: "KVCache", other_rows: list[int] | int | slice) -> None:
        """Take over what rows of another cache, or of this one, have read."""
        self.keys[:, rows] = other.keys[:, other_rows]
        self.values[:, rows] = other.values[:, other_rows]
        self.shifted[:, :, rows] = other.shifted[:, :, other_rows]
        self.lengths[rows] = other.lengths[other_rows]


class CausalSelfAttention(nn.Module):
    """Every position gathers from itself and the positions before it, once per head."""

    def __init__(self, params: ModelParams) -> None:
        super().__init__()
        C, D = params.n_embd, params.n_embd // params.n_head
        self.n_head = params.n_head
        self.dropout = params.dropout
        self.attend = fast_attention  # readable_attention gives the same numbers, see the tests
        self.qkv_proj = nn.Linear(C, 3 * C, bias=params.bias)  # three projections side by side in one
        self.o_proj = nn.Linear(C, C, bias=params.bias)
        self.q_norm = RMSNorm(D) if params.qk_norm else nn.Identity()
        self.k_norm = RMSNorm(D) if params.qk_norm else nn.Identity()
        rope = params.position == "rope"
        self.rotate = RotaryPosition(D, params.context_size) if rope else None
        self.register_buffer("mask", causal_mask(params.context_size), persistent=False)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        B, T, C = x.shape
        q, k, v = self.qkv_proj(x).split(C, dim=-1)  # (B, T, C) each
        q, k, v = (part.view(B, T, self.n_head, -1).transpose(1, 2) for part in (q, k, v))  # (B, H, T, D)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.rotate:
            positions = cache.positions if cache else None
            q, k = self.rotate(q, positions), self.rotate(k, positions)
        if cache:  # the new queries read the old keys and values, too
            heads = readable_attention(q, *cache.add(k, v))
        else:
            heads = self.attend(q, k, v, self.mask[:T, :T], self.dropout if self.training else 0.0)  # (B, H, T, D)
        merged = heads.transpose(1, 2).reshape(B, T, C)  # a position's heads side by side
        return F.dropout(self.o_proj(merged), self.dropout, self.training)


def mlp_width(params: ModelParams) -> int:
    """F, how wide the MLP gets inside: 4C, or 8C / 3 up to a multiple of 8 for swiglu.

    So swiglu, which has a third matrix, has about as many parameters as the others.
    """
    return 8 * math.ceil(params.n_embd / 3) if params.mlp == "swiglu" else 4 * params.n_embd


class MLP(nn.Module):
    """Work on each position's vector alone: widen, bend, narrow (C -> F -> C).

    gelu: Hendrycks and Gimpel 2016, arXiv 1606.08415. relu2: So et al. 2021, arXiv 2109.08668.
    swiglu multiplies by a gate: Shazeer 2020, arXiv 2002.05202.
    """

    def __init__(self, params: ModelParams) -> None:
        super().__init__()
        C = params.n_embd
        self.kind = params.mlp
        self.dropout = params.dropout
        hidden = mlp_width(params)
        if self.kind == "swiglu":
            self.gate_proj = nn.Linear(C, hidden, bias=params.bias)
        self.up_proj = nn.Linear(C, hidden, bias=params.bias)
        self.down_proj = nn.Linear(hidden, C, bias=params.bias)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.up_proj(x)  # (B, T, F)
        if self.kind == "gelu":
            bent = F.gelu(wide)
        elif self.kind == "relu2":
            bent = F.relu(wide).square()
        else:
            bent = F.silu(self.gate_proj(x)) * wide
        return F.dropout(self.down_proj(bent), self.dropout, self.training)  # (B, T, C)


class TokenShift(nn.Module):
    """Add to each position a share of the one before it, channel by channel: y_t = x_t + share · x_(t-1).

    So two neighbours can be read as one word before any attention. The shares start at zero.
    Source: the width of two of the convolutions in So et al. 2021, arXiv 2109.08668.

    Example: with the share 0.5 the positions 2, 4, 6 become 2, 5, 8.
    """

    def __init__(self, n_channels: int, site: int) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.zeros(n_channels))
        self.site = site  # 0 before attention, 1 before the MLP: where a cache keeps what was read

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:  # (B, T, C)
        if cache:
            return x + self.share * cache.add_shifted(self.site, x)
        before = F.pad(x, (0, 0, 1, 0))[:, :-1]  # (B, T, C), zeros before the first
        return x + self.share * before


class NoShift(nn.Module):
    """In the place of `TokenShift`: changes nothing."""

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        return x


class Block(nn.Module):
    """Read from the context, then work on what was read; each step adds to what was there."""

    def __init__(self, params: ModelParams) -> None:
        super().__init__()
        self.norm1 = make_norm(params)
        self.shift1 = TokenShift(params.n_embd, site=0) if params.token_shift else NoShift()
        self.attention = CausalSelfAttention(params)
        self.norm2 = make_norm(params)
        self.shift2 = TokenShift(params.n_embd, site=1) if params.token_shift else NoShift()
        self.mlp = MLP(params)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        x = x + self.attention(self.shift1(self.norm1(x), cache), cache)
        return x + self.mlp(self.shift2(self.norm2(x), cache))


class GPT(nn.Module):
    """Embed ids and positions, run the blocks, score every entry of the vocabulary."""

    def __init__(self, params: ModelParams, vocab_size: int) -> None:
        super().__init__()
        self.params = params
        self.token_embedding = nn.Embedding(vocab_size, params.n_embd)
        if params.position == "learned":
            self.position_embedding = nn.Embedding(params.context_size, params.n_embd)
        self.blocks = nn.ModuleList(Block(params) for _ in range(params.n_layer))
        self.final_norm = make_norm(params)
        self.lm_head = nn.Linear(params.n_embd, vocab_size, bias=params.head_bias)
        if params.tie_embeddings:
            self.lm_head.weight = self.token_embedding.weight
        self._init_weights()

    def _init_weights(self) -> None:
        """Normal weights of a small width, so that the first scores are nearly equal (loss about ln V).

        What writes into the residual stream starts smaller, by the square root of the number of
        writers, so that the stream does not grow with depth. Source: Radford et al. 2019 (GPT-2).
        With `zero_init_outputs` it starts at zero, and so does an untied lm_head: every block begins
        as the identity, every character as likely. Source: Zhang et al. 2019, arXiv 1901.09321.
        """
        std = self.params.init_std
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for block in self.blocks:
            for writer in (block.attention.o_proj, block.mlp.down_proj):
                nn.init.normal_(writer.weight, std=std / math.sqrt(2 * self.params.n_layer))
                if self.params.zero_init_outputs:
                    nn.init.zeros_(writer.weight)
        if self.params.zero_init_outputs and not self.params.tie_embeddings:
            nn.init.zeros_(self.lm_head.weight)

    def features(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """The vectors that `scores` reads: (B, T) ids -> (B, T, C).

        With a cache the ids are the next ones of its first B rows, each of which counts its positions on.
        """
        T = ids.shape[1]
        assert T <= self.params.context_size, f"{T} ids, but context_size is {self.params.context_size}"
        layers = cache.advance(*ids.shape) if cache else [None] * self.params.n_layer
        x = self.token_embedding(ids)  # (B, T, C)
        if self.params.position == "learned" and cache:
            x = x + self.position_embedding(layers[0].positions)  # (B, T, C)
        elif self.params.position == "learned":
            x = x + self.position_embedding.weight[:T]  # (T, C), the same for every row of the batch
        x = F.dropout(x, self.params.dropout, self.training)
        for block, layer in zip(self.blocks, layers, strict=True):
            x = block(x, layer)
        return self.final_norm(x)

    def scores(self, features: Tensor) -> Tensor:
        """The score of every entry of the vocabulary: (..., C) -> (..., V) logits.

        With `logit_soft_cap` none gets beyond ± the cap. Source: Gemma 2, arXiv 2408.00118.
        """
        logits, cap = self.lm_head(features), self.params.logit_soft_cap
        return cap * torch.tanh(logits / cap) if cap else logits

    def forward(self, ids: Tensor) -> Tensor:
        """Scores of the next character at every position: (B, T) ids -> (B, T, V) logits."""
        return self.scores(self.features(ids))


def next_token_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """The cost of each target, -ln p(target): (B, T, V) logits, (B, T) targets -> (B, T) nats."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)


def initial_model(params: ModelParams, vocab_size: int, seed: int) -> GPT:
    """A model with the random weights that training with `seed` starts from."""
    torch.manual_seed(seed)
    return GPT(params, vocab_size)


def parameter_table(params: ModelParams, vocab_size: int) -> list[tuple[str, str, int]]:
    """Where the parameters are: (part, formula, count), the counts taken from a real model.

    The formulas use V vocab_size, T context_size, C n_embd, D head size, F MLP width, L n_layer.
    """
    model = GPT(params, vocab_size)
    block = model.blocks[0]
    bias = params.bias
    norm = "(C + C)" if params.norm == "layernorm" and bias else "C"
    attention = "4 × (C × C" + (" + C)" if bias else ")") + (" + 2 × D" if params.qk_norm else "")
    wide = "(C × F + F)" if bias else "C × F"
    mlp = ("2 × " if params.mlp == "swiglu" else "") + wide + " + F × C" + (" + C" if bias else "")
    head = ("0" if params.tie_embeddings else "C × V") + (" + V" if params.head_bias else "")

    rows = [("token embedding", "V × C", _count(model.token_embedding))]
    if params.position == "learned":
        rows.append(("position embedding", "T × C", _count(model.position_embedding)))
    rows += [
        ("norms of the blocks", f"L × 2 × {norm}", params.n_layer * 2 * _count(block.norm1)),
    ]
    if params.token_shift:
        rows.append(("token shifts of the blocks", "L × 2 × C", params.n_layer * 2 * _count(block.shift1)))
    rows += [
        ("attention of the blocks", f"L × ({attention})", params.n_layer * _count(block.attention)),
        ("MLPs of the blocks", f"L × ({mlp})", params.n_layer * _count(block.mlp)),
        ("final norm", norm, _count(model.final_norm)),
    ]
    rest = _count(model) - sum(count for _, _, count in rows)  # without a weight that it shares
    return [*rows, ("lm_head", head, rest)]


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
