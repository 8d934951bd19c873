"""The fast step and the readable model with a cache are the model itself, up to rounding."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.test_model import VARIANTS
from tinygpt.fast_step import MANY_ROWS, FastStep, _gelu, weights_of
from tinygpt.model import KVCache, initial_model
from tinygpt.writing import ROUNDING, readable_step

V = 50


def noisy_model(tiny_params, variant):
    """Weights and biases away from where they start, and scores as wide as a trained model's."""
    params = tiny_params.model_copy(update=variant)
    model = initial_model(params, V, seed=0).eval()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.2 * torch.randn(weight.shape, generator=rng)
    return model


def some_ids(rows, n):
    return torch.randint(V, (rows, n), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(map(str, variant.values())))
@torch.no_grad()
def test_both_steps_are_the_model(tiny_params, variant):
    model = noisy_model(tiny_params, variant)
    ids = some_ids(3, 12)
    expected = model(ids)
    assert expected.abs().max() > 1
    readable, fast = KVCache(model.params, 3), KVCache(model.params, 3)
    steps = readable_step(model, readable), FastStep(model, fast)
    for cache in (readable, fast):
        model.features(ids[:, :4], cache)
    for position in range(4, 12):
        for step in steps:
            assert np.allclose(step(ids[:, position].tolist()), expected[:, position], rtol=0, atol=ROUNDING / 5)
    assert readable.lengths.tolist() == fast.lengths.tolist() == [12] * 3
    assert torch.allclose(readable.keys, fast.keys, atol=1e-5)


@pytest.mark.parametrize("mlp", ["gelu", "relu2", "swiglu"])
@torch.no_grad()
def test_many_rows_take_another_way_to_the_same(tiny_params, mlp):
    model = noisy_model(tiny_params, {"mlp": mlp, "norm": "layernorm"})
    ids = some_ids(MANY_ROWS, 12)
    step = FastStep(model, KVCache(model.params, MANY_ROWS))
    for position in range(12):
        scores = step(ids[:, position].tolist())
    assert np.allclose(scores, model(ids)[:, -1], rtol=0, atol=ROUNDING / 5)


@pytest.mark.parametrize("variant", [{"position": "learned"}, {"position": "rope"}, {"token_shift": True}])
@torch.no_grad()
def test_rows_of_different_lengths_do_not_see_each_other_or_the_filling(tiny_params, variant):
    model = noisy_model(tiny_params, variant)
    ids = some_ids(9, 12)
    lengths = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 1])  # of what is read first
    filled = ids.clone()
    filled[torch.arange(12) >= lengths[:, None]] = 7
    readable, fast = KVCache(model.params, 9), KVCache(model.params, 9)
    step = FastStep(model, fast)
    for cache in (readable, fast):
        model.features(filled[:, :8], cache)
        cache.lengths.copy_(lengths)
    for more in range(4):
        now = ids[torch.arange(9), lengths + more]
        slow = model.scores(model.features(now[:, None], readable))[:, 0]
        quick = step(now.tolist())
        for row, length in enumerate(lengths.tolist()):
            expected = model(ids[row : row + 1, : length + more + 1])[0, -1]
            assert torch.allclose(slow[row], expected, atol=ROUNDING / 5)
            assert np.allclose(quick[row], expected, rtol=0, atol=ROUNDING / 5)


@torch.no_grad()
def test_a_smaller_batch_has_the_first_rows(tiny_params):
    model = noisy_model(tiny_params, {})
    ids = some_ids(2, 3)
    cache = KVCache(model.params, 5)
    step = FastStep(model, cache)
    for position in range(3):
        scores = step(ids[:, position].tolist())
    assert np.allclose(scores, model(ids)[:, -1], rtol=0, atol=ROUNDING / 5)
    assert cache.lengths.tolist() == [3, 3, 0, 0, 0]


@pytest.mark.parametrize("token_shift", [False, True])
@torch.no_grad()
def test_a_rolling_cache_is_a_window_over_positions_without_end(tiny_params, token_shift):
    """Against attention over the whole text with a mask that hides what is 12 or more positions back."""
    model = noisy_model(tiny_params, {"position": "rope", "token_shift": token_shift})
    ids = some_ids(2, 40)
    wide = initial_model(model.params.model_copy(update={"context_size": 40}), V, seed=0).eval()
    wide.load_state_dict(model.state_dict())
    far = torch.ones(40, 40, dtype=torch.bool).tril(-12)
    for block in wide.blocks:
        block.attention.mask.masked_fill_(far, -torch.inf)
        block.attention.attend = lambda q, k, v, mask, dropout: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    expected = wide(ids)
    readable, fast = KVCache(model.params, 2), KVCache(model.params, 2)
    step = FastStep(model, fast)
    for position in range(40):
        slow = model.scores(model.features(ids[:, position : position + 1], readable))[:, 0]
        assert torch.allclose(slow, expected[:, position], atol=ROUNDING / 2), position  # angles grow with the position
        assert np.allclose(step(ids[:, position].tolist()), expected[:, position], rtol=0, atol=ROUNDING / 2), position


def test_gelu_is_pytorchs():
    x = torch.cat([torch.linspace(-12, 12, 10_001), torch.tensor([0.0, -0.0, 1e-20, -1e-20, 50, -50])])
    assert np.abs(_gelu(x.numpy()) - F.gelu(x.double()).numpy()).max() < 1e-6


@torch.no_grad()
def test_the_weights_are_made_once_and_again_when_they_change(tiny_params):
    model = noisy_model(tiny_params, {})
    first = weights_of(model)
    assert weights_of(model) is first
    model.lm_head.bias[3] += 5
    step = FastStep(model, KVCache(model.params, 1))
    assert np.allclose(step([7]), model(torch.tensor([[7]]))[:, 0], rtol=0, atol=ROUNDING / 5)
    other = noisy_model(tiny_params, {})
    model.load_state_dict(other.state_dict())
    assert np.array_equal(weights_of(model).tokens, weights_of(other).tokens)
    assert np.array_equal(weights_of(model).head.bias, weights_of(other).head.bias)
