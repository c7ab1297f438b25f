"""The verbs of the command line, a file each (or a few that belong together): their arguments and what they print.

`verbs` has the table of them. These files and `lab/__main__.py` are the only ones that parse arguments and print; only `__main__` exits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console

from lab.base.errors import UsageError

Verb = Callable[[argparse.Namespace, Console], int]
"""(options, where to talk: stderr) → exit status. Answers go to stdout."""

Adder = Callable[[Verb, str], argparse.ArgumentParser]
"""(a verb's function, what it is for) → the verb's own parser, to which its module adds its arguments."""


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
