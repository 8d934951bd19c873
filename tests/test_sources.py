import gzip
import hashlib
import io
import json
import os
import tarfile

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT
from tinygpt.sources import Origin, read_stories

LONG = "从前，有一只小兔子，住在森林里。它每天都去河边喝水。"
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


KINDS = ["jsonl", "ndjson", "json", "csv", "tsv", "parquet", "txt"]


def as_kind(kind, rows, column="text"):
    """These stories as the bytes of a file of this kind; a .txt has a story a line."""
    table = pd.DataFrame({column: rows})
    if kind == "parquet":
        data = io.BytesIO()
        table.to_parquet(data)
        return data.getvalue()
    if kind in ("csv", "tsv"):
        return table.to_csv(index=False, sep="\t" if kind == "tsv" else ",").encode()
    if kind == "txt":
        return "\n".join(rows).encode()
    return table.to_json(orient="records", lines=kind != "json", force_ascii=False).encode()


def to_archive(path, files):
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize("ending", ["gz", "zst", "tar.gz"])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_files_give_the_same_stories(params, tmp_path, kind, ending):
    rows, path = [TEXTS[1], "一只猫"], tmp_path / f"mine.{kind}.{ending}"
    if ending == "tar.gz":
        to_archive(path, {f"mine.{kind}": as_kind(kind, rows), f"._mine.{kind}": b"mac"})
    else:
        with pa.output_stream(str(path), compression={"gz": "gzip", "zst": "zstd"}[ending]) as file:
            file.write(as_kind(kind, rows))
    stories, origin = read(params, tmp_path, path.name, text_layout="line")
    assert [text.strip() for text in texts(stories)] == rows and origin.n_broken == 0
    first = 2 if kind in ("csv", "tsv") else 1
    inside = f"/mine.{kind}" if ending == "tar.gz" else ""
    assert [story.id for story in stories] == [f"{path.name}{inside}:{first}", f"{path.name}{inside}:{first + 1}"]


@pytest.mark.parametrize("how", ["gz", "zst"])
def test_packed_files_put_together_are_read_to_the_end(params, tmp_path, how):
    parts = []
    for row in TEXTS:
        data = pa.BufferOutputStream()
        with pa.CompressedOutputStream(data, {"gz": "gzip", "zst": "zstd"}[how]) as file:
            file.write(to_jsonl([row]).encode())
        parts.append(data.getvalue().to_pybytes())
    (tmp_path / f"a.jsonl.{how}").write_bytes(b"".join(parts))
    assert texts(read(params, tmp_path, f"a.jsonl.{how}")[0]) == TEXTS


def test_an_archive_of_json_arrays(params, tmp_path):
    pairs = [[{"story": text}, {"story": text * 2}] for text in TEXTS]
    to_archive(
        tmp_path / "all.tar.gz", {f"data/{number}.json": json.dumps(pair).encode() for number, pair in enumerate(pairs)}
    )
    stories, _ = read(params, tmp_path, "all.tar.gz", text_column="story")
    assert texts(stories) == [TEXTS[0], TEXTS[0] * 2, TEXTS[1], TEXTS[1] * 2]
    assert stories[3].id == "all.tar.gz/data/1.json:2"


def test_a_long_array_is_read_piece_by_piece(params, tmp_path):
    rows = [f"{number}" * 50_000 for number in range(30)]  # several times what is read at once
    (tmp_path / "a.json").write_text(json.dumps([{"text": row} for row in rows], indent=2), encoding="utf-8")
    assert texts(read(params, tmp_path, "a.json")[0]) == rows


@pytest.mark.parametrize("broken", ['{"text": x}', '{"text": "x"y"}', '{"a":' * 10**5 + "1" + "}" * 10**5])
@pytest.mark.parametrize("shift", [0, 1, 7, 8, 9, 20])
def test_a_broken_element_anywhere_in_a_long_array_costs_itself_alone(params, tmp_path, monkeypatch, broken, shift):
    monkeypatch.setattr("tinygpt.rows.PART_CHARS", 100)  # so that parts end everywhere
    rows = [f"{LONG}{number}" for number in range(9)]
    elements = [json.dumps({"text": row}) for row in rows]
    content = "[" + " " * shift + ",\n ".join([*elements[:4], broken, *elements[4:]]) + "]"
    (tmp_path / "a.json").write_text(content, encoding="utf-8")
    stories, origin = read(params, tmp_path, "a.json")
    assert texts(stories) == rows
    (problem,) = origin.broken
    assert problem.startswith("a.json:5: no JSON (")


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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "gb18030", "big5"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "txt"])
def test_every_encoding_and_line_end_in_every_kind(params, tmp_path, kind, encoding, line_end):
    rows = ["從前，有一隻小兔子，住在森林裡。", "牠每天都去河邊喝水，和小夥伴們一起玩耍。"] * 3
    if encoding == "gb18030":
        rows.append("从前，有一座𠮷山。")  # four bytes, not in gbk
    content = as_kind(kind, rows).decode().replace("\n", line_end)
    (tmp_path / f"a.{kind}").write_bytes(content.encode(encoding))
    stories, origin = read(params, tmp_path, f"a.{kind}", text_layout="line")
    assert [text.strip() for text in texts(stories)] == rows and origin.n_broken == 0
    assert origin.files[0]["encoding"] == encoding


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "txt"])
def test_a_wrong_byte_costs_its_row_alone(params, tmp_path, kind, encoding):
    rows = [f"{LONG}{number}" for number in range(30)]
    data = as_kind(kind, rows).decode().encode(encoding)
    place = data.index("森林".encode(encoding), len(data) // 2)
    (tmp_path / f"a.{kind}").write_bytes(data[:place] + b"\xff" + data[place:])
    stories, origin = read(params, tmp_path, f"a.{kind}", text_layout="line")
    line = data[:place].count(b"\n") + 1
    lost = line - (2 if kind == "csv" else 1)
    assert [text.strip() for text in texts(stories)] == rows[:lost] + rows[lost + 1 :]
    assert origin.broken == [f"a.{kind}:{line}: bytes that are not {encoding}"]


def test_many_wrong_bytes_are_a_wrong_encoding(params, tmp_path):
    lines = "從前，有一隻小兔子\n".encode("big5") * 12
    (tmp_path / "a.txt").write_bytes("一\n".encode() * 100 + lines)
    message = r"a\.txt cannot be read as utf-8 \(other bytes in 12 rows\); name its encoding"
    with pytest.raises(ValueError, match=message):  # eleven of 111 would do
        read(params, tmp_path, "a.txt", text_layout="line", encoding="utf-8")


def test_half_a_surrogate_pair_is_a_broken_row(params, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "\\ud83d"}\n{"text": "\\ud83d\\ude00"}\n', encoding="utf-8")
    stories, origin = read(params, tmp_path, "a.jsonl")
    assert texts(stories) == ["😀"] and origin.broken == ["a.jsonl:1: half of a surrogate pair"]


def test_a_string_column_of_parquet_that_is_none(params, tmp_path):
    values = pa.array([b"\xe4\xb8\x80", b"\xff", None, b"x"], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 4, values.buffers())  # as a careless writer would
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    stories, origin = read(params, tmp_path, "a.parquet")
    assert texts(stories) == ["一", "x"]
    assert origin.broken == ["a.parquet:2: bytes that are not utf-8", "a.parquet:3: text is no text but None"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "\ufeff一\n二\0\n\ufeff三\u2028\n", ["一\n", "二\n", "三\u2028\n"]),
        ("a.json", '[{"text": "一"}]\n\ufeff[{"text": "二"},\n{"text": "三"}]', ["一", "二", "三"]),
        ("a.jsonl", '\n\ufeff\n{"text": "一"}\n\n{"text": "二\0三"}', ["一", "二三"]),
        ("a.csv", 'id,text\n\n1,"一\n\n二"\n\n\n2,三\n', ["一\n\n二", "三"]),
    ],
)
def test_what_stands_between_rows_is_no_row(params, tmp_path, name, content, expected):
    (tmp_path / name).write_text(content, encoding="utf-8")
    stories, origin = read(params, tmp_path, name, text_layout="line")
    assert texts(stories) == expected and origin.n_broken == 0


def test_lines_are_counted_from_the_first_even_if_blank(params, tmp_path):
    (tmp_path / "a.jsonl").write_text('\n \n{"text": "一"}\n\n{"text": "二"}\n', encoding="utf-8")
    (tmp_path / "a.csv").write_text("id,text\n\n1,一\n\n2,二\n", encoding="utf-8")
    assert [story.id for story in read(params, tmp_path, "a.*")[0]] == ["a.csv:3", "a.csv:5", "a.jsonl:3", "a.jsonl:5"]


def test_names_in_another_encoding_can_be_told(params, tmp_path):
    path = tmp_path / os.fsdecode("故事.jsonl".encode("gb18030"))
    path.write_text(to_jsonl(TEXTS), encoding="utf-8")
    stories, origin = read(params, tmp_path, "*.jsonl")
    assert texts(stories) == TEXTS
    json.dumps([story._asdict() for story in stories] + origin.files, ensure_ascii=False).encode()


# What is wrong is named, and the rest goes on.


@pytest.mark.parametrize(
    ("name", "content", "good", "problem"),
    [
        ("a.jsonl", '{"text": "一"}\n{"text": \n{"text": "二"}\n', ["一", "二"], "a.jsonl:2: no JSON"),
        ("a.jsonl", '{"text": "一"}\n["x"]\n', ["一"], "a.jsonl:2: no 'text' in"),
        ("a.jsonl", '{"text": "一"}\n{"story": "x"}\n', ["一"], "a.jsonl:2: no 'text' in"),
        ("a.jsonl", '{"text": "一"}\n{"text": null}\n', ["一"], "a.jsonl:2: text is no text but None"),
        ("a.json", '[{"text": "一"}, {"text": "二"', ["一"], "a.json:2: the array breaks off"),
        (
            "a.json",
            '[{"text": "一"}, {"text": x}, {"text": "二"}]',
            ["一", "二"],
            "a.json:2: no JSON (Expecting value)",
        ),
        ("a.json", '[{"text": "一"},', ["一"], "a.json:2: the array breaks off (no closing bracket)"),
        ("a.jsonl", '{"text": "一"}\n' + "[" * 10**5 + '\n{"text": "二"}', ["一", "二"], "a.jsonl:2: no JSON (maximum"),
        ("a.csv", "id,text\n1,一\n2\n3,二,x\n4,三\n", ["一", "三"], "a.csv:3: not the 2 columns"),
        ("a.csv", 'id,text\n1,"一\n2,二\n3,"三"\n', ["二", "三"], "a.csv:2: no row of a table"),
        ("a.csv", 'id,text\n1,一\n2,"二\n3,三\n', ["一", "三"], "a.csv:3: no row of a table (unexpected end"),
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
        ("a.csv", "text,id,text\n", r"a\.csv has 2 columns 'text'; rename all but one"),
        ("a.csv", "", r"a\.csv has no column 'text'"),
        ("a.parquet", "PAR1", r"a\.parquet is damaged"),
        (
            "a.json",
            '{"data": [{"text": "x"}]}',
            r"it has: data; if the stories are the list 'data', make that list a file",
        ),
        ("a.json", '{\n"text": "x"\n}', r"a\.json holds nothing .* an object stands on one line, or in an array"),
        ("a.pdf", "x", r"unknown kind of file '\.pdf'"),
    ],
)
def test_a_file_with_nothing_usable_is_named(params, tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read(params, tmp_path, name)


def test_two_parquet_columns_of_one_name(params, tmp_path):
    column = pa.array(["一"])
    pq.write_table(pa.Table.from_arrays([column, column], ["text", "text"]), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet has 2 columns 'text'"):
        read(params, tmp_path, "a.parquet")


def test_a_bad_file_in_an_archive_costs_itself_alone(params, tmp_path):
    files = {
        "README.md": b"about",
        "1.jsonl": to_jsonl(TEXTS[:1]).encode(),
        "2.jsonl": b'{"title": "x"}\n',
        "3.parquet": b"PAR1",
        "4.csv": b"\xff\xfe\x00",
        "5.jsonl.gz": gzip.compress(to_jsonl(TEXTS[1:]).encode()),
    }
    to_archive(tmp_path / "a.tar", files)
    stories, origin = read(params, tmp_path, "a.tar")
    assert texts(stories) == TEXTS
    assert origin.broken[:2] == [
        "a.tar/README.md: unknown kind of file '.md'",
        "a.tar/2.jsonl: has no column 'text' (download.text_column); it has: title",
    ]
    assert [problem.partition(":")[0] for problem in origin.broken[2:]] == ["a.tar/3.parquet", "a.tar/4.csv"]
    "".join(origin.broken).encode()  # can be written
    with pytest.raises(ValueError, match=r"a\.tar/1\.jsonl has no column 'story'.*it has: text"):
        read(params, tmp_path, "a.tar", text_column="story")


def test_an_archive_of_nothing(params, tmp_path):
    to_archive(tmp_path / "a.tar.gz", {"a.md": b"x"})
    with pytest.raises(ValueError, match=r"a\.tar\.gz holds nothing to read; the first broken row: .*unknown kind"):
        read(params, tmp_path, "a.tar.gz")


def test_reading_stops_at_max_chars_and_says_so(params, tmp_path):
    (tmp_path / "a.jsonl").write_text(to_jsonl(["一二三", "四五六", "七八九"]), encoding="utf-8")
    stories, origin = read(params, tmp_path, "a.jsonl", max_chars=7)
    assert texts(stories) == ["一二三", "四五六"]
    assert origin.stopped_at == "max_chars" and "there is more" in origin.remarks()
    (file,) = origin.files
    assert not file["read_to_end"] and file["n_stories"] == 2
    assert file["sha256"] == hashlib.sha256((tmp_path / "a.jsonl").read_bytes()).hexdigest()
    assert texts(read(params, tmp_path, "a.jsonl", max_chars=9)[0]) == ["一二三", "四五六", "七八九"]


@pytest.mark.parametrize(
    ("max_stories", "expected", "stopped_at"), [(2, 2, "max_stories"), (3, 3, None), (None, 3, None)]
)
def test_reading_stops_at_max_stories(params, tmp_path, max_stories, expected, stopped_at):
    for name in "abc":
        (tmp_path / f"{name}.jsonl").write_text(to_jsonl(["一二三"]), encoding="utf-8")
    stories, origin = read(params, tmp_path, "*.jsonl", max_stories=max_stories, max_chars=None)
    assert len(stories) == expected and origin.stopped_at == stopped_at
    assert sum(file["n_stories"] for file in origin.files) == expected


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
