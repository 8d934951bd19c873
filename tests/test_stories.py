import json
import random
import unicodedata
from itertools import pairwise

import pytest

from tests.conftest import ROOT
from tinygpt import stories as rules
from tinygpt.stories import APPLY, REASONS, RULES, chinese_share, clean_steps, clean_story, drop_reason, repeated_share


@pytest.fixture(scope="session")
def clean(params):
    return params.clean


def bundled():
    for path in sorted((ROOT / "data" / "stories").glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            yield from (json.loads(line)["text"] for line in file)


WRAPPED = (
    "\u3000\u3000从前有一座山，山里有一座庙，庙里住着一个\n"
    "老和尚和一个小和尚。小和尚每天都要下山去挑水。\n"
    "路很远，山很高，他走得又累又渴，可是从来没有说\n"
    "过一句抱怨的话，因为师父说过，他是这座山上最有\n"
    "力气的人。他听了很高兴，走路的时候也总是唱歌。\n"
    "\u3000\u3000有一天，他在路上捡到一只受伤的小鸟，就把它\n"
    "带回了庙里。"
)
UNWRAPPED = (
    "从前有一座山，山里有一座庙，庙里住着一个老和尚和一个小和尚。小和尚每天都要下山去挑水。"
    "路很远，山很高，他走得又累又渴，可是从来没有说过一句抱怨的话，"
    "因为师父说过，他是这座山上最有力气的人。他听了很高兴，走路的时候也总是唱歌。\n"
    "有一天，他在路上捡到一只受伤的小鸟，就把它带回了庙里。"
)
CHANGES = [
    ("html", "<p>从前</p>\n\n<p class='a'>有<b>一只</b>猫</p>", "从前\n有一只猫"),
    ("html", "从前<br/>有猫<!-- 注 --><script>if (a<b) x()</script>。", "从前\n有猫。"),
    ("html", "他说：&#8220;喵&#x201d;&hellip;&nbsp;好", "他说：“喵”… 好"),
    ("html", "&amp;amp;lt;br&amp;gt;从前&nbsp；有猫", "从前 有猫"),  # escaped three times; a mark put in by translation
    ("html", "从前&amp；hellip；有猫", "从前…有猫"),
    ("html", "<ruby>汉<rt>hàn</rt></ruby>字", "汉字"),
    ("escapes", r"从前，\n有一只猫。\r\n\"喵！\"", '从前，\n有一只猫。\n"喵！"'),
    ("escapes", r"\u4f60\u597d，\\n\ud83d\ude00", "你好，\n😀"),
    ("line_ends", "一\r\n二\r三\u2028四\u2029五\x85六\x0c七\x0b八", "一\n二\n三\n四\n五\n六\n七\n八"),
    ("controls", "从\x00前\x7f有\x93猫", "从前有猫"),
    ("invisible", "\ufeff从\u200b前\ue004有\ufdd0猫\U0001fffe，\xad好\xa0的\u2003呀\ud800", "从前有猫，好 的 呀"),
    ("replacement", "从前" * 60 + "\ufffd", "从前" * 60),
    ("nfc", "e\u0301，\uf90a", "é，金"),
    ("headers", "故事：从前，有一只猫。", "从前，有一只猫。"),
    ("headers", "**故事：**\n从前，有一只猫。", "从前，有一只猫。"),
    (
        "headers",
        "Summary: 猫走丢了。\nFeatures: Dialogue\nRandom sentence: 它怕。\nStory: \n\n从前，有猫。",
        "从前，有猫。",
    ),
    ("headers", "特点：对话\n单词：退出，橡树\n故事：\n从前，有猫。", "从前，有猫。"),
    ("headers", "### Instruction:\n写一个故事\n\n### Response:\n从前，有猫。", "从前，有猫。"),
    ("headers", "Human: 讲个故事\n\nAssistant: 从前，有猫。", "从前，有猫。"),
    ("headers", "[INST] 讲个故事 [/INST]从前，有猫。<|endoftext|>", "从前，有猫。"),
    ("headers", "<|im_start|>user\n讲个故事<|im_end|>\n<|im_start|>assistant\n从前，有猫。<|im_end|>", "从前，有猫。"),
    ("headers", "### Instruction:\n讲故事\n\n### Input:\n猫\n\n### Response:\n从前，有猫。", "从前，有猫。"),
    ("headers", "好的，以下是一个关于猫的故事：\n\n从前，有猫。", "从前，有猫。"),
    ("headers", "请续写以下内容：\n\n从前，有猫。", "从前，有猫。"),
    ("spaced", "从前 ， 有 一只 iPad mini 小 猫 。", "从前，有一只iPad mini小猫。"),
    ("spaced", "从 前 ， 有 1 0 0 只 小 猫 ， O K ！", "从前，有100只小猫，OK！"),
    ("spaced", "从前 ， 有 一只 小猫 ， 它 叫 花花 。", "从前，有一只小猫，它叫花花。"),
    ("unwrap", WRAPPED, UNWRAPPED),
    (
        "unwrap",
        "小明问老师，我们班的新同学叫什么名字呢，是不是Tom\nBrown，就是去年夏天从很远很远的地方搬到这里来住\n的那个人。",
        "小明问老师，我们班的新同学叫什么名字呢，是不是Tom Brown，就是去年夏天从很远很远的地方搬到这里来住的那个人。",
    ),
    ("indents", "\u3000\u3000从前，\u3000 \n  有一只猫。 ", "从前，\n有一只猫。"),
    ("blank_lines", "从前，\n\n \n\u3000\n\n有一只猫。", "从前，\n\n有一只猫。"),
]
UNTOUCHED = [
    "3<5，7>6，a<b，b>a。<unk>和<b and c>不是标签，AT&T和Tom & Jerry也不是。",
    r"路径是C:\new\text，公式是\theta，表情是\(^o^)/。",
    "一  二",  # white space inside is the author's
    "床前明月光，\n疑是地上霜。\n举头望明月，\n低头思故乡。",
    "黄河远上白云间\n一片孤城万仞山\n羌笛何须怨杨柳\n春风不度玉门关",
    "人之初 性本善 性相近 习相远 苟不教 性乃迁 教之道 贵以专",
    "小明：你好\n小红：你好呀\n小明：我们去公园吧\n小红：好",
    "妈妈问：“你去哪儿了？”\n小明说：“我去河边了。”\n“看见鱼了吗？”\n“看见了，三条！”",
    "如果我是一片云，我要飘到很远很远的地方去看看\n如果我是一阵风，我要吹过很高很高的山坡去看看\n"
    "如果我是一滴雨，我要落在很干很干的田野上看看",  # wide verse: no line ends a sentence
    "春天来了，小草从土里探出头来看一看，\n它看见了蓝蓝的天和一朵朵的白云，好，\n它看见了红红的花和一排排的绿树，好，\n春天真好。",
    "如果我是一片云我要飘到很远很远的地方去看看\n如果我是一阵风我要吹过很高很高的山坡去看看\n"
    "如果我是一滴雨我要落在很干很干的田野上看看。",  # no mark inside the lines
    "天上星，亮晶晶\n像眼睛，眨不停\n地上灯，分不清\n照行人，到天明。",  # narrow
    "春天来了，小草从土里探出头来，看一看蓝蓝的天\n蓝天真高\n看见红红的花，绿绿的树，看一看白白的云和远山\n"
    "云真白\n山真远\n夏天来了，荷花从水里探出头来，也想看一看蓝天\n它笑了。",  # uneven
    "故事发生在一个小村子里：从前，这里有一口井。",
    "下面是爷爷讲的故事：从前，有座山。",
    "请问，你看见我的猫了吗？\n没有。",
    "词语：苹果 香蕉 桌子。从前有一只小猫，它喜欢吃鱼。",
    "他说,你好!",  # halfwidth is off
    "從前，有一隻貓。",  # script is keep
]


@pytest.mark.parametrize(("rule", "raw", "text"), CHANGES)
def test_a_rule_changes_and_is_named(clean, rule, raw, text):
    cleaned, names = clean_story(raw, clean)
    assert cleaned == text
    assert rule in names
    assert set(names) <= {rule, "indents", "blank_lines"}  # what the rule leaves for them


@pytest.mark.parametrize(("rule", "raw", "text"), CHANGES)
def test_a_rule_switched_off_changes_nothing(clean, rule, raw, text):
    cleaned, names = clean_story(raw, clean.model_copy(update={rule: False}))
    assert rule not in names
    assert cleaned != text


@pytest.mark.parametrize("text", UNTOUCHED)
def test_what_looks_like_dirt_stays(clean, text):
    assert clean_story(text, clean) == (text, [])


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("你好,世界!真的?好.", "你好，世界！真的？好。"),
        ('妈妈说:"你好!" "再见."他走了', "妈妈说：“你好！” “再见。”他走了"),
        ("飞呀飞......走了(他很累)。", "飞呀飞……走了（他很累）。"),
        ("吃了3.5个,在12:30,说Hello, world.好", "吃了3.5个，在12:30,说Hello, world.好"),
        ("网址https://a.b/c?d=1,e", "网址https://a.b/c?d=1,e"),
        ('他说"好,走"了"', '他说"好，走"了"'),  # three quotes are no pairs
        ("1.小明 2.小红", "1.小明 2.小红"),
        ("你好:)小明.com", "你好:)小明.com"),
        ("噘(juē)着嘴", "噘(juē)着嘴"),
    ],
)
def test_halfwidth_marks(clean, raw, text):
    halfwidth = clean.model_copy(update={"halfwidth": True})
    assert clean_story(raw, halfwidth)[0] == text


def test_scripts(clean):
    simplified = clean.model_copy(update={"script": "simplified"})
    assert clean_story("從前，皇后的頭髮乾了。", simplified) == ("从前，皇后的头发干了。", ["script"])
    assert clean_story("从前，皇后的头发干了，梳子打坏了。", simplified) == ("从前，皇后的头发干了，梳子打坏了。", [])
    traditional = clean.model_copy(update={"script": "traditional"})
    assert clean_story("从前，皇后后来的头发干了。", traditional)[0] == "從前，皇后後來的頭髮幹了。"


def test_steps_lead_from_the_raw_to_the_clean_text(clean):
    raw = "&lt;br&gt;\u3000从前，\r\n有\u200b猫。"
    steps = list(clean_steps(raw, clean))
    assert [name for name, _, _ in steps] == clean_story(raw, clean)[1] == ["html", "line_ends", "invisible", "indents"]
    assert steps[0][1] == raw and steps[-1][2] == "从前，\n有猫。"
    assert all(a[2] == b[1] for a, b in pairwise(steps))


def test_half_a_character_written_out_is_none(clean):
    assert clean_story(r"从前\ud83d。", clean.model_copy(update={"invisible": False})) == ("从前。", ["escapes"])


def test_an_earlier_rule_gets_its_turn_again(clean):
    assert clean_story("从前&l\u200bt;br&gt;有猫", clean) == ("从前\n有猫", ["html", "invisible"])


def test_every_rule_has_a_param_and_a_description():
    assert list(RULES) == list(APPLY)
    for name, rule in RULES.items():
        assert rule.switch.startswith(f"clean.{name}=")
    assert [name for name, rule in REASONS.items() if not rule.switch] == ["empty"]


NASTY = [
    *(
        "&",
        "&amp;",
        "&lt;",
        "lt;",
        "<",
        ">",
        "br",
        "<br>",
        "<p>",
        "</p>",
        "<b",
        "<!--",
        "-->",
        "&#8220;",
        "&nbsp;",
        ";",
    ),
    *("\\", "n", "\\n", "\\r", '\\"', "\\u4e00", "u0026", "\r", "\n", "\n\n", "\u2028", "\x00", "\x85", "\x0c", "\t"),
    *("\u200b", "\ufeff", "\ue000", "\xad", "\xa0", "\u2003", "\ud800", "\ufffd", "e", "\u0301", "\uf90a", "\ufe0f"),
    *(
        " ",
        "  ",
        "\u3000",
        "从",
        "前",
        "后",
        "發",
        "乾",
        "，",
        "。",
        "“",
        "”",
        "……",
        ",",
        ".",
        "!",
        '"',
        "(",
        ")",
        ":",
        "3",
    ),
    *("故事：", "Story:", "### Instruction:", "### Response:", "<|endoftext|>", "[INST]", "[/INST]", "总结：", "**"),
    *("以下是", "故事", "：", "从 前 有 猫 ", "，从前有一座山山里有一座庙庙里住着一个老和尚\n"),
]


def nasty_texts(n):
    rng = random.Random(0)
    return ["".join(rng.choices(NASTY, k=rng.randint(1, 40))) for _ in range(n)]


@pytest.mark.parametrize(
    "changes",
    [{}, {"halfwidth": True, "script": "simplified"}, {"script": "traditional"}, {"html": False, "indents": False}],
)
def test_cleaning_twice_is_cleaning_once(clean, changes):
    chosen = clean.model_copy(update=changes)
    for raw in nasty_texts(1500):
        text, _ = clean_story(raw, chosen)
        assert clean_story(text, chosen) == (text, []), raw


def test_the_short_cut_misses_nothing(clean, monkeypatch):
    """Texts that look clean are those that no rule changes: pieces of the alphabet that is let through."""
    rng = random.Random(1)
    pieces = [*"从前有猫ABab01\n\n" + rules.MARKS, "故事：", "。\n", "总结：", "Story", "Human"]
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 60))) for _ in range(3000)] + nasty_texts(500)
    chosen = clean.model_copy(update={"halfwidth": True})
    short = [clean_story(text, chosen) for text in texts]
    assert sum(map(rules._looks_clean, texts)) > 300
    monkeypatch.setattr(rules, "_looks_clean", lambda text: False)
    assert [clean_story(text, chosen) for text in texts] == short


def test_the_characters_that_are_let_through_are_normal():
    assert unicodedata.is_normalized("NFC", rules.MARKS + "".join(map(chr, range(0x4E00, 0xA000))))


def test_the_bundled_stories_are_clean(clean):
    for text in bundled():
        assert clean_story(text, clean) == (text, [])
        assert drop_reason(text, clean) is None


def test_nesting_ends(clean):
    """A text made to be peeled layer by layer takes neither for ever nor long."""
    assert clean_story("&" + "amp;" * 20_000 + "lt;br&gt;从前", clean)[0] == "从前"
    assert len(clean_story("<b" * 20_000 + ">" * 20_000, clean)[0]) < 60_000
    assert clean_story(" " * 200_000 + "从<" + " " * 200_000 + "前", clean)[0] == "从<" + " " * 200_000 + "前"
    assert repeated_share("哈" * 10_000, 0.3) == 1


STORY = "从前，有一只小猫住在山里。它每天都去河边看鱼，可是一条也没有抓到。"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("\u3000\n", "empty"),
        ("一" * 19, "too_short"),
        ("从前有一只猫" * 1667, "too_long"),
        (STORY + "\ufffd\ufffd", "broken"),
        (STORY + "它叫{name}。", "placeholder"),
        (STORY + "[PLACEHOLDER]", "placeholder"),
        (STORY + "【插入名字】", "placeholder"),
        ("作为一个人工智能语言模型，我不能写这样的故事，请换一个题目吧。", "refusal"),
        ("很抱歉，我无法生成这样的故事，因为它不适合小朋友们阅读。", "refusal"),
        ("Once upon a time there was 一只猫 who lived in a house.", "low_chinese"),
        ("むかしむかし、あるところに、おじいさんとおばあさんがいました。", "low_chinese"),
        (STORY + "小猫跑啊跑，" * 10, "repetitive"),
        (STORY + "好" * 40, "repetitive"),
        (STORY, None),
        (STORY + "“哈哈哈哈哈哈！”它跑啊跑啊跑啊跑，" * 1, None),
        ("“作为一个人工智能助手，我也会难过。”机器人说。" + STORY, None),
        ("我是一个人工智能助手，名叫小爱。" + STORY, None),
        (STORY + "拔萝卜，拔萝卜，嘿哟嘿哟拔不动。" * 2, None),  # a refrain
    ],
)
def test_every_drop_has_a_name(clean, text, reason):
    assert drop_reason(text, clean) == reason


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (STORY + "\ufffd\ufffd", {"max_broken_share": 1.0}),
        (STORY + "它叫{name}。", {"placeholders": False}),
        ("作为一个人工智能语言模型，我不能写这样的故事，请换一个题目吧。", {"refusals": False}),
        ("Once upon a time there was 一只猫 who lived in a house.", {"min_chinese_share": 0.0}),
        (STORY + "小猫跑啊跑，" * 10, {"max_repeated_share": 1.0}),
        ("一二三四五", {"min_chars": 5}),
    ],
)
def test_every_reason_has_a_switch(clean, text, changes):
    assert drop_reason(text, clean) is not None
    assert drop_reason(text, clean.model_copy(update=changes)) is None


def test_many_replacement_characters_stay_to_be_dropped(clean):
    text, names = clean_story("从前\ufffd有猫\ufffd", clean)
    assert (text, names) == ("从前\ufffd有猫\ufffd", [])
    assert drop_reason(text, clean.model_copy(update={"min_chars": 1})) == "broken"


def test_chinese_share():
    assert chinese_share("从前, a b") == 2 / 5
    assert chinese_share("𠀀〇々") == 1
    assert chinese_share(" ") == 0


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("一二三四五六" * 10, 1.0),
        ("abcdefghij" * 2 + "一二三四五" * 6, 30 / 50),
        ("一二三四五六" * 3, 0.0),  # three times is not on end
        ("哈" * 19 + "一", 0.0),  # a laugh
        (STORY, 0.0),
    ],
)
def test_repeated_share(text, share):
    assert repeated_share(text, 0.3) == share


def test_no_run_is_overlooked():
    """Every period, every place: against the definition, looked up character by character."""
    rng = random.Random(0)
    for _ in range(300):
        phrase = "".join(rng.choices("一二三四五六七八九十", k=rng.randint(1, 30)))
        repeats = rng.randint(2, 9)
        noise = ["".join(chr(0x5000 + rng.randrange(5000)) for _ in range(rng.randint(0, 60))) for _ in range(2)]
        text = noise[0] + phrase * repeats + noise[1]
        assert repeated_share(text, 0.3) == (slow if (slow := slow_repeated_share(text)) > 0.3 else 0.0), text


def slow_repeated_share(text):
    longest = 0
    for period in range(1, len(text) // 4 + 1):
        run = 0
        for a, b in zip(text, text[period:], strict=False):
            run = run + 1 if a == b else 0
            if run + period >= max(20, 4 * period):
                longest = max(longest, run + period)
    return longest / len(text)
