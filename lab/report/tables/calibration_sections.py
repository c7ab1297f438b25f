"""A calibration's tables. Units are scaled here only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lab.analysis.calibration.findings import Bias, Close, Pause, RateCeiling, Row, Spread
from lab.analysis.calibration.records import TOLD
from lab.analysis.calibration.scenarios import OVER_S, RATE_RPS
from lab.report import grid
from lab.report.grid import Grid
from lab.stats.units import format_rate, three_digits

GENERATORS = (
    "generator",
    "version",
    "model",
    "latency from",
    "floor p50 µs",
    "p99 µs",
    "ceiling req/s",
    "alone",
    "CPU/req µs",
    "CPU/req at rate µs",
)
NONE = "–"
NOISY = "*"
"""Beside the name of a generator some of whose measurements here were disturbed."""


def sections(rows: Sequence[Row]) -> list[tuple[str, Grid]]:
    """(title, table) of what was measured; generators that are not installed have a row in the first."""
    here = [row for row in rows if row.measurements]
    both = (f"{what} {name}{unit}" for name in TOLD for what, unit in (("true", " ms"), ("bias", " µs")))
    tables = [
        (
            f"generators: floor (server answers at once), ceiling, CPU per request at {format_rate(RATE_RPS)} req/s",
            GENERATORS,
            (0, 1, 2, 3),
            [_generator(row) for row in rows],
        ),
        (
            "bias: reported minus the server's own record; the way through the network is in it",
            ("generator", "scenario", *both),
            (0, 1),
            [line for row in here for line in _bias(row)],
        ),
        (
            f"coordinated omission: of a pause of 1 s, the requests that took more than {OVER_S:g} s",
            ("generator", "reported %", "true %", "dropped", "the pause is"),
            (0, 4),
            [_pause(row, found) for row in here if (found := row.pause)],
        ),
        (
            "connections closed after 10 answers",
            ("generator", "completed", "server answered", "errors", "closed"),
            (0,),
            [_close(row, found) for row in here if (found := row.close)],
        ),
        (
            "rate ceiling: the server serves half of what an open loop offers",
            ("generator", "offered req/s", "achieved", "true", "the lab calls the sample"),
            (0, 4),
            [_rate_ceiling(row, found) for row in here if (found := row.rate_ceiling)],
        ),
    ]
    return [
        (title, Grid(grid.columns(head, left, style="dim"), tuple(grid.row(*cells) for cells in lines)))
        for title, head, left, lines in tables
        if lines
    ]


def _spread(found: Spread | None, shown: Callable[[float], str]) -> str:
    if found is None:
        return NONE
    low, high = shown(found.low), shown(found.high)
    return shown(found.median) + (f" ({low}…{high})" if low != high else "")


def _us(value_s: float) -> str:
    return three_digits(value_s, 1e6)


def _ms(value_s: float) -> str:
    return three_digits(value_s, 1e3)


def _signed_us(value_s: float) -> str:
    return f"{'−' if value_s < 0 else '+'}{_us(abs(value_s))}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _mark(row: Row, *scenarios: str) -> str:
    return NOISY if any(name in row.noisy for name in scenarios) else ""


def _generator(row: Row) -> tuple[str, ...]:
    known = row.known
    model = "/".join(sorted(known.models, reverse=True))
    if not known.installed:
        return (known.name, "not installed", model, known.latency_from, *([NONE] * 6))
    floor: Mapping[str, Bias] = row.bias.get("floor", {})
    p50, p99 = (floor[name].reported_s if name in floor else None for name in ("p50", "p99"))
    ceiling = row.ceiling
    return (
        known.name + _mark(row, "floor", "ceiling", "fixed"),
        known.version or NONE,
        model,
        known.latency_from,
        _spread(p50, _us),
        _spread(p99, _us),
        _spread(ceiling.achieved_rps if ceiling else None, _count),
        _spread(ceiling.alone_rps if ceiling else None, _about),
        _spread(ceiling.cpu_per_request_s if ceiling else None, _us),
        _spread(row.cpu_per_request_s, _us),
    )


def _about(value: float) -> str:
    """Three significant digits: 1 / CPU per request is an estimate."""
    return f"{float(f'{value:.3g}'):,.0f}"


def _bias(row: Row) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for name, found in row.bias.items():
        cells: list[str] = []
        for each in found.values():
            share = f" {100 * each.bias_share.median:+.1f} %".replace("-", "−") if each.bias_share else ""
            cells += [_spread(each.true_s, _ms), _spread(each.bias_s, _signed_us) + share]
        lines.append((row.known.name + _mark(row, name), name, *cells))
    return lines


def _pause(row: Row, found: Pause) -> tuple[str, ...]:
    shares = (_spread(found.reported_share, _percent), _spread(found.true_share, _percent))
    return (row.known.name + _mark(row, "pause"), *shares, _spread(found.dropped, _count), found.sight)


def _close(row: Row, found: Close) -> tuple[str, ...]:
    counts = (found.reported, found.true, found.errors, found.closed)
    return (row.known.name + _mark(row, "close"), *(_spread(each, _count) for each in counts))


def _rate_ceiling(row: Row, found: RateCeiling) -> tuple[str, ...]:
    judged = f"invalid: {', '.join(found.reasons)}" if found.reasons else "valid"
    offered = format_rate(found.offered_rps) if found.offered_rps is not None else "closed loop"
    rates = (_spread(found.achieved_rps, _count), _spread(found.true_rps, _count))
    return (row.known.name + _mark(row, "rate-ceiling"), offered, *rates, judged)
