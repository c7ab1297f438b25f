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

from lab.base.errors import UsageError, refuse_if

DESCRIPTOR_VARIABLE = "LAB_HANDED"
"""The environment variable that holds the numbers of the inherited descriptors, separated by commas."""
TRAFFIC_VARIABLE = "LAB_HANDED_TRAFFIC"
"""The same for the content of an access log, which may be handed over in addition to another file."""

STDIN = "-"


def piped_command(verb: str, option: str = "--config") -> str:
    """Return the text of a `just` command that reads its input file from standard input; an error's remedy shows this text.

    >>> piped_command("bench")
    'scripts/shell just bench --config -'

    Args:
        verb: The verb of `just` with its other arguments, as the user wrote them.
        option: The option that takes the file; empty if the file is a plain argument.

    """
    return " ".join(filter(None, ["scripts/shell just", verb, option, "-"]))


def read_once(path: str, reader: str, variable: str = DESCRIPTOR_VARIABLE) -> bytes:
    """Return the content of an input file that may be readable only once, such as a pipe.

    If the parent process handed over contents with `hand_over`, return the next of them, and do not open the file.
    Otherwise read the file or standard input.

    Args:
        path: A file, or `-` for standard input.
        reader: The command that the error's remedy shows at the end of a pipe (see `piped_command`).
        variable: The environment variable with the numbers of the descriptors that were handed over.

    Raises:
        UsageError: The file or standard input cannot be read.

    """
    if descriptors := _list_descriptors(variable):
        os.environ[variable] = ",".join(map(str, descriptors[1:]))
        return os.pread(descriptors[0], os.fstat(descriptors[0]).st_size, 0)
    remedy = f"send it the file: … | {reader}"
    refuse_if(path == STDIN and sys.stdin is None, "standard input", "is closed", remedy)  # `<&-`
    refuse_if(path == STDIN and sys.stdin.isatty(), path, "is the terminal", remedy)
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
def hand_over(*contents: bytes, variable: str = DESCRIPTOR_VARIABLE) -> Iterator[None]:
    """Hand the contents of input files over to the child processes that are started in the `with` block.

    In such a child process, each call of `read_once` returns the next content, in the order given here. The child must
    inherit the file descriptors that `inherited_descriptors` returns.

    Args:
        contents: The contents of the files.
        variable: The environment variable that gets the numbers of the file descriptors.

    """
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in contents]
        for file, content in zip(files, contents, strict=True):
            file.write(content)
            file.flush()
        os.environ[variable] = ",".join(str(file.fileno()) for file in files)
        stack.callback(os.environ.pop, variable, None)
        yield


def inherited_descriptors() -> list[int]:
    """Return the file descriptors that a child process must inherit to read what `hand_over` hands over.

    The list is empty where nothing is handed over.
    """
    return [number for variable in (DESCRIPTOR_VARIABLE, TRAFFIC_VARIABLE) for number in _list_descriptors(variable)]


def _list_descriptors(variable: str) -> list[int]:
    return [int(number) for number in os.environ.get(variable, "").split(",") if number]
