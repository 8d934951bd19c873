import pytest
import torch

from stages.describe import describe
from tests.conftest import ROOT
from tests.project import run
from tinygpt.model import GPT
from tinygpt.walk import forward_walk, sizes


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"position": "rope", "mlp": "swiglu", "norm": "layernorm", "bias": False},
        {"mlp": "relu2", "qk_norm": True, "tie_embeddings": True, "dropout": 0.1, "logit_soft_cap": 2.0},
    ],
)
def test_letters_and_numbers_agree(tiny_params, variant):
    params = tiny_params.model_copy(update=variant)
    assert sizes(params, 50, 3)["F"] == (48 if params.mlp == "swiglu" else 64)
    for step in forward_walk(params, 50, 3):
        written = step.letters.replace("3C", "3*C")
        assert eval(written, {}, sizes(params, 50, 3)) == step.shape, step


def test_the_walk_by_hand(params):
    """The textbook's model: 8 windows of 128, 4 heads of 32 channels, 3,035 entries."""
    steps = {step.name: step.shape for step in forward_walk(params.model, 3035, 8)}
    assert list(steps.items()) == [
        ("ids", (8, 128)),
        ("token_embedding", (8, 128, 128)),
        ("position_embedding", (128, 128)),
        ("blocks.0.norm1", (8, 128, 128)),
        ("blocks.0.attention.qkv_proj", (8, 128, 384)),
        *((f"blocks.0.attention.{name}", (8, 4, 128, 32)) for name in "qkv"),
        ("blocks.0.attention.weights", (8, 4, 128, 128)),
        ("blocks.0.attention.heads", (8, 4, 128, 32)),
        ("blocks.0.attention.o_proj", (8, 128, 128)),
        ("blocks.0.norm2", (8, 128, 128)),
        ("blocks.0.mlp.up_proj", (8, 128, 512)),
        ("blocks.0.mlp.down_proj", (8, 128, 128)),
        *((f"blocks.{number}", (8, 128, 128)) for number in range(4)),
        ("final_norm", (8, 128, 128)),
        ("lm_head", (8, 128, 3035)),
    ]


def test_the_walk_ends_in_what_the_model_gives(tiny_params):
    assert (
        forward_walk(tiny_params, 50, 3)[-1].shape == GPT(tiny_params, 50)(torch.zeros(3, 12, dtype=torch.long)).shape
    )


def test_a_soft_cap_is_the_last_step(tiny_params):
    names = [step.name for step in forward_walk(tiny_params.model_copy(update={"logit_soft_cap": 2.0}), 50, 3)]
    assert names == [step.name for step in forward_walk(tiny_params, 50, 3)] + ["soft_cap"]


def test_a_large_model_costs_nothing(params):
    huge = params.model.model_copy(update={"n_layer": 64, "n_embd": 2**14, "n_head": 128, "context_size": 2**12})
    assert forward_walk(huge, 2**16, 512)[-1].shape == (512, 2**12, 2**16)


def test_the_command():
    output = run(ROOT, "python", "-m", "stages.describe", "--vocab-size", "3035", "-S", "model.n_layer=2")
    lines = [line.split() for line in output.splitlines()]
    assert ["total", f"{1_588_571 - 2 * 198_016:,}"] in lines  # a block of the textbook's model has 198,016
    assert "B = 8, T = 128, C = 128, H = 4, D = 32, F = 512, L = 2, V = 3,035" in output
    assert "8 × 4 × 128 × 128" in output


def test_the_vocabulary_is_read_or_given(tmp_path, monkeypatch, capsys, book_vocab):
    monkeypatch.chdir(ROOT)
    with pytest.raises(FileNotFoundError, match=r"run first: dvc repro vocab  \(or give --vocab-size\)"):
        describe(vocab_path=tmp_path / "vocab.json")
    book_vocab.save(tmp_path / "vocab.json")
    describe(vocab_path=tmp_path / "vocab.json")
    assert "V = 7" in capsys.readouterr().out
