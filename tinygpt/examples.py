"""A few examples of what each rule changed and of each reason to drop a story, for a person to judge them by."""

import hashlib
import unicodedata
from bisect import insort
from collections import Counter
from collections.abc import Mapping

from tabulate import tabulate

from tinygpt.stories import Rule

CONTEXT = 20  # characters shown before the first difference
SHOWN = 100  # characters shown of each of two texts
HEAD, TAIL = 160, 60  # characters shown of a text that stands alone


class Examples:
    """Counts by name, and the `n` examples of each name whose texts have the smallest hashes.

    So it depends neither on the order of the stories nor on how they are shared among processes that `merge` theirs.
    Only excerpts are kept: a few hundred characters an example, however many stories go by.
    """

    def __init__(self, n: int):
        self.n = n
        self.counts: Counter[str] = Counter()
        self.kept: dict[str, list[tuple[str, str, list[str]]]] = {}  # name -> hash, id, one or two excerpts

    def add(self, name: str, id: str, before: str, after: str | None = None) -> None:
        """Count one story under `name`: changed from `before` to `after`, or dropped, perhaps in favour of `after`."""
        self.counts[name] += 1
        key = hashlib.sha256(before.encode("utf-8", "surrogatepass")).hexdigest()
        kept = self.kept.setdefault(name, [])
        if len(kept) < self.n or (key, id) < kept[-1][:2]:
            self._keep(name, (key, id, _excerpts(before, after)))

    def merge(self, other: "Examples") -> None:
        """Take in what another process counted and kept."""
        self.counts.update(other.counts)
        for name, examples in other.kept.items():
            for example in examples:
                self._keep(name, example)

    def _keep(self, name: str, example: tuple[str, str, list[str]]) -> None:
        kept = self.kept.setdefault(name, [])
        same = next((i for i, (key, _, _) in enumerate(kept) if key == example[0]), None)
        if same is not None:  # the same text again is no other example
            kept[same] = min(kept[same], example)
            return
        insort(kept, example)
        del kept[self.n :]

    def to_markdown(self, parts: Mapping[str, Mapping[str, Rule]]) -> str:
        """The report: under each title of `parts` its rules, each with its count, its switch and the examples kept."""
        sections = [
            "# What cleaning changed and dropped",
            f"Up to {self.n} examples of each rule, chosen by the hash of the text. `-` is the text before, `+` after; "
            "`⏎` is a line end, `⟨U+200B⟩` a character that would not be seen, `…` what is left out.",
        ]
        for title, rules in parts.items():
            rows = [(f"`{name}`", f"{self.counts[name]:,}", rule.does, _switch(rule)) for name, rule in rules.items()]
            headers = ("", "stories", "what it does", "off with")
            table = tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=("left", "right"))
            sections += [f"## {title}", table]
            for name, rule in rules.items():
                if self.kept.get(name):
                    sections += [f"### `{name}`: {self.counts[name]:,}", f"{rule.does}.", self._fenced(name)]
        return "\n\n".join(sections) + "\n"

    def _fenced(self, name: str) -> str:
        """The examples as a diff. No line of it begins as a fence does, so whatever the texts hold stays inside."""
        lines = []
        for _, id, excerpts in self.kept[name]:
            lines.append(f"@@ {visible(id)} @@")
            lines += [f"{sign} {excerpt}" for sign, excerpt in zip("-+", excerpts, strict=False)]
        return "\n".join(["```diff", *lines, "```"])


def _switch(rule: Rule) -> str:
    return f"`-S {rule.switch}`" if rule.switch else "always on"


def _excerpts(before: str, after: str | None) -> list[str]:
    """`before`, and `after` where there is one, around the first place in which they differ."""
    if after is None:
        return [_ends(before)]
    pairs = zip(before, after, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(before), len(after)))
    return [_excerpt(before, first), _excerpt(after, first)]


def _excerpt(text: str, place: int) -> str:
    start = max(0, place - CONTEXT)
    end = start + SHOWN
    return ("…" if start else "") + visible(text[start:end]) + ("…" if end < len(text) else "")


def _ends(text: str) -> str:
    if len(text) <= HEAD + TAIL:
        return visible(text)
    return visible(text[:HEAD]) + "…" + visible(text[-TAIL:])


def visible(text: str) -> str:
    """One line in which every character can be seen.

    Example:
        >>> visible("从前\\u200b，\\n有")
        '从前⟨U+200B⟩，⏎有'
    """
    return "".join("⏎" if character == "\n" else _visible(character) for character in text)


def _visible(character: str) -> str:
    seen = (character.isprintable() and unicodedata.category(character)[0] != "M") or character == " "
    if seen and unicodedata.is_normalized("NFC", character):  # others look like the character that replaces them
        return character
    return f"⟨U+{ord(character):04X}⟩"
