"""Write each split as one uint16 stream of character ids."""

from pathlib import Path

from stages.command import need, run
from tinygpt.files import replacing, write_json
from tinygpt.params import SPLITS
from tinygpt.progress import progress
from tinygpt.tables import first_shard, n_rows, read_texts
from tinygpt.tokens import write_stream
from tinygpt.vocab import Vocab


def encode(
    split_dir: Path = Path("data/split"),
    vocab_path: Path = Path("data/vocab.json"),
    encoded_dir: Path = Path("data/encoded"),
) -> None:
    """Write each split as one uint16 stream of character ids."""
    vocab = Vocab.load(need(vocab_path, "vocab"))
    counts = {}
    with replacing(encoded_dir) as partial:
        partial.mkdir()
        for name in SPLITS:
            need(first_shard(split_dir, name), "split")
            stories = progress(read_texts(split_dir, name), name, n_rows(split_dir, name))
            counts[name] = write_stream(stories, vocab, partial / f"{name}.bin")
        write_json(partial / "meta.json", {"vocab_sha256": vocab.sha256, "vocab_size": len(vocab), **counts})
    tokens = ", ".join(f"{name} {c['n_tokens']:,} tokens ({c['n_unknown']} unknown)" for name, c in counts.items())
    print(f"encode: {tokens}")


if __name__ == "__main__":
    run(encode)
