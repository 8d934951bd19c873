"""Speed of writing: the textbook's loop against ours and Hugging Face's, taking turns in one process.

    OMP_NUM_THREADS=1 python -m benchmarks.generation

One thread, float32, the default shape, a vocabulary of 3,035, random weights with scores as wide as
a trained model's. 119 new characters behind a prompt of 8, so that the context of 128 is full at the
end and nothing slides. The textbook's loop reads the whole window again for each character and
computes the scores of all its positions, as the book writes it. Quote the ratios: a machine that
speeds up or slows down does so for all.
"""

import contextlib
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from tabulate import tabulate
from torch import nn

from benchmarks.training import VOCAB_SIZE, textbook_model
from tinygpt.devices import describe_machine
from tinygpt.fast_step import FastStep
from tinygpt.generation import continue_text, next_token_odds
from tinygpt.model import GPT, KVCache, initial_model
from tinygpt.params import ModelParams, Params, SampleParams, load_params
from tinygpt.vocab import BOS, EOS, SPECIALS, Vocab
from tinygpt.writing import generate, race

N_NEW = 119
VOCAB = Vocab("".join(chr(0x4E00 + i) for i in range(VOCAB_SIZE - len(SPECIALS))))
PROMPT = VOCAB.characters[:8]


def never_ending(model: GPT) -> GPT:
    """Scores as wide as a trained model's (deviation 3.5), and no `<eos>` before the limit."""
    with torch.no_grad():
        model.lm_head.weight.mul_(15)
        model.lm_head.bias[EOS] = -1e4
    return model.eval()


@torch.no_grad()
def textbook_loop(model: GPT, params: SampleParams, seed: int) -> list[int]:
    rng = torch.Generator().manual_seed(seed)
    ids = [BOS, *VOCAB.encode(PROMPT).tolist()]
    for _ in range(N_NEW):
        window = torch.tensor([ids[-model.params.context_size :]])
        odds = next_token_odds(model(window)[0, -1], params.temperature, params.top_k)
        ids.append(int(torch.multinomial(odds, 1, generator=rng)))
    return ids


def gpt2_form(params: ModelParams) -> GPT:
    """The variant of our model that Hugging Face's GPT-2 is; its head has no bias."""
    model = initial_model(params.model_copy(update={"norm": "layernorm"}), VOCAB_SIZE, seed=0)
    with torch.no_grad():
        model.lm_head.weight.mul_(15)
    return model.eval()


def hugging_face(model: GPT) -> nn.Module:
    """GPT2LMHeadModel with the weights of `model`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    params = model.params
    config = GPT2Config(
        **{"vocab_size": VOCAB_SIZE, "n_positions": params.context_size, "n_embd": params.n_embd},
        **{"n_layer": params.n_layer, "n_head": params.n_head, "activation_function": "gelu"},
        **{"tie_word_embeddings": False, "bos_token_id": BOS, "eos_token_id": None, "pad_token_id": BOS},
    )
    theirs = GPT2LMHeadModel(config).eval()
    pairs = [(theirs.transformer.ln_f, model.final_norm)]
    with torch.no_grad():
        theirs.transformer.wte.weight.copy_(model.token_embedding.weight)
        theirs.transformer.wpe.weight.copy_(model.position_embedding.weight)
        theirs.lm_head.weight.copy_(model.lm_head.weight)
        for h, block in zip(theirs.transformer.h, model.blocks, strict=True):
            pairs += [(h.ln_1, block.norm1), (h.ln_2, block.norm2)]
            pairs += [(h.attn.c_attn, block.attention.qkv_proj), (h.attn.c_proj, block.attention.o_proj)]
            pairs += [(h.mlp.c_fc, block.mlp.up_proj), (h.mlp.c_proj, block.mlp.down_proj)]
        for to, source in pairs:
            to.weight.copy_(source.weight.T if source.weight.ndim == 2 else source.weight)  # Conv1D is (in, out)
            to.bias.copy_(source.bias)
    return theirs


def hugging_face_loop(model: nn.Module, params: SampleParams, n_texts: int) -> None:
    ids = torch.tensor([[BOS, *VOCAB.encode(PROMPT).tolist()]] * n_texts)
    settings = {"do_sample": True, "temperature": params.temperature, "top_k": params.top_k, "use_cache": True}
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=N_NEW,
        min_new_tokens=N_NEW,
        pad_token_id=BOS,
        **settings,
    )
    assert out.shape == (n_texts, ids.shape[1] + N_NEW)


def loops(params: Params) -> dict[str, tuple[int, Callable[[], object]]]:
    """name -> (texts at once, a function that writes them)."""
    sample = params.sample.model_copy(update={"max_new_chars": N_NEW})
    book = never_ending(textbook_model(params.model))
    ours = never_ending(initial_model(params.model, VOCAB_SIZE, seed=0))
    gpt2 = gpt2_form(params.model)
    theirs = hugging_face(gpt2)
    with torch.no_grad():  # the same model, or the comparison means nothing
        ids = torch.arange(100)[None] + 3
        assert torch.allclose(gpt2(ids), theirs(ids).logits, atol=1e-4)
        gpt2.lm_head.bias[EOS] = -1e4

    def write(model: GPT, n_texts: int) -> Callable[[], object]:
        def run() -> None:
            texts = generate(model, VOCAB, [PROMPT] * n_texts, range(n_texts), sample)
            assert all(text.ended_by == "limit" for text in texts)

        return run

    return {
        "textbook loop, 1 text": (1, lambda: textbook_loop(book, sample, 0)),
        "continue_text (the last scores alone), 1 text": (1, lambda: continue_text(ours, VOCAB, PROMPT, 0, sample)),
        "ours, 1 text": (1, write(ours, 1)),
        "ours, 32 texts": (32, write(ours, 32)),
        "GPT-2 form, transformers.generate, 1 text": (1, lambda: hugging_face_loop(theirs, sample, 1)),
        "GPT-2 form, ours, 1 text": (1, write(gpt2, 1)),
        "GPT-2 form, transformers.generate, 32 texts": (32, lambda: hugging_face_loop(theirs, sample, 32)),
        "GPT-2 form, ours, 32 texts": (32, write(gpt2, 32)),
    }


class Timer:
    """The best of several rounds, by the clock and by processor time, in seconds."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.cpu: list[float] = []

    @contextlib.contextmanager
    def round(self, n: int):
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall.append((time.perf_counter() - wall) / n)
        self.cpu.append((time.process_time() - cpu) / n)


def take_turns(functions: dict[str, tuple[int, Callable[[], object]]], n_rounds: int) -> dict[str, Timer]:
    """Seconds per unit; name -> (units in a call, the call)."""
    timers = {name: Timer() for name in functions}
    for _, function in functions.values():  # warm up
        function()
    for _ in range(n_rounds):
        for name, (n, function) in functions.items():
            with timers[name].round(n):
                function()
    return timers


def steps(params: Params) -> dict[str, tuple[int, Callable[[], object]]]:
    """A step of one text, about half way through the context, in several forms, and its parts."""
    model = never_ending(initial_model(params.model, VOCAB_SIZE, seed=0))
    n = 60
    made: dict[str, Callable[[], object]] = {}

    def stepping(step: Callable[[list[int]], object], cache: KVCache) -> Callable[[], object]:
        def run() -> None:
            cache.lengths.fill_(34)
            for i in range(n):
                step([5 + i])

        return run

    def readable(model: nn.Module, cache: KVCache) -> Callable[[list[int]], object]:
        return lambda ids: model.scores(model.features(torch.tensor([ids]), cache)[:, -1])

    cache = KVCache(params.model, 1)
    made["readable model with cache"] = stepping(readable(model, cache), cache)
    quantised = torch.ao.quantization.quantize_dynamic(never_ending(initial_model(params.model, VOCAB_SIZE, seed=0)))
    cache = KVCache(params.model, 1)
    made["readable, int8 weights (quantize_dynamic)"] = stepping(readable(quantised, cache), cache)
    cache = KVCache(params.model, 1)
    step = readable(model, cache)

    def in_bf16(ids: list[int]) -> object:
        with torch.autocast("cpu", torch.bfloat16):
            return step(ids)

    made["readable, bfloat16 (autocast)"] = stepping(in_bf16, cache)
    cache = KVCache(params.model, 1)
    made["FastStep"] = stepping(FastStep(model, cache), cache)
    shapes = [(128, 384), (128, 128), (128, 512), (512, 128)] * params.model.n_layer + [(128, VOCAB_SIZE)]
    weights = [np.random.default_rng(0).random(shape, dtype=np.float32) for shape in shapes]
    x = {k: np.ones((1, k), np.float32) for k in (128, 512)}
    made["its matrix products alone"] = lambda: [x[len(weight)] @ weight for _ in range(n) for weight in weights]
    logits = np.random.default_rng(0).normal(size=(1, VOCAB_SIZE)).astype(np.float32) * 3.5
    uniform, rng = torch.empty(1, VOCAB_SIZE, dtype=torch.float64), torch.Generator()
    made["random numbers of a draw"] = lambda: [uniform.uniform_(generator=rng) for _ in range(n)]
    made["the race"] = lambda: [race(logits, uniform.numpy(), params.sample) for _ in range(n)]
    odds = torch.from_numpy(logits[0]).softmax(-1)
    made["for comparison: torch.multinomial"] = lambda: [torch.multinomial(odds, 1, generator=rng) for _ in range(n)]
    return {name: (n, torch.inference_mode()(function)) for name, function in made.items()}


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often each variant takes its turn.")] = 7,
) -> None:
    """Print characters/s and ratios by variant, and what a step is made of."""
    warnings.simplefilter("ignore")  # of quantize_dynamic, which is on its way out
    torch.set_num_threads(1)
    params = load_params(Path("params.yaml"))
    machine = describe_machine(torch.device("cpu"))
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"{machine['processor']}, 1 thread, PyTorch {machine['torch']}, NumPy {np.__version__}{load}")

    made = loops(params)
    times = take_turns({name: (n * N_NEW, function) for name, (n, function) in made.items()}, rounds)
    base = times["textbook loop, 1 text"]
    rows = []
    for name, timer in times.items():
        wall, cpu = min(timer.wall), min(timer.cpu)
        ratios = [f"{min(base.wall) / wall:.1f}", f"{min(base.cpu) / cpu:.1f}"]
        rows.append([name, f"{1 / wall:,.0f}", f"{cpu * 1e6:,.0f}", *ratios])
    headers = ["variant", "characters/s", "CPU µs/character", "× textbook", "× textbook, by CPU time"]
    print(f"\n{N_NEW} new characters, best of {rounds} rounds\n")
    print(tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=["left"] + ["right"] * 4))
    for n in ("1 text", "32 texts"):
        theirs, ours = (times[f"GPT-2 form, {who}, {n}"] for who in ("transformers.generate", "ours"))
        paired = statistics.median(a / b for a, b in zip(theirs.wall, ours.wall, strict=True))
        print(
            f"\nours is {min(theirs.wall) / min(ours.wall):.1f} × transformers.generate for {n} (by round {paired:.1f})"
        )

    with torch.inference_mode():
        times = take_turns(steps(params), 3 * rounds)
    rows = [[name, f"{min(t.wall) * 1e6:,.0f}", f"{min(t.cpu) * 1e6:,.0f}"] for name, t in times.items()]
    print("\na step of one text, half way through the context\n")
    print(tabulate(rows, ["", "µs", "CPU µs"], tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    typer.run(main)
