"""Speed of a training step: the textbook's loop against ours, taking turns in one process.

    make bench

The textbook's loop is written as the book writes it: four projections of their own, the mask made
again at each step, softmax by hand, plain AdamW, float32. All variants have the default shape, a
vocabulary of 3,035 and the same windows of a made-up stream. Quote the ratios: these come from one
run, so that a machine that speeds up or slows down does so for all.
"""

import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from tabulate import tabulate
from torch import Tensor, nn
from torch.nn import functional as F

from tinygpt.batches import windows
from tinygpt.devices import compiled, describe_machine, peak_memory_bytes
from tinygpt.head_loss import head_loss
from tinygpt.model import GPT, RMSNorm, fused_attention, initial_model, next_token_nats
from tinygpt.params import ModelParams, Params, load_params
from tinygpt.tokens import DTYPE, TokenStream
from tinygpt.training import Run, update

VOCAB_SIZE = 3035
VARIANTS = {
    "textbook": {},
    "fp32, plain loss": {"precision": "fp32"},
    "fp32": {"precision": "fp32"},
    "fp32 compiled": {"precision": "fp32", "compile": "auto"},
    "bf16, fused attention": {"precision": "bf16"},
    "bf16": {"precision": "bf16"},
    "bf16 compiled": {"precision": "bf16", "compile": "auto"},
}


class TextbookNorm(RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        rms = torch.sqrt(x.square().mean(dim=-1, keepdim=True) + self.eps)
        return x / rms * self.scale


class TextbookAttention(nn.Module):
    def __init__(self, params: ModelParams) -> None:
        super().__init__()
        C = params.n_embd
        self.n_head = params.n_head
        self.query, self.key, self.value, self.output = (nn.Linear(C, C) for _ in range(4))

    def forward(self, x: Tensor, cache: None = None) -> Tensor:  # the book's has no cache
        B, T, C = x.shape
        q, k, v = (
            project(x).reshape(B, T, self.n_head, -1).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(C // self.n_head)
        future = torch.ones(T, T, dtype=torch.bool).triu(diagonal=1)
        weights = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
        return self.output((weights @ v).transpose(1, 2).reshape(B, T, C))


def textbook_model(params: ModelParams) -> GPT:
    model = initial_model(params, VOCAB_SIZE, seed=0)
    for block in model.blocks:
        block.attention = TextbookAttention(params)
        block.norm1, block.norm2 = TextbookNorm(params.n_embd), TextbookNorm(params.n_embd)
    model.final_norm = TextbookNorm(params.n_embd)
    return model


def textbook_step(params: Params, stream: TokenStream) -> Callable[[], None]:
    model = textbook_model(params.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params.train.learning_rate)
    tokens = torch.from_numpy(stream[:].astype(np.int64))
    rng = torch.Generator().manual_seed(0)
    T = params.model.context_size

    def step() -> None:
        starts = torch.randint(len(tokens) - T, (params.train.batch_size,), generator=rng).tolist()
        chunks = torch.stack([tokens[start : start + T + 1] for start in starts])
        logits = model(chunks[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCAB_SIZE), chunks[:, 1:].reshape(-1))
        loss.item()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def our_step(params: Params, stream: TokenStream, without: str) -> Callable[[], None]:
    """Our update, or the same without one of its two shortcuts, to see what that brings."""
    model = initial_model(params.model, VOCAB_SIZE, seed=0)
    run = Run(model, params.train, seed=0)
    if without == "plain loss":
        run.loss = lambda x, y: next_token_nats(model(x), y).mean()
    if without == "fused attention":
        for block in model.blocks:
            block.attention.attend = fused_attention

    def step() -> None:
        update(run, stream)

    return step


def make_step(name: str, batch_size: int, params: Params, stream: TokenStream) -> Callable[[], None]:
    train = params.train.model_copy(update={"batch_size": batch_size, "compile": "off", **VARIANTS[name]})
    params = params.model_copy(update={"train": train})
    if name == "textbook":
        return textbook_step(params, stream)
    return our_step(params, stream, without=name.partition(", ")[2])


def flops_per_token(params: ModelParams) -> int:
    """6 for each weight that multiplies, and 12 L C T for scores and sums. Source: arXiv 2204.02311, appendix B."""
    model = GPT(params, VOCAB_SIZE)
    weights = sum(module.weight.numel() for module in model.modules() if isinstance(module, nn.Linear))
    return 6 * weights + 12 * params.n_layer * params.n_embd * params.context_size


def matmul_peak(dtype: torch.dtype) -> float:
    """The most FLOP/s that products of 1024 × 1024 matrices reach here."""
    a = torch.randn(1024, 1024).to(dtype)
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - start)
    return 2 * 1024**3 / min(seconds)


def seconds_per_step(steps: dict[str, Callable[[], None]], n_rounds: int, n_steps: int) -> dict[str, float]:
    """Median over the rounds; in each round all variants take their turn."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():  # warm up, compile
        for _ in range(3):
            step()
    for _ in range(n_rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            for _ in range(n_steps):
                step()
            times[name].append((time.perf_counter() - start) / n_steps)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_memory_mib(name: str, batch_size: int, params: Params, path: Path) -> float:
    """In a process of its own, after ten steps."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak_memory_here, name, batch_size, params, path).result()


def _peak_memory_here(name: str, batch_size: int, params: Params, path: Path) -> float:
    step = make_step(name, batch_size, params, TokenStream(path))
    for _ in range(10):
        step()
    return peak_memory_bytes(torch.device("cpu")) / 2**20


def parts_of_a_step(name: str, batch_size: int, params: Params, stream: TokenStream, n_steps: int) -> dict[str, float]:
    """Milliseconds by part of our step, without compile; the loss' part includes its own gradient."""
    train = params.train.model_copy(update={"batch_size": batch_size, **VARIANTS[name]})
    run = Run(initial_model(params.model, VOCAB_SIZE, seed=0), train, seed=0)
    model, T = run.model, params.model.context_size
    spent: dict[str, float] = {}

    @contextmanager
    def timed(part: str):
        start = time.perf_counter()
        yield
        spent[part] = spent.get(part, 0.0) + (time.perf_counter() - start) * 1e3 / n_steps

    def watch(module: nn.Module, part: str) -> None:
        def forward(*args: Tensor, real: Callable = module.forward) -> Tensor:
            with timed(part):
                return real(*args)

        module.forward = forward

    for block in model.blocks:
        watch(block.attention, "attention")
        watch(block.mlp, "MLP")
    for step in range(n_steps + 3):
        if step == 3:
            spent.clear()
        starts = np.random.default_rng((0, step)).integers(len(stream) - T, size=batch_size)
        with timed("batch"):
            x, y = windows(stream, starts, T, run.device)
        with torch.autocast("cpu", run.precision, enabled=run.precision is not None):
            with timed("embedding, norms, residuals"):
                features = model.features(x)
            with timed("head and loss"):
                loss = head_loss(model.lm_head, features, y)
        with timed("backward"):
            loss.backward()
        with timed("clip"):
            nn.utils.clip_grad_norm_(model.parameters(), train.grad_clip)
        with timed("optimizer"):
            run.optimizer.step()
            run.optimizer.zero_grad(set_to_none=True)
    spent["embedding, norms, residuals"] -= spent["attention"] + spent["MLP"]
    return spent


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each variant takes its turn.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Steps of 8 windows in a turn.")] = 12,
) -> None:
    """Print tokens/s, ratios, share of the matrix-multiply peak, memory, and milliseconds by part."""
    params = load_params(Path("params.yaml"))
    cpu = torch.device("cpu")
    machine = describe_machine(cpu)
    peaks = {"fp32": matmul_peak(torch.float32), "bf16": matmul_peak(torch.bfloat16)}
    flops = flops_per_token(params.model)
    print(f"{machine['processor']}, {machine['n_threads']} threads, PyTorch {machine['torch']}")
    print(f"matrix-multiply peak: {', '.join(f'{name} {peak / 1e9:.0f} GFLOP/s' for name, peak in peaks.items())}")
    print(f"{flops / 1e6:.2f} MFLOP a token (V {VOCAB_SIZE}, T {params.model.context_size})")
    names = list(VARIANTS)
    if compiled(math.cos, "auto", cpu) is math.cos:  # no compiler: said aloud by `compiled`
        names = [name for name in names if "compiled" not in name]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.bin"
        np.random.default_rng(0).integers(VOCAB_SIZE, size=2**20).astype(DTYPE).tofile(path)
        stream = TokenStream(path)
        for batch_size in (8, 32):
            made = {name: make_step(name, batch_size, params, stream) for name in names}
            seconds = seconds_per_step(made, rounds, max(2, steps * 8 // batch_size))
            rows = []
            for name in names:
                speed = batch_size * params.model.context_size / seconds[name]
                share = speed * flops / peaks["bf16" if "bf16" in name else "fp32"]
                ratio = seconds["textbook"] / seconds[name]
                memory = peak_memory_mib(name, batch_size, params, path)
                rows.append([name, f"{speed:,.0f}", f"{ratio:.2f}", f"{share:.0%}", f"{memory:,.0f}"])
            headers = ["variant", "tokens/s", "× textbook", "share of peak", "peak MiB"]
            print(f"\nbatch {batch_size} × {params.model.context_size}\n")
            print(tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=["left"] + ["right"] * 4))

        parts = {name: parts_of_a_step(name, 8, params, stream, 30) for name in ("fp32", "bf16")}
        rows = [[part, *(f"{parts[name][part]:.1f}" for name in parts)] for part in parts["fp32"]]
        rows.append(["sum", *(f"{sum(parts[name].values()):.1f}" for name in parts)])
        print("\nmilliseconds by part, batch 8, not compiled\n")
        print(tabulate(rows, ["part", *parts], tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    typer.run(main)
