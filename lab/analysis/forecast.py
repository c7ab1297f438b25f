"""What can be said of a run before it starts: how long it takes, and which effects it can be expected to resolve.

Both come from an earlier run on this machine with the same target, loads and generators, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median

from lab.analysis import levels
from lab.analysis.decision import SURE_P
from lab.analysis.judging import carrier
from lab.analysis.noise import Noise, noises, null_arms, pairs, pooled
from lab.analysis.recovery import scatter_elsewhere
from lab.analysis.starts import PlannedAnew, known_anew
from lab.analysis.summary import Summary, summarise_run
from lab.base.errors import LabError
from lab.model.facts import differing
from lab.model.metrics import RATIOS
from lab.model.pairs import SIDES, Scheme
from lab.model.plan import TAKES_S, Arm, Plan
from lab.model.run import Promise, RunRecord
from lab.model.samples import Sample, bring_ups_s
from lab.model.shape import scheme_of
from lab.model.sweeps import Point
from lab.records import store
from lab.records.store import RunStore
from lab.stats import paired as stats
from lab.stats import power

SAMPLE_OVERHEAD_S = 0.6  # canaries, starting the generator, storing
ROUNDTRIP_S = TAKES_S
RELOAD_S = 0.15
"""Of one side, until its new workers alone serve, about: ingress-nginx."""
POOLED = 10
"""Earlier runs whose noise is put together."""
UNKNOWN = "what its own A/A pairs will show: how much an outcome varies is not known beforehand"
OF_A_BASELINE = ("rate", "cpu_per_request", "p99")
"""What is forecast where no variant has a primary metric."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """`promised`: the smallest effects; empty where there is no interval, or it is UNKNOWN."""

    duration_s: float
    promised: tuple[Promise, ...]
    source: str
    anew: PlannedAnew = field(default_factory=PlannedAnew)
    """Fresh bring-ups after loads that leave too much, whose time is in the duration."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must be the same for one run's noise to be another's. `generators`: point → name, version, what it stands in for."""

    target: str
    points: tuple[Point, ...]
    generators: Mapping[str, Mapping[str, str | None]]
    facts: Mapping[str, str]

    @classmethod
    def of(cls, record: RunRecord) -> Conditions:
        return cls(record.target, record.points, record.generators, record.facts)

    def alike(self, other: Conditions) -> bool:
        """All but the boot."""
        same_load = self.points == other.points and dict(self.generators) == dict(other.generators)
        return same_load and self.target == other.target and not differing(self.facts, other.facts)


@dataclass(frozen=True, slots=True)
class Past:
    """What an earlier run teaches. `manifests`: variant → their digest then. `only_aa`: it compared nothing but a variant with itself."""

    id: str
    bring_up_s: float | None
    noises: tuple[Noise, ...]
    manifests: Mapping[str, str]
    only_aa: bool = False
    runs: int = 1
    """Whose noise is in it."""

    @property
    def source(self) -> str:
        more = f" and {self.runs - 1} more" if self.runs > 1 else ""
        return f"from the {'A/A run' if self.only_aa else 'pairs of'} {self.id}{more}"

    def of(self, baseline: str) -> list[Noise]:
        """The noise of one variant, judged or not."""
        return [noise for noise in self.noises if noise.variant == baseline]

    def covers(self, baselines: Mapping[str, str]) -> bool:
        """Whether of each something is known, and it had the manifests with this digest then."""
        known = all(any(not noise.why for noise in self.of(name)) for name in baselines)
        return known and all(self.manifests.get(name) == digest for name, digest in baselines.items())


def forecast(record: RunRecord, bring_up_s: float, past: Past | None = None) -> Forecast:
    """For a run that is about to start (or go on). `bring_up_s`: the target's own guess, where no run was. `past`: which run to go by.

    The resolved effect is found with 90 % probability though the noise is only known from `past` (`power.resolvable_now`).
    """
    planned = record.plan()
    past = past or _best(record)
    if past and past.bring_up_s is not None:
        bring_up_s = past.bring_up_s
    anew = known_anew(planned, record.target)
    lasts_s = duration_s(planned, bring_up_s) + anew.count * bring_up_s
    if planned.blocks < stats.MIN_BLOCKS:
        return Forecast(lasts_s, (), f"fewer than {stats.MIN_BLOCKS} blocks give no interval", anew)
    if all(point.disturbance is not None for point in planned.points):
        return Forecast(lasts_s, (), UNKNOWN, anew)
    if past is not None and any(not noise.why for noise in past.noises):
        return Forecast(lasts_s, resolved(record, past.noises), past.source, anew)
    source = "by the scatter measured on another 2-core machine; this one has no run of this sweep yet"
    return Forecast(lasts_s, resolved(record, committed(record)), source, anew)


def committed(record: RunRecord) -> list[Noise]:
    """What data/pairs has of another machine, as if it were of this run's baselines."""
    bases = dict.fromkeys(arm.baseline for arm in record.arms if arm.baseline)
    variant_of = {arm.name: arm.variant for arm in record.arms}
    return elsewhere(record.target, [variant_of[base] for base in bases if base], record.points)


def elsewhere(target: str, variants: Iterable[str], points: Sequence[Point]) -> list[Noise]:
    """What is committed of pairs' scatter, as if it were of these variants at these points."""
    return [
        _by_levels(
            target,
            point,
            Noise(variant, point.name, one.metric, one.scheme, None, None, one.sd, one.rounds, None, False, 0, 0),
        )
        for variant in variants
        for point in points
        for one in scatter_elsewhere()
        if one.load == point.scheme
    ]


def _by_levels(target: str, point: Point, noise: Noise) -> Noise:
    """Its scatter by what is known of this very system's levels on this target, where anything is."""
    if noise.metric != "cpu_per_request" or noise.scheme is None:
        return noise
    known = levels.known(target, {noise.variant}, noise.scheme)
    if known is None:
        return noise
    sd, pilot = levels.scatter(known, point.generations, point.singly, point.duration_s)
    return replace(noise, sd=sd, pilot_blocks=pilot)


def _scheme(record: RunRecord, arm: Arm, point: Point) -> Scheme | None:
    shared = arm.role == "variant" and record.variants[arm.variant].shared_cost
    return scheme_of(shared, point, SIDES if record.pairs else SIDES[:1], arm.name in record.different_systems)


def duration_s(planned: Plan, bring_up_s: float) -> float:
    """How long a plan takes, without what has to be measured again."""
    lasts_s = planned.measuring_s + planned.bring_ups * bring_up_s + len(planned.slots) * SAMPLE_OVERHEAD_S
    lasts_s += planned.reloads * RELOAD_S
    return lasts_s + ROUNDTRIP_S * any(arm.role == "reference" for arm in planned.arms)


def past_runs(conditions: Conditions, but: str = "") -> Iterator[Past]:
    """The earlier runs under these conditions with blocks enough, the newest first, without the run called `but`."""
    for name in reversed(store.run_names()):
        try:
            run = RunStore.open(name)
            if name == but or run.record.blocks < stats.MIN_BLOCKS or not Conditions.of(run.record).alike(conditions):
                continue
            samples = run.samples()
            past = past_of(run.record, samples, summarise_run(run.record, samples, run.histogram)) if samples else None
        except LabError:
            continue  # a damaged run is no guide; it is reported when it is asked for
        if past is not None:
            yield past


def past_of(record: RunRecord, samples: Sequence[Sample], summary: Summary) -> Past:
    """What a run of these samples teaches."""
    taken = bring_ups_s(samples)
    nulls, tried = null_arms(record.arms), [arm for arm in record.arms if arm.role == "variant"]
    only_aa = bool(nulls) and len(nulls) == len(tried)
    digests = {name: variant.manifests_sha256 for name, variant in record.variants.items()}
    return Past(record.id, median(taken) if taken else None, noises(summary), digests, only_aa)


def judged_at(
    noise: Sequence[Noise],
    points: Sequence[Point],
    metric: str | None,
    asked: bool = False,
    schemes: Mapping[str, Scheme | None] | None = None,
) -> list[Noise]:
    """Of one variant's noise, what carries an effect in `metric` at each point where one is judged; None: OF_A_BASELINE.

    `asked`: that very metric, whatever carries it elsewhere. `schemes`: point → how the effect is come by there; None: any way.
    """
    found: list[Noise] = []
    for point in points:
        fitting = [each for each in noise if each.point == point.name]
        if schemes is not None:
            fitting = [each for each in fitting if each.scheme == schemes[point.name]]
        here = {each.metric: each for each in fitting}
        why = {name: each.why for name, each in here.items() if each.why}
        given = (metric,) if asked and metric else None
        wanted = given or (OF_A_BASELINE if metric is None else (carrier(metric, point, points, why),))
        found += [here[name] for name in wanted if name in here and not here[name].why]
    return found


def _best(record: RunRecord) -> Past | None:
    """All that know the noise of what is compared with, as it is now, pooled; else the newest that knows of any; else the newest."""
    baselines = {name: record.variants[name].manifests_sha256 for name in pairs(record.arms)}
    newest = other = None
    covering: list[Past] = []
    for past in islice(past_runs(Conditions.of(record), record.id), POOLED):
        if past.covers(baselines):
            covering.append(past)
        newest = newest or past
        other = other or (past if any(not noise.why for noise in past.noises) else None)
    return together(covering) if covering else other or newest


def together(pasts: Sequence[Past]) -> Past:
    """The newest, with the noise of all."""
    groups: dict[tuple[str, str, str, Scheme | None], list[Noise]] = {}
    for noise in (noise for past in pasts for noise in past.noises if not noise.why or past is pasts[0]):
        groups.setdefault((noise.variant, noise.point, noise.metric, noise.scheme), []).append(noise)
    made: list[Noise] = []
    for first, *others in groups.values():
        sd, degrees = pooled([(each.sd, each.pilot_blocks - 1) for each in (first, *others)])
        made.append(replace(first, sd=sd, pilot_blocks=degrees + 1))
    return replace(pasts[0], noises=tuple(made), runs=len(pasts))


def resolved(record: RunRecord, known: Sequence[Noise]) -> tuple[Promise, ...]:
    """The effects, in the metrics that the record's variants are judged by: the one that it was planned for, or their own.

    At the first step of Holm's method over all of them, and the upper limit of the scatter.
    """
    asked = record.planned_for.asked if record.planned_for else None
    variant_of = {arm.name: arm.variant for arm in record.arms}
    tried = [
        arm
        for arm in record.arms
        if arm.role == "variant" and (asked or record.variants[arm.variant].primary_metric in RATIOS)
    ]
    planned = record.plan()
    judged: list[tuple[Arm, Noise]] = []
    for arm in tried or [arm for arm in record.arms if arm.role == "again"]:
        metric = asked or (record.variants[arm.variant].primary_metric if arm in tried else None)
        schemes: dict[str, Scheme | None] = {point.name: _scheme(record, arm, point) for point in record.points}
        noise = [each for each in known if each.variant == variant_of[arm.baseline or ""]]
        judged += [(arm, each) for each in judged_at(noise, record.points, metric, asked is not None, schemes)]
    level = SURE_P / max(1, len(judged))
    found: dict[tuple[str, str], Promise] = {}
    for arm, noise in judged:
        sd, place = power.planned_sd(noise.sd or 0.0, noise.pilot_blocks), (noise.metric, noise.point)
        mine = [slot for slot in planned.slots if slot.arm == arm and slot.point.name == noise.point]
        blocks = len({slot.block for slot in mine if (slot.against is None) is (noise.scheme is None)})
        values = next(point for point in record.points if point.name == noise.point).counting(blocks)
        effect = power.resolvable(sd, values if noise.scheme else blocks, level)
        if effect is not None and (place not in found or found[place].effect < effect):
            found[place] = Promise(metric=noise.metric, point=noise.point, sd=sd, effect=effect)
    return tuple(found.values())
