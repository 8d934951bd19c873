"""Where stories come from: the bundled corpus, the user's own files, or the Hugging Face hub."""

import glob
import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from tinygpt.decoding import UNDECODABLE, read_members, writable
from tinygpt.params import DownloadParams
from tinygpt.rows import KINDS, Broken, Row, Unusable, open_rows

SHOWN_PROBLEMS = 20
ANOTHER_ENCODING = "name its encoding, for example -S download.encoding=gb18030"


class Story(NamedTuple):
    """`id` says where the text stood: file and line or row."""

    id: str
    text: str
    source: str


class SourceFile(NamedTuple):
    """A file to read, here or on the hub."""

    name: str  # for ids and messages
    path: str  # for reports/source.json
    source: str
    n_bytes: int
    sha256: Callable[[], str | None]
    open: Callable[[], IO[bytes]]


@dataclass
class Origin:
    """What was read, for reports/source.json: how much of it, from which bytes."""

    hub: dict[str, str] | None = None
    files: list[dict[str, Any]] = field(default_factory=list)
    n_broken: int = 0
    broken: list[str] = field(default_factory=list)  # the first of them, for a person to look at
    stopped_at: str | None = None  # the param that ended the reading

    def add_broken(self, where: str, reason: str) -> None:
        self.n_broken += 1
        if len(self.broken) < SHOWN_PROBLEMS:
            self.broken.append(writable(f"{where}: {reason}"))

    def tell(self) -> dict[str, Any]:
        """For reports/source.json."""
        return {
            **({"hub": self.hub} if self.hub else {}),
            "stopped_at": self.stopped_at,
            "files": self.files,
            "broken_rows": {"n": self.n_broken, "first": self.broken},
        }

    def remarks(self) -> str:
        """For the line that the stage prints: what a person should know."""
        encodings = sorted({file["encoding"] for file in self.files} - {"utf-8", ""})
        parts = [f"read as {', '.join(encodings)}"] if encodings else []
        if self.n_broken:
            parts.append(f"{self.n_broken:,} broken rows left out, the first {self.broken[0]}")
        if self.stopped_at:
            parts.append(f"stopped at download.{self.stopped_at}, there is more")
        if self.hub and self.hub["revision"] != self.hub["commit"]:
            parts.append(f"pin this state with -S download.hub_revision={self.hub['commit']}")
        return "".join(f"; {part}" for part in parts)


def read_stories(params: DownloadParams, bundled_dir: Path, origin: Origin) -> Iterator[Story]:
    """Yield stories from `params.source` up to `max_chars` characters and `max_stories` stories.

    A broken row is noted in `origin`, and the rest goes on.

    Raises:
        ValueError: names the file or data set that cannot be read at all, and the way out.
    """
    n_chars = n_stories = 0
    for file in _files(params, bundled_dir, origin):
        entry = {"path": file.path, "n_bytes": file.n_bytes, "sha256": None}
        entry |= {"read_to_end": False, "encoding": "", "n_stories": 0}
        for where, text in _read_file(file, params, origin, entry):
            n_chars, n_stories = n_chars + len(text), n_stories + 1
            origin.stopped_at = _limit_passed(params, n_chars, n_stories)
            if origin.stopped_at:
                break
            entry["n_stories"] += 1
            yield Story(where, text, file.source)
        entry["read_to_end"] = not origin.stopped_at
        if entry["read_to_end"] and not entry["n_stories"]:
            raise ValueError(f"{file.path} holds nothing to read{_first_problem(origin)}")
        entry["sha256"] = file.sha256()
        origin.files.append(entry)
        if origin.stopped_at:
            return


def _limit_passed(params: DownloadParams, n_chars: int, n_stories: int) -> str | None:
    if params.max_chars is not None and n_chars > params.max_chars:
        return "max_chars"
    if params.max_stories is not None and n_stories > params.max_stories:
        return "max_stories"
    return None


def _first_problem(origin: Origin) -> str:
    return f"; the first broken row: {origin.broken[0]}" if origin.broken else ""


# Which files.


def _files(params: DownloadParams, bundled_dir: Path, origin: Origin) -> Iterable[SourceFile]:
    if params.source == "bundled":
        return [_local_file(path, "bundled") for path in sorted(bundled_dir.glob("*.jsonl"))]
    if params.source == "files":
        return [_local_file(path, writable(str(path))) for path in _matching(params.files)]
    return _hub_files(params, origin)


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


def _local_file(path: Path, source: str) -> SourceFile:
    return SourceFile(
        name=writable(path.name),
        path=writable(path.as_posix()),
        source=source,
        n_bytes=path.stat().st_size,
        sha256=lambda: _sha256(path),
        open=lambda: path.open("rb"),
    )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def _hub_files(params: DownloadParams, origin: Origin) -> list[SourceFile]:
    from tinygpt.hub import find_split, open_file  # imported here: the other sources need not wait for its client

    repo = params.hub_repo
    commit, files = find_split(params)
    origin.hub = {"repo": repo, "revision": params.hub_revision, "commit": commit}
    return [
        SourceFile(
            name=f"{repo}/{file.path}",
            path=file.path,
            source=f"{repo}@{commit}",
            n_bytes=file.size,
            sha256=lambda file=file: file.lfs.sha256 if file.lfs else None,
            open=lambda file=file: open_file(params, commit, file),
        )
        for file in files
    ]


# What stands in a file.


def _read_file(
    file: SourceFile, params: DownloadParams, origin: Origin, entry: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield (name:line, text) of a file or of each file in an archive; notes broken rows and the encodings."""
    with file.open() as data:
        for member in read_members(data, file.name):
            in_archive = member.name != file.name
            if in_archive and member.kind not in KINDS:
                origin.add_broken(member.name, f"unknown kind of file {member.kind!r}")
                continue
            try:
                encoding, rows = open_rows(member, params)
                entry["encoding"] = ", ".join(sorted({encoding, *entry["encoding"].split(", ")} - {""}))
                yield from _good_rows(rows, member.name, encoding, params.text_column, origin)
            except Unusable as error:
                # In an archive one bad file costs itself alone, once another has shown that the params are right.
                if not in_archive or not entry["n_stories"]:
                    raise
                origin.add_broken(member.name, str(error).removeprefix(f"{member.name} "))


def _good_rows(rows: Iterable[Row], name: str, encoding: str, column: str, origin: Origin) -> Iterator[tuple[str, str]]:
    n_rows = n_undecodable = 0
    for place, text in rows:
        n_rows += 1
        if isinstance(text, str) and _is_unicode(text):
            yield f"{name}:{place}", text
            continue
        if isinstance(text, Broken):
            reason = text.reason
        elif not isinstance(text, str):
            reason = f"{column} is no text but {text!r:.40}"
        elif UNDECODABLE not in text:
            reason = "half of a surrogate pair"
        else:
            reason = f"bytes that are not {encoding or 'utf-8'}"
        origin.add_broken(f"{name}:{place}", reason)
        n_undecodable += text.undecodable if isinstance(text, Broken) else UNDECODABLE in str(text)
        if n_undecodable > 10 + n_rows // 100:
            raise _wrong_encoding(name, encoding, n_undecodable)
    if n_undecodable * 2 > n_rows:
        raise _wrong_encoding(name, encoding, n_undecodable)


def _is_unicode(text: str) -> bool:
    """False for half a surrogate pair, which cannot be written; `UNDECODABLE` is one."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _wrong_encoding(name: str, encoding: str, n_rows: int) -> Unusable:
    rows = "a row" if n_rows == 1 else f"{n_rows} rows"
    return Unusable(f"{name} cannot be read as {encoding} (other bytes in {rows}); {ANOTHER_ENCODING}")
