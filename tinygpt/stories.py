"""Clean a story, or say by name why it is dropped."""

import unicodedata

from tinygpt.params import SplitParams


def clean_story(text: str) -> str:
    """NFC, line ends as LF, no white space around.

    Example:
        >>> clean_story("  从前，\\r\\n有一只猫。\\n")
        '从前，\\n有一只猫。'
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return unicodedata.normalize("NFC", text).strip()


def drop_reason(text: str, params: SplitParams) -> str | None:
    """Name why the clean `text` is no story to learn from, or None to keep it."""
    if not text:
        return "empty"
    if len(text) < params.min_chars:
        return "too_short"
    if len(text) > params.max_chars:
        return "too_long"
    return None
