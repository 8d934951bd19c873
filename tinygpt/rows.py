"""The rows of a file: JSON Lines, JSON arrays, CSV and TSV, parquet, plain text."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from tinygpt.decoding import MARK, UNDECODABLE, Member, damaged, open_text
from tinygpt.params import DownloadParams

KINDS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt")
PART_CHARS = 2**20  # of a JSON array read at once
PARQUET_BYTES = 2**20  # of a column read at once
PARQUET_ROWS = 1_000
FIELD_CHARS = 10_000_000  # longer is no field of a CSV but a quote that was never closed
ROW_BREAK = re.compile(r"[\s,\[\]]*")  # between the objects of an array, or of several put together
LONGEST_ESCAPE = 12  # two times four hexadecimal digits with \u before them
OVERLAP_CHARS = 1_000  # may hold the beginning of what the search below looks for
NEXT_OBJECT = re.compile(r"\}\s*,\s*(?=\{)")


class Unusable(ValueError):
    """A whole file that gives no stories; the message names it."""


class Broken(NamedTuple):
    """Stands for a row that gives no text."""

    reason: str
    undecodable: bool = False  # the row holds bytes of another encoding, which may be why


Row = tuple[int, Any]  # line or row number from 1; a text, Broken, or what else stood in the column


def open_rows(member: Member, params: DownloadParams) -> tuple[str, Iterator[Row]]:
    """The encoding of a file ('' for parquet) and its rows, by its kind."""
    column = params.text_column
    if member.kind not in KINDS:
        raise Unusable(
            f"{member.name}: unknown kind of file {member.kind!r}; known are {' '.join(KINDS)}, also .gz .zst .tar.gz"
        )
    if member.kind == ".parquet":
        return "", _read_parquet(member, column)
    text = open_text(member, params.encoding, newline="" if member.kind in (".csv", ".tsv") else None)
    if member.kind in (".csv", ".tsv"):
        return text.encoding, _read_csv(text, "\t" if member.kind == ".tsv" else ",", member.name, column)
    if member.kind == ".txt":
        return text.encoding, _read_text(text, params.text_layout, params.text_separator)
    return text.encoding, _read_json(text, member.name, column)


def _check_column(name: str, column: str, names: list[str]) -> None:
    if column not in names:
        raise _no_column(name, column, names)
    if names.count(column) > 1:
        raise Unusable(f"{name} has {names.count(column)} columns {column!r}; rename all but one")


def _no_column(name: str, column: str, names: Iterable[str], hint: str = "") -> Unusable:
    return Unusable(f"{name} has no column {column!r} (download.text_column); it has: {', '.join(names)}{hint}")


def _plain(text: str) -> str:
    """Without the marks and NULs that files put together leave anywhere."""
    return text.replace("\ufeff", "").replace("\0", "")


def _read_json(text: TextIO, name: str, column: str) -> Iterator[Row]:
    """JSON Lines, or an array of objects: told apart by the first character."""
    first, start = "", 1
    while not first.strip() and (char := text.read(1)):
        first = _plain(char)
        start += char == "\n"
    checked = False
    for place, row in _array_rows(text) if first == "[" else _line_rows(first, start, text):
        if isinstance(row, dict) and column in row:
            checked = True
            yield place, row[column]
        elif isinstance(row, Broken):
            yield place, row
        elif isinstance(row, dict) and not checked:
            lists = [key for key, value in row.items() if isinstance(value, list) and value and value[0] is not None]
            hint = f"; if the stories are the list {lists[0]!r}, make that list a file of its own" if lists else ""
            raise _no_column(name, column, row, hint)
        else:
            yield place, Broken(f"no {column!r} in {json.dumps(row, ensure_ascii=False):.60}")


def _line_rows(first: str, start: int, text: TextIO) -> Iterator[Row]:
    """One object a line; `first` was read ahead of line `start`."""
    for number, line in enumerate(text, start):
        line = _plain(first + line).strip()
        first = ""
        if not line:
            continue
        try:
            yield number, json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            hint = "; an object stands on one line, or in an array" if line == "{" else ""
            yield number, Broken(f"no JSON ({error}){hint}", UNDECODABLE in line)


def _array_rows(text: TextIO) -> Iterator[Row]:
    """The elements of an array one by one, however long it is; its opening bracket was read already."""
    decoder, buffer, start, number, is_open = json.JSONDecoder(), "", 0, 1, True
    while True:
        end_of_break = ROW_BREAK.match(buffer, start).end()
        is_open = is_open and "]" not in buffer[start:end_of_break]
        start = end_of_break
        problem = None
        if start < len(buffer):
            try:
                row, start = decoder.raw_decode(buffer, start)
                yield number, row
                number, is_open = number + 1, True
                continue
            except (json.JSONDecodeError, RecursionError) as error:
                problem = error
        if _may_be_cut(problem, buffer) and (more := _plain(text.read(PART_CHARS))):
            buffer, start = buffer[start:] + more, 0
            continue
        if problem is None and not is_open:
            return
        reason = getattr(problem, "msg", problem)  # without the place, which counts from the part in memory
        while not (following := NEXT_OBJECT.search(buffer, start)) and (more := _plain(text.read(PART_CHARS))):
            buffer, start = buffer[start:][-OVERLAP_CHARS:] + more, 0
        if following is None:
            yield number, Broken(f"the array breaks off ({reason or 'no closing bracket'})", UNDECODABLE in buffer)
            return
        yield number, Broken(f"no JSON ({reason})", UNDECODABLE in buffer[start : following.end()])
        number, start = number + 1, following.end()


def _may_be_cut(problem: Exception | None, buffer: str) -> bool:
    """Whether an element cannot be read only because the rest of it was not read yet."""
    if isinstance(problem, json.JSONDecodeError):
        return problem.msg.startswith("Unterminated string") or problem.pos > len(buffer) - LONGEST_ESCAPE
    return problem is None


def _read_csv(text: TextIO, delimiter: str, name: str, column: str) -> Iterator[Row]:
    rows = _csv_rows(text, delimiter)
    names: Any = next((row for _, row in rows if row), [])
    if isinstance(names, Broken):
        raise Unusable(f"{name}: its header cannot be read ({names.reason})")
    _check_column(name, column, names)
    index = names.index(column)
    for line, row in rows:
        if isinstance(row, Broken):
            yield line, row
        elif len(row) == len(names):
            yield line, row[index]
        elif row:
            yield line, Broken(f"not the {len(names)} columns of the header")


def _csv_rows(text: TextIO, delimiter: str) -> Iterator[tuple[int, list[str] | Broken]]:
    """Yield (last line of the row, fields). A quote that is never closed costs its line and not all that follow."""
    csv.field_size_limit(FIELD_CHARS)
    ahead: list[str] = []  # lines to read again, the next one last
    taken: list[str] = []  # lines of this row

    def lines() -> Iterator[str]:
        while line := ahead.pop() if ahead else text.readline():
            taken.append(line)
            yield _plain(line)

    reader, number = csv.reader(lines(), delimiter=delimiter, strict=True), 0
    while True:
        taken.clear()
        try:
            row: list[str] | Broken = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = Broken(f"no row of a table ({error})", UNDECODABLE in taken[0])
            ahead.extend(reversed(taken[1:]))
            del taken[1:]
            reader = csv.reader(lines(), delimiter=delimiter, strict=True)
        number += len(taken)
        yield number, row


def _read_parquet(member: Member, column: str) -> Iterator[Row]:
    data = member.data if member.data.seekable() else io.BytesIO(member.data.read())
    try:
        # One thread and no reading ahead: nothing is fetched in vain, and no thread still reads when the program ends.
        table = pq.ParquetFile(data, buffer_size=PARQUET_BYTES, pre_buffer=False)
        _check_column(member.name, column, table.schema_arrow.names)
        batches = table.iter_batches(PARQUET_ROWS, columns=[column], use_threads=False)
        yield from enumerate((text for batch in batches for text in _values(batch.column(0))), 1)
    except pa.ArrowException as error:
        raise Unusable(str(damaged(member.name, error))) from None


def _values(column: pa.Array) -> list[Any]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError:  # not every writer checks what it calls a string
        values = column.cast(pa.binary()).to_pylist()
        return [value and value.decode(errors=MARK) for value in values]


def _read_text(text: TextIO, layout: str, separator: str) -> Iterator[Row]:
    """Plain text: a story a file, a story a line, or blocks between blank (or separator) lines."""
    lines = (_plain(line) for line in text)
    if layout == "file":
        parts: Iterable[tuple[int, str]] = [(1, "".join(lines))]
    elif layout == "line":
        parts = enumerate(lines, 1)
    else:
        parts = _blocks(lines, separator)
    for number, part in parts:
        if part.strip():
            yield number, part


def _blocks(lines: Iterable[str], separator: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, block); a line that is `separator` alone ends a block."""
    start, block = 1, []
    for number, line in enumerate(lines, 1):
        if line.strip() == separator:
            yield start, "".join(block)
            start, block = number + 1, []
        else:
            block.append(line)
    yield start, "".join(block)
