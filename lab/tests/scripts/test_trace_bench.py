"""The trace of a bench: it goes from the verb to the first request and counts what there is to read on this way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_bench_is_traced_from_its_verb_to_its_first_request() -> None:
    command = [sys.executable, str(ROOT / "scripts/maintain/trace_bench.py")]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    said, first, *others = ended.stdout.splitlines()
    files = {line.split()[0] for line in [first, *others]}
    assert said == f"{len(others) + 1} functions in {len(files)} modules before the first request (the canary)"
    assert first.split() == ["commands/bench.py", "_bench"]
    assert "measure/canary.py" in files
    assert not any(file.startswith("report/html") for file in files)
    assert [line for line in others if line.endswith(" LocalTarget.up")]
    assert "targets/local/kubelet/kubelet.py" not in files
