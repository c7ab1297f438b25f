"""The verbs of the command line, a file each (or a few that belong together): their arguments and what they print.

A file that defines a function `add` is a verb's; nothing lists them, and no other is imported to find them. These files and `lab/__main__.py` are the only ones
that parse arguments and print; only `__main__` exits. What a verb needs is imported when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Callable
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


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are the lab's own kind of error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.prog, message, f"`{self.prog} --help` shows the usage")


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
