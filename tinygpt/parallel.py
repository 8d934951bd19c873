"""A function over many batches, in several processes."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def map_batches(
    function: Callable[[Batch], Result], batches: Iterable[Batch], n_procs: int | None = None
) -> Iterator[Result]:
    """Yield the results in the order of the batches; a few batches a process are in memory, never all.

    `function` and what it takes and gives must be picklable. `n_procs` is by default one a core.
    """
    n_procs = n_procs or os.cpu_count() or 1
    if n_procs == 1:
        yield from map(function, batches)
        return
    waiting = deque()
    # spawn: a fork would copy the locks of threads that pyarrow has running
    with ProcessPoolExecutor(n_procs, mp_context=get_context("spawn")) as pool:
        for batch in batches:
            waiting.append(pool.submit(function, batch))
            if len(waiting) > 2 * n_procs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
