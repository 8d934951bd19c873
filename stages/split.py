"""Clean the stories, drop what is no story or stands twice, split by story."""

from pathlib import Path

import pandas as pd

from stages.command import SetParam, need, run
from tinygpt.files import replacing, write_json
from tinygpt.params import load_params
from tinygpt.splitting import split_stories


def split(
    raw_dir: Path = Path("data/raw"),
    split_dir: Path = Path("data/split"),
    counts_path: Path = Path("reports/split.json"),
    set_param: SetParam = None,
) -> None:
    """Clean the stories, drop what is no story or stands twice, split by story."""
    params = load_params(Path("params.yaml"), set_param).split
    raw = pd.read_parquet(need(raw_dir / "stories.parquet", "download"))
    splits, drops = split_stories(raw, params)

    counts = {
        "rows_in": len(raw),
        **{name: {"n_stories": len(s), "n_chars": int(s["text"].str.len().sum())} for name, s in splits.items()},
        "dropped": drops,
    }
    with replacing(split_dir) as partial:
        partial.mkdir()
        for name, stories in splits.items():
            stories.to_parquet(partial / f"{name}.parquet", index=False)
    write_json(counts_path, counts)
    kept = ", ".join(f"{name} {len(stories):,}" for name, stories in splits.items())
    print(f"split: {len(raw):,} stories in; {kept}; dropped {sum(drops.values()):,}")


if __name__ == "__main__":
    run(split)
