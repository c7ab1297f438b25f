"""The verbs of the command line, a file each (or a few that belong together): their arguments and what they print.

A file that defines a function `add` is a verb's; nothing lists them, and no other is imported to find them. These files and `lab/__main__.py` are the only ones
that parse arguments and print; only `__main__` exits. What a verb needs is imported when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from lab.base.errors import UsageError

Verb = Callable[[argparse.Namespace, Console], int]
"""(options, where to talk: stderr) → exit status. Answers go to stdout."""

Adder = Callable[[str, Verb, str], argparse.ArgumentParser]
"""(name, function, what it is for) → the verb's own parser, to which it adds its arguments."""


def add_all(adder: Adder) -> None:
    """Every verb there is a file for, in the order of the files' names."""
    for found in pkgutil.iter_modules(__path__):
        if not found.ispkg and "\ndef add(" in (Path(__file__).parent / f"{found.name}.py").read_text(encoding="utf-8"):
            importlib.import_module(f"{__name__}.{found.name}").add(adder)


OLD_SPELLINGS: Mapping[str, str] = {"calibrate": "selfbench calibrate"}
"""Recipes of `just` that this release still knows → the words that replace them, in front of the same arguments."""


def new_spelling(arguments: Sequence[str]) -> str | None:
    """Return the command that replaces one whose verb is an old spelling; None for every other command."""
    if not arguments or arguments[0] not in OLD_SPELLINGS:
        return None
    return " ".join(["just", OLD_SPELLINGS[arguments[0]], *arguments[1:]])


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are the lab's own kind of error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.prog, message, f"`{self.prog} --help` shows the usage")


def refuse_empty(options: argparse.Namespace) -> None:
    """UsageError for an argument that is there and empty, as of a variable that is not set: it would be taken for one that was left out.

    Of a command that is handed on (`with`), the program's name alone.
    """
    for name, value in vars(options).items():
        values = value[:1] if name == "command" else value if isinstance(value, list) else [value]
        if name != "argv" and "" in values:
            option = f"--{name.replace('_', '-')}"
            typed = any(word.partition("=")[0] == option for word in options.argv)
            place = option if typed else f"argument {name}"
            raise UsageError(place, "is empty", "give it a value, or leave it out: is a variable unset?")


def parser() -> Parser:
    top = Parser(
        prog="lab",
        description="A benchmark lab for ingress proxies: did the tuning step matter?",
    )
    verbs = top.add_subparsers(required=True, metavar="VERB", parser_class=Parser)

    def verb(name: str, function: Verb, about: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=about, description=about)
        added.set_defaults(verb=function)
        return added

    add_all(verb)
    return top
