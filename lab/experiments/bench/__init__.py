"""From what was asked for (variants, sweep, target) to a run that can be measured: everything is checked before anything starts.

    load → measurable → choose_generators → choose_blocks → plan → record_of

Each step is handed what those before it found, and asks the outside by the target's protocol only.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lab.analysis import levels
from lab.analysis.decision import SURE_P
from lab.analysis.forecast import RELOAD_S, SAMPLE_OVERHEAD_S, Conditions, Forecast, Past, elsewhere, forecast
from lab.analysis.generations import METRIC
from lab.base.errors import UsageError
from lab.base.files import check_writable, runs_folder
from lab.experiments import resolve
from lab.experiments.bench.loads import choose_again, choose_generators, generator_record, refuse_loads
from lab.experiments.bench.measurable import MeasurableRun, checked, facts_of, measurable
from lab.experiments.bench.probing import Trials, probed, to_probe
from lab.experiments.bench.record import leads, primary_of, record_of
from lab.experiments.bench.request import LoadedRequest, Request, fixtures_of, load, load_variants
from lab.experiments.resolve import Choice, Subject
from lab.measure.loop import stale_blocks
from lab.measure.measurement import ChosenGenerator
from lab.model import facts
from lab.model.pairs import SIDES
from lab.model.plan import Place, Plan, plan
from lab.model.run import RunRecord
from lab.model.shape import leading, scheme_of, shape_of
from lab.model.sweeps import Point
from lab.model.systems import different_systems, undecided_pairs
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant
from lab.records.store import RunStore
from lab.stats.paired import MIN_BLOCKS
from lab.targets.base import Target

CLUSTER = "cluster"
"""The fact by which a cluster is known again."""
SAMPLE_BYTES = 2_000_000  # more than a sample's folder takes


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run ready to be measured, and what is known about it beforehand."""

    record: RunRecord
    plan: Plan
    variants: Mapping[str, Variant]
    chosen: Mapping[str, ChosenGenerator]
    forecast: Forecast
    fixed_workers: tuple[str, ...] = ()
    """Variants that keep the plan from measuring pairs on several generations of workers, as no reload makes new ones of them."""

    to_probe: tuple[Point, ...] = ()
    """Points of which a probe, before the first sample, has still to find out whether the target carries them for two sides at once."""


def prepare(request: Request, target: Target, command: Sequence[str], trials: Trials | None = None) -> Prepared:
    """Load and check everything; UsageError on the first fault. Starts nothing, writes nothing, unless `trials` does.

    `trials`: how it is found out what the target carries for two sides at once; None: it is not, and `Prepared.to_probe` names the points.
    What cannot be shown here is left out and recorded; NothingMeasurableError if that leaves nothing.
    """
    loaded = load(request)
    shown = measurable(loaded, target)
    base = next(iter(loaded.baselines.values()))
    due = tuple(to_probe(shown, target, base)) if trials is None else ()
    shown, probes = probed(shown, target, base, request.k6_out, trials) if trials else (shown, ())
    led = _led(loaded, shown)  # the same on any number of generations
    fixed = fixed_workers(shown, target)
    shown, planned_blocks, kept_from = on_generations(loaded, shown, target, led, fixed)
    chosen = choose_generators(loaded, shown, target)
    choice = choose_blocks(loaded, shown, chosen, target)
    blocks = choice.blocks if choice else planned_blocks
    seed = request.seed if request.seed is not None else secrets.randbelow(2**31)
    once = choice.once if choice else request.blocks or loaded.sweep.blocks
    undecided = _undecided(shown)
    shape = shape_of(shown.arms, shown.points, blocks, target.sides, led, shown.unpaired, once, undecided)
    if shape is None and (asking := [point for point in shown.points if point.generations > 1]):
        fault = "asks for generations of workers, which a pair is measured on, and nothing is paired here"
        raise UsageError(f"point {asking[0].name}", fault, "--target local or apiserver, or leave `generations` out")
    planned = plan(shown.arms, shown.points, blocks, seed, shape)
    check_writable(runs_folder(), sum(len(slot.sides) for slot in planned.slots) * SAMPLE_BYTES)
    planned_for, past = (choice.planned_for, choice.past) if choice else (None, None)
    record = record_of(loaded, shown, chosen, planned_for, planned, target, command)
    known = forecast(record, target.bring_up_s, past)
    record = record.model_copy(update={"promised": known.promised, "probes": probes})
    return Prepared(record, planned, shown.variants, chosen, known, kept_from, due)


def fixed_workers(shown: MeasurableRun, target: Target) -> tuple[str, ...]:
    """Return the variants of pairs whose proxy makes no new workers by a reload on this target."""
    arms = {arm.name: arm for arm in shown.arms}
    pairs = [(arm.variant, arms[arm.baseline].variant) for arm in shown.arms if arm.baseline is not None]
    paired = dict.fromkeys(name for pair in pairs if not {*pair} & {*shown.unpaired} for name in pair)
    return tuple(name for name in paired if not target.makes_new_workers(shown.variants[name]))


def on_generations(
    loaded: LoadedRequest, shown: MeasurableRun, target: Target, led: frozenset[Place], fixed: tuple[str, ...] = ()
) -> tuple[MeasurableRun, int, tuple[str, ...]]:
    """(with its closed loops on as many generations of workers as what is known of the systems' scatter asks for, the blocks that go with it,
    the variants that kept it from that).

    `fixed`: paired variants of which no reload makes new workers. A point is the same for all pairs of a run, so where there is one, every
    pair is measured on the workers that it came up with, in as many blocks as the sweep has.
    `led`: where an arm's effect is its own alone. As they are where another metric's effect was named, or a variant is beside itself. Where an effect was, `choose_blocks` says how many
    blocks go with it; named blocks stay as many, each on the generations that the sweep's own would have.
    """
    request, blocks = loaded.request, loaded.request.blocks or loaded.sweep.blocks
    known, wanted = levels.known(target.name, set(loaded.baselines.values()), "slices"), request.resolve
    named = request.nulls is not None or (wanted and wanted.metric not in (None, METRIC))
    steady = all(point.disturbance is None for point in shown.points)
    if known is None or named or not steady or len(target.sides) < len(SIDES) or blocks < MIN_BLOCKS:
        return shown, blocks, ()
    bearing = [point for point in shown.points if not point.why_alone]
    slices = [point for point in bearing if point.scheme == "slices" and point.generations == 1]
    if not slices:
        return shown, blocks, ()
    others = [point for point in bearing if point not in slices]
    others_s = sum(point.warmup_s + point.duration_s + SAMPLE_OVERHEAD_S for point in others)
    about_s = SAMPLE_OVERHEAD_S * len(slices)
    reload_s = len(slices) * len(SIDES) * RELOAD_S + about_s  # each point's generations are made apart from the others'
    own = loaded.sweep.blocks
    # What the arms tell alone is measured in every block: more of these would be theirs.
    most = own if led or shown.unpaired or len(bearing) < len(shown.points) else levels.MOST
    costs = levels.Costs(target.bring_up_s + about_s, others_s, reload_s, own, tuple(slices), most)
    planned, generations = levels.plan_of(known, costs)
    planned = request.blocks or planned
    if wanted is not None:
        judged = len(shown.asked) * len(bearing)
        generations = levels.cheapest(known, costs, wanted.effect, SURE_P / max(1, judged))
    if fixed and generations > 1:
        return shown, blocks, fixed
    return replace(shown, points=levels.on_generations(shown.points, generations, known)), planned, ()


def _led(loaded: LoadedRequest, shown: MeasurableRun) -> frozenset[Place]:
    """Where an arm's effect is its own alone."""
    asked = {name: (leads(loaded, shown, name), primary_of(loaded, name)) for name in shown.variants}
    return leading(shown.arms, shown.points, asked, _undecided(shown))


def _undecided(shown: MeasurableRun) -> frozenset[Place]:
    """Return where a pair would decide nothing, as its sides are different systems that run at the same moment."""
    return undecided_pairs(_different_systems(shown), shown.points)


def _different_systems(shown: MeasurableRun) -> frozenset[str]:
    """Return the arms that run another system than the arm that they are compared with."""
    return different_systems(shown.arms, {name: variant.base for name, variant in shown.variants.items()})


def choose_blocks(
    loaded: LoadedRequest, shown: MeasurableRun, chosen: Mapping[str, ChosenGenerator], target: Target
) -> Choice | None:
    """As many as find the effect that was asked for. None: none was. UsageError where nothing can be promised."""
    request = loaded.request
    if request.resolve is None:
        return None
    baselines, digests, others = loaded.baselines, loaded.baseline_digests, _different_systems(shown)
    subjects = [
        Subject(
            name,
            baselines[name],
            primary_of(loaded, name),
            variant.needs,
            digests[baselines[name]],
            {
                point.name: scheme_of(leads(loaded, shown, name), point, target.sides, name in others)
                for point in shown.points
            },
        )
        for name, variant in shown.asked.items()
    ]
    generators = {point: generator_record(used) for point, used in chosen.items()}
    conditions = Conditions(target.name, shown.points, generators, shown.facts)
    sweep = request.sweep or loaded.sweep_name
    bases = set(baselines.values())
    known = any(levels.known(target.name, {base}, "slices") for base in bases)
    noises = tuple(elsewhere(target.name, bases, shown.points)) if known and len(target.sides) == len(SIDES) else ()
    there = Past("data/pairs and data/levels", None, noises, {})
    return resolve.choose_blocks(request.resolve, subjects, conditions, sweep, shown.at_knee, request.k6_out, there)


def resume(
    name: str, target: Target, of_trial: Callable[[Point, Target], ChosenGenerator] | None = None
) -> tuple[Prepared, RunStore]:
    """An interrupted run of this target, ready to go on: the same manifests and generators, or UsageError.

    `of_trial` chooses the generator of a search for the knee, which the run must be then; else it must be none.
    """
    run = RunStore.open(name)
    run.refuse_packed()
    record = run.record
    if (record.knee is None) != (of_trial is None):
        what, verb = ("a run", "bench") if of_trial else ("a search for a knee", "knee")
        raise UsageError(record.id, f"is {what}", f"go on with `just {verb} --resume {record.id}`")
    manifests = run.folder.parent / record.manifests if record.manifests else MANIFESTS
    variants = load_variants((arm.variant for arm in record.arms), manifests, fixtures_of(record.points))
    target.check()
    _refuse_elsewhere(record, target.facts())
    chosen = {
        point.name: of_trial(point, target) if of_trial else choose_again(point, target, record)
        for point in record.points
    }
    _refuse_changed(record, variants, chosen)
    for variant in variants.values():
        endpoints = checked(variant, target, record.points)
        if of_trial is None:
            refuse_loads(variant.name, record.points, chosen, endpoints)
    check_writable(run.folder, SAMPLE_BYTES)
    return Prepared(record, record.plan(), variants, chosen, forecast(record, target.bring_up_s)), run


@contextmanager
def opened(prepared: Prepared, run: RunStore | None, target: Target) -> Iterator[RunStore]:
    """The run's folder, for this lab alone: a new one, or `run` with what was interrupted for too long marked to begin anew."""
    if run is None:
        run = RunStore.create(prepared.record, {name: variant.manifests for name, variant in prepared.variants.items()})
        with run.locked():
            yield run
        return
    with run.locked():
        found, commit = facts_of(target), facts.git_commit()
        run.clear_partial()
        run.mark_interrupted(stale_blocks(run, found))
        lab = {"git_commit": commit} if commit and commit != run.record.git_commit else {}
        run.note_resumed(found | lab)
        yield run


def _refuse_elsewhere(record: RunRecord, found: Mapping[str, str]) -> None:
    """Of two clusters nothing is pooled: what is there already would stay."""
    began, now_on = record.facts.get(CLUSTER), found.get(CLUSTER)
    if began != now_on:
        fault = f"it began on another cluster ({began}; this one is {now_on})"
        raise UsageError(record.id, fault, "name the context it began with, or start a new run")


def _refuse_changed(record: RunRecord, variants: Mapping[str, Variant], chosen: Mapping[str, ChosenGenerator]) -> None:
    """Nothing is pooled of two manifests, nor of two generators."""
    for variant in variants.values():
        if variant.manifests_sha256 != record.variants[variant.name].manifests_sha256:
            fault = f"the manifests of '{variant.name}' have changed since this run began"
            raise UsageError(record.id, fault, "start a new run, or restore the manifests")
    for point, used in record.generators.items():
        now_used = generator_record(chosen[point])
        if now_used != used:
            fault = f"it measured {point} with {used['name']} {used['version']}, now there is {now_used['name']} {now_used['version']}"
            raise UsageError(record.id, fault, "start a new run, or restore the generator")
