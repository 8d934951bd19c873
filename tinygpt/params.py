"""params.yaml as typed, checked values: a mistake ends here, before any work is done."""

import codecs
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

SPLITS = ("train", "val", "test")


class Section(BaseModel):
    """A part of params.yaml: no unknown keys, no defaults, no silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class DownloadParams(Section):
    source: Literal["bundled", "files", "hub"]
    files: list[str]
    text_column: str = Field(min_length=1)
    text_layout: Literal["file", "line", "block"]
    text_separator: str
    encoding: str

    hub_repo: str
    hub_revision: str
    hub_split: str
    hub_files: list[str]
    max_chars: int | None = Field(ge=1)
    max_stories: int | None = Field(ge=1)

    @field_validator("encoding")
    @classmethod
    def _known(cls, name: str) -> str:
        if name != "auto":
            try:
                codecs.lookup(name)
            except LookupError:
                raise ValueError("there is no such encoding; auto finds it, or try utf-8, gb18030, big5") from None
        return name


class CleanParams(Section):
    html: bool
    escapes: bool
    line_ends: bool
    controls: bool
    invisible: bool
    replacement: bool
    nfc: bool
    headers: bool
    spaced: bool
    unwrap: bool
    indents: bool
    blank_lines: bool
    halfwidth: bool
    script: Literal["keep", "simplified", "traditional"]
    min_chars: int = Field(ge=1)
    max_chars: int = Field(ge=1)
    placeholders: bool
    refusals: bool
    max_broken_share: float = Field(ge=0, le=1)
    min_chinese_share: float = Field(ge=0, le=1)
    max_repeated_share: float = Field(gt=0, le=1)

    @model_validator(mode="after")
    def _check(self) -> "CleanParams":
        if self.min_chars > self.max_chars:
            raise ValueError(f"min_chars = {self.min_chars} is above max_chars = {self.max_chars}")
        return self


class SplitParams(Section):
    seed: int
    near_duplicates: Literal["drop", "together", "ignore"]
    similarity: float = Field(ge=0.3, le=1)
    audit_stories: int = Field(ge=1)
    val_share: float = Field(gt=0, lt=1)
    test_share: float = Field(gt=0, lt=1)
    train_chars: int = Field(ge=1)
    val_chars: int = Field(ge=1)
    test_chars: int = Field(ge=1)

    @model_validator(mode="after")
    def _check(self) -> "SplitParams":
        if self.val_share + self.test_share >= 1:
            raise ValueError(f"val_share + test_share = {self.val_share + self.test_share} leaves nothing to train on")
        return self


class VocabParams(Section):
    min_count: int = Field(ge=1)


class ModelParams(Section):
    n_layer: int = Field(ge=1)
    n_head: int = Field(ge=1)
    n_embd: int = Field(ge=1)
    context_size: int = Field(ge=1)
    norm: Literal["rmsnorm", "layernorm"]
    position: Literal["learned", "rope"]
    mlp: Literal["gelu", "relu2", "swiglu"]
    bias: bool
    head_bias: bool
    tie_embeddings: bool
    qk_norm: bool
    token_shift: bool
    logit_soft_cap: float = Field(ge=0)
    dropout: float = Field(ge=0, lt=1)
    init_std: float = Field(gt=0)
    zero_init_outputs: bool

    @model_validator(mode="after")
    def _check(self) -> "ModelParams":
        if self.n_embd % self.n_head:
            raise ValueError(
                f"n_embd = {self.n_embd} does not divide by n_head = {self.n_head}: "
                "every head takes an equal share of the channels"
            )
        if self.position == "rope" and (self.n_embd // self.n_head) % 2:
            raise ValueError(
                f"position = rope rotates pairs of channels, but n_embd / n_head = {self.n_embd // self.n_head} is odd"
            )
        return self


class TrainParams(Section):
    batch_size: int = Field(ge=1)
    max_steps: int = Field(ge=1)
    story_start_share: float = Field(ge=0, le=1)
    optimizer: Literal["adamw", "muon"]
    learning_rate: float = Field(gt=0)
    muon_learning_rate: float = Field(gt=0)
    embedding_lr_ratio: float = Field(gt=0)
    head_lr_ratio: float = Field(gt=0)
    schedule: Literal["cosine", "linear"]
    warmup_steps: int = Field(ge=0)
    decay_share: float = Field(gt=0, le=1)
    min_lr_ratio: float = Field(ge=0, le=1)
    weight_decay: float = Field(ge=0)
    beta1: float = Field(ge=0, lt=1)
    beta2: float = Field(ge=0, lt=1)
    grad_clip: float = Field(gt=0)
    ema_decay: float = Field(ge=0, lt=1)
    max_seconds: float | None = Field(gt=0)
    patience: int | None = Field(ge=1)
    grad_accum: int = Field(ge=1)
    precision: Literal["auto", "fp32", "bf16"]
    compile: Literal["off", "on", "auto"]
    eval_every: int = Field(ge=1)
    eval_windows: int = Field(ge=1)

    @model_validator(mode="after")
    def _check(self) -> "TrainParams":
        if self.batch_size % self.grad_accum:
            raise ValueError(f"batch_size = {self.batch_size} does not divide by grad_accum = {self.grad_accum}")
        return self


class EvaluateParams(Section):
    stride: int | None = Field(ge=1)
    baseline_tokens: int = Field(ge=1)
    n_bootstrap: int = Field(ge=100)
    seed: int = Field(ge=0)


class SampleParams(Section):
    prompts: list[str] = Field(min_length=1)
    n_samples: int = Field(ge=1)
    seed: int = Field(ge=0)
    temperature: float = Field(ge=0)
    top_k: int = Field(ge=0)
    top_p: float = Field(gt=0, le=1)
    min_p: float = Field(ge=0, le=1)
    repetition_penalty: float = Field(gt=0)
    max_new_chars: int = Field(ge=1)
    stop: list[Annotated[str, Field(min_length=1)]]
    forbid_unknown: bool
    overflow: Literal["slide", "shift", "roll"]
    n_stories: int = Field(ge=1)


class ReportParams(Section):
    language: Literal["en", "zh"]
    sentence: str = Field(min_length=1)


class RuntimeParams(Section):
    device: Literal["auto", "cpu", "cuda", "mps"]
    n_threads: int = Field(ge=0)
    n_procs: int = Field(ge=1)


class Params(Section):
    seed: int = Field(ge=0)
    download: DownloadParams
    clean: CleanParams
    split: SplitParams
    vocab: VocabParams
    model: ModelParams
    train: TrainParams
    evaluate: EvaluateParams
    sample: SampleParams
    report: ReportParams
    runtime: RuntimeParams

    @model_validator(mode="after")
    def _check(self) -> "Params":
        if self.sample.overflow == "roll" and self.model.position != "rope":
            raise ValueError(
                f"sample.overflow = roll needs model.position = rope, not {self.model.position}; use slide or shift"
            )
        return self


def load_params(path: Path, overrides: list[str] | None = None) -> Params:
    """Read `path`, apply `key.subkey=value` overrides, check everything.

    Raises:
        ValueError: names the key, the value and what would be right.
    """
    # ruamel reads YAML 1.2 as DVC does; PyYAML would turn 1e-3 into a string.
    values = _parse_yaml(path.read_text(encoding="utf-8"), str(path))
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds no sections; restore it with: git checkout {path}")
    for override in overrides or []:
        _apply_override(values, override)
    try:
        return Params.model_validate(values)
    except ValidationError as error:
        raise ValueError("\n".join(_explain(detail, path) for detail in error.errors())) from None


def _parse_yaml(text: str, where: str) -> Any:
    try:
        return YAML(typ="safe").load(text)
    except YAMLError as error:
        raise ValueError(f"{where} is not valid YAML: {error}") from None


def _apply_override(values: dict, override: str) -> None:
    """Set one existing key: `train.max_steps=50` or `sample.prompts.0=从前`."""
    key, equals, text = override.partition("=")
    if not equals:
        raise ValueError(f"-S {override}: write it as key=value, for example -S train.max_steps=50")
    node: Any = values
    *parents, last = key.split(".")
    for name in parents:
        node = node[_existing(node, name, override)]
    node[_existing(node, last, override)] = _parse_yaml(text, f"-S {override}")


def _existing(node: Any, name: str, override: str) -> str | int:
    if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
        return int(name)
    if isinstance(node, dict) and name in node:
        return name
    known = [str(key) for key in node] if isinstance(node, dict) else []
    raise ValueError(f"-S {override}: there is no key {name!r}{_did_you_mean(name, known)}")


def _explain(detail: ErrorDetails, path: Path) -> str:
    """One pydantic error as one line: file, key, value, reason."""
    key = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        name = str(detail["loc"][-1])
        return f"{path}: there is no key {key}{_did_you_mean(name, _known_keys(detail['loc'][:-1]))}"
    if detail["type"] == "missing":
        return f"{path}: {key} is missing"
    reason = detail["msg"].removeprefix("Value error, ")
    if isinstance(detail["input"], dict):
        return f"{path}: {key}: {reason}"
    return f"{path}: {key} = {detail['input']!r}: {reason}"


def _known_keys(section: tuple) -> list[str]:
    model: Any = Params
    for name in section:
        model = model.model_fields[name].annotation
    return list(model.model_fields)


def _did_you_mean(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known keys: {', '.join(known)}" if known else ""
