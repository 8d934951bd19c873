"""How fast the data stages are, how much memory they take, and how both grow with the number of stories.

    python -m benchmarks.data 20000 200000 2000000

For each size: a corpus with a known share of duplicates (benchmarks/corpus.py), the real commands from the raw file
to uint16, their time, their peak memory (all processes together), and what the split found of the planted duplicates.
Then, in the same run, the obvious Python way of the same steps on a sample.
"""

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import psutil
import torch
import typer
from tabulate import tabulate

from benchmarks.corpus import write_corpus
from tinygpt.devices import describe_machine
from tinygpt.duplicates import all_candidate_pairs, band_keys, near_clusters
from tinygpt.files import read_json
from tinygpt.tables import read_texts
from tinygpt.tokens import write_stream
from tinygpt.vocab import Vocab

NO_LIMIT = 10**12
SAMPLE = 20_000
PAIRS_SAMPLE = 1000


def main(
    sizes: Annotated[list[int], typer.Argument(min=1000, help="Numbers of stories.")],
    policy: Annotated[str, typer.Option(help="split.near_duplicates")] = "drop",
) -> None:
    """Print the tables as Markdown."""
    print(f"{describe_machine(torch.device('cpu'))['processor']}, {psutil.cpu_count()} cores\n")
    rows, found = [], []
    for n_stories in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            planted = write_corpus(n_stories, folder / "corpus.jsonl")
            rows += [[f"{n_stories:,}", *row] for row in measure_stages(folder, policy)]
            found.append(
                [
                    f"{n_stories:,}",
                    *duplicates_found(planted, *(read_json(folder / name) for name in ("split.json", "leaks.json"))),
                ]
            )
            obvious = against_the_obvious(folder)
    print(tabulate(rows, ["stories", "stage", "seconds", "stories/s", "MB/s of text", "peak MiB"], "github"), "\n")
    headers = ["stories", "copies planted", "edited planted", "copies dropped", "near duplicates dropped"]
    print(tabulate(found, [*headers, "would have leaked", "largest 8-gram share left"], "github"), "\n")
    print(tabulate(obvious, ["step", "obvious way, MB/s", "ours, MB/s", "ratio"], "github"))


def measure_stages(folder: Path, policy: str) -> list[list[Any]]:
    """Run the stages from `folder`/corpus.jsonl to the streams: a row of figures for each, and for all."""
    overrides = {
        "download.source": "files",
        "download.files": f'["{folder / "corpus.jsonl"}"]',
        "download.max_chars": NO_LIMIT,
        **{f"split.{name}_chars": NO_LIMIT for name in ("train", "val", "test")},
        "split.near_duplicates": policy,
    }
    options = {
        "download": ["raw-dir=raw", "origin-path=source.json"],
        "split": [
            "raw-dir=raw",
            "split-dir=split",
            "counts-path=split.json",
            "dropped-path=dropped.md",
            "leaks-path=leaks.json",
        ],
        "vocab": ["split-dir=split", "vocab-path=vocab.json"],
        "encode": ["split-dir=split", "vocab-path=vocab.json", "encoded-dir=encoded"],
    }
    rows, total, peak = [], 0.0, 0.0
    for stage, paths in options.items():
        command = [sys.executable, "-m", f"stages.{stage}"]
        for path in paths:
            name, _, value = path.partition("=")
            command += [f"--{name}", str(folder / value)]
        if stage != "encode":
            command += [part for key, value in overrides.items() for part in ("-S", f"{key}={value}")]
        seconds, mib = run_measured(command)
        if stage == "download":
            source = read_json(folder / "source.json")
            n_stories, n_bytes = (
                source["n_stories"],
                sum(len(text.encode()) for text in read_texts(folder / "raw", "stories")),
            )
        rows.append([stage, seconds, n_stories / seconds, n_bytes / 1e6 / seconds, mib])
        total, peak = total + seconds, max(peak, mib)
    rows.append(["all", total, n_stories / total, n_bytes / 1e6 / total, peak])
    return [[stage, f"{s:.1f}", f"{r:,.0f}", f"{b:.0f}", f"{m:,.0f}"] for stage, s, r, b, m in rows]


def run_measured(command: list[str]) -> tuple[float, float]:
    """Run `command`; return its seconds and the peak resident memory of it and its children, in MiB."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        peaks = [0]
        thread = threading.Thread(target=_watch, args=(psutil.Process(process.pid), peaks))
        thread.start()
        code = process.wait()
        seconds = time.perf_counter() - start
        thread.join()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return seconds, peaks[0] / 2**20


def _watch(process: psutil.Process, peaks: list[int]) -> None:
    while True:
        try:
            family = [process, *process.children(recursive=True)]
            peaks[0] = max(peaks[0], sum(member.memory_info().rss for member in family))
        except psutil.NoSuchProcess:  # a child that has just ended, or all is over
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return
        time.sleep(0.05)


def duplicates_found(planted: Counter[str], split: dict[str, Any], leaks: dict[str, Any]) -> list[str]:
    """How many copies stand in the corpus, how many went, what would have leaked and what is left."""
    n_edited = planted.total() - planted["original"] - planted["exact"]
    dropped, found = split["dropped"], split["near_duplicates"]
    numbers = (planted["exact"], n_edited, dropped["duplicate"], dropped["near_duplicate"])
    worst = max(leaks[name]["largest_share"]["max"] for name in ("val", "test"))
    return [*(f"{n:,}" for n in numbers), f"{found.get('would_have_leaked', '')}", f"{worst:.1%}"]


def against_the_obvious(folder: Path) -> list[list[str]]:
    """Time each step on one sample of training stories, in this process: the obvious way, and ours."""
    texts = list(islice(read_texts(folder / "split", "train"), SAMPLE))
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    vocab = Vocab.from_stories(texts, 1)
    stoi = {character: id for id, character in enumerate(vocab.characters, 3)}
    few = texts[:PAIRS_SAMPLE]
    few_megabytes = sum(len(text.encode()) for text in few) / 1e6

    def count() -> None:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)

    def obvious_encode() -> None:
        with (folder / "obvious.bin").open("wb") as file:
            for text in texts:
                file.write(np.array([1] + [stoi[c] for c in text] + [2], dtype=np.uint16).tobytes())

    def obvious_near() -> None:
        sets = [{text[i : i + 3] for i in range(len(text) - 2)} for text in few]
        for i, one in enumerate(sets):
            for other in sets[:i]:
                len(one & other) / len(one | other)

    def near() -> None:
        pairs = all_candidate_pairs(band_keys(few), len(few))
        near_clusters(pairs.tolist(), len(few), few.__getitem__, 0.6)

    steps: list[tuple[str, float, Callable[[], Any], Callable[[], Any]]] = [
        (
            "vocab: sorted(set(text))",
            megabytes,
            lambda: sorted(set("".join(texts))),
            lambda: Vocab.from_stories(texts, 1),
        ),
        ("vocab: Counter(text)", megabytes, count, lambda: Vocab.from_stories(texts, 1)),
        (
            "encode: [stoi[c] for c in text]",
            megabytes,
            obvious_encode,
            lambda: write_stream(texts, vocab, folder / "ours.bin"),
        ),
        (f"near duplicates: all pairs of {PAIRS_SAMPLE:,}", few_megabytes, obvious_near, near),
    ]
    rows = []
    for name, size, obvious, ours in steps:
        slow, fast = _seconds(obvious), _seconds(ours)
        rows.append([name, f"{size / slow:.1f}", f"{size / fast:.1f}", f"{slow / fast:.1f}"])
    return rows


def _seconds(step: Callable[[], Any]) -> float:
    """The best of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    typer.run(main)
