"""The models that the READMEs list: their options, and their sizes worked out part by part."""

import math
import re

import pytest
import torch

from tests.conftest import ROOT
from tinygpt.model import initial_model, next_token_nats, parameter_table
from tinygpt.params import load_params

V = 3035  # the textbook's vocabulary


def rows(readme):
    """(options, parameters) of each row of the table."""
    text = (ROOT / readme).read_text(encoding="utf-8")
    found = re.findall(r"^\| [^|]+ \| (none|无|`-S [^|]+`) \| ([\d,]+) \|$", text, re.MULTILINE)
    return [(re.findall(r"-S (\S+[^`\s])", options), int(count.replace(",", ""))) for options, count in found]


ROWS = rows("README.md")


def counts(params, vocab_size):
    with torch.device("meta"):
        return {part: count for part, _, count in parameter_table(params.model, vocab_size)}


def by_hand(C, L, T, F, norm, matrices, biases):
    """Embeddings and head of V × C each, T positions (0 with RoPE), and per block the MLP's matrices of C × F.

    `norm` parameters per norm, two in a block and one behind; `biases` in a block.
    """
    block = 4 * C * C + matrices * C * F + biases + 2 * norm
    return 2 * V * C + T * C + L * block + norm


def test_both_readmes_list_the_same():
    assert ROWS == rows("README.zh-CN.md")
    assert [count for _, count in ROWS] == [
        by_hand(128, 4, T=128, F=512, norm=128, matrices=2, biases=4 * 128 + 512 + 128) + V,
        by_hand(256, 6, T=256, F=1024, norm=256, matrices=2, biases=4 * 256 + 1024 + 256) + V,
        by_hand(384, 6, T=0, F=1536, norm=2 * 384, matrices=2, biases=4 * 384 + 1536 + 384) + V,
        by_hand(128, 4, T=128, F=512, norm=2 * 128, matrices=2, biases=4 * 128 + 512 + 128) + V,
        by_hand(128, 4, T=128, F=512, norm=2 * 128, matrices=2, biases=4 * 128 + 512 + 128),
        by_hand(128, 4, T=0, F=344, norm=128, matrices=3, biases=0),
    ]


@pytest.mark.parametrize(("options", "count"), ROWS)
def test_the_listed_models_have_the_listed_size_and_run(options, count):
    params = load_params(ROOT / "params.yaml", options)
    assert sum(counts(params, V).values()) == count
    model = initial_model(params.model, V, seed=0).eval()
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    rng = torch.Generator().manual_seed(0)
    ids, targets = (torch.randint(V, (2, 16), generator=rng) for _ in range(2))
    assert next_token_nats(model(ids), targets).mean().item() == pytest.approx(math.log(V), rel=0.03)


def test_the_textbooks_second_model_has_6_62_million_parameters_with_about_3545_characters():
    """Its text names the size, 6.62 million, but not the vocabulary; a character costs 2 × 256 + 1 parameters."""
    params = load_params(ROOT / "params.yaml", ROWS[1][0])
    rounds_to = {size: round(sum(counts(params, size).values()) / 1e6, 2) for size in (3535, 3536, 3545, 3555, 3556)}
    assert rounds_to == {3535: 6.61, 3536: 6.62, 3545: 6.62, 3555: 6.62, 3556: 6.63}


def test_the_hand_built_model_part_by_part():
    """6 layers × 384 × 6 heads. Characters make it 13 million; GPT-2's 50,257 tokens the 50 million of the course."""
    params = load_params(ROOT / "params.yaml", ROWS[2][0])
    assert params.model.n_embd // params.model.n_head == 64
    assert counts(params, V) == {
        "token embedding": 1_165_440,  # 3,035 × 384
        "norms of the blocks": 9_216,  # 6 × 2 × (384 + 384)
        "attention of the blocks": 3_548_160,  # 6 × 4 × (384 × 384 + 384)
        "MLPs of the blocks": 7_089_408,  # 6 × (384 × 1,536 + 1,536 + 1,536 × 384 + 384)
        "final norm": 768,
        "lm_head": 1_168_475,  # 384 × 3,035 + 3,035
    }
    assert sum(counts(params, 50_257).values()) == 49_295_185


def test_the_readmes_second_model_is_the_one_that_the_experiment_runs():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"dvc exp run -n large(.*?)```", text, re.DOTALL)[1]
    of_model = [option for option in re.findall(r"-S (\S+)", command) if option.startswith("model.")]
    assert of_model == ROWS[1][0]
