"""A verb's answer, on stdout. Whether anybody reads it to its end (`| head`) changes no exit status."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

if TYPE_CHECKING:
    from lab.report.grid import Part


class _Piped(Console):
    """Leaves a reader that has gone to us: rich would end the lab there."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def answer() -> Iterator[Console]:
    """Where to print the answer, `print` included. What nobody reads any more is not printed, and the verb goes on."""
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
