"""Input files that can be read only once (a pipe, `<(…)`), and their handover to a child process.

The lab may start itself again with the same arguments, and the child could not read a pipe a second time. So the
content goes to the child through an inherited descriptor of an anonymous file, whose number is in the environment.
Nothing is left behind, whichever way the process ends.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lab.base.errors import UsageError

DESCRIPTOR_VARIABLE = "LAB_HANDED"
"""The environment variable that holds the numbers of the inherited descriptors, in the order in which files are read."""

STDIN = "-"


def piped_command(verb: str, option: str = "--configmap") -> str:
    """Return a command that reads its file from standard input, as the end of a pipe that an error's remedy shows.

    Args:
        verb: The verb of `just` with its other arguments, as the user wrote them.
        option: The option that takes the file.

    """
    return f"scripts/shell just {verb} {option} -"


def read_once(path: str, reader: str) -> bytes:
    """Return the content that the parent process handed over, or else that of the file or standard input.

    Args:
        path: A file, or `-` for standard input.
        reader: The command that reads the file, as the end of a pipe in a remedy (see `piped_command`).

    Raises:
        UsageError: The file or standard input cannot be read.

    """
    if handed := inherited_descriptors():
        descriptor, *others = handed
        os.environ[DESCRIPTOR_VARIABLE] = " ".join(map(str, others))
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    if path == STDIN and sys.stdin is None:  # `<&-`
        raise UsageError("standard input", "is closed", f"send it the file: … | {reader}")
    if path == STDIN and sys.stdin.isatty():
        raise UsageError(path, "is the terminal", f"send it the file: … | {reader}")
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
def hand_over(*contents: bytes) -> Iterator[None]:
    """Hand the contents of input files to the child processes started in the block; there, `read_once` returns them.

    The order is that of the calls of `read_once`. Such a child process must inherit the open descriptors that
    `inherited_descriptors` lists.
    """
    with ExitStack() as files:
        opened = [files.enter_context(tempfile.TemporaryFile()) for _ in contents]
        for file, content in zip(opened, contents, strict=True):
            file.write(content)
            file.flush()
        files.callback(os.environ.pop, DESCRIPTOR_VARIABLE, None)
        os.environ[DESCRIPTOR_VARIABLE] = " ".join(str(file.fileno()) for file in opened)
        yield


def inherited_descriptors() -> list[int]:
    """Return the descriptors that a child must inherit to receive what `hand_over` hands over; empty if nothing."""
    return [int(number) for number in os.environ.get(DESCRIPTOR_VARIABLE, "").split()]
