"""Write on: the odds of the next character, a draw, and again.

This is the textbook's loop, which reads the whole window again for each character: the form to read.
`writing.py` writes the same many times as fast.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tinygpt.model import GPT, KVCache
from tinygpt.params import SampleParams
from tinygpt.vocab import BOS, EOS, UNK, Vocab


class Continuation(NamedTuple):
    """The new characters alone, and what ended them: `<eos>` ("eos"), a stop string ("stop") or the "limit"."""

    text: str
    ended_by: str


def next_token_odds(
    logits: Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> Tensor:
    """Probabilities of the next token from its scores: (V,) -> (V,).

    Divide by the temperature; drop all but the `top_k` highest (0: keep all), then all behind the
    first that together hold `top_p`, then those below `min_p` times the highest; softmax.
    Temperature 0 gives everything to the highest.
    Sources: top-p, Holtzman et al. 2019, arXiv 1904.09751; min-p, Nguyen et al. 2024, arXiv 2407.01082.

    Example: scores 4 3 2 1 0 at temperature 1 and top_k 3 give 0.665 0.245 0.090 0 0; a top_p of 0.9
    then leaves 0.731 0.269 0 0 0, because the first two hold 0.910.
    """
    if temperature == 0:
        return torch.zeros_like(logits).index_fill(0, logits.argmax(), 1.0)
    scaled = logits / temperature
    if top_k:
        lowest_kept = scaled.topk(min(top_k, len(scaled))).values[-1]
        scaled = scaled.masked_fill(scaled < lowest_kept, -torch.inf)
    if top_p < 1:
        odds, order = scaled.softmax(dim=-1).sort(descending=True, stable=True)
        before = odds.cumsum(dim=-1) - odds  # what the better ones hold together
        scaled = scaled.index_fill(0, order[before >= top_p], -torch.inf)
    if min_p > 0:
        scaled = scaled.masked_fill(scaled < scaled.max() + math.log(min_p), -torch.inf)
    return scaled.softmax(dim=-1)


def adjusted(logits: Tensor, ids: Sequence[int], params: SampleParams) -> Tensor:
    """Scores (V,) with the repetition penalty for all that stands in `ids`, and without `<unk>` if so wished.

    The penalty divides a positive score and multiplies a negative one.
    Source: Keskar et al. 2019, arXiv 1909.05858.
    """
    if params.repetition_penalty != 1:
        there = torch.tensor(sorted(set(ids)), device=logits.device)
        scores, penalty = logits[there], params.repetition_penalty
        logits = logits.index_copy(0, there, torch.where(scores > 0, scores / penalty, scores * penalty))
    if params.forbid_unknown:
        logits = logits.index_fill(0, torch.tensor([UNK], device=logits.device), -torch.inf)
    return logits


def window_start(n_ids: int, context_size: int, overflow: str) -> int:
    """Where the part of a text begins that the model is given, its positions counted from 0 again.

    slide: always the last `context_size`. shift: as few times half a context dropped as needed.

    Example: with a context of 128, 129 ids start at 1 (slide) or 64 (shift), 200 at 72 or 128.
    """
    too_many = max(0, n_ids - context_size)
    if overflow == "shift":
        half = (context_size + 1) // 2
        return math.ceil(too_many / half) * half
    return too_many


def last_logits(model: GPT, ids: Sequence[int], n_prompt: int, overflow: str) -> Tensor:
    """Scores (V,) of what comes after `ids`, the first `n_prompt` of which are the prompt; nothing is kept."""
    S, device = model.params.context_size, model.token_embedding.weight.device
    if overflow == "roll" and len(ids) > S:
        first = window_start(n_prompt, S, "slide")
        window = torch.tensor([ids[first:]], device=device)
        cache = KVCache(model.params, 1, device)
        features = model.features(window[:, :S], cache)
        for position in range(S, window.shape[1]):
            features = model.features(window[:, position : position + 1], cache)
    else:
        features = model.features(torch.tensor([ids[window_start(len(ids), S, overflow) :]], device=device))
    return model.scores(features[0, -1]).float().cpu()


@torch.no_grad()
def continue_text(model: GPT, vocab: Vocab, prompt: str, seed: int, params: SampleParams) -> Continuation:
    """Continue `prompt` until `<eos>`, a stop string or `params.max_new_chars`; the same seed writes the same text."""
    rng = torch.Generator().manual_seed(seed)  # on the CPU, so that all devices draw the same numbers
    text = Text.begin(vocab, prompt, rng)
    while not text.ended_by:
        logits = adjusted(last_logits(model, text.ids, text.n_prompt, params.overflow), text.ids, params)
        odds = next_token_odds(logits, params.temperature, params.top_k, params.top_p, params.min_p)
        text.add(int(torch.multinomial(odds, 1, generator=rng)), vocab, params)
    return Continuation(text.new_text, text.ended_by)


@dataclass(eq=False)
class Text:
    """A text in work: its ids with `<bos>` and prompt, its own random numbers, what ended it ("": nothing yet)."""

    ids: list[int]
    n_prompt: int
    rng: torch.Generator
    new_text: str = ""
    ended_by: str = ""

    @classmethod
    def begin(cls, vocab: Vocab, prompt: str, rng: torch.Generator) -> "Text":
        ids = [BOS, *vocab.encode(prompt).tolist()]
        return cls(ids, len(ids), rng)

    def add(self, id: int, vocab: Vocab, params: SampleParams) -> str:
        """Append a drawn id, see whether the text ends here; return the new character, if `id` has one."""
        if id == EOS:
            self.ended_by = "eos"
            return ""
        self.ids.append(id)
        character = vocab.decode([id])
        self.new_text += character
        if self.new_text.endswith(tuple(params.stop)):
            self.ended_by = "stop"
        elif len(self.ids) - self.n_prompt >= params.max_new_chars:
            self.ended_by = "limit"
        return character


def unknown_note(vocab: Vocab, prompt: str) -> str:
    """Which characters of `prompt` the vocabulary lacks and what that means, or "" if it has all.

    A traditional character gets a hint where the vocabulary has the simplified one.
    """
    unknown = vocab.unknown(prompt)
    if not unknown:
        return ""
    from opencc import OpenCC  # here: its dictionaries take a while to load, and few prompts need them

    simplify = OpenCC("t2s").convert
    pairs = [(character, simplify(character)) for character in unknown]
    known = [f"{simple} for {character}" for character, simple in pairs if not vocab.unknown(simple)]
    hint = f"; it has the simplified {', '.join(known)}" if known else ""
    return f"the vocabulary lacks {' '.join(unknown)}: read as <unk>{hint}"
