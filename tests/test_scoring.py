import math

import pytest
import torch
from torch.nn import functional as F

from tinygpt.model import initial_model
from tinygpt.scoring import bits_to_name_unknown, score_text
from tinygpt.vocab import BOS, EOS, Vocab

VOCAB = Vocab("".join(sorted("一二三四五六七八九十百千万兔小狗猫")))


def test_equal_odds_cost_log2_of_the_vocabulary(tiny_params):
    model = initial_model(tiny_params, len(VOCAB), seed=0).eval()
    torch.nn.init.zeros_(model.lm_head.weight)
    score = score_text(model, VOCAB, "小兔" * 50)
    assert score.bits == pytest.approx([math.log2(20)] * 100)
    assert score.total_bits == pytest.approx(101 * math.log2(20))


@pytest.mark.parametrize("n", [0, 1, 10, 11, 12, 17, 18, 23, 24, 60, 411])
def test_every_character_is_scored_once_with_half_a_context_before_it(tiny_model, n):
    text = ("小兔一二三四五六七八" * 50)[:n]
    ids = [BOS, *VOCAB.encode(text).tolist(), EOS]
    score = score_text(tiny_model, VOCAB, text)
    bits = [*score.bits, score.end_bits]
    assert len(bits) == n + 1
    for target in range(1, len(ids)):
        start = 0 if target <= 12 else math.ceil((target - 12) / 6) * 6
        assert target - start > 6 or start == 0
        with torch.no_grad():
            logits = tiny_model(torch.tensor([ids[start:target]]))[0, -1]
        expected = F.cross_entropy(logits, torch.tensor(ids[target])).item() / math.log(2)
        assert bits[target - 1] == pytest.approx(expected, abs=1e-4), target


def test_unknown_characters_are_counted_apart(tiny_model):
    score = score_text(tiny_model, VOCAB, "小龙兔🐉龙")
    assert score.unknown == ["龙", "🐉"] and score.n_unknown == 3
    assert score.unknown_bits == pytest.approx(score.bits[1] + score.bits[3] + score.bits[4])
    assert bits_to_name_unknown(VOCAB) == pytest.approx(math.log2(1_112_064 - 17))
