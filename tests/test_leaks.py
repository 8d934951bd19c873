import random

import numpy as np
import pytest

from tinygpt import leaks
from tinygpt.leaks import audit, largest_overlaps

TEXT = "从前有一只小兔子住在山里"  # 12 characters, five 8-grams


def rows(texts, name):
    return [(f"{name}:{number}", text, "test") for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("held_out", "share"),
    [
        (TEXT, 1),
        (TEXT[:9] + "猫猫猫", 2 / 5),  # the first two of five
        (TEXT[2:], 1),  # part of the other
        (TEXT + "猫", 5 / 6),
        (TEXT[:8] * 2, 1 / 8),  # distinct n-grams: 9 windows, of which the first and the last are equal
        (TEXT[:7], 0),  # shorter than n: one n-gram of its own
        ("", 0),
    ],
)
def test_the_share_by_hand(held_out, share):
    [overlap] = largest_overlaps([held_out], [["猫爬到树上去看远处的大海"], [TEXT, "狗"]])
    assert overlap.share == pytest.approx(share)
    assert overlap.train_number == (1 if share else -1)


def test_a_text_shorter_than_n_is_found_whole():
    assert largest_overlaps(["小兔跑", "小兔"], [["小兔跑", "小兔跳"]]) == [(1.0, 0), (0.0, -1)]


def test_the_same_as_counting_sets(monkeypatch):
    monkeypatch.setattr(leaks, "STORIES_AT_ONCE", 7)
    rng = random.Random(0)
    words = ["小兔跑", "从前，", "有一只", "住在山里。", "猫", "大家都很开心"]
    texts = ["".join(rng.choices(words, k=rng.randrange(12))) for _ in range(90)]
    held_out, train = texts[:30], texts[30:]

    def grams(text):
        return {text[i : i + 8] for i in range(len(text) - 7)} or {text}

    overlaps = largest_overlaps(held_out, [train[:25], train[25:]])
    assert len({overlap.share for overlap in overlaps}) > 5
    for text, overlap in zip(held_out, overlaps, strict=True):
        shares = [len(grams(text) & grams(other)) / len(grams(text)) for other in train]
        assert overlap.share == pytest.approx(max(shares))
        assert overlap.train_number == (np.argmax(shares) if max(shares) else -1)


def test_the_audit_names_the_worst_pairs():
    train = rows(["猫爬到树上去看远处的大海", TEXT], "train")
    held_out = {
        "val": rows(["狗在院子里睡了整整一天", TEXT + "猫"], "val"),
        "test": rows(["鸟飞过了很高很高的山"], "test"),
    }
    found = audit(held_out, lambda: [train])
    assert found["n_gram"] == 8
    assert found["val"]["n_stories"] == 2
    assert found["val"]["histogram"] == [1, 0, 0, 0, 0, 0, 0, 0, 1, 0]
    assert found["val"]["largest_share"] == pytest.approx(
        {"mean": 5 / 12, "p50": 0.0, "p90": 5 / 6, "p99": 5 / 6, "max": 5 / 6}
    )
    assert found["val"]["worst"] == [
        {"share": pytest.approx(5 / 6), "id": "val:1", "text": TEXT + "猫", "train_id": "train:1", "train_text": TEXT}
    ]
    assert found["test"]["worst"] == [] and found["test"]["histogram"][0] == 1
