import math

import numpy as np
import pytest

from tinygpt.analysis import (
    baseline_table,
    by_class,
    by_story_position,
    by_window_position,
    calibration,
    calibration_error,
    character_classes,
    hits,
    passed_at,
    worst_characters,
)
from tinygpt.evaluation import Scores
from tinygpt.measures import targets_of
from tinygpt.vocab import Vocab

VOCAB = Vocab("".join(sorted("\n，。兔小跑A7😀")))


def encode(texts):
    return np.concatenate([np.concatenate(([1], VOCAB.encode(text), [2])) for text in texts]).astype(np.uint16)


def scores(nats, top_id=None, top_p=None, expected=None):
    n = len(nats)
    return Scores(
        np.asarray(nats, dtype=float),
        np.zeros(n, dtype=int) if top_id is None else np.asarray(top_id),
        np.full(n, 0.5) if top_p is None else np.asarray(top_p),
        np.full(len(VOCAB), n / len(VOCAB)) if expected is None else np.asarray(expected),
    )


def bins(table, name):
    return [(row[f"{name}_from"], row[f"{name}_to"], row["n_targets"], row["nats_per_token"]) for row in table]


def test_the_loss_by_position_in_the_window():
    nats = [8, 4, 2, 2, 1, 1, 8, 4]  # windows of 6: the second is cut
    assert bins(by_window_position(scores(nats), 6), "tokens_seen") == [
        (1, 1, 2, 8),
        (2, 2, 2, 4),
        (3, 4, 2, 2),
        (5, 6, 2, 1),
    ]


def test_the_loss_by_position_in_the_story_leaves_out_the_marks():
    texts = ["小兔。", "兔。", "小兔，小兔。"]
    targets = targets_of(encode(texts), texts)
    #       小 兔 。 eos bos 兔 。 eos bos 小 兔 ， 小 兔 。 eos
    nats = [1, 2, 3, 90, 90, 1, 2, 90, 90, 1, 2, 3, 3, 5, 5, 90]
    assert bins(by_story_position(scores(nats), targets), "place") == [
        (1, 1, 3, 1),
        (2, 2, 3, 2),
        (3, 4, 3, 3),
        (5, 6, 2, 5),
    ]


def test_the_classes_of_characters():
    counts = np.zeros(len(VOCAB), dtype=int)
    for character, n in {"小": 70, "兔": 20, "跑": 10}.items():
        counts[VOCAB.encode(character)[0]] = n
    classes = dict(zip(VOCAB.characters, character_classes(VOCAB, counts)[3:], strict=True))
    assert classes == {
        "\n": "white space",
        "7": "letters and digits",
        "A": "letters and digits",
        "。": "punctuation",
        "，": "punctuation",
        "😀": "other",
        "小": "common Chinese",  # 70 of 100, and 兔 takes it over 80
        "兔": "common Chinese",
        "跑": "rare Chinese",
    }
    assert character_classes(VOCAB, counts)[:3].tolist() == ["<unk>", "<bos>", "<eos>"]


def test_every_target_is_in_one_class_with_what_was_expected_of_it():
    texts = ["小兔，小兔。", "小龙。"]
    targets = targets_of(encode(texts), texts)
    n = len(targets.ids)
    expected = np.zeros(len(VOCAB))
    expected[2], expected[3:] = 0.5, (n - 0.5) / (len(VOCAB) - 3)
    right = np.where(targets.ids == 2, 2, 0)
    table = {
        row["class"]: row
        for row in by_class(scores(np.arange(n), right, None, expected), targets, VOCAB, np.ones(len(VOCAB)))
    }
    assert sum(row["n_targets"] for row in table.values()) == n == 12
    assert sum(row["observed_share"] for row in table.values()) == pytest.approx(1)
    assert table["<eos>"]["n_targets"] == 2 and table["<unk>"]["n_targets"] == 1 and table["<bos>"]["n_targets"] == 1
    assert table["<eos>"]["nats_per_token"] == (6 + 11) / 2
    assert table["<eos>"]["accuracy"] == 1 and table["<bos>"]["accuracy"] == 0
    assert table["<eos>"]["expected_share"] == pytest.approx(0.5 / 12)
    assert table["<eos>"]["observed_share"] == pytest.approx(2 / 12)


def test_the_worst_characters_and_what_was_held_likelier():
    texts = ["小兔，小兔。小跑"]
    targets = targets_of(encode(texts), texts)
    ids = {character: int(VOCAB.encode(character)[0]) for character in "小兔，。跑"}
    #       小 兔 ， 小 兔 。 小 跑 eos
    nats = [3, 1, 5, 3, 1, 0, 6, 4.5, 99]
    guess = [ids["兔"], ids["兔"], 2, ids["兔"], ids["兔"], ids["。"], ids["小"], ids["。"], 0]
    rows = worst_characters(scores(nats, guess), targets, VOCAB)
    assert [row["character"] for row in rows] == ["，", "跑", "小", "兔", "。"]
    assert [(row["mistaken_for"], row["mistaken_share"]) for row in rows[:3]] == [
        ("<eos>", 1),
        ("。", 1),
        ("兔", 2 / 3),
    ]
    assert rows[2]["nats_per_token"] == 4 and rows[2]["accuracy"] == pytest.approx(1 / 3)
    assert rows[3]["mistaken_for"] is None and rows[3]["accuracy"] == 1


def test_rare_characters_are_not_among_the_worst():
    texts = ["小" * 1999 + "跑"]
    targets = targets_of(encode(texts), texts)
    assert [row["character"] for row in worst_characters(scores(np.ones(2001)), targets, VOCAB)] == ["小"]


def test_calibration_by_hand():
    texts = ["小小小小"]
    targets = targets_of(encode(texts), texts)
    small = int(VOCAB.encode("小")[0])
    told = scores(np.ones(5), [small, small, small, 0, 2], [0.55, 0.55, 0.95, 0.95, 1.0])
    table = calibration(told, targets)
    assert [(row["p_from"], row["n_targets"]) for row in table] == [(0.5, 2), (0.9, 3)]
    assert table[0]["expected"] == pytest.approx(0.55) and table[0]["observed"] == 1
    assert table[1]["expected"] == pytest.approx(2.9 / 3) and table[1]["observed"] == pytest.approx(2 / 3)
    error = (2 * 0.45 + 3 * (2.9 / 3 - 2 / 3)) / 5
    assert calibration_error(table) == pytest.approx(error)
    assert hits(told, targets) == pytest.approx({"accuracy": 0.8, "calibration_error": error})


CURVE = [{"step": str(step), "val_nats_per_token": str(loss)} for step, loss in [(0, 8.0), (10, 3.0), (20, 1.5)]]


def test_the_step_that_passed_a_baseline():
    assert [passed_at(CURVE, loss) for loss in (9, 8, 2, 1.5)] == [0, 10, 20, None]


def test_the_baselines_by_hand(params):
    texts = ["小兔", "小跑"]  # targets: 小 兔 eos bos 小 跑 eos
    targets = targets_of(encode(texts), texts)
    both = {"val": targets, "test": targets}
    nats = np.array([3.0, 1, 1, 1, 3, 1, 4])
    guesses = {"g": {"val": nats, "test": nats}}
    rows = baseline_table(
        guesses, {"z": {"val": 28, "test": 56}}, nats - 0.5, both, np.array([0, 1]), CURVE, params.evaluate
    )
    g, z = rows
    assert g["baseline"] == "g" and g["test_nats_per_token"] == 2
    assert g["test_bits_per_char"] == pytest.approx(14 / math.log(2) / 4)
    assert g["test_bits_per_byte"] == pytest.approx(14 / math.log(2) / 12)
    assert g["gap"] == pytest.approx(0.5) and g["gap_95"] == pytest.approx([0.5, 0.5])
    assert g["on_curve"] == 2 and g["passed_at_step"] == 20  # the two targets of the windows
    assert z["test_bits_per_char"] == pytest.approx(14) and z["val_nats_per_token"] == pytest.approx(4 * math.log(2))
    assert z["gap"] == pytest.approx(8 * math.log(2) - 1.5) and z["gap_95"] is None
    assert z["on_curve"] == z["val_nats_per_token"] and z["passed_at_step"] == 20
