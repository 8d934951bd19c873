"""The vocabulary: character <-> id."""

import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import numpy as np

from tinygpt.files import read_json, sha256_of_text, write_json

SPECIALS = ("<unk>", "<bos>", "<eos>")
UNK, BOS, EOS = range(3)
MAX_VOCAB_SIZE = 2**16  # ids are stored as uint16
STORIES_AT_ONCE = 1000  # about a megabyte: what is worked on stays in the cache


class Vocab:
    """`<unk>` = 0, `<bos>` = 1, `<eos>` = 2, then the characters sorted by code point.

    Example:
        >>> vocab = Vocab("。兔小跑")
        >>> vocab.encode("小猫跑。").tolist()
        [5, 0, 6, 3]
        >>> vocab.decode([1, 5, 4, 6, 3, 2])
        '小兔跑。'
    """

    def __init__(self, characters: str) -> None:
        if sorted(set(characters)) != list(characters):
            raise ValueError("the characters of a vocabulary must be distinct and sorted by code point")
        self.characters = characters
        if len(self) > MAX_VOCAB_SIZE:
            raise ValueError(
                f"a vocabulary of {len(self):,} entries does not fit uint16 ids (at most {MAX_VOCAB_SIZE:,}); "
                "raise vocab.min_count"
            )
        self.sha256 = sha256_of_text("\n".join((*SPECIALS, characters)))
        # One entry a code point: encoding is a single look-up. What is not in the vocabulary stays <unk>.
        self._id_of_code_point = np.full(sys.maxunicode + 1, UNK, dtype=np.uint16)
        self._id_of_code_point[code_points(characters)] = np.arange(len(SPECIALS), len(self))

    @classmethod
    def from_stories(cls, stories: Iterable[str], min_count: int) -> "Vocab":
        """Collect the characters that stand at least `min_count` times in `stories`, whatever their number."""
        counts = np.zeros(sys.maxunicode + 1, np.int64)
        stories = iter(stories)
        while batch := list(islice(stories, STORIES_AT_ONCE)):
            of_batch = np.bincount(code_points("".join(batch)))
            counts[: len(of_batch)] += of_batch
        return cls("".join(map(chr, np.flatnonzero(counts >= min_count))))

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        """Ids of the characters, uint16, without specials; unknown characters become `<unk>`."""
        return self._id_of_code_point[code_points(text)]

    def decode(self, ids: Iterable[int]) -> str:
        """The characters of `ids`; specials have none and are skipped."""
        return "".join(self.characters[id - len(SPECIALS)] for id in ids if id >= len(SPECIALS))

    def unknown(self, text: str) -> list[str]:
        """The distinct characters of `text` that the vocabulary lacks, in order of appearance."""
        return [character for character in dict.fromkeys(text) if character not in self.characters]

    def save(self, path: Path) -> None:
        write_json(path, {"specials": SPECIALS, "characters": self.characters, "sha256": self.sha256})

    @classmethod
    def load(cls, path: Path) -> "Vocab":
        saved = read_json(path)
        vocab = cls(saved["characters"])
        if saved["sha256"] != vocab.sha256:
            raise ValueError(f"{path} was changed after it was made (sha256 differs); run again: dvc repro -f vocab")
        return vocab


def code_points(text: str) -> np.ndarray:
    """(number of characters,) uint32; a lone surrogate from a broken file is one more character, not a crash."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
