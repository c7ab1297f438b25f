"""Which knee a sweep's loads are placed at, and the loads at it. Reads an earlier search (`just knee`), measures nothing.

All arms of a run are measured at the same absolute rates, those of their baseline's knee: the question is which of them answers
faster at one load. Refuses a knee of another load or target, and to guess one.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.analysis import rerun
from lab.analysis.knee.report import differs, report_of
from lab.base.errors import UsageError
from lab.model.run import AtKnee
from lab.model.sweeps import Point
from lab.records.store import RunStore


def placed(
    points: Sequence[Point], knee: str | None, baselines: Sequence[str], target: str
) -> tuple[tuple[Point, ...], AtKnee]:
    """The points with their rates, and the knee they were placed at. UsageError where it will not do, or no point asks for one.

    Args:
        points: Of the sweep.
        knee: The name of a search's run, or a rate.
        baselines: What the variants are compared with.
        target: Where they are to be measured.

    """
    wanted = [point for point in points if point.of_knee is not None]
    if not wanted:
        raise UsageError("--knee", "no load of this sweep is placed at a knee", "leave it out, or --sweep at-knee")
    search = f"find it with `just knee {baselines[0]}{rerun.place(target)}{_options(wanted[0])}`"
    if knee is None:
        fault = "this sweep's loads are placed at a knee, and none is named"
        raise UsageError("--knee", fault, f"{search}, or name a rate: --knee 2000")
    try:
        rate_rps = float(knee.replace(",", ""))
    except ValueError:
        found = _of_run(RunStore.open(knee), wanted, baselines, target, search)
    else:
        if not 1 <= rate_rps <= 10_000_000:
            fault = f"expected 1 to 10,000,000 requests per second, got {knee}"
            raise UsageError("--knee", fault, "name a rate or a run")
        found = AtKnee(rate_rps=rate_rps, run=None, variant=None)
    return tuple(point.at_rate(found.rate_rps) for point in points), found


def _of_run(run: RunStore, wanted: Sequence[Point], baselines: Sequence[str], target: str, search: str) -> AtKnee:
    record = run.record
    if record.knee is None:
        raise UsageError("--knee", f"run {record.id} is no search for a knee", search)
    if record.target != target:
        raise UsageError("--knee", f"the knee of {record.id} is of target '{record.target}', not '{target}'", search)
    if other := differs(record.points[0], wanted):
        raise UsageError("--knee", f"the knee of {record.id} is of another load: {other}", search)
    knees = {knee.variant: knee for knee in report_of(run).knees}
    variant = next((name for name in (*baselines, *(knees if len(knees) == 1 else ())) if name in knees), None)
    if variant is None:
        fault = f"run {record.id} has no knee of {', '.join(baselines)}, only of {', '.join(knees)}"
        raise UsageError("--knee", fault, "name a rate instead")
    found = knees[variant]
    if found.rate_rps is None:
        raise UsageError("--knee", f"run {record.id} found no knee: {found.why}", "name another run, or a rate")
    return AtKnee(rate_rps=found.rate_rps, run=record.id, variant=variant, at_least=found.at_least)


def _options(point: Point) -> str:
    """Of the command that finds the knee of this load, as far as a search can be asked for it."""
    options = f" --connections {point.connections}" if point.connections != 100 else ""
    options += f" --page {point.page}" if point.page != "1kB.bin" else ""
    options += f" --tls {point.tls}" if point.tls != "routed" else ""
    options += f" --accept-encoding {point.accept_encoding}" if point.accept_encoding != "identity" else ""
    return options + ("" if point.keepalive else " --close")
