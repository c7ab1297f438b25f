"""A user's file that may be readable once only (a pipe, `<(…)`): read once, and handed on to the process that goes on with our arguments.

By an inherited descriptor of a nameless file, whose number is in the environment: nothing is left behind, however it ends.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from lab.base.errors import UsageError

HANDED = "LAB_HANDED"
"""Environment variable: the descriptor's number."""

STDIN = "-"


def again(verb: str, option: str = "--configmap") -> str:
    """How what a command prints is handed to the verb (with what else it was given) instead of a file: what a remedy's pipe ends in."""
    return f"scripts/shell just {verb} {option} -"


def read_once(path: str, into: str) -> bytes:
    """What was handed on to us, else the file's content, of `-` the standard input's. UsageError when it cannot be read.

    `into`: see `again`.
    """
    if (number := os.environ.pop(HANDED, None)) is not None:
        descriptor = int(number)
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    if path == STDIN and sys.stdin is None:  # `<&-`
        raise UsageError("standard input", "is closed", f"send it the file: … | {into}")
    if path == STDIN and sys.stdin.isatty():
        raise UsageError(path, "is the terminal", f"send it the file: … | {into}")
    try:
        if path == STDIN:
            return sys.stdin.buffer.read()
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise UsageError(path, "there is no such file", "correct the path; `-` is the standard input") from None
    except OSError as error:
        raise UsageError(path, f"cannot be read: {error.strerror}", "name a readable file, or `-`") from None


@contextmanager
def handing_on(content: bytes) -> Iterator[None]:
    """What `read_once` gets in a process started meanwhile with `descriptors` left open."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        os.environ[HANDED] = str(file.fileno())
        try:
            yield
        finally:
            os.environ.pop(HANDED, None)


def descriptors() -> list[int]:
    """Those that a process must inherit for it."""
    return [int(os.environ[HANDED])] if HANDED in os.environ else []
