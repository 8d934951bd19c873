from markdown_it import MarkdownIt

from tinygpt.markdown import block, html_cell, interval, percent, plain, table


def test_plain_text_shows_as_it_is():
    assert plain("a|b\n*c*") == "a\\|b \\*c\\*"
    for text in ("a|b `c` *d* _e_ [f](g) <h> $i$ \\ ~~j~~ #k &amp;", "小兔，跑。"):
        assert MarkdownIt().renderInline(plain(text)) == html_cell(text).replace("&#36;", "$")


def test_a_cell_marks_the_first_piece():
    assert html_cell("小兔小兔", "兔") == "小<b>兔</b>小兔"
    assert html_cell("a\r\nb\u2028c", "zz") == "a<br>b<br>c"


def test_small_helpers():
    assert block("a```b````c") == "`````text\na```b````c\n`````"
    assert interval([-0.25, 0.5], 2) == "−0.25–0.50"
    assert percent(0.0625, 1) == "6.2%"
    assert table([["a", "1"]], ["x", "n"]).split("\n")[1].endswith(":|")
