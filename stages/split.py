"""Clean the stories, drop what is no story or stands twice, split by story, audit the split for leaks."""

import os
from itertools import chain, islice
from pathlib import Path

from stages.command import SetParam, need, run
from tinygpt.files import replacing, write_json, write_text
from tinygpt.leaks import audit
from tinygpt.params import SPLITS, load_params
from tinygpt.progress import progress
from tinygpt.splitting import DROPPED_MD, split_stories
from tinygpt.tables import ROWS_AT_ONCE, first_shard, n_rows, read_batches


def split(
    raw_dir: Path = Path("data/raw"),
    split_dir: Path = Path("data/split"),
    counts_path: Path = Path("reports/split.json"),
    dropped_path: Path = Path("reports/dropped.md"),
    leaks_path: Path = Path("reports/leaks.json"),
    set_param: SetParam = None,
) -> None:
    """Clean the stories, drop what is no story or stands twice, split by story, audit the split for leaks."""
    params = load_params(Path("params.yaml"), set_param)
    need(first_shard(raw_dir, "stories"), "download")
    n_raw = n_rows(raw_dir, "stories")
    n_procs = 1 if n_raw <= 2 * ROWS_AT_ONCE else params.runtime.n_threads or os.cpu_count() or 1
    with replacing(split_dir) as partial:
        partial.mkdir()
        batches = progress(read_batches(raw_dir, "stories"), "clean", -(-n_raw // ROWS_AT_ONCE), "batch")
        counts, examples = split_stories(batches, partial, params.split, params.clean, n_procs)
        leaks = find_leaks(partial, params.split.audit_stories)
    write_json(counts_path, counts)
    write_json(leaks_path, leaks)
    write_text(dropped_path, examples.to_markdown(DROPPED_MD))
    print(f"split: {n_raw:,} stories in; {summary(counts, leaks)}")


def summary(counts: dict, leaks: dict) -> str:
    """For the line that the stage prints: what is left, and what a person should know."""
    dropped = counts["dropped"]
    parts = [
        ", ".join(f"{name} {counts[name]['n_stories']:,}" for name in SPLITS),
        f"dropped {sum(dropped.values()):,}",
        f"{dropped['duplicate']:,} of them equal to others and {dropped['near_duplicate']:,} nearly",
    ]
    worst = max(leaks[name]["largest_share"]["max"] for name in SPLITS[1:])
    parts.append(f"at most {worst:.1%} of a held-out story stand in one training story")
    largest = counts["near_duplicates"].get("largest_cluster", 0)
    if counts["near_duplicates"]["policy"] == "together" and largest > min(
        counts[name]["n_stories"] for name in SPLITS
    ):
        parts.append(
            f"the largest cluster, {largest:,} stories, outweighs a split: consider split.near_duplicates=drop"
        )
    return "; ".join(parts)


def find_leaks(split_dir: Path, n_stories: int) -> dict:
    """Audit val and test, the first `n_stories` of each: their order is a draw by hash."""
    held_out = {
        name: list(islice(chain.from_iterable(read_batches(split_dir, name)), n_stories)) for name in SPLITS[1:]
    }
    return audit(held_out, lambda: progress(read_batches(split_dir, "train"), "audit", unit="batch"))


if __name__ == "__main__":
    run(split)
