"""`bench --against`: what is planned, and that planning leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.__main__ import main
from lab.commands import measuring
from lab.targets.local.target import LocalTarget


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs would go. In this process instead of the local target's namespaces; nothing can be measured."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(LocalTarget, "enter", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(LocalTarget, "check", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(measuring, "go_on", None)
    return tmp_path / "runs"


def planned(runs: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What it says of its plan; nothing is printed or written."""
    assert main([*words, "--plan"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert list(runs.rglob("*")) == []
    return printed.err


def arms(said: str) -> str:
    return next(line for line in said.splitlines() if line.startswith("arms")).split(None, 1)[1]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("nginx --against baseline", "nginx, baseline, baseline-again; in 3 blocks: direct"),
        ("baseline --against nginx", "baseline, nginx, nginx-again; in 3 blocks: direct"),
        ("keepalive gzip --against nginx", "keepalive, gzip, nginx, nginx-again; in 3 blocks: direct"),
        ("baseline --against direct", "baseline, direct, direct-again"),
        (
            "keepalive --against gzip+somaxconn-128",
            "keepalive, gzip+somaxconn-128, gzip+somaxconn-128-again; in 3 blocks: direct",
        ),
        ("keepalive", "keepalive, baseline, baseline-again; in 3 blocks: direct"),
    ],
)
def test_against_is_the_baseline_of_all_that_is_named(
    words: str, found: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert arms(planned(runs, capsys, "bench", *words.split())) == found
