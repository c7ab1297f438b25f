"""For every test of measuring: a machine without steal and without other people's processes, and a scratch folder for runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.targets.common import sampler


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(sampler, "other_processes_s", float)
    monkeypatch.setattr(sampler, "cpu_times", lambda: {0: sampler.CpuTimes(1.0, 0.0, 10.0)})
