"""Many texts at once, each position computed once: what `continue_text` writes, and much faster.

`write` tells it character by character, `generate` returns whole continuations. `Rows` says where
scores come from, `race` how an id is drawn from them, `decide` what happens where rounding could turn
a draw.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from tinygpt.fast_step import FastStep
from tinygpt.generation import Continuation, Text, adjusted, last_logits, next_token_odds, window_start
from tinygpt.model import GPT, KVCache
from tinygpt.params import SampleParams
from tinygpt.vocab import BOS, Vocab

MAX_ROWS = 64  # texts at once; the others wait
ROUNDING = 1e-4  # two ways to compute a score differ by a fifth of this at most; what is closer counts as a tie
SPARE = 8  # candidates looked at beyond top_k, in case some tie with the last one


class Piece(NamedTuple):
    """What `write` has to tell: text `number` got `text` longer (perhaps by nothing), and ended if `ended_by`."""

    number: int
    text: str
    ended_by: str


def generate(
    model: GPT, vocab: Vocab, prompts: Sequence[str], seeds: Sequence[int], params: SampleParams
) -> list[Continuation]:
    """Continue each prompt with its own seed: exactly what `continue_text` writes for it alone."""
    texts = [""] * len(prompts)
    ended_by = [""] * len(prompts)
    for piece in write(model, vocab, prompts, seeds, params):
        texts[piece.number] += piece.text
        ended_by[piece.number] = piece.ended_by
    return [Continuation(*each) for each in zip(texts, ended_by, strict=True)]


def write(
    model: GPT, vocab: Vocab, prompts: Sequence[str], seeds: Sequence[int], params: SampleParams
) -> Iterator[Piece]:
    """As `generate`, but told character by character.

    The scores of a step depend, in their last bits, on how many texts share it. Where that could
    turn a draw, the textbook's way to compute them decides; so a text does not depend on its company.

    Raises:
        ValueError: `sample.overflow` = roll for a model with learned positions.
    """
    if params.overflow == "roll" and model.params.position != "rope":
        raise ValueError(
            "sample.overflow = roll needs a model with model.position = rope: "
            "a table of learned positions has an end; use slide or shift"
        )
    texts = [
        Text.begin(vocab, prompt, torch.Generator().manual_seed(seed))
        for prompt, seed in zip(prompts, seeds, strict=True)
    ]
    with _blas().limit(limits=1, user_api="blas"):  # products this small are slower on several threads
        for first in range(0, len(texts), MAX_ROWS):
            number = {text: first + i for i, text in enumerate(texts[first : first + MAX_ROWS])}
            rows = Rows(model, list(number), params.overflow)
            while rows.texts:
                for text, id in draw(model, rows, params):
                    character = text.add(id, vocab, params)
                    if text.ended_by:
                        rows.remove(text)
                    yield Piece(number[text], character, text.ended_by)


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class Rows:
    """The texts that are written together: some have a row of the cache, some slide, which nothing can be kept of."""

    @torch.no_grad()
    def __init__(self, model: GPT, texts: list[Text], overflow: str) -> None:
        self.model, self.overflow = model, overflow
        self.S = model.params.context_size
        self.device = model.token_embedding.weight.device
        self.sliding = [text for text in texts if self._slides(text)]
        self.cached = [text for text in texts if not self._slides(text)]  # text i has row i
        self.cache = KVCache(model.params, len(self.cached), self.device)
        numbers = torch.empty(len(texts), model.lm_head.out_features, dtype=torch.float64)
        self.random, self.uniform = numbers.unbind(), numbers.numpy()  # row by row, and all: the same memory
        self.step = (FastStep if self.device.type == "cpu" else readable_step)(model, self.cache)
        self._read(self.cached)

    @property
    def texts(self) -> list[Text]:
        return self.cached + self.sliding

    def remove(self, text: Text) -> None:
        """The last row of the cache moves to where this one was."""
        if text in self.sliding:
            self.sliding.remove(text)
            return
        row, last = self.cached.index(text), len(self.cached) - 1
        self.cached[row] = self.cached[last]
        self.cached.pop()
        self.cache.copy_rows(row, self.cache, last)

    def next_logits(self) -> np.ndarray:
        """Scores of the next token of each of `texts`: (B, V)."""
        full = [text for text in self.cached if len(text.ids) > self.S]
        if self.overflow == "slide":
            for text in full:
                self.remove(text)
                self.sliding.append(text)
        elif self.overflow == "shift":
            self._read([text for text in full if self._is_new_window(text)])
        parts = []
        if self.cached:
            parts.append(self.step([text.ids[-1] for text in self.cached]))
        if self.sliding:
            windows = torch.tensor([text.ids[-self.S :] for text in self.sliding], device=self.device)
            parts.append(self.model.scores(self.model.features(windows)[:, -1]).float().cpu().numpy())
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _slides(self, text: Text) -> bool:
        return self.overflow == "slide" and len(text.ids) > self.S

    def _is_new_window(self, text: Text) -> bool:
        starts = [window_start(n, self.S, "shift") for n in (len(text.ids) - 1, len(text.ids))]
        return starts[0] != starts[1]

    def _read(self, texts: list[Text]) -> None:
        """Fill the rows of `texts` with all but their last id, which the next step reads."""
        if not texts:
            return
        windows = []
        for text in texts:
            n_ids = len(text.ids)
            windows.append(text.ids[window_start(n_ids, self.S, self.overflow) : n_ids - 1])
        rows = [self.cached.index(text) for text in texts]
        lengths = torch.tensor([len(window) for window in windows], device=self.device)
        if longest := int(lengths.max()):
            padded = [window + [BOS] * (longest - len(window)) for window in windows]
            read = self.cache if texts is self.cached else KVCache(self.model.params, len(texts), self.device)
            self.model.features(torch.tensor(padded, device=self.device), read)
            if read is not self.cache:
                self.cache.copy_rows(rows, read, slice(None))
        self.cache.lengths[rows] = lengths


def readable_step(model: GPT, cache: KVCache) -> Callable[[list[int]], np.ndarray]:
    """What `FastStep` does, by the readable model: for a GPU."""

    def step(ids: list[int]) -> np.ndarray:
        features = model.features(torch.tensor(ids, device=cache.keys.device)[:, None], cache)
        return model.scores(features[:, -1]).float().cpu().numpy()

    return step


@torch.no_grad()
def draw(model: GPT, rows: Rows, params: SampleParams) -> list[tuple[Text, int]]:
    """The next id of each text."""
    logits, texts = rows.next_logits(), rows.texts
    if params.repetition_penalty != 1 or params.forbid_unknown:
        scores = [adjusted(row, text.ids, params) for row, text in zip(torch.from_numpy(logits), texts, strict=True)]
        logits = torch.stack(scores).numpy()
    for text, numbers in zip(texts, rows.random, strict=False):
        numbers.uniform_(generator=text.rng)
    ids, sure = race(logits, rows.uniform[: len(texts)], params)
    if not sure.all():
        for row in np.flatnonzero(~sure):
            ids[row] = decide(model, texts[row], rows.random[row], params)
    return list(zip(texts, ids.tolist(), strict=True))


def race(logits: np.ndarray, uniform: np.ndarray, params: SampleParams) -> tuple[np.ndarray, np.ndarray]:
    """The ids that `torch.multinomial` would draw, and of which that is sure: (B, V), (B, V) -> (B,), (B,).

    multinomial gives each entry a random e = -ln(1 - u) and takes the one with the largest
    odds / e. That is the one with the largest z - ln e, where z is the score over the temperature:
    a race that needs no softmax, and only the candidates that top_k leaves. It is not sure where
    another comes close, or where the winner stands at the edge of what top_k, top_p and min_p keep.
    """
    V, rows = logits.shape[1], np.arange(len(logits))
    top_k = min(params.top_k or V, V)
    n = 2 if params.temperature == 0 else min(top_k + SPARE, V)
    order = np.stack([highest(scores, n) for scores in logits])  # (B, N)
    values = logits[rows[:, None], order]
    penalty = params.repetition_penalty
    close = ROUNDING * max(penalty, 1 / penalty)  # it stretches differences, as a low temperature does
    if params.temperature == 0:
        return order[:, 0], values[:, 0] - values[:, 1] > close
    z, close = values / params.temperature, close / params.temperature
    lowest_in, highest_out = borders(z, top_k, close, params)

    e = -np.log1p(-uniform[rows[:, None], order])
    runs = np.where(z > lowest_in[:, None] - close, z - np.log(e), -np.inf)
    winner = runs.argmax(axis=1)
    runs_sorted = np.sort(runs, axis=1)
    sure = (runs_sorted[:, -1] - runs_sorted[:, -2] > close) & (z[rows, winner] - highest_out > close)
    return order[rows, winner], sure


def highest(scores: np.ndarray, n: int) -> np.ndarray:
    """The ids of the `n` highest scores, highest first: (V,) -> (n,).

    Sorting all would take longer than a step. The maxima of blocks of 8 say quickly what is high enough:
    if `n` of them reach a floor, so do at least `n` scores, and not many more.
    """
    n_blocks = len(scores) // 8
    if n > n_blocks // 2:
        return np.argsort(-scores)[:n]
    maxima = np.maximum.reduce(scores[: 8 * n_blocks].reshape(8, n_blocks))  # every n_blocks-th makes a block
    floor = np.partition(maxima, -n)[-n]
    ids = np.flatnonzero(scores >= floor)
    return ids[np.argsort(-scores[ids])[:n]]


def borders(z: np.ndarray, top_k: int, close: float, params: SampleParams) -> tuple[np.ndarray, np.ndarray]:
    """Of sorted scores (B, N) that may each be off by `close`: the lowest that may stay, the highest that may not."""
    N = z.shape[1]
    if params.top_p == 1 and params.min_p == 0:
        return z[:, top_k - 1], z[:, top_k] if top_k < N else np.float32(-np.inf)
    may_stay = surely_stay = np.full((len(z), 1), top_k)  # how many, from the highest down
    if params.top_p < 1:
        odds = np.exp(z[:, :top_k] - z[:, :1], dtype=np.float64)
        odds /= odds.sum(axis=1, keepdims=True)
        before = odds.cumsum(axis=1) - odds
        may_stay = np.minimum(may_stay, (before < params.top_p + close).sum(axis=1, keepdims=True))
        surely_stay = np.minimum(surely_stay, (before < params.top_p - close).sum(axis=1, keepdims=True))
    if params.min_p > 0:
        floor = z[:, :1] + np.log(params.min_p)
        may_stay = np.minimum(may_stay, (z > floor - close).sum(axis=1, keepdims=True))
        surely_stay = np.minimum(surely_stay, (z > floor + close).sum(axis=1, keepdims=True))
    beyond = np.concatenate([z, np.full((len(z), 1), -np.inf, z.dtype)], axis=1)
    return np.take_along_axis(z, may_stay - 1, 1)[:, 0], np.take_along_axis(beyond, surely_stay, 1)[:, 0]


def decide(model: GPT, text: Text, uniform: torch.Tensor, params: SampleParams) -> int:
    """The draw as the textbook's loop makes it, from the same random numbers."""
    logits = adjusted(last_logits(model, text.ids, text.n_prompt, params.overflow), text.ids, params)
    odds = next_token_odds(logits, params.temperature, params.top_k, params.top_p, params.min_p)
    return int((odds / -torch.log1p(-uniform).float()).argmax())
