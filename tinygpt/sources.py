"""Where stories come from: the bundled corpus, the user's own files, or the Hugging Face hub."""

import csv
import glob
import hashlib
import io
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pyarrow.parquet as pq

from tinygpt.decoding import Member, open_text, read_members
from tinygpt.params import DownloadParams

KINDS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt")
SHOWN_PROBLEMS = 20


class Story(NamedTuple):
    """`id` says where the text stood: file and line or row, or data set and row."""

    id: str
    text: str
    source: str


@dataclass
class Origin:
    """What was read, for reports/source.json: how much of it, from which bytes."""

    files: list[dict[str, Any]] = field(default_factory=list)
    n_broken: int = 0
    broken: list[str] = field(default_factory=list)  # the first of them, for a person to look at
    stopped_at_max_chars: bool = False

    def add_broken(self, where: str, reason: str) -> None:
        self.n_broken += 1
        if len(self.broken) < SHOWN_PROBLEMS:
            self.broken.append(f"{where}: {reason}")

    def tell(self) -> dict[str, Any]:
        """For reports/source.json."""
        return {
            "stopped_at_max_chars": self.stopped_at_max_chars,
            "files": self.files,
            "broken_rows": {"n": self.n_broken, "first": self.broken},
        }

    def remarks(self) -> str:
        """For the line that the stage prints: what a person should know."""
        encodings = sorted({file["encoding"] for file in self.files} - {"utf-8", ""})
        parts = [f"read as {', '.join(encodings)}"] if encodings else []
        if self.n_broken:
            parts.append(f"{self.n_broken:,} broken rows left out, the first {self.broken[0]}")
        if self.stopped_at_max_chars:
            parts.append("stopped at download.max_chars, there is more")
        return "".join(f"; {part}" for part in parts)


def read_stories(params: DownloadParams, bundled_dir: Path, origin: Origin) -> Iterator[Story]:
    """Yield stories from `params.source` until they hold `params.max_chars` characters.

    A broken row is noted in `origin`, and the rest goes on.

    Raises:
        ValueError: names the file or data set that cannot be read at all, and the way out.
    """
    if params.source == "bundled":
        stories = _read_files(sorted(bundled_dir.glob("*.jsonl")), params, origin, "bundled")
    elif params.source == "files":
        stories = _read_files(_matching(params.files), params, origin, None)
    else:
        stories = _read_hub(params)
    return _take_chars(stories, params.max_chars, origin)


def _take_chars(stories: Iterable[Story], max_chars: int, origin: Origin) -> Iterator[Story]:
    n_chars = 0
    for story in stories:
        n_chars += len(story.text)
        if n_chars > max_chars:
            origin.stopped_at_max_chars = True
            return
        yield story


def _matching(patterns: list[str]) -> list[Path]:
    """Expand globs; each file once, in the order of the patterns."""
    if not patterns:
        raise ValueError("download.files is empty; name files, for example -S 'download.files=[\"novels/*.txt\"]'")
    paths: dict[Path, None] = {}
    for pattern in patterns:
        found = [Path(name) for name in sorted(glob.glob(pattern, recursive=True)) if Path(name).is_file()]
        if not found:
            raise ValueError(f"download.files: no file matches {pattern!r}")
        paths.update(dict.fromkeys(found))
    return list(paths)


def _read_files(paths: list[Path], params: DownloadParams, origin: Origin, source: str | None) -> Iterator[Story]:
    for path in paths:
        n_stories, encodings = 0, set()
        for member in read_members(path):
            for place, text in _read_member(member, params, origin, encodings):
                if not isinstance(text, str):
                    origin.add_broken(f"{member.name}:{place}", f"{params.text_column} is no text but {text!r:.40}")
                    continue
                n_stories += 1
                yield Story(f"{member.name}:{place}", text, source or str(path))
        if not n_stories:
            raise ValueError(f"{path} holds nothing to read{_first_problem(origin)}")
        origin.files.append(
            {
                "path": path.as_posix(),
                "n_bytes": path.stat().st_size,
                "sha256": _sha256(path),
                "encoding": ", ".join(sorted(encodings)),
                "n_stories": n_stories,
            }
        )


def _first_problem(origin: Origin) -> str:
    return f"; the first broken row: {origin.broken[0]}" if origin.broken else ""


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _read_member(
    member: Member, params: DownloadParams, origin: Origin, encodings: set[str]
) -> Iterator[tuple[int, Any]]:
    """Yield (line or row number from 1, text) by the kind of the file; notes the encoding it found."""
    if member.kind == ".parquet":
        yield from _read_parquet(member, params.text_column)
        return
    if member.kind not in KINDS:
        raise ValueError(
            f"{member.name}: unknown kind of file {member.kind!r}; known are {' '.join(KINDS)}, also .gz .zst .tar.gz"
        )
    newline = "" if member.kind in (".csv", ".tsv") else None
    with open_text(member, params.encoding, newline) as text:
        encodings.add(text.encoding)
        try:
            if member.kind in (".csv", ".tsv"):
                yield from _read_csv(
                    text, "\t" if member.kind == ".tsv" else ",", member.name, params.text_column, origin
                )
            elif member.kind == ".txt":
                yield from _read_text(text, params.text_layout, params.text_separator)
            else:
                yield from _read_json(text, member.name, params.text_column, origin)
        except UnicodeError as error:
            raise ValueError(
                f"{member.name} cannot be read as {text.encoding} ({error}); "
                "name its encoding, for example -S download.encoding=gb18030"
            ) from None


def _read_json(text: TextIO, name: str, column: str, origin: Origin) -> Iterator[tuple[int, Any]]:
    """JSON Lines, or one array of objects: told apart by the first character."""
    first = text.read(1)
    while first and (first.isspace() or first == "\ufeff"):
        first = text.read(1)
    rows = _array_rows(text, name, origin) if first == "[" else _line_rows(first, text, name, origin)
    checked = False
    for place, row in rows:
        if isinstance(row, dict) and column in row:
            checked = True
            yield place, row[column]
        elif isinstance(row, dict) and not checked:
            raise ValueError(f"{name} has no column {column!r} (download.text_column); it has: {', '.join(row)}")
        else:
            origin.add_broken(f"{name}:{place}", f"no {column!r} in {json.dumps(row, ensure_ascii=False):.60}")


def _line_rows(first: str, text: TextIO, name: str, origin: Origin) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text, 1):
        line = (first + line if number == 1 else line).strip().strip("\ufeff\0")
        if not line:
            continue
        try:
            yield number, json.loads(line)
        except json.JSONDecodeError as error:
            origin.add_broken(f"{name}:{number}", f"no JSON ({error})")


def _array_rows(text: TextIO, name: str, origin: Origin) -> Iterator[tuple[int, Any]]:
    """The elements of an array one by one, however long it is."""
    decoder, buffer, number, at_end = json.JSONDecoder(), "", 1, False
    while True:
        buffer = buffer.lstrip(" \t\r\n,")
        if buffer.startswith("]"):
            return
        try:
            row, end = decoder.raw_decode(buffer)
        except json.JSONDecodeError as error:
            if at_end:
                origin.add_broken(f"{name}:{number}", f"the array breaks off ({error})")
                return
            more = text.read(2**20)
            at_end = not more
            buffer += more
            continue
        yield number, row
        buffer, number = buffer[end:], number + 1


def _read_csv(text: TextIO, delimiter: str, name: str, column: str, origin: Origin) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(sys.maxsize)
    rows = csv.DictReader((line.replace("\0", "").replace("\ufeff", "") for line in text), delimiter=delimiter)
    names = rows.fieldnames or []
    if column not in names:
        raise ValueError(f"{name} has no column {column!r} (download.text_column); it has: {', '.join(names)}")
    for row in rows:
        if None in row or None in row.values():
            origin.add_broken(f"{name}:{rows.line_num}", f"not the {len(names)} columns of the header")
        else:
            yield rows.line_num, row[column]


def _read_parquet(member: Member, column: str) -> Iterator[tuple[int, Any]]:
    table = pq.ParquetFile(io.BytesIO(member.data.read()))
    if column not in table.schema_arrow.names:
        names = ", ".join(table.schema_arrow.names)
        raise ValueError(f"{member.name} has no column {column!r} (download.text_column); it has: {names}")
    number = 0
    for batch in table.iter_batches(columns=[column]):
        for value in batch.column(0):
            number += 1
            yield number, value.as_py()


def _read_text(text: TextIO, layout: str, separator: str) -> Iterator[tuple[int, str]]:
    """Plain text: a story a file, a story a line, or blocks between blank (or separator) lines."""
    if layout == "file":
        parts = iter([(1, text.read())])
    elif layout == "line":
        parts = enumerate(text, 1)
    else:
        parts = _blocks(text, separator)
    for number, part in parts:
        if part.strip():
            yield number, part


def _blocks(text: TextIO, separator: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, block); a line that is `separator` alone ends a block."""
    start, lines = 1, []
    for number, line in enumerate(text, 1):
        if line.strip() == separator:
            yield start, "".join(lines)
            start, lines = number + 1, []
        else:
            lines.append(line)
    yield start, "".join(lines)


def _read_hub(params: DownloadParams) -> Iterator[Story]:
    from datasets import load_dataset  # imported here: it takes seconds that the other sources need not wait

    name = f"{params.hub_repo}@{params.hub_revision}"
    try:
        rows = load_dataset(params.hub_repo, revision=params.hub_revision, split=params.hub_split, streaming=True)
        for number, row in enumerate(rows, 1):
            if params.text_column not in row:
                names = ", ".join(row)
                raise ValueError(
                    f"{params.hub_repo} has no column {params.text_column!r} (download.text_column); it has: {names}"
                )
            yield Story(f"{params.hub_repo}:{number}", row[params.text_column], name)
    except (OSError, RuntimeError) as error:  # what the hub's client raises without a network or a data set
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"cannot read {name} from the hub ({reason}); "
            "without a network use -S download.source=bundled, or files with download.files"
        ) from error
