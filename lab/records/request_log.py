"""The conversion of a log of requests to a compact form, whose lines are differences to the line before, and back.

The restored log is equal byte for byte. Once both are compressed, the compact form of a log of k6 has six tenths of the log's
size, that of a log of hey six to nine tenths.

    request 3975 1795350073906 1795350113657 39750.782 39755.634 4.755 200 - backend-0 9000 18
    request 3976 1795350073906 1795350113667 39760.871 39762.745 1.765 200 - backend-0 9000 18
        →  the second is "=0 0 1 10089 109 1765 200 - backend-0 9000 18"

Most of such a line follows from its other fields and from the line before. Only microseconds are left (the fields of a line:
`lab.generators._k6_log`). A line of hey is one latency in seconds, and the next latency is usually near to it:

    0.077903
    0.077900  →  the second is "=-3"

Every other line stays as it is, but a line that begins with `=` gets another `=` in front.
"""

from __future__ import annotations

import re

Numbers = tuple[int, int, int, int, int, int]

_NUMBER, _TIME = rb"(\d{1,18})", rb"(\d{1,18}\.\d{3})"
_LINE = re.compile(rb" ".join([b"request", *[_NUMBER] * 3, *[_TIME] * 3, b"(.*)"]), re.DOTALL)
_LATENCY = re.compile(rb"(?:0|[1-9]\d{0,8})\.\d{6}")
_SIGN = b"="


def encode_log(log: bytes) -> bytes:
    """Return a log of requests in a compact form, in which a line has only what differs from the line before.

    `decode_log` restores the log byte for byte.
    """
    last = _LastLine()
    return b"\n".join(map(last.difference_to, log.split(b"\n")))


def decode_log(log: bytes) -> bytes:
    """Restore a log of requests from the compact form that `encode_log` returned.

    Raises:
        ValueError: A line begins with `=` as compact lines do, but the rest of it is malformed.

    """
    last = _LastLine()
    return b"\n".join(map(last.line, log.split(b"\n")))


class _LastLine:
    """The values of the previous line of a log; the compact form of the next line is made from the changes since then.

    A line is a request in a log of k6, or a latency in a log of hey.
    """

    def __init__(self) -> None:
        self.request: Numbers = (-1, 0, 0, 0, 0, 0)
        self.latency_us = 0

    def difference_to(self, line: bytes) -> bytes:
        """Return the compact form of a line of a log, and remember the line's values for the next one.

        A latency in a log of hey becomes `=` and the change in µs since the previous latency. The numbers of a request
        in a log of k6 become `=` and six smaller numbers, such as the change of its time of sending. Any other line
        stays as it is; if it begins with `=` itself, one more `=` is put in front.
        """
        if _LATENCY.fullmatch(line):
            before_us, self.latency_us = self.latency_us, int(line.replace(b".", b""))
            return b"%b%d" % (_SIGN, self.latency_us - before_us)
        if match := _LINE.fullmatch(line):
            *digits, suffix = match.groups()
            numbers: Numbers = tuple(int(field.replace(b".", b"")) for field in digits)  # type: ignore[assignment]
            if _format_line(numbers, suffix) == line:
                number, start_ms, wall_ms, sent_us, done_us, service_us = numbers
                last, self.request = self.request, numbers
                difference = (
                    number - last[0] - 1,
                    start_ms - last[1],
                    wall_ms - start_ms - sent_us // 1000,
                    sent_us - last[3],
                    done_us - sent_us - service_us,
                    service_us,
                )
                return b"%b%b %b" % (_SIGN, b" ".join(b"%d" % field for field in difference), suffix)
        return _SIGN + line if line.startswith(_SIGN) else line

    def line(self, encoded: bytes) -> bytes:
        """Return the original line of a log from its compact form, and remember the line's values for the next one.

        The compact form of a latency is `=` and the change in µs since the previous latency. The compact form of a
        request is `=` and six numbers, such as the change of its time of sending since the previous request.

        Raises:
            ValueError: After the sign `=`, such numbers are missing or malformed.

        """
        if not encoded.startswith(_SIGN):
            return encoded
        encoded = encoded.removeprefix(_SIGN)
        if encoded.startswith(_SIGN):
            return encoded
        if b" " not in encoded:
            self.latency_us += int(encoded)
            return b"%d.%06d" % divmod(self.latency_us, 1_000_000)
        *digits, suffix = encoded.split(b" ", 6)
        number, start_ms, late_ms, sent_us, waited_us, service_us = map(int, digits)
        number, start_ms, sent_us = self.request[0] + number + 1, self.request[1] + start_ms, self.request[3] + sent_us
        wall_ms, done_us = late_ms + start_ms + sent_us // 1000, waited_us + sent_us + service_us
        self.request = number, start_ms, wall_ms, sent_us, done_us, service_us
        return _format_line(self.request, suffix)


def _format_line(numbers: Numbers, suffix: bytes) -> bytes:
    times = b" ".join(b"%d.%03d" % divmod(us, 1000) for us in numbers[3:])
    return b"request %d %d %d %b %b" % (*numbers[:3], times, suffix)
