"""Write the selected model as a folder that other programs open. Stands beside the pipeline."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from stages.command import SetParam, need, run
from tinygpt.checkpoint import load_model
from tinygpt.export import FORMATS, write_export
from tinygpt.files import read_json, replacing
from tinygpt.model_card import write_model_card
from tinygpt.params import load_params

Format = Enum("Format", {name: name for name in FORMATS})


def export(
    format: Annotated[
        Format, typer.Option(help="hf: transformers, as GPT-2 or Llama; safetensors and onnx: any params.")
    ] = Format.hf,
    model_dir: Path = Path("data/model"),
    metrics_path: Path = Path("reports/metrics.json"),
    export_dir: Path = Path("data/export"),
    set_param: SetParam = None,
) -> None:
    """Write the selected model as a folder that other programs open."""
    params = load_params(Path("params.yaml"), set_param)
    trained = load_model(need(model_dir / "best.pt", "train"))
    metrics = read_json(need(metrics_path, "evaluate"))
    if metrics["best_step"] != trained.step:
        raise ValueError(f"{metrics_path} is about another model than {model_dir}; run first: dvc repro evaluate")
    with replacing(export_dir) as partial:
        partial.mkdir()
        write_export(partial, trained, format.value)
        write_model_card(partial, trained, format.value, params.download, metrics)
    n_bytes = sum(path.stat().st_size for path in export_dir.iterdir())
    print(f"export: {export_dir} ({format.value}, {n_bytes / 1e6:.1f} MB); its README.md says how to open it")


if __name__ == "__main__":
    run(export)
