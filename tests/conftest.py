"""Fixtures shared by the tests: a tiny model, a few stories, the repository's params."""

from pathlib import Path

import pytest
import torch

from tinygpt.model import GPT, initial_model
from tinygpt.params import ModelParams, Params, load_params
from tinygpt.vocab import Vocab

torch.set_num_threads(1)  # tiny models: a second thread costs more than it brings

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def params() -> Params:
    return load_params(ROOT / "params.yaml")


@pytest.fixture(scope="session")
def tiny_params(params: Params) -> ModelParams:
    return params.model.model_copy(update={"n_layer": 2, "n_head": 2, "n_embd": 16, "context_size": 12})


@pytest.fixture
def tiny_model(tiny_params: ModelParams) -> GPT:
    return initial_model(tiny_params, vocab_size=20, seed=0).eval()


@pytest.fixture(scope="session")
def book_vocab() -> Vocab:
    """The vocabulary of the textbook's example."""
    return Vocab("。兔小跑")


@pytest.fixture(scope="session")
def stories() -> list[str]:
    """A few dozen different stories, long enough to be kept."""
    animals, places = "兔猫狗鸟鱼熊", "山海河林村园"
    return [
        f"从前，有一只小{animal}住在{place}里。它每天去{place}边找朋友{number}，大家都很开心。"
        for number, (animal, place) in enumerate((a, p) for a in animals for p in places)
    ]
