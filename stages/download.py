"""Collect stories from the chosen source: the bundled corpus, own files or the hub."""

from pathlib import Path

import pandas as pd

from stages.command import SetParam, run
from tinygpt.files import replacing
from tinygpt.params import load_params
from tinygpt.sources import Story, read_stories


def download(
    stories_dir: Path = Path("data/stories"),
    raw_dir: Path = Path("data/raw"),
    set_param: SetParam = None,
) -> None:
    """Collect stories from the chosen source: the bundled corpus, own files or the hub."""
    params = load_params(Path("params.yaml"), set_param).download
    stories = pd.DataFrame(read_stories(params, stories_dir), columns=Story._fields)
    if stories.empty:
        raise ValueError(
            f"no story from download.source = {params.source} within download.max_chars = {params.max_chars}"
        )
    with replacing(raw_dir) as partial:
        partial.mkdir()
        stories.to_parquet(partial / "stories.parquet", index=False)
    print(f"download: {len(stories):,} stories, {stories['text'].str.len().sum():,} characters from {params.source}")


if __name__ == "__main__":
    run(download)
