"""Our model against code that no one here wrote: PyTorch's block, transformers' GPT-2 and Llama, tokenizers."""

import json
import random

import pytest
import torch
from torch import nn

from tinygpt.files import write_json
from tinygpt.generation import continue_text
from tinygpt.huggingface import (
    FORMS,
    apart,
    form_of,
    from_form,
    make_config,
    make_generation_config,
    make_tokenizer,
    make_tokenizer_config,
    to_form,
    together,
)
from tinygpt.model import Block, causal_mask, initial_model
from tinygpt.params import ModelParams
from tinygpt.vocab import BOS, EOS, Vocab

V = 20
VOCAB = Vocab("".join(sorted("\n 。，一二三四五六七八兔小狗猫跑")))
FORM_VARIANTS = [
    {**FORMS[form], "bias": bias, "tie_embeddings": tie}
    for form in FORMS
    for bias in (True, False)
    for tie in (True, False)
]
each_form = pytest.mark.parametrize(
    "variant", FORM_VARIANTS, ids=lambda v: f"{v['position']}-bias_{v['bias']}-tie_{v['tie_embeddings']}"
)


@pytest.fixture
def make_model(tiny_params):
    """A model with weights so large that every part of it matters, biases and norms included."""

    def make(variant, **changes):
        model = initial_model(tiny_params.model_copy(update=variant | changes), V, seed=0).eval()
        rng = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter * 5 + 0.1 * torch.randn(parameter.shape, generator=rng))
        return model

    return make


def open_as_theirs(model):
    import transformers  # here: it takes seconds

    config = make_config(model)
    theirs = getattr(transformers, config["architectures"][0])(
        getattr(transformers, CONFIGS[form_of(model.params)])(**config)
    )
    missing, unexpected = theirs.load_state_dict(to_form(model), strict=False)
    assert set(missing) <= ({"lm_head.weight"} if model.params.tie_embeddings else set()) and not unexpected
    return theirs.eval()


CONFIGS = {"gpt2": "GPT2Config", "llama": "LlamaConfig"}


# The block, and the whole model, number by number.


@pytest.mark.parametrize("bias", [True, False])
def test_the_layernorm_block_is_pytorchs_encoder_layer(tiny_params, bias):
    params = tiny_params.model_copy(update={"norm": "layernorm", "bias": bias})
    ours, C = Block(params), params.n_embd
    theirs = nn.TransformerEncoderLayer(
        C, params.n_head, 4 * C, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, bias=bias
    )
    pairs = {
        "self_attn.in_proj_": ours.attention.qkv_proj,
        "self_attn.out_proj.": ours.attention.o_proj,
        "linear1.": ours.mlp.up_proj,
        "linear2.": ours.mlp.down_proj,
        "norm1.": ours.norm1,
        "norm2.": ours.norm2,
    }
    rng = torch.Generator().manual_seed(0)
    weights = {}
    for prefix, module in pairs.items():
        for name, parameter in module.named_parameters():
            parameter.data.add_(0.3 * torch.randn(parameter.shape, generator=rng))
            weights[prefix + name] = parameter
    theirs.load_state_dict(weights)
    x = torch.randn(2, 9, C, generator=rng)
    expected = theirs(x, src_mask=causal_mask(9), is_causal=True)
    assert torch.allclose(ours(x), expected, atol=1e-5)
    assert not torch.allclose(ours(x), x, atol=0.1)


@each_form
def test_the_logits_are_theirs(make_model, variant):
    model = make_model(variant)
    ids = torch.randint(V, (3, 12), generator=torch.Generator().manual_seed(2))
    ours, theirs = model(ids), open_as_theirs(model)(ids).logits
    assert ours.std() > 0.5  # nothing is nearly zero by itself
    assert torch.allclose(ours, theirs, atol=1e-4, rtol=0)


@each_form
def test_the_greedy_text_is_theirs(params, make_model, variant):
    model = make_model(variant, context_size=32)
    theirs = open_as_theirs(model)
    greedy = params.sample.model_copy(update={"top_k": 1, "max_new_chars": 24})
    texts = set()
    for prompt in ("小兔", "猫追狗", "一二三四五六"):
        ids = torch.tensor([[BOS, *VOCAB.encode(prompt).tolist()]])
        longer = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=24, pad_token_id=EOS
        )
        text = continue_text(model, VOCAB, prompt, 0, greedy).text
        assert text == VOCAB.decode(longer[0, ids.shape[1] :].tolist())
        texts.add(text)
    assert len(texts) > 1


@each_form
def test_the_weights_come_back(make_model, variant):
    model = make_model(variant)
    back = from_form(to_form(model), model.params)
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight" or not model.params.tie_embeddings:
            assert torch.equal(back[name], tensor), name
    assert set(back) == set(model.state_dict()) - ({"lm_head.weight"} if model.params.tie_embeddings else set())


def test_neighbours_are_put_apart_by_hand():
    assert apart(torch.arange(6), n_head=1).tolist() == [0, 2, 4, 1, 3, 5]
    assert apart(torch.arange(8), n_head=2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    rows = torch.arange(16).view(8, 2)
    assert torch.equal(together(apart(rows, 2), 2), rows)


# What does not fit.


def test_params_that_stand_in_the_way_are_named(params):
    with pytest.raises(ValueError) as error:
        form_of(params.model)
    assert str(error.value) == (
        "transformers knows no model of this form: "
        "gpt2 needs model.norm=layernorm (is rmsnorm), model.head_bias=false (is true); "
        "llama needs model.position=rope (is learned), model.mlp=swiglu (is gelu), model.head_bias=false (is true). "
        "Train with these, or export --format safetensors or onnx"
    )


def test_a_soft_cap_is_named_as_in_the_way(params):
    model = params.model.model_copy(update=FORMS["llama"] | {"logit_soft_cap": 15.0})
    with pytest.raises(ValueError, match=r"llama needs model\.logit_soft_cap=0\.0 \(is 15\.0\)\. Train"):
        form_of(model)


def test_every_param_of_the_model_is_asked_for_or_free():
    """A new param that changes what the model computes belongs into FORMS, or these exports would be wrong."""
    free = {"n_layer", "n_head", "n_embd", "context_size", "bias", "tie_embeddings", "dropout"}
    first_weights = {"init_std", "zero_init_outputs"}  # gone after training
    for asked in FORMS.values():
        assert set(ModelParams.model_fields) - free - first_weights == set(asked)


# The tokenizer.

TEXTS = [
    *("", "小兔跑。", "小猫跑。\n\n小狗，跑 。 ", "  两只 龍\t🐉\r\n小", "\u200b\ufeffé", "e\u0301 ﬁ", "<bos>小<unk>"),
    *("##小", "▁小", "Ġ小", "a b  c", "，" * 300),
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    import transformers  # here: it takes seconds

    folder = tmp_path_factory.mktemp("tokenizer")
    write_json(folder / "tokenizer.json", make_tokenizer(VOCAB))
    write_json(folder / "tokenizer_config.json", make_tokenizer_config(12))
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("text", TEXTS)
def test_the_tokenizer_gives_our_ids(tokenizer, text):
    ids = VOCAB.encode(text).tolist()
    assert tokenizer(text, add_special_tokens=False).input_ids == ids
    assert tokenizer(text).input_ids == [BOS, *ids]
    assert tokenizer.decode(ids, skip_special_tokens=True) == VOCAB.decode(ids)
    assert "".join(tokenizer.convert_ids_to_tokens(ids)) == tokenizer.decode(ids)


def test_the_tokenizer_on_random_characters(tokenizer):
    rng = random.Random(0)
    for _ in range(50):
        text = "".join(
            chr(rng.choice([rng.randrange(32, 0xD800), ord(rng.choice(VOCAB.characters))])) for _ in range(40)
        )
        assert tokenizer(text, add_special_tokens=False).input_ids == VOCAB.encode(text).tolist()


def test_the_tokenizer_knows_the_marks(tokenizer):
    assert len(tokenizer) == len(VOCAB)
    assert (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer.convert_tokens_to_ids("<eos>") == EOS == make_generation_config()["eos_token_id"]
    assert json.loads(json.dumps(make_tokenizer(VOCAB))) == make_tokenizer(VOCAB)
