"""Fixtures shared by the tests: a tiny model, a few stories, the repository's params."""

from pathlib import Path

import pytest
import torch

from tests.browser import browser  # noqa: F401  a fixture
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
    """A few dozen different stories, long enough to be kept and not near duplicates of each other."""
    animals, places = "兔猫狗鸟鱼熊", "山海河林村园"
    deeds = [
        "它每天去找朋友",
        "一天下起了大雨",
        "妈妈给它一个红苹果",
        "它想飞到月亮上",
        "它弄丢了新帽子",
        "它学会了唱歌",
    ]
    ends = [
        "大家都很开心。",
        "它笑了起来。",
        "晚上睡得真香。",
        "从此再也不怕黑了。",
        "太阳出来了。",
        "它说：“谢谢你！”",
    ]
    return [
        f"从前，有一只小{animal}住在{place}里。{deeds[(i + j) % 6]}，{ends[(2 * i + j) % 6]}"
        f"第{6 * i + j}天，{deeds[j - i]}。"
        for i, animal in enumerate(animals)
        for j, place in enumerate(places)
    ]
