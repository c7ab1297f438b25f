"""Logs of disturbed loads with known answers: requests, events and usage as a system would have left them. Nothing is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from lab.model.events import EVENTS_SCHEMA, Event
from lab.model.requests import REQUESTS_SCHEMA
from lab.model.usage import USAGE_SCHEMA

ZERO_S = 1_795_000_000.0
"""When these loads begin, seconds since the epoch."""


def requests(
    rate_rps: float = 100.0,
    duration_s: float = 20.0,
    out: tuple[float, float] | None = None,
    error: str = "connect",
    status: int = 0,
    service_s: float = 0.002,
    answers: Sequence[str] = (),
) -> pl.DataFrame:
    """One request every 1/rate, answered after `service_s`; those due in [out) fail at once, by `error` or with `status`."""
    rows: list[tuple[object, ...]] = []
    for number in range(round(rate_rps * duration_s)):
        due = number / rate_rps
        fails = out is not None and out[0] <= due < out[1]
        took = service_s * (1 + (number % 7) / 10)
        came = (status, "" if status else error) if fails else (200, "")
        answer = answers[number] if number < len(answers) else ("backend" if not fails else "")
        rows.append((number, ZERO_S + due, ZERO_S + due, ZERO_S + due + took, *came, answer, took))
    return pl.DataFrame(rows, schema=REQUESTS_SCHEMA, orient="row")


def events(*told: tuple[float, str, str, str, str, str]) -> pl.DataFrame:
    """(seconds since the load began, source, role, object, kind, detail) of each."""
    made = sorted((Event(ZERO_S + at, *rest) for at, *rest in told), key=lambda event: event.at_s)
    rows = [(e.at_s, e.source, e.role, e.object, e.kind, e.detail) for e in made]
    return pl.DataFrame(rows, schema=EVENTS_SCHEMA, orient="row")


def killed(at_s: float = 5.0, terminating_s: float = 30.0) -> pl.DataFrame:
    """A pod deleted, its replacement pending until the old one is gone."""
    gone = at_s + terminating_s
    return events(
        (at_s, "lab", "proxy", "", "Begin", "delete the pod"),
        (at_s + 0.01, "kubelet", "proxy", "proxy-1", "Deleted", "grace 30 s"),
        (at_s + 0.02, "kubelet", "proxy", "proxy-2", "Created", ""),
        (at_s + 0.03, "kubelet", "proxy", "proxy-1", "NotReady", ""),
        (at_s + 0.04, "kubelet", "proxy", "proxy-1", "Killing", "SIGTERM, grace 30 s"),
        (gone, "kubelet", "proxy", "proxy-1", "Gone", ""),
        (gone + 0.1, "kubelet", "proxy", "proxy-2", "Started", ""),
        (gone + 0.5, "kubelet", "proxy", "proxy-2", "Ready", ""),
        (gone + 0.6, "lab", "proxy", "", "End", "replaced"),
    )


def usage(processes: Iterable[int], rss_bytes: int = 20_000_000) -> pl.DataFrame:
    rows = [
        (float(second), "proxy", 100 + number, None, "haproxy", 1, 0.1, 0.1, 0.2, 0, 0, 2 * rss_bytes, rss_bytes, None)
        for second, count in enumerate(processes)
        for number in range(count)
    ]
    return pl.DataFrame(rows, schema=USAGE_SCHEMA, orient="row")
