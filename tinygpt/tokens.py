"""A split as one stream of little-endian uint16 ids: `<bos>` story `<eos>` `<bos>` story `<eos>` …"""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from tinygpt.vocab import BOS, EOS, UNK, Vocab

DTYPE = np.dtype("<u2")
READS_OF_A_MAP = 64
STORIES_AT_ONCE = 1000  # about a megabyte: what is worked on stays in the cache


def write_stream(stories: Iterable[str], vocab: Vocab, path: Path) -> dict[str, int]:
    """Encode `stories` to `path` one after the other; return the counts of what was written.

    Example: with the vocabulary 。兔小跑 the story 小兔跑。 is written as 1 5 4 6 3 2.
    """
    counts = dict.fromkeys(("n_stories", "n_chars", "n_bytes", "n_unknown", "n_tokens"), 0)
    stories = iter(stories)
    with path.open("wb") as stream:
        while batch := list(islice(stories, STORIES_AT_ONCE)):
            text = "".join(batch)
            ids = vocab.encode(text)
            tokens = _with_marks(ids, np.array([len(story) for story in batch]))
            tokens.tofile(stream)
            counts["n_stories"] += len(batch)
            counts["n_chars"] += len(ids)
            counts["n_bytes"] += len(text.encode("utf-8", "surrogatepass"))
            counts["n_unknown"] += int(np.count_nonzero(ids == UNK))
            counts["n_tokens"] += len(tokens)
    return counts


def _with_marks(ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The ids of stories of these lengths, (sum of lengths + 2 a story,), each between `<bos>` and `<eos>`."""
    ends = np.cumsum(lengths + 2)
    tokens = np.empty(len(ids) + 2 * len(lengths), DTYPE)
    is_character = np.full(len(tokens), True)
    for mark, places in ((BOS, ends - lengths - 2), (EOS, ends - 1)):
        tokens[places] = mark
        is_character[places] = False
    tokens[is_character] = ids
    return tokens


class TokenStream:
    """The ids of a stream file, (N,) uint16: index it like an array.

    The file is mapped into memory, and mapped anew from time to time, so that the pages which were
    read do not all stay in the process: its memory does not grow with the stream.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n = path.stat().st_size // DTYPE.itemsize
        if self.n == 0:
            raise ValueError(f"{path} is empty; run again: dvc repro encode")
        self.n_reads = 0

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: Any) -> np.ndarray:
        if self.n_reads % READS_OF_A_MAP == 0:
            self.ids = np.memmap(self.path, dtype=DTYPE, mode="r")
        self.n_reads += 1
        return self.ids[index]


def pieces(stream: TokenStream | np.ndarray, n_tokens: int = 2**19) -> Iterator[np.ndarray]:
    """The stream from start to end, `n_tokens` at a time."""
    for first in range(0, len(stream), n_tokens):
        yield stream[first : first + n_tokens]
