"""Show what the model is made of: its parameters, and one forward pass shape by shape. Stands beside the pipeline."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from tabulate import tabulate

from stages.command import SetParam, run
from tinygpt.model import parameter_table
from tinygpt.params import load_params
from tinygpt.vocab import Vocab
from tinygpt.walk import forward_walk, sizes


def describe(
    vocab_size: Annotated[
        int | None, typer.Option(min=1, help="In place of a vocabulary that is not there yet.")
    ] = None,
    vocab_path: Path = Path("data/vocab.json"),
    set_param: SetParam = None,
) -> None:
    """Show what the model is made of: its parameters, and one forward pass shape by shape."""
    params = load_params(Path("params.yaml"), set_param)
    if vocab_size is None and not vocab_path.exists():
        raise FileNotFoundError(f"{vocab_path} is missing; run first: dvc repro vocab  (or give --vocab-size)")
    V, B = vocab_size or len(Vocab.load(vocab_path)), params.train.batch_size
    with torch.device("meta"):  # no memory: any size will do
        table = parameter_table(params.model, V)
    rows = [[part, formula, f"{count:,}"] for part, formula, count in table]
    rows.append(["total", "", f"{sum(count for _, _, count in table):,}"])
    print(tabulate(rows, ["part", "formula", "parameters"], colalign=("left", "left", "right"), disable_numparse=True))
    print("\n" + ", ".join(f"{letter} = {size:,}" for letter, size in sizes(params.model, V, B).items()) + "\n")
    steps = [
        [step.name, step.letters, " × ".join(map(str, step.shape)), step.meaning]
        for step in forward_walk(params.model, V, B)
    ]
    print(tabulate(steps, ["tensor", "shape", "here", "what it is"], disable_numparse=True))


if __name__ == "__main__":
    run(describe)
