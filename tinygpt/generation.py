"""Write on: the odds of the next character, a draw, and again."""

from typing import NamedTuple

import torch
from torch import Tensor

from tinygpt.model import GPT
from tinygpt.params import SampleParams
from tinygpt.vocab import BOS, EOS, Vocab


class Continuation(NamedTuple):
    """The new characters alone, and whether `<eos>` or the limit ended them."""

    text: str
    ended_by: str


def next_token_odds(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """Probabilities of the next token from its scores: (V,) -> (V,).

    Divide by the temperature, drop all but the `top_k` highest, softmax.

    Example: scores 4 3 2 1 0 at temperature 1 and top_k 3 give 0.665 0.245 0.090 0 0.
    """
    scaled = logits / temperature
    lowest_kept = scaled.topk(min(top_k, len(scaled))).values[-1]
    return scaled.masked_fill(scaled < lowest_kept, -torch.inf).softmax(dim=-1)


@torch.no_grad()
def continue_text(model: GPT, vocab: Vocab, prompt: str, seed: int, params: SampleParams) -> Continuation:
    """Continue `prompt` until `<eos>` or `params.max_new_chars`; the same seed writes the same text.

    Past the context, the model is given the last `context_size` tokens, their positions counted
    from 0 again.
    """
    device = next(model.parameters()).device
    rng = torch.Generator().manual_seed(seed)  # on the CPU, so that all devices draw the same numbers
    ids = [BOS, *vocab.encode(prompt).tolist()]
    new_ids: list[int] = []
    while len(new_ids) < params.max_new_chars:
        window = torch.tensor([ids[-model.params.context_size :]], device=device)  # (1, T)
        logits = model.lm_head(model.features(window)[0, -1])  # (V,)
        odds = next_token_odds(logits.float().cpu(), params.temperature, params.top_k)
        id = int(torch.multinomial(odds, 1, generator=rng))
        if id == EOS:
            return Continuation(vocab.decode(new_ids), "eos")
        ids.append(id)
        new_ids.append(id)
    return Continuation(vocab.decode(new_ids), "limit")
