"""A data set of the Hugging Face hub: which files make a split, and their bytes as far as they are read."""

import io
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx2
from huggingface_hub import HfApi, constants, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_backoff, http_stream_backoff

from tinygpt.params import DownloadParams

BLOCK_BYTES = 2**22  # of one request: what is fetched in vain where reading stops early
MAX_TRIES = 6  # in a row that bring nothing
LONGEST_WAIT = 8  # seconds between two tries
MAY_PASS = (408, 429, 500, 502, 503, 504)
TIMEOUT = constants.HF_HUB_DOWNLOAD_TIMEOUT
WITHOUT_A_HUB = (
    "without a network use -S download.source=bundled, "
    "or your own files: -S download.source=files -S 'download.files=[\"novels/*.txt\"]'"
)

T = TypeVar("T")


class HubSplit(NamedTuple):
    """The files of one split at one commit, as the hub states them."""

    commit: str
    files: list[RepoFile]


def find_split(params: DownloadParams) -> HubSplit:
    """The files of `hub_repo` at `hub_revision` that match `hub_files`, or else that `datasets` finds for `hub_split`.

    Raises:
        ValueError: no network, no such data set, revision, split or file; names the way out.
    """
    repo = params.hub_repo
    with _one_line(params):
        # The first contact: without a network it ends at once, a busy server is asked again.
        url = f"{constants.ENDPOINT}/api/datasets/{repo}/revision/{quote(params.hub_revision, safe='')}"
        answer = http_backoff("GET", url, headers=build_hf_headers(), timeout=TIMEOUT, retry_on_exceptions=())
        hf_raise_for_status(answer)
        commit = _commit_of(answer)
        tree = HfApi().list_repo_tree(repo, recursive=True, revision=commit, repo_type="dataset")
        known = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
        if params.hub_files:
            paths = [path for path in sorted(known) if any(fnmatchcase(path, glob) for glob in params.hub_files)]
        else:
            paths = _ask_datasets(params, commit, known)
    if not paths:
        raise ValueError(f"download.hub_files: no file of {repo} matches; it has: {_some(sorted(known))}")
    return HubSplit(commit, [known[path] for path in paths])


def _commit_of(answer: httpx2.Response) -> str:
    try:
        return answer.json()["sha"]
    except (ValueError, TypeError, KeyError):  # a login page of the network, a mirror of something else
        raise ValueError(
            f"{constants.ENDPOINT} does not answer as a hub does; check the network and HF_ENDPOINT"
        ) from None


def _ask_datasets(params: DownloadParams, commit: str, known: Container[str]) -> list[str]:
    """The paths that `datasets` would read: it knows the cards and the naming habits of the hub."""
    from datasets import load_dataset_builder  # imported here: it takes seconds that named files need not wait

    repo, split = params.hub_repo, params.hub_split
    try:
        splits = _retried(lambda: load_dataset_builder(repo, revision=commit)).config.data_files
    except (HfHubHTTPError, httpx2.TransportError):
        raise
    except Exception as error:  # its reasons are many: several configs, no file of a kind it reads, a script
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"{repo}: `datasets` finds no files to read ({reason}); {_name_them(repo)}") from None
    if split not in splits:
        raise ValueError(f"{repo} has no split {split!r} (download.hub_split); it has: {', '.join(map(str, splits))}")
    root = f"hf://datasets/{repo}@{commit}/"
    paths = [path.removeprefix(root) for path in splits[split]]
    for path in paths:
        if path not in known:
            raise ValueError(f"{repo}: {path} is no file of this repository; {_name_them(repo)}")
    return paths


def _name_them(repo: str) -> str:
    return (
        "name the files, for example -S 'download.hub_files=[\"*.tar.gz\"]'; "
        f"{constants.ENDPOINT}/datasets/{repo}/tree/main lists them"
    )


def _some(names: list[str], n: int = 8) -> str:
    return ", ".join(names[:n]) + (f" and {len(names) - n} more" if len(names) > n else "")


def _retried(call: Callable[[], T]) -> T:
    """What `call` returns, asked again after a while as long as the hub is busy: `datasets` itself gives up at once."""
    for failures in range(1, MAX_TRIES + 1):
        try:
            return call()
        except Exception as error:
            if failures == MAX_TRIES or not _may_pass(error):
                raise
            time.sleep(_wait_after(failures))
    raise AssertionError("the last try returns or raises")


def _may_pass(error: BaseException | None) -> bool:
    """Whether `error`, or what it came from, is a broken connection or a busy server."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in MAY_PASS
    return error is not None and (
        isinstance(error, httpx2.TransportError) or _may_pass(error.__cause__ or error.__context__)
    )


def _wait_after(failures: int) -> float:
    return min(2 ** (failures - 1), LONGEST_WAIT)


def open_file(params: DownloadParams, commit: str, file: RepoFile) -> io.BufferedReader:
    """The bytes of `file`, seekable; fetched block by block when they are read."""
    url = hf_hub_url(params.hub_repo, file.path, repo_type="dataset", revision=commit)
    return io.BufferedReader(_RemoteFile(url, file, params), BLOCK_BYTES)


class _RemoteFile(io.RawIOBase):
    """A file on the hub that fetches what is read of it and no more; a broken connection goes on where it was.

    huggingface_hub's own file asks again for the whole block, so a line that breaks every few megabytes never gets
    through it; it does wait and ask again for us where a server is busy or refuses the connection.
    """

    def __init__(self, url: str, file: RepoFile, params: DownloadParams) -> None:
        self.url, self.file, self.params = url, file, params
        self.position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.file.size}[whence]
        return self.position

    def tell(self) -> int:
        return self.position

    def readinto(self, buffer: Any) -> int:
        data = self._fetch(self.position, min(self.position + len(buffer), self.file.size))
        buffer[: len(data)] = data
        self.position += len(data)
        return len(data)

    def readall(self) -> bytes:  # the inherited one asks for a few kilobytes at a time
        data = self._fetch(self.position, self.file.size)
        self.position += len(data)
        return data

    def _fetch(self, start: int, stop: int) -> bytes:
        data, failures = bytearray(), 0
        while start + len(data) < stop:
            part = self._get(start + len(data), stop)
            failures = 0 if part else failures + 1
            if failures == MAX_TRIES:
                raise ValueError(
                    f"{self.params.hub_repo}/{self.file.path}: the connection broke {MAX_TRIES} times in a row at byte "
                    f"{start + len(data):,} of {self.file.size:,}; run it again later, or name a mirror by HF_ENDPOINT"
                )
            data += part
            if start + len(data) < stop:
                time.sleep(_wait_after(max(failures, 1)))
        return bytes(data)

    def _get(self, start: int, stop: int) -> bytes:
        """As many of these bytes as come before the connection ends."""
        headers = {**build_hf_headers(), "Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
        data = bytearray()
        with (
            _one_line(self.params),
            http_stream_backoff("GET", self.url, headers=headers, timeout=TIMEOUT) as response,
        ):
            hf_raise_for_status(response)
            if response.status_code != httpx2.codes.PARTIAL_CONTENT:
                raise ValueError(
                    f"{constants.ENDPOINT} cannot serve a part of a file; name another mirror by HF_ENDPOINT"
                )
            with suppress(httpx2.TransportError):  # cut short
                for part in response.iter_bytes():
                    data += part
        return bytes(data[: stop - start])


@contextmanager
def _one_line(params: DownloadParams) -> Iterator[None]:
    """Whatever the hub's client raises, as one line that says what to do."""
    repo, hub = params.hub_repo, constants.ENDPOINT
    try:
        yield
    except OfflineModeIsEnabled:
        raise ValueError(f"cannot read {repo} from the hub: HF_HUB_OFFLINE is set; {WITHOUT_A_HUB}") from None
    except httpx2.TransportError as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"cannot reach {hub} ({reason}); HF_ENDPOINT names a mirror; {WITHOUT_A_HUB}") from None
    except GatedRepoError:
        raise ValueError(
            f"{repo} is gated: accept its terms at {hub}/datasets/{repo} and set HF_TOKEN to a token of yours"
        ) from None
    except RepositoryNotFoundError:
        raise ValueError(
            f"{hub} has no data set {repo} (download.hub_repo), or it is private: set HF_TOKEN to a token that sees it"
        ) from None
    except RevisionNotFoundError:
        raise ValueError(f"{repo} has no revision {params.hub_revision!r} (download.hub_revision)") from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise ValueError(
            f"cannot read {repo} from {hub}: it answers {status} {error.response.reason_phrase}; "
            f"run it again later; {WITHOUT_A_HUB}"
        ) from None
