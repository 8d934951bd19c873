"""Find stories that stand more than once."""

from collections.abc import Iterable

from tinygpt.files import sha256_of_text


def exact_duplicates(texts: Iterable[str]) -> list[bool]:
    """Say of each text whether an equal one stood before it.

    Example:
        >>> exact_duplicates(["猫", "狗", "猫"])
        [False, False, True]
    """
    seen: set[str] = set()
    repeated = []
    for text in texts:
        digest = sha256_of_text(text)  # 64 characters, whatever the length of the story
        repeated.append(digest in seen)
        seen.add(digest)
    return repeated
