"""What all stages share on the command line: the -S option, input checks, one-line errors."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

SetParam = Annotated[
    list[str] | None,
    typer.Option("--set-param", "-S", metavar="KEY=VALUE", help="Override a value of params.yaml for this run."),
]


def run(stage: Callable[..., None]) -> None:
    """Run `stage` as a command; what a user can cause ends as one message and exit code 1."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(stage)
    # Chinese text must print on a terminal or pipe whose encoding cannot take it (Windows, LANG=C).
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"{stage.__name__}: {error}", file=sys.stderr)
        sys.exit(1)


def need(path: Path, stage: str) -> Path:
    """Return `path`, or say which stage makes it."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; run first: dvc repro {stage}  (or: python -m stages.{stage})")
    return path
