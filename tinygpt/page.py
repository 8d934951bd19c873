"""The report as one HTML file that needs no network: figures inside, formulas as MathML."""

import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from mdit_py_plugins.anchors import anchors_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin

TEMPLATES = Path(__file__).parent / "templates"


def make_page(markdown: str, figures: dict[str, str], language: str) -> str:
    """Markdown as GitHub reads it -> a whole page; `![…](name.svg)` becomes the figure `name` itself."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    parser.use(dollarmath_plugin, renderer=_formula, double_inline=True, allow_space=False, allow_digits=False)
    parser.use(anchors_plugin, max_level=2, slug_func=_slug)
    parser.add_render_rule("image", lambda renderer, tokens, index, options, env: _figure(tokens[index], figures))
    parser.add_render_rule("fence", _fence)
    tokens = parser.parse(markdown)
    contents = [
        {"anchor": token.attrGet("id"), "title": tokens[number + 1].content}
        for number, token in enumerate(tokens)
        if token.type == "heading_open" and token.tag == "h2"
    ]
    title = next(tokens[number + 1].content for number, token in enumerate(tokens) if token.type == "heading_open")
    body = parser.renderer.render(tokens, parser.options, {})
    body = re.sub(r"<table>.*?</table>", r'<div class="wide">\g<0></div>', body, flags=re.DOTALL)
    body = re.sub(r'<a href="(?!#)[^"]*">(.*?)</a>', r"<code>\1</code>", body)  # the files beside it stay behind
    loader = FileSystemLoader(TEMPLATES, encoding="utf-8")
    environment = Environment(loader=loader, autoescape=True, keep_trailing_newline=True)
    language = {"zh": "zh-CN"}.get(language, language)
    return environment.get_template("page.html").render(title=title, contents=contents, body=body, language=language)


def _formula(content: str, options: dict) -> str:
    return convert(content.strip(), display="block" if options.get("display_mode") else "inline")


def _fence(renderer: RendererHTML, tokens: list[Token], index: int, options: dict, env: dict) -> str:
    token = tokens[index]
    if token.info == "math":
        return _formula(token.content, {"display_mode": True})
    return f"<pre><code>{escapeHtml(token.content)}</code></pre>\n"


def _slug(title: str) -> str:
    return re.sub(r"\W+", "-", title).strip("-").lower()


def _figure(image: Token, figures: dict[str, str]) -> str:
    name = Path(str(image.attrGet("src"))).stem
    svg = inline_svg(name, figures[name])
    return f'<span class="figure" role="img" aria-label="{escapeHtml(image.content)}">{svg}</span>'


def inline_svg(name: str, svg: str) -> str:
    """`svg` as an element of a page: no prologue, no style of its own, ids that no other figure has."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style>:root.*?</style>", "", svg, flags=re.DOTALL)  # the page defines these colours for all
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    return re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
