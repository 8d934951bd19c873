"""The explorer: a trained model in one HTML page that computes what PyTorch computes, without a network."""

import base64
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tinygpt.checkpoint import TrainedModel
from tinygpt.model import parameter_table
from tinygpt.params import SampleParams, TrainParams
from tinygpt.vocab import SPECIALS, code_points

WEB = Path(__file__).parent / "web"
ENGINE = ("random", "numbers", "kernel", "model", "sampling", "file")
PANELS = ("1_ids", "2_vectors", "3_attention", "4_layers", "5_odds", "6_writing", "7_surprise", "8_parameters")
SCRIPTS = (  # they become one, in this order
    *(f"engine/{name}.js" for name in ENGINE),
    *("page/frame.js", "page/widgets.js"),
    *(f"page/panel{name}.js" for name in PANELS),
    "main.js",
)
STYLES = ("style.css", "page/panels_5_to_8.css")


def make_explorer(data: str) -> str:
    """The page: index.html with the styles, the scripts and `data` (from `pack`) inside."""
    environment = Environment(
        loader=FileSystemLoader(WEB, encoding="utf-8"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    script = '"use strict";\n' + joined(SCRIPTS)
    return environment.get_template("index.html").render(style=joined(STYLES), script=script, data=data)


def joined(names: Iterable[str]) -> str:
    return "\n".join((WEB / name).read_text(encoding="utf-8") for name in names)


def pack(trained: TrainedModel, metrics: dict[str, Any], train: TrainParams, sample: SampleParams) -> str:
    """All that the page knows, as ASCII text that can stand in a <script> element: a checksum, then JSON.

    The weights are in 16 bits each (IEEE 754 binary16), little end first, tensor after tensor, in base64.

    Raises:
        ValueError: a weight is too large for 16 bits, or no number.
    """
    params = trained.model.params
    weights = trained.model.state_dict()
    shapes = {name: list(tensor.shape) for name, tensor in weights.items()}
    if params.tie_embeddings:
        del weights["lm_head.weight"]  # it is the token embedding's
    content = {
        "params": {
            "seed": trained.seed,
            "model": params.model_dump(),
            "train": train.model_dump(),
            "sample": sample.model_dump(),
        },
        "specials": SPECIALS,
        "code_points": code_points(trained.vocab.characters).tolist(),
        "metrics": metrics,
        "parts": parameter_table(params, len(trained.vocab)),
        "shapes": shapes,
        "weights": base64.b64encode(b"".join(halves(name, tensor) for name, tensor in weights.items())).decode(),
    }
    text = json.dumps(content, allow_nan=False).replace("<", r"\u003c")  # no </script> can end the element
    return f"crc32 {zlib.crc32(text.encode('ascii')):08x}\n{text}\n"


def halves(name: str, tensor: torch.Tensor) -> bytes:
    rounded = tensor.to(torch.float16)
    if not rounded.isfinite().all():
        raise ValueError(f"{name} has a weight of {tensor.abs().max().item():g}, too large for 16 bits (65504)")
    return rounded.numpy().astype("<f2").tobytes()


def headline(trained: TrainedModel, metrics: dict[str, Any], split: dict[str, Any]) -> dict[str, Any]:
    """What the page says of the run: the figures of the test stories, and what the model was trained on."""
    test = metrics["test"]
    return {
        "best_step": metrics["best_step"],
        "n_parameters": sum(parameter.numel() for parameter in trained.model.parameters()),
        "test": test["model"],
        "baseline": test["baseline"],
        "test_stories": test["n_stories"],
        "training_stories": split["train"]["n_stories"],
        "training_characters": split["train"]["n_chars"],
    }
