"""The explorer in a real browser: its frame and panels 1 to 4, around a small model with random weights."""

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser

from tinygpt.checkpoint import TrainedModel
from tinygpt.explorer import headline, make_explorer, pack
from tinygpt.model import initial_model
from tinygpt.params import Params
from tinygpt.vocab import Vocab

TINY = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_size": 24}
ROPE = {"position": "rope", "qk_norm": True, "token_shift": True}
OTHERS = {"norm": "layernorm", "mlp": "swiglu", "bias": False, "head_bias": False, "tie_embeddings": True}
VOCAB = Vocab("".join(sorted("小兔子笑了，猫也。\n")))
SCORE = {
    "nats_per_token": 3.25,
    "nats_per_token_95": [3.2, 3.3],
    "bits_per_char": 4.7,
    "perplexity": 25.8,
    "accuracy": 0.3,
}
BASELINE = {"nats_per_token": 5.5, "bits_per_char": 7.9}
METRICS = {"best_step": 7, "test": {"model": SCORE, "baseline": BASELINE, "n_stories": 10}}
SPLIT = {"train": {"n_stories": 100, "n_chars": 10000}}
TEXT = "小兔子笑了，小猫也笑了。"  # what the page shows first
CHINESE = re.compile(r"[\u3000-\u9fff\uff00-\uffef]")
# What stays the same in Chinese: names of parts and of programs, and the marks.
TERMS = {"TinyGPT", "token", "softmax", "RoPE", "MLP", "GELU", "ReLU", "SwiGLU", "head", "bos", "unk", "eos", "top"}


@pytest.fixture(scope="module")
def make_page(params: Params, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """make_page(**settings of the model) -> the page of a model with random weights; each is made once."""
    pages: dict[tuple, Path] = {}
    folder = tmp_path_factory.mktemp("explorer")

    def make(**settings: object) -> Path:
        key = tuple(sorted(settings.items()))
        if key not in pages:
            model_params = params.model.model_copy(update=TINY | settings)
            model = initial_model(model_params, len(VOCAB), seed=0).eval()
            noise = torch.Generator().manual_seed(1)
            with torch.no_grad():  # weights as initialised are so small that every softmax is nearly even
                for parameter in model.parameters():
                    parameter.add_(0.4 * torch.randn(parameter.shape, generator=noise))
            trained = TrainedModel(model, VOCAB, seed=0, step=7, val_nats_per_token=3.0)
            pages[key] = folder / f"{len(pages)}.html"
            data = pack(trained, headline(trained, METRICS, SPLIT), params.train, params.sample)
            pages[key].write_text(make_explorer(data), encoding="utf-8")
        return pages[key]

    return make


class Visit:
    """A page open in the browser, and what went wrong in it."""

    def __init__(
        self, browser: Browser, path: Path, address: str = "#/zh", width: int = 1100, **settings: object
    ) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, **settings)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.add_init_script(
            "window.shifts = []; new PerformanceObserver((list) => window.shifts.push(...list.getEntries().map("
            "(entry) => entry.value))).observe({ type: 'layout-shift', buffered: true });"
        )
        self.page.goto(path.as_uri() + address)

    def wait_until_built(self) -> None:
        self.page.wait_for_function("page.panels.every(({ built }) => built)")

    def go(self, panel: str) -> None:
        self.page.evaluate("(id) => page.go(page.panels.find((panel) => panel.id === id))", panel)

    def set(self, **changes: object) -> None:
        self.page.evaluate("(changes) => page.set(changes)", changes)

    def type(self, text: str) -> None:
        """Key by key; the page may wait for a pause."""
        self.page.locator("#text").press_sequentially(text)
        self.page.wait_for_function("page.state.text === document.getElementById('text').value")

    def panel(self, name: str, expression: str) -> object:
        """`expression` of a panel: panel("attention", "weights.data.picked")."""
        return self.page.evaluate(f"() => page.panels.find((panel) => panel.id === '{name}').{expression}")

    def numbers(self, name: str, expression: str) -> list[float]:
        """The same for a typed array."""
        array = f"(({{ id }}) => id === '{name}')"
        return self.page.evaluate(f"() => Array.from(page.panels.find{array}.{expression})")

    def state(self, key: str) -> object:
        return self.page.evaluate("(key) => page.state[key]", key)

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


@pytest.fixture
def visit(browser: Browser, make_page: Callable[..., Path]) -> Iterator[Callable[..., Visit]]:
    """visit(model={}, address="#/zh", width=1100, …) -> a Visit; no test may leave a complaint in the console."""
    visits: list[Visit] = []

    def open_page(model: dict | None = None, **settings: object) -> Visit:
        visits.append(Visit(browser, make_page(**(model or {})), **settings))
        return visits[-1]

    yield open_page
    for opened in visits:
        opened.context.close()
    assert [problem for opened in visits for problem in opened.problems] == []


def unsigned(written: str) -> float:
    """A number as the page writes it, with a true minus."""
    return float(written.replace("−", "-"))


# The frame


@pytest.mark.parametrize("model", [{}, ROPE, OTHERS], ids=["default", "rope", "others"])
def test_every_panel_shows_without_complaint_or_request(visit, model: dict) -> None:
    shown = visit(model)
    ids = shown.page.evaluate("() => page.panels.map(({ id }) => id)")
    assert ids[:4] == ["ids", "vectors", "attention", "layers"]
    for panel in ids:
        shown.go(panel)
    assert len(shown.requests) == 1, "the page itself is all that is read"
    assert shown.requests[0].startswith("file:")


def test_what_the_address_says_is_shown(visit) -> None:
    shown = visit(address="#layers/en/dark")
    assert [shown.state("language"), shown.state("theme")] == ["en", "dark"]
    assert shown.page.evaluate("document.documentElement.lang") == "en"
    assert shown.page.evaluate("page.panels[3].section.getBoundingClientRect().top") < 100


def test_the_language_follows_the_browser(visit) -> None:
    assert visit(address="", locale="zh-TW").state("language") == "zh"
    assert visit(address="", locale="de-DE").state("language") == "en"


def leftovers(shown: Visit, is_left: Callable[[str], bool]) -> list[str]:
    """Texts and names in the frame and in panels 1 to 4, without the characters of the model and of the user."""
    texts = shown.page.evaluate("""() => {
        const texts = [];
        const parts = "header *, nav *, :is(#ids, #vectors, #attention, #layers) *";
        for (const element of document.querySelectorAll(parts)) {
            if (element.closest("[lang]") !== document.documentElement || element.id === "language") continue;
            for (const node of element.childNodes) if (node.nodeType === Node.TEXT_NODE) texts.push(node.data);
            if (element.ariaLabel) texts.push(element.ariaLabel);
        }
        return texts;
    }""")
    return [text for text in texts if is_left(re.sub(r"[“「].{1,2}?[”」]|[:：] ?.$", "", text.strip()))]


@pytest.mark.parametrize("model", [{}, ROPE], ids=["default", "rope"])
def test_switching_the_language_leaves_no_text_in_the_other(visit, model: dict) -> None:
    shown = visit(model)
    shown.set(text=TEXT * 3 + "x", position=5, causal=False)
    for panel in ("ids", "vectors", "attention", "layers"):
        shown.go(panel)

    def english(text: str) -> bool:
        return bool(set(re.findall(r"[A-Za-z]{3,}", text)) - TERMS)

    assert leftovers(shown, english) == []
    assert len(leftovers(shown, lambda text: bool(CHINESE.search(text)))) > 50
    shown.page.click("#language")
    assert shown.page.evaluate("document.documentElement.lang") == "en"
    assert leftovers(shown, lambda text: bool(CHINESE.search(text))) == []
    assert len(leftovers(shown, english)) > 50
    shown.page.click("#language")
    assert leftovers(shown, english) == []


def test_the_theme_follows_the_system_until_it_is_switched(visit) -> None:
    shown = visit(color_scheme="dark")
    shown.go("attention")
    background = "getComputedStyle(document.body).backgroundColor"
    pixel = "document.querySelector('#attention canvas').toDataURL()"
    dark = shown.page.evaluate(background)
    before = shown.page.evaluate(pixel)
    shown.page.click("#theme")
    assert shown.page.evaluate(background) != dark
    assert shown.page.evaluate(pixel) != before, "what is painted on a canvas changes, too"
    assert "light" in shown.page.url
    shown.page.click("#theme")
    assert shown.page.evaluate(background) == dark
    assert shown.page.evaluate(pixel) == before


def test_a_step_is_reached_by_keyboard_and_read_out(visit) -> None:
    shown = visit()
    link = shown.page.locator("nav a[href='#layers']")
    link.focus()
    shown.page.keyboard.press("Enter")
    assert shown.page.evaluate("document.activeElement.id") == "layers-title"
    shown.page.wait_for_function("document.querySelector('nav a[aria-current]').hash === '#layers'")
    assert shown.page.url.endswith("#layers/zh")


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("model", [{}, ROPE], ids=["default", "rope"])
def test_a_phone_shows_everything_without_scrolling_sideways(visit, model: dict, language: str) -> None:
    shown = visit(model, width=320, address=f"#/{language}")
    shown.set(text=TEXT * 3 + "x", position=3)
    for panel in shown.page.evaluate("() => page.panels.map(({ id }) => id)"):
        shown.go(panel)
    shown.page.evaluate("document.querySelector('#attention details').open = true")
    assert shown.page.evaluate("document.documentElement.scrollWidth") == 320


def test_every_control_has_a_name_and_every_id_is_unique(visit) -> None:
    shown = visit(ROPE)
    shown.wait_until_built()
    nameless = shown.page.evaluate("""() => {
        const named = (element) => (element.ariaLabel || element.innerText ||
            [...(element.labels ?? [])].map((label) => label.innerText).join("")).trim();
        const kinds = "a, button, input, textarea, select, summary, [tabindex='0'], [role]";
        const controls = [...document.querySelectorAll(kinds)].filter((control) => !control.closest("[hidden]"));
        return controls.filter((control) => !named(control)).map((control) => control.outerHTML);
    }""")
    assert nameless == []
    ids = shown.page.evaluate("() => [...document.querySelectorAll('[id]')].map(({ id }) => id)")
    assert len(ids) == len(set(ids))
    assert (
        shown.page.evaluate(
            '() => document.querySelectorAll(\'[tabindex]:not([tabindex="0"], [tabindex="-1"])\').length'
        )
        == 0
    )


@pytest.mark.parametrize("width", [320, 1100])
def test_nothing_jumps_on_loading_and_typing(visit, width: int) -> None:
    shown = visit(width=width)
    shown.wait_until_built()
    shown.type("小猫😀x" * 10)
    shown.go("attention")
    shown.page.locator("#attention .ribbon input").first.check(force=True)
    shown.page.locator("#attention .ribbon input").nth(8).check(force=True)
    shown.page.locator("#attention .toggle input").first.uncheck()
    shown.page.wait_for_timeout(100)  # the browser reports shifts a frame later
    assert sum(shown.page.evaluate("shifts")) < 0.01


def damage(page: str) -> str:
    place = page.index('id="file"') + 3000
    return page[:place] + ("A" if page[place] != "A" else "B") + page[place + 1 :]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [(damage, r"checksum is [0-9a-f]{8}, not [0-9a-f]{8}"), (lambda page: page[: len(page) - 9000], r"checksum")],
    ids=["changed", "cut off"],
)
def test_a_damaged_file_says_so_and_how_to_mend_it(
    browser: Browser, make_page, tmp_path: Path, spoil, says: str
) -> None:
    path = tmp_path / "damaged.html"
    path.write_text(spoil(make_page().read_text(encoding="utf-8")), encoding="utf-8")
    page = browser.new_page(locale="zh-CN")
    page.goto(path.as_uri())
    message = page.locator("[role=alert]").inner_text()
    assert re.search(says, message)
    assert "dvc repro -f explore" in message
    assert page.locator(".panel").count() == 0
    assert not page.locator("nav").is_visible()
    page.close()


# Panel 1: ids


def test_the_text_becomes_ids(visit) -> None:
    shown = visit()
    assert shown.page.locator("#text").input_value() == TEXT
    assert shown.texts("#ids .chip .character") == ["<bos>", *TEXT]
    assert shown.texts("#ids .chip .number") == [str(id) for id in [1, *VOCAB.encode(TEXT).tolist()]]
    assert "12 个字符 + <bos> → 13 个 token" in shown.texts("#ids .counts")


def test_typing_is_followed_at_once(visit) -> None:
    shown = visit()
    shown.page.fill("#text", "")
    assert shown.texts("#ids .chip .character") == ["<bos>"]
    assert "<bos>" in shown.texts("#ids .notes")[0]
    shown.type("小兔\n")
    assert shown.texts("#ids .chip .character") == ["<bos>", "小", "兔", "↵"]
    assert shown.state("position") == 3, "the last position stays chosen"
    shown.set(position=1)
    shown.type("了")
    assert shown.state("position") == 1, "another one stays, too"
    shown.page.click("#ids .examples button:first-child")
    assert shown.page.locator("#text").input_value() == "从前，有一只小兔子，"


def test_an_input_method_is_waited_for(visit) -> None:
    shown = visit()
    shown.page.fill("#text", "小")
    for kind, text, composing in (("input", "小tu", "true"), ("compositionend", "小兔", "false")):
        shown.page.evaluate(f"""() => {{
            const box = document.getElementById("text");
            box.value = "{text}";
            box.dispatchEvent(new InputEvent("{kind}", {{ isComposing: {composing} }}));
        }}""")
        assert shown.state("text") == ("小" if composing == "true" else "小兔")


def test_unknown_characters_are_marked(visit) -> None:
    shown = visit()
    shown.page.fill("#text", "小😀x\u200b👩‍👧")
    unknown = "#ids .chip.unknown"
    assert shown.texts(f"{unknown} .character") == ["😀", "x", "□", "👩", "□", "👧"]
    assert shown.texts(f"{unknown} .number") == ["0 <unk>"] * 6
    assert "6 个字符不在词表里" in shown.texts("#ids .notes")[0]
    shown.go("attention")
    assert shown.page.locator("#attention .sign.unknown").count() == 6


def test_a_long_text_slides_out_of_the_window(visit) -> None:
    shown = visit()
    text = (TEXT * 84)[:1000]
    shown.page.fill("#text", text)
    assert shown.texts("#ids .chip .character") == ["⋯", *text[-24:]]
    assert shown.texts("#ids .chip.cut")[0].endswith("前 977 个被切掉")
    assert "最前面的 977 个（包括 <bos>）滑出了窗口" in shown.texts("#ids .notes")[0]
    assert shown.state("cut") == 977
    for panel in ("vectors", "attention", "layers"):
        shown.go(panel)
    assert shown.panel("attention", "weights.data.rows.length") == 24


# Panel 2: vectors


def test_token_and_position_vector_add_up_to_the_input(visit) -> None:
    shown = visit()
    shown.go("vectors")
    shown.page.locator("#vectors .ribbon input").nth(3).check(force=True)
    assert shown.state("position") == 3
    labels = shown.texts("#vectors .strip > div")
    id = int(VOCAB.encode("子")[0])
    assert [label.replace("\n", "") for label in labels] == [
        f"token 向量：编号 {id} 的一行",
        "+位置向量：位置 3 的一行",
        "=输入",
    ]
    token, position, total = (shown.numbers("vectors", f"vectors[{i}]") for i in range(3))
    assert total == pytest.approx([a + b for a, b in zip(token, position, strict=True)], abs=1e-6)
    table = "page.file.trained.weights['token_embedding.weight'].data"
    row = shown.page.evaluate(f"(id) => Array.from({table}.slice(16 * id, 16 * (id + 1)))", id)
    assert token == row


def test_the_numbers_of_a_strip_show_under_the_pointer_and_by_keyboard(visit) -> None:
    shown = visit()
    shown.go("vectors")
    box = shown.page.locator("#vectors canvas").first.bounding_box()
    shown.page.mouse.move(box["x"] + 4.5 * box["width"] / 16, box["y"] + 5)
    tip = shown.page.locator("#tip")
    assert "第 4 通道" in tip.inner_text()
    token, position, total = (shown.numbers("vectors", f"vectors[{i}]")[4] for i in range(3))
    written = [unsigned(number) for number in re.findall(r"[−\d.]+", tip.inner_text().splitlines()[-1])]
    assert written == pytest.approx([token, position, total], abs=1e-4)
    shown.page.mouse.move(0, 0)
    assert not tip.is_visible()
    shown.page.locator("#vectors .strips").focus()
    for key in ("Home", "ArrowRight", "ArrowDown"):
        shown.page.keyboard.press(key)
    assert "第 1 通道" in tip.inner_text()
    assert shown.page.locator("#live").inner_text().startswith("位置向量")
    shown.page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_with_rope_there_is_no_position_vector(visit) -> None:
    shown = visit(ROPE)
    shown.go("vectors")
    assert shown.page.locator("#vectors .strip").count() == 2
    assert "没有位置向量" in shown.page.locator("#vectors").inner_text()
    shown.set(position=1)
    assert shown.texts("#vectors .notes")[0] == "同一个字也在位置 7：token 向量一样，输入也完全一样。"


# Panel 3: attention


def upper(values: list[float], T: int) -> list[float]:
    return [values[row * T + column] for row in range(T) for column in range(row + 1, T)]


def test_without_the_mask_positions_read_what_comes_after_them(visit) -> None:
    shown = visit()
    shown.go("attention")
    T = len(TEXT) + 1
    assert set(upper(shown.numbers("attention", "weights.data.values"), T)) == {0}
    assert shown.panel("attention", "weights.data.hidden(2, 3)") is True
    shown.page.get_by_role("switch", name="因果遮挡").uncheck()
    weights = shown.numbers("attention", "weights.data.values")
    assert min(upper(weights, T)) > 0
    assert [sum(weights[row * T : (row + 1) * T]) for row in range(T)] == pytest.approx([1] * T, abs=1e-5)
    assert shown.panel("attention", "weights.data.hidden(2, 3)") is False
    shown.page.get_by_role("switch", name="因果遮挡").check()
    assert set(upper(shown.numbers("attention", "weights.data.values"), T)) == {0}


def test_without_the_scaling_scores_are_larger_by_the_root_of_the_head_size(visit) -> None:
    shown = visit()
    shown.go("attention")
    scaled = shown.numbers("attention", "scores.data.values")
    assert shown.page.get_by_text("分数 = q · k / √8").is_visible()
    shown.page.get_by_role("switch", name="除以 √D").uncheck()
    unscaled = shown.numbers("attention", "scores.data.values")
    assert unscaled == pytest.approx([math.sqrt(8) * score for score in scaled], rel=1e-5, abs=1e-5)
    assert shown.page.get_by_text("分数 = q · k", exact=True).is_visible()


def click_cell(shown: Visit, row: int, column: int) -> None:
    cell = shown.panel("attention", "scores.cell")
    place = {"x": 24 + (column + 0.5) * cell, "y": 24 + (row + 0.5) * cell}
    shown.page.locator("#attention canvas.matrix").first.click(position=place)


@pytest.mark.parametrize("model", [{}, ROPE], ids=["default", "rope"])
@pytest.mark.parametrize("scaled", [True, False])
def test_a_cell_is_written_out_with_its_numbers(visit, model: dict, scaled: bool) -> None:
    shown = visit(model)
    shown.go("attention")
    shown.set(layer=1, head=1, scaled=scaled)
    click_cell(shown, 6, 2)
    assert shown.state("position") == 6
    assert shown.texts("#attention .cell-title") == ["位置 6「，」问位置 2「兔」"]
    shown.page.locator("#attention summary").click()
    terms = shown.texts("#attention .terms li")
    assert len(terms) == 8
    for term in terms:
        q, k, product = (unsigned(number) for number in re.findall(r"−?[\d.]+", term))
        assert q * k == pytest.approx(product, abs=0.005)
    total = sum(unsigned(term.split("= ")[1]) for term in terms)
    sum_step, scaling, mask, softmax = shown.texts("#attention .arithmetic li")
    score = unsigned(sum_step.split("= ")[-1])
    assert total == pytest.approx(score, abs=0.001)
    T = len(TEXT) + 1
    final = unsigned(re.findall(r"−?[\d.]+", scaling)[-1])
    assert final == pytest.approx(score / math.sqrt(8) if scaled else score, abs=0.001)
    assert final == pytest.approx(shown.numbers("attention", "scores.data.values")[6 * T + 2], abs=0.001)
    assert mask == "位置 2 不在 6 之后：能看"
    weight = shown.numbers("attention", "weights.data.values")[6 * T + 2]
    above, below, share = re.search(r"= ([\d.]+) ÷ ([\d.]+) = <?([\d.]+)%$", softmax).groups()
    assert float(share) == pytest.approx(100 * weight, abs=0.101 if weight < 0.001 else 0.051)
    assert float(above) / float(below) == pytest.approx(weight, abs=0.002)


def test_a_cell_of_the_future_is_masked(visit) -> None:
    shown = visit()
    shown.go("attention")
    click_cell(shown, 2, 5)
    steps = shown.texts("#attention .arithmetic li")
    assert steps[2:] == ["位置 5 在 2 之后：遮挡，分数变成 −∞", "softmax: e^−∞ = 0 → 0.0%"]
    assert "被遮挡" in shown.page.locator("#tip").inner_text()


def test_the_matrix_is_walked_by_keyboard(visit) -> None:
    shown = visit()
    shown.go("attention")
    click_cell(shown, 4, 3)
    shown.page.mouse.move(0, 0)
    shown.page.keyboard.press("ArrowLeft")
    assert "位置 4「笑」问位置 2「兔」" in shown.page.locator("#live").inner_text()
    shown.page.keyboard.press("ArrowDown")
    shown.page.keyboard.press("Enter")
    assert shown.texts("#attention .cell-title") == ["位置 5「了」问位置 2「兔」"]
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement.ariaLabel").startswith("权重矩阵")


def test_the_ribbon_is_walked_by_keyboard(visit) -> None:
    shown = visit()
    shown.go("attention")
    shown.page.locator("#attention .ribbon input").nth(2).focus()
    shown.page.keyboard.press("ArrowRight")
    assert shown.state("position") == 3
    assert shown.panel("attention", "weights.data.marked") == 3


def test_layers_and_heads_are_chosen(visit) -> None:
    shown = visit()
    shown.go("attention")
    first = shown.numbers("attention", "weights.data.values")
    shown.page.locator("#attention .head").nth(1).click()
    assert shown.state("head") == 1
    assert shown.page.locator("#attention .head[aria-pressed=true]").inner_text() == "头 2"
    second = shown.numbers("attention", "weights.data.values")
    assert second != first
    shown.page.locator("#attention .choice").first.get_by_role("radio", name="2").check()
    assert shown.state("layer") == 1
    assert shown.numbers("attention", "weights.data.values") not in (first, second)
    assert "第 2 层的所有头" in shown.texts("#attention h3")


def test_the_weighted_values_sum_to_what_the_head_reads(visit) -> None:
    shown = visit()
    shown.go("attention")
    rows = shown.page.evaluate("() => page.panels[2].sum.rows.map(({ vector }) => Array.from(vector))")
    assert len(rows) == 6  # four positions, the rest, the sum
    assert [sum(column) for column in zip(*rows[:-1], strict=True)] == pytest.approx(rows[-1], abs=1e-5)


def test_with_rope_only_the_distance_counts(visit) -> None:
    shown = visit(ROPE)
    shown.go("attention")
    click_cell(shown, 6, 2)
    slider = shown.page.locator("#attention input[type=range]")
    slider.focus()
    for _ in range(5):
        shown.page.keyboard.press("ArrowRight")
    rows = [row.split("\t") for row in shown.page.locator("#attention .rotation").inner_text().splitlines()]
    original, both, alone = ([unsigned(number) for number in row[1:]] for row in rows[1:])
    assert [original[:2], both[:2], alone[:2]] == [[6, 2], [11, 7], [11, 2]]
    assert both[2] == pytest.approx(original[2], abs=0.002)
    assert abs(alone[2] - original[2]) > 0.01
    assert original[2] == pytest.approx(unsigned(shown.texts("#attention .arithmetic li")[0].split("= ")[-1]))
    assert shown.page.locator("#attention .dial").count() == 4
    assert "q 转 11.00 弧度，k 转 7.00 弧度" in shown.page.locator("#attention .dial svg").first.get_attribute(
        "aria-label"
    )


# Panel 4: layers


def test_the_stream_starts_at_the_input_and_ends_at_the_output(visit) -> None:
    shown = visit()
    shown.go("layers")
    rows = shown.page.evaluate("() => page.panels[3].stream.rows.map(({ vector }) => Array.from(vector))")
    assert len(rows) == 1 + 2 * TINY["n_layer"]
    inside = shown.page.evaluate("() => page.panels[3].inside.rows.map(({ vector }) => Array.from(vector))")
    x, _, attention, h, _, mlp, y = inside
    assert [x, h, y] == rows[:3]
    assert h == pytest.approx([a + b for a, b in zip(x, attention, strict=True)], abs=1e-5)
    assert y == pytest.approx([a + b for a, b in zip(h, mlp, strict=True)], abs=1e-5)
    length = math.sqrt(sum(number**2 for number in y))
    assert f"‖x‖ = {length:.2f}" in shown.texts("#layers .strip .note")


def test_the_last_layer_guesses_what_the_model_predicts(visit) -> None:
    shown = visit()
    shown.set(position=4)
    shown.go("layers")
    cells = shown.texts("#layers .guesses tr:last-child td")
    assert len(cells) == 6  # five guesses and what really follows
    best = shown.page.evaluate("""() => {
        const V = page.file.vocab.size;
        const shares = odds(rowOf(page.trace().logits, 4, V), { temperature: 1 });
        return highest(shares, 5).map((id) => [page.sign(id), percent(shares[id])]);
    }""")
    assert [cell.split() for cell in cells[:5]] == best
    assert cells[5].split()[0] == TEXT[4]
    shown.set(position=12)
    assert len(shown.texts("#layers .guesses tr:last-child td")) == 5, "nothing follows the last position"


def test_the_largest_activations_are_listed(visit) -> None:
    shown = visit()
    shown.go("layers")
    shown.page.locator("#layers .choice").get_by_role("radio", name="2").check()
    wide = shown.page.evaluate("() => Array.from(rowOf(page.trace().blocks[1].mlpWide, page.state.position, 64))")
    largest = sorted(range(64), key=lambda channel: -abs(wide[channel]))[:10]
    assert shown.texts("#layers .bar .sample") == [f"#{channel}" for channel in largest]
    assert [unsigned(text) for text in shown.texts("#layers .bar .number")] == pytest.approx(
        [wide[channel] for channel in largest], abs=0.005
    )


def test_each_strip_may_have_its_own_scale(visit) -> None:
    shown = visit()
    shown.go("layers")
    common = shown.panel("layers", "stream.rows.map(({ largest }) => largest)")
    assert len(set(common)) == 1
    shown.page.get_by_role("switch", name="每条按自己的最大值上色").check()
    assert len(set(shown.panel("layers", "stream.rows.map(({ largest }) => largest)"))) == len(common)


def test_the_layers_say_that_a_switch_was_changed(visit) -> None:
    shown = visit()
    shown.go("layers")
    assert shown.texts("#layers .switched") == [""]
    shown.set(causal=False)
    assert shown.texts("#layers .switched") == ["第 3 步的开关改过：这里的数字也是那样算出来的。"]
