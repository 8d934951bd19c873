import re
import xml.etree.ElementTree as ElementTree

import pytest

from tinygpt.charts import bounds, funnel_chart, loss_chart, position_chart, rope_chart, schedule_chart, spread
from tinygpt.words import LANGUAGES, WORDS, word

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return ["".join(element.itertext()).strip() for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def curve():
    return [
        {
            "step": step,
            "train_nats_per_token": loss,
            "val_nats_per_token": loss + 0.1,
            "learning_rate": rate,
            "grad_norm": g,
        }
        for step, loss, rate, g in ((0, 8.0, 0.0, 0.0), (250, 4.0, 0.003, 1.5), (500, 3.0, 0.001, 0.5))
    ]


def loss(language):
    return loss_chart(curve(), {"character frequency": 5.7, "5-gram": 3.1}, 500, language)


def test_text_stays_text_in_the_colours_of_the_page():
    svg = loss("en")
    assert {"nats per token", "val windows", "character frequency", "5-gram", "chosen: 500"} <= set(texts(svg))
    assert "prefers-color-scheme:dark" in svg and "var(--ink" in svg
    assert "Noto Sans CJK SC" in svg and "DejaVu" not in svg


def test_the_same_numbers_give_the_same_bytes_without_a_path_or_a_date():
    assert loss("zh") == loss("zh")
    assert not re.search(r"/(home|root|tmp|usr|work)/|[A-Z]:\\|<dc:date>", loss("zh"))


def test_chinese_labels_are_chinese():
    assert {"训练步", "每个 token 的损失（奈特）", "验证窗口", "字符频率", "五元模型"} <= set(texts(loss("zh")))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_chart_can_be_drawn(language):
    rows = [
        ("rows_in", 0, 1234),
        ("too_short", 1200, 1234),
        ("train", 0, 1000),
        ("val", 1000, 1100),
        ("test", 1100, 1200),
    ]
    assert {"1,234", "34", "1,000", word("too_short", language)} <= set(texts(funnel_chart(rows, language)))
    assert word("learning rate", language) in texts(schedule_chart(curve(), 1.0, language))
    lines = {0: [1.0, 0.5, 0.2], 1: [1.0, 0.5]}
    assert f"{word('key at', language)} n = 1" in re.sub(" +", " ", " ".join(texts(rope_chart(lines, language))))
    assert word("cosine", language) in texts(position_chart(lines, language))


def test_labels_that_would_overlap_move_up():
    assert spread([3.0, 1.0, 1.1], 0.5) == [3.0, 1.0, 1.5]
    assert spread([1.0, 1.0, 1.0], 0.5) == [1.0, 1.5, 2.0]
    assert spread([], 0.5) == []


def test_bounds_of_bins():
    assert bounds({"place_from": 1, "place_to": 1}, "place") == "1"
    assert bounds({"place_from": 3, "place_to": 4}, "place") == "3–4"


def test_every_word_has_both_languages():
    for name, pair in WORDS.items():
        assert len(pair) == len(LANGUAGES) and all(pair), name
    assert word("a rule of tomorrow", "zh") == "a rule of tomorrow"
