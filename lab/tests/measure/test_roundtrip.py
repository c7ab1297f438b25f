"""The bare network's round trip: sockperf's own output in, seconds out; what fails is recorded with its reason."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any
from unittest.mock import Mock

import pytest

from lab.measure import roundtrip
from lab.model.endpoint import Role
from lab.model.run import RoundTrip
from lab.targets.base import System
from lab.tests.support.fakes import bench

TESTDATA = Path(__file__).parent / "testdata" / "roundtrip"


def test_output_of_two_cpus_of_a_virtual_machine_is_whole_round_trips_in_seconds() -> None:
    found = roundtrip.parse_sockperf((TESTDATA / "ok.out").read_text())
    assert (found.tool, found.version, found.count, found.reason) == ("sockperf", "3.7-no.git", 7465, "")
    assert [found.p50_s, found.p90_s, found.p99_s, found.max_s] == pytest.approx(
        [73.572e-6, 81.665e-6, 105.223e-6, 3945.720e-6]
    )
    said = "bare network: TCP round trip p50 73.6 µs, p99 105 µs, max 3.95 ms (sockperf 3.7-no.git, 7,465 times)"
    assert roundtrip.describe_roundtrip(found) == said


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ((TESTDATA / "refused.out").read_text(), "Connection refused"),
        ("", "it printed nothing"),
        ("sockperf: No valid observations found. Try tune parameters: --time", "No valid observations found"),
        ("Total 5 observations\nSummary: Latency is 3.2 usec", "Latency is 3.2 usec"),
        ("Total 5 observations\nSummary: Round trip is 3.2 usec", "expected 'percentile 50.000', found none"),
    ],
)
def test_output_without_whole_round_trips_is_refused_with_sockperfs_own_words(output: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        roundtrip.parse_sockperf(output)


class Network:
    """A System whose client prints a file; `failures` times it is refused first."""

    def __init__(self, output: str, failures: int = 0) -> None:
        self.output, self.failures = output, failures
        self.started: list[Sequence[str]] = []

    def pod_address(self, role: Role) -> str:
        return "10.64.0.3"

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        self.started.append([role, *argv])
        return subprocess.Popen(["sleep", "60"])

    def popen(self, argv: Sequence[str], cwd: Path, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        self.started.append(argv)
        self.failures -= 1
        name = "refused.out" if self.failures >= 0 else self.output
        return subprocess.Popen(["cat", str(TESTDATA / name)], cwd=cwd, stdout=stdout, stderr=stderr)


def test_the_client_is_started_again_until_the_server_listens() -> None:
    network: Any = Network("ok.out", failures=2)
    assert roundtrip.measure_roundtrip(network).count == 7465
    assert network.started[0][:2] == ["backend", "sockperf"] and len(network.started) == 4
    assert network.started[-1][network.started[-1].index("-i") + 1] == "10.64.0.3"


def test_without_sockperf_it_is_not_measured_and_the_reason_says_how_to_get_it() -> None:
    """A target says so when it is to start one; one that can start no helpers ends no run either."""
    for error in (OSError("is not on this machine: apt-get install sockperf"), NotImplementedError("no helpers here")):
        network: Any = Network("ok.out")
        network.spawn = Mock(side_effect=error)
        found = roundtrip.measure_roundtrip(network)
        assert found == RoundTrip(reason=f"sockperf: {error}") and network.started == []
        assert str(error) in roundtrip.describe_roundtrip(found)


@pytest.mark.parametrize("role", ["reference", "baseline"])
def test_a_run_measures_it_once_beside_its_direct_reference_and_keeps_it(role: Any) -> None:
    loop = bench(blocks=2)
    arms = tuple(replace(arm, role=role) for arm in loop.store.record.arms)
    loop.store.record = loop.store.record.model_copy(update={"arms": arms})
    measured: list[System] = []

    def measure(system: System) -> RoundTrip:
        measured.append(system)
        return RoundTrip(reason="only a test")

    replace(loop, roundtrip=measure).measure()
    assert len(measured) == (role == "reference")
    assert loop.store.roundtrip() == (RoundTrip(reason="only a test") if measured else None)
