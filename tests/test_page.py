import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from tinygpt.page import inline_svg, make_page

FIGURES = {
    "loss": '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><style>:root{--ink:#fff}</style>'
    '<metadata>when</metadata><defs><clipPath id="p1"><rect id="r"/></clipPath></defs><!-- a -->'
    '<g clip-path="url(#p1)" id="g1"><use xlink:href="#r"/></g></svg>',
}
FIGURES["other"] = FIGURES["loss"]
MARKDOWN = """# 题目 <b>

![Loss & more](figures/loss.svg)

## What is *it*?

| a | b |
|:--|--:|
| `<x>` | $p$ |

## 为什么？

![two](figures/other.svg)

```math
\\frac{a}{b}
```

```text
<script> $x$ &
```

<table><tr><td>a<br>b</td></tr></table>

See [leaks.json](leaks.json). It costs 5 \\$ and $x_1$ more.
"""


@pytest.fixture(scope="module")
def page() -> str:
    return make_page(MARKDOWN, FIGURES, "zh")


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter = Counter()
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "srcset", "data", "xlink:href", "poster") or (
                name == "href" and tag in ("link", "image")
            ):
                self.loads.append(value)
            if name == "href" and tag == "a":
                self.links.append(value)


def read(page: str) -> Page:
    parser = Page()
    parser.feed(page)
    return parser


def test_nothing_is_loaded_from_anywhere(page):
    parsed = read(page)
    assert [target for target in parsed.loads if not target.startswith("#")] == []
    assert parsed.tags["script"] == parsed.tags["link"] == parsed.tags["img"] == 0
    assert "See <code>leaks.json</code>." in page and all(link.startswith("#") for link in parsed.links)
    assert not re.search(r"@import|url\((?!#)", page)


def test_figures_stand_inside_with_ids_of_their_own(page):
    parsed = read(page)
    assert parsed.tags["svg"] == 2 and len(parsed.ids) == len(set(parsed.ids)) == 9
    assert 'aria-label="Loss &amp; more"' in page
    for name in FIGURES:
        assert f'id="{name}-p1"' in page and f"url(#{name}-p1)" in page and f'href="#{name}-r"' in page
    assert "<?xml" not in page and "when" not in page and "--ink:#fff" not in page


def test_every_heading_is_in_the_contents(page):
    parsed = read(page)
    targets = [link.removeprefix("#") for link in parsed.links if link.startswith("#")]
    assert targets == ["what-is-it", "为什么"] and set(targets) <= set(parsed.ids)
    assert "<title>题目 &lt;b&gt;</title>" in page and '<html lang="zh-CN">' in page


def test_formulas_are_mathml_and_code_stays_text(page):
    assert page.count("<math") == 3 and page.count('display="block"') - page.count('math[display="block"]') == 1
    assert "<mfrac>" in page and "<msub>" in page and "$" in page
    assert "&lt;script&gt; $x$ &amp;" in page and "<code>&lt;x&gt;</code>" in page
    assert 'style="text-align:right"' in page


def test_the_page_follows_the_theme_and_scrolls_wide_tables(page):
    assert "prefers-color-scheme: dark" in page and page.count('<div class="wide"><table>') == 2


def test_a_svg_without_ids_stays_as_it_is():
    assert inline_svg("a", "<svg><g/></svg>") == "<svg><g/></svg>"
