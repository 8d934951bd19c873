"""Looks into a trained model: the values on the way from ids to scores, and what can be read from them.

Shapes as in `model.py`: B batch, T position, C channel (n_embd), H head, D head size, F MLP width, V vocabulary.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tinygpt.batches import Stream, fixed_starts, windows
from tinygpt.checkpoint import TrainedModel
from tinygpt.generation import next_token_odds
from tinygpt.model import GPT, Block, TokenShift
from tinygpt.params import SampleParams
from tinygpt.vocab import BOS, SPECIALS, Vocab

N_WINDOWS, MAX_WINDOW = 4, 256  # what the figures about attention average over; bounds memory
MAX_TOKENS = 16  # of the sentence: more would not be readable on an axis
MAX_STAGE_TOKENS = 8
N_NEAREST = 5
SHARP = 0.99  # a weight above this leaves next to nothing to the other places
RANDOM_WIDTHS = (4, 16, 64, 256)
N_RANDOM, N_KEYS = 1000, 16

Table = list[dict[str, Any]]


class Step(NamedTuple):
    """One step of a forward pass: its name, the letters of its shape, its value."""

    name: str
    letters: str
    value: Tensor


@torch.no_grad()
def trace(model: GPT, ids: Tensor) -> Iterator[Step]:
    """The forward pass of `ids` (B, T) step by step, in the order of the computation; no dropout."""
    assert not model.training
    yield Step("ids", "B, T", ids)
    x = model.token_embedding(ids)
    yield Step("token_vectors", "B, T, C", x)
    if model.params.position == "learned":
        positions = model.position_embedding.weight[: ids.shape[1]]
        yield Step("position_vectors", "T, C", positions)
        x = x + positions
        yield Step("with_positions", "B, T, C", x)
    for block in model.blocks:
        yield from trace_attention(block, x)
        x = x + block.attention(block.shift1(block.norm1(x)))
        yield Step("after_attention", "B, T, C", x)
        yield from trace_mlp(block, x)
        x = x + block.mlp(block.shift2(block.norm2(x)))
        yield Step("after_mlp", "B, T, C", x)
    x = model.final_norm(x)
    yield Step("final_norm", "B, T, C", x)
    yield Step("logits", "B, T, V", model.scores(x))


def trace_attention(block: Block, x: Tensor) -> Iterator[Step]:
    """The attention of one block in its readable form: (B, T, C) -> what it adds to x."""
    attention, (B, T, C) = block.attention, x.shape
    x = block.norm1(x)
    yield Step("norm1", "B, T, C", x)
    if isinstance(block.shift1, TokenShift):
        x = block.shift1(x)
        yield Step("shift1", "B, T, C", x)
    qkv = attention.qkv_proj(x)
    yield Step("qkv", "B, T, 3C", qkv)
    q, k, v = (part.view(B, T, attention.n_head, -1).transpose(1, 2) for part in qkv.split(C, dim=-1))
    yield Step("heads_split", "B, H, T, D", q)
    if not isinstance(attention.q_norm, torch.nn.Identity):
        q, k = attention.q_norm(q), attention.k_norm(k)
        yield Step("qk_normed", "B, H, T, D", q)
    yield Step("q_unrotated", "B, H, T, D", q)
    yield Step("k_unrotated", "B, H, T, D", k)
    if attention.rotate:
        q, k = attention.rotate(q), attention.rotate(k)
    yield Step("q", "B, H, T, D", q)
    yield Step("k", "B, H, T, D", k)
    yield Step("v", "B, H, T, D", v)
    scores = q @ k.transpose(-2, -1)
    yield Step("scores", "B, H, T, T", scores)
    scaled = scores / math.sqrt(q.shape[-1])
    yield Step("scaled", "B, H, T, T", scaled)
    masked = scaled + attention.mask[:T, :T]
    yield Step("masked", "B, H, T, T", masked)
    weights = masked.softmax(dim=-1)
    yield Step("weights", "B, H, T, T", weights)
    heads = weights @ v
    yield Step("heads", "B, H, T, D", heads)
    merged = heads.transpose(1, 2).reshape(B, T, C)
    yield Step("merged", "B, T, C", merged)
    yield Step("attention_out", "B, T, C", attention.o_proj(merged))


def trace_mlp(block: Block, x: Tensor) -> Iterator[Step]:
    """The MLP of one block: (B, T, C) -> what it adds to x."""
    x = block.norm2(x)
    yield Step("norm2", "B, T, C", x)
    if isinstance(block.shift2, TokenShift):
        x = block.shift2(x)
        yield Step("shift2", "B, T, C", x)
    yield Step("mlp_wide", "B, T, F", block.mlp.up_proj(x))
    yield Step("mlp_out", "B, T, C", block.mlp(x))


def values(steps: list[Step], name: str) -> list[Tensor]:
    """The values of the steps called `name`, one a block for those inside of blocks."""
    return [step.value for step in steps if step.name == name]


def shape_letters(steps: list[Step]) -> dict[str, str]:
    """The letters of each step's shape, in order; the block is written out once.

    q and k are named once, as they are multiplied.
    """
    return {step.name: step.letters for step in steps if step.name not in ("q_unrotated", "k_unrotated")}


def sentence_ids(sentence: str, vocab: Vocab, context_size: int) -> Tensor:
    """`<bos>` and the characters of `sentence`, as many as the model sees at once: (1, T)."""
    return torch.tensor([[BOS, *vocab.encode(sentence).tolist()][:context_size]])


def label(id: int, vocab: Vocab) -> str:
    """One visible sign for an id: □ for `<unk>`, ▶ for `<bos>`, ■ for `<eos>`, signs for white space."""
    if id < len(SPECIALS):
        return "□▶■"[id]
    character = vocab.characters[id - len(SPECIALS)]
    return {"\n": "⏎", " ": "␣", "\u3000": "␣", "\t": "⇥"}.get(character, character)


def predictions(logits: Tensor, ids: Tensor, vocab: Vocab) -> Table:
    """What the model expects after each position of one sentence: (T, V) logits and (T,) ids.

    A row a position: the id read, the likeliest next ones with their probabilities, and for all but
    the last the one that came, its probability and its cost -ln p.
    """
    odds, rows = logits.float().softmax(dim=-1), []
    for position, id in enumerate(ids.tolist()):
        top = odds[position].topk(min(N_NEAREST, len(vocab)))
        row = {
            "read": label(id, vocab),
            "likeliest": [(label(i, vocab), p) for i, p in zip(top.indices.tolist(), top.values.tolist(), strict=True)],
        }
        if position + 1 < len(ids):
            came = int(ids[position + 1])
            p = odds[position, came].item()
            row |= {"came": label(came, vocab), "p": p, "nats": -math.log(p)}
        rows.append(row)
    return rows


def temperatures(logits: Tensor, vocab: Vocab, params: SampleParams) -> Table:
    """How temperature and top-k change the odds of the likeliest next characters: (V,) logits.

    The columns are the temperatures 1/2, 1, 2 with every candidate allowed, and the pair of `params`.
    """
    settings = [(0.5, len(vocab)), (1.0, len(vocab)), (2.0, len(vocab)), (params.temperature, params.top_k)]
    odds = [next_token_odds(logits.float(), temperature, top_k) for temperature, top_k in settings]
    top = logits.topk(min(N_NEAREST, len(vocab))).indices.tolist()
    rows = [{"character": label(id, vocab), "odds": [column[id].item() for column in odds]} for id in top]
    rest = [1 - sum(row["odds"][number] for row in rows) for number in range(len(odds))]
    return [*rows, {"character": None, "odds": [max(0.0, share) for share in rest]}]


def nearest_characters(model: GPT, ids: Tensor, vocab: Vocab) -> Table:
    """The characters whose vectors in the token table point most nearly the same way, for each of `ids` (T,).

    Cosine similarity; specials are left out.
    """
    table = torch.nn.functional.normalize(model.token_embedding.weight.detach().float(), dim=-1)  # (V, C)
    rows = []
    for id in dict.fromkeys(id for id in ids.tolist() if id >= len(SPECIALS)):
        cosines = table @ table[id]
        cosines[: len(SPECIALS)] = cosines[id] = -torch.inf
        top = cosines.topk(min(N_NEAREST, max(0, len(vocab) - len(SPECIALS) - 1)))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        rows.append({"character": label(id, vocab), "nearest": [(label(other, vocab), c) for other, c in pairs]})
    return rows


def sizes(steps: list[Step]) -> Table:
    """The root mean square of what a block reads, adds and passes on, averaged over the positions."""
    names = ("norm1", "attention_out", "after_attention", "norm2", "mlp_out", "after_mlp")
    columns = {name: [_rms(value) for value in values(steps, name)] for name in names}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _rms(x: Tensor) -> float:
    return x.float().square().mean(dim=-1).sqrt().mean().item()


def entropy(weights: Tensor) -> Tensor:
    """-Σ a ln a of each row, in nats: (..., T) -> (...). 0 reads one place alone, ln n reads n alike.

    Example: the weights 1/4 1/4 1/4 1/4 have ln 4 = 1.386, the weights 1 0 0 0 have 0.
    """
    return torch.special.entr(weights).sum(dim=-1)


def attention_habits(model: GPT, stream: Stream) -> Table:
    """Where each head reads, and how sharply, averaged over whole windows of `stream`.

    A row a head. `itself`, `previous` and `first` are the shares of the weights that fall on the
    position itself, on the one before it and on the first of the window; `distance` is how many
    positions back the weights lie on average. `entropy` is the mean over the positions in nats,
    `entropy_unscaled` the same if the scores were not divided by sqrt(D); `sharp` and
    `sharp_unscaled` are the shares of positions that put more than SHARP on one place. Positions with
    less than two places to choose from are left out.
    """
    T = min(model.params.context_size, len(stream) - 1, MAX_WINDOW)
    x, _ = windows(stream, fixed_starts(stream, T, N_WINDOWS), T, torch.device("cpu"))
    rows: Table = []
    for step in trace(model, x):
        if step.name == "scores":
            scores = step.value
        if step.name == "weights":
            rows += [
                {"block": rows[-1]["block"] + 1 if rows else 1, "head": number + 1, **habits}
                for number, habits in enumerate(_habits_of_heads(step.value, scores))
            ]
    return rows


def _habits_of_heads(weights: Tensor, scores: Tensor) -> Iterator[dict[str, float]]:
    """The figures of `attention_habits` for the heads of a block: (B, H, T, T) weights and raw scores."""
    T = weights.shape[-1]
    back = torch.arange(T)[:, None] - torch.arange(T)  # (T, T), how far back a column is
    unscaled = scores.masked_fill(back < 0, -torch.inf).softmax(dim=-1)
    first = min(1, T - 1)
    for a, free in zip(weights.unbind(1), unscaled.unbind(1), strict=True):  # (B, T, T) each
        a, free, behind = a[:, first:], free[:, first:], back[first:]
        yield {
            "itself": (a * (behind == 0)).sum(dim=-1).mean().item(),
            "previous": (a * (behind == 1)).sum(dim=-1).mean().item(),
            "first": a[..., 0].mean().item(),
            "distance": (a * behind).sum(dim=-1).mean().item(),
            "entropy": entropy(a).mean().item(),
            "entropy_unscaled": entropy(free).mean().item(),
            "sharp": (a.amax(dim=-1) > SHARP).float().mean().item(),
            "sharp_unscaled": (free.amax(dim=-1) > SHARP).float().mean().item(),
        }


def random_scaling() -> Table:
    """Dot products of random vectors by their length D: why attention divides by sqrt(D).

    Each component is drawn from a normal distribution of variance 1. `std` is the standard
    deviation of q·k, near sqrt(D); `largest` and `largest_scaled` are the mean of the largest
    weight that a query gives to one of 16 keys, without and with the division.
    """
    rng, rows = np.random.default_rng(0), []
    for width in RANDOM_WIDTHS:
        q, k = rng.standard_normal((N_RANDOM, 1, width)), rng.standard_normal((N_RANDOM, N_KEYS, width))
        scores = torch.from_numpy((q * k).sum(axis=-1))  # (N, keys)
        largest, scaled = (s.softmax(dim=-1).amax(dim=-1).mean().item() for s in (scores, scores / math.sqrt(width)))
        rows.append({"width": width, "std": scores.std().item(), "largest": largest, "largest_scaled": scaled})
    return rows


def rotated_dots(model: GPT, q: Tensor, k: Tensor) -> Tensor:
    """q·k with q rotated to every position m and k to every position n: (D,), (D,) -> (T, T).

    With `position: rope` the entry depends on m - n alone.
    """
    rotate, T = model.blocks[0].attention.rotate, model.params.context_size
    q_at, k_at = (rotate(vector.expand(1, 1, T, -1))[0, 0] for vector in (q, k))  # (T, D)
    return q_at @ k_at.T


def rope_table(dots: Tensor) -> dict[str, Any]:
    """Dot products (T, T) by the distance m - n, for keys at a few positions n.

    `lines` are the dot products from distance 0 on, a line for each n; `spread` is the largest
    difference between two entries of the same distance, wherever they stand.
    """
    T = len(dots)
    lines = {n: dots[n:, n].tolist() for n in sorted({0, T // 4, T // 2})}
    diagonals = (dots.diagonal(-distance) for distance in range(T))
    return {"lines": lines, "spread": max((each.max() - each.min()).item() for each in diagonals)}


def position_cosines(model: GPT) -> dict[str, Any]:
    """Learned positions: the cosine between the vectors of a few positions and those of all, a line each."""
    table = torch.nn.functional.normalize(model.position_embedding.weight.detach().float(), dim=-1)  # (T, C)
    T = len(table)
    return {"lines": {place: (table @ table[place]).tolist() for place in sorted({T // 8, T // 2, 7 * T // 8})}}


def look(trained: TrainedModel, val_stream: Stream, sentence: str, sampling: SampleParams) -> dict[str, Any]:
    """All that the report shows of the inside of a model, most of it while it reads `sentence`."""
    model, vocab = trained.model, trained.vocab
    ids = sentence_ids(sentence, vocab, min(model.params.context_size, MAX_TOKENS))
    steps = list(trace(model, ids))
    logits = values(steps, "logits")[0][0]  # (T, V)
    return {
        "labels": [label(id, vocab) for id in ids[0].tolist()],
        "weights": [weights[0] for weights in values(steps, "weights")],  # (H, T, T) a block
        "stages": head_stages(steps),
        "shapes": shape_letters(steps),
        "predictions": predictions(logits, ids[0], vocab),
        "temperatures": temperatures(logits[-1], vocab, sampling),
        "nearest": nearest_characters(model, ids[0], vocab),
        "sizes": sizes(steps),
        "habits": attention_habits(model, val_stream),
        "random": random_scaling(),
        "position": rope_look(model, steps) if model.params.position == "rope" else position_cosines(model),
    }


def head_stages(steps: list[Step]) -> dict[str, Tensor]:
    """The first head of the first block on the first `MAX_STAGE_TOKENS` tokens, stage by stage.

    q, k, v and read are (T, D), the others (T, T); `unscaled` are the weights without the division by sqrt(D).
    """
    first = {}
    for step in steps:
        if step.letters.startswith("B, H"):
            first.setdefault(step.name, step.value[0, 0, :MAX_STAGE_TOKENS])
    T = len(first["q"])
    tables = {name: first[name][:, :T] for name in ("scores", "scaled", "masked", "weights")}
    future = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
    unscaled = tables["scores"].masked_fill(future, -torch.inf).softmax(dim=-1)
    return {"q": first["q"], "k": first["k"], "v": first["v"], **tables, "unscaled": unscaled, "read": first["heads"]}


def rope_look(model: GPT, steps: list[Step]) -> dict[str, Any]:
    """Dot products by distance for a real query and a real key: those of the last and the first character."""
    q, k = (values(steps, name)[0][0, 0] for name in ("q_unrotated", "k_unrotated"))  # (T, D)
    return rope_table(rotated_dots(model, q[-1], k[min(1, len(k) - 1)]))
