"""The hub's real client against a local server that serves, is busy, breaks off and refuses."""

import gzip
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tarfile
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from huggingface_hub import constants
from hydra.core.override_parser.overrides_parser import OverridesParser

from tests.conftest import ROOT
from tests.hub_server import HubHandler, serving
from tinygpt import hub as hub_module
from tinygpt.files import read_json
from tinygpt.hub import find_split, open_file
from tinygpt.params import load_params
from tinygpt.sources import Origin, read_stories

STORIES = [f"从前，有一只小兔{number}。" for number in range(10)]  # 10 characters each
REPO = "me/tales"


def to_parquet(stories, **options):
    data = io.BytesIO()
    pd.DataFrame({"id": range(len(stories)), "text": stories}).to_parquet(data, **options)
    return data.getvalue()


def to_jsonl(stories, column="text"):
    return "".join(json.dumps({column: story}, ensure_ascii=False) + "\n" for story in stories).encode()


def to_archive(files):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return data.getvalue()


def noise(n_bytes, seed=0):
    return random.Random(seed).randbytes(n_bytes)


def hard_to_compress(n):
    """`n` stories of 1,000 random Chinese characters, 3,000 bytes each."""
    characters = np.random.default_rng(0).integers(0x4E00, 0x9FA5, (n, 1000), dtype="<u4")
    return [row.tobytes().decode("utf-32-le") for row in characters]


@pytest.fixture
def waits(monkeypatch):
    """The seconds that would have been waited."""
    seconds = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


@pytest.fixture
def serve(monkeypatch):
    """Serve files as the data set REPO, to this process too."""
    running = []

    def start(files):
        manager = serving(REPO, files)
        hub = manager.__enter__()
        running.append(manager)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        return hub

    yield start
    for manager in running:
        manager.__exit__(None, None, None)


def read(params, **changes):
    """The stories of the files that are named, and what was noted about them."""
    defaults = {"source": "hub", "hub_repo": REPO, "hub_files": ["*"], "max_chars": None}
    origin = Origin()
    download = params.download.model_copy(update=defaults | changes)
    return list(read_stories(download, ROOT / "data" / "stories", origin)), origin


def texts(stories):
    return [story.text for story in stories]


# What is read, and no more.


def test_files_are_chosen_by_globs(params, serve):
    hub = serve(
        {"README.md": b"#", "a/1.jsonl": to_jsonl(STORIES[:2]), "a/2.jsonl.gz": gzip.compress(to_jsonl(STORIES[2:3]))}
    )
    stories, origin = read(params, hub_files=["a/*.gz", "*1.jsonl"])
    assert [story.id for story in stories] == [f"{REPO}/a/1.jsonl:1", f"{REPO}/a/1.jsonl:2", f"{REPO}/a/2.jsonl.gz:1"]
    assert texts(stories) == STORIES[:3]
    assert {story.source for story in stories} == {f"{REPO}@{hub.commit}"}
    assert [file["path"] for file in origin.files] == ["a/1.jsonl", "a/2.jsonl.gz"]
    with pytest.raises(ValueError, match=r"hub_files: no file of me/tales matches; it has: README.md, a/1.jsonl"):
        read(params, hub_files=["*.parquet"])


def test_what_was_fetched_is_pinned(params, serve):
    hub = serve({"README.md": b"#", "1.jsonl": to_jsonl(STORIES[:3]), "2.jsonl": to_jsonl(STORIES[3:])})
    stories, origin = read(params, hub_files=["*.jsonl"], max_stories=5)
    assert texts(stories) == STORIES[:5]
    told = origin.tell()
    assert told["hub"] == {"repo": REPO, "revision": "main", "commit": hub.commit}
    assert told["stopped_at"] == "max_stories"
    first, second = (entry["lfs"] for entry in hub.entries()[1:])
    assert told["files"] == [
        {"path": "1.jsonl", "n_bytes": first["size"], "sha256": first["oid"], "read_to_end": True}
        | {"encoding": "utf-8", "n_stories": 3},
        {"path": "2.jsonl", "n_bytes": second["size"], "sha256": second["oid"], "read_to_end": False}
        | {"encoding": "utf-8", "n_stories": 2},
    ]
    assert origin.remarks().endswith(f"; pin this state with -S download.hub_revision={hub.commit}")
    pinned, origin = read(params, hub_files=["*.jsonl"], max_stories=5, hub_revision=hub.commit)
    assert pinned == stories and "pin" not in origin.remarks()


def test_a_file_without_lfs_has_no_sha256_of_the_hub(params, serve, monkeypatch):
    hub = serve({"1.jsonl": to_jsonl(STORIES)})
    monkeypatch.setattr(hub, "is_lfs", lambda name: False)
    stories, origin = read(params)
    assert texts(stories) == STORIES and origin.files[0]["sha256"] is None


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "jsonl.gz", "tar.gz"])
def test_what_lies_behind_the_limit_is_not_fetched(params, serve, kind):
    rows = hard_to_compress(6000)
    content = {
        "parquet": lambda: to_parquet(rows, compression=None, row_group_size=10**6),
        "jsonl": lambda: to_jsonl(rows),
        "jsonl.gz": lambda: gzip.compress(to_jsonl(rows), 1),
        "tar.gz": lambda: to_archive({"a.jsonl": to_jsonl(rows)}),
    }[kind]()
    hub = serve({f"1.{kind}": content, f"2.{kind}": content})
    stories, origin = read(params, max_chars=5_000)
    assert texts(stories) == rows[:5] and origin.stopped_at == "max_chars"
    assert len(content) > 10e6 and hub.n_bytes_sent <= 2 * hub_module.BLOCK_BYTES
    assert not any("2." in request for request in hub.requests)


# A hub that is busy, a line that breaks.


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "tar.gz"])
def test_broken_connections_go_on_at_the_byte_where_they_were(params, serve, waits, kind):
    rows = hard_to_compress(800)
    content = {
        "parquet": to_parquet(rows),
        "jsonl": to_jsonl(rows),
        "tar.gz": to_archive({"a.jsonl": to_jsonl(rows)}),
    }[kind]
    hub = serve({f"1.{kind}": content})
    hub.cuts = [300_000, 0, 100_001, 0, 0, 7, 500_000]
    assert texts(read(params)[0]) == rows
    assert not hub.cuts
    assert set(waits) == {1, 2} and waits.count(2) == 1  # doubles while nothing comes
    assert hub.n_bytes_sent <= 1.1 * len(content) + 2**17  # nothing twice, but for the index at the end of a parquet


def test_the_bytes_are_those_of_the_file_wherever_they_are_read(params, serve, waits):
    content = noise(3_000_000)
    hub = serve({"1.bin": content})
    download = params.download.model_copy(update={"hub_repo": REPO, "hub_files": ["*"]})
    split = find_split(download)
    hub.cuts = [1_000_000, 1_000_000, 999_999]
    with open_file(download, split.commit, split.files[0]) as file:
        assert file.read() == content
        assert file.seek(-5, io.SEEK_END) == len(content) - 5 and file.read() == content[-5:]
        assert file.seek(17) == 17 and file.read(4) == content[17:21] and file.tell() == 21
        assert file.seek(10**7) and file.read(1) == b""
    assert hub.n_bytes_sent <= 2 * len(content)


def test_a_line_that_never_holds_is_given_up(params, serve, waits):
    hub = serve({"1.jsonl": to_jsonl(STORIES)})
    hub.cuts = [50] + [0] * 99
    with pytest.raises(ValueError, match=r"me/tales/1.jsonl: the connection broke 6 times in a row at byte 50 of"):
        read(params)
    assert waits == [1, 1, 2, 4, 8, 8]


def test_a_busy_hub_is_asked_again(params, serve, waits):
    hub = serve({"1.jsonl": to_jsonl(STORIES)})
    hub.busy = [(503, {}), (429, {"Retry-After": "20"}), (503, {})]
    assert texts(read(params)[0]) == STORIES
    assert waits == [1, 21, 4]  # the hub's own wish goes first; its client adds a second


def test_a_hub_that_stays_busy_is_given_up(params, serve, waits):
    hub = serve({"1.jsonl": to_jsonl(STORIES)})
    hub.busy = [(503, {})] * 99
    with pytest.raises(ValueError, match=r"cannot read me/tales from http.*it answers 503 Service Unavailable; run it"):
        read(params)
    assert waits == [1, 2, 4, 8, 8] and len(hub.requests) == 6


def test_a_hub_that_gets_busy_on_the_way_is_asked_again(params, serve, waits):
    hub = serve({"1.jsonl": to_jsonl(STORIES), "2.jsonl": to_jsonl(STORIES)})
    download = params.download.model_copy(
        update={"source": "hub", "hub_repo": REPO, "hub_files": ["*"], "max_chars": None}
    )
    stories = read_stories(download, ROOT, Origin())
    first = next(stories)
    hub.busy = [(429, {"Retry-After": "3"}), (500, {})]
    assert texts([first, *stories]) == STORIES * 2
    assert waits == [4, 2]


# What cannot be had is said in one line.


def test_a_gated_or_missing_data_set(params, serve):
    hub = serve({"1.jsonl": to_jsonl(STORIES)})
    with pytest.raises(
        ValueError, match=r"has no data set me/nothing \(download.hub_repo\), or it is private: set HF_TOKEN"
    ):
        read(params, hub_repo="me/nothing")
    with pytest.raises(ValueError, match=r"me/tales has no revision 'v9' \(download.hub_revision\)"):
        read(params, hub_revision="v9")
    hub.gated = True
    with pytest.raises(
        ValueError, match=r"me/tales is gated: accept its terms at http.*/datasets/me/tales and set HF_TOKEN"
    ):
        read(params)


WAYS_OUT = (
    "without a network use -S download.source=bundled, "
    "or your own files: -S download.source=files -S 'download.files=[\"novels/*.txt\"]'"
)


def test_without_a_network_it_ends_at_once(params, serve, waits):
    hub = serve({})
    hub.shutdown()
    hub.server_close()
    with pytest.raises(
        ValueError, match=r"cannot reach http://127.0.0.1:\d+ \(.*\); HF_ENDPOINT names a mirror"
    ) as error:
        read(params)
    assert str(error.value).endswith(WAYS_OUT) and "\n" not in str(error.value)
    assert not waits


def test_a_page_of_something_else_is_no_hub(params, serve):
    hub = serve({})
    hub.busy = [(200, {"Content-Type": "text/html"})]
    with pytest.raises(ValueError, match=r"http.* does not answer as a hub does; check the network and HF_ENDPOINT"):
        read(params)


def test_a_wrong_column_names_the_columns(params, serve):
    serve({"1.parquet": to_parquet(STORIES)})
    with pytest.raises(ValueError, match=r"me/tales/1.parquet has no column 'story'.*it has: id, text"):
        read(params, text_column="story")


def test_a_mirror_that_serves_files_only_whole_is_named(params, serve, monkeypatch):
    serve({"1.jsonl": to_jsonl(STORIES)})
    reply = HubHandler.reply
    monkeypatch.setattr(
        HubHandler, "reply", lambda self, status, *rest: reply(self, 200 if status == 206 else status, *rest)
    )
    with pytest.raises(ValueError, match="cannot serve a part of a file; name another mirror by HF_ENDPOINT"):
        read(params)


# The command, in a process of its own: the hub's client reads its settings when it is imported.


def run_download(tmp_path, hub_url, *overrides, code=0, **env):
    options = [option for override in ("download.source=hub", *overrides) for option in ("-S", override)]
    paths = ["--raw-dir", str(tmp_path / "raw"), "--origin-path", str(tmp_path / "source.json")]
    done = subprocess.run(
        [sys.executable, "-m", "stages.download", *paths, *options],
        cwd=ROOT,
        env={**os.environ, "HF_ENDPOINT": hub_url, "HF_HOME": str(tmp_path / "cache"), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stderr
    return done


def test_the_split_is_what_datasets_finds(tmp_path):
    card = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/train-*\n---\n"
    rows = [f"{story}{number}" for number in range(400) for story in STORIES]
    files = {"README.md": card, "data/train-0.parquet": to_parquet(rows, row_group_size=50), "data/other.parquet": b"?"}
    with serving(REPO, files) as hub:
        hub.busy = [(503, {})]
        done = run_download(tmp_path, hub.url, f"download.hub_repo={REPO}", "download.max_chars=45")
        raw = pd.read_parquet(tmp_path / "raw" / "stories.parquet")
        assert raw["text"].tolist() == rows[:4]
        assert raw["id"].tolist() == [f"{REPO}/data/train-0.parquet:{row}" for row in range(1, 5)]
        origin = read_json(tmp_path / "source.json")
        assert origin["hub"]["commit"] == hub.commit and origin["n_stories"] == 4
        assert f"-S download.hub_revision={hub.commit}" in done.stdout

        done = run_download(tmp_path, hub.url, f"download.hub_repo={REPO}", "download.hub_split=test", code=1)
        assert "me/tales has no split 'test' (download.hub_split); it has: train" in done.stderr


def test_a_repository_that_datasets_cannot_read_says_how_to_name_the_files(tmp_path):
    with serving(REPO, {"all.7z": b"?"}) as hub:
        done = run_download(tmp_path, hub.url, f"download.hub_repo={REPO}", code=1)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("download: me/tales: `datasets` finds no files to read (")
    assert "-S 'download.hub_files=[\"*.tar.gz\"]'" in last


def test_offline_mode_is_honoured(tmp_path):
    with serving(REPO, {"1.jsonl": to_jsonl(STORIES)}) as hub:
        start = time.monotonic()
        done = run_download(tmp_path, hub.url, code=1, HF_HUB_OFFLINE="1")
        assert time.monotonic() - start < 30
        assert not hub.requests
    assert done.stderr.splitlines() == [
        "download: cannot read RobinChen2001/TinyStories-Zh-2M from the hub: HF_HUB_OFFLINE is set; " + WAYS_OUT
    ]
    assert not (tmp_path / "raw").exists()


# The lines of the READMEs for the public Chinese TinyStories sets.

PRESETS = {
    "RobinChen2001/TinyStories-Zh-2M": {
        "README.md": b"# 2M\n",
        "data/train-00000-of-00002.parquet": to_parquet(STORIES[:4]),
        "data/train-00001-of-00002.parquet": to_parquet(STORIES[4:]),
    },
    "52AI/TinyStoriesZh": {
        "README.md": b"# zh\n",
        "TinyStories_all_data_zh_1M.tar.gz": b"read in vain",
        "TinyStories_all_data_zh_2M.tar.gz": to_archive(
            {
                "./._data00.json": b"mac",
                "data00.json": json.dumps([{"story": story} for story in STORIES[:4]]).encode(),
                "data01.json": json.dumps([{"story": STORIES[4]}, {"story": "x"}]).encode()[:-15],
                "data02.json": json.dumps([{"story": story} for story in STORIES[5:]]).encode(),
            }
        ),
    },
    "adam89/TinyStoriesChinese": {
        "README.md": b"# zh\n",
        "TinyStories_all_data_zh.tar.gz": to_archive(
            {"data/._a.jsonl": b"mac", "data/a.jsonl": to_jsonl(STORIES, "story_zh")}
        ),
    },
}


def readme_lines(name):
    """repository -> overrides, of each command that reads the hub."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^\$ (dvc exp run .*download\.source=hub.*)$", text, re.MULTILINE)
    commands = [[word for word in shlex.split(line, comments=True) if "=" in word] for line in lines]
    return {load_params(ROOT / "params.yaml", words).download.hub_repo: words for words in commands}


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_readmes_name_the_three_sets(name):
    lines = readme_lines(name)
    assert set(lines) == set(PRESETS)
    for repo, words in lines.items():  # dvc reads them alike
        read = {word.key_or_group: word.value() for word in OverridesParser.create().parse_overrides(words)}
        assert read["download.hub_repo"] == repo
        assert read.get("download.hub_files", []) == load_params(ROOT / "params.yaml", words).download.hub_files
    assert readme_lines(name) == readme_lines("README.md")


@pytest.mark.parametrize("repo", PRESETS)
def test_the_lines_of_the_readme_read_the_sets(tmp_path, repo):
    with serving(repo, PRESETS[repo]) as hub:
        run_download(tmp_path, hub.url, *readme_lines("README.md")[repo])
    table = pa.parquet.read_table(tmp_path / "raw" / "stories.parquet")
    assert table["text"].to_pylist() == STORIES
    broken = read_json(tmp_path / "source.json")["broken_rows"]
    assert broken["n"] == (repo == "52AI/TinyStoriesZh")
