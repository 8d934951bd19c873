"""The same model under the names of Hugging Face's transformers: GPT-2 or Llama, and the tokenizer.

Plain dictionaries, so that transformers is not needed here; tests/test_huggingface.py opens what comes out
with it and compares.

Shapes: C channel (n_embd), D head size, H head, V vocabulary.
"""

from typing import Any

import torch
from torch import Tensor

from tinygpt.model import GPT, mlp_width
from tinygpt.params import ModelParams
from tinygpt.vocab import BOS, EOS, SPECIALS, UNK, Vocab

# What a form asks of `model:`; the params that are not here are free.
FORMS = {
    "gpt2": {
        "norm": "layernorm",
        "position": "learned",
        "mlp": "gelu",
        "head_bias": False,
        "qk_norm": False,
        "token_shift": False,
        "logit_soft_cap": 0.0,
    },
    "llama": {
        "norm": "rmsnorm",
        "position": "rope",
        "mlp": "swiglu",
        "head_bias": False,
        "qk_norm": False,
        "token_shift": False,
        "logit_soft_cap": 0.0,
    },
}

# Parts of a weight's name: ours, theirs.
NAMES = {
    "gpt2": {
        "token_embedding": "transformer.wte",
        "position_embedding": "transformer.wpe",
        "blocks.": "transformer.h.",
        "norm1": "ln_1",
        "attention.qkv_proj": "attn.c_attn",
        "attention.o_proj": "attn.c_proj",
        "norm2": "ln_2",
        "mlp.up_proj": "mlp.c_fc",
        "mlp.down_proj": "mlp.c_proj",
        "final_norm": "transformer.ln_f",
    },
    "llama": {
        "token_embedding": "model.embed_tokens",
        "blocks.": "model.layers.",
        "norm1.scale": "input_layernorm.weight",
        "attention.": "self_attn.",
        "norm2.scale": "post_attention_layernorm.weight",
        "final_norm.scale": "model.norm.weight",
    },
}


def form_of(params: ModelParams) -> str:
    """gpt2 or llama.

    Raises:
        ValueError: neither can hold this model; names the params in the way and what they would have to be.
    """
    in_the_way = {}
    for form, asked in FORMS.items():
        different = {name: value for name, value in asked.items() if getattr(params, name) != value}
        if not different:
            return form
        in_the_way[form] = ", ".join(
            f"model.{name}={_yaml(value)} (is {_yaml(getattr(params, name))})" for name, value in different.items()
        )
    needs = "; ".join(f"{form} needs {changes}" for form, changes in in_the_way.items())
    raise ValueError(
        f"transformers knows no model of this form: {needs}. Train with these, or export --format safetensors or onnx"
    )


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def to_form(model: GPT) -> dict[str, Tensor]:
    """The weights under their names, in their layout; a shared lm_head is left out, as they do.

    GPT-2 holds the matrices of its blocks transposed and always has biases: zeros where we have none.
    Llama has q, k and v apart, and rotates channel i with channel i + D / 2 where we rotate neighbours.
    """
    params = model.params
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    if params.tie_embeddings:
        del weights["lm_head.weight"]
    form = form_of(params)
    weights = _to_gpt2(weights) if form == "gpt2" else _to_llama(weights, params.n_head)
    return {_renamed(name, NAMES[form]): tensor.contiguous() for name, tensor in weights.items()}


def from_form(theirs: dict[str, Tensor], params: ModelParams) -> dict[str, Tensor]:
    """The inverse of `to_form`."""
    form = form_of(params)
    back = {their: our for our, their in NAMES[form].items()}
    weights = {_renamed(name, back): tensor for name, tensor in theirs.items()}
    return _from_gpt2(weights, params.bias) if form == "gpt2" else _from_llama(weights, params)


def _renamed(name: str, parts: dict[str, str]) -> str:
    for part, new in parts.items():
        name = name.replace(part, new)
    return name


def _to_gpt2(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    result = {name: tensor.T if _is_transposed(name) else tensor for name, tensor in weights.items()}
    for name, tensor in weights.items():
        bias = name.replace(".weight", ".bias")
        if "embedding" not in name and "lm_head" not in name and bias not in weights:
            result[bias] = torch.zeros(len(tensor))
    return result


def _from_gpt2(weights: dict[str, Tensor], bias: bool) -> dict[str, Tensor]:
    kept = {name: tensor for name, tensor in weights.items() if bias or not name.endswith(".bias")}
    return {name: tensor.T if _is_transposed(name) else tensor for name, tensor in kept.items()}


def _is_transposed(name: str) -> bool:
    return name.endswith("_proj.weight")


def _to_llama(weights: dict[str, Tensor], n_head: int) -> dict[str, Tensor]:
    result = {}
    for name, tensor in weights.items():
        if "qkv_proj" in name:
            q, k, v = tensor.chunk(3)  # (C, C) each, or (C,)
            for letter, part in (("q", apart(q, n_head)), ("k", apart(k, n_head)), ("v", v)):
                result[name.replace("qkv", letter)] = part
        else:
            result[name] = tensor
    return result


def _from_llama(weights: dict[str, Tensor], params: ModelParams) -> dict[str, Tensor]:
    result = {}
    for name, tensor in weights.items():
        if ".q_proj" in name:
            k, v = (weights[name.replace("q_proj", f"{letter}_proj")] for letter in "kv")
            joined = torch.cat([together(tensor, params.n_head), together(k, params.n_head), v])
            result[name.replace("q_proj", "qkv_proj")] = joined
        elif ".k_proj" not in name and ".v_proj" not in name:
            result[name] = tensor
    return result


def apart(rows: Tensor, n_head: int) -> Tensor:
    """In each head the even channels first, then the odd ones: (C, ...) -> (C, ...).

    Example: with one head, channels 0 1 2 3 4 5 come as 0 2 4 1 3 5.
    """
    return rows.view(n_head, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def together(rows: Tensor, n_head: int) -> Tensor:
    """The inverse of `apart`."""
    return rows.view(n_head, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def make_config(model: GPT) -> dict[str, Any]:
    """config.json: the shape in their words. Llama's dropout, for training on, is that of attention alone."""
    params = model.params
    common = {
        "vocab_size": model.token_embedding.num_embeddings,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "tie_word_embeddings": params.tie_embeddings,
        "dtype": "float32",
    }
    if form_of(params) == "gpt2":
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "n_positions": params.context_size,
            "n_embd": params.n_embd,
            "n_layer": params.n_layer,
            "n_head": params.n_head,
            "n_inner": mlp_width(params),
            "activation_function": "gelu",
            "layer_norm_epsilon": model.final_norm.eps,
            **dict.fromkeys(("embd_pdrop", "attn_pdrop", "resid_pdrop"), params.dropout),
            **common,
        }
    theta = 10000.0
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "max_position_embeddings": params.context_size,
        "hidden_size": params.n_embd,
        "intermediate_size": mlp_width(params),
        "num_hidden_layers": params.n_layer,
        "num_attention_heads": params.n_head,
        "num_key_value_heads": params.n_head,
        "hidden_act": "silu",
        "rms_norm_eps": model.final_norm.eps,
        "attention_bias": params.bias,
        "mlp_bias": params.bias,
        "attention_dropout": params.dropout,
        "rope_theta": theta,  # where transformers 4 looks for it; 5 looks below
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        **common,
    }


def make_generation_config() -> dict[str, int]:
    """generation_config.json: where a text ends, and what fills up the shorter ones of a batch."""
    return {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": EOS}


def make_tokenizer(vocab: Vocab) -> dict[str, Any]:
    """tokenizer.json of the `tokenizers` library: one token a character, our ids, `<bos>` in front."""
    ids = {token: id for id, token in enumerate((*SPECIALS, *vocab.characters))}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bos = {"SpecialToken": {"id": SPECIALS[BOS], "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": id, "content": name, **plain} for id, name in enumerate(SPECIALS)],
        "normalizer": None,
        # [\s\S]: any character, line ends too
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [bos, first],
            "pair": [bos, first, second],
            "special_tokens": {SPECIALS[BOS]: {"id": SPECIALS[BOS], "ids": [BOS], "tokens": [SPECIALS[BOS]]}},
        },
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": SPECIALS[UNK]},
    }


def make_tokenizer_config(context_size: int) -> dict[str, Any]:
    """tokenizer_config.json. A text that holds the characters `<bos>` means these characters, as it does here."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": SPECIALS[UNK],
        "bos_token": SPECIALS[BOS],
        "eos_token": SPECIALS[EOS],
        "model_max_length": context_size,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
    }
