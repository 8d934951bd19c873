import pytest
import torch

from tinygpt.model import initial_model
from tinygpt.optim import learning_rate_at, make_optimizer, set_learning_rate


@pytest.mark.parametrize(
    ("step", "share"),
    [
        (0, 1 / 101),  # the first step of the warm-up already moves
        (99, 100 / 101),
        (100, 1.0),  # the peak
        (2550, 0.55),  # half way down: between 1 and 0.1
        (5000, 0.1),
    ],
)
def test_the_schedule_at_its_corners(params, step, share):
    assert learning_rate_at(step, params.train) == pytest.approx(params.train.learning_rate * share)


@pytest.mark.parametrize(
    ("step", "share"),
    [
        (0, 1 / 101),
        (100, 1.0),
        (1570, 1.0),  # 0.3 of the 4,900 steps after the warm-up: the last at the peak
        (3285, 0.6),  # half way down from there: between 1 and 0.2
        (5000, 0.2),
    ],
)
def test_the_linear_schedule_at_its_corners(params, step, share):
    linear = params.train.model_copy(update={"schedule": "linear", "decay_share": 0.7, "min_lr_ratio": 0.2})
    assert learning_rate_at(step, linear) == pytest.approx(params.train.learning_rate * share)


def test_the_linear_schedule_ends_with_the_time_too(params):
    update = {"schedule": "linear", "decay_share": 0.5, "min_lr_ratio": 0.0, "max_seconds": 100.0}
    timed = params.train.model_copy(update=update)
    assert learning_rate_at(200, timed, seconds=75.0) == pytest.approx(0.5 * params.train.learning_rate)
    assert learning_rate_at(200, timed, seconds=101.0) == 0


def test_the_schedule_ends_with_the_time_if_that_ends_first(params):
    timed = params.train.model_copy(update={"max_seconds": 3600.0})
    peak = params.train.learning_rate
    assert learning_rate_at(200, timed, seconds=1800.0) == pytest.approx(0.55 * peak)
    assert learning_rate_at(200, timed, seconds=3600.0) == pytest.approx(0.1 * peak)
    assert learning_rate_at(5000, timed, seconds=60.0) == pytest.approx(0.1 * peak)
    assert learning_rate_at(200, timed, seconds=0.0) == learning_rate_at(200, params.train)


def test_the_schedule_of_a_run_shorter_than_its_warmup(params):
    short = params.train.model_copy(update={"max_steps": 50})
    rates = [learning_rate_at(step, short) for step in range(51)]
    assert rates == sorted(rates) and rates[-1] < params.train.learning_rate


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_every_parameter_is_in_one_group_and_only_matrices_decay(params, tiny_params, optimizer, tie):
    model = initial_model(tiny_params.model_copy(update={"tie_embeddings": tie}), 20, seed=0)
    changed = params.train.model_copy(update={"optimizer": optimizer})
    groups = make_optimizer(model, changed).param_groups
    for group in groups:
        decay = {2: params.train.weight_decay, 1: 0.0}
        assert {decay[p.dim()] for p in group["params"]} <= {group["weight_decay"]}
    everything = [p for group in groups for p in group["params"]]
    assert len(everything) == len(set(everything)) == len(list(model.parameters()))


def test_each_group_learns_at_its_own_multiple(params, tiny_params):
    update = {"optimizer": "muon", "learning_rate": 0.004, "muon_learning_rate": 0.02}
    changed = params.train.model_copy(update=update | {"embedding_lr_ratio": 3.0, "head_lr_ratio": 0.5})
    model = initial_model(tiny_params, 20, seed=0)
    optimizer = make_optimizer(model, changed)
    set_learning_rate(optimizer, 0.002)  # half of the peak
    rates = {p: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert rates[model.token_embedding.weight] == rates[model.position_embedding.weight] == pytest.approx(0.006)
    assert rates[model.lm_head.weight] == pytest.approx(0.001)
    assert rates[model.final_norm.scale] == rates[model.lm_head.bias] == pytest.approx(0.002)
    assert rates[model.blocks[0].mlp.up_proj.weight] == pytest.approx(0.01)


def test_muon_moves_all_directions_of_a_matrix_alike(params, tiny_params):
    """The first step is the orthogonalised gradient times the learning rate and sqrt(rows / columns)."""
    update = {"optimizer": "muon", "muon_learning_rate": 0.01, "weight_decay": 0.0}
    model = initial_model(tiny_params, 20, seed=0)
    optimizer = make_optimizer(model, params.train.model_copy(update=update))
    wide = model.blocks[0].mlp.up_proj.weight  # 64 rows, 16 columns: sqrt(64 / 16) = 2
    before = wide.detach().clone()
    model(torch.arange(60).view(5, 12) % 20).square().sum().backward()
    optimizer.step()
    sizes = torch.linalg.svdvals((wide.detach() - before) / 0.01)
    assert sizes.numel() == 16 and (sizes > 2 * 0.5).all() and (sizes < 2 * 1.4).all()


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_loaded_state_goes_on_to_the_bit(params, tiny_params, optimizer):
    changed = params.train.model_copy(update={"optimizer": optimizer})

    def advance(model, optimizer, n_steps):
        for _ in range(n_steps):
            optimizer.zero_grad(set_to_none=True)
            model(torch.arange(12)[None]).square().sum().backward()
            optimizer.step()

    whole, parts = (initial_model(tiny_params, 20, seed=0) for _ in range(2))
    advance(whole, make_optimizer(whole, changed), 6)
    first, second = make_optimizer(parts, changed), make_optimizer(parts, changed)
    advance(parts, first, 3)
    second.load_state_dict(first.state_dict())
    advance(parts, second, 3)
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), parts.parameters(), strict=True))
