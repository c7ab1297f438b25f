"""The design of a run, made before its first sample: how often everything is measured, and which effects the run can detect.

    what can be measured here → worker generations → load generators → blocks → order → run.json with its `Design`

The design uses the noise of earlier runs (`lab.analysis.past`) and the committed variance components
(`lab.analysis.levels`). It does not guess. If the noise of this machine is unknown, no number of blocks can be computed
for an effect. The error then names the command that measures the noise.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from lab.analysis import levels, rerun
from lab.analysis.generations import Place, choose_generations
from lab.analysis.judge.decision import ALPHA
from lab.analysis.noise import BASELINE, Noise
from lab.analysis.past import (
    POOLED,
    Past,
    Schemes,
    find_past_runs,
    forecast,
    pool_pasts,
    select_committed_noise,
    select_judged_noise,
)
from lab.base.errors import UsageError
from lab.base.files import check_writable, runs_folder
from lab.experiments.bench.measurable import MeasurableRun, choose_generator, generator_record, refuse_loads
from lab.experiments.bench.request import RESOLVE, LoadedRequest, Resolve
from lab.measure.measurement import ChosenGenerator
from lab.model.design import PlannedFor, Promise, choose_scheme
from lab.model.metrics import RATIOS, find_metric
from lab.model.names import DEFAULT_TARGET
from lab.model.pairs import SIDES
from lab.model.plan import Arm
from lab.model.run import RunRecord
from lab.model.sweeps import LoadPoint
from lab.stats import power
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks
from lab.targets.base import Target

METRIC = "cpu_per_request"
"""The metric that both closed loops (interleaved) and offered rates (concurrent) show."""
POWER = 0.9
SAMPLE_BYTES = 2_000_000
"""An upper limit of the bytes that a sample's folder takes."""
UNKNOWN = "what its own A/A pairs will show: how much an outcome varies is not known beforehand"


def design_run(
    loaded: LoadedRequest, run: MeasurableRun, target: Target
) -> tuple[RunRecord, dict[str, ChosenGenerator]]:
    """Decide everything about a run (blocks, order, load generators) without starting anything.

    Args:
        loaded: The request with its loads and variants.
        run: The measurable part of the request.
        target: The target.

    Returns:
        (content of run.json with its `Design`, name of a load point → its generator).

    Raises:
        UsageError: The run cannot be carried out as requested; the error is the first fault. One such fault is a variant without TLS
            under loads that are all about TLS sessions.

    """
    request, record = loaded.request, run.record
    solo = record.solo
    if request.nulls is not None:  # the record of an A/A run has no shared-resource cost, but its solo samples stay
        names = [name for name, variant in loaded.asked.items() if variant.shared_cost and name in record.variants]
        shared = {name: record.variants[name].model_copy(update={"shared_cost": True}) for name in names}
        solo = record.model_copy(update={"variants": {**record.variants, **shared}}).solo
    resolve = request.resolve
    points, blocks, fixed = record.points, request.blocks or loaded.sweep.blocks, ()
    if request.nulls is None and (resolve is None or resolve.metric in (None, METRIC)):
        place = Place(target.sides, target.bring_up_s, lambda name: target.makes_new_workers(run.variants[name]))
        judged = len(run.asked) * sum(not point.why_alone for point in points)
        detect = None if resolve is None else (resolve.effect, ALPHA / max(1, judged))
        points, blocks, fixed = choose_generations(
            record, loaded.sweep.blocks, bool(solo), place, request.blocks, detect
        )
    chosen = {point.name: choose_generator(point, target, request.k6_out) for point in points}
    if request.k6_out and target.name != DEFAULT_TARGET:
        fault = f"on target '{target.name}' k6 runs in a pod, and the files it writes stay there"
        raise UsageError("--k6-out", fault, f"leave it out, or measure with --target {DEFAULT_TARGET}")
    if request.k6_out and not any(used.keep for used in chosen.values()):
        made_by = ", ".join(dict.fromkeys(used.generator.name for used in chosen.values()))
        fault = f"no load of sweep '{loaded.sweep_name}' is made by k6 here, all by {made_by}"
        remedy = 'leave it out, or name a sweep by --sweep whose points say generator = "k6"'
        raise UsageError("--k6-out", fault, remedy)
    for name in run.asked:
        endpoints = run.endpoints[name]
        if all(point.resumption is not None and endpoints[point.name].tls == "none" for point in points):
            fault = f"'{name}' is asked without TLS here: there is no session to resume, or not to"
            remedy = "variants whose routes have TLS, as 'tls' has; `just list` shows them"
            raise UsageError(f"point {points[0].name}: resumption", fault, remedy)
    refuse_loads(points, chosen, {name: run.endpoints[name] for name in run.variants})
    generators = {point: generator_record(used) for point, used in chosen.items()}
    record = record.model_copy(update={"points": points, "generators": generators})
    choice, once = None, request.blocks or loaded.sweep.blocks
    if request.resolve is not None:
        choice = _choose_blocks(request.resolve, loaded, record, list(run.asked), target)
        blocks, once = choice.blocks, choice.once
    seed = request.seed if request.seed is not None else secrets.randbelow(2**31)
    record = record.planned(blocks, seed, target.sides, solo, once)
    if not record.pairs and (several := [point for point in points if point.generations > 1]):
        fault = "asks for generations of workers, which a pair is measured on, and nothing is paired here"
        raise UsageError(f"point {several[0].name}", fault, "--target local or apiserver, or leave `generations` out")
    check_writable(runs_folder(), (len(record.slots) + len(record.pairs)) * SAMPLE_BYTES)
    return with_design(record, target.bring_up_s, choice, fixed), chosen


def with_design(
    record: RunRecord, bring_up_s: float, choice: BlockChoice | None = None, fixed_workers: tuple[str, ...] = ()
) -> RunRecord:
    """Complete the design of a run that is about to start or continue: its expected duration, and the effects it can detect.

    A record that has a design already is returned unchanged.

    Args:
        record: The record of the run.
        bring_up_s: The target's estimate of the seconds that starting a system takes. It is used where no earlier run shows them.
        choice: The choice of the number of blocks (repetitions), with the earlier runs that it rests on; None where no effect was
            requested.
        fixed_workers: The variants whose reloads start no new worker processes, so that they are measured on the same processes throughout.

    """
    if record.design is not None:
        return record
    design = record.designed
    if choice is not None:
        design = design.model_copy(update={"planned_for": choice.planned_for})
    expected = forecast(record, bring_up_s, choice.past if choice else None)
    past = expected.past
    promised: tuple[Promise, ...] = ()
    if record.blocks < MIN_BLOCKS:
        source = f"fewer than {MIN_BLOCKS} blocks give no interval"
    elif all(point.has_outcome for point in record.points):
        source = UNKNOWN
    else:
        source = "by the variation measured on another 2-core machine; this one has no run of this sweep yet"
        if past is not None and any(not noise.why for noise in past.noises):
            noises, source = past.noises, past.source
        else:
            variant_of = {arm.name: arm.variant for arm in record.arms}
            bases = dict.fromkeys(variant_of[arm.baseline] for arm in record.arms if arm.baseline)
            noises = select_committed_noise(record.target, bases, record.points)
        promised = find_promises(record.model_copy(update={"design": design}), noises)
    changes = {
        "fixed_workers": fixed_workers,
        "fresh": expected.fresh,
        "duration_s": expected.duration_s,
        "promised": promised,
        "promised_by": source,
        "taught_by": past.runs if past else (),
    }
    return record.model_copy(update={"design": design.model_copy(update=changes)})


def find_promises(record: RunRecord, noises: Sequence[Noise]) -> tuple[Promise, ...]:
    """Return the minimum detectable effects of a run: for each metric and load point, the smallest effect found with 90 % power.

    The metric is the one for which the run was planned, or else the primary metric of each variant. The effects are cautious in two ways.
    They are computed for the strictest threshold of Holm's method, which adjusts for all comparisons of the run. And they use the upper
    limit of the standard deviation, since the noise is only known from earlier runs (`power.compute_planned_sd`).

    Args:
        record: The record of the run, with its design.
        noises: The noise of the baselines in earlier runs.

    """
    design = record.designed
    requested = design.planned_for.asked if design.planned_for else None
    variant_of = {arm.name: arm.variant for arm in record.arms}
    points = {point.name: point for point in record.points}
    tried = [
        arm
        for arm in record.arms
        if arm.role == "variant" and (requested or record.variants[arm.variant].primary_metric in RATIOS)
    ]
    judged: list[tuple[Arm, Noise]] = []
    for arm in tried or [arm for arm in record.arms if arm.role == "again"]:
        variant = record.variants[arm.variant]
        metric = requested or (variant.primary_metric if arm in tried else None)
        shared, foreign = arm.role == "variant" and variant.shared_cost, arm.name in design.systems
        sides = SIDES if record.pairs else SIDES[:1]
        schemes: Schemes = {name: choose_scheme(shared, point, sides, foreign) for name, point in points.items()}
        noise = [item for item in noises if item.variant == variant_of[arm.baseline or ""]]
        judged += [
            (arm, item) for item in select_judged_noise(noise, record.points, metric, requested is not None, schemes)
        ]
    level = ALPHA / max(1, len(judged))
    largest: dict[tuple[str, str], Promise] = {}
    for arm, noise in judged:
        sd, place = power.compute_planned_sd(noise.sd or 0.0, noise.pilot_blocks), (noise.metric, noise.point)
        planned = design.place(arm.name, noise.point, noise.scheme is not None)
        blocks = len(planned.blocks) if planned else 0
        values = points[noise.point].counting(blocks) if noise.scheme else blocks
        effect = power.compute_mde(sd, values, level)
        if effect is not None and (place not in largest or largest[place].effect < effect):
            largest[place] = Promise(metric=noise.metric, point=noise.point, sd=sd, effect=effect)
    return tuple(largest.values())


# -- the number of blocks that detects a requested effect ---------------------------------------------------


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


def _choose_blocks(
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
    if not tried:
        fault = f"{', '.join(names)} is compared with nothing, so that no metric is its primary one"
        raise UsageError(RESOLVE, fault, f"name one: --resolve {Resolve(resolve.effect, 'cpu_per_request')}")
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
