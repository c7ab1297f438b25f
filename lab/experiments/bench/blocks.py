"""The number of blocks (repetitions) with which a run detects a requested effect, as `--resolve 5%` requests one.

The number follows from the noise of earlier runs (`lab.analysis.past`) and the committed variance components (`lab.analysis.levels`). It
is never guessed: if the noise is unknown, the error names the command that measures the noise.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from lab.analysis import levels, rerun
from lab.analysis.judge.decision import ALPHA
from lab.analysis.noise import BASELINE, Noise
from lab.analysis.past import (
    POOLED,
    Past,
    Schemes,
    find_past_runs,
    pool_pasts,
    select_committed_noise,
    select_judged_noise,
)
from lab.base.errors import UsageError, refuse_if
from lab.experiments.bench.request import RESOLVE, LoadedRequest, Resolve
from lab.model.design import PlannedFor, choose_scheme
from lab.model.metrics import RATIOS, find_metric
from lab.model.pairs import SIDES
from lab.model.run import RunRecord
from lab.model.sweeps import LoadPoint
from lab.stats import power
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks
from lab.targets.base import Target

POWER = 0.9


@dataclass(frozen=True, slots=True)
class BlockChoice:
    """The number of blocks (repetitions) that a run needs to detect a requested effect everywhere.

    The variant and load point with the most noise decide.

    Attributes:
        blocks: The number of blocks.
        planned_for: The effect, with the metric and load point that need this number.
        past: The earlier runs that showed the noise of this metric at this load point.
        once: The number of blocks for load points that are measured on a single worker generation (the worker processes between two
            reloads), if the run also has load points that are measured on several.

    """

    blocks: int
    planned_for: PlannedFor
    past: Past
    once: int = MIN_BLOCKS


def choose_blocks(
    resolve: Resolve, loaded: LoadedRequest, record: RunRecord, names: Sequence[str], target: Target
) -> BlockChoice:
    """Return the number of blocks (repetitions) with which a run detects the requested effect.

    Args:
        resolve: The requested effect.
        loaded: The request with its loads and variants.
        record: The record of the run, with its load points.
        names: The requested variants that are measurable.
        target: The target.

    Raises:
        UsageError: No number can be given: the sweep has a disruption, there is no metric or earlier run, an earlier run has judged no
            effect in this metric, or too many blocks are needed.

    """
    sweep, points = loaded.request.sweep or loaded.sweep_name, {point.name: point for point in record.points}
    if any(point.has_outcome for point in record.points):
        fault = f"what comes of the load in sweep '{sweep}' varies in its own unit, not by per cent"
        raise UsageError(RESOLVE, fault, "name the number by --blocks: its own A/A pairs show what it resolved")
    tried = {name: metric for name in names if (metric := resolve.metric or record.variants[name].primary_metric)}
    fault = f"{', '.join(names)} is compared with nothing, so that no metric is its primary one"
    refuse_if(not tried, RESOLVE, fault, f"name one: --resolve {Resolve(resolve.effect, 'cpu_per_request')}")
    for name, metric in tried.items():
        if needs := record.variants[name].needs:
            fault = f"{name} needs {needs}: no number of blocks shows its effect here"
            raise UsageError(RESOLVE, fault, "measure the others without it")
        if metric not in RATIOS:
            fault = f"the primary metric of {name} is {metric}, which is counted, not compared by per cent"
            raise UsageError(
                RESOLVE, fault, f"name another: --resolve {Resolve(resolve.effect, 'rate')}, or --blocks N"
            )
    load = f"--sweep {shlex.quote(sweep)}{rerun.placed(record.at_knee, loaded.request.k6_out)}"
    pasts, systems = dict[str, Past](), record.different_systems
    judged: list[tuple[Noise, Past]] = []
    for name, metric in tried.items():
        base, shared = loaded.baselines[name], record.variants[name].shared_cost
        past = pasts[base] = pasts.get(base) or _past_of(base, loaded, record, target, load)
        schemes: Schemes = {
            point_name: choose_scheme(shared, point, target.sides, name in systems)
            for point_name, point in points.items()
        }
        noises = select_judged_noise(past.of(base), record.points, metric, resolve.metric is not None, schemes)
        if not noises:
            reasons = dict.fromkeys(
                f"at {noise.point}: {noise.why}" for noise in past.of(base) if noise.metric == metric and noise.why
            )
            metrics = dict.fromkeys(noise.metric for noise in past.of(base) if not noise.why)
            fault = f"{find_metric(metric).title} was not judged in {past.id}: {'; '.join(reasons)}"
            raise UsageError(RESOLVE, fault, f"name one that is: {', '.join(metrics)}")
        judged += [(noise, past) for noise in noises]
    level = ALPHA / len(judged)  # the first step of Holm's method over all of them
    choices = [_choose_for(resolve, noise, past, level, points[noise.point]) for noise, past in judged]
    largest = max(choices, key=lambda choice: choice.blocks)
    return replace(largest, once=max(choice.once for choice in choices))


def _past_of(base: str, loaded: LoadedRequest, record: RunRecord, target: Target, load: str) -> Past:
    """Return the noise of a baseline at the loads of a run, from earlier runs on this machine.

    Without such a run, the noise is taken from committed measurements on another machine.

    Args:
        base: The name of the baseline.
        loaded: The request with its loads and variants.
        record: The record of the run, with its load points.
        target: The target.
        load: The options of the load, for the command in the error.

    Raises:
        UsageError: The noise is not known from either source.

    """
    covering = [past for past in find_past_runs(record) if past.covers({base: record.variants[base].manifests_sha256})]
    if covering:
        return pool_pasts(covering[:POOLED])
    bases = set(loaded.baselines.values())
    committed = any(levels.find_components(target.name, {name}, "slices") for name in bases)
    if committed and len(target.sides) == len(SIDES):
        noises = tuple(select_committed_noise(target.name, bases, record.points))
        past = Past(("data/pairs and data/levels",), None, noises, {})
        if past.of(base):
            return past
    fault = (
        f"how noisy '{base}' is here with {load} is not known: no earlier run on this machine has an"
        f" A/A pair of it with {MIN_BLOCKS} valid blocks, the same manifests, target, facts, loads and generators"
    )
    name = "" if base == BASELINE else f"{base} "
    raise UsageError(RESOLVE, fault, f"measure it: just aa {name}{load}{rerun.place(target.name)}")


def _choose_for(resolve: Resolve, noise: Noise, past: Past, level: float, point: LoadPoint) -> BlockChoice:
    assert noise.sd is not None, "what is judged has a spread"
    effect, metric = resolve.effect, noise.metric
    values = power.count_blocks_for_effect(noise.sd, noise.pilot_blocks, effect, level, POWER)
    if values is None:
        smallest = power.compute_mde_from_pilot(noise.sd, noise.pilot_blocks, power.MAX_BLOCKS, level, POWER) or 0.0
        place = f"{find_metric(metric).title} at {noise.point}"
        fault = f"not even {format_blocks(power.MAX_BLOCKS)} resolve {100 * effect:g} % in {place} ({past.source})"
        remedy = f"they resolve {100 * smallest:.2g} %: ask for more than that, or quieten the machine and measure `just aa` again"
        raise UsageError(RESOLVE, fault, remedy)
    planned = PlannedFor(
        effect=effect, metric=metric, point=noise.point, asked=resolve.metric, power=POWER, from_run=past.id
    )
    values_per_block = point.counting(1) if noise.scheme else 1
    blocks = max(MIN_BLOCKS, ceil(values / values_per_block))
    return BlockChoice(blocks, planned, past, blocks if point.generations == 1 else MIN_BLOCKS)
