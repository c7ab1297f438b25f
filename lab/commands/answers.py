"""A verb's answer, on stdout. Whether anybody reads it to its end (`| head`) changes no exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console


class _Piped(Console):
    """Leaves a reader that has gone to us: rich would end the lab there."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def answer() -> Iterator[Console]:
    """Where to print the answer, `print` included. What nobody reads any more is not printed, and the verb goes on."""
    with suppress(BrokenPipeError):
        yield _Piped(soft_wrap=False)
