"""A yes before anything that costs money or removes something: on the terminal, or `--yes`, and nowhere else."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.markup import escape

from lab.base.errors import UsageError


def add_yes(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--yes", action="store_true", help="do not ask (for scripts)")


def confirm(place: str, talk: Console, question: str) -> None:
    """Asks on the terminal. UsageError for any answer but yes, and where there is no terminal."""
    if not sys.stdin.isatty():
        fault = "nobody can be asked: stdin is no terminal; nothing was changed"
        raise UsageError(place, fault, "--yes says yes to what is listed above")
    try:
        answer = talk.input(f"{escape(question)} [bold]yes[/] or no: ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError(place, "the answer was not yes; nothing was changed", "ask again when you want it")
