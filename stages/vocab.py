"""Collect the characters of the training stories, and of no others."""

from pathlib import Path

import pandas as pd

from stages.command import SetParam, need, run
from tinygpt.params import load_params
from tinygpt.vocab import Vocab


def vocab(
    split_dir: Path = Path("data/split"),
    vocab_path: Path = Path("data/vocab.json"),
    set_param: SetParam = None,
) -> None:
    """Collect the characters of the training stories, and of no others."""
    params = load_params(Path("params.yaml"), set_param).vocab
    stories = pd.read_parquet(need(split_dir / "train.parquet", "split"))
    vocabulary = Vocab.from_stories(stories["text"], params.min_count)
    vocabulary.save(vocab_path)
    print(f"vocab: {len(vocabulary):,} entries, {len(vocabulary.characters):,} of them characters")


if __name__ == "__main__":
    run(vocab)
