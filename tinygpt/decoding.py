"""The bytes of a file as text: decompress, look into archives, find the encoding."""

import codecs
import io
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, NamedTuple

import pyarrow as pa
from charset_normalizer import from_bytes

SAMPLE_BYTES = 2**20  # what the encoding is judged by
SAMPLE_PARTS = 8
COMPRESSIONS = {".gz": "gzip", ".tgz": "gzip", ".zst": "zstd"}
# What Chinese texts come in. gb18030 contains gb2312 and gbk, big5hkscs contains big5.
CANDIDATES = ["gb18030", "big5", "big5hkscs", "utf_16", "utf_16_le", "utf_16_be", "utf_8"]
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}

# Stands for bytes that the encoding does not know, so that one wrong byte costs a row and not the file. No text that
# can be written as UTF-8 holds it.
UNDECODABLE = "\udcff"
MARK = "tinygpt.mark"  # the name of this way to treat errors
codecs.register_error(MARK, lambda error: (UNDECODABLE, error.end))


class Member(NamedTuple):
    """A file, or a file in an archive: its name for messages, its kind (.jsonl, .txt, …), its bytes."""

    name: str
    kind: str
    data: IO[bytes]


def read_members(data: IO[bytes], name: str) -> Iterator[Member]:
    """The file `name`, decompressed; of a .tar or .tar.gz each file in it, one after the other.

    Raises:
        ValueError: the file is damaged, or no archive in spite of its name; also when a member is read.
    """
    kinds = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    compression = COMPRESSIONS.get(kinds[-1]) if kinds else None
    if compression:
        kinds = [".tar"] if kinds[-1] == ".tgz" else kinds[:-1]
        data = io.BufferedReader(_Guarded(pa.input_stream(data, compression=compression), name), SAMPLE_BYTES)
    kind = kinds[-1] if kinds else ""
    if kind != ".tar":
        yield Member(name, kind, data)
        return
    try:
        with tarfile.open(fileobj=data, mode="r|", bufsize=SAMPLE_BYTES) as archive:
            for entry in archive:
                if entry.isfile() and not PurePosixPath(entry.name).name.startswith("."):
                    inner = writable(f"{name}/{entry.name}")
                    yield from read_members(io.BufferedReader(_Guarded(archive.extractfile(entry), inner)), inner)
    except tarfile.TarError as error:
        raise damaged(name, error) from None


def writable(text: str) -> str:
    """`text` with what UTF-8 cannot hold spelled out: file names may come in any encoding."""
    return text.encode(errors="backslashreplace").decode()


def damaged(name: str, error: Exception) -> ValueError:
    return ValueError(f"{name} is damaged ({error}); fetch it again")


class _Guarded(io.RawIOBase):
    """A stream whose errors name the file; reading it past its end is no error."""

    def __init__(self, data: IO[bytes], name: str) -> None:
        self.data, self.name = data, name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        try:
            part = self.data.read(len(buffer))
        except (OSError, EOFError, tarfile.TarError) as error:
            raise damaged(self.name, error) from None
        buffer[: len(part)] = part
        return len(part)


class _Rewound(io.RawIOBase):
    """A stream that cannot seek, from its start again: what was read of it, then the rest."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self.head, self.rest = memoryview(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        part = self.head[: len(buffer)] or self.rest.read(len(buffer))
        self.head = self.head[len(part) :] if self.head else self.head
        buffer[: len(part)] = part
        return len(part)


def open_text(member: Member, encoding: str, newline: str | None = None) -> io.TextIOWrapper:
    """The bytes of `member` as text in the given encoding, or the one found if it is "auto".

    Bytes that this encoding does not know become `UNDECODABLE`.
    """
    head = member.data.read(SAMPLE_BYTES)
    if encoding == "auto":
        encoding = detect_encoding(head, member.name)
    stream = io.BufferedReader(_Rewound(head, member.data), SAMPLE_BYTES)
    return io.TextIOWrapper(stream, encoding=encoding, errors=MARK, newline=newline)


def detect_encoding(sample: bytes, name: str) -> str:
    """The encoding of a text that starts with `sample`, with utf-8 tried first; a wrong byte now and then is no matter.

    Example:
        >>> detect_encoding("从前，有一只小兔子。".encode("gbk"), "story.txt")
        'gb18030'

    Raises:
        ValueError: no encoding that Chinese texts come in fits; names the file.
    """
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if sample.startswith(mark):
            return encoding
    if _fits(sample, "utf-8"):
        return "utf-8"
    # The detector forgives no wrong byte: the sample may end within a character (of up to four bytes), and where that
    # is not it, most of its parts are free of what is wrong in one.
    for part in (sample, sample[:-1], sample[:-2], sample[:-3], *_parts(sample)):
        match = from_bytes(part, cp_isolation=CANDIDATES).best()
        if match and _fits(sample, match.encoding):
            return match.encoding.replace("_", "-")
    raise ValueError(f"{name}: found no encoding that fits; name it, for example -S download.encoding=gb18030")


def _fits(sample: bytes, encoding: str) -> bool:
    """At most every tenth character beyond ASCII is wrong: of a text in another encoding it is about every one."""
    text = codecs.getincrementaldecoder(encoding)(MARK).decode(sample)  # the last character may be cut
    n_wide = len(text) - len(text.encode("ascii", "ignore"))
    return text.count(UNDECODABLE) * 10 <= n_wide


def _parts(sample: bytes) -> list[bytes]:
    lines = sample.splitlines(keepends=True)
    step = len(lines) // SAMPLE_PARTS
    return [b"".join(lines[start : start + step]) for start in range(0, step * SAMPLE_PARTS, step)] if step else []
