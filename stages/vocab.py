"""Collect the characters of the training stories, and of no others."""

from pathlib import Path

from stages.command import SetParam, need, run
from tinygpt.params import load_params
from tinygpt.progress import progress
from tinygpt.tables import first_shard, n_rows, read_texts
from tinygpt.vocab import Vocab


def vocab(
    split_dir: Path = Path("data/split"),
    vocab_path: Path = Path("data/vocab.json"),
    set_param: SetParam = None,
) -> None:
    """Collect the characters of the training stories, and of no others."""
    params = load_params(Path("params.yaml"), set_param).vocab
    need(first_shard(split_dir, "train"), "split")
    stories = progress(read_texts(split_dir, "train"), "count", n_rows(split_dir, "train"))
    vocabulary = Vocab.from_stories(stories, params.min_count)
    vocabulary.save(vocab_path)
    print(f"vocab: {len(vocabulary):,} entries, {len(vocabulary.characters):,} of them characters")


if __name__ == "__main__":
    run(vocab)
