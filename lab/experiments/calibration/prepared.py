"""From what was asked for to a calibration that can be measured: who is installed, who can make which load, in what order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.calibration.records import CalibrationRecord, Known
from lab.analysis.calibration.scenarios import Cell, cell, planned, scenario
from lab.generators import GENERATORS, Generator, Installed
from lab.model import facts
from lab.model.run import now
from lab.records.store import new_id
from lab.targets.base import Target


@dataclass(frozen=True, slots=True)
class Ready:
    """`slots`: (repeat, cell) in the order of measuring; `installed`: by name, of those that are."""

    record: CalibrationRecord
    slots: Sequence[tuple[int, Cell]]
    installed: Mapping[str, Installed]


def prepare(
    target: Target,
    names: Sequence[str],
    scenarios: Sequence[str],
    duration_s: float,
    repeats: int,
    seed: int,
    command: Sequence[str],
) -> Ready:
    """`names`: generators; these and scenarios in their own order. Starts nothing, writes nothing.

    What is not installed, or cannot make a load, is in the record with the reason.
    """
    known = GENERATORS
    found = {name: installed for name in names if (installed := target.installed(known[name]))}
    cells = [cell(known[name], scenario(each), duration_s) for name in found for each in scenarios]
    slots = planned(cells, repeats, seed)
    record = CalibrationRecord(
        id=new_id("calibration"),
        created_at=now(),
        command=tuple(command),
        target=target.name,
        seed=seed,
        repeats=repeats,
        duration_s=duration_s,
        scenarios={name: scenario(name).says for name in scenarios},
        generators=tuple(_known(known[name], found.get(name), cells) for name in names),
        planned=len(slots),
        facts=facts.machine() | dict(target.facts()),
        git_commit=facts.git_commit(),
    )
    return Ready(record, slots, found)


def _known(generator: Generator, installed: Installed | None, cells: Sequence[Cell]) -> Known:
    return Known(
        name=generator.name,
        version=installed.version if installed else None,
        installed=installed is not None,
        remedy=generator.remedy,
        models=tuple(sorted(generator.models)),
        latency_from=generator.latency_from,
        refusals={each.scenario: each.refusal for each in cells if each.generator == generator.name and each.refusal},
    )
