"""A split as one stream of little-endian uint16 ids: `<bos>` story `<eos>` `<bos>` story `<eos>` …"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tinygpt.vocab import BOS, EOS, UNK, Vocab

DTYPE = np.dtype("<u2")


def write_stream(stories: Iterable[str], vocab: Vocab, path: Path) -> dict[str, int]:
    """Encode `stories` to `path` one after the other; return the counts of what was written.

    Example: with the vocabulary 。兔小跑 the story 小兔跑。 is written as 1 5 4 6 3 2.
    """
    counts = dict.fromkeys(("n_stories", "n_chars", "n_bytes", "n_unknown", "n_tokens"), 0)
    with path.open("wb") as stream:
        for story in stories:
            ids = vocab.encode(story)
            stream.write(np.concatenate(([BOS], ids, [EOS])).astype(DTYPE).tobytes())
            counts["n_stories"] += 1
            counts["n_chars"] += len(ids)
            counts["n_bytes"] += len(story.encode("utf-8"))
            counts["n_unknown"] += int((ids == UNK).sum())
            counts["n_tokens"] += len(ids) + 2
    return counts


def read_stream(path: Path) -> np.ndarray:
    """Map the ids of `path` into memory: (N,) uint16, read as they are used."""
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty; run again: dvc repro encode")
    return np.memmap(path, dtype=DTYPE, mode="r")
