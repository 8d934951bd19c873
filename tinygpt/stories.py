"""Clean a story by named rules, or say by name why it is dropped."""

import html
import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from opencc import OpenCC

from tinygpt.params import CleanParams


class Rule(NamedTuple):
    does: str
    switch: str  # the override that switches it off


# In the order in which they are applied.
RULES = {
    "escapes": Rule(r"`\n`, `\t`, `\"`, `\u4e00` written out become what they stand for", "clean.escapes=false"),
    "html": Rule("entities become characters, tags go; block tags and `<br>` become line ends", "clean.html=false"),
    "line_ends": Rule("CRLF, CR, U+2028, U+2029, U+0085, VT and FF become LF", "clean.line_ends=false"),
    "controls": Rule("other control characters, NUL among them, go", "clean.controls=false"),
    "invisible": Rule(
        "zero-width, private-use and noncharacters go; tabs and spaces of odd widths become a space",
        "clean.invisible=false",
    ),
    "replacement": Rule("a few U+FFFD, left by a wrong decoding, go", "clean.replacement=false"),
    "nfc": Rule("a character in several code points becomes one (Unicode NFC)", "clean.nfc=false"),
    "headers": Rule("prompts, field names and control tokens of instruct sets go", "clean.headers=false"),
    "spaced": Rule("spaces between all characters or words go", "clean.spaced=false"),
    "unwrap": Rule("lines broken at a fixed width are joined", "clean.unwrap=false"),
    "indents": Rule("white space at both ends of the story and of its lines goes", "clean.indents=false"),
    "blank_lines": Rule("several blank lines become one", "clean.blank_lines=false"),
    "halfwidth": Rule("ASCII punctuation beside Chinese characters becomes Chinese", "clean.halfwidth=false"),
    "script": Rule("Traditional becomes Simplified characters, or the reverse", "clean.script=keep"),
}
REASONS = {
    "empty": Rule("nothing is left after cleaning", ""),
    "too_short": Rule("fewer than `clean.min_chars` characters", "clean.min_chars=1"),
    "too_long": Rule("more than `clean.max_chars` characters", "clean.max_chars=1000000000"),
    "broken": Rule("more than `clean.max_broken_share` of the characters are U+FFFD", "clean.max_broken_share=1.0"),
    "placeholder": Rule("a template with an empty slot, as `{name}` or `[PLACEHOLDER]`", "clean.placeholders=false"),
    "refusal": Rule("a language model declines, or speaks about itself", "clean.refusals=false"),
    "low_chinese": Rule(
        "fewer than `clean.min_chinese_share` of the characters are Chinese", "clean.min_chinese_share=0.0"
    ),
    "repetitive": Rule(
        "one phrase, over and over, takes more than `clean.max_repeated_share`", "clean.max_repeated_share=1.0"
    ),
}

MAX_ROUNDS = 10
HANZI = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
MARKS = "，。、；：？！“”‘’…—·《》〈〉「」『』（）【】〔〕～"
LINE_STOPS = "。！？…”’」』）》】：；—～.!?\"':;)~"  # a line that ends so ends where its author wanted

# What most stories are made of. No rule but `script` touches a text of these characters, lines and beginnings.
ODD_CHARACTER = re.compile(f"[^\u4e00-\u9fff{MARKS}0-9A-Za-z\n]")
ODD_LINE = re.compile(rf"\n(?:(?<![{LINE_STOPS}]\n)|\n|\Z)")


def clean_story(text: str, params: CleanParams) -> tuple[str, list[str]]:
    """The clean text, and the names of the rules that changed it, in the order of their first change.

    Cleaning a clean text changes nothing.

    Example, with the default params:
        >>> clean_story("  从前，\\r\\n有一只猫。&nbsp;", params)
        ('从前，\\n有一只猫。', ['html', 'line_ends', 'indents'])
    """
    names = []
    for name, _, after in clean_steps(text, params):
        names.append(name)
        text = after
    return text, list(dict.fromkeys(names))


def clean_steps(text: str, params: CleanParams) -> Iterator[tuple[str, str, str]]:
    """Yield each change on the way from `text` to the clean text: rule, text before, text after.

    A change may give an earlier rule work (`&lt;br&gt;` is a tag after its entities), so the rules are applied until
    none of them changes anything. Only a text made to nest deeper than MAX_ROUNDS is left with something to clean.
    """
    if params.script == "keep" and _looks_clean(text):
        return
    for _ in range(MAX_ROUNDS):
        start = text
        for name, apply in APPLY.items():
            if getattr(params, name) and (after := apply(text, params)) != text:
                yield name, text, after
                text = after
        if text == start:
            return


def _looks_clean(text: str) -> bool:
    """Whether no rule can change `text`. Two scans decide most stories: fourteen rules cost ten times as much."""
    return not (ODD_CHARACTER.search(text) or ODD_LINE.search(text) or PROMPT.match(text))


def drop_reason(text: str, params: CleanParams) -> str | None:
    """Name why the clean `text` is no story to learn from, or None to keep it."""
    if not text or text.isspace():
        return "empty"
    if len(text) < params.min_chars:
        return "too_short"
    if len(text) > params.max_chars:
        return "too_long"
    if "\ufffd" in text and broken_share(text) > params.max_broken_share:
        return "broken"
    if params.placeholders and SLOT.search(text):
        return "placeholder"
    if params.refusals and REFUSAL.match(text):
        return "refusal"
    if chinese_share(text) < params.min_chinese_share:
        return "low_chinese"
    if params.max_repeated_share < 1 and repeated_share(text, params.max_repeated_share) > params.max_repeated_share:
        return "repetitive"
    return None


# escapes ---------------------------------------------------------------------------------------------------------

ESCAPED_CODES = re.compile(r"(?:\\+u[0-9a-fA-F]{4})+")
# A lower-case letter after it makes it a path or a formula: C:\new, \theta.
ESCAPED_LINE_END = re.compile(r"(?:\\+r)?\\+n(?![a-z])|\\+r(?![a-z])")
ESCAPED_TAB = re.compile(r"\\+t(?![a-z])")
ESCAPED_QUOTE = re.compile(r"\\+([\"'“”‘’])")


def _escapes(text: str, _: CleanParams) -> str:
    if "\\" not in text:
        return text
    text = ESCAPED_CODES.sub(_decode, text)
    text = ESCAPED_LINE_END.sub("\n", text)
    return ESCAPED_QUOTE.sub(r"\1", ESCAPED_TAB.sub(" ", text))


def _decode(codes: re.Match) -> str:
    """As JSON does it: two surrogates are one character. A single one is none."""
    characters = json.loads('"' + re.sub(r"\\+", r"\\", codes[0]) + '"')
    return "".join(character for character in characters if not "\ud800" <= character <= "\udfff")


# html ------------------------------------------------------------------------------------------------------------

AMP = re.compile(r"&(?:(?:amp|#0*38|#x0*26)[;；])+", re.I)  # &amp;amp;lt; at one go
ENTITY = re.compile(r"&(#\d{1,7}|#x[0-9a-f]{1,6}|[a-z][a-z0-9]{1,30})[;；]", re.I)
_VALUE = r"""\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|“[^”<>]*”|[^\s"'<>]+)"""
_END = rf"(?:\s+[\w:-]+{_VALUE})*\s*/?>"  # attributes have values: `<b and c>` is no tag
_BLOCK = (
    "address|article|blockquote|body|br|center|dd|div|dl|dt|figure|footer|form|h[1-6]|head|header|hr|html|li|main|nav"
    "|ol|p|pre|section|table|tbody|td|tfoot|th|thead|tr|ul"
)
_INLINE = (
    "a|abbr|b|big|cite|code|del|em|embed|font|i|iframe|img|input|ins|label|link|mark|meta|q|rb|ruby|small|span|strike"
    "|strong|sub|sup|title|u|video|wbr"
)
UNSEEN = re.compile(r"<(script|style|rt|rp)\b[^<>]*>.*?</\1\s*>|<!--.*?-->|<!doctype[^<>]*>", re.I | re.S)
# With the line ends around it, but not the indent after it: `unwrap` goes by indents.
BLOCK_TAG = re.compile(rf"(?<!\s)(?:\s*</?(?:{_BLOCK}){_END})+(?:[ \t\r]*\n)*", re.I)
INLINE_TAG = re.compile(rf"</?(?:{_INLINE}){_END}", re.I)


def _html(text: str, _: CleanParams) -> str:
    if "&" in text:
        text = ENTITY.sub(_character, AMP.sub("&", text))
    if "<" in text:
        # Only the names of HTML: 3<5 and <unk> are text.
        text = INLINE_TAG.sub("", BLOCK_TAG.sub("\n", UNSEEN.sub("", text)))
    return text


def _character(entity: re.Match) -> str:
    return html.unescape(f"&{entity[1]};").replace("\xa0", " ")


# characters ------------------------------------------------------------------------------------------------------

LINE_END = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]+")
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | 0xFFFE) + chr(plane << 16 | 0xFFFF) for plane in range(17))
INVISIBLE = re.compile(
    "["
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # soft hyphen, fillers, Mongolian selectors
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # zero width, direction, byte order mark
    "\u3164\uffa0\ufe00-\ufe0f\ufff0-\ufffc\U000e0000-\U000e0fff"  # fillers, variation selectors, tags
    "\ue000-\uf8ff\U000f0000-\U0010ffff"  # private use
    f"\ud800-\udfff{_NONCHARACTERS}]+"
)
ODD_SPACE = re.compile("[\t\xa0\u1680\u2000-\u200a\u202f\u205f]")


def _line_ends(text: str, _: CleanParams) -> str:
    return LINE_END.sub("\n", text)


def _controls(text: str, _: CleanParams) -> str:
    return CONTROL.sub("", text)


def _invisible(text: str, _: CleanParams) -> str:
    return ODD_SPACE.sub(" ", INVISIBLE.sub("", text))


def broken_share(text: str) -> float:
    """The share of U+FFFD among the characters."""
    return text.count("\ufffd") / len(text)


def _replacement(text: str, params: CleanParams) -> str:
    if "\ufffd" not in text or broken_share(text) > params.max_broken_share:
        return text  # with many of them it stays as it is, to be dropped
    return text.replace("\ufffd", "")


def _nfc(text: str, _: CleanParams) -> str:
    return unicodedata.normalize("NFC", text)


# headers ---------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"(?<!\s)\s*(?:<\|\w{1,30}\|>|</?s>|\[/?INST\]|<</?SYS>>)\s*")
_FIELD = (
    "Features?|Words?|Summary|Random sentence|Title|Topic|Prompt|Instructions?|Input"
    "|特[点征色]|要素|单词|词[语汇]|关键[词字]|摘要|总结|概[要述]|梗概|随机句子?|标题|题目|主题|提示词?|指令|要求|输入"
)
_STORY = "Story|Response|Output|Answer|故事(?:正文|内容)?|正文|回[答复]|响应|输出|译文|翻译(?:结果)?"
_ASKS = "Human|User|System|用户|人类"
_ANSWERS = f"Assistant|AI|助[手理]|{_STORY}"
_OPEN, _COLON = r"[#*【\[]* ?(?:", r")[】\] *]*[:：][* ]*"
PROMPT = re.compile(
    r"\s*(?:"
    r"\[INST\].{0,4000}?\[/INST\]"
    r"|<\|(?:im_start\|>)?(?:system|user).{0,4000}?<\|(?:im_start\|>)?assistant(?:\|>)?"
    rf"|(?:{_OPEN}{_ASKS}{_COLON}|#+ ?(?:{_FIELD})[:：]).{{1,4000}}?\n\s*{_OPEN}{_ANSWERS}{_COLON}"  # asked, answered
    rf"|(?:{_OPEN}{_FIELD}{_COLON}[^\n]*\n\s*)+(?:{_OPEN}{_STORY}{_COLON})?"
    rf"|{_OPEN}{_STORY}{_COLON}"
    # the task, or "Here is a story about a cat:", on a line of its own
    r"|请(?:你|您)?(?:帮我)?(?:根据|续写|写|创作|编写|编一|用|以|翻译|生成)[^\n]{0,120}(?:故事|内容|短文|童话)[^\n]{0,60}\n"
    r"|(?:(?:好的|当然(?:可以)?|没问题)[，,！!。 ]*)?(?:以下|下面|这里?)(?:就)?是"
    r"[^\n。！？]{0,60}(?:故事|译文|翻译|版本)[^\n。！？]{0,20}[:：][ *]*\n"
    r"|(?:(?:Sure|Certainly|Of course)[,!. ]*)?Here(?:'s| is)[^\n.!?]{0,80}(?:story|translation)[^\n.!?]{0,60}:[ *]*\n"
    r")\s*",
    re.I | re.S,
)


def _headers(text: str, _: CleanParams) -> str:
    if prompt := PROMPT.match(text):
        text = text[prompt.end() :]
    return TOKEN.sub("\n", text) if "<" in text or "[" in text else text


# layout ----------------------------------------------------------------------------------------------------------

NOT_HANZI = re.compile(f"[^{HANZI}]+")
CHINESE = HANZI + MARKS
GAP = re.compile(f"(?<=[{CHINESE}])[ \u3000]+(?=[{CHINESE}])")
NO_GAP = re.compile(f"[{HANZI}][{HANZI}]")
NOT_AMONG_LATIN = re.compile("(?<![A-Za-z0-9])[ \u3000]+|[ \u3000]+(?![A-Za-z0-9])")
MIN_GAPS = 5
MIN_GAP_SHARE = 0.4  # of the Chinese characters; words of two have 0.5, verse of three a line 0.33
INDENT = re.compile(r"^[ \t\u3000]+|(?<![ \t\u3000])[ \t\u3000]+$", re.M)
BLANK_LINES = re.compile(r"\n(?:[ \t\u3000]*\n){2,}")

MIN_WIDTH = 36  # columns; a Chinese character takes two. Verse is narrower
WIDTH_SLACK = 6  # columns by which a full line may fall short, since a mark does not begin a line
MIN_FULL_SHARE = 0.8  # of the lines that end in mid-sentence


def _spaced(text: str, _: CleanParams) -> str:
    if " " not in text and "\u3000" not in text:
        return text
    n_gaps = len(GAP.findall(text))
    if n_gaps < max(MIN_GAPS, MIN_GAP_SHARE * len(NOT_HANZI.sub("", text))):
        return text
    if not NO_GAP.search(text):
        return text.replace(" ", "")  # every character stands alone, those of 1 0 0 too
    return NOT_AMONG_LATIN.sub("", text)


def _unwrap(text: str, _: CleanParams) -> str:
    """Join the full lines of a text whose lines nearly all break in mid-sentence at one width.

    Verse and lists break in mid-sentence too, but at uneven or small widths, after a comma, without a mark inside the
    line, or never with a full stop. Where paragraphs are indented, a full line that ends a sentence goes on as well.
    """
    if not ODD_LINE.search(text):
        return text
    lines = [line.rstrip() for line in text.split("\n")]
    widths = [_columns(line) for line in lines]
    is_full = [width >= max(widths) - WIDTH_SLACK for width in widths]
    goes_on = [bool(line and after and not after[0].isspace()) for line, after in pairwise(lines)]
    is_open = [more and line[-1] not in LINE_STOPS for line, more in zip(lines, goes_on, strict=False)]
    broken = [line for line, full, open_ in zip(lines, is_full, is_open, strict=False) if full and open_]
    in_clause = sum(line[-1] not in "，、," and any(mark in line for mark in "，。,.") for line in broken)
    has_end = any(line and line[-1] in LINE_STOPS for line in lines)
    if max(widths) < MIN_WIDTH or len(broken) < max(2, MIN_FULL_SHARE * sum(is_open)):
        return text
    if in_clause < len(broken) / 2 or not has_end:
        return text
    joins = goes_on if any(line[:1].isspace() for line in lines) else is_open
    joined = lines[0]
    for (line, after), full, join in zip(pairwise(lines), is_full, joins, strict=False):
        between = "\n" if not (full and join) else " " if _is_latin(line[-1]) and _is_latin(after[0]) else ""
        joined += between + after
    return joined


def _columns(line: str) -> int:
    return 2 * len(line) - sum(map(str.isascii, line))


def _is_latin(character: str) -> bool:
    return character.isascii() and character.isalnum()


def _indents(text: str, _: CleanParams) -> str:
    return INDENT.sub("", text).strip()


def _blank_lines(text: str, _: CleanParams) -> str:
    return BLANK_LINES.sub("\n\n", text)


# halfwidth -------------------------------------------------------------------------------------------------------

TO_CHINESE = str.maketrans(",.?!:;", "，。？！：；")
ASCII_QUOTES = re.compile(r'"([^"\n]*)"')
ASCII_PARENTHESES = re.compile(r"\(([^()\n]{1,100})\)")
ASCII_ELLIPSIS = re.compile(rf"(?<=[{CHINESE}])\.{{3,}}")
# Numbers, addresses and English have no Chinese character before the mark, a smiley has a bracket after it.
ASCII_MARKS = re.compile(rf"(?<=[{CHINESE}])(?:(?:[,!?;]+|:(?![()]))(?: +(?=[{CHINESE}]))?|\.(?=[{CHINESE}\s]|\Z))")


def _halfwidth(text: str, _: CleanParams) -> str:
    if '"' in text:
        text = "\n".join(map(_pair_quotes, text.split("\n")))
    text = ASCII_ELLIPSIS.sub("……", ASCII_PARENTHESES.sub(_parenthesis, text))
    return ASCII_MARKS.sub(lambda marks: marks[0].rstrip(" ").translate(TO_CHINESE), text)


def _pair_quotes(line: str) -> str:
    """Straight quotes alternate between open and closed, if their number is even and the line is Chinese."""
    if line.count('"') % 2 or len(NOT_HANZI.sub("", line)) < len(line) / 4:
        return line
    return ASCII_QUOTES.sub(r"“\1”", line)


def _parenthesis(match: re.Match) -> str:
    return f"（{match[1]}）" if NOT_HANZI.sub("", match[1]) else match[0]


# script ----------------------------------------------------------------------------------------------------------


def _script(text: str, params: CleanParams) -> str:
    if params.script == "keep":
        return text
    converter, of_other_script = _converter(params.script)
    return converter.convert(text) if of_other_script.search(text) else text


@cache
def _converter(script: str) -> tuple[OpenCC, re.Pattern]:
    """OpenCC, and the characters without which a text needs none of it: 打坏, not Traditional, would become 打坯."""
    converter = OpenCC({"simplified": "t2s", "traditional": "s2t"}[script])
    changed = [character for character in map(chr, range(0x3400, 0xA000)) if converter.convert(character) != character]
    return converter, re.compile(f"[{''.join(changed)}]")


APPLY: dict[str, Callable[[str, CleanParams], str]] = {
    "escapes": _escapes,
    "html": _html,
    "line_ends": _line_ends,
    "controls": _controls,
    "invisible": _invisible,
    "replacement": _replacement,
    "nfc": _nfc,
    "headers": _headers,
    "spaced": _spaced,
    "unwrap": _unwrap,
    "indents": _indents,
    "blank_lines": _blank_lines,
    "halfwidth": _halfwidth,
    "script": _script,
}

# reasons ---------------------------------------------------------------------------------------------------------

SLOT = re.compile(
    r"\{\{?[^\W\d][\w ]{0,30}\}\}?|\[[A-Z][A-Z_ ]{3,30}\]|\[(?:insert|your|name|character|placeholder)\b[^\]\n]{0,40}\]"
    r"|[\[【](?:此处)?(?:插入|填入|填写|请输入|请填|占位)[^\]】\n]{0,30}[\]】]"
)
# At the very start: a robot in a story may say the same.
REFUSAL = re.compile(
    r"(?:(?:很|非常)?(?:抱歉|对不起|遗憾)[，,。！!]? ?(?:但是?)?)?"
    r"(?:作为.{0,4}?(?:人工智能|AI|语言).{0,4}?(?:模型|助手|助理)|我只?是.{0,12}?语言模型|As an AI )"
    r"|(?:很|非常)?(?:抱歉|对不起)[，,].{0,8}?(?:无法|不能).{0,12}?(?:生成|创作|写出|翻译|回答|请求|提供)"
)
MIN_REPEATS = 4
MIN_REPEATED_CHARS = 20  # 哈哈哈哈 is prose
PROBE = 8  # characters


def chinese_share(text: str) -> float:
    """The share of Chinese characters among all that are no white space."""
    n_chars = len("".join(text.split()))
    return len(NOT_HANZI.sub("", text)) / n_chars if n_chars else 0.0


def repeated_share(text: str, above: float) -> float:
    """The share of `text` in one phrase said at least MIN_REPEATS times on end, if it is more than `above`, else 0.

    Whatever is repeated returns after one period: so it is enough to look, from starting points close enough for one
    to lie in any run so long, for the same PROBE characters further on.
    """
    shortest = max(MIN_REPEATED_CHARS, int(above * len(text)) + 1)
    stride = max(1, shortest * (MIN_REPEATS - 1) // MIN_REPEATS - PROBE)
    longest = 0
    for start in range(0, len(text) - PROBE, stride):
        probe = text[start : start + PROBE]
        again = text.find(probe, start + 1)
        while again > 0 and again - start <= len(text) // MIN_REPEATS:
            period = again - start
            first, end = _run(text, start, period)
            if end - first >= max(shortest, MIN_REPEATS * period):
                longest = max(longest, end - first)
            again = text.find(probe, max(again, end - PROBE) + 1)  # inside the run it only returns with multiples
    return longest / len(text)


def _run(text: str, inside: int, period: int) -> tuple[int, int]:
    """First and end of the stretch around `inside` in which `text` repeats itself after `period` characters."""
    first = last = inside
    while first > 0 and text[first - 1] == text[first - 1 + period]:
        first -= 1
    while last + period < len(text) and text[last] == text[last + period]:
        last += 1
    return first, last + period
