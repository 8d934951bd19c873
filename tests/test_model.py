import itertools
import math
import re

import pytest
import torch
from torch.nn import functional as F

from tinygpt.model import (
    GPT,
    Block,
    CausalSelfAttention,
    RMSNorm,
    RotaryPosition,
    attention_weights,
    causal_mask,
    fast_attention,
    fused_attention,
    initial_model,
    next_token_nats,
    parameter_table,
    readable_attention,
)

VARIANTS = [
    {"norm": norm, "position": position, "mlp": mlp, "bias": bias, "tie_embeddings": tie, "qk_norm": qk_norm}
    for norm, position, mlp, bias, tie, qk_norm in itertools.product(
        ("rmsnorm", "layernorm"), ("learned", "rope"), ("gelu", "relu2", "swiglu"), *[(True, False)] * 3
    )
]


def n_parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def random_qkv(seed=0, B=2, H=3, T=7, D=4):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(B, H, T, D, generator=rng, requires_grad=True) for _ in range(3)]


# The textbook's worked examples.


def test_the_default_model_has_the_textbooks_parameter_count(params):
    assert n_parameters(GPT(params.model, vocab_size=3035)) == 1_588_571


def test_one_small_block_has_236_parameters(params):
    block = Block(params.model.model_copy(update={"n_embd": 4, "n_head": 2}))
    assert block.mlp.up_proj.out_features == 16
    assert n_parameters(block.attention) == 80
    assert n_parameters(block.mlp) == 148
    assert n_parameters(block) == 236


def test_rmsnorm_by_hand():
    assert torch.allclose(RMSNorm(4)(torch.tensor([0.0, 0, 0, 4])), torch.tensor([0.0, 0, 0, 2]), atol=1e-5)
    x = torch.tensor([1.0, 2, 3, 4])
    assert torch.allclose(RMSNorm(4)(100 * x), RMSNorm(4)(x), atol=1e-5)  # the scale of the input is gone


def test_attention_by_hand():
    q = torch.tensor([[math.sqrt(2), 0.0]]).repeat(4, 1)
    k = torch.tensor([[0.0, 0], [math.log(2), 0], [0, 0], [math.log(2), 0]])
    v = torch.tensor([[1.0, 0], [0, 1], [2, 0], [0, 2]])
    weights = attention_weights(q, k, causal_mask(4))
    # the last position reads all four; the one before it only the first three
    assert torch.allclose(weights[3], torch.tensor([1 / 6, 2 / 6, 1 / 6, 2 / 6]))
    assert torch.allclose(weights[2], torch.tensor([1 / 4, 2 / 4, 1 / 4, 0]))
    for attend in (readable_attention, fused_attention):
        out = attend(*(part[None, None] for part in (q, k, v)), causal_mask(4))
        assert torch.allclose(out[0, 0, 3], torch.tensor([0.5, 1.0]))


@pytest.mark.parametrize(("logits", "nats"), [([0.0] * 6, 1.7918), ([2.0, 0, 0, 0, 0, 0], 0.5168)])
def test_loss_by_hand(logits, nats):
    loss = next_token_nats(torch.tensor([[logits]]), torch.tensor([[0]]))
    assert loss.shape == (1, 1)
    assert loss.item() == pytest.approx(nats, abs=5e-5)


# Attention.


def test_every_row_of_weights_sums_to_one_and_the_future_has_none():
    q, k, _ = random_qkv()
    weights = attention_weights(q, k, causal_mask(7))
    future = torch.ones(7, 7, dtype=torch.bool).triu(1)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 7))
    assert (weights[..., future] == 0).all()
    assert (weights[..., ~future] > 0).all()


def test_the_fused_form_agrees_with_the_readable_one_values_and_gradients():
    readable, fused = random_qkv(), random_qkv()
    one, other = readable_attention(*readable, causal_mask(7)), fused_attention(*fused, causal_mask(7))
    assert torch.allclose(one, other, atol=1e-6)
    direction = torch.randn(one.shape, generator=torch.Generator().manual_seed(1))
    (one * direction).sum().backward()
    (other * direction).sum().backward()
    for a, b in zip(readable, fused, strict=True):
        assert torch.allclose(a.grad, b.grad, atol=1e-6)


def test_attention_is_pytorchs_multi_head_attention(tiny_params):
    ours = CausalSelfAttention(tiny_params)
    theirs = torch.nn.MultiheadAttention(tiny_params.n_embd, tiny_params.n_head, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.qkv_proj.weight)
        theirs.in_proj_bias.copy_(ours.qkv_proj.bias)
    theirs.out_proj = ours.o_proj
    x = torch.randn(2, 9, tiny_params.n_embd, generator=torch.Generator().manual_seed(0))
    mask = torch.nn.Transformer.generate_square_subsequent_mask(9)
    expected, _ = theirs(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)
    assert torch.allclose(ours(x), expected, atol=1e-6)


def test_a_rotated_dot_product_depends_on_the_distance_alone():
    rotate = RotaryPosition(head_size=8, context_size=16)
    rng = torch.Generator().manual_seed(0)
    q, k = torch.randn(8, generator=rng), torch.randn(8, generator=rng)
    q_everywhere, k_everywhere = (rotate(x.expand(1, 1, 16, 8))[0, 0] for x in (q, k))
    dots = q_everywhere @ k_everywhere.T  # (16, 16)
    for distance in range(-15, 16):
        diagonal = dots.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4)
    assert dots[0, 0].item() == pytest.approx((q @ k).item(), abs=1e-5)  # position 0 turns nothing
    assert abs(dots[0, 3] - dots[0, 5]) > 1e-3


# The whole model.


@pytest.mark.parametrize("fused", [False, True])
def test_changing_the_future_leaves_the_past_unchanged(tiny_model, fused):
    for block in tiny_model.blocks:
        block.attention.attend = fast_attention if fused else readable_attention
    ids = torch.arange(12)[None] + 3
    changed = ids.clone()
    changed[0, 8:] = 19
    before, after = tiny_model(ids), tiny_model(changed)
    if fused:
        assert torch.allclose(before[:, :8], after[:, :8], atol=1e-6)
    else:
        assert torch.equal(before[:, :8], after[:, :8])  # bit for bit
    assert not torch.allclose(before[:, 8:], after[:, 8:], atol=1e-3)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: "-".join(map(str, variant.values())))
def test_every_variant(tiny_params, variant):
    V = 50
    params = tiny_params.model_copy(update=variant)
    model = initial_model(params, V, seed=0)
    ids = torch.randint(V, (4, 12), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[:, 8:] = 1

    logits = model(ids)
    assert logits.shape == (4, 12, V)
    assert torch.allclose(logits[:, :8], model(changed)[:, :8], atol=1e-6)  # causal

    targets = torch.randint(V, (4, 12), generator=torch.Generator().manual_seed(1))
    loss = next_token_nats(logits, targets).mean()
    assert loss.item() == pytest.approx(math.log(V), rel=0.03)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name

    table = parameter_table(params, V)
    assert sum(count for _, _, count in table) == n_parameters(model)
    F_width = model.blocks[0].mlp.up_proj.out_features
    symbols = {"V": V, "T": 12, "C": 16, "D": 8, "F": F_width, "L": 2}
    for part, formula, count in table:
        assert eval(formula.replace("×", "*"), {}, symbols) == count, (part, formula)


def test_order_matters(tiny_model):
    cat_dog, dog_cat = torch.tensor([[5, 7, 9]]), torch.tensor([[9, 7, 5]])
    assert not torch.allclose(tiny_model(cat_dog)[0, -1], tiny_model(dog_cat)[0, -1], atol=1e-4)


def test_the_seed_makes_the_weights(tiny_params):
    one, same, other = (initial_model(tiny_params, 20, seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])


def test_dropout_acts_in_training_alone(tiny_params):
    model = initial_model(tiny_params.model_copy(update={"dropout": 0.5}), 20, seed=0)
    ids = torch.arange(12)[None]
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


def test_the_model_learns_one_batch_by_heart(tiny_params):
    model = initial_model(tiny_params, 20, seed=0)
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.randint(20, (2, 12), generator=rng) for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(200):
        optimizer.zero_grad()
        loss = next_token_nats(model(x), y).mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05


def test_no_ready_made_attention_in_the_product():
    from tests.conftest import ROOT

    for path in [*(ROOT / "tinygpt").glob("*.py"), *(ROOT / "stages").glob("*.py")]:
        assert not re.search(r"MultiheadAttention|TransformerEncoder", path.read_text(encoding="utf-8")), path


def test_next_token_nats_is_cross_entropy():
    rng = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(2, 5, 7, generator=rng), torch.randint(7, (2, 5), generator=rng)
    nats = next_token_nats(logits, targets)
    assert nats[1, 3].item() == pytest.approx(-F.log_softmax(logits[1, 3], -1)[targets[1, 3]].item(), abs=1e-6)
