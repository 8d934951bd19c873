import random

import pytest

from tinygpt.examples import SHOWN, Examples, visible
from tinygpt.stories import Rule

RULES = {"html": Rule("tags go", "clean.html=false"), "nfc": Rule("one code point", "clean.nfc=false")}


def collect(rows, n=3):
    examples = Examples(n)
    for row in rows:
        examples.add(*row)
    return examples


def report(examples):
    return examples.to_markdown({"Changed": RULES, "Dropped": {"empty": Rule("nothing is left", "")}})


ROWS = [("html", f"a:{i}", f"<p>第{i}个故事", f"第{i}个故事") for i in range(50)]


def test_neither_order_nor_processes_matter():
    shuffled = random.Random(0).sample(ROWS, len(ROWS))
    merged = collect(shuffled[:20])
    merged.merge(collect(shuffled[20:]))
    assert report(collect(ROWS)) == report(collect(shuffled)) == report(merged)
    assert merged.counts == {"html": 50}


def test_the_same_text_is_one_example_and_counts_twice():
    twice = collect([("empty", "b:2", "x"), ("empty", "a:1", "x"), ("empty", "c:3", "y")])
    assert twice.counts["empty"] == 3
    assert sorted(id for _, id, _ in twice.kept["empty"]) == ["a:1", "c:3"]


def test_memory_is_bounded():
    examples = collect(("html", str(i), "长" * 9999 + str(i), "") for i in range(30))
    assert len(examples.kept["html"]) == 3
    assert all(len(excerpt) <= SHOWN + 2 for _, _, excerpts in examples.kept["html"] for excerpt in excerpts)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("从前\u200b，\n有", "从前⟨U+200B⟩，⏎有"),
        ("\u3000从 前", "⟨U+3000⟩从 前"),
        ("a\x00\ue004\ud800", "a⟨U+0000⟩⟨U+E004⟩⟨U+D800⟩"),
        ("e\u0301", "e⟨U+0301⟩"),  # NFC é
        ("\uf90a", "⟨U+F90A⟩"),  # looks as 金 does
        ("\ufffd", "\ufffd"),
    ],
)
def test_visible(text, shown):
    assert visible(text) == shown


def test_the_changed_place_stands_in_context():
    before = "前" * 500 + "<br>" + "后" * 500
    after = "前" * 500 + "\n" + "后" * 500
    text = report(collect([("html", "a:1", before, after)]))
    assert "- …" + "前" * 20 + "<br>" + "后" * 76 + "…\n" in text
    assert "+ …" + "前" * 20 + "⏎" + "后" * 79 + "…\n" in text


def test_a_dropped_story_shows_its_ends():
    text = report(collect([("empty", "a:1", "头" * 500 + "尾" * 60)]))
    assert "\n- " + "头" * 160 + "…" + "尾" * 60 + "\n" in text


def test_a_dropped_story_has_one_side_and_a_near_duplicate_two():
    text = report(collect([("empty", "a:1", " "), ("nfc", "a:2", "猫在山里", "狗在山里")]))
    assert "@@ a:1 @@\n-  \n```" in text
    assert "@@ a:2 @@\n- 猫在山里\n+ 狗在山里\n```" in text


def test_the_report_names_counts_and_switches():
    text = report(collect(ROWS))
    assert "### `html`: 50\n\ntags go.\n" in text
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert ["`html`", "50", "tags go", "`-S clean.html=false`"] in table
    assert ["`nfc`", "0", "one code point", "`-S clean.nfc=false`"] in table and "### `nfc`" not in text
    assert ["`empty`", "0", "nothing is left", "always on"] in table


@pytest.mark.parametrize(
    "evil", ["```\n# 标题", "\n```\n", "~~~\n<script>", "| a | b |", "](x) **b** `c`\r```", "\u2028```"]
)
def test_no_text_breaks_out_of_its_fence(evil):
    text = report(collect([("html", evil, evil, evil + "后")]))
    lines = text.splitlines()
    fences = [i for i, line in enumerate(lines) if line.startswith("```")]
    assert [lines[i] for i in fences] == ["```diff", "```"]
    assert all(line[:2] in ("@@", "- ", "+ ") for line in lines[fences[0] + 1 : fences[1]])
    assert len(lines[fences[0] + 1 : fences[1]]) == 3
