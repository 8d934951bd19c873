"""Which processor to compute on, and what this machine is."""

import platform
from typing import Any

import psutil
import torch

from tinygpt.params import RuntimeParams


def choose_device(params: RuntimeParams) -> torch.device:
    """The device that `runtime.device` names, with `runtime.n_threads` CPU threads.

    Raises:
        ValueError: this machine has no such device.
    """
    if params.n_threads:
        torch.set_num_threads(params.n_threads)
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = params.device
    if name == "auto":
        name = next(device for device, there in available.items() if there)
    if not available[name]:
        raise ValueError(f"runtime.device = {name}, but PyTorch finds none here; use auto or cpu")
    return torch.device(name)


def describe_machine(device: torch.device) -> dict[str, Any]:
    """What the cost of a run depends on, for a person to read."""
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name()
    return {
        "device": device.type,
        "processor": processor,
        "n_threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory that this process has held: the GPU's where one computes, else the machine's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return psutil.Process().memory_info().peak_wset
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024  # macOS counts bytes, Linux KiB


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:  # not Linux
        names = []
    return names[0] if names else platform.processor() or platform.machine()
