import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch

from tests.test_charts import texts
from tinygpt.heatmaps import BLUE, ORANGE, attention_figure, head_figure

LABELS = list("▶小兔<&")


@pytest.fixture(scope="module")
def stages():
    rng = torch.Generator().manual_seed(0)
    vectors = {name: torch.randn(5, 4, generator=rng) for name in ("q", "k", "v", "read")}
    scores = torch.tensor([[0.0, 2, -4, 1, 1]] * 5)
    masked = scores.masked_fill(torch.ones(5, 5).triu(1) == 1, -torch.inf)
    weights = masked.softmax(-1)
    return {
        **vectors,
        "scores": scores,
        "scaled": scores / 2,
        "masked": masked,
        "weights": weights,
        "unscaled": weights,
    }


def test_every_head_has_a_panel_with_the_characters_on_both_axes():
    svg = attention_figure([torch.full((3, 5, 5), 0.2)] * 2, LABELS, "zh")
    shown = texts(svg)
    assert [text for text in shown if "层" in text] == [f"第 {b} 层 · 第 {h} 头" for b in (1, 2) for h in (1, 2, 3)]
    for character in LABELS:
        assert shown.count(character) == 6 * 2
    assert "block 2 · head 3" in texts(attention_figure([torch.full((3, 5, 5), 0.2)] * 2, LABELS, "en"))


def test_a_big_model_shows_its_first_heads():
    svg = attention_figure([torch.full((12, 5, 5), 0.2)] * 10, LABELS, "en")
    assert sum("head" in text for text in texts(svg)) == 64 and len(svg.encode()) < 200_000


def test_a_cell_is_as_strong_as_its_value():
    weights = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    cells = re.findall(
        r'<path stroke="(#\w+)" stroke-opacity="([\d.]+)" d="(.*?)"', attention_figure([weights], ["a", "b"], "en")
    )
    assert [(color, opacity, path.count("M")) for color, opacity, path in cells] == [(BLUE, "0.4", 2), (BLUE, "0.8", 1)]


def test_the_stages_show_their_numbers(stages):
    svg = head_figure(stages, LABELS, "en")
    shown = texts(svg)
    assert shown.count("−∞") == 10 and "−4.0" in shown and "−2.0" in shown and "1.00" in shown
    assert "−0.0" not in shown and "0.0" in shown
    for title in ("Q query", "② QKᵀ / √D scaled", "④ A = softmax weights", "⑤ AV what was read"):
        assert title in shown
    assert f'stroke="{ORANGE}"' in svg and "prefers-color-scheme:dark" in svg and "var(--strong" in svg


def test_the_same_numbers_give_the_same_bytes(stages):
    assert head_figure(stages, LABELS, "zh") == head_figure(stages, LABELS, "zh")
    ElementTree.fromstring(head_figure(stages, LABELS, "zh"))


def test_one_token_is_enough():
    one = torch.ones(1, 1)
    names = ("scores", "scaled", "masked", "weights", "unscaled", "q", "k", "v", "read")
    assert "−" not in texts(head_figure(dict.fromkeys(names, one), ["▶"], "en"))
