"""A corpus of any size with a known share of duplicates, to measure the data stages on.

Each story is a draw of sentences of the bundled stories; some stories come again, to the letter or edited as
people and programs edit them. Written as JSON Lines with `text` and `kind`: original, exact, or the edit's name.
"""

import json
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path

MEAN_CHARS = 250
DUPLICATE_SHARE = 0.1
RECENT = 1000  # a duplicate is of one of the last originals
NAMES = ("小明", "乐乐", "豆豆", "朵朵", "阿宝", "芳芳")
SENTENCE = re.compile(r"[^。！？]*[。！？]+”?")
NAME = re.compile("叫([\u4e00-\u9fff]{2})[。，的]")


def sentences(text: str) -> list[str]:
    return SENTENCE.findall(text)


def rename(text: str, rng: random.Random) -> str:
    """Another name for who is 'called' something, everywhere."""
    found = NAME.search(text)
    return text.replace(found[1], rng.choice([name for name in NAMES if name != found[1]])) if found else text


def swap(text: str, rng: random.Random) -> str:
    """Two neighbouring sentences change places."""
    parts = sentences(text)
    place = rng.randrange(len(parts) - 1)
    parts[place : place + 2] = parts[place + 1], parts[place]
    return "".join(parts)


def requote(text: str, rng: random.Random) -> str:
    """The marks of another keyboard."""
    return text.translate(str.maketrans("“”，！？", '"",!?'))


def shorten(text: str, rng: random.Random) -> str:
    """A sentence or two are missing."""
    parts = sentences(text)
    for _ in range(rng.choice((1, 2))):
        del parts[rng.randrange(len(parts))]
    return "".join(parts)


def mistype(text: str, rng: random.Random) -> str:
    """One character in fifty is another one."""
    characters = list(text)
    for place in rng.sample(range(len(text)), max(1, len(text) // 50)):
        characters[place] = chr(rng.randrange(0x4E00, 0x9FA5))
    return "".join(characters)


EDITS: dict[str, Callable[[str, random.Random], str]] = {
    edit.__name__: edit for edit in (rename, swap, requote, shorten, mistype)
}


def make_corpus(n_stories: int, pool: list[str], seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (text, kind) of `n_stories` stories, drawn from the sentences of `pool`."""
    rng = random.Random(seed)
    kinds = ["exact", *EDITS]
    recent: deque[str] = deque(maxlen=RECENT)
    for _ in range(n_stories):
        if recent and rng.random() < DUPLICATE_SHARE:
            kind, original = rng.choice(kinds), rng.choice(recent)
            text = EDITS[kind](original, rng) if kind != "exact" else original
            yield text, kind if text != original else "exact"
        else:
            recent.append(_draw_story(pool, rng))
            yield recent[-1], "original"


def _draw_story(pool: list[str], rng: random.Random) -> str:
    name = rng.choice(NAMES)
    parts, n_chars = [f"从前，有个孩子叫{name}。"], max(80, rng.gauss(MEAN_CHARS, 60))
    while n_chars > 0:
        parts.append(rng.choice(pool))
        n_chars -= len(parts[-1])
    return "".join(parts).replace("他", name).replace("她", name)


def read_pool(folder: Path = Path("data/stories")) -> list[str]:
    """All sentences of the bundled stories."""
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text(encoding="utf-8").splitlines()]
    return [part for line in lines for part in sentences(json.loads(line)["text"])]


def write_corpus(n_stories: int, path: Path, seed: int = 0) -> Counter[str]:
    """Write the corpus to `path`; return how many stories it has of each kind."""
    kinds: Counter[str] = Counter()
    with path.open("w", encoding="utf-8") as file:
        for text, kind in make_corpus(n_stories, read_pool(), seed):
            file.write(json.dumps({"text": text, "kind": kind}, ensure_ascii=False) + "\n")
            kinds[kind] += 1
    return kinds
