"""Plans of the verbs that measure: what is planned by their options, and that planning leaves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.__main__ import main
from lab.records.store import RunStore
from lab.targets.local.target import LocalTarget


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs would go. In this process instead of the local target's namespaces; nothing can be measured."""
    monkeypatch.setenv("LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(LocalTarget, "enter", lambda *_: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(LocalTarget, "check", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    monkeypatch.setattr(RunStore, "create", None)
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
        ("nginx --against ingress-nginx", "nginx, ingress-nginx, ingress-nginx-again; in 3 blocks: direct"),
        (
            "keepalive use-gzip --against nginx",
            "keepalive, ingress-nginx+use-gzip, nginx, nginx-again; in 3 blocks: direct",
        ),
        ("ingress-nginx --against direct", "ingress-nginx, direct, direct-again"),
        (
            "keepalive --against use-gzip+somaxconn-128",
            "keepalive, use-gzip+somaxconn-128, use-gzip+somaxconn-128-again; in 3 blocks: direct",
        ),
    ],
)
def test_against_is_the_baseline_of_all_that_is_named(
    words: str, found: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert arms(planned(runs, capsys, "bench", *words.split())) == found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("aa --k6-out csv", ["ingress-nginx, ingress-nginx-again, ingress-nginx-null-1; in "]),
        ("aa --sweep at-knee --knee 2000", ["2,000 req/s, as named", "1,000 req/s", "1,600 req/s"]),
        (
            "aa keepalive --nulls 3",
            ["keepalive, keepalive-again, keepalive-null-1, keepalive-null-2, keepalive-null-3; in ", "in 10 blocks"],
        ),
        ("study okd --quick", ["12 arms at 2 points, about ", " min", "6 blocks", "direct"]),
        (
            "knee ingress-nginx --generator k6 --duration 3 --p99 20ms --start 200 --precision 10%",
            [
                "k6, 100 connections, 200 req/s, 3 s, 1kB.bin",
                "p99 at most 20.0 ms",
                "below 80 % of its CPU",
                "x2 from 200 req/s",
                "within 10 %",
            ],
        ),
        (
            "knee use-gzip+gzip-level-9 --generator k6 --page 64kB.txt --accept-encoding gzip --close",
            ["64kB.txt", "new connection per request", "accepts gzip"],
        ),
    ],
)
def test_options_are_what_is_planned(
    words: str, told: list[str], runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = planned(runs, capsys, *words.split())
    assert [part for part in told if part not in said] == [], said
