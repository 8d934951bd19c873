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
    TokenShift,
    attention_weights,
    causal_mask,
    fast_attention,
    fused_attention,
    initial_model,
    mlp_width,
    next_token_nats,
    parameter_table,
    readable_attention,
)
from tinygpt.vocab import Vocab

CHOICES = {
    "norm": ("rmsnorm", "layernorm"),
    "position": ("learned", "rope"),
    "mlp": ("gelu", "relu2", "swiglu"),
    "bias": (True, False),
    "head_bias": (True, False),
    "tie_embeddings": (True, False),
    "qk_norm": (True, False),
}
PRODUCT = [dict(zip(CHOICES, values, strict=True)) for values in itertools.product(*CHOICES.values())]
# Half of it, for what takes longer; any three choices still meet in every way.
VARIANTS = [variant for variant in PRODUCT if sum(variant[name] for name in list(CHOICES)[3:]) % 2]
# What else there is, each with the rest as the textbook has it.
PLAIN = {name: values[0] for name, values in CHOICES.items()}
FURTHER = [
    PLAIN | {"token_shift": True, "zero_init_outputs": zero, "tie_embeddings": tie}
    for zero, tie in itertools.product((False, True), repeat=2)
]
FURTHER += [PLAIN | {"logit_soft_cap": 8.0, "head_bias": bias} for bias in (False, True)]
PRODUCT += FURTHER
VARIANTS += FURTHER
VOCAB = Vocab("".join(sorted("。，一二三四五六七八兔小狗猫追跑")))
V = len(VOCAB)


def each(variants):
    return pytest.mark.parametrize("variant", variants, ids=lambda variant: "-".join(map(str, variant.values())))


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


def test_rotation_by_hand():
    """Position m turns the pair (2i, 2i + 1) by m · 10000^(-2i / D); here D = 4, so by m and by m / 100."""
    rotate = RotaryPosition(head_size=4, context_size=4)
    x = torch.tensor([1.0, 0.0, 0.0, 2.0]).expand(1, 1, 4, 4)
    for m, turned in enumerate(rotate(x)[0, 0]):
        fast, slow = float(m), m / 100
        by_hand = [math.cos(fast), math.sin(fast), -2 * math.sin(slow), 2 * math.cos(slow)]
        assert turned.tolist() == pytest.approx(by_hand, abs=1e-6)


def test_queries_and_keys_are_rotated_and_values_are_not(tiny_params):
    attention = CausalSelfAttention(tiny_params.model_copy(update={"position": "rope"}))
    seen = {}
    attention.attend = lambda q, k, v, mask, dropout: seen.update(q=q, k=k, v=v) or v
    x = torch.randn(1, 12, tiny_params.n_embd, generator=torch.Generator().manual_seed(0))
    attention(x)
    plain = attention.qkv_proj(x).view(12, 3, 2, 8).permute(1, 2, 0, 3)  # (3, H, T, D)
    for name, before in zip("qkv", plain, strict=True):
        m = torch.arange(12)[:, None]
        angle = m * 10000 ** (-2 * torch.arange(4) / 8)  # (T, D / 2)
        pairs = torch.view_as_complex(before.reshape(2, 12, 4, 2)) * torch.polar(torch.ones(12, 4), angle)
        rotated = torch.view_as_real(pairs).flatten(-2)
        assert torch.allclose(seen[name][0], before if name == "v" else rotated, atol=1e-6), name


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


# Every combination.


@pytest.fixture
def make_params(tiny_params):
    return lambda variant, **changes: tiny_params.model_copy(update=variant | changes)


def shaken(model):
    """The model in evaluation mode with weights of all sizes, whatever it starts from."""
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng))
    return model.eval()


def test_any_three_choices_meet():
    for names in itertools.combinations(CHOICES, 3):
        met = {tuple(variant.get(name) for name in names) for variant in VARIANTS}
        assert met >= set(itertools.product(*(CHOICES[name] for name in names)))


@each(PRODUCT)
def test_the_start(make_params, variant):
    """Scores nearly equal, every parameter within reach of the gradient, the table right."""
    params = make_params(variant, dropout=0.1)
    model = initial_model(params, V, seed=0)
    rng = torch.Generator().manual_seed(0)
    ids, targets = (torch.randint(V, (4, 12), generator=rng) for _ in range(2))
    torch.manual_seed(0)  # for dropout
    loss = next_token_nats(model(ids), targets).mean()
    assert loss.item() == pytest.approx(math.log(V), rel=0.03)
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name

    table = parameter_table(params, V)
    assert sum(count for _, _, count in table) == n_parameters(model)
    symbols = {"V": V, "T": 12, "C": 16, "D": 8, "F": mlp_width(params), "L": 2}
    for part, formula, count in table:
        assert eval(formula.replace("×", "*"), {}, symbols) == count, (part, formula)


@each(PRODUCT)
def test_the_past_does_not_see_the_future(make_params, variant):
    model = shaken(initial_model(make_params(variant), V, seed=0))
    ids = torch.arange(12)[None] + 3
    changed = ids.clone()
    changed[0, 8:] = 1
    before, after = model(ids), model(changed)
    assert torch.allclose(before[:, :8], after[:, :8], atol=1e-5)
    assert not torch.allclose(before[:, 8], after[:, 8], atol=1e-2)


@each(PRODUCT)
def test_order_matters(make_params, variant):
    """One block: it has nothing but the positions to tell the two apart by, once the last character is the same."""
    model = shaken(initial_model(make_params(variant, n_layer=1), V, seed=0))
    for one, other in (("猫追狗", "狗追猫"), ("猫追狗。", "狗追猫。")):
        a, b = (model(torch.tensor([VOCAB.encode(text).tolist()]))[0, -1] for text in (one, other))
        assert not torch.allclose(a, b, atol=1e-3)


@pytest.mark.parametrize("position", CHOICES["position"])
def test_without_positions_order_would_not_matter(make_params, position):
    """So the test above fails where positions are forgotten."""
    model = shaken(initial_model(make_params({"position": position}, n_layer=1), V, seed=0))
    if position == "learned":
        model.position_embedding.weight.data.zero_()
    else:
        rotate = model.blocks[0].attention.rotate
        rotate.cos.fill_(1)
        rotate.sin.fill_(0)
    a, b = (model(torch.tensor([VOCAB.encode(text).tolist()]))[0, -1] for text in ("猫追狗。", "狗追猫。"))
    assert torch.allclose(a, b, atol=1e-5)


def test_a_token_shift_by_hand():
    shift = TokenShift(2, site=0)
    x = torch.tensor([[[2.0, 1], [4, 1], [6, 1]]])
    assert torch.equal(shift(x), x)  # before training
    shift.share.data = torch.tensor([0.5, -1])
    assert torch.equal(shift(x), torch.tensor([[[2.0, 1], [5, 0], [8, 0]]]))


def test_a_shifted_model_reads_the_position_before_and_no_later_one(tiny_params):
    model = initial_model(tiny_params.model_copy(update={"token_shift": True}), 20, seed=0).eval()
    for block in model.blocks:
        block.shift1.share.data.fill_(0.7)
        block.shift2.share.data.fill_(-0.3)
        block.attention.o_proj.weight.data.zero_()  # no attention: what is read comes through the shift
    ids = torch.arange(12)[None] + 3
    changed = ids.clone()
    changed[0, 6] = 19
    moved = (model(ids) - model(changed)).abs().amax(-1)[0] > 1e-4
    assert moved.tolist() == [False] * 6 + [True] * 3 + [False] * 3  # one further with each of the 2 blocks


def test_a_soft_cap_by_hand(tiny_params):
    features = torch.tensor([[1.0] + [0] * 15])
    for cap, expected in ((0.0, [-10.0, 0, 1, 100]), (2.0, [2 * math.tanh(score / 2) for score in (-10, 0, 1, 100)])):
        model = GPT(tiny_params.model_copy(update={"logit_soft_cap": cap}), 4)
        model.lm_head.weight.data[:, 0] = torch.tensor([-10.0, 0, 1, 100])
        assert model.scores(features).tolist()[0] == pytest.approx(expected)


@pytest.mark.parametrize("tie", [False, True])
def test_zero_outputs_make_every_block_the_identity_at_first(tiny_params, tie):
    update = {"zero_init_outputs": True, "tie_embeddings": tie}
    model = initial_model(tiny_params.model_copy(update=update), 20, seed=0)
    x = torch.randn(2, 12, 16, generator=torch.Generator().manual_seed(0))
    assert all(torch.equal(block(x), x) for block in model.blocks)
    scores = model(torch.arange(12)[None])
    assert (scores == 0).all() != tie  # a head of its own starts at zero, too: loss ln V to the bit


def test_init_std_is_the_width_of_the_first_weights(tiny_params):
    wide, narrow = (initial_model(tiny_params.model_copy(update={"init_std": std}), 20, seed=0) for std in (0.2, 0.02))
    for one, other in zip(wide.parameters(), narrow.parameters(), strict=True):
        if one.dim() == 2:  # the same draws, ten times as wide
            assert torch.allclose(one, 10 * other)
    assert narrow.blocks[0].mlp.up_proj.weight.std().item() == pytest.approx(0.02, rel=0.1)


# Training and what is around it.


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
