"""The explorer's panels 5 to 8 in a real browser: odds, writing, surprise, parameters."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page, expect

from benchmarks.explorer import READY, measure
from tinygpt.checkpoint import TrainedModel
from tinygpt.evaluation import score_stream
from tinygpt.explorer import headline, make_explorer, pack
from tinygpt.model import GPT, initial_model
from tinygpt.params import ModelParams, Params
from tinygpt.vocab import BOS, EOS, Vocab

VOCAB = Vocab("".join(sorted(set("小兔子笑了，猫也。从前有一只狗天女孩在花园里很久以妈带着去公和鸟\n"))))
V = len(VOCAB)
TEST_NATS = 2.5
N_ROWS = 20


@pytest.fixture(scope="module")
def small(params: Params) -> ModelParams:
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_size": 24}
    return params.model.model_copy(update=sizes)


def random_model(params: ModelParams, eos_bias: float = -30.0) -> GPT:
    """Opinionated random weights that 16 bits hold exactly; it ends a text never, or with some `eos_bias` soon."""
    model = initial_model(params, V, seed=0).eval()
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.4 * torch.randn(weight.shape, generator=rng))
            weight.copy_(weight.half())
        if params.head_bias:
            model.lm_head.bias[EOS] += eos_bias
            model.lm_head.bias.copy_(model.lm_head.bias.half())
    return model


def write_page(path: Path, model: GPT, params: Params) -> Path:
    trained = TrainedModel(model=model, vocab=VOCAB, step=0, val_nats_per_token=TEST_NATS, seed=0)
    measured = {"nats_per_token": TEST_NATS, "nats_per_token_95": [2.4, 2.6], "bits_per_char": 3.6, "perplexity": 12.2}
    baseline = {"nats_per_token": 3.3, "bits_per_char": 4.8}
    metrics = {"best_step": 0, "test": {"model": measured | {"accuracy": 0.4}, "baseline": baseline, "n_stories": 3}}
    split = {"train": {"n_stories": 7, "n_chars": 900}}
    data = pack(trained, headline(trained, metrics, split), params.train, params.sample)
    path.write_text(make_explorer(data), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def model(small: ModelParams) -> GPT:
    return random_model(small)


@pytest.fixture(scope="module")
def file(model: GPT, params: Params, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(tmp_path_factory.mktemp("explorer") / "explorer.html", model, params)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a page at a panel; at the end it must not have complained, nor asked anything of a network."""
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    complaints = []

    def complain(what: object) -> None:
        complaints.append(str(what))

    def go(file: Path, panel: str, language: str = "en", **size: int) -> Page:
        page = context.new_page()
        page.on("pageerror", complain)
        page.on("console", lambda message: complain(message.text))
        page.on("request", lambda request: None if request.url.startswith("file:") else complain(request.url))
        if size:
            page.set_viewport_size({"width": size["width"], "height": 800})
        page.goto(f"{file.as_uri()}#{panel}/{language}")
        page.wait_for_function("id => page.panels.find(panel => panel.id === id).built", arg=panel)
        return page

    yield go
    context.close()
    assert complaints == []


def panel(page: Page, expression: str, of: str, arg: object = None) -> object:
    """What JavaScript says of a panel, `it`."""
    it = f"const it = page.panels.find(({{ id }}) => id === '{of}')"
    return page.evaluate(f"arg => {{ {it}; return {expression} }}", arg)


def slide(page: Page, root: str, label: str, value: float) -> None:
    page.locator(root).get_by_label(label, exact=True).evaluate(
        "(slider, x) => { slider.value = x; slider.dispatchEvent(new Event('input', { bubbles: true })); }", value
    )


def slide_top_k(page: Page, root: str, k: int) -> None:
    choices = panel(page, "it.controls.choices", root.lstrip("#"))
    slide(page, root, "top-k", choices.index(k))


# Panel 5: odds


def softmax_of(logits: np.ndarray, temperature: float, top_k: int) -> np.ndarray:
    if temperature == 0:
        return (np.arange(len(logits)) == logits.argmax()).astype(float)
    z = logits / temperature
    z[logits < np.sort(logits)[-top_k]] = -np.inf
    odds = np.exp(z - z.max())
    return odds / odds.sum()


def shown_odds(page: Page) -> list[tuple[str, str, float]]:
    """Of each row: its character, the probability as text, and the length of its bar as a share."""
    rows = page.locator("#odds li .odds-row")
    return [
        tuple(row)
        for row in rows.evaluate_all(
            """rows => rows.map(row => {
              const [sample, z, scaled, odds] = row.children;
              const [, share] = /scaleX\\(([^)]+)\\)/.exec(odds.firstChild.style.transform);
              return [sample.textContent, odds.lastChild.textContent, Number(share)];
            })"""
        )
    ]


@pytest.mark.parametrize(("temperature", "top_k"), [(1, V), (0.5, 7), (2, 12), (0.05, V), (0, 5), (0.8, 1)])
def test_the_sliders_change_the_odds_to_what_softmax_says(open_page, file, model, temperature, top_k):
    page = open_page(file, "odds")
    slide(page, "#odds", "Temperature T", temperature)
    slide_top_k(page, "#odds", top_k)

    text = page.evaluate("page.state.text")
    ids = [BOS, *VOCAB.encode(text).tolist()][-model.params.context_size :]
    with torch.no_grad():
        torch_logits = model(torch.tensor([ids]))[0, -1].double().numpy()
    logits = np.array(panel(page, "[...it.logits]", "odds"))
    np.testing.assert_allclose(logits, torch_logits, atol=1e-3)

    expected = softmax_of(logits, temperature, top_k)
    np.testing.assert_allclose(panel(page, "[...it.odds]", "odds"), expected, atol=1e-5)
    order = np.argsort(-logits, kind="stable")[:N_ROWS]
    for i, ((_, text, share), p) in enumerate(zip(shown_odds(page), expected[order], strict=True)):
        assert share == pytest.approx(p, abs=1e-5)
        assert text == ("0" if i >= top_k else f"{100 * p:.1f}%" if p == 0 or p >= 0.0005 else "<0.1%")
    entropy = abs(sum(p * np.log(p) for p in expected if p > 0))
    facts = page.locator("#odds dd").all_inner_texts()
    n_left = 1 if temperature == 0 else top_k
    assert facts[0] == f"{n_left} of {V}" and facts[2] == "1.000" and facts[3] == f"{entropy:.3f}"


def test_top_k_greys_what_it_cuts(open_page, file):
    page = open_page(file, "odds")
    for k in (3, 20, 1, V):
        slide_top_k(page, "#odds", k)
        assert page.locator("#odds .odds-row.cut").count() == max(0, N_ROWS - k)
        assert panel(page, "it.odds.filter(p => p > 0).length", "odds") == k
    expect(page.locator("#odds output").last).to_have_text(f"{V} (all)")


def test_click_and_enter_append_a_character(open_page, file):
    page = open_page(file, "odds")
    before = page.evaluate("page.state.text")
    rows = page.locator("#odds li .odds-row")
    first = VOCAB.decode(panel(page, "[it.likeliest[0]]", "odds"))
    rows.nth(0).click()
    assert page.evaluate("page.state.text") == before + first
    third = VOCAB.decode(panel(page, "[it.likeliest[2]]", "odds"))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(rows.nth(2)).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("page.state.text") == before + first + third
    expect(rows.nth(2)).to_be_focused()


def test_a_draw_is_the_writers(open_page, file):
    page = open_page(file, "odds")
    before, seed = page.evaluate("page.state.text"), page.locator("#odds").get_by_label("Seed")
    options = "{prompt: page.state.text, seed: 7, temperature: 2, top_k: 30, max_new_chars: 1}"
    drawn = page.evaluate(f"page.file.vocab.decode([new Writer(page.file.trained, page.file, {options}).next()])")
    slide(page, "#odds", "Temperature T", 2)
    slide_top_k(page, "#odds", 30)
    seed.fill("7")
    page.get_by_role("button", name="Draw one").click()
    assert page.evaluate("page.state.text") == before + drawn
    expect(page.locator("#odds .drawn")).to_contain_text(f"Seed 7 drew{drawn}")
    expect(seed).to_have_value("8")


def test_the_end_of_a_story_appends_nothing(open_page, small, params, tmp_path):
    page = open_page(write_page(tmp_path / "page.html", random_model(small, eos_bias=20), params), "odds")
    before = page.evaluate("page.state.text")
    assert page.locator("#odds li .sample").first.inner_text() == "<eos>"
    page.get_by_role("button", name="Draw one").click()
    expect(page.locator("#odds .drawn")).to_contain_text("the story ends here")
    assert page.evaluate("page.state.text") == before
    expect(page.locator("#odds").get_by_label("Seed")).to_have_value(str(params.sample.seed))


# Panel 6: writing


def write_with(page: Page, *, prompt: str = "小兔子", seed: int = 5, length: int = 60) -> None:
    page.locator("#prompt").fill(prompt)
    page.locator("#writing").get_by_label("Seed").fill(str(seed))
    page.locator("#writing").get_by_label("New characters at most").fill(str(length))
    page.get_by_role("button", name="Start").click()


def wait_for_end(page: Page) -> None:
    page.wait_for_function("page.panels.find(({ id }) => id === 'writing').isRunning === false")


def written(page: Page) -> list[str]:
    """What stands in the boxes, trained and untrained, without the mark of the end."""
    text = "boxes => boxes.map(box => [...box.children].slice(0, 4).map(part => part.textContent).join(''))"
    return page.locator("#writing .written").evaluate_all(text)


def writers_text(page: Page, of: str, **options: object) -> str:
    run = "const w = new Writer(page.file[of], page.file, options); while (!w.done) w.next(); return w.ids.slice(1)"
    ids = page.evaluate(f"({{ of, options }}) => {{ {run} }}", {"of": of, "options": options})
    return "".join(VOCAB.decode([id]) or "□" for id in ids)


def test_a_seed_writes_the_same_text_again_and_it_is_the_writers(open_page, file, params):
    page = open_page(file, "writing")
    write_with(page)
    wait_for_end(page)
    texts = written(page)
    sample = {"temperature": params.sample.temperature, "top_k": V, "max_new_chars": 60}
    for of, text in zip(("trained", "untrained"), texts, strict=True):
        assert text == writers_text(page, of, prompt="小兔子", seed=5, **sample)
    assert texts[0] != texts[1] and len(texts[0]) == 3 + 60
    write_with(page, seed=6)
    wait_for_end(page)
    assert written(page)[0] != texts[0]
    write_with(page)
    wait_for_end(page)
    assert written(page) == texts
    expect(page.locator("#writing .status").first).to_contain_text("60 new")
    expect(page.locator("#writing .status").first).to_contain_text("the length is reached")


def test_stopped_stepped_and_continued_it_writes_the_same(open_page, file):
    page = open_page(file, "writing")
    step = page.get_by_role("button", name="One character")
    page.locator("#writing").get_by_label("Seed").fill("5")
    for n in (1, 2, 3):
        step.click()
        assert panel(page, "it.panes.map(pane => pane.signs.length - pane.nPrompt)", "writing") == [n, n]
    page.get_by_role("button", name="Continue").click()
    wait_for_end(page)
    texts = written(page)
    page.get_by_role("button", name="Start").click()
    wait_for_end(page)
    assert written(page) == texts
    expect(step).to_be_disabled()


def test_the_prompts_are_those_of_params_each_with_its_seed(open_page, file, params):
    page = open_page(file, "writing")
    assert page.locator("#writing .prompts button").all_inner_texts() == params.sample.prompts
    page.locator("#writing .prompts button").nth(2).click()
    expect(page.locator("#prompt")).to_have_value(params.sample.prompts[2])
    expect(page.locator("#writing").get_by_label("Seed")).to_have_value(str(params.sample.seed + 2))


def test_it_stops_at_eos_and_says_so(open_page, small, params, tmp_path):
    page = open_page(write_page(tmp_path / "page.html", random_model(small, eos_bias=2), params), "writing")
    write_with(page, length=5000)
    wait_for_end(page)
    assert panel(page, "it.trained.writer.reason", "writing") == "eos"
    expect(page.locator("#writing .status").first).to_contain_text("<eos> was drawn")
    expect(page.locator("#writing .end").first).to_have_text("<eos>")


def test_what_the_window_has_left_is_marked(open_page, file, model):
    page = open_page(file, "writing")
    write_with(page, length=60)
    wait_for_end(page)
    n_ids, size = 1 + 3 + 60, model.params.context_size
    pane = page.locator("#writing .pane").first
    seen = "".join(pane.locator(".seen").all_text_contents())
    gone = "".join(pane.locator(".gone").all_text_contents())
    assert len(seen) == size and gone + seen == written(page)[0]
    assert pane.locator(".prompt.gone").text_content() == "小兔子"
    expect(pane.locator(".window")).to_contain_text(f"starts at token {n_ids - size}")
    write_with(page, length=10)
    wait_for_end(page)
    assert pane.locator(".gone").all_text_contents() == ["", ""]
    expect(pane.locator(".window")).to_contain_text(f"starts at token 0 and holds 14 of {size}")


def test_the_page_answers_while_it_writes(open_page, file):
    page = open_page(file, "writing")
    note = "window.heard = it.isRunning && it.trained.signs.length"
    panel(page, f"void it.prompt.addEventListener('input', () => {note})", "writing")
    write_with(page, length=5000)
    page.locator("#prompt").press("End")
    page.keyboard.insert_text("猫")
    heard = page.evaluate("window.heard")
    assert heard and page.locator("#prompt").input_value() == "小兔子猫"
    page.get_by_role("button", name="Stop").click()
    n = panel(page, "it.trained.signs.length", "writing")
    assert heard < n < 5000
    page.get_by_role("button", name="Continue").click()
    page.wait_for_function("n => page.panels.find(({ id }) => id === 'writing').trained.signs.length > n", arg=n)


def test_unknown_characters_stay_to_be_seen(open_page, file):
    page = open_page(file, "writing")
    write_with(page, prompt="小😀龘", length=5)
    wait_for_end(page)
    assert written(page)[0].startswith("小😀龘")
    expect(page.locator("#writing .status").first).to_contain_text("5 new")


def test_an_empty_prompt_begins_a_story(open_page, file):
    page = open_page(file, "writing")
    write_with(page, prompt="", length=5)
    wait_for_end(page)
    assert len(written(page)[0]) == 5


def test_copy_takes_the_whole_text(open_page, file):
    page = open_page(file, "writing")
    write_with(page, length=40)
    wait_for_end(page)
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    page.locator("#prompt").fill("")
    page.locator("#prompt").press("Control+v")
    assert page.locator("#prompt").input_value() == written(page)[0]


# Panel 7: surprise

LONG = "从前有一只小兔子，笑了。\n龘小猫也😀笑了。" * 4


def costs_of(model: GPT, text: str) -> np.ndarray:
    return score_stream(model, np.array([BOS, *VOCAB.encode(text)], dtype=np.uint16)).nats


def read(page: Page, text: str) -> None:
    page.locator("#surprise-text").fill(text)
    page.wait_for_function("n => page.panels.find(({ id }) => id === 'surprise').costs.length === n", arg=len(text))


def test_surprise_is_what_the_evaluation_measures(open_page, file, model):
    page = open_page(file, "surprise")
    read(page, LONG)
    nats = costs_of(model, LONG)
    np.testing.assert_allclose(panel(page, "it.costs.map(cost => cost.nats)", "surprise"), nats, atol=1e-3)
    facts = page.locator("#surprise dd").all_inner_texts()
    assert facts == [f"{nats.mean():.2f}", f"{np.exp(nats.mean()):.1f}", f"{TEST_NATS:.2f}", f"{np.exp(TEST_NATS):.1f}"]

    characters = page.locator("#surprise .character")
    heat = characters.evaluate_all("all => all.map(each => parseFloat(each.style.getPropertyValue('--heat')))")
    shares = np.minimum(1, nats / np.log(V))
    np.testing.assert_allclose(np.array(heat) / 60, shares, atol=1e-3)
    beyond = characters.evaluate_all("all => all.map(each => each.classList.contains('beyond'))")
    assert beyond == (nats > np.log(V)).tolist() and any(beyond) and not all(beyond)


def test_windows_and_unknown_characters_are_marked(open_page, file, model):
    page = open_page(file, "surprise")
    read(page, LONG)
    marked = """name => [...document.querySelectorAll('#surprise .character')]
      .flatMap((character, i) => character.classList.contains(name) ? [i] : [])"""
    size = model.params.context_size
    assert page.evaluate(marked, "window-start") == list(range(size, len(LONG), size))
    unknown = [i for i, character in enumerate(LONG) if character in "龘😀"]
    assert page.evaluate(marked, "unknown") == unknown
    windows = -(-len(LONG) // size)
    expect(page.locator("#surprise .progress")).to_contain_text(f"in {windows} windows of at most {size}")
    expect(page.locator("#surprise .progress")).to_contain_text(f"{len(unknown)} in dashed frames")


def test_hover_tap_and_keys_tell_of_a_character(open_page, file, model):
    page = open_page(file, "surprise")
    text = "小兔子笑了，小猫也笑了。"
    read(page, text)
    nats = costs_of(model, text)
    detail = page.locator("#surprise .detail")
    page.locator("#surprise .character").nth(6).hover()
    expect(detail).to_contain_text(f"−ln p = {nats[6]:.3f} nats")
    page.locator("#surprise .character").nth(2).click()
    expect(detail).to_contain_text(f"−ln p = {nats[2]:.3f} nats")
    page.locator("#surprise .heat").focus()
    page.keyboard.press("ArrowRight")
    expect(detail).to_contain_text(f"Character 4笑p = {100 * np.exp(-nats[3]):.3}%")

    with torch.no_grad():
        logits = model(torch.tensor([[BOS, *VOCAB.encode(text[:3]).tolist()]]))[0, -1]
    top = logits.softmax(-1).topk(5)
    bars = page.locator("#surprise .bar")
    assert bars.locator(".number").all_inner_texts() == [f"{100 * p:.1f}%" for p in top.values.tolist()]
    shown = bars.locator(".sample").all_inner_texts()
    assert shown == page.evaluate("ids => ids.map(id => page.sign(id))", top.indices.tolist())


def test_surprise_follows_the_text_until_it_has_its_own(open_page, file):
    page = open_page(file, "surprise")
    page.evaluate("page.set({ text: '小狗' })")
    expect(page.locator("#surprise .heat")).to_have_text("小狗")
    read(page, "一只鸟")
    page.evaluate("page.set({ text: '小猫' })")
    expect(page.locator("#surprise .heat")).to_have_text("一只鸟")
    page.get_by_role("button", name="The text above").click()
    expect(page.locator("#surprise .heat")).to_have_text("小猫")
    page.locator("#surprise-text").fill("")
    expect(page.locator("#surprise .detail")).to_have_text("No text yet: write something above.")
    expect(page.locator("#surprise dd").first).to_have_text("–")


def test_shuffling_keeps_the_characters(open_page, file):
    page = open_page(file, "surprise")
    read(page, LONG)
    page.get_by_role("button", name="Shuffle").click()
    shuffled = page.locator("#surprise-text").input_value()
    assert shuffled != LONG and sorted(shuffled) == sorted(LONG)


# Panel 8: parameters

VARIANTS = {
    "default": {},
    "small": {"tie_embeddings": True, "bias": False, "head_bias": False, "mlp": "swiglu", "position": "rope"},
    "large": {"norm": "layernorm", "qk_norm": True, "token_shift": True, "n_layer": 3, "mlp": "relu2"},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_areas_formulas_and_tensors_sum_to_the_model(open_page, small, params, tmp_path, changes):
    model = random_model(small.model_copy(update=changes))
    total = sum(weight.numel() for weight in model.parameters())
    page = open_page(write_page(tmp_path / "page.html", model, params), "parameters")
    rows = page.locator("#parameters .parts tr")
    counts = [int(text.split("\n")[0].replace(",", "")) for text in rows.locator("td").all_inner_texts()]
    assert counts.pop() == total == sum(counts)
    expect(page.locator("#parameters .soft", has_text="Counted one by one")).to_contain_text(f"{total:,} weights")

    filled = [text.split("= ")[-1] for text in page.locator("#parameters .formula").all_inner_texts()]
    assert all(re.fullmatch(r"[\d ×+()]+", formula) for formula in filled)
    assert [eval(formula.replace("×", "*")) for formula in filled] == counts

    names = [name for name, _ in model.named_parameters()]
    listed = 0
    for number, button in enumerate(page.locator("#parameters .part").all()):
        button.click()
        for row in page.locator("#parameters .tensors tr").all():
            name, count = row.locator("code").inner_text(), row.locator("td").inner_text()
            name = name.replace("*", "1")
            assert name in names or (name == "lm_head.weight" and count == "shared: token_embedding.weight")
            listed += 0 if "shared" in count else int(count.replace(",", ""))
        pressed = page.locator("#parameters .part[aria-pressed=true]")
        assert pressed.all_inner_texts() == [page.locator("#parameters .part").nth(number).inner_text()]
    assert listed == total


@pytest.mark.parametrize("width", [1000, 360])
def test_the_areas_are_in_proportion(open_page, file, model, width):
    page = open_page(file, "parameters", width=width)
    boxes = page.locator("#parameters .area").evaluate_all(
        """areas => areas.map(area => {
          const { width, height } = area.getBoundingClientRect();
          return [Number(/[\\d,]+(?=, [^,]*%)/.exec(area.ariaLabel)[0].replace(",", "")), width, height];
        })"""
    )
    whole = page.locator("#parameters .areas").evaluate("areas => areas.clientWidth * areas.clientHeight")
    total = sum(weight.numel() for weight in model.parameters())
    assert sum(count for count, _, _ in boxes) == total and len(boxes) > 5
    large = [box for box in boxes if min(box[1:]) > 5]
    assert len(large) > 3
    for count, box_width, box_height in large:
        assert box_width * box_height / whole == pytest.approx(count / total, rel=0.02)


def test_a_click_on_an_area_lists_its_tensors(open_page, file):
    page = open_page(file, "parameters")
    page.get_by_role("button", name="MLPs of the blocks:").click()
    names = page.locator("#parameters .tensors code").all_inner_texts()
    prefix = "blocks.*.mlp."
    assert names == [prefix + name for name in ("up_proj.weight", "up_proj.bias", "down_proj.weight", "down_proj.bias")]
    assert page.locator("#parameters .tensors .soft").first.inner_text() == "2 × (64 × 16)"
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    assert page.locator("#parameters .tensors code").all_inner_texts() == ["final_norm.scale"]


# All four

MINE = ("odds", "writing", "surprise", "parameters")


def test_the_language_reaches_every_text(open_page, file):
    page = open_page(file, "odds", "zh")
    for name in MINE:
        page.evaluate("id => page.go(page.panels.find(panel => panel.id === id))", name)
    write_with_chinese = page.get_by_role("button", name="写一个字")
    write_with_chinese.click()
    read(page, LONG)
    page.locator("#language").click()
    leftovers = """id => [...document.querySelectorAll(`#${id} *`)]
      .filter(element => !element.children.length && !element.closest("[lang=zh-CN]:not(html)"))
      .map(element => element.textContent).filter(text => /[\\u4e00-\\u9fff]/.test(text))"""
    for name in MINE:
        assert page.evaluate(leftovers, name) == []
    assert page.locator("#writing .status").first.inner_text().startswith("1 new")
    page.locator("#language").click()
    assert page.locator("#writing .status").first.inner_text().startswith("新写 1 字")


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_narrow_phone_needs_no_sideways_scrolling(open_page, file, language):
    page = open_page(file, "parameters", language, width=320)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    outside = """[...document.querySelectorAll('section:nth-child(n + 5) *')].filter(element => {
      const { left, right, width } = element.getBoundingClientRect();
      return width && (left < 0 || right > 320) && !element.closest('.tip, .unseen, .cell, .ending');
    }).map(element => element.outerHTML.slice(0, 80))"""
    assert page.evaluate(outside) == []


@pytest.mark.parametrize("width", [1000, 360])
def test_nothing_moves_when_numbers_change(open_page, file, width):
    page = open_page(file, "parameters", width=width)
    height = "document.documentElement.scrollHeight"
    read(page, "小兔子笑了")
    before = page.evaluate(height)
    slide(page, "#odds", "Temperature T", 0.3)
    slide_top_k(page, "#odds", 2)
    assert page.evaluate(height) == before
    write_with(page, length=60)
    wait_for_end(page)
    assert page.evaluate(height) == before
    page.locator("#surprise .character").nth(3).hover()
    for part in page.locator("#parameters .part").all():
        part.click()
        assert page.evaluate(height) == before


# The benchmark.


def test_the_benchmark_measures_the_first_view_and_the_writing(open_page, file: Path):
    page = open_page(file, "ids")
    page.wait_for_function(READY)
    found = measure(page)
    assert len(found) == 4 and all(value > 0 for value in found.values())
