"""Output of any length in pieces, and the whole lines that lie in them. Held at once: a piece, and a line that is not over yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

from lab.model.load import OutputError

Item = TypeVar("Item")
Made = TypeVar("Made")
Stream = Literal["stdout", "stderr"]

PIECE_BYTES = 12 * 2**20
"""Some ten times as much is held while a few are parsed; larger pieces are no faster, of a third the size a tenth slower."""
AT_ONCE = 2
"""Pieces that are worked at while another's numbers are added up: polars reads one on a single thread."""
LEAST_BYTES = 2**16
"""Less than this is not worth a reader's start."""
LONGEST_LINE = 2**20
"""Bytes: an answer's header may be long, and what has no line's end is no log."""

Pieces = Callable[[], Iterator[bytes]]
"""Opens an output at its beginning, in pieces of any size: a log is read twice."""


def of_file(path: Path, size_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """A file's content. An OSError is the caller's."""
    with open(path, "rb") as file:
        while piece := file.read(size_bytes):
            yield piece


def of_bytes(content: bytes, size_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """What is in memory already."""
    return (content[at : at + size_bytes] for at in range(0, len(content), size_bytes))


def whole_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same in pieces that end with a line's end, none but the last below LEAST_BYTES. OutputError where the last line has none."""
    rest = b""
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end and len(rest) + end >= LEAST_BYTES:
            yield b"".join([rest, memoryview(piece)[:end]])
            rest = piece[end:]
        else:
            rest += piece
        if len(rest) > LEAST_BYTES + LONGEST_LINE:
            raise OutputError(f"expected lines, got {len(rest)} bytes without an end, the first of them {rest[:60]!r}")
    cut = rest[rest.rfind(b"\n") + 1 :]
    if cut:
        raise OutputError(f"expected whole lines, the last one is cut: {cut[:120]!r}")
    if rest:
        yield rest


def ahead(work: Callable[[Item], Made], items: Iterable[Item]) -> Iterator[Made]:
    """What each becomes, in their order; AT_ONCE are worked at meanwhile, beside the interpreter, as polars and numpy work."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        begun: deque[Future[Made]] = deque()
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) > AT_ONCE:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
