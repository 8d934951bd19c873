"""Collect stories from the chosen source: the bundled corpus, own files or the hub."""

from pathlib import Path

from stages.command import SetParam, run
from tinygpt.files import replacing, write_json
from tinygpt.params import load_params
from tinygpt.progress import progress
from tinygpt.sources import Origin, read_stories
from tinygpt.tables import StoryWriter


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
    with replacing(raw_dir) as partial:
        partial.mkdir()
        with StoryWriter(partial, "stories") as table:
            table.write(progress(stories, "read"))
        if not table.n_stories:
            raise ValueError(
                f"no story from download.source = {params.source} within download.max_chars = {params.max_chars} "
                f"and download.max_stories = {params.max_stories}"
            )
    write_json(
        origin_path, {"source": params.source, "n_stories": table.n_stories, "n_chars": table.n_chars, **origin.tell()}
    )
    print(f"download: {table.n_stories:,} stories, {table.n_chars:,} characters from {params.source}{origin.remarks()}")


if __name__ == "__main__":
    run(download)
