"""What can be said of a run before it starts: how long it takes, and which effects it can be expected to resolve.

Both come from an earlier run on this machine with the same target, loads and generators, if there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from statistics import median

from lab import stats, store
from lab.errors import UsageError
from lab.store import RunRecord, RunStore
from lab.summary import summarise_run
from lab.units import metric_name

BRING_UP_S = 2.0
SAMPLE_OVERHEAD_S = 0.6  # canaries, starting the generator, storing
PRIOR_CV = {"rate": 0.055, "cpu_per_request": 0.03}
"""Coefficients of variation of ten 5 s wrk samples on a shared 2-core machine (design.md §6)."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`resolves`: ("CPU per request at ceiling", smallest effect as a fraction); empty where there is no interval."""

    duration_s: float
    resolves: tuple[tuple[str, float], ...]
    source: str


def forecast(record: RunRecord) -> Forecast:
    """For a run that is about to start (or go on). The resolved effect is found with 90 % probability (`stats.resolvable`)."""
    planned = record.plan()
    past = _past(record)
    taken = [s.bring_up_s for s in past.samples() if s.bring_up_s is not None] if past else []
    bring_up_s = median(taken) if taken else BRING_UP_S
    duration_s = planned.measuring_s + planned.bring_ups * bring_up_s + len(planned.slots) * SAMPLE_OVERHEAD_S
    if planned.blocks < stats.MIN_BLOCKS:
        return Forecast(duration_s, (), f"fewer than {stats.MIN_BLOCKS} blocks give no interval")
    if past is not None and (spreads := _spreads(past)):
        resolves = {label: stats.resolvable(spread, planned.blocks) for label, spread in spreads.items()}
        source = f"from the A/A pairs of {past.record.id}"
    else:
        # an A/A log-ratio is a difference of two samples: its spread is √2 times theirs
        priors = {f"{metric_name(metric)} at a ceiling": cv * sqrt(2) for metric, cv in PRIOR_CV.items()}
        resolves = {label: stats.resolvable(spread, planned.blocks) for label, spread in priors.items()}
        source = "measured on another 2-core machine; this one has no A/A run of this sweep yet"
    return Forecast(duration_s, tuple((label, effect) for label, effect in resolves.items() if effect), source)


def _past(record: RunRecord) -> RunStore | None:
    """The latest run with the same target, facts (but for the boot), loads and generators, and blocks enough."""
    for name in reversed(store.run_names()):
        try:
            run = RunStore.open(name)
            samples = run.samples()
        except UsageError:
            continue  # a damaged run is no guide; it is reported when it is asked for
        same_load = run.record.points == record.points and run.record.generators == record.generators
        same_facts = {**run.record.facts, "boot_id": ""} == {**record.facts, "boot_id": ""}
        enough = run.record.blocks >= stats.MIN_BLOCKS and bool(samples) and run.record.id != record.id
        if same_load and same_facts and enough and run.record.target == record.target:
            return run
    return None


def _spreads(past: RunStore) -> dict[str, float]:
    """Label → standard deviation of the A/A log-ratios, for each metric that is judged at each point."""
    summary = summarise_run(past.record, past.samples(), past.histogram)
    return {
        f"{metric_name(effect.metric)} at {row.point.name}": effect.estimate.sd
        for row in summary.rows
        for effect in row.shown
        if effect.judgement == "a/a" and effect.estimate and effect.estimate.sd is not None
    }
