"""What can be said of a run before it starts: how long it takes, and which effects it can be expected to resolve.

Both come from an earlier run on this machine with the same target, loads and generators, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import median

from lab import roundtrip, stats, store
from lab.errors import LabError
from lab.records import RunRecord
from lab.samples import Sample
from lab.store import RunStore
from lab.summary import summarise_run
from lab.units import metric_name

SAMPLE_OVERHEAD_S = 0.6  # canaries, starting the generator, storing
ROUNDTRIP_S = roundtrip.TAKES_S
PRIOR_CV = {"rate": 0.055, "cpu_per_request": 0.03}
"""Coefficients of variation of ten 5 s wrk samples on a shared 2-core machine (design.md §6)."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`resolves`: ("CPU per request at ceiling", smallest effect as a fraction); empty where there is no interval."""

    duration_s: float
    resolves: tuple[tuple[str, float], ...]
    source: str


@dataclass(frozen=True, slots=True)
class Past:
    """What an earlier run teaches. `spreads`: label → standard deviation of its A/A log-ratios."""

    id: str
    bring_up_s: float | None
    spreads: Mapping[str, float]


def forecast(record: RunRecord, bring_up_s: float) -> Forecast:
    """For a run that is about to start (or go on). `bring_up_s`: the target's own guess, where no run was. The resolved effect is found with 90 % probability (`stats.resolvable`)."""
    planned = record.plan()
    past = _past(record)
    if past and past.bring_up_s is not None:
        bring_up_s = past.bring_up_s
    duration_s = planned.measuring_s + planned.bring_ups * bring_up_s + len(planned.slots) * SAMPLE_OVERHEAD_S
    duration_s += ROUNDTRIP_S * any(arm.role == "reference" for arm in planned.arms)
    if planned.blocks < stats.MIN_BLOCKS:
        return Forecast(duration_s, (), f"fewer than {stats.MIN_BLOCKS} blocks give no interval")
    if past is not None and past.spreads:
        spreads, source = past.spreads, f"from the A/A pairs of {past.id}"
    else:
        # an A/A log-ratio is a difference of two samples: its spread is √2 times theirs
        spreads = {f"{metric_name(metric)} at a ceiling": cv * sqrt(2) for metric, cv in PRIOR_CV.items()}
        source = "measured on another 2-core machine; this one has no A/A run of this sweep yet"
    resolves = {label: stats.resolvable(spread, planned.blocks) for label, spread in spreads.items()}
    return Forecast(duration_s, tuple((label, effect) for label, effect in resolves.items() if effect), source)


def _past(record: RunRecord) -> Past | None:
    """The latest whole run with the same target, facts (but for the boot), loads and generators, and blocks enough."""
    for name in reversed(store.run_names()):
        try:
            run = RunStore.open(name)
            if not _alike(run.record, record):
                continue
            samples = run.samples()
            if samples:
                taken = [sample.bring_up_s for sample in samples if sample.bring_up_s is not None]
                return Past(run.record.id, median(taken) if taken else None, _spreads(run, samples))
        except LabError:
            continue  # a damaged run is no guide; it is reported when it is asked for
    return None


def _alike(past: RunRecord, planned: RunRecord) -> bool:
    same_load = past.points == planned.points and past.generators == planned.generators
    same_place = past.target == planned.target and {**past.facts, "boot_id": ""} == {**planned.facts, "boot_id": ""}
    return same_load and same_place and past.blocks >= stats.MIN_BLOCKS and past.id != planned.id


def _spreads(past: RunStore, samples: Sequence[Sample]) -> dict[str, float]:
    """Label → standard deviation of the A/A log-ratios, for each metric that is judged at each point."""
    summary = summarise_run(past.record, samples, past.histogram)
    return {
        f"{metric_name(effect.metric)} at {row.point.name}": effect.estimate.sd
        for row in summary.rows
        for effect in row.shown
        if effect.judgement == "a/a" and effect.estimate and effect.estimate.sd is not None
    }
