"""Quick runs of one variant, one after the other: how long each took, whether it scattered as planned, what it claimed, of nothing too.

A run is a line of FOLDER/quick.jsonl as soon as it is over, whatever came out, and who goes on there leaves it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from lab.analysis import levels
from lab.analysis.decision import SURE_P, Decision
from lab.analysis.noise import BASELINE
from lab.analysis.summary import beyond_plan, summarise_run
from lab.base.files import reference_folder, writing
from lab.base.validation import Record
from lab.experiments.selfbench import lines
from lab.experiments.selfbench.process import measured_run
from lab.model.metrics import about
from lab.model.names import DEFAULT_TARGET
from lab.records.store import RunStore, run_names

DONE = "quick.jsonl"
FOLDER = reference_folder().parent / "promises"
TAKES_S, AMONG_WORKERS_S = 240.0, 360.0
"""One run, about; the second where it is known that workers scatter."""


class Quick(Record):
    """One run. Effects and promises: metric at point → a fraction."""

    number: int
    target: str = DEFAULT_TARGET
    variant: str
    run: str
    wall_s: float
    promised: dict[str, float]
    effects: dict[str, float] = Field(description="of what may claim")
    decisions: dict[str, Decision]
    beyond: tuple[str, ...] = Field(description="what scattered more than planned, by more than chance")
    nulls: int = Field(description="metrics of the baseline against itself that have an interval")
    null_signs: int = Field(description="of these, as many as have a p of 0.05 at most, each by itself")


class QuickReport(Record):
    """What `selfbench quick --json` prints."""

    schema_version: Literal[1] = 1
    runs: tuple[Quick, ...]
    verdict: str


def finished(folder: Path) -> list[Quick]:
    """UsageError for a damaged file."""
    return lines.read(folder / DONE, Quick)


def committed() -> list[Quick]:
    """Those of data/promises. UsageError for a damaged file."""
    return [one for path in sorted(FOLDER.glob("*.jsonl")) for one in lines.read(path, Quick)]


def takes_s(target: str) -> float:
    return AMONG_WORKERS_S if levels.known(target, [BASELINE], "slices") else TAKES_S


def measured(
    folder: Path, variants: Sequence[str], runs: int, seed: int, target: str = DEFAULT_TARGET
) -> Iterator[Quick]:
    """Those of `runs` of each that are not done yet. StoreError without room, MeasuringError when one stops."""
    done = {(one.target, one.variant, one.number) for one in finished(folder)}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, runs + 1):
        for variant in variants:
            if (target, variant, number) in done:
                continue
            known = run_names(folder / "runs")
            words = ["bench", f"--seed={seed + number}", f"--target={target}", "--json", variant]
            run, timed = measured_run(f"selfbench: quick {number}", folder / "runs", words, takes_s(target), known)
            found = judged(run, variant, number, timed.wall_s)
            lines.add(folder / DONE, [found])
            yield found


def judged(run: RunStore, variant: str, number: int, wall_s: float) -> Quick:
    """What its own table says."""
    summary = summarise_run(run.record, run.samples(), run.histogram)
    shown = {
        f"{one.metric} at {row.point.name}": one
        for row in summary.rows
        if row.arm.role == "variant"
        for one in row.shown
    }
    itself = [one for row in summary.rows if row.arm.role == "again" for one in row.shown]
    signs = [one.estimate.p_value or 0.0 for one in itself if one.estimate and one.estimate.has_interval]
    return Quick(
        number=number,
        target=run.record.target,
        variant=variant,
        run=run.record.id,
        wall_s=wall_s,
        promised={f"{one.metric} at {one.point}": one.effect for one in run.record.designed.promised},
        effects={place: one.estimate.ratio - 1 for place, one in shown.items() if one.estimate},
        decisions={place: one.decision for place, one in shown.items()},
        beyond=tuple(beyond_plan(run.record, summary)),
        nulls=len(signs),
        null_signs=sum(each <= SURE_P for each in signs),
    )


def line(one: Quick) -> str:
    """A run in words."""
    said = ", ".join(
        f"{about(place.partition(' at ')[0]).short} at {place.partition(' at ')[2]} {100 * effect:+.1f} %: {one.decisions[place]}"
        for place, effect in one.effects.items()
    )
    more = f"; {'; '.join(one.beyond)}" if one.beyond else ""
    return f"{one.number:>3}  {one.variant} on {one.target}  {one.wall_s:.0f} s  {said}; a/a {one.null_signs} of {one.nulls}{more}"


def verdict(found: Sequence[Quick]) -> str:
    beyond, signs = sum(bool(one.beyond) for one in found), sum(one.null_signs for one in found)
    nulls, longest = sum(one.nulls for one in found), max((one.wall_s for one in found), default=0.0)
    return (
        f"{len(found)} runs, the longest {longest:.0f} s; {beyond} scattered more than planned; of {nulls} comparisons of the baseline"
        f" with itself {signs} have a sign"
    )
