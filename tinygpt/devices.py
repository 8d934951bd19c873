"""Which processor to compute on, and what this machine is."""

import os
import platform
from collections.abc import Callable
from typing import Any

import psutil
import torch

from tinygpt.params import RuntimeParams


def choose_device(params: RuntimeParams) -> torch.device:
    """The device that `runtime.device` names, with `runtime.n_threads` CPU threads.

    Where several processes share this machine, each gets its share of the cores, and a GPU of its own.

    Raises:
        ValueError: this machine has no such device.
    """
    local_rank, local_size = (int(os.environ.get(name, 0)) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if params.n_threads or local_size:
        torch.set_num_threads(params.n_threads or max(1, (os.cpu_count() or 1) // local_size))
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    name = params.device
    if name == "auto":
        name = next(device for device, there in available.items() if there)
    if not available[name]:
        raise ValueError(f"runtime.device = {name}, but PyTorch finds none here; use auto or cpu")
    if name != "cuda":
        return torch.device(name)
    # The same bytes for the same params, where a GPU has a way to; PyTorch warns where it has none.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    return torch.device(name, local_rank)


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """The type that matrix products are computed in where it is not float32.

    Raises:
        ValueError: `train.precision` = bf16 on mps, whose bfloat16 kernels are not to be trusted.
    """
    if precision == "bf16" and device.type == "mps":
        raise ValueError("train.precision = bf16 is not for mps; use fp32 or auto")
    if precision == "bf16" or (precision == "auto" and _computes_bf16(device)):
        return torch.bfloat16
    return None


def _computes_bf16(device: torch.device) -> bool:
    """Whether the processor has instructions for bfloat16, so that it is no slow imitation."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    features = torch.cpu.get_capabilities()
    return device.type == "cpu" and any(features.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def compiled(
    function: Callable[..., Any], setting: str, device: torch.device, tell: Callable[[str], None] = print
) -> Callable[..., Any]:
    """`function` through torch.compile where `train.compile` says so: off, on, or auto (if it works here).

    Raises:
        ValueError: the setting is on, but there is no working compiler.
    """
    if setting == "off":
        return function
    try:
        torch.compile(lambda x: x.cos() + 1)(torch.zeros(2, device=device))
    except Exception as error:  # whatever a missing or broken compiler raises
        reason = str(error).strip().partition("\n")[0]
        if setting == "on":
            raise ValueError(f"train.compile = on, but nothing compiles here ({reason}); use off or auto") from error
        tell(f"train.compile = auto: nothing compiles here, going on without ({reason})")
        return function
    return torch.compile(function)


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
    try:  # Linux; its ru_maxrss would start from the peak of the parent
        with open("/proc/self/status", encoding="utf-8") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return psutil.Process().memory_info().peak_wset
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts bytes


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:  # not Linux
        names = []
    return names[0] if names else platform.processor() or platform.machine()
