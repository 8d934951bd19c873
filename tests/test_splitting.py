import pandas as pd
import pytest

from tinygpt.duplicates import exact_duplicates
from tinygpt.params import SPLITS
from tinygpt.splitting import place, split_stories
from tinygpt.stories import clean_story, drop_reason


def table(texts):
    return pd.DataFrame({"id": [f"a:{i}" for i in range(len(texts))], "text": texts, "source": "test"})


@pytest.fixture
def split_params(params):
    return params.split.model_copy(update={"min_chars": 5, "max_chars": 60, "val_share": 0.2, "test_share": 0.2})


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        (" \u3000从前\r\n有猫\r。 \n", "从前\n有猫\n。"),
        ("e\u0301", "é"),  # two code points, one character: NFC
        ("\r\n", ""),
        ("一  二", "一  二"),  # white space inside is the author's
    ],
)
def test_clean_story(raw, clean):
    assert clean_story(raw) == clean


@pytest.mark.parametrize(
    ("text", "reason"), [("", "empty"), ("一二三四", "too_short"), ("一" * 61, "too_long"), ("一" * 5, None)]
)
def test_every_drop_has_a_name(split_params, text, reason):
    assert drop_reason(text, split_params) == reason


def test_exact_duplicates_keep_the_first():
    assert exact_duplicates(["a", "b", "a", "a"]) == [False, False, True, True]


def test_every_row_is_counted_once(stories, split_params):
    raw = table([*stories, *stories[:3], stories[0] + "\r\n", "", " ", "短", "长" * 99])
    splits, drops = split_stories(raw, split_params)
    assert sum(map(len, splits.values())) + sum(drops.values()) == len(raw)
    assert {name: n for name, n in drops.items() if n} == {"empty": 2, "too_short": 1, "too_long": 1, "duplicate": 4}
    texts = [text for split in splits.values() for text in split["text"]]
    assert len(texts) == len(set(texts)) == len(stories)


def test_the_order_of_rows_does_not_matter(stories, split_params):
    raw = table([*stories, stories[5]])
    splits, _ = split_stories(raw, split_params)
    shuffled, _ = split_stories(raw.sample(frac=1, random_state=1), split_params)
    for name in SPLITS:
        pd.testing.assert_frame_equal(splits[name], shuffled[name])


def test_more_stories_move_no_story(stories, split_params):
    few, _ = split_stories(table(stories[:30]), split_params)
    many, _ = split_stories(table(stories), split_params)
    for name in SPLITS:
        assert set(few[name]["text"]) <= set(many[name]["text"])


def test_another_seed_is_another_split(stories, split_params):
    one, _ = split_stories(table(stories), split_params)
    other, _ = split_stories(table(stories), split_params.model_copy(update={"seed": 1}))
    assert set(one["train"]["text"]) != set(other["train"]["text"])


def test_places_are_spread_evenly():
    places = [place(f"story {i}", seed=0) for i in range(10_000)]
    assert 0 <= min(places) and max(places) < 1
    below = sum(value < 0.05 for value in places)
    assert 400 < below < 600  # 500 ± 4.6 standard deviations


def test_caps_bound_each_side_and_are_counted(stories, split_params):
    capped = split_params.model_copy(update={"train_chars": 100, "val_chars": 50})
    splits, drops = split_stories(table(stories), capped)
    everything, _ = split_stories(table(stories), split_params)
    assert splits["train"]["text"].str.len().sum() <= 100
    assert drops["over_train_chars"] == len(everything["train"]) - len(splits["train"])
    assert drops["over_val_chars"] == len(everything["val"]) - len(splits["val"])
    assert drops["over_test_chars"] == 0


def test_an_empty_split_is_named(stories, split_params):
    with pytest.raises(ValueError, match=r"the (train|val|test) split is empty: 1 stories are left"):
        split_stories(table(stories[:1]), split_params)
    with pytest.raises(ValueError, match=r"the train split is empty.*split\.train_chars = 1"):
        split_stories(table(stories), split_params.model_copy(update={"train_chars": 1}))
