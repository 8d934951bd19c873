"""Several processes that train one model: start them, let them add up numbers, end them together."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn

GRACE_SECONDS = 30  # how long the others may take to notice that one is gone


class Group:
    """The processes that train together: `rank` of `size`. Alone, all methods do nothing."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def is_main(self) -> bool:
        """Rank 0 writes files and tells what happens; the others are silent."""
        return self.rank == 0

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Add up each number over the processes, in float64."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self._device())
        dist.all_reduce(total)
        return total.tolist()

    def share(self, value: Any) -> Any:
        """Rank 0's value, for all."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, device=self._device())
        return box[0]

    def wrap(self, module: nn.Module) -> nn.Module:
        """Average the gradients over the processes in each backward."""
        return nn.parallel.DistributedDataParallel(module) if self.size > 1 else module

    def leave(self) -> None:
        if self.size > 1:
            dist.barrier()
            dist.destroy_process_group()

    def _device(self) -> torch.device:
        return torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")


def launched() -> bool:
    """Whether this process was started as one of several, by `launch` or by torchrun."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1


def join_group(device: torch.device) -> Group:
    """Meet the other processes; the environment says who they are, as torchrun sets it."""
    if not launched():
        return Group()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Group(dist.get_rank(), dist.get_world_size())


def launch(n_procs: int, work: Callable[..., int], *args: Any) -> int:
    """Run `work(*args)` in `n_procs` processes of this machine; return the exit code of the whole.

    SIGINT and SIGTERM are passed on, so that the processes stop together after a whole step.

    Raises:
        ChildProcessError: a process died; names its rank and what ended it.
    """
    port = _free_port()
    context = torch.multiprocessing.start_processes(
        _work_as_rank, (n_procs, port, work, args), n_procs, join=False, start_method="spawn"
    )
    processes = context.processes

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for process in processes:
            if process.is_alive():
                os.kill(process.pid, number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while all(process.exitcode in (None, 0) for process in processes):
            if all(process.exitcode == 0 for process in processes):
                return 0
            time.sleep(0.1)
        return _end_the_rest(processes)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_the_rest(processes: list) -> int:
    """One ended before its time: wait for the others, say which died of what."""
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        if process.is_alive():
            process.kill()
    for rank, code in enumerate(codes):
        if code is not None and code < 0:
            raise ChildProcessError(
                f"the process of rank {rank} was ended by {signal.Signals(-code).name}, and the run with it; "
                "the same command goes on from the last checkpoint"
            )
    return next(code for code in codes if code)


def _work_as_rank(rank: int, size: int, port: int, work: Callable[..., int], args: Sequence[Any]) -> None:
    os.setsid()  # Ctrl-C reaches the parent alone, which passes it on once
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.exit(work(*args))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
