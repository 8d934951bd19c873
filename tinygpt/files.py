"""Write a file or a folder whole or not at all."""

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it takes the place of `path` when the block ends well.

    Whatever stood at `path` stays until then, and stays for good if the block raises.
    """
    partial = path.with_name(f".{path.name}.partial")
    _remove(partial)  # left over by a killed run
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
        if partial.is_dir():  # os.replace cannot put one folder over another
            _remove(path)
        os.replace(partial, path)
    finally:
        _remove(partial)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write `value` as readable JSON; NaN and infinity raise, because no other reader takes them."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); delete it and run its stage again") from error


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows that have the same keys; floats with six digits."""
    text = io.StringIO()
    table = csv.DictWriter(text, rows[0], lineterminator="\n")
    table.writeheader()
    table.writerows({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()} for row in rows)
    write_text(path, text.getvalue())


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def sha256_of_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
