"""Collect stories from the chosen source: the bundled corpus, own files or the hub."""

from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from stages.command import SetParam, run
from tinygpt.files import replacing, write_json
from tinygpt.params import load_params
from tinygpt.sources import Origin, Story, read_stories

SCHEMA = pa.schema([(name, pa.string()) for name in Story._fields])
ROWS_AT_ONCE = 10_000  # all that is held in memory


def download(
    stories_dir: Path = Path("data/stories"),
    raw_dir: Path = Path("data/raw"),
    origin_path: Path = Path("reports/source.json"),
    set_param: SetParam = None,
) -> None:
    """Collect stories from the chosen source: the bundled corpus, own files or the hub."""
    params = load_params(Path("params.yaml"), set_param).download
    origin = Origin()
    stories = read_stories(params, stories_dir, origin)
    n_stories = n_chars = 0
    with replacing(raw_dir) as partial:
        partial.mkdir()
        with pq.ParquetWriter(partial / "stories.parquet", SCHEMA) as file:
            while rows := list(islice(stories, ROWS_AT_ONCE)):
                file.write_table(pa.Table.from_pylist([story._asdict() for story in rows], SCHEMA))
                n_stories += len(rows)
                n_chars += sum(len(story.text) for story in rows)
        if not n_stories:
            raise ValueError(
                f"no story from download.source = {params.source} within download.max_chars = {params.max_chars}"
            )
    write_json(origin_path, {"source": params.source, "n_stories": n_stories, "n_chars": n_chars, **origin.tell()})
    print(f"download: {n_stories:,} stories, {n_chars:,} characters from {params.source}{origin.remarks()}")


if __name__ == "__main__":
    run(download)
