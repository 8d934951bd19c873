import math

import pytest
import torch

from tinygpt.generation import continue_text, next_token_odds
from tinygpt.model import initial_model
from tinygpt.vocab import EOS, Vocab

SCORES = torch.tensor([4.0, 3, 2, 1, 0])
VOCAB = Vocab("".join(sorted("一二三四五六七八九十百千万兔小狗猫")))


@pytest.fixture
def sample_params(params):
    return params.sample.model_copy(update={"max_new_chars": 30})


def test_temperature_and_top_k_by_hand():
    assert next_token_odds(SCORES, 1.0, 5).tolist() == pytest.approx([0.636, 0.234, 0.086, 0.032, 0.012], abs=5e-4)
    assert next_token_odds(SCORES, 1.0, 3).tolist() == pytest.approx([0.665, 0.245, 0.090, 0, 0], abs=5e-4)
    assert next_token_odds(SCORES, 1.0, 99).tolist() == next_token_odds(SCORES, 1.0, 5).tolist()
    assert next_token_odds(SCORES, 1.0, 1).tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("temperature", [0.25, 0.8, 1.0, 2.0, 10.0])
def test_temperature_sets_the_ratio_and_keeps_the_order(temperature):
    odds = next_token_odds(SCORES, temperature, 5)
    assert (odds[0] / odds[1]).item() == pytest.approx(math.exp(1 / temperature), rel=1e-5)
    assert odds.argsort(descending=True).tolist() == [0, 1, 2, 3, 4]
    assert odds.sum().item() == pytest.approx(1)


def test_the_same_seed_writes_the_same_text(tiny_model, sample_params):
    texts = [continue_text(tiny_model, VOCAB, "小兔", seed, sample_params).text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_beyond_the_context_the_last_ids_are_fed_from_position_0(tiny_params, sample_params, monkeypatch):
    model = initial_model(tiny_params, len(VOCAB), seed=0).eval()
    model.lm_head.bias.data[EOS] = -100  # never end
    fed = []
    features = model.features
    monkeypatch.setattr(model, "features", lambda ids: fed.append(ids[0].tolist()) or features(ids))
    written = continue_text(model, VOCAB, "小兔", 0, sample_params)
    assert written.ended_by == "limit" and len(fed) == 30
    ids = [1, *VOCAB.encode("小兔").tolist(), *VOCAB.encode(written.text).tolist()]
    if len(ids) == 33:  # no special was drawn on the way
        assert fed == [ids[max(0, n - 12) : n] for n in range(3, 33)]
    assert [len(window) for window in fed] == [min(n, 12) for n in range(3, 33)]


def test_writing_stops_at_eos(tiny_model, sample_params):
    tiny_model.lm_head.bias.data[EOS] = 100
    assert continue_text(tiny_model, VOCAB, "小兔", 0, sample_params) == ("", "eos")


def test_unknown_characters_of_a_prompt_do_not_stop_it(tiny_model, sample_params):
    assert continue_text(tiny_model, VOCAB, "龙🐉", 0, sample_params).text
