"""A trained model as a folder that other programs open; and such a folder as a model again.

Every format has params.json (the model's params and where the weights come from), vocab.json, the
tokenizer as the `tokenizers` library reads it. The weights:

hf            model.safetensors and config.json in the form of GPT-2 or Llama, see huggingface.py
safetensors   model.safetensors under our own names, for any params
onnx          model.onnx: int64 ids (batch, length) -> float32 logits (batch, length, V), for any params
"""

import importlib.util
import logging
import warnings
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tinygpt.checkpoint import TrainedModel, load_model
from tinygpt.files import read_json, write_json
from tinygpt.huggingface import (
    from_form,
    make_config,
    make_generation_config,
    make_tokenizer,
    make_tokenizer_config,
    to_form,
)
from tinygpt.model import GPT
from tinygpt.params import ModelParams
from tinygpt.vocab import Vocab

FORMATS = ("hf", "safetensors", "onnx")
ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
ONNX_TOLERANCE = 1e-4  # between our logits and onnxruntime's


def write_export(folder: Path, trained: TrainedModel, format: str) -> None:
    """Write the model into `folder`, which exists.

    Raises:
        ValueError: the params do not fit the format, or a package that it needs is missing.
    """
    model, vocab, seed, step, val_nats_per_token = trained
    if format == "hf":
        _save_weights(folder, to_form(model))
        write_json(folder / "config.json", make_config(model))
        write_json(folder / "generation_config.json", make_generation_config())
    elif format == "safetensors":
        weights = model.state_dict()
        if model.params.tie_embeddings:
            del weights["lm_head.weight"]  # the same tensor as the embedding's
        _save_weights(folder, weights)
    else:
        _write_onnx(folder / "model.onnx", model)
    origin = {"seed": seed, "step": step, "val_nats_per_token": val_nats_per_token, "vocab_sha256": vocab.sha256}
    write_json(folder / "params.json", {"format": format, "model": model.params.model_dump(), **origin})
    vocab.save(folder / "vocab.json")
    write_json(folder / "tokenizer.json", make_tokenizer(vocab))
    write_json(folder / "tokenizer_config.json", make_tokenizer_config(model.params.context_size))


def _save_weights(folder: Path, weights: dict[str, Tensor]) -> None:
    data = save(weights, metadata={"format": "pt"})  # transformers asks for this mark
    (folder / "model.safetensors").write_bytes(data)


def _write_onnx(path: Path, model: GPT) -> None:
    """Any batch size and any length up to the context; compared with the model at several of them."""
    if missing := [name for name in ONNX_PACKAGES if importlib.util.find_spec(name) is None]:
        raise ValueError(f"--format onnx needs {', '.join(missing)}; run: python -m pip install {' '.join(missing)}")
    T = model.params.context_size
    lengths = torch.export.Dim("length", max=T) if T > 1 else torch.export.Dim.STATIC
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of packages that it does not find
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the exporter's own code
        program = torch.onnx.export(
            model,
            (torch.zeros(2, min(T, 2), dtype=torch.long),),
            input_names=["ids"],
            output_names=["logits"],
            dynamic_shapes={"ids": {0: torch.export.Dim("batch"), 1: lengths}},
            dynamo=True,
            verbose=False,
        )
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces, with the paths of this machine
    program.save(path, external_data=False)
    _check_onnx(path, model)


@torch.no_grad()
def _check_onnx(path: Path, model: GPT) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    V, T = model.lm_head.out_features, model.params.context_size
    for B, length in ((1, 1), (3, T)):
        ids = torch.randint(V, (B, length), generator=torch.Generator().manual_seed(0))
        (logits,) = session.run(None, {"ids": ids.numpy()})
        difference = (torch.from_numpy(logits) - model(ids)).abs().max().item()
        if not difference < ONNX_TOLERANCE:
            raise ValueError(f"onnxruntime's logits differ by {difference:.2g} from ours; use --format safetensors")


def load_exported(folder: Path) -> TrainedModel:
    """The model of a folder that `write_export` made, hf or safetensors; no code in it is executed.

    Raises:
        ValueError: a file is damaged, or the folder is of another kind.
        FileNotFoundError: a file is missing.
    """
    origin = folder / "params.json"
    saved = read_json(origin) if origin.exists() else {}
    if saved.get("format") not in FORMATS:
        raise ValueError(f"{folder} holds no params.json of an exported model; make one: python -m stages.export")
    if saved["format"] == "onnx":
        raise ValueError(f"{folder} holds an ONNX graph, which onnxruntime opens; export --format safetensors instead")
    params, vocab = ModelParams.model_validate(saved["model"]), Vocab.load(folder / "vocab.json")
    model = GPT(params, len(vocab))
    try:
        weights = load_file(folder / "model.safetensors")
        if saved["format"] == "hf":
            weights = from_form(weights, params)
        if params.tie_embeddings:
            weights["lm_head.weight"] = weights["token_embedding.weight"]
        model.load_state_dict(weights)
    except (SafetensorError, KeyError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{folder}/model.safetensors is damaged or not its own ({reason}); export again") from error
    return TrainedModel(model.eval(), vocab, saved["seed"], saved["step"], saved["val_nats_per_token"])


def load_trained(path: Path) -> TrainedModel:
    """The model at `path`: a checkpoint file or an exported folder."""
    return load_exported(path) if path.is_dir() else load_model(path)
