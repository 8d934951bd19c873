import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile

import pandas as pd
import pyarrow as pa
import pytest

from tests.conftest import ROOT
from tests.hub_server import serving
from tinygpt.sources import Origin, read_stories

TEXTS = ["从前，有一只猫。\n它很开心。", "狗说：“你好，世界”。"]


def read(params, tmp_path, *patterns, **changes):
    """The stories of the files that match, and what was noted about them."""
    files = [str(tmp_path / pattern) for pattern in patterns]
    origin = Origin()
    download = params.download.model_copy(update={"source": "files", "files": files, **changes})
    return list(read_stories(download, ROOT / "data" / "stories", origin)), origin


def texts(stories):
    return [story.text for story in stories]


def to_jsonl(rows, column="text"):
    return "".join(json.dumps({column: row}) + "\n" for row in rows)


# Every kind of file.


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "json", "csv", "tsv", "parquet"])
def test_every_kind_of_table_gives_the_same_stories(params, tmp_path, ending):
    path = tmp_path / f"mine.{ending}"
    table = pd.DataFrame({"id": [7, 8], "text": TEXTS})
    if ending == "parquet":
        table.to_parquet(path)
    elif ending in ("csv", "tsv"):
        table.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    else:
        path.write_text(table.to_json(orient="records", lines=ending != "json"), encoding="utf-8")
    stories, origin = read(params, tmp_path, f"*.{ending}")
    assert texts(stories) == TEXTS
    assert all(story.id.startswith(f"mine.{ending}:") for story in stories)
    assert origin.n_broken == 0
    (file,) = origin.files
    assert file["n_bytes"] == path.stat().st_size and file["n_stories"] == 2
    assert file["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "txt"])
def test_compressed_files_give_the_same_stories(params, tmp_path, kind, ending):
    path, plain = tmp_path / f"mine.{kind}{ending}", io.BytesIO()
    if kind == "parquet":
        pd.DataFrame({"text": TEXTS[:1]}).to_parquet(plain)
    else:
        content = {"jsonl": to_jsonl(TEXTS[:1]), "csv": f'text\n"{TEXTS[0]}"\n', "txt": TEXTS[0]}[kind]
        plain.write(content.encode())
    with pa.output_stream(str(path), compression={".gz": "gzip", ".zst": "zstd"}[ending]) as file:
        file.write(plain.getvalue())
    assert texts(read(params, tmp_path, path.name)[0]) == TEXTS[:1]


def test_an_archive_of_json_arrays(params, tmp_path):
    path = tmp_path / "all.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for number, text in enumerate(TEXTS):
            data = json.dumps([{"story": text}, {"story": text * 2}]).encode()
            entry = tarfile.TarInfo(f"data/{number}.json")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    stories, _ = read(params, tmp_path, "all.tar.gz", text_column="story")
    assert texts(stories) == [TEXTS[0], TEXTS[0] * 2, TEXTS[1], TEXTS[1] * 2]
    assert stories[3].id == "all.tar.gz/data/1.json:2"


def test_a_long_array_is_read_piece_by_piece(params, tmp_path):
    rows = [f"{number}" * 50_000 for number in range(30)]  # several times what is read at once
    (tmp_path / "a.json").write_text(json.dumps([{"text": row} for row in rows], indent=2), encoding="utf-8")
    assert texts(read(params, tmp_path, "a.json")[0]) == rows


@pytest.mark.parametrize(
    ("layout", "separator", "expected"),
    [
        ("file", "", ["一\n二\n\n三\n***\n四\n"]),
        ("line", "", ["一\n", "二\n", "三\n", "***\n", "四\n"]),
        ("block", "", ["一\n二\n", "三\n***\n四\n"]),
        ("block", "***", ["一\n二\n\n三\n", "四\n"]),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_layouts_of_plain_text(params, tmp_path, layout, separator, expected, line_end):
    (tmp_path / "a.txt").write_bytes("一\n二\n\n三\n***\n四\n".replace("\n", line_end).encode())
    stories, _ = read(params, tmp_path, "a.txt", text_layout=layout, text_separator=separator)
    assert texts(stories) == expected


def test_the_line_of_a_story_is_in_its_id(params, tmp_path):
    (tmp_path / "a.txt").write_text("\n\n一\n二\n\n\n三\n", encoding="utf-8")
    assert [story.id for story in read(params, tmp_path, "a.txt", text_layout="block")[0]] == ["a.txt:3", "a.txt:7"]
    assert [story.id for story in read(params, tmp_path, "a.txt", text_layout="line")[0]] == [
        "a.txt:3",
        "a.txt:4",
        "a.txt:7",
    ]


# Encodings and odd bytes.


def test_the_encoding_found_is_told(params, tmp_path):
    (tmp_path / "a.txt").write_bytes(("从前，有一只小兔子，住在森林里。" * 9).encode("gb18030"))
    stories, origin = read(params, tmp_path, "a.txt")
    assert texts(stories) == ["从前，有一只小兔子，住在森林里。" * 9]
    assert origin.files[0]["encoding"] == "gb18030"
    assert origin.remarks() == "; read as gb18030"


def test_a_named_encoding_is_obeyed(params, tmp_path):
    (tmp_path / "a.txt").write_bytes("從前".encode("big5"))
    assert texts(read(params, tmp_path, "a.txt", encoding="big5")[0]) == ["從前"]
    with pytest.raises(ValueError, match=r"a\.txt cannot be read as utf-8 .*-S download\.encoding=gb18030"):
        read(params, tmp_path, "a.txt", encoding="utf-8")


def test_files_put_together_keep_no_marks_or_nuls_between_rows(params, tmp_path):
    rows = to_jsonl(TEXTS).encode().splitlines()
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + rows[0] + b"\r\n\xef\xbb\xbf" + rows[1] + b"\0\r\n")
    stories, origin = read(params, tmp_path, "a.jsonl")
    assert texts(stories) == TEXTS and origin.n_broken == 0
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbftext\r\n\xe4\xb8\x80\0\r\n")
    assert texts(read(params, tmp_path, "a.csv")[0]) == ["一"]


def test_a_line_separator_within_json_ends_no_row(params, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "一\u2028二"}\n', encoding="utf-8")
    assert texts(read(params, tmp_path, "a.jsonl")[0]) == ["一\u2028二"]


# What is wrong is named, and the rest goes on.


@pytest.mark.parametrize(
    ("name", "content", "good", "problem"),
    [
        ("a.jsonl", '{"text": "一"}\n{"text": \n{"text": "二"}\n', ["一", "二"], "a.jsonl:2: no JSON"),
        ("a.jsonl", '{"text": "一"}\n["x"]\n', ["一"], "a.jsonl:2: no 'text' in"),
        ("a.jsonl", '{"text": "一"}\n{"story": "x"}\n', ["一"], "a.jsonl:2: no 'text' in"),
        ("a.jsonl", '{"text": "一"}\n{"text": null}\n', ["一"], "a.jsonl:2: text is no text but None"),
        ("a.json", '[{"text": "一"}, {"text": "二"', ["一"], "a.json:2: the array breaks off"),
        ("a.csv", "id,text\n1,一\n2\n3,二,x\n4,三\n", ["一", "三"], "a.csv:3: not the 2 columns"),
    ],
)
def test_a_broken_row_is_counted_and_the_rest_goes_on(params, tmp_path, name, content, good, problem):
    (tmp_path / name).write_text(content, encoding="utf-8")
    stories, origin = read(params, tmp_path, name)
    assert texts(stories) == good
    assert origin.n_broken == len(origin.broken) >= 1
    assert origin.broken[0].startswith(problem)
    assert f"broken rows left out, the first {problem}" in origin.remarks()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"story": "x", "title": "y"}\n', r"no column 'text'.*it has: story, title"),
        ("a.jsonl", "not json\nat all\n", r"a\.jsonl holds nothing to read; the first broken row: a\.jsonl:1: no JSON"),
        ("a.json", "[]", r"a\.json holds nothing to read"),
        ("a.csv", "story\nx\n", r"a\.csv has no column 'text'.*it has: story"),
        ("a.txt", " \n\n", r"a\.txt holds nothing to read"),
        ("a.txt", "", r"a\.txt holds nothing to read"),
        ("a.pdf", "x", r"unknown kind of file '\.pdf'"),
    ],
)
def test_a_file_with_nothing_usable_is_named(params, tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read(params, tmp_path, name)


def test_reading_stops_at_max_chars_and_says_so(params, tmp_path):
    (tmp_path / "a.jsonl").write_text(to_jsonl(["一二三", "四五六", "七八九"]), encoding="utf-8")
    stories, origin = read(params, tmp_path, "a.jsonl", max_chars=7)
    assert texts(stories) == ["一二三", "四五六"]
    assert origin.stopped_at_max_chars and "there is more" in origin.remarks()


def test_a_file_named_twice_is_read_once(params, tmp_path):
    (tmp_path / "a.jsonl").write_text(to_jsonl(TEXTS), encoding="utf-8")
    assert len(read(params, tmp_path, "a.jsonl", "*.jsonl")[0]) == 2


def test_patterns_must_match(params, tmp_path):
    with pytest.raises(ValueError, match="no file matches"):
        read(params, tmp_path, "*.jsonl")
    with pytest.raises(ValueError, match=r"download\.files is empty"):
        read(params, tmp_path)


def test_the_bundled_corpus_is_what_its_card_says(params):
    stories = list(read_stories(params.download, ROOT / "data" / "stories", Origin()))
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
        [
            sys.executable,
            "-m",
            "stages.download",
            "--raw-dir",
            str(tmp_path / "raw"),
            "--origin-path",
            str(tmp_path / "source.json"),
            *options,
        ],
        cwd=ROOT,
        env={**os.environ, "HF_ENDPOINT": hub_url, "HF_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
    )
