"""What `python -m stages.export` writes, opened by the libraries it is meant for, and by us."""

import importlib
import json
import re
import shutil

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from stages.export import Format, export
from tests.conftest import ROOT
from tests.project import copy_project, run
from tinygpt.checkpoint import describe_model, save_checkpoint
from tinygpt.export import load_exported, load_trained
from tinygpt.files import read_json, write_json
from tinygpt.generation import continue_text
from tinygpt.huggingface import FORMS
from tinygpt.model import initial_model
from tinygpt.vocab import Vocab

VOCAB = Vocab("".join(sorted("\n 。，一二三四五六七八兔小狗猫跑")))
OTHER = {"norm": "layernorm", "position": "rope", "mlp": "swiglu", "bias": False, "tie_embeddings": True}
VARIANTS = {
    "textbook": {},
    "gpt2": FORMS["gpt2"],
    "llama": FORMS["llama"] | {"tie_embeddings": True},
    "relu2": {"mlp": "relu2", "qk_norm": True, "head_bias": False, "logit_soft_cap": 2.0},
    "other": OTHER,
}


@pytest.fixture
def trained(tmp_path, tiny_params):
    """Put a model where the train and evaluate stages would; return it with the paths as options."""

    def make(variant, folder=tmp_path, n_layer=2):
        params = tiny_params.model_copy(update=VARIANTS[variant] | {"dropout": 0.1, "n_layer": n_layer})
        model = initial_model(params, len(VOCAB), seed=3)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(5).add_(0.01)
        content = describe_model(model, model.state_dict(), VOCAB, seed=3) | {"step": 7, "val_nats_per_token": 2.5}
        save_checkpoint(folder / "data/model/best.pt", content)
        measures = {"nats_per_token": 2.25, "bits_per_char": 3.125}
        baseline = {"nats_per_token": 5.5, "bits_per_char": 8.0}
        test = {"model": measures, "baseline": baseline, "n_targets": 1234}
        write_json(folder / "reports/metrics.json", {"best_step": 7, "test": test})
        paths = {"model_dir": folder / "data/model", "export_dir": folder / "data/export"}
        return model.eval(), paths | {"metrics_path": folder / "reports/metrics.json"}

    return make


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)  # params.yaml


def some_ids(B, T):
    return torch.randint(len(VOCAB), (B, T), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("form", FORMS)
def test_transformers_opens_it_with_no_code_of_ours(trained, params, form):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, paths = trained(form)
    export(Format.hf, **paths)
    theirs = AutoModelForCausalLM.from_pretrained(paths["export_dir"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(paths["export_dir"])
    assert not any(paths["export_dir"].glob("*.py"))
    ids = some_ids(3, 12)
    assert torch.allclose(theirs(ids).logits, model(ids), atol=1e-4, rtol=0)

    prompt = "小龙 跑\n小"  # an unknown character, a space, a line end
    encoded = tokenizer(prompt, return_tensors="pt")
    written = theirs.generate(encoded.input_ids, max_new_tokens=5, do_sample=False)  # no mask, no warning
    greedy = params.sample.model_copy(update={"top_k": 1, "max_new_chars": 5})
    new = tokenizer.decode(written[0, encoded.input_ids.shape[1] :], skip_special_tokens=True)
    assert new == continue_text(model, VOCAB, prompt, 0, greedy).text


@pytest.mark.parametrize(
    ("variant", "format"), [("gpt2", "hf"), ("llama", "hf"), *((v, "safetensors") for v in VARIANTS)]
)
def test_a_folder_comes_back_as_the_same_model(trained, variant, format):
    model, paths = trained(variant)
    export(Format(format), **paths)
    back = load_trained(paths["export_dir"])
    ids = some_ids(3, 12)
    assert torch.equal(back.model(ids), model(ids)) and not back.model.training
    assert back.model.params == model.params
    assert back.vocab.characters == VOCAB.characters
    assert (back.seed, back.step, back.val_nats_per_token) == (3, 7, 2.5)
    assert torch.equal(load_trained(paths["model_dir"] / "best.pt").model(ids), model(ids))  # the checkpoint, too


@pytest.mark.parametrize("variant", ["textbook", "relu2", "other"])
def test_onnxruntime_computes_the_same_at_any_size(trained, variant, capfd, monkeypatch):
    import onnxruntime

    model, paths = trained(variant, n_layer=1)
    export(Format.onnx, **paths)
    session = onnxruntime.InferenceSession(paths["export_dir"] / "model.onnx", providers=["CPUExecutionProvider"])
    for B, T in ((1, 1), (1, 12), (2, 5), (7, 3)):
        ids = some_ids(B, T)
        (logits,) = session.run(None, {"ids": ids.numpy()})
        assert np.abs(logits - model(ids).detach().numpy()).max() < 1e-4
    data = (paths["export_dir"] / "model.onnx").read_bytes()
    assert str(ROOT).encode() not in data and b"model.py" not in data  # nothing of this machine
    assert capfd.readouterr().out.startswith("export: ")
    names = run_the_cards_example(paths["export_dir"], monkeypatch)
    assert np.abs(names["logits"] - model(torch.from_numpy(names["ids"])).detach().numpy()).max() < 1e-4
    with pytest.raises(ValueError, match="holds an ONNX graph, which onnxruntime opens"):
        load_trained(paths["export_dir"])


def test_the_same_model_is_the_same_bytes(trained):
    _, paths = trained("llama")
    contents = []
    for _ in range(2):
        export(Format.hf, **paths)
        contents.append({path.name: path.read_bytes() for path in paths["export_dir"].iterdir()})
    assert contents[0] == contents[1]
    assert all(b"\r" not in data for name, data in contents[0].items() if name != "model.safetensors")


def test_a_param_in_the_way_leaves_the_old_folder(trained):
    model, paths = trained("llama")
    export(Format.hf, **paths)
    trained("textbook")
    with pytest.raises(ValueError, match=r"gpt2 needs model.norm=layernorm \(is rmsnorm\), model.head_bias=false"):
        export(Format.hf, **paths)
    ids = some_ids(1, 12)
    assert torch.equal(load_exported(paths["export_dir"]).model(ids), model(ids))
    assert list(paths["export_dir"].parent.glob(".*")) == []


def test_a_package_that_is_missing_is_named(trained, monkeypatch):
    _, paths = trained("textbook")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find(name))
    with pytest.raises(ValueError, match="--format onnx needs onnxscript; run: python -m pip install onnxscript"):
        export(Format.onnx, **paths)


def test_a_missing_model_and_metrics_of_another_one_are_refused(trained, tmp_path):
    _, paths = trained("llama")
    with pytest.raises(FileNotFoundError, match="run first: dvc repro train"):
        export(Format.hf, **{**paths, "model_dir": tmp_path})
    write_json(paths["metrics_path"], read_json(paths["metrics_path"]) | {"best_step": 8})
    with pytest.raises(
        ValueError, match=r"metrics\.json is about another model than .*; run first: dvc repro evaluate"
    ):
        export(Format.hf, **paths)


def test_folders_that_cannot_be_loaded_are_named(trained, tmp_path):
    _, paths = trained("textbook")
    with pytest.raises(ValueError, match=r"model holds no params\.json of an exported model"):
        load_trained(paths["model_dir"])
    export(Format.safetensors, **paths)
    weights = paths["export_dir"] / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-10])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged or not its own"):
        load_trained(paths["export_dir"])
    trained("gpt2")
    export(Format.hf, **{**paths, "export_dir": tmp_path / "other"})
    shutil.copy(tmp_path / "other" / "model.safetensors", weights)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged or not its own"):
        load_trained(paths["export_dir"])


@pytest.mark.parametrize(
    ("override", "said", "licence"),
    [
        ("download.source=bundled", "come with the pipeline", "cc0-1.0"),
        ("download.source=hub", "`RobinChen2001/TinyStories-Zh-2M` at revision `main`", None),
        ("download.source=files", "Private files.", None),
    ],
)
def test_the_model_card(trained, override, said, licence):
    model, paths = trained("llama")
    export(Format.hf, **paths, set_param=[override])
    card = (paths["export_dir"] / "README.md").read_text(encoding="utf-8")
    front = YAML(typ="safe").load(re.match("---\n(.*?)---\n", card, re.DOTALL)[1])
    assert front.get("license") == licence and front["language"] == "zh"
    assert said in card and ("CC0" in card) == (licence is not None)
    assert f"{sum(parameter.numel() for parameter in model.parameters()):,} parameters" in card
    assert "2.2500" in card and "3.125" in card and "5.5000" in card and "1,234 test tokens" in card
    for key, value in model.params.model_dump().items():
        assert re.search(rf"\| `{key}` +\| {json.dumps(value)} ", card), key


@pytest.mark.parametrize("format", ["hf", "safetensors"])
def test_the_cards_example_runs(trained, monkeypatch, capsys, format):
    model, paths = trained("llama")
    export(Format(format), **paths)
    names = run_the_cards_example(paths["export_dir"], monkeypatch)
    if format == "safetensors":
        assert torch.equal(names["model"](some_ids(1, 5)), model(some_ids(1, 5)))
    else:
        assert capsys.readouterr().out.count("\n") >= 2  # the stage's line, then the text


def run_the_cards_example(folder, monkeypatch):
    card = (folder / "README.md").read_text(encoding="utf-8")
    code = re.search("```python\n(.*?)```", card, re.DOTALL)[1].replace("max_new_tokens=100", "max_new_tokens=3")
    monkeypatch.chdir(folder)
    names: dict = {}
    exec(compile(code, "card", "exec"), names)
    return names


def test_the_command(tmp_path, stories, trained):
    copy_project(tmp_path, stories)
    command = ("python", "-m", "stages.export")
    trained("other", tmp_path)
    output = run(tmp_path, *command, code=1)
    assert output.startswith("export: transformers knows no model of this form") and output.count("\n") == 1
    assert run(tmp_path, *command, "--format", "safetensors").startswith("export: data/export (safetensors, 0.0 MB)")
    run(tmp_path, "git", "init", "-q")
    assert "data/export" not in run(tmp_path, "git", "status", "--porcelain", "-uall")
