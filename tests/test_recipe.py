"""The recipe that the READMEs offer, and the benchmark that chose it."""

import json
import re
import shlex
import signal

import numpy as np
import pytest
import torch

from benchmarks.recipe import (
    VARIANTS,
    WINNER,
    Result,
    load_results,
    overrides_of,
    result_of,
    share_to_reach,
    step_times,
    table,
)
from tests.conftest import ROOT
from tinygpt.checkpoint import WorkFolder, load_model
from tinygpt.evaluation import score_stream
from tinygpt.files import write_json
from tinygpt.model import initial_model, parameter_table
from tinygpt.params import load_params
from tinygpt.tokens import DTYPE, TokenStream
from tinygpt.training import Interrupted, Run, train
from tinygpt.vocab import Vocab

V = 20


def overrides_in(readme: str) -> list[str]:
    """What follows -S in the README's line `dvc exp run -n recipe`."""
    text = (ROOT / readme).read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"dvc exp run -n recipe (.*)", text)
    words = shlex.split(line)
    assert words[::2] == ["-S"] * (len(words) // 2)
    return words[1::2]


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_readme_offers_the_winner(readme):
    assert sorted(overrides_in(readme)) == sorted(shlex.split(WINNER))


@pytest.mark.parametrize("vocab_size", [2444, 4605])  # the two corpora of benchmarks/recipe.md
def test_the_winner_has_the_textbooks_budget(vocab_size):
    textbook, winner = (load_params(ROOT / "params.yaml", shlex.split(text)) for text in ("", WINNER))
    count = [sum(n for *_, n in parameter_table(params.model, vocab_size)) for params in (textbook, winner)]
    assert count[1] <= count[0]
    for params in (textbook, winner):
        assert params.train.max_steps * params.train.batch_size * params.model.context_size == 5_120_000
    assert textbook.model.context_size == winner.model.context_size  # so that test windows are the same


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_valid(name):
    load_params(ROOT / "params.yaml", shlex.split(VARIANTS[name]))


class Silent:
    def __init__(self, at_step: int | None = None) -> None:
        self.at_step = at_step

    def on_update(self, update):
        if update.step == self.at_step:
            signal.raise_signal(signal.SIGTERM)

    def on_evaluation(self, evaluation):
        pass


def test_the_winner_learns_and_resumes_to_the_bit(tmp_path):
    params = load_params(ROOT / "params.yaml", shlex.split(WINNER))
    model = params.model.model_copy(update={"n_layer": 2, "n_head": 2, "n_embd": 16, "context_size": 12})
    small = params.train.model_copy(update={"max_steps": 60, "eval_every": 20, "warmup_steps": 5, "eval_windows": 8})
    stream = np.tile(np.arange(V, dtype=np.uint16), 40)
    streams = {"train": stream, "val": stream[: 10 * V]}

    def go(folder, at_step=None):
        run = Run(initial_model(model, V, seed=0), small, seed=0)
        train(run, streams, WorkFolder(tmp_path / folder), tmp_path / f"{folder}.csv", Silent(at_step))
        return run

    whole = go("whole")
    assert whole.history[-1].val_nats_per_token < 2.0 < 2.9 < whole.history[0].val_nats_per_token
    for at_step in (3, 27, 59):
        with pytest.raises(Interrupted):
            go("parts", at_step)
    parts = go("parts")
    assert parts.history == whole.history
    assert (tmp_path / "parts.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    for name, tensor in whole.best_weights.items():
        assert torch.equal(tensor, parts.best_weights[name]), name


# The table.


def result(variant: str, seed: int, test_nats: float, *vals: float) -> Result:
    curve = [(1000 * n, val) for n, val in enumerate(vals)]
    return Result(variant, "", seed, "", 10, test_nats, curve)


def test_the_table_by_hand():
    results = {
        "textbook": [result("textbook", 0, 3.0, 8, 4, 3.1), result("textbook", 1, 3.2, 8, 4, 3.3)],
        "other": [result("other", 0, 2.8, 8, 3.1, 2.9), result("other", 1, 2.8, 8, 3.5, 2.9)],
    }
    # pairs -0.2 and -0.4: mean -0.3, deviation 0.1414, t = 12.706 for one degree of freedom
    text = table(results, {"textbook": 2.0, "other": 3.0})
    row = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert row == ["other", "10", "2", "2.8000 ± 0.0000", "-0.3000 ± 1.2706", "75%", "1.50"]


def test_a_run_that_never_gets_as_low_says_so():
    reference = [result("textbook", 0, 3.0, 8, 4, 3)]
    assert share_to_reach([result("other", 0, 3.0, 8, 3.5, 3.1)], reference) == "never"
    assert share_to_reach([result("other", 0, 3.0, 8, 3.0, 3.1)], reference) == "50%"


def test_results_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "results.jsonl"
    assert load_results(path) == []
    one = result("other", 0, 2.8, 8, 3.1)
    path.write_text(json.dumps(one._asdict()) + "\n", encoding="utf-8")
    assert load_results(path) == [one]


TINY = "model.n_layer=1 model.n_embd=16 model.context_size=8 train.batch_size=2"


@pytest.fixture
def data_dir(tmp_path):
    (tmp_path / "encoded").mkdir()
    vocab = Vocab("".join(map(chr, range(ord("一"), ord("一") + V - 3))))
    vocab.save(tmp_path / "vocab.json")
    for split in ("train", "val", "test"):
        np.random.default_rng(0).integers(V, size=100).astype(DTYPE).tofile(tmp_path / "encoded" / f"{split}.bin")
    write_json(tmp_path / "encoded" / "meta.json", {"vocab_size": V})
    return tmp_path


def test_a_finished_run_is_not_repeated(data_dir, tmp_path):
    """With the real train stage; what is reported is the selected model's loss on the test stream."""
    tiny = f"{TINY} train.max_steps=4 train.eval_every=2 train.warmup_steps=1 train.eval_windows=2 runtime.n_threads=1"
    runs_dir = tmp_path / "runs"
    first = result_of("tiny", tiny, 1, data_dir, runs_dir)
    assert [positions for positions, _ in first.curve] == [0, 32, 64]  # 16 a step
    trained = load_model(runs_dir / f"tiny-1-{first.corpus[:8]}" / "model" / "best.pt")
    assert first.test_nats == score_stream(trained.model, TokenStream(data_dir / "encoded" / "test.bin")).nats.mean()
    assert result_of("tiny", tiny, 1, data_dir, runs_dir) == first
    assert len(load_results(runs_dir / "results.jsonl")) == 1
    assert result_of("tiny", tiny, 2, data_dir, runs_dir) != first


def test_a_share_of_the_steps():
    assert overrides_of("textbook", 1, "train.precision=bf16") == "train.precision=bf16"
    assert overrides_of("textbook", 1 / 3, "") == "train.max_steps=1667"
    assert overrides_of("winner, batch 16", 1 / 3, "").endswith("train.max_steps=2500 train.max_steps=833")


def test_step_times_are_per_position(data_dir):
    times = step_times({"one": TINY, "other": f"{TINY} train.optimizer=muon"}, data_dir, rounds=1)
    assert set(times) == {"one", "other"} and all(seconds > 0 for seconds in times.values())
