"""The bytes of a file as text: decompress, look into archives, find the encoding."""

import codecs
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

import pyarrow as pa
from charset_normalizer import from_bytes

SAMPLE_BYTES = 2**20  # what the encoding is judged by
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
# What Chinese texts come in. gb18030 contains gb2312 and gbk, big5hkscs contains big5.
CANDIDATES = ["gb18030", "big5", "big5hkscs", "utf_16", "utf_16_le", "utf_16_be", "utf_8"]
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class Member(NamedTuple):
    """A file, or a file in an archive: its name for messages, its kind (.jsonl, .txt, …), its bytes."""

    name: str
    kind: str
    data: IO[bytes]


def read_members(path: Path) -> Iterator[Member]:
    """The file at `path`, decompressed; of a .tar or .tar.gz each file in it, one after the other.

    Raises:
        ValueError: the file is damaged, or no archive in spite of its name.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    try:
        if suffixes[-1:] == [".tgz"] or ".tar" in suffixes[-2:]:
            with _decompressed(path) as data, tarfile.open(fileobj=data, mode="r|") as archive:
                for entry in archive:
                    if entry.isfile() and not PurePosixPath(entry.name).name.startswith("."):
                        kind = PurePosixPath(entry.name).suffix.lower()
                        yield Member(f"{path.name}/{entry.name}", kind, archive.extractfile(entry))
        else:
            inner = suffixes[:-1] if suffixes[-1:] and suffixes[-1] in COMPRESSIONS else suffixes
            with _decompressed(path) as data:
                yield Member(path.name, inner[-1] if inner else "", data)
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path} is damaged ({error}); fetch it again") from None


@contextmanager
def _decompressed(path: Path) -> Iterator[IO[bytes]]:
    compression = COMPRESSIONS.get(path.suffix.lower(), "gzip" if path.suffix.lower() == ".tgz" else None)
    with pa.input_stream(str(path), compression=compression) as data:
        yield _Named(data, path)


class _Named(io.RawIOBase):
    """A stream whose errors name the file; reading it past its end is no error."""

    def __init__(self, data: IO[bytes], path: Path) -> None:
        self.data, self.path = data, path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        try:
            part = self.data.read(len(buffer))
        except OSError as error:
            raise ValueError(f"{self.path} is damaged ({error}); fetch it again") from None
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
    """The bytes of `member` as text in the given encoding, or the one found if it is "auto"."""
    head = member.data.read(SAMPLE_BYTES)
    if encoding == "auto":
        encoding = detect_encoding(head, member.name)
    return io.TextIOWrapper(io.BufferedReader(_Rewound(head, member.data)), encoding=encoding, newline=newline)


def detect_encoding(sample: bytes, name: str) -> str:
    """The encoding of a text that starts with `sample`, with utf-8 tried first.

    Example:
        >>> detect_encoding("从前，有一只小兔子。".encode("gbk"), "story.txt")
        'gb18030'

    Raises:
        ValueError: no encoding that Chinese texts come in fits; names the file.
    """
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if sample.startswith(mark):
            return encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # the last character may be cut
        return "utf-8"
    except UnicodeDecodeError:
        pass
    # An even number of bytes: half a character at the end must not speak against its encoding.
    match = from_bytes(sample[: len(sample) // 2 * 2], cp_isolation=CANDIDATES).best()
    if match is None:
        raise ValueError(f"{name}: found no encoding that fits; name it, for example -S download.encoding=gb18030")
    return match.encoding.replace("_", "-")
