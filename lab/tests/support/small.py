"""Verbatim output as a packed run keeps it, made from its text."""

from __future__ import annotations

from lab.records.request_log import as_differences
from lab.records.tables import compressed, raw_bytes


def pack_small(raw: str) -> bytes:
    """A fifth smaller than `pack_raw` at its best."""
    return compressed(raw_bytes(raw))


def pack_log(raw: str) -> bytes:
    """As `pack_small`, and of a log of requests some half of that."""
    return compressed(as_differences(raw_bytes(raw)))
