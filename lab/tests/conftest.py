"""For every test: a busy machine makes no property wrong, so none is judged by how long it took.

Hypothesis has no deadline, and what an everyday test may cost is CPU time, its own and that of the processes it waited for:
another program on the machine adds nothing to that but by cold caches and shared cores. What costs too much is named.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings, strategies

from lab.systems import programs
from lab.tests.support.deadlines import pytest_runtest_call, pytest_runtest_setup, pytest_runtest_teardown

__all__ = ["pytest_runtest_call", "pytest_runtest_setup", "pytest_runtest_teardown"]

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

LANES = ("slow", "measures", "inside", "committed", "long")
"""Markers of what the everyday lane leaves out, whose tests may take as long as they need."""

SAID_S = 1.0
"""CPU seconds over which an everyday test is named at the end. Nothing fails for it: cold caches and a neighbour on the same core have
been seen to make five seconds of one."""

COST = "cpu_s"


def pytest_collection() -> None:
    """Hypothesis' table of Unicode takes a second, once on a machine: no test's, though one is the first to want it."""
    strategies.characters(codec="utf-8").validate()


@pytest.fixture(autouse=True)
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """A program that takes minutes to build is built before the lane that needs it (scripts/test), never by a test."""
    built = programs.built

    def there(place: str, name: str, module: str, version: str) -> programs.Program:
        if programs.found(name) is None:
            pytest.skip(f"{name} is not built here: `just test --all` has it built, as scripts/bring {name} does")
        return built(place, name, module, version)

    monkeypatch.setattr(programs, "built", there)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """With the fixtures that it is the first to want."""
    item.stash[_BEGAN] = _cpu_s()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "call" and not any(item.get_closest_marker(lane) for lane in LANES):
        item.user_properties.append((COST, f"{_cpu_s() - item.stash[_BEGAN]:.2f}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names what everyday tests cost too much, dearest first."""
    reports = [report for each in ("passed", "failed") for report in terminalreporter.getreports(each)]
    dear = sorted(_dear(reports), reverse=True)
    if dear:
        terminalreporter.section(f"everyday tests of more than {SAID_S:.0f} s of CPU")
        for cost, name in dear:
            terminalreporter.write_line(f"{cost:.2f} s  {name}")


def _dear(reports: list[pytest.TestReport]) -> Iterator[tuple[float, str]]:
    for report in reports:
        cost = float(str(dict(report.user_properties).get(COST, 0))) if report.when == "call" else 0.0
        if cost > SAID_S:
            yield cost, report.nodeid


def _cpu_s() -> float:
    """Used by this process, and by its children that have ended and been waited for."""
    used = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


_BEGAN = pytest.StashKey[float]()
