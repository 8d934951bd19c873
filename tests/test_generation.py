import math

import pytest
import torch

from tinygpt.generation import adjusted, continue_text, last_logits, next_token_odds, unknown_note, window_start
from tinygpt.model import initial_model
from tinygpt.vocab import EOS, UNK, Vocab

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


def test_top_p_by_hand():
    # at temperature 1 the odds are 0.636 0.234 0.086 0.032 0.012; what stands before each: 0 0.636 0.871 0.957 0.988
    kept = {top_p: int((next_token_odds(SCORES, 1.0, 0, top_p) > 0).sum()) for top_p in (0.5, 0.65, 0.9, 0.96, 1.0)}
    assert kept == {0.5: 1, 0.65: 2, 0.9: 3, 0.96: 4, 1.0: 5}
    odds = next_token_odds(SCORES, 1.0, 0, 0.65)
    assert odds.tolist() == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e), 0, 0, 0])
    # of the three that top_k leaves (0.665 0.245 0.090) the first two hold 0.910
    assert next_token_odds(SCORES, 1.0, 3, 0.9).tolist() == pytest.approx([0.731, 0.269, 0, 0, 0], abs=5e-4)


def test_min_p_by_hand():
    # each is e^-1 = 0.368 times the one before it: 1, 0.368, 0.135, 0.050, 0.018 of the best
    kept = {min_p: int((next_token_odds(SCORES, 1.0, 0, 1.0, min_p) > 0).sum()) for min_p in (0.01, 0.04, 0.1, 0.2, 1)}
    assert kept == {0.01: 5, 0.04: 4, 0.1: 3, 0.2: 2, 1: 1}


def test_temperature_0_takes_the_best():
    assert next_token_odds(SCORES.flip(0), 0.0, 40).tolist() == [0, 0, 0, 0, 1]


def test_repetition_penalty_and_forbidden_unknowns_by_hand(params):
    scores = torch.tensor([5.0, 2.0, -2.0, 3.0])
    penalised = params.sample.model_copy(update={"repetition_penalty": 2.0})
    assert adjusted(scores, [1, 2, 1], penalised).tolist() == [5, 1, -4, 3]
    forbidden = params.sample.model_copy(update={"forbid_unknown": True})
    assert adjusted(scores, [1, 2, 1], forbidden).tolist() == [-math.inf, 2, -2, 3]
    assert adjusted(scores, [1, 2, 1], params.sample) is scores and UNK == 0


def test_where_the_window_starts_by_hand():
    lengths = [127, 128, 129, 130, 192, 193, 256, 257]
    assert [window_start(n, 128, "slide") for n in lengths] == [0, 0, 1, 2, 64, 65, 128, 129]
    assert [window_start(n, 128, "shift") for n in lengths] == [0, 0, 64, 64, 64, 128, 128, 192]
    assert all(n - window_start(n, S, "shift") <= S for S in (1, 2, 3, 12) for n in range(1, 60))


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


def test_writing_stops_behind_a_string(tiny_model, sample_params):
    tiny_model.lm_head.bias.data[EOS] = -100
    whole = continue_text(tiny_model, VOCAB, "小兔", 0, sample_params).text
    for stop in (whole[3], whole[5:8]):
        written = continue_text(tiny_model, VOCAB, "小兔", 0, sample_params.model_copy(update={"stop": ["没有", stop]}))
        assert written == (whole[: whole.index(stop) + len(stop)], "stop")


def test_a_forbidden_unknown_is_never_drawn(tiny_model, sample_params, monkeypatch):
    tiny_model.lm_head.bias.data[UNK] = 100
    assert continue_text(tiny_model, VOCAB, "小兔", 0, sample_params) == ("", "limit")  # <unk> has no character
    forbidding = sample_params.model_copy(update={"forbid_unknown": True})
    assert continue_text(tiny_model, VOCAB, "小兔", 0, forbidding).text


def test_rolling_reads_as_far_back_as_the_layers_reach(tiny_params):
    """A layer sees the last 12 positions, so 2 layers see 23: more than a window, less than all."""
    model = initial_model(tiny_params.model_copy(update={"position": "rope"}), len(VOCAB), seed=0).eval()
    ids = torch.randint(3, 20, (40,), generator=torch.Generator().manual_seed(0)).tolist()
    with torch.no_grad():
        before = last_logits(model, ids, 1, "roll")
        for place, seen in ((40 - 24, False), (40 - 23, True), (40 - 13, True)):
            changed = [*ids[:place], ids[place] % 17 + 3, *ids[place + 1 :]]
            assert changed != ids
            assert torch.allclose(before, last_logits(model, changed, 1, "roll"), atol=1e-7) is not seen, place


def test_a_note_names_unknown_characters_and_their_simplified_form():
    vocab = Vocab("".join(sorted("从前有一只小龙个，")))
    assert unknown_note(vocab, "从前有一只小龙") == ""
    assert unknown_note(vocab, "從前有個龍🐉龍") == (
        "the vocabulary lacks 從 個 龍 🐉: read as <unk>; it has the simplified 从 for 從, 个 for 個, 龙 for 龍"
    )
    assert unknown_note(vocab, "🐉") == "the vocabulary lacks 🐉: read as <unk>"


def test_unknown_characters_of_a_prompt_do_not_stop_it(tiny_model, sample_params):
    assert continue_text(tiny_model, VOCAB, "龙🐉", 0, sample_params).text
