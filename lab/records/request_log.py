"""The lines of k6's log of requests as differences, and back, byte for byte: some 10 bytes a request packed become 6.

    request 3975 1795350073906 1795350113657 39750.782 39755.634 4.755 200 - backend-0 9000 18
    request 3976 1795350073906 1795350113667 39760.871 39762.745 1.765 200 - backend-0 9000 18
        →  the second is "=0 0 1 10089 109 1765 200 - backend-0 9000 18"

Most of such a line follows from the others and from the line before: what is left are microseconds (the words of a line:
`lab.generators._k6_log`). Every other line stays as it is, but that one which begins as a difference does gets another sign in front.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

Numbers = tuple[int, int, int, int, int, int]

_NUMBER, _TIME = rb"(\d{1,18})", rb"(\d{1,18}\.\d{3})"
_LINE = re.compile(rb" ".join([b"request", *[_NUMBER] * 3, *[_TIME] * 3, b"(.*)"]), re.DOTALL)
_SIGN = b"="
_BEFORE_ALL: Numbers = (-1, 0, 0, 0, 0, 0)


def as_differences(log: bytes) -> bytes:
    """The whole log; `restored` makes the same of it again."""
    last, lines = _BEFORE_ALL, log.split(b"\n")
    for at, line in enumerate(lines):
        found = _LINE.fullmatch(line)
        if found:
            *words, rest = found.groups()
            told: Numbers = tuple(int(word.replace(b".", b"")) for word in words)  # type: ignore[assignment]
            if _line(told, rest) == line:
                lines[at] = b"%b%b %b" % (_SIGN, b" ".join(b"%d" % each for each in _difference(told, last)), rest)
                last = told
                continue
        if line.startswith(_SIGN):
            lines[at] = _SIGN + line
    return b"\n".join(lines)


def restored(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The log in about the same pieces. ValueError for a difference that is none."""
    last, rest = _BEFORE_ALL, b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for at, line in enumerate(lines):
            lines[at], last = _restored(line, last)
        yield b"".join(line + b"\n" for line in lines)
    yield _restored(rest, last)[0]


def _restored(line: bytes, last: Numbers) -> tuple[bytes, Numbers]:
    if not line.startswith(_SIGN):
        return line, last
    told = line.removeprefix(_SIGN)
    if told.startswith(_SIGN):
        return told, last
    number, start_ms, wall_ms, sent_us, answered_us, service_us, rest = told.split(b" ", 6)
    numbers = _sum((int(number), int(start_ms), int(wall_ms), int(sent_us), int(answered_us), int(service_us)), last)
    return _line(numbers, rest), numbers


def _difference(told: Numbers, last: Numbers) -> Numbers:
    number, start_ms, wall_ms, sent_us, done_us, service_us = told
    late_ms = wall_ms - start_ms - sent_us // 1000
    return (
        number - last[0] - 1,
        start_ms - last[1],
        late_ms,
        sent_us - last[3],
        done_us - sent_us - service_us,
        service_us,
    )


def _sum(difference: Numbers, last: Numbers) -> Numbers:
    number, start_ms, sent_us = last[0] + difference[0] + 1, last[1] + difference[1], last[3] + difference[3]
    service_us = difference[5]
    return (
        number,
        start_ms,
        difference[2] + start_ms + sent_us // 1000,
        sent_us,
        difference[4] + sent_us + service_us,
        service_us,
    )


def _line(numbers: Numbers, rest: bytes) -> bytes:
    times = b" ".join(b"%d.%03d" % divmod(us, 1000) for us in numbers[3:])
    return b"request %d %d %d %b %b" % (*numbers[:3], times, rest)
