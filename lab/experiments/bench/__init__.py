"""The preparation of a run: it checks a request (variants, sweep, target), and turns it into a plan that can be measured.

    load_request → find_measurable → probe_points → design_run → run.json with its `Design` (lab/model/design.py)

Each step receives the results of the earlier steps. The steps use the target only through the methods of the class
`Target`. The design decides how often everything is measured, and which effects the run can detect. For this it uses the
noise of earlier runs (`lab.analysis.past`) and the committed variance components (`lab.analysis.levels`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from lab.analysis.generations import Place, choose_generations
from lab.analysis.judge.decision import ALPHA
from lab.analysis.noise import Noise
from lab.analysis.past import Schemes, forecast, select_committed_noise, select_judged_noise
from lab.base.errors import UsageError, refuse_if
from lab.base.files import check_writable, runs_folder
from lab.experiments.bench.blocks import BlockChoice, choose_blocks
from lab.experiments.bench.measurable import (
    MeasurableRun,
    choose_generator,
    find_measurable,
    generator_record,
    refuse_loads,
)
from lab.experiments.bench.probing import ProbeTrials, probe_points
from lab.experiments.bench.request import BenchRequest, LoadedRequest, fixtures_of, load_request
from lab.generators.k6 import Out
from lab.measure.loop import find_stale_samples
from lab.measure.measurement import ChosenGenerator
from lab.model import facts
from lab.model.design import UNKNOWN, Design, Promise, choose_scheme
from lab.model.metrics import RATIOS
from lab.model.names import DEFAULT_TARGET
from lab.model.pairs import SIDES
from lab.model.plan import Arm, Plan
from lab.model.run import RunRecord
from lab.model.sweeps import LoadPoint
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, load_variant
from lab.records.store import RunStore
from lab.stats import power
from lab.stats.paired import MIN_BLOCKS
from lab.targets.base import Target
from lab.targets.survey import check_variant, collect_facts

METRIC = "cpu_per_request"
"""The metric that both closed loops (interleaved) and offered rates (concurrent) show."""
SAMPLE_BYTES = 2_000_000
"""An upper limit of the bytes that a sample's folder takes."""
CLUSTER = "cluster"
"""The fact that identifies a cluster."""


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is ready to be measured: the content of run.json, the plan, the variants and the load generators."""

    record: RunRecord
    """The content of run.json at the beginning, with the design."""
    plan: Plan
    variants: Mapping[str, Variant]
    """The rendered variants of all arms, by name."""
    chosen: Mapping[str, ChosenGenerator]
    """The generator of each point's load, by the point's name."""
    to_probe: tuple[LoadPoint, ...] = ()
    """The load points that must be tried before the first sample, to see if two systems at once can serve them on the target."""

    @property
    def design(self) -> Design:
        """The design of the run: how often each variant is measured at each load point, and which effects the run can detect."""
        return self.record.designed


def prepare(
    request: BenchRequest, target: Target, command: Sequence[str], trials: ProbeTrials | None = None
) -> PreparedRun:
    """Load and check everything that a run needs, and return the prepared run.

    No system is started and nothing is written, except by `trials`. Variants that are not measurable here are left out, and
    recorded with the reason.

    Args:
        request: The request.
        target: The target.
        command: The command line for the record.
        trials: The function that finds out whether two systems at once can serve a load on the target. None: nothing is tried, and
            `PreparedRun.to_probe` has the load points that need a trial.

    Raises:
        NothingMeasurableError: No requested variant is measurable here.
        UsageError: The request cannot be carried out; the error is the first fault.

    """
    loaded = load_request(request)
    run = find_measurable(loaded, target, command)
    to_probe = run.to_probe
    if to_probe and trials is not None:
        base = next(iter(loaded.baselines.values()))
        run, to_probe = probe_points(run, target, base, request.k6_out, trials), ()
    record, chosen = design_run(loaded, run, target)
    return PreparedRun(record, record.plan(), run.variants, chosen, to_probe)


def resume(
    name: str, target: Target, choose_for_search: Callable[[LoadPoint, Target], ChosenGenerator] | None = None
) -> tuple[PreparedRun, RunStore]:
    """Prepare an interrupted run to continue, with the same cluster, manifests and load generators.

    If the cluster, the manifests or a generator have changed since the run began, it cannot continue: samples of two clusters, manifests or
    generators are never pooled.

    Args:
        name: The name of the run.
        target: The target.
        choose_for_search: The function that chooses the generator, if the run is a search for the knee (the highest rate within a latency
            bound). None: the run must not be such a search.

    Returns:
        (the prepared run, the folder with its stored samples).

    Raises:
        UsageError: The run cannot continue here.

    """
    run = RunStore.open(name)
    run.refuse_packed()
    record = run.record
    if (record.knee is None) != (choose_for_search is None):
        kind, verb = ("a run", "bench") if choose_for_search else ("a search for a knee", "knee")
        raise UsageError(record.id, f"is {kind}", f"go on with `just {verb} --resume {record.id}`")
    manifests = run.folder.parent / record.manifests if record.manifests else MANIFESTS
    fixtures = fixtures_of(record.points)
    names = dict.fromkeys(arm.variant for arm in record.arms)
    variants = {name: load_variant(name, manifests, fixtures) for name in names}
    target.check()
    first_cluster, cluster = record.facts.get(CLUSTER), target.facts().get(CLUSTER)
    fault = f"it began on another cluster ({first_cluster}; this one is {cluster})"
    refuse_if(first_cluster != cluster, record.id, fault, "name the context it began with, or start a new run")
    chosen = {
        point.name: choose_for_search(point, target)
        if choose_for_search
        else choose_generator(point, target, cast("Out | None", record.k6_out(point.name)))
        for point in record.points
    }
    for variant in variants.values():
        if variant.manifests_sha256 != record.variants[variant.name].manifests_sha256:
            fault = f"the manifests of '{variant.name}' have changed since this run began"
            raise UsageError(record.id, fault, "start a new run, or restore the manifests")
    for point, first_used in record.generators.items():
        used = generator_record(chosen[point])
        fault = f"it measured {point} with {first_used['name']} {first_used['version']}, now there is {used['name']} {used['version']}"
        refuse_if(used != first_used, record.id, fault, "start a new run, or restore the generator")
    endpoints = {name: check_variant(variant, target, record.points) for name, variant in variants.items()}
    if choose_for_search is None:
        refuse_loads(record.points, chosen, endpoints)
    check_writable(run.folder, SAMPLE_BYTES)
    return PreparedRun(with_design(record, target.bring_up_s), record.plan(), variants, chosen), run


def note_resumed(run: RunStore, target: Target) -> None:
    """Record in a run's folder that the run continues, and mark the blocks that must be measured anew.

    A block (repetition) must be measured anew if it is incomplete and its interruption was too long, or if the machine has changed since.

    Args:
        run: The run, whose folder this process has locked.
        target: The target.

    """
    current, commit = collect_facts(target), facts.read_git_commit()
    run.clear_partial()
    run.mark_interrupted(find_stale_samples(run, current))
    lab = {"git_commit": commit} if commit and commit != run.record.git_commit else {}
    run.note_resumed(current | lab)


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
        choice = choose_blocks(request.resolve, loaded, record, list(run.asked), target)
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
            noises = list(select_committed_noise(record.target, bases, record.points))
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
