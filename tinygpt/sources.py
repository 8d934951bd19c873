"""Where stories come from: the bundled corpus, the user's own files, or the Hugging Face hub."""

import glob
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from tinygpt.params import DownloadParams


class Story(NamedTuple):
    """`id` says where the text stood: file and line, or data set and row."""

    id: str
    text: str
    source: str


def read_stories(params: DownloadParams, bundled_dir: Path) -> Iterator[Story]:
    """Yield stories from `params.source` until they hold `params.max_chars` characters.

    Raises:
        ValueError: names the file, line or data set that cannot be read, and the way out.
    """
    if params.source == "bundled":
        stories = _read_files(sorted(bundled_dir.glob("*.jsonl")), params.text_column, "bundled")
    elif params.source == "files":
        stories = _read_files(_matching(params.files), params.text_column, None)
    else:
        stories = _read_hub(params)
    return _take_chars(stories, params.max_chars)


def _take_chars(stories: Iterable[Story], max_chars: int) -> Iterator[Story]:
    n_chars = 0
    for story in stories:
        n_chars += len(story.text)
        if n_chars > max_chars:
            return
        yield story


def _matching(patterns: list[str]) -> list[Path]:
    """Expand globs; each file once, in the order of the patterns."""
    if not patterns:
        raise ValueError("download.files is empty; name files, for example -S 'download.files=[novels/*.txt]'")
    paths: dict[Path, None] = {}
    for pattern in patterns:
        found = sorted(glob.glob(pattern, recursive=True))
        if not found:
            raise ValueError(f"download.files: nothing matches {pattern!r}")
        paths.update(dict.fromkeys(Path(name) for name in found))
    return list(paths)


def _read_files(paths: list[Path], column: str, source: str | None) -> Iterator[Story]:
    for path in paths:
        for place, text in _read_file(path, column):
            if not isinstance(text, str):
                raise ValueError(f"{path}:{place}: {column!r} is not text but {text!r}")
            yield Story(f"{path.name}:{place}", text, source or str(path))


def _read_file(path: Path, column: str) -> Iterator[tuple[int, Any]]:
    """Yield (line or row number from 1, text) by the file's ending; a .txt file is one story."""
    kind = path.suffix.lower()
    try:
        if kind == ".jsonl":
            yield from _read_json_lines(path, column)
        elif kind in (".csv", ".tsv"):
            table = pd.read_csv(path, sep="\t" if kind == ".tsv" else ",", dtype=str, keep_default_na=False)
            yield from enumerate(_column(table.columns, table, column, path), 1)
        elif kind == ".parquet":
            table = pd.read_parquet(path)
            yield from enumerate(_column(table.columns, table, column, path), 1)
        elif kind == ".txt":
            yield 1, path.read_text(encoding="utf-8-sig")
        else:
            raise ValueError(f"{path}: unknown kind of file {kind!r}; known are .jsonl .csv .tsv .parquet .txt")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 ({error}); convert it first, for example with iconv") from None


def _read_json_lines(path: Path, column: str) -> Iterator[tuple[int, Any]]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}:{number} is not a JSON object but {line.strip()[:40]!r}")
            yield number, _column(row, row, column, f"{path}:{number}")


def _column(names: Iterable[str], table: Any, column: str, where: Path | str) -> Any:
    if column not in names:
        raise ValueError(f"{where} has no column {column!r} (download.text_column); it has: {', '.join(names)}")
    return table[column]


def _read_hub(params: DownloadParams) -> Iterator[Story]:
    from datasets import load_dataset  # imported here: it takes seconds that the other sources need not wait

    name = f"{params.hub_repo}@{params.hub_revision}"
    try:
        rows = load_dataset(params.hub_repo, revision=params.hub_revision, split=params.hub_split, streaming=True)
        for number, row in enumerate(rows, 1):
            text = _column(row, row, params.text_column, params.hub_repo)
            yield Story(f"{params.hub_repo}:{number}", text, name)
    except (OSError, RuntimeError) as error:  # what the hub's client raises without a network or a data set
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"cannot read {name} from the hub ({reason}); "
            "without a network use -S download.source=bundled, or files with download.files"
        ) from error
