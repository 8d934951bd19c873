"""What `generate` writes is what the textbook's loop writes, whatever it is written beside."""

import itertools

import numpy as np
import pytest
import torch

from tests.test_model import VARIANTS
from tinygpt import writing
from tinygpt.generation import continue_text, next_token_odds
from tinygpt.model import initial_model
from tinygpt.vocab import EOS, Vocab
from tinygpt.writing import Rows, Text, generate, highest, race, write

VOCAB = Vocab("".join(sorted("一二三四五六七八九十百千万兔小狗猫")))
PROMPTS = ["小兔", "", "一二三四五六七八", "小狗小猫小兔小狗小猫小兔小狗小猫小兔", "龙"]
SEEDS = [3, 1, 4, 1, 5]


def lively_model(tiny_params, **variant):
    """Scores wide enough that texts differ, and `<eos>` likely enough that some end."""
    model = initial_model(tiny_params.model_copy(update=variant), len(VOCAB), seed=0).eval()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=rng)
        model.lm_head.weight *= 1.5
        model.lm_head.weight[EOS] *= 0.1
    return model


@pytest.fixture
def controls(params):
    return lambda **values: params.sample.model_copy(update={"max_new_chars": 30, **values})


def alone(model, controls):
    return [continue_text(model, VOCAB, *each, controls) for each in zip(PROMPTS, SEEDS, strict=True)]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(map(str, variant.values())))
def test_every_variant_writes_what_the_textbooks_loop_writes(tiny_params, controls, variant):
    model = lively_model(tiny_params, **variant)
    for temperature in (0.0, 0.9):
        settings = controls(temperature=temperature)
        texts = generate(model, VOCAB, PROMPTS, SEEDS, settings)
        assert texts == alone(model, settings)
    assert sum(len(text.text) for text in texts) > 20


CONTROLS = [
    {"top_k": 0},
    {"top_k": 3},
    {"top_p": 0.7},
    {"top_k": 0, "top_p": 0.5},
    {"min_p": 0.2},
    {"top_k": 8, "top_p": 0.9, "min_p": 0.05},
    {"repetition_penalty": 1.5},
    {"forbid_unknown": True, "temperature": 2.0},
    {"stop": ["小", "三四"]},
    {"temperature": 0.05},
]


@pytest.mark.parametrize("overflow", ["slide", "shift", "roll"])
@pytest.mark.parametrize("control", CONTROLS, ids=str)
def test_every_control_and_overflow_too(tiny_params, controls, control, overflow):
    model = lively_model(tiny_params, position="rope" if overflow == "roll" else "learned")
    settings = controls(overflow=overflow, max_new_chars=20, **control)
    assert generate(model, VOCAB, PROMPTS, SEEDS, settings) == alone(model, settings)


def test_the_overflow_makes_a_difference(tiny_params, controls):
    model = lively_model(tiny_params, position="rope")
    model.lm_head.bias.data[EOS] = -100
    texts = [
        generate(model, VOCAB, ["小兔"], [0], controls(overflow=how))[0].text for how in ("slide", "shift", "roll")
    ]
    assert len({text[:9] for text in texts}) == 1  # <bos>, two of the prompt and nine: the context of 12
    assert len(set(texts)) == 3


def test_rolling_is_refused_for_learned_positions(tiny_model, controls):
    with pytest.raises(ValueError, match=r"overflow = roll needs a model with model.position = rope.*slide or shift"):
        generate(tiny_model, VOCAB, ["小兔"], [0], controls(overflow="roll"))


def test_a_text_does_not_depend_on_its_company(tiny_params, controls, monkeypatch):
    model = lively_model(tiny_params)
    monkeypatch.setattr(writing, "MAX_ROWS", 4)  # so that some wait
    prompts, seeds = PROMPTS * 2, range(10)
    settings = controls(max_new_chars=16)
    together = generate(model, VOCAB, prompts, seeds, settings)
    assert together == [
        generate(model, VOCAB, [prompt], [seed], settings)[0] for prompt, seed in zip(prompts, seeds, strict=True)
    ]
    assert {text.ended_by for text in together} == {"eos", "limit"}


def test_without_the_fast_step_the_same_is_written(tiny_params, controls, monkeypatch):
    """As on a GPU, where the readable model makes the steps."""
    model = lively_model(tiny_params, position="rope")
    settings = controls(overflow="shift")
    fast = generate(model, VOCAB, PROMPTS, SEEDS, settings)
    monkeypatch.setattr(writing, "FastStep", writing.readable_step)
    assert generate(model, VOCAB, PROMPTS, SEEDS, settings) == fast


def test_pieces_make_the_texts(tiny_params, controls):
    model = lively_model(tiny_params)
    pieces = list(write(model, VOCAB, PROMPTS, SEEDS, controls()))
    texts = generate(model, VOCAB, PROMPTS, SEEDS, controls())
    for number, text in enumerate(texts):
        mine = [piece for piece in pieces if piece.number == number]
        assert "".join(piece.text for piece in mine) == text.text
        assert [piece.ended_by for piece in mine] == [""] * (len(mine) - 1) + [text.ended_by]
        assert all(len(piece.text) <= 1 for piece in mine)
    first_numbers = [piece.number for piece in pieces[:5]]
    assert sorted(first_numbers) == [0, 1, 2, 3, 4]  # all at once, not one after the other


def test_a_draw_that_rounding_could_turn_is_decided_by_the_textbooks_loop(tiny_params, controls, monkeypatch):
    """With a margin so wide that it always applies, the decision is always the textbook's, and the text the same."""
    model = lively_model(tiny_params)
    expected = alone(model, controls())
    decided = []
    decide = writing.decide
    monkeypatch.setattr(writing, "decide", lambda *args: decided.append(1) or decide(*args))
    assert generate(model, VOCAB, PROMPTS, SEEDS, controls()) == expected
    few = len(decided)
    monkeypatch.setattr(writing, "ROUNDING", 1e6)
    assert generate(model, VOCAB, PROMPTS, SEEDS, controls()) == expected
    n_drawn = sum(len(text.text) + (text.ended_by == "eos") for text in expected)
    assert len(decided) - few >= n_drawn > 50 * few


@pytest.mark.parametrize(("top_k", "top_p", "min_p"), list(itertools.product((0, 5, 40), (1.0, 0.8), (0.0, 0.1))))
def test_the_race_is_multinomial(controls, top_k, top_p, min_p):
    settings = controls(top_k=top_k, top_p=top_p, min_p=min_p)
    rng = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(40, 300, generator=rng)
    uniform = torch.empty(40, 300, dtype=torch.float64)
    expected = []
    for row, scores in enumerate(logits):
        odds = next_token_odds(scores, settings.temperature, top_k, top_p, min_p)
        expected.append(int(torch.multinomial(odds, 1, generator=torch.Generator().manual_seed(row))))
        uniform[row].uniform_(generator=torch.Generator().manual_seed(row))
    ids, sure = race(logits.numpy(), uniform.numpy(), settings)
    assert sure.mean() > 0.9
    assert ids[sure].tolist() == np.array(expected)[sure].tolist()
    assert len(set(expected)) > 20


def test_the_race_is_not_sure_of_ties_and_borders(controls):
    """The same u for all lets the best of 2 1 0 -1 win; a close second, or a border at the winner, make doubt."""
    uniform = np.full((1, 4), 0.5)
    scores = np.array([[2.0, 1.0, 0.0, -1.0]], dtype=np.float32)
    for settings, clear in (
        (controls(top_k=1), True),
        (controls(temperature=0.0), True),
        (controls(top_k=0, top_p=0.3), True),
    ):
        ids, sure = race(scores, uniform, settings)
        assert ids.tolist() == [0] and sure.tolist() == [clear]
        close = scores.copy()
        close[0, 1] = 2.0 - 1e-5
        assert not race(close, uniform, settings)[1][0]
    odds = next_token_odds(torch.from_numpy(scores[0]), 1.0)
    border = float(odds[0])  # the second stays or goes with the last bit of this
    uniform[0, 1] = 1e-9  # and it would win
    ids, sure = race(scores, uniform, controls(temperature=1.0, top_k=0, top_p=border))
    assert not sure[0]
    ids, sure = race(scores, uniform, controls(temperature=1.0, top_k=0, top_p=border + 0.01))
    assert sure[0] and ids[0] == 1
    ids, sure = race(scores, uniform, controls(temperature=1.0, top_k=0, top_p=border - 0.01))
    assert sure[0] and ids[0] == 0


@pytest.mark.parametrize("V", [20, 400, 403, 2465])
def test_the_highest_are_the_first_of_all_sorted(V):
    for seed in range(20):
        scores = torch.randn(V, generator=torch.Generator().manual_seed(seed))
        for n in (1, 2, 10, 20):
            assert highest(scores.numpy(), n).tolist() == scores.sort(descending=True).indices[:n].tolist()


def test_each_position_is_read_once(tiny_params, controls, monkeypatch):
    model = lively_model(tiny_params)
    model.lm_head.bias.data[EOS] = -100
    read = []
    features = model.features
    monkeypatch.setattr(
        model, "features", lambda ids, cache=None: read.append(tuple(ids.shape)) or features(ids, cache)
    )
    monkeypatch.setattr(writing, "ROUNDING", 0.0)
    generate(model, VOCAB, ["小兔"], [0], controls(max_new_chars=9))
    assert read == [(1, 2)]  # <bos> and the first of the prompt; the steps read the rest
    read.clear()
    generate(model, VOCAB, ["小兔"], [0], controls(max_new_chars=12))
    assert read == [(1, 2), (1, 12), (1, 12)]  # 12 ids and one, 12 and two: the window slides
    read.clear()
    generate(model, VOCAB, ["小兔"], [0], controls(max_new_chars=16, overflow="shift"))
    assert read == [(1, 2), (1, 6)]  # half the context, read again


def test_remove_keeps_the_other_rows(tiny_params):
    model = lively_model(tiny_params)
    texts = [Text.begin(VOCAB, prompt, torch.Generator()) for prompt in ("小兔", "一二三", "小狗小猫")]
    rows = Rows(model, list(texts), "slide")
    rows.next_logits()
    for text, id in zip(texts, (5, 6, 7), strict=True):
        text.ids.append(id)
    rows.remove(texts[0])
    assert rows.texts == [texts[2], texts[1]]
    with torch.no_grad():
        expected = [model(torch.tensor([text.ids]))[0, -1].numpy() for text in rows.texts]
    assert np.allclose(rows.next_logits(), expected, atol=1e-5)
