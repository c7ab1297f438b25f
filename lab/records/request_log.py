"""The lines of a log of requests as differences, and back, byte for byte: k6's becomes six tenths as large once packed, hey's six to nine tenths.

    request 3975 1795350073906 1795350113657 39750.782 39755.634 4.755 200 - backend-0 9000 18
    request 3976 1795350073906 1795350113667 39760.871 39762.745 1.765 200 - backend-0 9000 18
        →  the second is "=0 0 1 10089 109 1765 200 - backend-0 9000 18"

Most of such a line follows from the others and from the line before: what is left are microseconds (the words of a line:
`lab.generators._k6_log`). Of hey there is a latency a line, in seconds, and the next one's is mostly near to it:

    0.077903
    0.077900  →  the second is "=-3"

Every other line stays as it is, but that one which begins as a difference does gets another sign in front.
"""

from __future__ import annotations

import re

Numbers = tuple[int, int, int, int, int, int]

_NUMBER, _TIME = rb"(\d{1,18})", rb"(\d{1,18}\.\d{3})"
_LINE = re.compile(rb" ".join([b"request", *[_NUMBER] * 3, *[_TIME] * 3, b"(.*)"]), re.DOTALL)
_LATENCY = re.compile(rb"(?:0|[1-9]\d{0,8})\.\d{6}")
_SIGN = b"="


def as_differences(log: bytes) -> bytes:
    """The whole log; `restored` makes the same of it again."""
    last = _Last()
    return b"\n".join(map(last.difference_to, log.split(b"\n")))


def restored(log: bytes) -> bytes:
    """The log of which these are the differences. ValueError for a difference that is none."""
    last = _Last()
    return b"\n".join(map(last.line, log.split(b"\n")))


class _Last:
    """What the next line differs from: the last request of k6's, and the last latency of hey's."""

    def __init__(self) -> None:
        self.request: Numbers = (-1, 0, 0, 0, 0, 0)
        self.latency_us = 0

    def difference_to(self, line: bytes) -> bytes:
        """As it is where it is of neither kind."""
        if _LATENCY.fullmatch(line):
            before_us, self.latency_us = self.latency_us, int(line.replace(b".", b""))
            return b"%b%d" % (_SIGN, self.latency_us - before_us)
        if found := _LINE.fullmatch(line):
            *words, rest = found.groups()
            told: Numbers = tuple(int(word.replace(b".", b"")) for word in words)  # type: ignore[assignment]
            if _line(told, rest) == line:
                number, start_ms, wall_ms, sent_us, done_us, service_us = told
                last, self.request = self.request, told
                difference = (
                    number - last[0] - 1,
                    start_ms - last[1],
                    wall_ms - start_ms - sent_us // 1000,
                    sent_us - last[3],
                    done_us - sent_us - service_us,
                    service_us,
                )
                return b"%b%b %b" % (_SIGN, b" ".join(b"%d" % each for each in difference), rest)
        return _SIGN + line if line.startswith(_SIGN) else line

    def line(self, told: bytes) -> bytes:
        """The one whose difference is told. ValueError."""
        if not told.startswith(_SIGN):
            return told
        told = told.removeprefix(_SIGN)
        if told.startswith(_SIGN):
            return told
        if b" " not in told:
            self.latency_us += int(told)
            return b"%d.%06d" % divmod(self.latency_us, 1_000_000)
        *words, rest = told.split(b" ", 6)
        number, start_ms, late_ms, sent_us, waited_us, service_us = map(int, words)
        number, start_ms, sent_us = self.request[0] + number + 1, self.request[1] + start_ms, self.request[3] + sent_us
        wall_ms, done_us = late_ms + start_ms + sent_us // 1000, waited_us + sent_us + service_us
        self.request = number, start_ms, wall_ms, sent_us, done_us, service_us
        return _line(self.request, rest)


def _line(numbers: Numbers, rest: bytes) -> bytes:
    times = b" ".join(b"%d.%03d" % divmod(us, 1000) for us in numbers[3:])
    return b"request %d %d %d %b %b" % (*numbers[:3], times, rest)
