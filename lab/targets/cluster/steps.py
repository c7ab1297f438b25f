"""What `up` and `down` say meanwhile: one line per step that is done, with its seconds. Apart, as kind and remote clusters share it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape


@contextmanager
def step(talk: Console, title: str) -> Iterator[list[str]]:
    """A step; what is appended to the list it yields stands in brackets behind its title. A failed one prints nothing: its error tells."""
    began = time.monotonic()
    remarks: list[str] = []
    with talk.status(escape(title)):
        yield remarks
    remark = f" ({', '.join(remarks)})" if remarks else ""
    say(talk, f"  [green]✓[/] {escape(title + remark)}  {time.monotonic() - began:.1f} s")


def say(talk: Console, markup: str) -> None:
    talk.print(markup, highlight=False, soft_wrap=True)
