"""The command `tinygpt`: generate, play, score, info."""

import functools
import glob
import json
import math
import sys
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text as RichText

from tinygpt.checkpoint import TrainedModel
from tinygpt.export import load_trained
from tinygpt.files import read_json, write_text
from tinygpt.generation import unknown_note
from tinygpt.model import parameter_table
from tinygpt.params import SPLITS, DownloadParams, SampleParams
from tinygpt.scoring import Score, bits_to_name_unknown, score_text
from tinygpt.sources import Origin, read_stories
from tinygpt.vocab import SPECIALS, Vocab
from tinygpt.writing import write

app = typer.Typer(
    help="Write with a trained model, and look into it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)
MODEL = Path("data/model/best.pt")
# What a character may cost, in bits, to be shown in this colour: from expected to surprising.
COLOURS = ((1, "green"), (3, "cyan"), (6, "yellow"), (10, "red"), (math.inf, "bold magenta"))

Model = Annotated[Path, typer.Option("--model", "-m", help="A checkpoint.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Seed = Annotated[int, typer.Option(help="Of the first text; the next ones go on from it.")]
Temperature = Annotated[float, typer.Option(help="Divides the scores; 0 takes the best character always.")]
TopK = Annotated[int, typer.Option(help="Draw among so many best characters; 0: among all.")]
TopP = Annotated[float, typer.Option(help="Draw among the best that together hold this share.")]
MinP = Annotated[float, typer.Option(help="Leave out what has less than this share of the best one's probability.")]
Penalty = Annotated[float, typer.Option(help="Above 1: what stands in the text becomes less likely.")]
MaxNewChars = Annotated[int, typer.Option("--max-new-chars", "--max-chars", help="The most to write.")]
Stop = Annotated[list[str] | None, typer.Option(help="A string that ends a text; may be given several times.")]
ForbidUnknown = Annotated[bool, typer.Option("--forbid-unknown", help="Never draw <unk>.")]
Overflow = Annotated[str, typer.Option(help="Beyond the context: slide (exact), shift (fast) or roll (RoPE alone).")]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make `function` a command: what a user can cause ends as one line and exit code 1, Ctrl-C as 130."""

    @app.command()
    @functools.wraps(function)
    def guarded(*args: Any, **options: Any) -> None:
        for stream in (sys.stdout, sys.stderr):  # Chinese must print on a terminal that cannot show it, too
            stream.reconfigure(errors="backslashreplace")
        try:
            function(*args, **options)
        except (ValueError, FileNotFoundError) as error:
            tell(str(error))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            interrupted()

    return function


def interrupted() -> NoReturn:
    """End the line, so that the shell's prompt starts on its own, with the exit code of SIGINT."""
    sys.stdout.write("\n")
    sys.stdout.flush()
    raise typer.Exit(130) from None


def tell(message: str) -> None:
    """For a person, beside the output."""
    print(f"tinygpt: {message}", file=sys.stderr, flush=True)


def open_model(path: Path) -> TrainedModel:
    """The model at `path`: a checkpoint, a folder that holds best.pt, or an exported folder."""
    if (path / "best.pt").exists():
        path = path / "best.pt"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; run first: make repro  (or name a checkpoint with --model)")
    return load_trained(path)


def sample_params(**values: Any) -> SampleParams:
    """Checked controls; an error names the option."""
    try:
        return SampleParams(prompts=[""], n_samples=1, n_stories=1, **values)
    except ValidationError as error:
        detail = error.errors()[0]
        option = "--" + str(detail["loc"][0]).replace("_", "-")
        raise ValueError(f"{option} = {detail['input']}: {detail['msg']}") from None


def warn_unknown(vocab: Vocab, prompt: str) -> None:
    if note := unknown_note(vocab, prompt):
        tell(note)


@command
def generate(
    prompt: Annotated[str, typer.Argument(help="How the text begins; without one it begins from nothing.")] = "",
    n: Annotated[int, typer.Option("-n", min=1, help="How many texts, each with a seed of its own.")] = 1,
    model: Model = MODEL,
    seed: Seed = 100,
    temperature: Temperature = 0.8,
    top_k: TopK = 40,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: Penalty = 1.0,
    max_new_chars: MaxNewChars = 200,
    stop: Stop = None,
    forbid_unknown: ForbidUnknown = False,
    overflow: Overflow = "slide",
    as_json: AsJson = False,
) -> None:
    """Continue a prompt; characters appear as they come."""
    params = sample_params(
        **{"seed": seed, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p},
        **{"repetition_penalty": repetition_penalty, "max_new_chars": max_new_chars, "stop": stop or []},
        **{"forbid_unknown": forbid_unknown, "overflow": overflow},
    )
    trained = open_model(model)
    warn_unknown(trained.vocab, prompt)
    seeds = range(seed, seed + n)
    pieces = in_order(trained, prompt, seeds, params)
    if as_json:
        unknown = trained.vocab.unknown(prompt)
        for seed, (text, ended_by) in zip(seeds, whole_texts(pieces), strict=True):
            line = {"prompt": prompt, "seed": seed, "unknown": unknown, "text": text, "ended_by": ended_by}
            print(json.dumps(line, ensure_ascii=False), flush=True)
        return
    console = Console(highlight=False)
    for i in seeds:
        if n > 1:
            console.print(RichText(f"{'' if i == seed else chr(10)}seed {i}", style="dim"))
        stream(console, prompt, pieces)


def in_order(trained: TrainedModel, prompt: str, seeds: range, params: SampleParams) -> Iterator[tuple[str, str]]:
    """(new text, what ended it or "") of one text after the other, though all are written at once.

    The first text comes live; what the others write meanwhile waits for its turn.
    """
    waiting: list[list[tuple[str, str]]] = [[] for _ in seeds]
    turn = 0
    for piece in write(trained.model, trained.vocab, [prompt] * len(seeds), seeds, params):
        waiting[piece.number].append((piece.text, piece.ended_by))
        while turn < len(seeds) and waiting[turn]:
            text, ended_by = waiting[turn].pop(0)
            turn += bool(ended_by)
            yield text, ended_by


def whole_texts(pieces: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    whole = ""
    for text, ended_by in pieces:
        whole += text
        if ended_by:
            yield whole, ended_by
            whole = ""


def stream(console: Console, prompt: str, pieces: Iterator[tuple[str, str]]) -> str:
    """Print the prompt and one text behind it as it comes; return the new characters."""
    console.print(RichText(prompt, style="bold"), end="", soft_wrap=True)
    new_text = ""
    for text, ended_by in pieces:
        new_text += text
        sys.stdout.write(text)
        sys.stdout.flush()
        if ended_by:
            break
    print(flush=True)
    return new_text


HELP = """\
Type how a story begins; an empty line lets it go on.
  /again           write the last continuation once more, with the next seed
  /temperature X   0 takes the best character always; about 0.8 is lively, 1.2 is wild   (/t X)
  /seed N          of the next continuation
  /save FILE       the story so far
  /help  /quit"""


@command
def play(
    model: Model = MODEL,
    seed: Seed = 100,
    temperature: Temperature = 0.8,
    top_k: TopK = 40,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: Penalty = 1.0,
    max_new_chars: MaxNewChars = 200,
    forbid_unknown: ForbidUnknown = False,
    overflow: Overflow = "slide",
) -> None:
    """Write a story together: prompt, continue, again, another temperature, save."""
    params = sample_params(
        **{"seed": seed, "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "stop": []},
        **{"repetition_penalty": repetition_penalty, "max_new_chars": max_new_chars},
        **{"forbid_unknown": forbid_unknown, "overflow": overflow},
    )
    game = Game(open_model(model), params)
    if sys.stdin.isatty():
        print(HELP)
    while (line := game.ask()) is not None and game.answer(line):
        pass


class Game:
    """The state of `play`: the story, what the last continuation began from, the controls."""

    def __init__(self, trained: TrainedModel, params: SampleParams) -> None:
        self.trained, self.params = trained, params
        self.console = Console(highlight=False)
        self.begun = self.story = ""

    def ask(self) -> str | None:
        """The next line, or None at its end (Ctrl-D)."""
        try:
            return input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return None

    def answer(self, line: str) -> bool:
        """Do what a line says; return whether to go on."""
        name, _, value = line.strip().partition(" ")
        if name == "/quit":
            return False
        try:
            if not name:
                self.go_on_from(self.story)
            elif not name.startswith("/"):
                warn_unknown(self.trained.vocab, line)
                self.go_on_from(line)
            elif name == "/again":
                self.go_on_from(self.begun)
            elif name in ("/temperature", "/t"):
                self.set(temperature=number(float, name, value))
            elif name == "/seed":
                self.set(seed=number(int, name, value))
            elif name == "/save":
                self.save(value.strip())
            else:
                print(HELP)
        except (ValueError, OSError) as error:
            tell(str(error))
        return True

    def go_on_from(self, text: str) -> None:
        """Ctrl-C stops the writing and keeps what there is; the next line decides."""
        seed = self.params.seed
        self.begun = self.story = text
        self.params = self.params.model_copy(update={"seed": seed + 1})
        written: list[str] = []
        try:
            pieces = in_order(self.trained, text, range(seed, seed + 1), self.params)
            stream(self.console, text, remembered(pieces, written))
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
            print(flush=True)
        self.story = text + "".join(written)

    def set(self, **value: Any) -> None:
        self.params = sample_params(**self.params.model_dump(exclude={"prompts", "n_samples", "n_stories"}) | value)

    def save(self, name: str) -> None:
        if not name:
            raise ValueError("/save needs a file name, for example /save story.txt")
        write_text(Path(name), self.story + "\n")
        print(f"{len(self.story)} characters saved to {name}")


def number(kind: type, name: str, value: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"{name} needs a number, not {value!r}") from None


def remembered(pieces: Iterator[tuple[str, str]], written: list[str]) -> Iterator[tuple[str, str]]:
    for piece in pieces:
        written.append(piece[0])
        yield piece


@command
def score(
    file: Annotated[Path, typer.Argument(help="A text or a table of stories; also .gz, .zst, .tar.gz.")],
    model: Model = MODEL,
    layout: Annotated[str, typer.Option(help="In a .txt a story is a: file | line | block.")] = "file",
    column: Annotated[str, typer.Option(help="In a table: the field that holds a story.")] = "text",
    encoding: Annotated[str, typer.Option(help="Of the file; auto finds it.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Say how well a model predicts a text, and colour what surprises it."""
    if not file.exists():
        raise FileNotFoundError(f"{file} is missing")
    trained = open_model(model)
    console = Console(highlight=False)
    scores = []
    for place, text in read_texts(file, layout, column, encoding):
        scores.append(score_text(trained.model, trained.vocab, text))
        if as_json:
            print(json.dumps(story_json(place, scores[-1]), ensure_ascii=False), flush=True)
        else:
            show_story(console, place, scores[-1])
    total = summary(scores, trained.vocab)
    if as_json:
        print(json.dumps(total, ensure_ascii=False))
    else:
        show_summary(console, total)


def read_texts(file: Path, layout: str, column: str, encoding: str) -> Iterator[tuple[str, str]]:
    """(where it stood, clean text) of every story of `file`, read as the download stage reads files."""
    if layout not in ("file", "line", "block"):
        raise ValueError(f"--layout = {layout}: should be file, line or block")
    params = DownloadParams.model_construct(
        **{"source": "files", "files": [glob.escape(str(file))], "encoding": encoding, "max_chars": sys.maxsize},
        **{"text_column": column, "text_layout": layout, "text_separator": "", "max_stories": None},
    )
    origin = Origin()
    for story in read_stories(params, Path(), origin):
        # What training texts share; other rules of params.yaml are the corpus's, not this text's.
        if text := unicodedata.normalize("NFC", "\n".join(story.text.splitlines())).strip():
            yield story.id, text
    if origin.n_broken:
        tell(f"{origin.n_broken} broken rows left out, the first {origin.broken[0]}")


def story_json(place: str, score: Score) -> dict[str, Any]:
    return {
        "story": place,
        "n_chars": len(score.text),
        "bits_per_char": score.total_bits / len(score.text),
        "unknown": score.unknown,
        "characters": list(score.text),
        "bits": [round(bits, 4) for bits in score.bits],
        "end_bits": round(score.end_bits, 4),
    }


def summary(scores: list[Score], vocab: Vocab) -> dict[str, Any]:
    """Of all stories together. `bits_per_char` counts an unknown character as `<unk>`, as reports/metrics.json does;
    `bits_per_char_named` adds what it takes to say which one it is."""
    if not scores:
        raise ValueError("nothing to score: the file holds no text")
    n_chars = sum(len(score.text) for score in scores)
    bits = sum(score.total_bits for score in scores)
    n_unknown = sum(score.n_unknown for score in scores)
    return {
        "n_stories": len(scores),
        "n_chars": n_chars,
        "bits_per_char": bits / n_chars,
        "n_unknown": n_unknown,
        "unknown": sorted({character for score in scores for character in score.unknown}),
        "unknown_bits": sum(score.unknown_bits for score in scores),
        "bits_per_char_named": (bits + n_unknown * bits_to_name_unknown(vocab)) / n_chars,
    }


def show_story(console: Console, place: str, score: Score) -> None:
    line = f"{place}: {score.total_bits / len(score.text):.3f} bits per character, {len(score.text)} characters"
    console.print(RichText(line, style="dim"), soft_wrap=True)
    if console.color_system is None:  # no colours to read it by
        return
    shown = RichText()
    for character, bits in zip(score.text, score.bits, strict=True):
        shown.append(character, style=next(colour for limit, colour in COLOURS if bits <= limit))
    console.print(shown, soft_wrap=True)


def show_summary(console: Console, total: dict[str, Any]) -> None:
    if console.color_system is not None:
        legend = RichText("bits: ")
        for limit, colour in COLOURS:
            legend.append("more " if limit == math.inf else f"up to {limit}  ", style=colour)
        console.print(legend)
    print(
        f"{total['n_stories']:,} stories, {total['n_chars']:,} characters: "
        f"{total['bits_per_char']:.3f} bits per character, story ends included"
    )
    if total["n_unknown"]:
        print(
            f"{total['n_unknown']:,} characters are unknown to the vocabulary ({' '.join(total['unknown'][:20])}): "
            f"{total['unknown_bits']:,.0f} bits to say that they are, "
            f"{total['bits_per_char_named']:.3f} bits per character if each must be named, too"
        )


@command
def info(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint, or a folder with best.pt.")] = MODEL,
    as_json: AsJson = False,
) -> None:
    """Show what a checkpoint holds: params, parameters by part, vocabulary, validation loss."""
    trained = open_model(checkpoint)
    params, vocab = trained.model.params, trained.vocab
    table = parameter_table(params, len(vocab))
    total = sum(count for _, _, count in table)
    nats = trained.val_nats_per_token
    facts = {
        "checkpoint": str(checkpoint),
        "model": params.model_dump(),
        "seed": trained.seed,
        "parameters": {part: count for part, _, count in table} | {"total": total},
        "vocab": {"size": len(vocab), "specials": list(SPECIALS), "sha256": vocab.sha256},
        "step": trained.step,
        "val_nats_per_token": nats,
        "val_perplexity": math.exp(nats),
        **of_the_same_run(checkpoint, trained),
    }
    if as_json:
        print(json.dumps(facts, ensure_ascii=False, indent=2))
        return
    console = Console(highlight=False)
    print(f"{checkpoint}: step {trained.step:,}, val {nats:.4f} nats per token (perplexity {math.exp(nats):.2f})")
    print(f"vocabulary: {len(vocab):,} entries, {len(vocab.characters):,} of them characters, sha256 {vocab.sha256}")
    print(f"initial weights: seed {trained.seed}")
    for split, counts in facts.get("data", {}).items():
        print(f"{split}: {counts['n_stories']:,} stories, {counts['n_chars']:,} characters")
    for name, value in facts.get("test", {}).items():
        print(f"test {name}: {value:.4f}")
    print("model: " + ", ".join(f"{name} {value}" for name, value in params.model_dump().items()))
    shown = Table("part", "formula", box=None, pad_edge=False)
    shown.add_column("parameters", justify="right")
    for part, formula, count in [*table, ("total", "", total)]:
        shown.add_row(part, formula, f"{count:,}")
    console.print(shown)


def of_the_same_run(checkpoint: Path, trained: TrainedModel) -> dict[str, Any]:
    """What the pipeline wrote beside data/model about the data and the test, if it is about this very model."""
    root = checkpoint.resolve().parent.parent.parent
    meta, metrics = root / "data" / "encoded" / "meta.json", root / "reports" / "metrics.json"
    facts = {}
    if meta.exists() and (counts := read_json(meta))["vocab_sha256"] == trained.vocab.sha256:
        facts["data"] = {split: counts[split] for split in SPLITS}
    if facts and metrics.exists() and (found := read_json(metrics))["best_step"] == trained.step:
        facts["test"] = {name: value for name, value in found["test"]["model"].items() if isinstance(value, float)}
    return facts
