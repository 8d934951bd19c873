"""Checkpoints: weights with all that is needed to use them, or to go on training."""

import io
import os
import pickle
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tinygpt.files import replacing
from tinygpt.model import GPT
from tinygpt.params import ModelParams
from tinygpt.vocab import Vocab


class TrainedModel(NamedTuple):
    """What a checkpoint says about its model; `seed` is the one its initial weights came from."""

    model: GPT
    vocab: Vocab
    seed: int
    step: int
    val_nats_per_token: float


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write tensors, numbers and text; the old file stays until the new one is whole on the disk."""
    buffer = io.BytesIO()  # torch.save puts a file's name into the file: the same content, other bytes
    torch.save(_same_objects(content), buffer)
    with replacing(path) as partial, partial.open("wb") as file:
        file.write(buffer.getbuffer())
        file.flush()
        os.fsync(file.fileno())


def _same_objects(value: Any) -> Any:
    """A copy in which equal strings are one object and no containers are shared.

    Pickle writes an object once and refers to it later, by identity; without this a resumed run,
    whose strings come from a file, would save the same content as other bytes.
    """
    if isinstance(value, dict):
        return {_same_objects(key): _same_objects(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_same_objects(item) for item in value)
    return sys.intern(value) if type(value) is str else value


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU. Nothing in the file is executed (`weights_only=True`).

    Raises:
        ValueError: the file is damaged or was not written by `save_checkpoint`.
    """
    try:
        if not zipfile.is_zipfile(path):  # what torch.save writes; nothing else is even tried
            raise ValueError("incomplete or of another kind")
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise ValueError(f"the checksum of {damaged} does not fit")
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is damaged or no checkpoint ({reason}); make it again: dvc repro -f train") from error


def describe_model(model: GPT, weights: dict[str, torch.Tensor], vocab: Vocab, seed: int) -> dict[str, Any]:
    """The part of a checkpoint that `load_model` reads."""
    return {
        "weights": weights,
        "model": model.params.model_dump(),
        "characters": vocab.characters,
        "vocab_sha256": vocab.sha256,
        "seed": seed,
    }


def load_model(path: Path) -> TrainedModel:
    """The model of a checkpoint in evaluation mode, with the vocabulary it was trained on."""
    content = load_checkpoint(path)
    vocab = Vocab(content["characters"])
    model = GPT(ModelParams.model_validate(content["model"]), len(vocab))
    model.load_state_dict(content["weights"])
    return TrainedModel(model.eval(), vocab, content["seed"], content["step"], content["val_nats_per_token"])


class WorkFolder:
    """Where a run in progress keeps its two latest checkpoints, outside of DVC's outs.

    The older one stays until the newer one is whole, and serves if the newer one is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.latest = folder / "latest.pt"
        self.previous = folder / "previous.pt"

    def save(self, content: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.latest.exists():
            os.replace(self.latest, self.previous)
        save_checkpoint(self.latest, content)

    def load(self) -> dict[str, Any] | None:
        """The newest readable checkpoint, or None where there is none; names a damaged one."""
        for path in (self.latest, self.previous):
            if not path.exists():
                continue
            try:
                return load_checkpoint(path)
            except ValueError as error:
                print(f"{error}; going back to the checkpoint before it", file=sys.stderr)
        return None

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
