import re

import pytest

from tests.conftest import ROOT
from tinygpt.params import load_params


def load(*overrides: str):
    return load_params(ROOT / "params.yaml", list(overrides))


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("train.learning_rate=1e-3", ("train", "learning_rate"), 0.001),
        ("train.learning_rate=1e-05", ("train", "learning_rate"), 0.00001),  # what dvc writes for 0.00001
        ("model.bias=false", ("model", "bias"), False),
        ("sample.prompts=[你好，世界,再见]", ("sample", "prompts"), ["你好，世界", "再见"]),
        ("seed=7", ("seed",), 7),
        ("split.train_chars=1_000", ("split", "train_chars"), 1000),
    ],
)
def test_an_override_is_read_as_yaml(override, key, value):
    node = load(override)
    for name in key:
        node = getattr(node, name)
    assert node == value


def test_an_override_reaches_into_a_list():
    assert load("sample.prompts.1=你好").sample.prompts[1] == "你好"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.n_layers=3", "-S model.n_layers=3: there is no key 'n_layers'; did you mean n_layer?"),
        ("modle.n_layer=3", "did you mean model?"),
        ("sample.prompts.9=x", "there is no key '9'"),
        ("train.max_steps", "write it as key=value"),
        ("train.max_steps=many", "train.max_steps = 'many': Input should be a valid integer"),
        ("model.n_head=3", "n_embd = 128 does not divide by n_head = 3"),
        ("model.mlp=relu", "model.mlp = 'relu': Input should be 'gelu', 'relu2' or 'swiglu'"),
        ("model.bias=yes", "model.bias = 'yes'"),  # YAML 1.2, as dvc: yes is a word
        ("split.val_share=0.97", "leaves nothing to train on"),
        ("clean.min_chars=99999", "min_chars = 99999 is above max_chars"),
        ("model.logit_soft_cap=-1", "model.logit_soft_cap = -1: Input should be greater than or equal to 0"),
        ("train.ema_decay=1", "train.ema_decay = 1: Input should be less than 1"),
        ("train.story_start_share=1.5", "train.story_start_share = 1.5: Input should be less than or equal to 1"),
        ("train.learning_rate=.nan", "train.learning_rate = nan"),
        ("seed=[1", "is not valid YAML"),
    ],
)
def test_a_bad_override_is_named(override, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load(override)


def test_rope_needs_pairs_of_channels():
    with pytest.raises(ValueError, match="position = rope"):
        load("model.position=rope", "model.n_embd=12", "model.n_head=4")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  n_layer: 4", "  n_layers: 4", "there is no key model.n_layers; did you mean n_layer?"),
        ("  n_layer: 4\n", "", "model.n_layer is missing"),
        ("seed: 0 #", "seeed: 0\nseed: 0 #", "there is no key seeed; did you mean seed?"),
    ],
)
def test_a_misspelt_file_is_named(tmp_path, old, new, message):
    path = tmp_path / "params.yaml"
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(message)):
        load_params(path)


def test_a_file_without_sections_is_named(tmp_path):
    (tmp_path / "params.yaml").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="holds no sections"):
        load_params(tmp_path / "params.yaml")
