"""One forward pass, shape by shape, as it really runs: hooks on the modules tell what came out of them.

Shapes: as in model.py, and F the width of the MLP.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tinygpt.model import GPT, NoShift, attention_weights, mlp_width
from tinygpt.params import ModelParams

# What each part makes, in letters and in words.
PARTS = {
    "ids": ("(B, T)", "a number for each character"),
    "token_embedding": ("(B, T, C)", "look up a vector for each id"),
    "position_embedding": ("(T, C)", "add a vector for each position"),
    "norm1": ("(B, T, C)", "bring each vector to the same scale"),
    "shift1": ("(B, T, C)", "add a share of the position before"),
    "attention.qkv_proj": ("(B, T, 3C)", "query, key and value side by side"),
    "attention.q": ("(B, H, T, D)", "queries, by head"),
    "attention.k": ("(B, H, T, D)", "keys, by head"),
    "attention.v": ("(B, H, T, D)", "values, by head"),
    "attention.weights": ("(B, H, T, T)", "softmax(q kᵀ / sqrt(D)): how much each position reads from each before it"),
    "attention.heads": ("(B, H, T, D)", "the values, weighted and summed"),
    "attention.o_proj": ("(B, T, C)", "join the heads; added to what came into norm1"),
    "norm2": ("(B, T, C)", "bring each vector to the same scale"),
    "shift2": ("(B, T, C)", "add a share of the position before"),
    "mlp.gate_proj": ("(B, T, F)", "the gate of swiglu"),
    "mlp.up_proj": ("(B, T, F)", "widen"),
    "mlp.down_proj": ("(B, T, C)", "bend and narrow; added to what came into norm2"),
    "block": ("(B, T, C)", "what leaves the block"),
    "final_norm": ("(B, T, C)", "bring each vector to the same scale"),
    "lm_head": ("(B, T, V)", "a score for every entry of the vocabulary"),
    "soft_cap": ("(B, T, V)", "cap · tanh(score / cap): none gets beyond ± the cap"),
}


class Step(NamedTuple):
    """One tensor of the pass: the part that made it, its shape in letters and in numbers, what it is."""

    name: str
    letters: str
    shape: tuple[int, ...]
    meaning: str


def forward_walk(params: ModelParams, vocab_size: int, batch_size: int) -> list[Step]:
    """The steps of a pass over (batch_size, context_size) ids: the first block whole, of the others the end.

    Runs on PyTorch's meta device: shapes alone, no memory and no arithmetic, so any size will do.
    """
    steps: list[Step] = []

    def record(name: str, part: str, tensor: Tensor) -> None:
        letters, meaning = PARTS[part]
        steps.append(Step(name, letters, tuple(tensor.shape), meaning))

    def watch(module: nn.Module, name: str, part: str) -> None:
        module.register_forward_hook(lambda _module, _inputs, output: record(name, part, output))

    with torch.device("meta"):
        model = GPT(params, vocab_size)
        ids = torch.empty(batch_size, params.context_size, dtype=torch.long)
    record("ids", "ids", ids)
    watch(model.token_embedding, "token_embedding", "token_embedding")
    if params.position == "learned":
        add = "position_embedding"
        model.token_embedding.register_forward_hook(lambda *_: record(add, add, model.position_embedding.weight))
    for name, module in model.blocks[0].named_modules():
        if name in PARTS and not isinstance(module, NoShift):
            watch(module, f"blocks.0.{name}", name)
    attention = model.blocks[0].attention
    attend = attention.attend

    def watched_attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *rest: Any) -> Tensor:
        heads = attend(q, k, v, mask, *rest)
        inside = {"q": q, "k": k, "v": v, "weights": attention_weights(q, k, mask), "heads": heads}
        for name, tensor in inside.items():
            record(f"blocks.0.attention.{name}", f"attention.{name}", tensor)
        return heads

    attention.attend = watched_attend
    for number, block in enumerate(model.blocks):
        watch(block, f"blocks.{number}", "block")
    for name in ("final_norm", "lm_head"):
        watch(getattr(model, name), name, name)
    logits = model(ids)
    if params.logit_soft_cap:
        record("soft_cap", "soft_cap", logits)
    return steps


def sizes(params: ModelParams, vocab_size: int, batch_size: int) -> dict[str, int]:
    """What the letters stand for."""
    C, H = params.n_embd, params.n_head
    return {
        **{"B": batch_size, "T": params.context_size, "C": C, "H": H, "D": C // H, "F": mlp_width(params)},
        **{"L": params.n_layer, "V": vocab_size},
    }
