"""Progress lines of the commands `up` and `down`: one line per finished step, with its duration in seconds.

Both kinds of clusters (kind and remote) use this module.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape


@contextmanager
def step(console: Console, title: str) -> Iterator[list[str]]:
    """Show the title of a step on the console while the `with` block runs, then print a line about the finished step.

    The line contains the title, the remarks and the duration. If the block raises an error, no line is printed,
    because the error explains what happened.

    Args:
        console: The console.
        title: The title.

    Yields:
        An empty list. Remarks that the block appends to it are printed in brackets after the title.

    """
    start_s = time.monotonic()
    remarks: list[str] = []
    with console.status(escape(title)):
        yield remarks
    remark = f" ({', '.join(remarks)})" if remarks else ""
    print_line(console, f"  [green]✓[/] {escape(title + remark)}  {time.monotonic() - start_s:.1f} s")


def print_line(console: Console, markup: str) -> None:
    """Print one line of rich markup on the console, without wrapping or highlighting."""
    console.print(markup, highlight=False, soft_wrap=True)
