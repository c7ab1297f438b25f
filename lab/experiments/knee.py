"""A search for the knee as a run: prepared like any other, but its plan grows by one sample at a time, each as the trials before say.

Every trial is a block of its own at a point `rate-<r>`, in run.json before it is measured, so that whatever ends the lab, `just knee
--resume` replays the trials that are stored and goes on. A system is brought up for the ramp and the bisection together, for each
confirmation anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from lab import generators
from lab.analysis import rerun
from lab.analysis.knee.report import SWEEP, search_of, step_of, trials_of
from lab.base.errors import UsageError
from lab.base.files import check_writable, runs_folder
from lab.experiments import bench
from lab.experiments.bench.measurable import choose, generator_record
from lab.generators import load_of
from lab.measure.loop import Loop, Observer, nothing
from lab.measure.measurement import ChosenGenerator
from lab.measure.validity import MIN_ACHIEVED
from lab.model.bottleneck import BUSY
from lab.model.endpoint import Tls
from lab.model.facts import differing
from lab.model.load import Encoding
from lab.model.plan import SAMPLE_OVERHEAD_S, Arm, Plan, Slot
from lab.model.run import KneeSearch, VariantRecord
from lab.model.sweeps import Point
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import Variant, load_variant
from lab.records import store
from lab.records.store import RunStore
from lab.stats.knee_search import LEAST_RPS, Try, sought
from lab.targets.base import Target
from lab.targets.survey import checked, facts_of

WARMUP_S = 1.0
DURATION_S = 10.0
START_RPS = 100
ASSUMED_RPS = 5000
"""The knee that a forecast assumes: of a search, nothing better is known beforehand."""
ENOUGH_S, ENOUGH_RPS = 3600.0, 1000
"""A load that no generator refuses for being short or slow."""
SEED = 0
"""Nothing is shuffled: which rate comes next, the trials say."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asked for. None of `duration_s`: as long as the generator needs, DURATION_S at least; of `start_rps`:
    START_RPS, or a request per second for each connection where the generator refuses fewer.
    """

    variants: tuple[str, ...]
    generator: str = "wrk2"
    connections: int = 100
    duration_s: float | None = None
    start_rps: int | None = None
    p99_s: float = 0.05
    precision: float = 0.05
    page: str = "1kB.bin"
    tls: Tls | Literal["routed"] = "routed"
    accept_encoding: Encoding = "identity"
    keepalive: bool = True


def prepare(request: Request, target: Target, command: Sequence[str]) -> bench.Prepared:
    """Load and check everything; UsageError on the first fault. Starts nothing, writes nothing."""
    variants = {variant.name: variant for variant in map(load_variant, request.variants)}
    target.check()
    point, chosen = _load(request, target)
    slowest = point.model_copy(update={"rate_rps": float(LEAST_RPS)})
    any_rate = chosen.generator.refusal(load_of(slowest, store.NOWHERE)) is None
    search = KneeSearch(
        p99_s=request.p99_s,
        min_achieved=MIN_ACHIEVED,
        max_generator_core=BUSY,
        start_rps=int(point.rate_rps or 0),
        least_rps=LEAST_RPS if any_rate else request.connections,  # wrk2: a request per second for each
        precision=request.precision,
    )
    for variant in variants.values():
        ends = checked(variant, target, [point])
        if refusal := chosen.generator.refusal(load_of(point, ends[point.name])):
            raise UsageError(
                variant.name, f"{chosen.generator.name} cannot make this load: {refusal}", "choose another"
            )
    arms = tuple(Arm(name, name, "baseline", None) for name in variants)
    slots = (Slot(1, 1, arms[0], point),)
    planned = Plan(arms, (point,), 1, SEED, slots)
    check_writable(runs_folder(), 50 * bench.SAMPLE_BYTES)
    recorded = {name: VariantRecord.of(variant, MANIFESTS) for name, variant in variants.items()}
    used, label = {point.name: chosen}, "-".join(variants)
    facts = facts_of(target)
    record = store.new_record(label, SWEEP, target.name, command, arms, (point,), recorded, facts).with_plan(planned)
    record = record.model_copy(update={"knee": search, "generators": {point.name: generator_record(chosen)}})
    _, trials = sought(search_of(search), lambda rate: "pass" if rate <= ASSUMED_RPS else "fail")
    each_s = point.warmup_s + point.duration_s + SAMPLE_OVERHEAD_S
    lasts_s = (len(trials) * each_s + 5 * target.bring_up_s) * len(arms)
    by = f"if the knee is near {ASSUMED_RPS:,} req/s"
    design = record.designed.model_copy(update={"duration_s": lasts_s, "promised_by": by})
    return bench.Prepared(record.model_copy(update={"design": design}), planned, variants, used)


def _load(request: Request, target: Target) -> tuple[Point, ChosenGenerator]:
    """The first trial's, and who makes it."""
    start_rps = request.start_rps or START_RPS
    point = Point(
        name=point_name(start_rps),
        generator=request.generator,
        connections=request.connections,
        rate_rps=float(start_rps),
        duration_s=request.duration_s or DURATION_S,
        warmup_s=WARMUP_S,
        threads=1,
        page=request.page,
        tls=request.tls,
        accept_encoding=request.accept_encoding,
        keepalive=request.keepalive,
    )
    wanted = generators.generator(request.generator)
    if "open" not in wanted.models:
        known = ", ".join(name for name, found in generators.GENERATORS.items() if "open" in found.models)
        raise UsageError(
            "--generator", f"{wanted.name} makes closed loops only, and a knee is about rates", f"try {known}"
        )
    if target.installed(wanted) is None:
        return point, choose_for_trials(point, target)
    if request.duration_s is None:
        least_s = 3 * wanted.calibration_s(load_of(point, store.NOWHERE))
        point = point.model_copy(update={"duration_s": max(DURATION_S, float(round(least_s)))})
    if request.start_rps is None and wanted.refusal(load_of(point, store.NOWHERE)):  # wrk2: one per connection
        enough = max(START_RPS, request.connections)
        point = point.model_copy(update={"name": point_name(enough), "rate_rps": float(enough)})
    return point, choose_for_trials(point, target)


def choose_for_trials(point: Point, target: Target) -> ChosenGenerator:
    """A trial's generator. What only wrk2 needs (30 s, a request per second for each connection) binds none that stands in for it."""
    if target.installed(generators.generator(point.generator)) is not None:
        return choose(point, target)
    enough = point.model_copy(update={"duration_s": ENOUGH_S, "rate_rps": float(max(ENOUGH_RPS, point.connections))})
    found = choose(enough, target)
    if refusal := found.generator.refusal(load_of(point, store.NOWHERE)):
        raise UsageError(f"generator {found.generator.name}", refusal, "change that, or name another by --generator")
    return found


def point_name(rate_rps: int) -> str:
    return f"rate-{rate_rps}"


def resume(name: str, target: Target) -> tuple[bench.Prepared, RunStore]:
    """A search ready to go on, or UsageError: also under other facts than those of its trials, but for the boot's, as nothing pairs trials."""
    prepared, run = bench.resume(name, target, choose_for_trials)
    record = run.record
    if changed := sorted(differing(record.facts, facts_of(target))):
        fault = f"it began under other facts ({', '.join(changed)}), and a knee is of one place"
        anew = rerun.measure(record, " ".join(arm.variant for arm in record.arms))
        raise UsageError(record.id, fault, f"search anew: {anew}")
    return prepared, run


@dataclass(slots=True)
class AdaptiveSearch:
    """A search's parts. `run()` goes on until every arm's search has ended."""

    target: Target
    variants: Mapping[str, Variant]
    chosen: ChosenGenerator
    store: RunStore
    observer: Observer
    _loop: Loop = field(init=False)
    _chosen: dict[str, ChosenGenerator] = field(default_factory=dict[str, ChosenGenerator])
    """By point."""

    def run(self) -> None:
        """Trials that are stored are replayed, not measured."""
        self._chosen |= {point.name: self.chosen for point in self.store.record.points}
        self._loop = Loop(self.target, self.variants, self._chosen, self.store, self.observer)
        for arm in self.store.record.arms:
            while (due := self._due(arm)) is not None:
                slot, fresh = due
                self._loop.on_systems([slot], nothing if fresh else partial(self._following, arm))

    def _following(self, arm: Arm) -> Slot | None:
        """What is due next, unless it wants a system of its own."""
        due = self._due(arm)
        return None if due is None or due[1] else due[0]

    def _due(self, arm: Arm) -> tuple[Slot, bool] | None:
        """The trial to measure next, in the plan from now on, and whether it wants a system of its own. None: the search has ended.

        Trials that were planned and not measured to their end come first: what is known has to be known in their order.
        """
        record = self.store.record
        found = trials_of(record, arm.name, self.store.samples(), self.store.histogram)
        slots = [slot for slot in record.plan().slots if slot.arm.name == arm.name]
        step = step_of(record, found)
        fresh = isinstance(step, Try) and step.fresh
        if len(slots) > len(found):
            return slots[len(found)], fresh
        if not isinstance(step, Try):
            return None
        first = record.points[0]
        point = first.model_copy(update={"name": point_name(step.rate_rps), "rate_rps": float(step.rate_rps)})
        block = len(record.slots) + 1
        self.store.extend(point, (block, arm.name, point.name), generator_record(self.chosen))
        self._chosen[point.name] = self.chosen
        return Slot(block, block, arm, point), fresh
