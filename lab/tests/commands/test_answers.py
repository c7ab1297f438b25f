"""What verbs answer of a committed run, through the whole command line: `compare`, `gate`, `ledger`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lab.__main__ import main
from lab.model.facts import ROOT
from lab.tests.support.boots import on_boot

RUN = "data/reference/quick-keepalive"


def answered(words: str, status: int, said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(words)) == status
    out = capsys.readouterr().out
    assert [line for line in said if not re.search(line, out, re.MULTILINE)] == [], out


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            f"compare {RUN}",
            [
                "^ceiling  64 connections, closed loop",
                "^  keepalive against ingress-nginx$",
                r"^    CPU/req +µs +[0-9.]+ \[[0-9., ]+\] +[0-9.]+ \[[0-9., ]+\] +~ \[.*\] % +[0-9.]+ +6$",
                "generator-limited; only CPU per request carries the effect",
                "^keepalive: no difference resolved in .*: don't bother unless [0-9.]+ % in CPU per request",
            ],
        ),
        (f"gate {RUN} --max-regression 50% --strict", ["0 regressions, 0 cannot tell"]),
        pytest.param(
            "ledger nds --rules",
            [
                "^12 claims: ",
                "rule: reproduced if",
                "rule of its own data: borne out if",
                "^how a claim of kind .figure. is judged: here, ",
                r"\A(?!(?s:.*)OK-30)",
            ],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_committed_run_is_answered_from(words: str, said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    answered(words, 0, said, capsys)


def test_a_regression_is_exit_1_of_a_run_or_of_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So clear a one needs no second measurement."""
    slower = on_boot("quick-keepalive", tmp_path / "slower", "b", cost=1.5)
    said = r"REGRESSION: keepalive against ingress-nginx at ceiling: CPU per request: \+5[0-9]\."
    answered(f"gate {slower} --max-regression 10% --again {RUN}", 1, [said], capsys)
    two = f"gate {RUN}:keepalive {slower}:keepalive --max-regression 10% --metric cpu_per_request"
    answered(two, 1, ["two runs, unpaired"], capsys)
