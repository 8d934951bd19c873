import numpy as np
import pytest

import tinygpt.copies
from tinygpt.copies import longest_copies

SOURCES = [("a", "从前有一只小猫。"), ("b", "小猫爱吃鱼。小狗不爱吃鱼。"), ("c", "")]


def test_the_longest_copy_and_its_source():
    texts = ["一只小狗不爱唱歌", "有一只小猫吃鱼", "xyz", "", "从前有一只小猫。", "🐉鱼"]
    assert longest_copies(texts, SOURCES) == [
        ("小狗不爱", "b"),
        ("有一只小猫", "a"),  # 吃鱼 stands elsewhere
        ("", None),
        ("", None),
        ("从前有一只小猫。", "a"),
        ("鱼", "b"),
    ]


def test_a_copy_ends_where_its_story_ends():
    assert longest_copies(["猫。小猫爱"], SOURCES) == [("小猫爱", "b")]  # not 猫。 + 小猫爱 across two stories
    assert longest_copies(["小猫", "爱吃鱼。"], [("a", "小猫爱"), ("b", "吃鱼。")]) == [("小猫", "a"), ("吃鱼。", "b")]


def slow(text, sources):
    for length in range(len(text), 0, -1):
        for start in range(len(text) - length + 1):
            if any(text[start : start + length] in source for _, source in sources):
                return length
    return 0


@pytest.mark.parametrize("source_chars", [1, 300, 2**20])  # every story alone, some at once, all
def test_it_finds_what_a_slow_search_finds(monkeypatch, source_chars):
    monkeypatch.setattr(tinygpt.copies, "SOURCE_CHARS", source_chars)
    rng = np.random.default_rng(0)
    sources = [(str(i), "".join(rng.choice(list("一二三四"), size=rng.integers(80)))) for i in range(40)]
    texts = ["".join(rng.choice(list("一二三四五"), size=n)) for n in range(30)] + [sources[7][1] * 2]
    for text, copy in zip(texts, longest_copies(texts, sources), strict=True):
        assert len(copy.text) == slow(text, sources)
        assert copy.text in text and (copy.source is None or copy.text in dict(sources)[copy.source])


def test_repetition_does_no_harm():
    assert longest_copies(["一" * 500, "二" + "一" * 40], [("a", "一" * 3000), ("b", "二一")]) == [
        ("一" * 500, "a"),
        ("一" * 40, "a"),
    ]
