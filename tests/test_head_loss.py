import pytest
import torch

from tinygpt import head_loss as module
from tinygpt.head_loss import head_loss
from tinygpt.model import next_token_nats


@pytest.fixture(params=[True, False], ids=["bias", "no-bias"])
def case(request):
    """A head of 50 entries, 5 × 7 features and targets."""
    torch.manual_seed(0)
    head = torch.nn.Linear(8, 50, bias=request.param)
    return head, torch.randn(5, 7, 8, requires_grad=True), torch.randint(50, (5, 7))


def capped(scores, soft_cap):
    return soft_cap * torch.tanh(scores / soft_cap) if soft_cap else scores


def gradients(loss, head, features):
    return torch.autograd.grad(3 * loss, [features, *head.parameters()])


@pytest.mark.parametrize("soft_cap", [0.0, 0.5, 15.0])
@pytest.mark.parametrize("chunk", [1, 4, 35, 100])
def test_it_is_the_plain_loss_value_and_gradients(case, chunk, soft_cap, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ON_CPU", chunk)
    head, features, targets = case
    plain = next_token_nats(capped(head(features), soft_cap), targets).mean()
    fused = head_loss(head, features, targets, soft_cap)
    assert fused.item() == pytest.approx(plain.item(), rel=1e-6)
    for a, b in zip(gradients(plain, head, features), gradients(fused, head, features), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("soft_cap", [0.0, 0.5])
def test_under_autocast_it_is_near_the_plain_loss(case, soft_cap):
    head, features, targets = case
    plain = next_token_nats(capped(head(features), soft_cap), targets).mean()
    with torch.autocast("cpu", torch.bfloat16):
        fused = head_loss(head, features, targets, soft_cap)
    assert fused.dtype == torch.float32
    assert fused.item() == pytest.approx(plain.item(), rel=1e-2)
    for a, b in zip(gradients(plain, head, features), gradients(fused, head, features), strict=True):
        assert a.dtype == b.dtype
        assert torch.allclose(a, b, atol=0.02 * a.abs().max().item())


def test_tied_weights_get_both_gradients():
    torch.manual_seed(0)
    table = torch.nn.Embedding(50, 8)
    head = torch.nn.Linear(8, 50, bias=False)
    head.weight = table.weight
    ids, targets = torch.randint(50, (2, 7)), torch.randint(50, (2, 7))
    plain = torch.autograd.grad(next_token_nats(head(table(ids)), targets).mean(), table.weight)
    fused = torch.autograd.grad(head_loss(head, table(ids), targets), table.weight)
    assert torch.allclose(plain[0], fused[0], atol=1e-7)
