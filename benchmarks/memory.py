"""Memory of training on a large stream: it must not grow with the stream.

    python -m benchmarks.memory --gigabytes 1

Trains the default model for some hundred steps on a made-up stream of that size, by the real train
stage, and prints the peak of the resident memory, pages of the mapped stream included.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tinygpt.files import read_json
from tinygpt.tokens import DTYPE
from tinygpt.vocab import Vocab


def main(
    gigabytes: Annotated[float, typer.Option(min=0.001, help="Size of the training stream.")] = 1.0,
    steps: Annotated[int, typer.Option(min=1)] = 500,
) -> None:
    """Print the peak resident memory of a training run on a made-up stream."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vocab = Vocab("".join(chr(0x4E00 + i) for i in range(3032)))
        vocab.save(folder / "vocab.json")
        rng = np.random.default_rng(0)
        with (folder / "train.bin").open("wb") as file:
            for _ in range(round(gigabytes * 1000)):
                file.write(rng.integers(len(vocab), size=500_000).astype(DTYPE).tobytes())
        rng.integers(len(vocab), size=100_000).astype(DTYPE).tofile(folder / "val.bin")
        paths = ["--encoded-dir", folder, "--vocab-path", folder / "vocab.json", "--model-dir", folder / "model"]
        paths += ["--curve-path", folder / "training.csv", "--cost-path", folder / "cost.json"]
        paths += ["--checkpoint-dir", folder / "checkpoints", "-S", f"train.max_steps={steps}"]
        subprocess.run([sys.executable, "-m", "stages.train", *map(str, paths)], check=True, stdout=sys.stderr)
        peak = read_json(folder / "cost.json")["peak_memory_mib"]
        print(f"{gigabytes:g} GB stream, {steps:,} steps: peak resident memory {peak:,.0f} MiB")


if __name__ == "__main__":
    typer.run(main)
