"""What a move costs, and its traps, as people read them."""

from __future__ import annotations

from lab.experiments.migration.plan import plan
from lab.records.store import RunStore
from lab.report.grid import Grid
from lab.report.markdown import markdown
from lab.report.result import Result
from lab.report.tables.migration import costs, page, walked
from lab.report.terminal import terminal


def test_costs_are_beside_the_baselines_with_cpu_per_request_as_an_interval() -> None:
    text = markdown(costs(Result(RunStore.open("data/reference/quick-keepalive")).told))
    keepalive = next(line for line in text.splitlines() if "keepalive " in line and "CPU/req" in line)
    assert " ×" in keepalive and "[" in keepalive
    assert "direct" not in text and costs([]) == []


def test_what_is_not_in_the_file_stands_in_brackets_and_notes_are_numbered_below() -> None:
    found = plan("mine", b"keep-alive: 300\n", to=["traefik-ingress-nginx"]).migrations
    text = "\n".join(line.plain for line in terminal(walked(found)))
    assert all(each in text for each in ("(proxy-connect-timeout)", " keep-alive", "traefik#13123"))


def test_a_narrow_terminal_has_two_lines_for_each() -> None:
    found = plan("mine", b"keep-alive: 300\n", to=["caddy"])
    parts = page(found.place, found.given, found.unknown, found.notes, found.migrations)
    assert sum(isinstance(part, Grid) for part in parts) == 3
    assert len(terminal(parts, 100)) > len(terminal(parts))
