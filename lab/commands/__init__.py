"""The verbs of the command line, a file each (or a few that belong together): their arguments and what they print.

`verbs` has the table of them. These files and `lab/__main__.py` are the only ones that parse arguments and print; only `__main__` exits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.markup import escape

from lab.base.errors import UsageError

if TYPE_CHECKING:
    from lab.report.grid import Part

Verb = Callable[[argparse.Namespace, Console], int]
"""(options, where to talk: stderr) → exit status. Answers go to stdout."""

Adder = Callable[[Verb | None, str], argparse.ArgumentParser]
"""(a verb's function, None where each of its words has one; what it is for) → the verb's own parser, to which its module adds arguments."""


class Parser(argparse.ArgumentParser):
    """argparse whose complaints are the lab's own kind of error."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(self.prog, message, f"`{self.prog} --help` shows the usage")


def subcommands(
    parser: argparse.ArgumentParser, metavar: str, required: bool = True
) -> Callable[..., argparse.ArgumentParser]:
    """Let a parser take one of several words; return what adds one: its name, its function, what it is for, and more of argparse's own."""
    words = parser.add_subparsers(required=required, metavar=metavar, parser_class=Parser)

    def add(name: str, function: Verb | None, about: str, **more: Any) -> argparse.ArgumentParser:
        added = words.add_parser(name, help=about, description=about, **more)
        added.set_defaults(verb=function)
        return added

    return add


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


class _Piped(Console):
    """Leaves a reader that has gone to us: rich would end the lab there."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def answer() -> Iterator[Console]:
    """Where to print the answer, `print` included. What nobody reads any more (`| head`) is not printed, and the verb goes on."""
    with suppress(BrokenPipeError):
        yield _Piped(soft_wrap=False)


def print_answer(
    options: argparse.Namespace,
    page: Callable[[], Sequence[Part]],
    as_json: Callable[[], str],
    below: Iterable[str] = (),
) -> None:
    """As `--json` or `--markdown` say, else for people, who get the lines `below`, too."""
    from lab.report.markdown import markdown
    from lab.report.terminal import show

    with answer() as out:
        if options.json:
            print(as_json())
        elif getattr(options, "markdown", False):
            print(markdown(page()), end="")
        else:
            show(out, page())
            for line in below:
                out.print(f"[dim]{escape(line)}[/]", highlight=False, soft_wrap=True)
