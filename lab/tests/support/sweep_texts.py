"""A sweep of a second's loads, in a file of a test's own."""

from __future__ import annotations

from pathlib import Path

import pytest

TINY = """
title = "Tiny"
question = "?"
blocks = 6
[[points]]
name = "ceiling"
generator = "wrk"
connections = 4
duration_s = 1
"""
"""One closed loop."""
RATE = """
[[points]]
name = "rate-1000"
generator = "k6"
connections = 4
rate_rps = 1000
duration_s = 1
"""


def write_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str = TINY) -> str:
    """Return the path of a file with that sweep; runs go beside it."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    path = tmp_path / "tiny.toml"
    path.write_text(text)
    return str(path)
