import pytest

from tinygpt.model import initial_model
from tinygpt.optim import learning_rate_at, make_optimizer


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


def test_every_parameter_is_in_one_group_and_only_matrices_decay(params, tiny_params):
    model = initial_model(tiny_params, 20, seed=0)
    decayed, others = make_optimizer(model, params.train).param_groups
    assert decayed["weight_decay"] == params.train.weight_decay and others["weight_decay"] == 0
    assert {p.dim() for p in decayed["params"]} == {2} and {p.dim() for p in others["params"]} == {1}
    assert len(decayed["params"]) + len(others["params"]) == len(list(model.parameters()))
