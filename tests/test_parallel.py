from collections.abc import Iterator

import pytest

from tinygpt.parallel import map_batches


def double(number: int) -> int:
    if number == 13:
        raise ValueError("13 is no number")
    return 2 * number


@pytest.mark.parametrize("n_procs", [1, 2])
def test_results_come_in_order_and_batches_are_taken_as_they_are_needed(n_procs):
    taken = []

    def numbers() -> Iterator[int]:
        for number in range(12):
            taken.append(number)
            yield number

    results = map_batches(double, numbers(), n_procs)
    assert next(results) == 0
    assert len(taken) <= 2 * n_procs + 1
    assert list(results) == [2 * number for number in range(1, 12)]


@pytest.mark.parametrize("n_procs", [1, 2])
def test_an_error_in_a_worker_is_the_callers(n_procs):
    with pytest.raises(ValueError, match="13 is no number"):
        list(map_batches(double, range(10, 20), n_procs))
