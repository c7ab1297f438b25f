"""For every test: a busy machine makes no property wrong, so none is judged by how long it took.

Hypothesis has no deadline, and what an everyday test may cost is CPU time, its own and that of the processes it waited for:
another program on the machine adds nothing to that but by cold caches and shared cores, for which it has room.
"""

from __future__ import annotations

import resource
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

LANES = ("slow", "measures", "inside", "committed", "long")
"""Markers of what the everyday lane leaves out, whose tests may take as long as they need."""

SAID_S, HELD_S = 1.0, 5.0
"""CPU seconds over which an everyday test is named at the end, and over which it fails with --hold-bound: five times the other, since
cold caches and a neighbour on the same core have been seen to make more than twice of it."""

COST = "cpu_s"


def pytest_addoption(parser: pytest.Parser) -> None:
    about = f"fail everyday tests (none of the markers {', '.join(LANES)}) that take more than {HELD_S:.0f} s of CPU"
    parser.addoption("--hold-bound", action="store_true", help=about)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """With the fixtures that it is the first to want."""
    item.stash[_BEGAN] = _cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.when != "call" or any(item.get_closest_marker(lane) for lane in LANES):
        return (yield)
    cost = _cpu_s() - item.stash[_BEGAN]
    item.user_properties.append((COST, f"{cost:.2f}"))
    report = yield
    if report.passed and cost > HELD_S and item.config.getoption("--hold-bound"):
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid}: took {cost:.1f} s of CPU, an everyday test at most {HELD_S:.0f}: "
            "make it quicker, or mark it slow (lab/tests/README.md)"
        )
    return report


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
