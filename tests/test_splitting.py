import itertools
import random

import numpy as np
import pytest

from benchmarks.corpus import make_corpus, read_pool
from tests.conftest import ROOT
from tinygpt.leaks import largest_overlaps
from tinygpt.params import SPLITS
from tinygpt.splitting import DROPPED_MD, sides, split_stories, story_key
from tinygpt.tables import read_batches

NO_LIMIT = 10**9


@pytest.fixture
def split_params(params):
    changes = {"val_share": 0.2, "test_share": 0.2, **{f"{name}_chars": NO_LIMIT for name in SPLITS}}
    return params.split.model_copy(update=changes)


@pytest.fixture
def split(split_params, params, tmp_path):
    """Split texts, or (id, text) pairs, with changed params; returns the rows by split and the outcome."""
    clean = params.clean.model_copy(update={"min_chars": 5, "max_chars": 400})
    folders = (tmp_path / f"split-{number}" for number in itertools.count())

    def split(texts, batch_size=7, n_procs=1, **changes):
        folder = next(folders)
        folder.mkdir()
        pairs = [pair if isinstance(pair, tuple) else (f"a:{i}", pair) for i, pair in enumerate(texts)]
        rows = [(id, text, "test") for id, text in pairs]
        batches = [rows[first : first + batch_size] for first in range(0, len(rows), batch_size)]
        outcome = split_stories(batches, folder, split_params.model_copy(update=changes), clean, n_procs)
        assert sorted(path.name for path in folder.iterdir()) == ["test.parquet", "train.parquet", "val.parquet"]
        return {name: [row for batch in read_batches(folder, name) for row in batch] for name in SPLITS}, outcome

    return split


@pytest.fixture(scope="module")
def corpus():
    """600 stories of which 1 in 10 is a copy, to the letter or edited."""
    return [text for text, _ in make_corpus(600, read_pool(ROOT / "data" / "stories"))]


def texts_of(rows):
    return {text for _, text, _ in rows}


def test_every_row_is_counted_once(split, stories):
    rows = [*stories, *stories[:3], stories[0] + "\r\n", "", " ", "短", "长" * 401]
    splits, (counts, _) = split(rows, near_duplicates="ignore")
    dropped = counts["dropped"]
    assert sum(map(len, splits.values())) + sum(dropped.values()) == counts["rows_in"] == len(rows)
    assert {name: n for name, n in dropped.items() if n} == {"empty": 2, "too_short": 1, "too_long": 1, "duplicate": 4}
    assert counts["cleaned"]["line_ends"] == 1
    texts = [text for rows in splits.values() for _, text, _ in rows]
    assert len(texts) == len(set(texts)) == len(stories)
    for name, rows in splits.items():
        assert counts[name] == {"n_stories": len(rows), "n_chars": sum(len(text) for _, text, _ in rows)}


@pytest.mark.parametrize("policy", ["drop", "together", "ignore"])
def test_the_order_of_rows_does_not_matter(split, corpus, policy):
    rows = [(f"a:{i}", text) for i, text in enumerate(corpus[:300])]
    splits, outcome = split(rows, near_duplicates=policy)
    shuffled, other = split(random.Random(1).sample(rows, len(rows)), batch_size=300, near_duplicates=policy)
    assert splits == shuffled
    assert outcome.counts == other.counts
    assert outcome.examples.to_markdown(DROPPED_MD) == other.examples.to_markdown(DROPPED_MD)


def test_several_processes_write_the_same(split, corpus):
    rows = [*corpus[:200], " &nbsp;" + corpus[300] + "\r\n", "短"]
    one, outcome = split(rows, batch_size=50)
    two, other = split(rows, batch_size=50, n_procs=2)
    assert one == two and outcome.counts == other.counts
    assert outcome.counts["cleaned"]["html"] == outcome.counts["dropped"]["too_short"] == 1
    assert outcome.examples.to_markdown(DROPPED_MD) == other.examples.to_markdown(DROPPED_MD)


def test_of_equal_stories_the_smallest_id_stays(split, stories):
    rows = [
        *((f"b:{i}", text) for i, text in enumerate(stories)),
        ("c", stories[0]),
        ("a", stories[0]),
        ("d", stories[0]),
    ]
    splits, _ = split(rows, near_duplicates="ignore")
    assert [id for rows in splits.values() for id, text, _ in rows if text == stories[0]] == ["a"]


def test_more_stories_move_no_story(split, corpus):
    few, _ = split(corpus[:300], near_duplicates="ignore")
    many, _ = split(corpus, near_duplicates="ignore")
    for name in SPLITS:
        assert texts_of(few[name]) <= texts_of(many[name])


def test_more_stories_move_a_story_only_where_clusters_merge(split, corpus):
    few, _ = split(corpus[:300], near_duplicates="together")
    many, _ = split(corpus, near_duplicates="together")
    old = {text: name for name in SPLITS for text in texts_of(few[name])}
    new = {text: name for name in SPLITS for text in texts_of(many[name])}
    moved = [text for text, name in old.items() if new[text] != name]
    late = corpus[300:]
    assert len(moved) < 30
    # each of those that moved is joined to a story that came later
    assert all(overlap.share > 0.3 for overlap in largest_overlaps(moved, [late]))


def test_another_seed_is_another_split(split, stories):
    one, _ = split(stories, near_duplicates="ignore")
    other, _ = split(stories, near_duplicates="ignore", seed=1)
    assert texts_of(one["train"]) != texts_of(other["train"])


def test_keys_are_spread_evenly(split_params):
    keys = np.array([story_key(f"story {i}", seed=0) for i in range(10_000)], np.uint64)
    found = sides(keys, split_params.model_copy(update={"val_share": 0.1, "test_share": 0.05}))
    assert 400 < np.count_nonzero(found == "test") < 600  # 500 ± 4.6 standard deviations
    assert 860 < np.count_nonzero(found == "val") < 1140


def test_near_duplicates_never_stand_on_two_sides(split, corpus):
    """The audit, which knows nothing of MinHash, finds what a split without clusters would have leaked."""

    def worst(policy):
        splits, outcome = split(corpus, near_duplicates=policy)
        held_out = [text for name in ("val", "test") for _, text, _ in splits[name]]
        shares = [overlap.share for overlap in largest_overlaps(held_out, [[text for _, text, _ in splits["train"]]])]
        return sum(share > 0.3 for share in shares), splits, outcome.counts

    n_leaks, all_rows, _ = worst("ignore")
    assert n_leaks > 10
    n_dropped, rows, counts = worst("drop")
    assert n_dropped == 0
    figures = counts["near_duplicates"]
    # Other marks break up 8-grams, so the audit misses some of what the clusters, which look at letters alone, join.
    assert 0.7 * figures["would_have_leaked"] <= n_leaks <= figures["would_have_leaked"]
    assert counts["dropped"]["near_duplicate"] == figures["n_stories"] - figures["n_clusters"] > 40
    n_together, together, counts = worst("together")
    assert n_together == 0 and counts["dropped"]["near_duplicate"] == 0
    assert sum(map(len, together.values())) == sum(map(len, all_rows.values()))
    assert all(texts_of(rows[name]) <= texts_of(together[name]) for name in SPLITS)


def test_a_cluster_larger_than_its_split_is_cut_and_goes_nowhere_else(split, corpus, stories):
    """Fifty versions of one story on the smallest side: the cap cuts them, the rest is dropped, not moved."""
    versions = [corpus[1] + "。" * number for number in range(50)]
    splits, _ = split([*stories, *versions], near_duplicates="together")
    [side] = [name for name in SPLITS if texts_of(splits[name]) & set(versions)]
    assert len(texts_of(splits[side]) & set(versions)) == 50
    cap = 60 * len(stories) + 10 * len(corpus[1])
    capped, outcome = split([*stories, *versions], near_duplicates="together", **{f"{side}_chars": cap})
    assert outcome.counts["near_duplicates"]["largest_cluster"] == 50
    assert outcome.counts["dropped"][f"over_{side}_chars"] > 0
    assert all(not texts_of(capped[name]) & set(versions) for name in SPLITS if name != side)


def test_caps_bound_each_side_and_are_counted(split, stories):
    capped, outcome = split(stories, near_duplicates="ignore", train_chars=100, val_chars=50)
    everything, _ = split(stories, near_duplicates="ignore")
    dropped = outcome.counts["dropped"]
    assert outcome.counts["train"]["n_chars"] <= 100
    assert dropped["over_train_chars"] == len(everything["train"]) - len(capped["train"])
    assert dropped["over_val_chars"] == len(everything["val"]) - len(capped["val"])
    assert dropped["over_test_chars"] == 0
    assert capped["train"] == everything["train"][: len(capped["train"])]


def test_an_empty_split_is_named(split, stories):
    with pytest.raises(ValueError, match=r"the (train|val|test) split is empty: 1 stories are left"):
        split(stories[:1])
    with pytest.raises(ValueError, match=r"the train split is empty.*split\.train_chars = 1"):
        split(stories, train_chars=1, near_duplicates="ignore")
    with pytest.raises(ValueError, match=r"the train split is empty: 0 stories"):
        split(["", "短"])
