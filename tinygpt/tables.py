"""Stories in parquet files: written as they come, in shards if there are many, read in batches."""

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from types import TracebackType

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = ("id", "text", "source")
SCHEMA = pa.schema([(name, pa.string()) for name in COLUMNS])
ROWS_AT_ONCE = 10_000  # all that is held in memory
ROWS_OF_A_SHARD = 250_000

Row = tuple[str, str, str]  # id, text, source


class StoryWriter:
    """Writes rows to `folder/name.parquet`, or, past `ROWS_OF_A_SHARD`, to `name-00000.parquet` and so on.

    A context manager; inside, `n_stories` and `n_chars` count what was written.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.n_stories = self.n_chars = self.n_shards = 0
        self.rows_left = 0  # of the shard that is open
        self.file: pq.ParquetWriter | None = None

    def write(self, rows: Iterable[Row]) -> None:
        rows = iter(rows)
        while batch := list(islice(rows, min(ROWS_AT_ONCE, self.rows_left or ROWS_OF_A_SHARD))):
            if not self.rows_left:
                self._next_shard()
            self.file.write_table(_to_table(batch))
            self.rows_left -= len(batch)
            self.n_stories += len(batch)
            self.n_chars += sum(len(text) for _, text, _ in batch)

    def _next_shard(self) -> None:
        if self.file:
            self.file.close()
        self.file = pq.ParquetWriter(self._shard(self.n_shards), SCHEMA)
        self.n_shards += 1
        self.rows_left = ROWS_OF_A_SHARD

    def _shard(self, number: int) -> Path:
        return self.folder / f"{self.name}-{number:05}.parquet"

    def __enter__(self) -> "StoryWriter":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.file and not error:
            self._next_shard()  # a table without rows is a table
        if self.file:
            self.file.close()
        if self.n_shards == 1:
            self._shard(0).rename(self.folder / f"{self.name}.parquet")


def _to_table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_arrays([pa.array(values, pa.string()) for values in zip(*rows, strict=True)], schema=SCHEMA)


def shards(folder: Path, name: str) -> list[Path]:
    """The files that hold the table `name`, in order; none if there is no such table."""
    whole = folder / f"{name}.parquet"
    return [whole] if whole.exists() else sorted(folder.glob(f"{name}-[0-9]*.parquet"))


def first_shard(folder: Path, name: str) -> Path:
    """The file to ask for to know whether the table is there."""
    return next(iter(shards(folder, name)), folder / f"{name}.parquet")


def n_rows(folder: Path, name: str) -> int:
    return sum(pq.read_metadata(path).num_rows for path in shards(folder, name))


def read_batches(folder: Path, name: str) -> Iterator[list[Row]]:
    """Yield the rows of a table, at most `ROWS_AT_ONCE` at a time."""
    for path in shards(folder, name):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=list(COLUMNS)):
                yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def read_texts(folder: Path, name: str) -> Iterator[str]:
    """Yield the texts of a table one by one."""
    for path in shards(folder, name):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=["text"]):
                yield from batch.column(0).to_pylist()


class Shelf:
    """Rows on disk, to be fetched in any order: 24 bytes of memory a row, however long its text."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w+b")
        self.bounds = array("q", [0])  # where in the file each field ends; a row has three

    def __len__(self) -> int:
        return len(self.bounds) // len(COLUMNS)

    def append(self, row: Row) -> None:
        for value in row:
            data = value.encode("utf-8")
            self.file.write(data)
            self.bounds.append(self.bounds[-1] + len(data))

    def __getitem__(self, number: int) -> Row:
        bounds = self.bounds[number * len(COLUMNS) : (number + 1) * len(COLUMNS) + 1]
        self.file.seek(bounds[0])
        data = self.file.read(bounds[-1] - bounds[0])
        return tuple(data[a - bounds[0] : b - bounds[0]].decode("utf-8") for a, b in pairwise(bounds))

    def text(self, number: int) -> str:
        return self[number][COLUMNS.index("text")]

    def close(self) -> None:
        self.file.close()
