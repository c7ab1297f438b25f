"""Which loads are known to leave so many local ports waiting that a plan counts on a fresh bring-up after them.

Where a sample recorded what loads leave, that decides. Of older samples connections that the proxy opened stand in for TIME_WAIT
sockets: each waits 60 s, if the proxy closes it. Refuses to say of an older sample which side closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import pairwise

from lab.base.errors import LabError
from lab.base.files import readable, reference_folder, runs_folder
from lab.model.design import PlannedAnew
from lab.model.leftovers import DEFAULT_PORTS, OPENED, PORT_SHARE, ports_taken
from lab.model.plan import Plan, Slot
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.model.variants.naming import spellings
from lab.records.store import RunStore, run_names
from lab.records.tables import RUN

Load = tuple[str, Point]
"""A variant and a load on it, the load without its name."""

EACH_ITS_OWN = 0.95
"""Connections opened per request from which on an older sample does not show who closes them: each request has one of its own then, and
many backends close those. Below it a proxy keeps some and closes what its pool does not take."""
LEAST_SAMPLES = 2
"""Samples of a load on which its leaving too much is known."""


def share_left(sample: Sample) -> float | None:
    """Return the share of local ports that wait in TIME_WAIT after a sample's load; None where it does not show that."""
    if (end := sample.leftovers.get("end")) is not None:
        return None if end.unseen else ports_taken(end).share
    opened = sample.counters.get(OPENED)
    if opened is None or not sample.requests or not sample.duration_s or opened > EACH_ITS_OWN * sample.requests:
        return None
    return opened * (1 + sample.point.warmup_s / sample.duration_s) / DEFAULT_PORTS


def leaving_loads(samples: Iterable[Sample]) -> dict[Load, float]:
    """Return the solo loads each of whose samples left too many ports waiting, LEAST_SAMPLES of them or more → the least share left."""
    shares: dict[Load, list[float | None]] = {}
    for sample in samples:
        if sample.valid and sample.pair is None and sample.point.disturbance is None:
            shares.setdefault((sample.variant, _nameless(sample.point)), []).append(share_left(sample))
    least = {
        load: min(share or 0.0 for share in lefts) for load, lefts in shares.items() if len(lefts) >= LEAST_SAMPLES
    }
    return {load: share for load, share in least.items() if share >= PORT_SHARE}


def planned_anew(planned: Plan, shares: Mapping[Load, float], runs: Sequence[str] = ()) -> PlannedAnew:
    """Count the starts in a plan that cannot be drained, because the load before them in their bring-up leaves too much.

    `shares`: what loads are known to leave at least (`leaving_loads`), from these `runs`.
    """
    count, loads = 0, dict[str, None]()
    for before, after in pairwise(planned.slots):
        if before.bring_up != after.bring_up or before.point.disturbance is not None:
            continue
        leaving = [
            side
            for side in before.sides
            if any(share * _part_left(side, load) >= PORT_SHARE for load, share in shares.items())
        ]
        count += bool(leaving)
        loads |= dict.fromkeys(f"{side.arm.variant} at {side.point.name}" for side in leaving)
    return PlannedAnew(count, tuple(loads), tuple(runs))


def known_anew(planned: Plan, target: str) -> PlannedAnew:
    """Count a plan's certain fresh bring-ups by all runs of its variants on this target, one's own and the committed ones."""
    ups = [slot.bring_up for slot in planned.slots]
    if len(ups) == len(set(ups)):
        return PlannedAnew()
    slots = list({(slot.arm.name, slot.point.name): slot for slot in planned.slots}.values())
    variants = {slot.arm.variant for slot in slots}
    shares: dict[Load, float] = {}
    runs: list[str] = []
    for run in _runs_of(variants, target):
        parts = [
            (slot.arm.variant, point.name, _part_left(slot, (slot.arm.variant, _nameless(point))))
            for point in run.record.points
            for slot in slots
        ]
        if not any(part >= PORT_SHARE for *_, part in parts):
            continue
        alike = {(variant, point) for variant, point, part in parts if part}
        with suppress(LabError):  # a damaged run is no guide; it is reported when it is asked for
            of_run = leaving_loads(run.samples(partial(_is_alone_of, alike)))
            if planned_anew(planned, of_run).count:
                shares |= {load: min(share, shares.get(load, share)) for load, share in of_run.items()}
                runs.append(run.record.id)
    return planned_anew(planned, shares, runs)


def _is_alone_of(loads: Set[tuple[str, str]], sample: Sample) -> bool:
    """Return whether a sample is of one of these variants and points, and of no pair."""
    return sample.pair is None and (sample.variant, sample.point.name) in loads


def _runs_of(variants: Set[str], target: str) -> Iterator[RunStore]:
    """Yield the stored steady runs on a target that have one of the variants. Their run.json is searched before it is parsed."""
    spelled = [f'"{each}"' for variant in variants for each in spellings(variant)]
    for folder in (runs_folder(), reference_folder()):
        for name in run_names(folder):
            text = readable(folder / name / RUN)
            if f'"target": "{target}"' in text and any(each in text for each in spelled):
                with suppress(LabError):
                    run = RunStore.open(str(folder / name))
                    if run.record.target == target and not any(one.disturbance for one in run.record.points):
                        yield run


def _nameless(point: Point) -> Point:
    return point.model_copy(update={"name": ""})


def _part_left(slot: Slot, load: Load) -> float:
    """Return the part of what a known load leaves waiting that a slot's load leaves at least: it is that load, or one of more connections.

    0 where it is another. A shorter load leaves less in proportion at most, since connections are opened fastest while ports are free; of a pair each side
    has half of the time, or what the other leaves it of the machine.
    """
    variant, other = load
    point = _nameless(slot.point)
    if slot.arm.variant != variant or point.connections < other.connections:
        return 0.0
    if point.model_copy(update={name: getattr(other, name) for name in _MORE}) != other:
        return 0.0
    lasts_s, other_s = (each.duration_s + each.warmup_s for each in (point, other))
    return min(1.0, lasts_s / other_s) * (0.5 if slot.against else 1.0)


_MORE = ("connections", "threads", "duration_s", "warmup_s", "subject", "generations", "repeats", "attempts", "singly")
"""Keys of a point that may differ from the known load's: more connections leave more, and the others decide nothing of it."""
