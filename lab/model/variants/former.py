"""Variants of committed runs that are there under another name now: their runs keep the names under which they were measured."""

from __future__ import annotations

from collections.abc import Mapping

FORMER: Mapping[str, str] = {
    "metrics-off": "baseline",
    "metrics-log-off": "log-off",
    "pod-metrics-off": "pod-address",
}
"""Former name → the variant that makes the controller do the same now. Until 29 November 2026 the baseline left counting requests to the
program, which did it where release 1.11 ran; since then it says no, and what left it out is the baseline itself."""
