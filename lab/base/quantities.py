"""Kubernetes quantities as exact numbers (`200m` → 1/5, `64Mi` → 67108864), and Go's durations as seconds (`1m30s` → 90).

Refuses what the API server refuses (`64MB`, `1.5.0`); rounds nothing: whoever needs whole units says which way.
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


def quantity(text: str) -> Fraction:
    """ValueError with the text for anything else.

    >>> quantity("200m"), quantity("64Mi"), quantity("1e3")
    (Fraction(1, 5), Fraction(67108864, 1), Fraction(1000, 1))
    """
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a quantity such as 200m, 1 or 64Mi, got {text!r}")
    number, exponent, suffix = found.groups()
    if suffix in _BINARY:
        return Fraction(number) * 1024 ** _BINARY[suffix]
    return Fraction(number) * Fraction(10) ** int(exponent or _DECIMAL.get(suffix, 0))


def seconds(text: str) -> float | None:
    """A duration as Go writes it, which OpenShift's router and its operator read; None for what is none, or has a sign.

    >>> seconds("1m30s")
    90.0
    """
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text, re.ASCII):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def share(text: str) -> float | None:
    """`5%` and `0.05` → 0.05; None for what is no number of 0 or more."""
    found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*(%?)", text.strip(), re.ASCII)
    return float(found[1]) / (100 if found[2] else 1) if found else None


def number(place: str, least: int, most: int) -> Callable[[str], int]:
    """A converter of an option's text. UsageError of `place`."""

    def convert(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
            raise UsageError(place, f'expected a whole number, got "{text}"', f"from {least} to {most}")
        value = int(text)
        if not least <= value <= most:
            raise UsageError(place, f"expected {least} to {most}, got {value}", "choose a number in that range")
        return value

    return convert
