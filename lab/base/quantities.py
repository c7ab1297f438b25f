"""Parsers of Kubernetes quantities (`200m` → 1/5, `64Mi` → 67108864) and Go durations (`1m30s` → 90).

Quantities are exact numbers: nothing is rounded. A caller that needs whole units rounds up or down itself.
Texts that Kubernetes' API server refuses (`64MB`, `1.5.0`) are refused here, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from lab.base.errors import UsageError

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|ns)", re.ASCII)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def parse_quantity(text: str) -> Fraction:
    """Parse a Kubernetes quantity into an exact number.

    >>> parse_quantity("200m"), parse_quantity("64Mi"), parse_quantity("1e3")
    (Fraction(1, 5), Fraction(67108864, 1), Fraction(1000, 1))

    Raises:
        ValueError: The text is no quantity; the message quotes it.

    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a quantity such as 200m, 1 or 64Mi, got {text!r}")
    number, exponent, suffix = match.groups()
    if suffix in _BINARY:
        return Fraction(number) * 1024 ** _BINARY[suffix]
    return Fraction(number) * Fraction(10) ** int(exponent or _DECIMAL.get(suffix, 0))


def parse_duration_s(text: str) -> float | None:
    """Parse a Go duration into seconds.

    Return None for a text that is no Go duration, and for a duration with a sign. OpenShift's router and its operator
    read durations in this form.

    >>> parse_duration_s("1m30s")
    90.0
    """
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text, re.ASCII):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def parse_share(text: str) -> float | None:
    """Parse a share of 0 or more, written as a percentage or as a number (`5%` or `0.05` → 0.05); None for other text."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)", text.strip(), re.ASCII)
    return float(match[1]) / (100 if match[2] else 1) if match else None


def whole_number_in(place: str, minimum: int, maximum: int) -> Callable[[str], int]:
    """Return a function that converts the text of a command-line option to a whole number in a range.

    The returned function raises UsageError for a text that is no whole number in the range.

    Args:
        place: The name of the option, for the error message.
        minimum: The lowest valid number.
        maximum: The highest valid number.

    """

    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
            raise UsageError(place, f'expected a whole number, got "{text}"', f"from {minimum} to {maximum}")
        value = int(text)
        if not minimum <= value <= maximum:
            raise UsageError(place, f"expected {minimum} to {maximum}, got {value}", "choose a number in that range")
        return value

    return convert
