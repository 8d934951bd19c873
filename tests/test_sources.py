import io
import json
import os
import subprocess
import sys

import pandas as pd
import pytest

from tests.conftest import ROOT
from tests.hub_server import serving
from tinygpt.sources import read_stories

TEXTS = ["从前，有一只猫。\n它很开心。", "狗说：“你好，世界”。"]


def read(params, tmp_path, *patterns, **changes):
    download = params.download.model_copy(
        update={"source": "files", "files": [str(tmp_path / pattern) for pattern in patterns], **changes}
    )
    return list(read_stories(download, ROOT / "data" / "stories"))


def write_jsonl(path, texts, column="text"):
    path.write_text("".join(json.dumps({column: text}) + "\n" for text in texts), encoding="utf-8")


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
def test_every_kind_of_table_gives_the_same_stories(params, tmp_path, ending):
    path = tmp_path / f"mine.{ending}"
    if ending == "jsonl":
        write_jsonl(path, TEXTS)
    elif ending == "parquet":
        pd.DataFrame({"text": TEXTS}).to_parquet(path)
    else:
        pd.DataFrame({"text": TEXTS}).to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    stories = read(params, tmp_path, f"*.{ending}")
    assert [story.text for story in stories] == TEXTS
    assert [story.id for story in stories] == [f"mine.{ending}:1", f"mine.{ending}:2"]


def test_a_text_file_is_one_story_and_a_byte_order_mark_is_none_of_it(params, tmp_path):
    (tmp_path / "a.txt").write_text(TEXTS[0], encoding="utf-8-sig")
    assert [story.text for story in read(params, tmp_path, "a.txt")] == TEXTS[:1]


def test_reading_stops_at_max_chars(params, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", ["一二三", "四五六", "七八九"])
    assert [story.text for story in read(params, tmp_path, "a.jsonl", max_chars=7)] == ["一二三", "四五六"]


def test_a_file_named_twice_is_read_once(params, tmp_path):
    write_jsonl(tmp_path / "a.jsonl", TEXTS)
    assert len(read(params, tmp_path, "a.jsonl", "*.jsonl")) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "x"}\n{"text": \n', r"a\.jsonl:2 is not JSON"),
        ("a.jsonl", '["x"]\n', r"a\.jsonl:1 is not a JSON object"),
        ("a.jsonl", '{"story": "x", "title": "y"}\n', r"no column 'text'.*it has: story, title"),
        ("a.jsonl", '{"text": 5}\n', "'text' is not text but 5"),
        ("a.csv", "story\nx\n", r"a\.csv has no column 'text'.*it has: story"),
        ("a.pdf", "x", r"unknown kind of file '\.pdf'"),
    ],
)
def test_a_broken_file_is_named(params, tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read(params, tmp_path, name)


def test_a_file_that_is_not_utf8_is_named(params, tmp_path):
    (tmp_path / "a.txt").write_bytes("从前".encode("gb18030"))
    with pytest.raises(ValueError, match=r"a\.txt is not UTF-8"):
        read(params, tmp_path, "a.txt")


def test_patterns_must_match(params, tmp_path):
    with pytest.raises(ValueError, match="nothing matches"):
        read(params, tmp_path, "*.jsonl")
    with pytest.raises(ValueError, match=r"download\.files is empty"):
        read(params, tmp_path)


def test_the_bundled_corpus_is_what_its_card_says(params):
    stories = list(read_stories(params.download, ROOT / "data" / "stories"))
    n_chars = sum(len(story.text) for story in stories)
    card = (ROOT / "data" / "stories" / "README.md").read_text(encoding="utf-8")
    assert f"{len(stories):,} stories" in card
    assert f"{n_chars:,} characters" in card


def test_the_hub_is_read_as_far_as_max_chars(tmp_path):
    stories = [f"从前，有一只小兔{number}。" for number in range(10)]
    parquet = io.BytesIO()
    pd.DataFrame({"text": stories}).to_parquet(parquet)
    with serving("me/tales", {"README.md": b"# tales\n", "data/train-0.parquet": parquet.getvalue()}) as hub:
        done = run_download(tmp_path, hub.url, "download.hub_repo=me/tales", "download.max_chars=45")
        assert done.returncode == 0, done.stderr
        raw = pd.read_parquet(tmp_path / "raw" / "stories.parquet")
        assert raw["text"].tolist() == stories[:4]
        assert raw["id"].tolist() == [f"me/tales:{row}" for row in range(1, 5)]

        done = run_download(tmp_path, hub.url, "download.hub_repo=me/tales", "download.text_column=story")
        assert done.returncode == 1
        assert "me/tales has no column 'story' (download.text_column); it has: text" in done.stderr

        done = run_download(tmp_path, hub.url, "download.hub_repo=me/nothing")
        assert done.returncode == 1
        assert "cannot read me/nothing@main from the hub" in done.stderr
        assert "-S download.source=bundled" in done.stderr


def run_download(tmp_path, hub_url, *overrides):
    """The real command in a process of its own: the hub's client reads its settings when it is imported."""
    options = [option for override in ("download.source=hub", *overrides) for option in ("-S", override)]
    return subprocess.run(
        [sys.executable, "-m", "stages.download", "--raw-dir", str(tmp_path / "raw"), *options],
        cwd=ROOT,
        env={**os.environ, "HF_ENDPOINT": hub_url, "HF_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
    )
