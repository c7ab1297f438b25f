"""Progress lines of `up` and `down`: one line per finished step, with its duration in seconds.

A module apart, because kind and remote clusters share it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape


@contextmanager
def step(console: Console, title: str) -> Iterator[list[str]]:
    """Show the title of a step of `up` or `down` while the block runs, and print a line when the block has succeeded.

    The line has the title, the remarks and the duration. A step that fails prints nothing, because its error explains
    it.

    Yields:
        A list for remarks, which the line shows in brackets after the title.

    """
    start_s = time.monotonic()
    remarks: list[str] = []
    with console.status(escape(title)):
        yield remarks
    remark = f" ({', '.join(remarks)})" if remarks else ""
    print_line(console, f"  [green]✓[/] {escape(title + remark)}  {time.monotonic() - start_s:.1f} s")


def print_line(console: Console, markup: str) -> None:
    """Print one line of rich markup, without wrapping or highlighting it."""
    console.print(markup, highlight=False, soft_wrap=True)
