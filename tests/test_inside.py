import math
from itertools import product

import numpy as np
import pytest
import torch

from tinygpt.checkpoint import TrainedModel
from tinygpt.inside import (
    attention_habits,
    entropy,
    head_stages,
    look,
    nearest_characters,
    position_cosines,
    predictions,
    random_scaling,
    rope_table,
    rotated_dots,
    sentence_ids,
    shape_letters,
    sizes,
    temperatures,
    trace,
    values,
)
from tinygpt.model import initial_model
from tinygpt.vocab import Vocab

VARIANTS = [
    {"norm": norm, "position": position, "mlp": mlp, "qk_norm": qk_norm, "tie_embeddings": qk_norm, "bias": not qk_norm}
    for norm, position, (mlp, qk_norm) in product(
        ("rmsnorm", "layernorm"), ("learned", "rope"), (("gelu", False), ("relu2", True), ("swiglu", True))
    )
] + [{"position": "learned", "logit_soft_cap": 0.1}]


def model_of(tiny_params, **changes):
    return initial_model(tiny_params.model_copy(update=changes), vocab_size=20, seed=0).eval()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_steps_of_a_trace_are_those_of_the_model(tiny_params, variant):
    model = model_of(tiny_params, **variant)
    ids = torch.arange(10).view(2, 5)
    steps = list(trace(model, ids))
    with torch.no_grad():
        torch.testing.assert_close(steps[-1].value, model(ids))
    read = [values(steps, "with_positions" if variant["position"] == "learned" else "token_vectors")[0]]
    read += values(steps, "after_mlp")[:-1]
    for x, added, after in zip(read, values(steps, "attention_out"), values(steps, "after_attention"), strict=True):
        torch.testing.assert_close(after, x + added)
    lengths = {
        "B": 2,
        "T": 5,
        "C": 16,
        "3C": 48,
        "H": 2,
        "D": 8,
        "V": 20,
        "F": model.blocks[0].mlp.up_proj.out_features,
    }
    for step in steps:
        assert list(step.value.shape) == [lengths[letter] for letter in step.letters.split(", ")], step.name


def test_the_shapes_write_the_block_out_once(tiny_model):
    letters = shape_letters(list(trace(tiny_model, torch.arange(5)[None])))
    assert list(letters)[:4] == ["ids", "token_vectors", "position_vectors", "with_positions"]
    assert list(letters)[-3:] == ["after_mlp", "final_norm", "logits"] and len(letters) == 24
    assert letters["qkv"] == "B, T, 3C" and letters["weights"] == "B, H, T, T" and letters["logits"] == "B, T, V"


def test_the_stages_of_a_head_follow_from_each_other(tiny_model):
    stages = head_stages(list(trace(tiny_model, torch.arange(10)[None])))
    q, k, v = (stages[name] for name in "qkv")
    torch.testing.assert_close(stages["scores"], q @ k.T)
    torch.testing.assert_close(stages["scaled"], q @ k.T / math.sqrt(8))
    future = torch.ones(8, 8).triu(diagonal=1) == 1
    assert (stages["masked"][future] == -math.inf).all() and (stages["weights"][future] == 0).all()
    torch.testing.assert_close(stages["masked"][~future], stages["scaled"][~future])
    torch.testing.assert_close(stages["weights"].sum(dim=-1), torch.ones(8))
    torch.testing.assert_close(stages["unscaled"], (stages["masked"] * math.sqrt(8)).softmax(dim=-1))
    torch.testing.assert_close(stages["read"], stages["weights"] @ v)


def test_entropy_by_hand():
    torch.testing.assert_close(entropy(torch.tensor([[0.25] * 4, [1.0, 0, 0, 0]])), torch.tensor([math.log(4), 0]))


def test_the_habits_of_heads_that_read_everything_alike(tiny_params):
    """With queries of 0 the rows are 1, 1/2 1/2, 1/3 1/3 1/3, …; the first position has no choice."""
    model = model_of(tiny_params, context_size=4)
    for block in model.blocks:
        block.attention.qkv_proj.weight.data[:16] = 0
        block.attention.qkv_proj.bias.data[:16] = 0
    rows = attention_habits(model, np.arange(10) % 20)
    assert [(row["block"], row["head"]) for row in rows] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    thirds = (1 / 2 + 1 / 3 + 1 / 4) / 3
    for row in rows:
        assert row["itself"] == row["previous"] == row["first"] == pytest.approx(thirds)
        assert row["distance"] == pytest.approx((1 / 2 + 1 + 3 / 2) / 3)
        assert row["entropy"] == row["entropy_unscaled"] == pytest.approx(math.log(24) / 3)
        assert row["sharp"] == row["sharp_unscaled"] == 0


def test_without_the_scaling_attention_is_sharper(tiny_params):
    model = model_of(tiny_params)
    for block in model.blocks:
        block.attention.qkv_proj.weight.data *= 40  # as large as after training
    for row in attention_habits(model, np.arange(200) % 20):
        assert row["entropy_unscaled"] < row["entropy"] - 0.1


def test_random_dot_products_grow_like_the_root_of_their_length():
    for row in random_scaling():
        assert row["std"] == pytest.approx(math.sqrt(row["width"]), rel=0.02)
        assert row["largest_scaled"] == pytest.approx(0.24, abs=0.02) and row["largest_scaled"] < row["largest"]


def test_rotated_dot_products_depend_on_the_distance_alone(tiny_params):
    q, k = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    found = rope_table(rotated_dots(model_of(tiny_params, position="rope"), q, k))
    assert found["spread"] < 1e-5
    assert list(found["lines"]) == [0, 3, 6] and len(found["lines"][3]) == 9
    assert found["lines"][0][0] == pytest.approx((q @ k).item(), rel=1e-5)  # both turned alike: not turned
    assert found["lines"][0][:6] == pytest.approx(found["lines"][6], rel=1e-4)
    assert max(found["lines"][0]) - min(found["lines"][0]) > 0.1


def test_the_spread_would_show_a_dot_product_that_depends_on_more():
    assert rope_table(torch.tensor([[1.0, 0.0], [2.0, 1.5]]))["spread"] == 0.5


def test_position_vectors_are_like_themselves(tiny_model):
    lines = position_cosines(tiny_model)["lines"]
    assert list(lines) == [1, 6, 10]
    for place, line in lines.items():
        assert line[place] == pytest.approx(1) and max(line) == pytest.approx(1) and len(line) == 12


def test_predictions_by_hand(book_vocab):
    """Scores ln 1, ln 2, … give the probabilities 1/28, 2/28, …"""
    logits = torch.arange(1, 8).log().repeat(2, 1)
    rows = predictions(logits, torch.tensor([1, 5]), book_vocab)
    assert [row["read"] for row in rows] == ["▶", "小"]
    assert [character for character, _ in rows[0]["likeliest"]] == ["跑", "小", "兔", "。", "■"]
    assert [p for _, p in rows[0]["likeliest"]] == pytest.approx([7 / 28, 6 / 28, 5 / 28, 4 / 28, 3 / 28])
    assert rows[0]["came"] == "小" and rows[0]["p"] == pytest.approx(6 / 28)
    assert rows[0]["nats"] == pytest.approx(math.log(28 / 6))
    assert "came" not in rows[1]


def test_temperatures_of_the_textbooks_scores(params):
    """Scores 4 3 2 1 0: 0.636 0.234 … at temperature 1; 0.665 0.245 0.090 with the three highest alone."""
    vocab = Vocab("在开很")
    sampling = params.sample.model_copy(update={"temperature": 1.0, "top_k": 3})
    rows = temperatures(torch.tensor([-9.0, 1.0, 0.0, 4.0, 3.0, 2.0]), vocab, sampling)
    assert [row["character"] for row in rows] == ["在", "开", "很", "▶", "■", None]
    assert [row["odds"][1] for row in rows[:3]] == pytest.approx([0.636, 0.234, 0.086], abs=5e-4)
    assert [row["odds"][3] for row in rows[:3]] == pytest.approx([0.665, 0.245, 0.090], abs=5e-4)
    assert rows[0]["odds"][2] < rows[0]["odds"][1] < rows[0]["odds"][0]
    for column in range(4):
        assert sum(row["odds"][column] for row in rows) == pytest.approx(1)


def test_the_nearest_characters_point_the_same_way(tiny_params, book_vocab):
    model = initial_model(tiny_params, len(book_vocab), seed=0)
    table = model.token_embedding.weight.data
    table[5] = 3 * table[4] + 0.01
    rows = nearest_characters(model, torch.tensor([1, 4, 4, 6]), book_vocab)
    assert [row["character"] for row in rows] == ["兔", "跑"]
    assert rows[0]["nearest"][0][0] == "小" and rows[0]["nearest"][0][1] > 0.98
    assert [character for character, _ in rows[0]["nearest"]][1:] in (["。", "跑"], ["跑", "。"])


def test_sizes_are_root_mean_squares(tiny_model):
    steps = list(trace(tiny_model, torch.arange(4)[None]))
    rows = sizes(steps)
    assert len(rows) == 2 and rows[0]["norm1"] == pytest.approx(1, abs=0.01)
    assert rows[1]["after_mlp"] == pytest.approx(values(steps, "after_mlp")[1].square().mean(-1).sqrt().mean().item())


@pytest.mark.parametrize("context_size", [1, 2, 12])
@pytest.mark.parametrize(
    "variant", [{}, {"position": "rope", "qk_norm": True, "mlp": "swiglu", "tie_embeddings": True}]
)
def test_every_model_can_be_looked_into(params, tiny_params, book_vocab, variant, context_size):
    changed = tiny_params.model_copy(update={**variant, "context_size": context_size})
    trained = TrainedModel(initial_model(changed, len(book_vocab), seed=0).eval(), book_vocab, 0, 10, 3.0)
    seen = look(trained, np.array([1, 5, 4, 6, 3, 2] * 3), "小兔跑。小猫跑。" * 5, params.sample)
    assert seen["labels"] == list("▶小兔跑。小□跑。小兔跑")[:context_size]
    assert len(seen["predictions"]) == context_size and len(seen["habits"]) == 4
    assert all(math.isfinite(value) for row in seen["habits"] for value in row.values())


def test_a_long_sentence_is_cut_to_what_an_axis_can_show(book_vocab):
    assert sentence_ids("小兔", book_vocab, 16).tolist() == [[1, 5, 4]]
    assert sentence_ids("小兔" * 50, book_vocab, 16).shape == (1, 16)
