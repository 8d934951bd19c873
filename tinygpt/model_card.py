"""The README.md of an exported model: what it is, how to open it, what it can be trusted with."""

import json
from pathlib import Path
from typing import Any

from tabulate import tabulate

from tinygpt.checkpoint import TrainedModel
from tinygpt.files import write_text
from tinygpt.params import DownloadParams


def write_model_card(
    folder: Path, trained: TrainedModel, format: str, download: DownloadParams, metrics: dict[str, Any]
) -> None:
    """README.md of the folder: use, data, test results, licence, params. `metrics` is reports/metrics.json."""
    params = trained.model.params
    n_parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    data, licence = _data_and_licence(download)
    test = metrics["test"]
    results = [
        [name, f"{test[key]['nats_per_token']:.4f}", f"{test[key]['bits_per_char']:.3f}"]
        for name, key in (("this model", "model"), ("guessing by character frequency", "baseline"))
    ]
    values = [[f"`{key}`", json.dumps(value)] for key, value in params.model_dump().items()]
    head = {
        "language": "zh",
        **({"license": "cc0-1.0"} if download.source == "bundled" else {}),
        **({"library_name": "transformers"} if format == "hf" else {}),
        "pipeline_tag": "text-generation",
    }
    front = "".join(f"{key}: {value}\n" for key, value in head.items())
    text = f"""---
{front}---

# TinyGPT

A character-level language model of Chinese short stories, {n_parameters:,} parameters, trained from scratch by the
pipeline TinyGPT. It reads at most {params.context_size} tokens, each a character or a mark (`<bos>` before a story,
`<eos>` behind it, `<unk>` for a character that the training stories lack). It knows no facts and follows no
instructions.

## Use

```python
{USE[format].strip()}
```

## Data

{data} The vocabulary has {len(trained.vocab):,} entries, from the training stories alone.

## Results

On {test["n_targets"]:,} test tokens, from stories that were not trained on:

{tabulate(results, ["", "nats per token", "bits per character"], tablefmt="github", disable_numparse=True)}

The weights are those of step {trained.step:,}, the best on fixed validation windows
({trained.val_nats_per_token:.4f} nats per token).

## Licence

{licence}

## Params

{tabulate(values, ["model", "value"], tablefmt="github", disable_numparse=True)}
"""
    write_text(folder / "README.md", text)


def _data_and_licence(download: DownloadParams) -> tuple[str, str]:
    if download.source == "bundled":
        return (
            "Original Chinese stories for young children that come with the pipeline, written by a language model for "
            "this purpose. No person has read them all.",
            "The stories are dedicated to the public domain under "
            "[CC0 1.0](https://creativecommons.org/publicdomain/zero/1.0/); the weights come with no conditions "
            "of their own.",
        )
    if download.source == "hub":
        name, revision = download.hub_repo, download.hub_revision
        return f"The data set `{name}` at revision `{revision}`.", f"See the licence of the data set `{name}`."
    return "Private files.", "Not stated: whoever publishes this model knows the licence of the texts."


USE = {
    "hf": """
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".")
ids = tokenizer("从前，有一只小兔子，", return_tensors="pt").input_ids
print(tokenizer.decode(model.generate(ids, max_new_tokens=100, do_sample=True, top_k=40)[0], skip_special_tokens=True))
""",
    "safetensors": """
from pathlib import Path

from tinygpt.export import load_exported  # in a checkout of the pipeline

model, vocab, *_ = load_exported(Path("."))
""",
    "onnx": """
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("tokenizer.json")
ids = np.array([tokenizer.encode("从前，有一只小兔子，").ids])  # int64 (batch, length)
(logits,) = onnxruntime.InferenceSession("model.onnx").run(None, {"ids": ids})  # (batch, length, vocabulary)
print(tokenizer.decode([int(logits[0, -1].argmax())]))
""",
}
