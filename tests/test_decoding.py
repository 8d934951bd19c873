import codecs
import gzip
import io
import tarfile

import pyarrow as pa
import pytest

from tinygpt.decoding import detect_encoding, open_text, read_members

SIMPLIFIED = "从前，有一只小兔子，住在森林里。它每天都去河边喝水，和小伙伴们一起玩耍。\n"
TRADITIONAL = "從前，有一隻小兔子，住在森林裡。牠每天都去河邊喝水，和小夥伴們一起玩耍。\n"
RARE = "从前，有一座山叫𠮷山，山上住着一位老爷爷。\n"  # 𠮷 is in gb18030, not in gbk


def texts(path):
    return [text for _, _, text in members(path)]


def members(path):
    """(name, kind, text) of each file in the file at `path`."""
    with path.open("rb") as data:
        return [
            (member.name, member.kind, open_text(member, "auto").read()) for member in read_members(data, path.name)
        ]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (SIMPLIFIED, "utf-8"),
        (SIMPLIFIED, "utf-8-sig"),
        (SIMPLIFIED, "utf-16"),
        (SIMPLIFIED, "utf-16-be"),
        (SIMPLIFIED, "utf-16-le"),
        (SIMPLIFIED, "gb18030"),
        (SIMPLIFIED, "gb2312"),
        (RARE, "gb18030"),
        (TRADITIONAL, "big5"),
    ],
)
@pytest.mark.parametrize("times", [1, 50])
def test_the_text_comes_back_whatever_its_encoding(tmp_path, text, encoding, times):
    path = tmp_path / "story.txt"
    path.write_bytes((text * times).encode(encoding))
    assert texts(path) == [text * times]


def test_utf8_is_recognised_in_a_sample_that_ends_within_a_character():
    data = SIMPLIFIED.encode()
    assert {detect_encoding(data[:n], "x") for n in range(1, 30)} == {"utf-8"}


def test_a_byte_order_mark_decides():
    assert detect_encoding(codecs.BOM_UTF16_BE + "从".encode("utf-16-be"), "x") == "utf-16"


def test_what_fits_no_encoding_is_named():
    with pytest.raises(ValueError, match=r"photo\.txt: found no encoding that fits; name it, for example"):
        detect_encoding(bytes(range(128, 256)) * 9 + b"\xff\xff\xfe\x81" * 99, "photo.txt")


def compress(path, data, how):
    if how == "zst":
        with pa.output_stream(str(path), compression="zstd") as file:
            file.write(data)
    else:
        path.write_bytes(gzip.compress(data) if how == "gz" else data)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_compressed_files(tmp_path, ending):
    path = tmp_path / f"story.txt{ending}"
    compress(path, SIMPLIFIED.encode("gb18030"), ending.removeprefix("."))
    assert members(path) == [(path.name, ".txt", SIMPLIFIED)]


@pytest.mark.parametrize("ending", [".tar", ".tar.gz", ".tgz"])
def test_archives_are_read_file_by_file(tmp_path, ending):
    path = tmp_path / f"stories{ending}"
    with tarfile.open(path, "w" if ending == ".tar" else "w:gz") as archive:
        for name, text in (("a/one.txt", SIMPLIFIED), ("a/._one.txt", "mac's"), ("two.jsonl", "{}\n")):
            entry = tarfile.TarInfo(name)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    assert members(path) == [
        (f"{path.name}/a/one.txt", ".txt", SIMPLIFIED),
        (f"{path.name}/two.jsonl", ".jsonl", "{}\n"),
    ]


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.zst", "a.tar.gz", "a.tar"])
def test_a_damaged_file_is_named(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"this is no archive" * 99)
    with pytest.raises(ValueError, match=r"a\.\w+(\.\w+)? is damaged .*fetch it again"):
        texts(path)


def test_a_cut_off_archive_is_named(tmp_path):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(SIMPLIFIED.encode() * 999)[:-30])
    with pytest.raises(ValueError, match=r"a\.txt\.gz is damaged"):
        texts(path)
