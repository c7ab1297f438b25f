"""Durations as Go writes them, which OpenShift's router and its operator read: `15s`, `1m30s`, `1500ms`."""

from __future__ import annotations

import re

_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|ns)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def seconds(text: str) -> float | None:
    """None for what is no duration, or has a sign.

    >>> seconds("1m30s")
    90.0
    """
    if not _WHOLE.fullmatch(text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
