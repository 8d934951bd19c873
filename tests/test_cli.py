"""The command `tinygpt`, as a process: piped, as JSON, stopped by Ctrl-C."""

import fcntl
import inspect
import json
import math
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tests.conftest import ROOT
from tests.project import run, start
from tinygpt import cli
from tinygpt.__main__ import main
from tinygpt.checkpoint import describe_model, save_checkpoint
from tinygpt.export import write_export
from tinygpt.generation import continue_text
from tinygpt.model import initial_model
from tinygpt.params import load_params
from tinygpt.vocab import EOS, Vocab

VOCAB = Vocab("".join(sorted("一二三四五六七八九十百千万兔小狗猫龙。，\n")))
TINYGPT = (sys.executable, "-m", "tinygpt")


@pytest.fixture(scope="module")
def model(tiny_params):
    model = initial_model(tiny_params, len(VOCAB), seed=0).eval()
    with torch.no_grad():
        model.lm_head.weight *= 15
        model.lm_head.bias[EOS] = -100
    return model


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """Where data/model/best.pt is, and the project on the path."""
    folder = tmp_path_factory.mktemp("cli")
    content = describe_model(model, model.state_dict(), VOCAB, seed=0)
    save_checkpoint(folder / "data/model/best.pt", content | {"step": 7, "val_nats_per_token": 1.5})
    return folder


@pytest.fixture(autouse=True)
def path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def here(*arguments, code=0):
    """What the command prints, without a process of its own, which would take seconds to import PyTorch."""
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == code, result.output
    return result.output


def written(model, params, prompt, seed, **controls):
    return continue_text(model, VOCAB, prompt, seed, params.sample.model_copy(update=controls)).text


@pytest.mark.parametrize("function", [cli.generate, cli.play])
def test_the_defaults_are_those_of_the_sample_stage(params, function):
    """So `tinygpt generate` with a prompt of the samples and its seed writes that sample."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    for name, value in params.sample.model_dump(exclude={"prompts", "n_samples", "n_stories", "stop"}).items():
        assert defaults[name] == value, name


def test_generate_writes_prompt_and_text(folder, model, params):
    out = run(folder, *TINYGPT, "generate", "小兔，", "--seed", "3", "--max-chars", "30")
    assert out == "小兔，" + written(model, params, "小兔，", 3, max_new_chars=30) + "\n"


def test_several_texts_have_seeds_of_their_own(folder, model, params, monkeypatch):
    monkeypatch.chdir(folder)
    out = here("generate", "小兔，", "-n", "3", "--seed", "5", "--max-chars", "9")
    texts = [written(model, params, "小兔，", seed, max_new_chars=9) for seed in (5, 6, 7)]
    assert out == "\n".join(f"seed {5 + i}\n小兔，{text}\n" for i, text in enumerate(texts))
    assert len(set(texts)) == 3


def test_json_is_a_line_a_text(folder, model, params, monkeypatch):
    monkeypatch.chdir(folder)
    out = here("generate", "小兔", "-n", "2", "--json", "--max-chars", "9", "--stop", "猫")
    for seed, line in zip((100, 101), out.splitlines(), strict=True):
        text = written(model, params, "小兔", seed, max_new_chars=9, stop=["猫"])
        ended_by = "stop" if "猫" in text else "limit"
        assert json.loads(line) == {
            **{"prompt": "小兔", "seed": seed, "unknown": [], "text": text, "ended_by": ended_by}
        }


def test_unknown_characters_are_named_beside_the_text(folder):
    command = [*TINYGPT, "generate", "小龍🐉", "--json", "--max-chars", "3"]
    done = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", check=True)
    assert json.loads(done.stdout)["unknown"] == ["龍", "🐉"]
    assert done.stderr == ("tinygpt: the vocabulary lacks 龍 🐉: read as <unk>; it has the simplified 龙 for 龍\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "--temperature", "-1"), "--temperature = -1.0: Input should be greater than or equal to 0"),
        (("generate", "--top-k", "-1"), "--top-k = -1: Input should be greater than or equal to 0"),
        (("generate", "--top-p", "0"), "--top-p = 0.0: Input should be greater than 0"),
        (("generate", "--min-p", "1.1"), "--min-p = 1.1: Input should be less than or equal to 1"),
        (("generate", "--repetition-penalty", "0"), "--repetition-penalty = 0.0: Input should be greater than 0"),
        (("generate", "--max-chars", "0"), "--max-new-chars = 0: Input should be greater than or equal to 1"),
        (("generate", "--stop", ""), "--stop = : String should have at least 1 character"),
        (("generate", "--overflow", "grow"), "--overflow = grow: Input should be 'slide', 'shift' or 'roll'"),
        (("generate", "--overflow", "roll"), "sample.overflow = roll needs a model with model.position = rope"),
        (("generate", "-m", "none.pt"), "none.pt is missing; run first: make repro"),
        (("info", "."), ". holds no params.json of an exported model"),
        (("score", "none.txt"), "none.txt is missing"),
    ],
)
def test_a_mistake_is_one_line(folder, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    output = here(*arguments, code=1)
    assert output.startswith(f"tinygpt: {message}") and output.count("\n") == 1


def test_without_a_model_it_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = here("generate", "小兔", code=1)
    assert out == "tinygpt: data/model/best.pt is missing; run first: make repro  (or name a checkpoint with --model)\n"


def test_play_by_a_pipe(folder, model, params, monkeypatch):
    lines = ["小兔", "", "/again", "/t 0", "/seed 9", "", "/save story.txt", "/t x", "/t -1", "/what", "/quit", "小狗"]
    done = subprocess.run(
        [*TINYGPT, "play", "--max-chars", "5"],
        cwd=folder,
        input="\n".join(lines),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    first = "小兔" + written(model, params, "小兔", 100, max_new_chars=5)
    second, again = (first + written(model, params, first, seed, max_new_chars=5) for seed in (101, 102))
    last = again + written(model, params, again, 9, max_new_chars=5, temperature=0.0)
    stories = [first, second, again, last, f"{len(last)} characters saved to story.txt"]
    assert done.stdout.startswith("\n".join(stories) + "\nType how a story begins")
    assert (folder / "story.txt").read_text(encoding="utf-8") == last + "\n"
    assert done.stderr.splitlines() == [
        "tinygpt: /t needs a number, not 'x'",
        "tinygpt: --temperature = -1.0: Input should be greater than or equal to 0",
    ]
    assert "小狗" not in done.stdout


def test_score_counts_every_character(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "two.txt").write_text("小兔一二\n\n\n小龍🐉\n", encoding="utf-8")
    out = here("score", "two.txt", "--layout", "line", "--json")
    *stories, total = map(json.loads, out.splitlines())
    assert [story["characters"] for story in stories] == [list("小兔一二"), list("小龍🐉")]
    bits = [sum(story["bits"]) + story["end_bits"] for story in stories]
    assert [story["bits_per_char"] for story in stories] == pytest.approx([bits[0] / 4, bits[1] / 3], abs=1e-3)
    assert total["bits_per_char"] == pytest.approx(sum(bits) / 7, abs=1e-3)
    assert total["unknown"] == ["龍", "🐉"] and total["n_unknown"] == 2
    assert total["unknown_bits"] == pytest.approx(sum(stories[1]["bits"][1:]), abs=1e-3)
    naming = 2 * math.log2(1_112_064 - len(VOCAB.characters))
    assert total["bits_per_char_named"] == pytest.approx((sum(bits) + naming) / 7, abs=1e-3)

    text = here("score", "two.txt", "--layout", "line")
    assert "\x1b" not in text  # no colours in a pipe
    assert f"2 stories, 7 characters: {sum(bits) / 7:.3f} bits per character" in text
    assert "2 characters are unknown to the vocabulary (龍 🐉)" in text


def test_score_reads_other_encodings_and_tables(folder, monkeypatch):
    first = json.loads((ROOT / "data/stories/01.jsonl").read_text(encoding="utf-8").partition("\n")[0])["text"]
    (folder / "old.txt").write_text(first, encoding="utf-16")
    (folder / "rows [1].jsonl").write_text('{"text": "小兔"}\n{"text": 3}\n{"text": "小狗"}\n', encoding="utf-8")
    (folder / "empty.txt").write_text("\n", encoding="utf-8")
    monkeypatch.chdir(folder)
    assert f"1 stories, {len(first)} characters" in here("score", "old.txt")
    output = here("score", "rows [1].jsonl")
    assert "2 stories, 4 characters" in output and "1 broken rows left out" in output
    assert "holds nothing to read" in here("score", "empty.txt", code=1)


def test_info(folder, model, monkeypatch):
    monkeypatch.chdir(folder)
    facts = json.loads(here("info", "--json"))
    assert facts["model"] == model.params.model_dump()
    n_parameters = sum(weight.numel() for weight in model.parameters())
    assert facts["parameters"]["total"] == n_parameters
    assert facts["vocab"]["sha256"] == VOCAB.sha256 and facts["vocab"]["size"] == len(VOCAB)
    assert (facts["step"], facts["val_nats_per_token"]) == (7, 1.5)
    text = here("info", "data/model")
    assert "step 7, val 1.5000 nats per token (perplexity 4.48)" in text and f"{n_parameters:,}" in text


def test_info_adds_what_the_pipeline_wrote_about_this_model_alone(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts = {split: {"n_stories": 2, "n_chars": 30} for split in ("train", "val", "test")}
    for path, content in (
        ("data/encoded/meta.json", {"vocab_sha256": VOCAB.sha256, **counts}),
        ("reports/metrics.json", {"best_step": 7, "test": {"model": {"nats_per_token": 2.5}}}),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "data/model").mkdir()
    (tmp_path / "data/model/best.pt").write_bytes((folder / "data/model/best.pt").read_bytes())
    text = here("info")
    assert "train: 2 stories, 30 characters" in text and "test nats_per_token: 2.5000" in text
    metrics = tmp_path / "reports/metrics.json"
    metrics.write_text(metrics.read_text(encoding="utf-8").replace("7", "8"), encoding="utf-8")
    assert "nats_per_token: " not in here("info")


def test_ctrl_c_ends_the_line_and_the_process(folder):
    process = start(folder, *TINYGPT, "generate", "小兔", "--max-chars", "1000000")
    assert process.stdout.read(2) == "小兔"  # it writes
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest.endswith("\n") and "Traceback" not in rest and "Abort" not in rest


def test_ctrl_c_during_the_imports(monkeypatch, capsys):
    def stopped():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", stopped)
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130 and capsys.readouterr().err == "\n"


@pytest.mark.parametrize("no_colour", [False, True])
def test_colours_are_for_terminals_that_want_them(folder, monkeypatch, no_colour):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    (folder / "one.txt").write_text("小兔一二", encoding="utf-8")
    shown = in_a_terminal(folder, *TINYGPT, "score", "one.txt")
    assert bool(re.search(r"\x1b\[[0-9;]*3[1-6]m", shown)) is not no_colour
    assert "小" in shown if not no_colour else "bits per character" in shown


def in_a_terminal(folder, *command):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the other side is closed
        pass
    assert process.wait(timeout=60) == 0
    return shown.decode("utf-8")


def test_play_in_a_terminal_goes_on_after_ctrl_c(folder):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*TINYGPT, "play", "--max-chars", "1000000"],
        cwd=folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C reaches it
    )
    os.close(theirs)
    shown = b""

    def read_until(end):
        nonlocal shown
        shown = b""
        while end not in shown:
            shown += os.read(ours, 1024)

    read_until(b"> ")
    os.write(ours, "小兔\n".encode())
    read_until("小兔".encode())  # the echo
    read_until("小兔".encode())
    os.write(ours, b"\x03")
    read_until(b"> ")
    os.write(ours, b"/quit\n")
    while True:
        try:
            if not os.read(ours, 1024):
                break
        except OSError:
            break
    assert process.wait(timeout=60) == 0


def test_values_of_params_yaml_are_checked_the_same_way(params):
    assert (
        cli.sample_params(**params.sample.model_dump(exclude={"prompts", "n_samples", "n_stories"})).temperature == 0.8
    )
    with pytest.raises(ValueError, match=r"sample.top_p = 1.5: Input should be less than or equal to 1"):
        load_params(ROOT / "params.yaml", ["sample.top_p=1.5"])
    with pytest.raises(ValueError, match=r"sample.overflow = roll needs model.position = rope, not learned"):
        load_params(ROOT / "params.yaml", ["sample.overflow=roll"])
    assert load_params(ROOT / "params.yaml", ["sample.overflow=roll", "model.position=rope"])


def test_an_exported_folder_is_a_model_too(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    trained = cli.open_model(Path("data/model/best.pt"))
    write_export(tmp_path, trained, "safetensors")
    assert here("generate", "小兔，", "--model", str(tmp_path)) == here("generate", "小兔，")
