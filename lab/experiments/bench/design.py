"""What a run measures, decided in one place before its first sample: generations of workers, blocks, pairs, solo samples, promises, duration.

    what can be measured here → generations → generators → blocks → slots → run.json with its `Design` (lab/model/design.py)

It goes by what earlier runs taught (`lab.analysis.past`) and by committed levels of scatter (`lab.analysis.levels`). Refuses to guess: where an
effect is to be found and nothing is known of the noise here, there is no number of blocks, only the command that measures the noise.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from lab.analysis import levels, rerun
from lab.analysis.judge.decision import SURE_P
from lab.analysis.noise import BASELINE, Noise
from lab.analysis.past import POOLED, Past, Schemes, elsewhere, forecast, judged_at, past_runs, together
from lab.base.errors import UsageError
from lab.base.files import check_writable, runs_folder
from lab.experiments.bench.measurable import MeasurableRun, choose, generator_record, refuse_loads
from lab.experiments.bench.request import RESOLVE, LoadedRequest, Resolve
from lab.measure.measurement import ChosenGenerator
from lab.model.design import GUARD, PlannedFor, Promise, scheme_of
from lab.model.metrics import RATIOS, about
from lab.model.names import DEFAULT_TARGET
from lab.model.pairs import SIDES
from lab.model.plan import RELOAD_S, SAMPLE_OVERHEAD_S, Arm
from lab.model.run import RunRecord
from lab.model.sweeps import Point
from lab.records.levels import Known
from lab.stats import power
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks
from lab.targets.base import Target

METRIC = "cpu_per_request"
"""What slices and rates both tell."""
POWER = 0.9
LEAST_S = 280.0
"""What one variant's pairs and those that guard it may take together where workers scatter, however short the sweep: with `quick`'s arms
alone that is six minutes.
"""
MOST = 50
LEAST_LOAD_S, LEAST_WARM_UP_S = 1.0, 0.5
"""Of one generation: the load that one would have had is shared out among several."""
SAMPLE_BYTES = 2_000_000  # more than a sample's folder takes
UNKNOWN = "what its own A/A pairs will show: how much an outcome varies is not known beforehand"


def design_run(
    loaded: LoadedRequest, shown: MeasurableRun, target: Target
) -> tuple[RunRecord, dict[str, ChosenGenerator]]:
    """Decide all of a run, without starting anything: run.json as it begins, with its `Design`; and point → its generator.

    UsageError on the first fault. Where every load is about TLS sessions and none has TLS, nothing is measured.
    """
    request, record = loaded.request, shown.record
    solo = record.solo
    if request.nulls is not None:  # as a null, of whose record its cost is not shared
        alone = [name for name, variant in loaded.asked.items() if variant.shared_cost and name in record.variants]
        shared = {name: record.variants[name].model_copy(update={"shared_cost": True}) for name in alone}
        solo = record.model_copy(update={"variants": {**record.variants, **shared}}).solo
    points, blocks, fixed = _choose_generations(loaded, shown, target, bool(solo))
    chosen = {point.name: choose(point, target, request.k6_out) for point in points}
    if request.k6_out and target.name != DEFAULT_TARGET:
        fault = f"on target '{target.name}' k6 runs in a pod, and the files it writes stay there"
        raise UsageError("--k6-out", fault, f"leave it out, or measure with --target {DEFAULT_TARGET}")
    if request.k6_out and not any(used.keep for used in chosen.values()):
        made_by = ", ".join(dict.fromkeys(used.generator.name for used in chosen.values()))
        fault = f"no load of sweep '{loaded.sweep_name}' is made by k6 here, all by {made_by}"
        remedy = 'leave it out, or name a sweep by --sweep whose points say generator = "k6"'
        raise UsageError("--k6-out", fault, remedy)
    for name in shown.asked:
        endpoints = shown.endpoints[name]
        if all(point.resumption is not None and endpoints[point.name].tls == "none" for point in points):
            fault = f"'{name}' is asked without TLS here: there is no session to resume, or not to"
            remedy = "variants whose routes have TLS, as 'tls' has; `just list` shows them"
            raise UsageError(f"point {points[0].name}: resumption", fault, remedy)
    refuse_loads(points, chosen, {name: shown.endpoints[name] for name in shown.variants})
    generators = {point: generator_record(used) for point, used in chosen.items()}
    record = record.model_copy(update={"points": points, "generators": generators})
    choice, once = None, request.blocks or loaded.sweep.blocks
    if request.resolve is not None:
        choice = _choose_blocks(request.resolve, loaded, record, list(shown.asked), target)
        blocks, once = choice.blocks, choice.once
    seed = request.seed if request.seed is not None else secrets.randbelow(2**31)
    record = record.planned(blocks, seed, target.sides, solo, once)
    if not record.pairs and (asking := [point for point in points if point.generations > 1]):
        fault = "asks for generations of workers, which a pair is measured on, and nothing is paired here"
        raise UsageError(f"point {asking[0].name}", fault, "--target local or apiserver, or leave `generations` out")
    check_writable(runs_folder(), (len(record.slots) + len(record.pairs)) * SAMPLE_BYTES)
    return with_design(record, target.bring_up_s, choice, fixed), chosen


def with_design(
    record: RunRecord, bring_up_s: float, choice: Choice | None = None, fixed_workers: tuple[str, ...] = ()
) -> RunRecord:
    """Return a run that is about to start (or go on) with its whole design: what its slots show, how long it takes, what it can find.

    `bring_up_s`: the target's own guess, where no earlier run tells; `choice`: why it has so many blocks, and the earlier runs to go by.
    """
    if record.design is not None:
        return record
    design = record.designed
    if choice is not None:
        design = design.model_copy(update={"planned_for": choice.planned_for})
    there = forecast(record, bring_up_s, choice.past if choice else None)
    past = there.past
    promised: tuple[Promise, ...] = ()
    if record.blocks < MIN_BLOCKS:
        source = f"fewer than {MIN_BLOCKS} blocks give no interval"
    elif all(point.disturbance is not None for point in record.points):
        source = UNKNOWN
    else:
        source = "by the scatter measured on another 2-core machine; this one has no run of this sweep yet"
        if past is not None and any(not noise.why for noise in past.noises):
            known, source = past.noises, past.source
        else:
            variant_of = {arm.name: arm.variant for arm in record.arms}
            bases = dict.fromkeys(variant_of[arm.baseline] for arm in record.arms if arm.baseline)
            known = elsewhere(record.target, bases, record.points)
        promised = promises(record.model_copy(update={"design": design}), known)
    changes = {
        "fixed_workers": fixed_workers,
        "fresh": there.fresh,
        "duration_s": there.duration_s,
        "promised": promised,
        "promised_by": source,
        "taught_by": past.runs if past else (),
    }
    return record.model_copy(update={"design": design.model_copy(update=changes)})


def promises(record: RunRecord, known: Sequence[Noise]) -> tuple[Promise, ...]:
    """The effects, in the metrics that the record's variants are judged by: the one that it was planned for, or their own.

    They are found with 90 % probability though the noise is only known from earlier runs: at the first step of Holm's method over all of
    them, and the upper limit of the scatter (`power.planned_sd`).
    """
    design = record.designed
    asked = design.planned_for.asked if design.planned_for else None
    variant_of = {arm.name: arm.variant for arm in record.arms}
    points = {point.name: point for point in record.points}
    tried = [
        arm
        for arm in record.arms
        if arm.role == "variant" and (asked or record.variants[arm.variant].primary_metric in RATIOS)
    ]
    judged: list[tuple[Arm, Noise]] = []
    for arm in tried or [arm for arm in record.arms if arm.role == "again"]:
        variant = record.variants[arm.variant]
        metric = asked or (variant.primary_metric if arm in tried else None)
        shared, other = arm.role == "variant" and variant.shared_cost, arm.name in design.systems
        sides = SIDES if record.pairs else SIDES[:1]
        schemes: Schemes = {name: scheme_of(shared, point, sides, other) for name, point in points.items()}
        noise = [each for each in known if each.variant == variant_of[arm.baseline or ""]]
        judged += [(arm, each) for each in judged_at(noise, record.points, metric, asked is not None, schemes)]
    level = SURE_P / max(1, len(judged))
    found: dict[tuple[str, str], Promise] = {}
    for arm, noise in judged:
        sd, place = power.planned_sd(noise.sd or 0.0, noise.pilot_blocks), (noise.metric, noise.point)
        planned = design.place(arm.name, noise.point, noise.scheme is not None)
        blocks = len(planned.blocks) if planned else 0
        values = points[noise.point].counting(blocks) if noise.scheme else blocks
        effect = power.resolvable(sd, values, level)
        if effect is not None and (place not in found or found[place].effect < effect):
            found[place] = Promise(metric=noise.metric, point=noise.point, sd=sd, effect=effect)
    return tuple(found.values())


# -- how many blocks find an effect that was asked for ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Choice:
    """As many blocks as the variant and point that want the most; `past` is the run that said so. `once`: as many as those want that are
    measured on one generation of workers, where others are on several.
    """

    blocks: int
    planned_for: PlannedFor
    past: Past
    once: int = MIN_BLOCKS


def _choose_blocks(
    wanted: Resolve, loaded: LoadedRequest, record: RunRecord, asked: Sequence[str], target: Target
) -> Choice:
    """As many as find the effect that was asked for.

    UsageError where nothing can be promised: a disturbed sweep, no metric, no earlier run, nothing judged, too many blocks.
    """
    sweep, points = loaded.request.sweep or loaded.sweep_name, {point.name: point for point in record.points}
    if any(point.disturbance is not None for point in record.points):
        fault = f"what comes of the disturbance in sweep '{sweep}' varies in its own unit, not by per cent"
        raise UsageError(RESOLVE, fault, "name the number by --blocks: its own A/A pairs show what it resolved")
    tried = {name: metric for name in asked if (metric := wanted.metric or record.variants[name].primary_metric)}
    if not tried:
        fault = f"{', '.join(asked)} is compared with nothing, so that no metric is its primary one"
        raise UsageError(RESOLVE, fault, f"name one: --resolve {Resolve(wanted.effect, 'cpu_per_request')}")
    for name, metric in tried.items():
        if needs := record.variants[name].needs:
            fault = f"{name} needs {needs}: no number of blocks shows its effect here"
            raise UsageError(RESOLVE, fault, "measure the others without it")
        if metric not in RATIOS:
            fault = f"the primary metric of {name} is {metric}, which is counted, not compared by per cent"
            raise UsageError(RESOLVE, fault, f"name another: --resolve {Resolve(wanted.effect, 'rate')}, or --blocks N")
    load = f"--sweep {shlex.quote(sweep)}{rerun.placed(record.at_knee, loaded.request.k6_out)}"
    pasts, systems = dict[str, Past](), record.different_systems
    judged: list[tuple[Noise, Past]] = []
    for name, metric in tried.items():
        base, shared = loaded.baselines[name], record.variants[name].shared_cost
        past = pasts[base] = pasts.get(base) or _past_of(base, loaded, record, target, load)
        schemes: Schemes = {at: scheme_of(shared, point, target.sides, name in systems) for at, point in points.items()}
        noises = judged_at(past.of(base), record.points, metric, wanted.metric is not None, schemes)
        if not noises:
            why = dict.fromkeys(
                f"at {one.point}: {one.why}" for one in past.of(base) if one.metric == metric and one.why
            )
            others = dict.fromkeys(one.metric for one in past.of(base) if not one.why)
            fault = f"{about(metric).title} was not judged in {past.id}: {'; '.join(why)}"
            raise UsageError(RESOLVE, fault, f"name one that is: {', '.join(others)}")
        judged += [(noise, past) for noise in noises]
    level = SURE_P / len(judged)  # of the first step of Holm's method over all of them
    choices = [_choice(wanted, noise, past, level, points[noise.point]) for noise, past in judged]
    most = max(choices, key=lambda choice: choice.blocks)
    return replace(most, once=max(choice.once for choice in choices))


def _past_of(base: str, loaded: LoadedRequest, record: RunRecord, target: Target, load: str) -> Past:
    """What is known of a baseline's noise here, by earlier runs, else by committed levels of its scatter. UsageError where nothing is."""
    covering = [past for past in past_runs(record) if past.covers({base: record.variants[base].manifests_sha256})]
    if covering:
        return together(covering[:POOLED])
    bases = set(loaded.baselines.values())
    committed = any(levels.known(target.name, {each}, "slices") for each in bases)
    if committed and len(target.sides) == len(SIDES):
        noises = tuple(elsewhere(target.name, bases, record.points))
        there = Past(("data/pairs and data/levels",), None, noises, {})
        if there.of(base):
            return there
    fault = (
        f"how noisy '{base}' is here with {load} is not known: no earlier run on this machine has an"
        f" A/A pair of it with {MIN_BLOCKS} valid blocks, the same manifests, target, facts, loads and generators"
    )
    name = "" if base == BASELINE else f"{base} "
    raise UsageError(RESOLVE, fault, f"measure it: just aa {name}{load}{rerun.place(target.name)}")


def _choice(wanted: Resolve, noise: Noise, past: Past, level: float, point: Point) -> Choice:
    assert noise.sd is not None, "what is judged has a spread"
    effect, metric = wanted.effect, noise.metric
    values = power.blocks_for(noise.sd, noise.pilot_blocks, effect, level, POWER)
    if values is None:
        least = power.resolvable_now(noise.sd, noise.pilot_blocks, power.MAX_BLOCKS, level, POWER) or 0.0
        where = f"{about(metric).title} at {noise.point}"
        fault = f"not even {format_blocks(power.MAX_BLOCKS)} resolve {100 * effect:g} % in {where} ({past.source})"
        remedy = f"they resolve {100 * least:.2g} %: ask for more than that, or quieten the machine and measure `just aa` again"
        raise UsageError(RESOLVE, fault, remedy)
    planned = PlannedFor(
        effect=effect, metric=metric, point=noise.point, asked=wanted.metric, power=POWER, from_run=past.id
    )
    of_a_block = point.counting(1) if noise.scheme else 1
    blocks = max(MIN_BLOCKS, ceil(values / of_a_block))
    return Choice(blocks, planned, past, blocks if point.generations == 1 else MIN_BLOCKS)


# -- on how many generations of workers a pair is measured --------------------------------------------------


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: of a bring-up of both sides and what is about its first measurements, of all other points in it, of a reload and what is
    about its measurements; `blocks` as they were planned, `loads` the points that generations are made for. `most`: blocks that there may be.
    """

    bring_up_s: float
    others_s: float
    reload_s: float
    blocks: int
    loads: tuple[Point, ...]
    most: int = MOST

    def load_s(self, generations: int) -> float:
        """Of one of so many, the shortest point's."""
        return min(shared(point, generations).duration_s for point in self.loads)

    def takes_s(self, blocks: int, generations: int) -> float:
        """A variant's pairs in so many blocks of so many, and those that guard it, on one of them (`lab.model.design`)."""
        each_s = sum(one.duration_s + one.warmup_s for one in (shared(point, generations) for point in self.loads))
        block_s = self.bring_up_s + generations * each_s + (generations - 1) * self.reload_s
        guards, others = min(blocks, GUARD), blocks if generations == 1 else min(blocks, self.blocks)
        own = blocks * block_s + guards * (self.bring_up_s + each_s)
        return own + (others + guards) * self.others_s


def _choose_generations(
    loaded: LoadedRequest, shown: MeasurableRun, target: Target, solo: bool
) -> tuple[tuple[Point, ...], int, tuple[str, ...]]:
    """Return (points, blocks, the variants that keep the plan from several generations).

    Closed loops are measured on as many generations of workers as what is known of the systems' scatter asks for, in the blocks that go
    with these: `_choose_blocks` says how many where an effect was named; named blocks stay as many, each on the generations that the
    sweep's own would have. All is as the sweep has it where another metric's effect was named, or a variant is beside itself. A point is
    the same for all pairs of a run: where one of them has a side of which no reload makes new workers, no pair has several generations.
    `solo`: whether solo samples decide anywhere: these are in every block, and more blocks would be theirs.
    """
    request, record, own = loaded.request, shown.record, loaded.sweep.blocks
    blocks, wanted = request.blocks or own, request.resolve
    another = request.nulls is not None or (wanted and wanted.metric not in (None, METRIC))
    steady = all(point.disturbance is None for point in record.points)
    bearing = [point for point in record.points if not point.why_alone]
    slices = [point for point in bearing if point.scheme == "slices" and point.generations == 1]
    two = len(target.sides) == len(SIDES)
    if another or not (steady and slices and two) or blocks < MIN_BLOCKS:
        return record.points, blocks, ()
    known = levels.known(target.name, set(loaded.baselines.values()), "slices")
    if known is None:
        return record.points, blocks, ()
    others = [point for point in bearing if point not in slices]
    others_s = sum(point.warmup_s + point.duration_s + SAMPLE_OVERHEAD_S for point in others)
    about_s = SAMPLE_OVERHEAD_S * len(slices)
    reload_s = len(slices) * len(SIDES) * RELOAD_S + about_s  # each point's generations are made apart from the others'
    unpaired = {name for name, one in record.variants.items() if one.unpaired}
    most = own if solo or unpaired or len(bearing) < len(record.points) else MOST
    costs = Costs(target.bring_up_s + about_s, others_s, reload_s, own, tuple(slices), most)
    planned, generations = plan_of(known, costs)
    if wanted is not None:
        judged = len(shown.asked) * len(bearing)
        generations = cheapest(known, costs, wanted.effect, SURE_P / max(1, judged))
    if generations > 1:
        arms = {arm.name: arm for arm in record.arms}
        pairs = [(arm.variant, arms[arm.baseline].variant) for arm in record.arms if arm.baseline is not None]
        paired = dict.fromkeys(name for pair in pairs if {*pair}.isdisjoint(unpaired) for name in pair)
        fixed = tuple(name for name in paired if not target.makes_new_workers(shown.variants[name]))
        if fixed:
            return record.points, blocks, fixed
    return on_generations(record.points, generations, known), request.blocks or planned, ()


def plan_of(one: Known, costs: Costs) -> tuple[int, int]:
    """(blocks, generations in each) that tell most in the time that the planned blocks take, or LEAST_S where that is less.

    The effect that is found, least over what fits (Kalibera & Jones 2013, §9: repeat the level that scatters, as its cost allows); never
    fewer bring-ups than MIN_BLOCKS, and more than were planned where what is measured once in them is not measured more often. As planned
    where workers scatter no more than repeats do.
    """
    if (one.generation or 0.0) <= levels.WORTHWHILE * levels.repeat_sd(one, costs.load_s(1)):
        return costs.blocks, 1
    block_s = costs.bring_up_s + sum(each.duration_s + each.warmup_s for each in costs.loads) + costs.others_s
    allowed_s = max(LEAST_S, (costs.blocks + min(GUARD, costs.blocks)) * block_s)
    choices = [
        (blocks, generations)
        for blocks in range(MIN_BLOCKS, max(MIN_BLOCKS, costs.most) + 1)
        for generations in range(1, MOST + 1)
        if (
            blocks <= max(MIN_BLOCKS, costs.blocks)
            if generations == 1
            else costs.takes_s(blocks, generations) <= allowed_s
        )
    ]
    return min(choices, key=lambda each: (resolvable(one, *each, costs.load_s(each[1])), -each[0]))


def resolvable(one: Known, blocks: int, generations: int, load_s: float) -> float:
    """The effect (fraction) that is found in so many bring-ups of so many generations, as far as these levels are known."""
    singly = levels.counts_singly(one, generations, load_s)
    sd, pilot = levels.scatter(one, generations, load_s, singly)
    return power.resolvable_now(sd, pilot, blocks * (generations if singly else 1)) or inf


def cheapest(one: Known, costs: Costs, effect: float, level: float) -> int:
    """Generations in each bring-up with which that effect (fraction) is found soonest, at that `level` (`power.blocks_for`)."""

    def takes_s(count: int) -> float:
        load_s = costs.load_s(count)
        singly = levels.counts_singly(one, count, load_s)
        values = power.blocks_for(*levels.scatter(one, count, load_s, singly), effect, level)
        blocks = None if values is None else max(MIN_BLOCKS, ceil(values / (count if singly else 1)))
        return inf if blocks is None else costs.takes_s(blocks, count)

    return min(range(1, MOST + 1), key=takes_s)


def on_generations(points: Sequence[Point], generations: int, one: Known) -> tuple[Point, ...]:
    """The points that a pair bears as `one` was measured, each on so many generations of workers; others, and those that ask for some, as they are."""
    made: list[Point] = []
    for point in points:
        if point.scheme != one.scheme or point.why_alone or point.generations > 1:
            made.append(point)
            continue
        short = shared(point, generations)
        singly = generations > 1 and levels.counts_singly(one, generations, short.duration_s)
        made.append(short.model_copy(update={"singly": singly}))
    return tuple(made)


def shared(point: Point, generations: int) -> Point:
    """As it is on each of so many generations of workers: where that shortens it, whole seconds, as not every generator takes others."""
    if generations == 1:
        return point.model_copy(update={"generations": 1})
    return point.model_copy(
        update={
            "generations": generations,
            "duration_s": max(min(point.duration_s, LEAST_LOAD_S), float(round(point.duration_s / generations))),
            "warmup_s": max(min(point.warmup_s, LEAST_WARM_UP_S), round(point.warmup_s / generations, 1)),
        }
    )
