"""What each character of a text costs a model: its surprise."""

import math
import sys
from typing import NamedTuple

import torch

from tinygpt.model import GPT, next_token_nats
from tinygpt.vocab import BOS, EOS, UNK, Vocab

WINDOWS_AT_ONCE = 32
N_CHARACTERS = sys.maxunicode + 1 - 0x800  # of Unicode, which has no characters in the surrogates' range


class Score(NamedTuple):
    """Bits of each character in turn, and of the `<eos>` behind them."""

    text: str
    bits: list[float]
    end_bits: float
    unknown: list[str]
    n_unknown: int
    unknown_bits: float

    @property
    def total_bits(self) -> float:
        return sum(self.bits) + self.end_bits


@torch.no_grad()
def score_text(model: GPT, vocab: Vocab, text: str) -> Score:
    """Read `<bos>` text `<eos>` once; bits are -log2 p of what comes next.

    The windows overlap by half: beyond the first one, a character sees at least half a context before it.
    An unknown character costs what `<unk>` costs; see `bits_to_name_unknown` for what that leaves out.
    """
    ids = [BOS, *vocab.encode(text).tolist(), EOS]
    device = model.token_embedding.weight.device
    S = model.params.context_size
    half = (S + 1) // 2
    starts = [0, *range(half, len(ids) - 1 - (S - half), half)]  # each later window adds `half` new targets
    bits: list[float] = []
    for first in range(0, len(starts), WINDOWS_AT_ONCE):
        chunk = starts[first : first + WINDOWS_AT_ONCE]
        rows = [(ids[start : start + S + 1] + [EOS] * S)[: S + 1] for start in chunk]  # the filling is never counted
        window = torch.tensor(rows, device=device)  # (B, S + 1)
        nats = next_token_nats(model(window[:, :-1]).float(), window[:, 1:]).cpu().double()  # (B, S)
        for start, row in zip(chunk, nats.tolist(), strict=True):
            bits += [nat / math.log(2) for nat in row[len(bits) - start : len(ids) - 1 - start]]
    assert len(bits) == len(ids) - 1
    unknown_bits = [bit for id, bit in zip(ids[1:], bits, strict=True) if id == UNK]
    return Score(text, bits[:-1], bits[-1], vocab.unknown(text), len(unknown_bits), sum(unknown_bits))


def bits_to_name_unknown(vocab: Vocab) -> float:
    """What it takes to say which character an `<unk>` stands for: one of all that the vocabulary lacks, evenly."""
    return math.log2(N_CHARACTERS - len(vocab.characters))
