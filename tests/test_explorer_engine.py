"""The explorer's engine in a real browser computes what PyTorch computes, from the same 16-bit weights."""

import base64
import json
import math
import re
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.explore import explore
from tests.conftest import ROOT
from tests.test_model import FURTHER, PLAIN, PRODUCT, VARIANTS, VOCAB, each, shaken
from tinygpt.checkpoint import TrainedModel, describe_model, load_model, save_checkpoint
from tinygpt.evaluation import score_stream
from tinygpt.explorer import ENGINE, PANELS, SCRIPTS, STYLES, WEB, joined, make_explorer, pack
from tinygpt.files import write_json
from tinygpt.generation import next_token_odds
from tinygpt.model import GPT, initial_model
from tinygpt.vocab import BOS, EOS, SPECIALS, Vocab
from tinygpt.writing import generate

REAL_VOCAB = Vocab("".join(chr(0x4E00 + number) for number in range(3032)))  # as many as the textbook's stories have
BEST = ROOT / "data" / "model" / "best.pt"  # of `dvc repro`, where it has run
TEXT = "小猫追兔，狗跑。一二三四五六七八小狗追猫，兔龙跑。"  # longer than two tiny contexts; one is unknown


def in_half(model: GPT) -> GPT:
    """The model with weights as 16 bits hold them."""
    model.load_state_dict({name: tensor.half().float() for name, tensor in model.state_dict().items()})
    return model


def trained(model: GPT, vocab: Vocab) -> TrainedModel:
    return TrainedModel(in_half(model), vocab, seed=0, step=0, val_nats_per_token=0.0)


def make_tiny(tiny_params, variant: dict[str, Any]) -> TrainedModel:
    """Random weights of all sizes, except that it never ends a text."""
    model = shaken(initial_model(tiny_params.model_copy(update=variant), len(VOCAB), seed=0))
    with torch.no_grad():
        model.lm_head.weight[EOS] = 0
        if model.lm_head.bias is not None:
            model.lm_head.bias[EOS] = -9
    return trained(model, VOCAB)


@pytest.fixture(scope="module")
def engine(browser):
    """A page with the engine alone; `ask` opens a model in it and runs JavaScript on it."""
    page = browser.new_page()
    page.add_script_tag(content='"use strict";\n' + joined(f"engine/{name}.js" for name in ENGINE))
    yield page
    page.close()


@pytest.fixture
def ask(engine, params):
    def ask(model: TrainedModel, code: str, **given: Any) -> Any:
        """What the expression `code` gives, with `file`, `model` and the names given; typed arrays as lists."""
        data = pack(model, {}, params.train, params.sample)
        plain = "(key, value) => (ArrayBuffer.isView(value) ? [...value] : value)"
        names = ", ".join(given)
        script = f"""([data, {{ {names} }}]) => {{
            const file = openFile(data);
            const model = file.trained;
            return JSON.stringify(({code}), {plain});
        }}"""
        return json.loads(engine.evaluate(script, [data, given]))

    return ask


@pytest.fixture(scope="module", params=["as initialised, shaken", "trained"])
def default_model(request, params) -> TrainedModel:
    """The default model at its real size, and the one in this checkout."""
    if request.param == "trained":
        if not BEST.exists():
            pytest.skip("data/model/best.pt is missing; make it: dvc repro train")
        best = load_model(BEST)
        return trained(best.model, best.vocab)
    model = initial_model(params.model, len(REAL_VOCAB), seed=0).eval()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=rng))
    return trained(model, REAL_VOCAB)


@torch.no_grad()
def logits(model: GPT, ids: list[int]) -> np.ndarray:
    return model(torch.tensor([ids]))[0].numpy()


@torch.no_grad()
def greedy_choices(model: GPT, ids: list[int], n_prompt: int) -> list[int]:
    """What the model would have written at each place of `ids` behind the prompt, seeing the last context before it."""
    S = model.params.context_size
    inside = model(torch.tensor([ids[:S]]))[0, n_prompt - 1 :].argmax(-1)
    slid = [ids[end - S : end] for end in range(S + 1, len(ids))]
    beyond = model(torch.tensor(slid))[:, -1].argmax(-1) if slid else torch.tensor([], dtype=torch.long)
    return torch.cat((inside, beyond)).tolist()[: len(ids) - n_prompt]


WRITE_GREEDILY = """(() => {
    const writer = new Writer(model, file, { prompt, seed: 0, temperature: 0, top_k: 0, max_new_chars: 100 });
    while (!writer.done) writer.next();
    return { ids: writer.ids, text: writer.text, reason: writer.reason, window: writer.window };
})()"""


# The model.


@each(PRODUCT)
def test_scores_are_pytorchs_read_at_once_or_bit_by_bit(ask, tiny_params, variant):
    tiny = make_tiny(tiny_params, variant)
    ids = [BOS, *VOCAB.encode(TEXT[:11]).tolist()]
    code = """(() => {
        const cache = model.newCache();
        const parts = [[0, 5], [5, 6], [6, 12]];
        return { whole: model.forward(ids), parts: parts.map((part) => model.read(ids.slice(...part), cache)) };
    })()"""
    answer = ask(tiny, code, ids=ids)
    expected = logits(tiny.model, ids)
    assert np.abs(np.reshape(answer["whole"], expected.shape) - expected).max() < 1e-4
    assert np.abs(np.array(answer["parts"]) - expected[[4, 5, 11]]).max() < 1e-4


@each(VARIANTS)
def test_100_characters_are_those_that_pytorch_finds_likeliest(ask, tiny_params, variant):
    """Far beyond the context of 12, where the window slides."""
    tiny = make_tiny(tiny_params, variant)
    answer = ask(tiny, WRITE_GREEDILY, prompt="小猫")
    assert len(answer["ids"]) == 103 and answer["reason"] == "length"
    assert answer["window"] == {"start": 91, "length": 12}
    assert answer["ids"][3:] == greedy_choices(tiny.model, answer["ids"], 3)
    assert answer["text"] == "小猫" + VOCAB.decode(answer["ids"][3:])


def test_the_default_models_scores_and_continuation(ask, default_model):
    """The second half of the 100 characters is written beyond the context."""
    model, vocab = default_model.model, default_model.vocab
    prompt = (vocab.characters * 2)[200:280]
    answer = ask(default_model, WRITE_GREEDILY, prompt=prompt)
    assert answer["ids"][81:] == greedy_choices(model, answer["ids"], 81)
    if answer["reason"] == "length":
        assert answer["window"] == {"start": 53, "length": 128}
    window = answer["ids"][:128]
    scores = ask(default_model, "model.forward(ids)", ids=window)
    expected = logits(model, window)
    assert np.abs(np.reshape(scores, expected.shape) - expected).max() < 1e-3


def test_a_soft_cap_bends_the_scores(ask, tiny_params):
    tiny = make_tiny(tiny_params, PLAIN)
    code = "new GPT({ ...model.params, logit_soft_cap: 2 }, model.weights).forward(ids)"
    capped = ask(tiny, code, ids=[1, 3, 4])
    assert np.abs(capped - (2 * np.tanh(logits(tiny.model, [1, 3, 4]) / 2)).ravel()).max() < 1e-4


def test_more_than_the_context_is_refused(ask, tiny_params):
    tiny = make_tiny(tiny_params, PLAIN)
    code = "(() => { try { model.forward(Array(13).fill(3)); } catch (error) { return error.message; } })()"
    assert ask(tiny, code) == "0 + 13 ids to read, but context_size is 12"


# What it computes on its way.


@torch.no_grad()
def trace(model: GPT, ids: list[int], causal: bool, scaled: bool) -> dict[str, Any]:
    """The engine's trace, by the modules of the model; heads as (H, T, D)."""
    T, C = len(ids), model.params.n_embd
    tokens = model.token_embedding.weight[ids]
    positions = model.position_embedding.weight[:T] if model.params.position == "learned" else None
    x = tokens if positions is None else tokens + positions
    result: dict[str, Any] = {"tokenVectors": tokens, "positionVectors": positions, "input": x, "blocks": []}
    for block in model.blocks:
        seen = {"input": x, "norm1": block.norm1(x)}
        seen["shifted1"] = block.shift1(seen["norm1"][None])[0]
        attention = block.attention
        q, k, v = (part.view(T, -1, C // 2).transpose(0, 1) for part in _qkv(attention, seen["shifted1"]))
        q, k = attention.q_norm(q), attention.k_norm(k)
        turn = attention.rotate or (lambda heads: heads)
        turned_q, turned_k = turn(q[None])[0], turn(k[None])[0]
        scores = turned_q @ turned_k.transpose(1, 2)
        if scaled:
            scores = scores / math.sqrt(q.shape[-1])
        weights = (scores + attention.mask[:T, :T] if causal else scores).softmax(-1)
        heads = weights @ v
        seen |= {"q": q, "k": k, "v": v, "qRotated": turned_q, "kRotated": turned_k}
        seen |= {"scores": scores, "weights": weights, "heads": heads}
        seen["attentionOut"] = attention.o_proj(heads.transpose(0, 1).reshape(T, C))
        seen["afterAttention"] = x + seen["attentionOut"]
        seen["norm2"] = block.norm2(seen["afterAttention"])
        seen["shifted2"] = block.shift2(seen["norm2"][None])[0]
        block.mlp.down_proj.register_forward_hook(lambda _, given, __, seen=seen: seen.update(mlpWide=given[0]))
        seen["mlpOut"] = block.mlp(seen["shifted2"])
        seen["output"] = x = seen["afterAttention"] + seen["mlpOut"]
        result["blocks"].append(seen)
    result["final"] = model.final_norm(x)
    result["logits"] = model.lm_head(result["final"])
    return result


def _qkv(attention, x: Tensor) -> tuple[Tensor, ...]:
    return attention.qkv_proj(x).chunk(3, dim=-1)


SWITCHES = [(True, True), (False, True), (True, False), (False, False)]


@pytest.mark.parametrize(("causal", "scaled"), SWITCHES)
@each([VARIANTS[0], VARIANTS[40], VARIANTS[70], *FURTHER[:1]])
def test_a_trace_is_what_the_modules_compute_with_each_switch(ask, tiny_params, variant, causal, scaled):
    tiny = make_tiny(tiny_params, variant)
    ids = [BOS, *VOCAB.encode(TEXT[:9]).tolist()]
    answer = ask(tiny, "model.trace(ids, { causal, scaled })", ids=ids, causal=causal, scaled=scaled)
    expected = trace(tiny.model, ids, causal, scaled)
    if causal and scaled:
        assert np.abs(expected["logits"].numpy() - logits(tiny.model, ids)).max() < 1e-4
    assert answer.pop("ids") == ids and answer.pop("T") == len(ids)
    pairs = list(zip(answer.pop("blocks"), expected.pop("blocks"), strict=True))
    for found, wanted in [(answer, expected), *pairs]:
        assert found.keys() == wanted.keys()
        for name, tensor in wanted.items():
            if tensor is None:
                assert found[name] is None
            else:
                difference = np.ravel(found[name]) - tensor.detach().numpy().ravel()
                assert np.abs(difference).max() < 1e-4, name


def test_the_head_reads_the_vector_of_any_layer(ask, tiny_params):
    tiny = make_tiny(tiny_params, FURTHER[0])
    ids = [BOS, 5, 7, 3]
    answer = ask(tiny, "model.trace(ids).blocks.map((block) => model.headLogits(block.output.slice(-16)))", ids=ids)
    blocks = trace(tiny.model, ids, True, True)["blocks"]
    for found, block in zip(answer, blocks, strict=True):
        with torch.no_grad():
            expected = tiny.model.lm_head(tiny.model.final_norm(block["output"][-1])).numpy()
        assert np.abs(found - expected).max() < 1e-4


def test_a_rotated_dot_product_depends_on_the_distance_alone(engine):
    code = """() => [[0, 3], [5, 8], [700, 703], [5, 9]].map(([m, n]) => {
        const [q, k] = [Float32Array.of(1, 2, -1, 0.5), Float32Array.of(0.5, -1, 2, 1)];
        return dot(rotate(q, m), 0, rotate(k, n), 0, 4);
    })"""
    same, one, another, further = engine.evaluate(code)
    assert one == pytest.approx(same, abs=1e-4) and another == pytest.approx(same, abs=1e-4)
    assert abs(further - same) > 0.1


# Odds, draws, surprise.


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.8, 40), (0.3, 5), (2.0, 1), (1.0, 999), (0, 0)])
def test_odds_are_pytorchs(engine, temperature, top_k):
    scores = torch.randn(300, generator=torch.Generator().manual_seed(0))
    scores[[3, 7]] = scores.topk(5).values[-1]  # three share the last place that top_k 5 leaves
    given = [scores.tolist(), {"temperature": temperature, "top_k": top_k}]
    answer = engine.evaluate("([scores, options]) => [...odds(Float32Array.from(scores), options)]", given)
    assert answer == pytest.approx(next_token_odds(scores, temperature, top_k).tolist(), abs=1e-6)


def test_a_seed_draws_what_pytorch_draws(engine):
    odds = torch.rand(200, 3035, generator=torch.Generator().manual_seed(1)).softmax(-1)
    rng = torch.Generator().manual_seed(2**32 + 5)
    expected = [int(torch.multinomial(row, 1, generator=rng)) for row in odds[:20]]
    code = """([rows, seed]) => {
        const random = new MersenneTwister(seed);
        return rows.map((row) => draw(Float32Array.from(row), random));
    }"""
    assert engine.evaluate(code, [odds[:20].tolist(), 2**32 + 5]) == expected


def test_a_seed_writes_the_text_that_the_sample_stage_writes(ask, default_model, params):
    """After training and before; with prompts, seeds and temperature of params.yaml, until the window slides."""
    vocab, settings = default_model.vocab, params.sample
    prompts = settings.prompts[:2]
    code = """[file.trained, file.untrained].map((model) => prompts.map((prompt, i) => {
        const writer = new Writer(model, file, { ...file.params.sample, prompt, seed: file.params.sample.seed + i });
        while (!writer.done) writer.next();
        return [writer.text, writer.reason];
    }))"""
    after, before = ask(default_model, code, prompts=prompts)
    untrained = initial_model(default_model.model.params, len(vocab), default_model.seed).eval()
    seeds = [settings.seed, settings.seed + 1]
    for model, answer in ((default_model.model, after), (untrained, before)):
        for prompt, written, (text, reason) in zip(
            prompts, generate(model, vocab, prompts, seeds, settings), answer, strict=True
        ):
            assert text == prompt + written.text
            assert reason == {"eos": "eos", "limit": "length"}[written.ended_by]


def test_a_text_ends_with_eos(ask, tiny_params):
    tiny = make_tiny(tiny_params, PLAIN)
    with torch.no_grad():
        tiny.model.lm_head.bias[EOS] = 99
    answer = ask(tiny, WRITE_GREEDILY, prompt="")
    assert answer == {"ids": [BOS], "text": "", "reason": "eos", "window": {"start": 0, "length": 1}}


@each([VARIANTS[0], VARIANTS[40], *FURTHER[:1]])
def test_surprise_is_the_evaluations(ask, tiny_params, variant):
    tiny = make_tiny(tiny_params, variant)
    answer = ask(tiny, "surprise(model, file, text)", text=TEXT)
    scores = score_stream(tiny.model, np.array([BOS, *VOCAB.encode(TEXT)], dtype=np.uint16))
    assert "".join(entry["char"] for entry in answer) == TEXT
    assert [entry["id"] for entry in answer] == VOCAB.encode(TEXT).tolist()
    assert [entry["nats"] for entry in answer] == pytest.approx(scores.nats.tolist(), abs=1e-4)
    assert [entry["top"][0][0] for entry in answer] == scores.top_id.tolist()
    assert [entry["top"][0][1] for entry in answer] == pytest.approx(scores.top_p.tolist(), abs=1e-4)
    for entry in answer:
        shares = [p for _, p in entry["top"]]
        assert len(shares) == 5 and shares == sorted(shares, reverse=True)


def test_no_text_has_no_surprise(ask, tiny_params):
    assert ask(make_tiny(tiny_params, PLAIN), "surprise(model, file, '')") == []


# Before training.


def initial(ask, tiny: TrainedModel) -> dict[str, list[float]]:
    code = "Object.fromEntries(Object.entries(file.untrained.weights).map(([name, { data }]) => [name, data]))"
    return ask(tiny, code)


@each([*VARIANTS, *({"n_embd": size} for size in (2, 6, 10))])  # of 6: rests of less than 16; of 2: matrices of 4
def test_the_untrained_model_is_the_one_that_training_began_with(ask, tiny_params, variant):
    tiny = make_tiny(tiny_params, {"init_std": 0.5} | variant)
    expected = initial_model(tiny.model.params, len(VOCAB), tiny.seed).state_dict()
    answer = initial(ask, tiny)
    assert list(answer) == list(expected)
    for name, tensor in expected.items():
        assert answer[name] == pytest.approx(tensor.flatten().tolist(), abs=1e-6), name


# The kernel.


@pytest.mark.parametrize("fused", [True, False])
def test_the_kernel_multiplies_like_the_plain_form(engine, fused):
    code = """(fused) => {
        const bytes = kernelBytes(fused);
        if (!WebAssembly.validate(bytes)) return null;
        const random = new MersenneTwister(0);
        const numbers = (n) => Float32Array.from({ length: n }, () => random.normal53());
        const [plain, fast] = [new Products(), new FastProducts(new WebAssembly.Module(bytes))];
        let worst = 0;
        for (const [T, I, O] of [[1, 1, 1], [6, 8, 8], [7, 5, 9], [13, 3, 16], [24, 16, 7], [12, 40, 300]]) {
            const [x, weight, bias] = [numbers(T * I), numbers(O * I), numbers(O)];
            const compare = (a, b) => {
                if (a.length !== b.length) throw new Error("lengths differ");
                a.forEach((value, i) => (worst = Math.max(worst, Math.abs(value - b[i]))));
            };
            for (const maybe of [bias, null]) {
                const kept = [plain, fast].map((products) => products.keep(weight, maybe, O));
                compare(plain.linear(x, T, kept[0]), fast.linear(x, T, kept[1]));
            }
            compare(plain.timesTransposed(x, T, weight, O), fast.timesTransposed(x, T, weight, O));
            compare(plain.times(x, T, weight, I), fast.times(x, T, weight, I));
        }
        return worst;
    }"""
    worst = engine.evaluate(code, fused)
    if worst is None:
        pytest.skip("this browser has no fused multiplication of vectors")
    assert 0 < worst < 1e-4  # never 0: the one adds in 64 bits, the other in 32


def test_a_browser_without_the_kernel_computes_the_same(ask, tiny_params):
    tiny = make_tiny(tiny_params, FURTHER[0])
    code = "new GPT(model.params, model.weights, new Products()).forward(ids)"
    scores = ask(tiny, code, ids=[1, 3, 4, 5])
    assert np.abs(scores - logits(tiny.model, [1, 3, 4, 5]).ravel()).max() < 1e-4


# The file.


@pytest.fixture
def tiny(tiny_params) -> TrainedModel:
    return make_tiny(tiny_params, PLAIN | {"tie_embeddings": False})


@pytest.fixture
def packed(tiny, params) -> str:
    return pack(tiny, {"best_step": 7}, params.train, params.sample)


def test_the_page_knows_its_vocabulary_params_and_parts(ask, tiny, params):
    answer = ask(tiny, "{ ...file, vocab: file.vocab.entries, trained: 0, untrained: 0 }")
    assert answer["vocab"] == [*SPECIALS, *VOCAB.characters]
    assert [answer[name] for name in ("UNK", "BOS", "EOS")] == [0, 1, 2]
    assert answer["params"]["model"] == tiny.model.params.model_dump() and answer["params"]["seed"] == 0
    assert answer["params"]["sample"] == params.sample.model_dump()
    assert sum(count for _, _, count in answer["parts"]) == sum(each.numel() for each in tiny.model.parameters())


@pytest.mark.parametrize("text", ["", "小猫龙，🐉 a\n", "e\u0301", "👨‍👩‍👧"])
def test_encoding_is_pythons(ask, tiny, text):
    ids, decoded = ask(
        tiny, "[file.vocab.encode(text), file.vocab.decode([1, ...file.vocab.encode(text), 2])]", text=text
    )
    assert ids == VOCAB.encode(text).tolist() and decoded == VOCAB.decode(ids)


def test_each_entry_can_be_shown(ask, params, tiny_params):
    vocab = Vocab("\t\n \u3000小")
    model = initial_model(tiny_params, len(vocab), seed=0).eval()
    shown = ask(trained(model, vocab), "file.vocab.entries.map((_, id) => file.vocab.show(id))")
    assert shown == [*SPECIALS, "⇥", "↵", "␣", "␣", "小"]


DAMAGES = {
    "a letter": lambda text: text[:-90] + ("A" if text[-90] != "A" else "B") + text[-89:],
    "the end": lambda text: text[:-100],
    "the middle": lambda text: text[:500] + text[600:],
    "a param": lambda text: text.replace('"n_layer": 2', '"n_layer": 3'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_data_names_both_checksums(engine, packed, damage):
    message = open_error(engine, DAMAGES[damage](packed))
    checksums = re.fullmatch(r".* is damaged: its checksum is (\w{8}), not (\w{8})\.", message)
    assert checksums[1] != checksums[2] == packed[6:14]


@pytest.mark.parametrize("keep", [0, 3, 13])
def test_data_that_is_not_there_at_all(engine, packed, keep):
    assert "no checksum" in open_error(engine, packed[:keep])


def open_error(engine, text: str) -> str:
    return engine.evaluate("(text) => { try { openFile(text); } catch (error) { return error.message; } }", text)


# Without a browser: what the stage writes.


def test_the_weights_are_packed_as_16_bits(tiny, packed):
    content = json.loads(packed.partition("\n")[2])
    numbers = np.frombuffer(base64.b64decode(content["weights"]), dtype="<f2")
    place = 0
    for name, tensor in tiny.model.state_dict().items():
        part = numbers[place : place + tensor.numel()].astype(np.float32).reshape(content["shapes"][name])
        assert np.array_equal(part, tensor.numpy()), name
        place += tensor.numel()
    assert place == len(numbers)


def test_a_shared_matrix_is_packed_once(tiny_params, params):
    content = json.loads(pack(make_tiny(tiny_params, {"tie_embeddings": True}), {}, params.train, params.sample)[15:])
    n_numbers = len(base64.b64decode(content["weights"])) // 2
    assert n_numbers == sum(count for _, _, count in content["parts"])
    assert content["shapes"]["lm_head.weight"] == [len(VOCAB), 16]


def test_a_weight_beyond_16_bits_is_named(tiny, params):
    with torch.no_grad():
        tiny.model.blocks[1].mlp.up_proj.bias[3] = 70000
    with pytest.raises(ValueError, match=r"blocks\.1\.mlp\.up_proj\.bias has a weight of 70000, .* 16 bits"):
        pack(tiny, {}, params.train, params.sample)


def test_no_text_of_the_data_can_end_its_element(tiny_params, params):
    vocab = Vocab("".join(sorted("</script>!-")))
    model = trained(initial_model(tiny_params, len(vocab), seed=0).eval(), vocab)
    sample = params.sample.model_copy(update={"prompts": ["</script><!--"]})
    text = pack(model, {}, params.train, sample)
    assert "<" not in text and text.isascii()
    assert json.loads(text[15:])["params"]["sample"]["prompts"] == ["</script><!--"]


def test_the_default_page_is_small_and_loads_nothing(params):
    model = initial_model(params.model, len(REAL_VOCAB), seed=0).eval()
    page = make_explorer(pack(trained(model, REAL_VOCAB), {}, params.train, params.sample))
    assert len(page.encode("utf-8")) < 5e6
    assert page.lower().count("<script") == page.lower().count("</script") == 2
    code = re.sub(r"crc32 [^<]*", "", page).replace("http://www.w3.org/", "")  # the names of SVG and the like
    assert not re.search(r"https?:|\bsrc\s*=|@import|\bimport\b\s*[({\"']|fetch\(|XMLHttpRequest|WebSocket", code)
    assert all(target.startswith(("#", "data:,")) for target in re.findall(r'href="([^"]*)"', code))
    assert not re.search(r"url\((?!#)", code)


def test_the_stage_writes_a_page_with_the_figures_of_the_run(tmp_path, monkeypatch, capsys, tiny):
    monkeypatch.chdir(ROOT)
    content = describe_model(tiny.model, tiny.model.state_dict(), VOCAB, seed=0)
    save_checkpoint(tmp_path / "best.pt", content | {"step": 7, "val_nats_per_token": 2.5})
    test = {"model": {"nats_per_token": 2.25}, "baseline": {"nats_per_token": 4.5}, "n_stories": 3}
    write_json(tmp_path / "metrics.json", {"best_step": 7, "test": test})
    write_json(tmp_path / "split.json", {"train": {"n_stories": 40, "n_chars": 9000}})
    page = tmp_path / "explorer.html"
    explore(tmp_path, tmp_path / "split.json", tmp_path / "metrics.json", page, ["sample.seed=5"])
    data = re.search(r"crc32 (\w{8})\n(.*)\n", page.read_text(encoding="utf-8"))
    assert f"{zlib.crc32(data[2].encode()):08x}" == data[1]
    written = json.loads(data[2])
    assert written["params"]["sample"]["seed"] == 5
    assert written["metrics"] == {
        "best_step": 7,
        "n_parameters": sum(each.numel() for each in tiny.model.parameters()),
        "test": {"nats_per_token": 2.25},
        "baseline": {"nats_per_token": 4.5},
        "test_stories": 3,
        "training_stories": 40,
        "training_characters": 9000,
    }
    assert "explore: 0.2 MB, the model inside" in capsys.readouterr().out
    write_json(tmp_path / "metrics.json", {"best_step": 8, "test": test})
    with pytest.raises(ValueError, match=r"about another model than .*; run first: dvc repro evaluate"):
        explore(tmp_path, tmp_path / "split.json", tmp_path / "metrics.json", page)


def test_every_source_is_joined_and_no_name_is_given_twice():
    assert {path.relative_to(WEB).as_posix() for path in WEB.rglob("*.*")} == {*SCRIPTS, *STYLES, "index.html"}
    assert len(PANELS) == 8
    names = re.findall(r"^(?:async )?(?:function\*?|class|const|let) (\w+)", joined(SCRIPTS), re.MULTILINE)
    assert sorted(names) == sorted(set(names))
