"""What earlier runs teach of one that is about to start: how much its metrics vary here, how long a bring-up takes, which loads need one.

Runs under the same conditions (target, loads, generators, facts) are put together. Without any, what is committed of pairs' scatter
elsewhere tells (`elsewhere`). Refuses to go by a damaged run, and by one with too few blocks.

A load that leaves so many local ports waiting that the next start cannot be drained needs a fresh bring-up after it. Where a sample recorded
what loads leave, that decides. Of older samples connections that the proxy opened stand in for TIME_WAIT sockets: each waits 60 s, if the
proxy closes it. Refuses to say of an older sample which side closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, pairwise, product
from statistics import median

from lab.analysis import levels
from lab.analysis.judge.rulings import carrier, scatter_elsewhere
from lab.analysis.noise import Noise, noises, pairs, pooled
from lab.analysis.summary import Summary, null_arms, summarise_run
from lab.base.errors import LabError
from lab.base.files import readable, reference_folder, runs_folder
from lab.model.design import PlannedAnew
from lab.model.facts import differing
from lab.model.leftovers import DEFAULT_PORTS, OPENED, PORT_SHARE, ports_taken
from lab.model.pairs import Scheme
from lab.model.plan import Plan, Slot
from lab.model.run import RunRecord
from lab.model.samples import Sample, bring_ups_s
from lab.model.sweeps import Point
from lab.model.variants.naming import spellings
from lab.records.store import RunStore, run_names
from lab.records.tables import RUN
from lab.stats import paired as stats

POOLED = 10
"""Earlier runs whose noise is put together."""
EACH_ITS_OWN = 0.95
"""Connections opened per request from which on an older sample does not show who closes them: each request has one of its own then, and
many backends close those. Below it a proxy keeps some and closes what its pool does not take."""
LEAST_SAMPLES = 2
"""Samples of a load on which its leaving too much is known."""
MAY_DIFFER = (
    "connections",
    "threads",
    "duration_s",
    "warmup_s",
    "subject",
    "generations",
    "repeats",
    "attempts",
    "singly",
)
"""Keys of a point that may differ from the known load's: more connections leave more, and the others decide nothing of it."""
Load = tuple[str, Point]
"""A variant and a load on it, the load without its name."""
Schemes = Mapping[str, Scheme | None]
"""Point → how an effect is come by there: in which kind of pair, None = by solo samples."""
OF_A_BASELINE = ("rate", "cpu_per_request", "p99")
"""What is forecast where no variant has a primary metric."""


@dataclass(frozen=True, slots=True)
class Past:
    """What earlier runs teach. `runs`: their ids, the newest first. `manifests`: variant → their digest in the newest. `only_aa`: that one
    compared nothing but a variant with itself.
    """

    runs: tuple[str, ...]
    bring_up_s: float | None
    noises: tuple[Noise, ...]
    manifests: Mapping[str, str]
    only_aa: bool = False

    @property
    def id(self) -> str:
        """The newest's."""
        return self.runs[0]

    @property
    def source(self) -> str:
        more = f" and {len(self.runs) - 1} more" if len(self.runs) > 1 else ""
        return f"from the {'A/A run' if self.only_aa else 'pairs of'} {self.id}{more}"

    def of(self, baseline: str) -> list[Noise]:
        """The noise of one variant, judged or not."""
        return [noise for noise in self.noises if noise.variant == baseline]

    def covers(self, baselines: Mapping[str, str]) -> bool:
        """Whether of each something is known, and it had the manifests with this digest then."""
        known = all(any(not noise.why for noise in self.of(name)) for name in baselines)
        return known and all(self.manifests.get(name) == digest for name, digest in baselines.items())


def past_runs(record: RunRecord) -> Iterator[Past]:
    """The other runs under a run's conditions with blocks enough, the newest first: its target, loads, generators, and facts but for the boot."""
    conditions = record.target, record.points, record.generators
    for name in reversed(run_names()):
        with suppress(LabError):  # a damaged run is no guide; it is reported when it is asked for
            run = RunStore.open(name)
            there = run.record
            alike = (there.target, there.points, there.generators) == conditions and there.blocks >= stats.MIN_BLOCKS
            if name != record.id and alike and not differing(record.facts, there.facts) and (samples := run.samples()):
                yield past_of(there, samples, summarise_run(there, samples, run.histogram))


def past_of(record: RunRecord, samples: Sequence[Sample], summary: Summary) -> Past:
    """What a run of these samples teaches."""
    taken = bring_ups_s(samples)
    nulls, tried = null_arms(record.arms), [arm for arm in record.arms if arm.role == "variant"]
    only_aa = bool(nulls) and len(nulls) == len(tried)
    digests = {name: variant.manifests_sha256 for name, variant in record.variants.items()}
    return Past((record.id,), median(taken) if taken else None, noises(summary), digests, only_aa)


def best_past(record: RunRecord) -> Past | None:
    """All that know the noise of what is compared with, as it is now, pooled; else the newest that knows of any; else the newest."""
    baselines = {name: record.variants[name].manifests_sha256 for name in pairs(record.arms)}
    found = list(islice(past_runs(record), POOLED))
    telling = (past for past in found if any(not noise.why for noise in past.noises))
    covering = [past for past in found if past.covers(baselines)]
    return together(covering) if covering else next(telling, next(iter(found), None))


@dataclass(frozen=True, slots=True)
class Forecast:
    """What earlier runs say of one that is about to start: what they teach, the bring-ups that its loads make certain, how long it takes."""

    past: Past | None
    fresh: PlannedAnew
    duration_s: float


def forecast(record: RunRecord, bring_up_s: float, past: Past | None = None) -> Forecast:
    """`bring_up_s`: of one, where no earlier run tells; `past`: the earlier runs to go by, None: the best ones."""
    planned, past = record.plan(), past or best_past(record)
    if past is not None and past.bring_up_s is not None:
        bring_up_s = past.bring_up_s
    fresh = known_anew(planned, record.target)
    return Forecast(past, fresh, planned.lasts_s(bring_up_s) + fresh.count * bring_up_s)


def together(pasts: Sequence[Past]) -> Past:
    """The newest, with the noise of all."""
    groups: dict[tuple[str, str, str, Scheme | None], list[Noise]] = {}
    for noise in (noise for past in pasts for noise in past.noises if not noise.why or past is pasts[0]):
        groups.setdefault((noise.variant, noise.point, noise.metric, noise.scheme), []).append(noise)
    made: list[Noise] = []
    for first, *others in groups.values():
        sd, degrees = pooled([(each.sd, each.pilot_blocks - 1) for each in (first, *others)])
        made.append(replace(first, sd=sd, pilot_blocks=degrees + 1))
    return replace(pasts[0], noises=tuple(made), runs=tuple(run for past in pasts for run in past.runs))


def judged_at(
    noise: Sequence[Noise],
    points: Sequence[Point],
    metric: str | None,
    asked: bool = False,
    schemes: Schemes | None = None,
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


def elsewhere(target: str, variants: Iterable[str], points: Sequence[Point]) -> list[Noise]:
    """What is committed of pairs' scatter, as if it were of these variants at these points.

    CPU per request in a pair scatters as the levels of this very system on this target say, where these are known.
    """
    found: list[Noise] = []
    committed = scatter_elsewhere()
    for variant, point in product(variants, points):
        for one in (each for each in committed if each.load == point.scheme):
            sd, pilot = one.sd, one.rounds
            known = levels.known(target, {variant}, one.scheme) if one.scheme else None
            if known is not None and one.metric == "cpu_per_request":
                sd, pilot = levels.scatter(known, point.generations, point.duration_s, point.singly)
            found.append(Noise(variant, point.name, one.metric, one.scheme, None, None, sd, pilot, None, False, 0, 0))
    return found


# -- fresh bring-ups -----------------------------------------------------------------------------------------


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
        if before.bring_up == after.bring_up and before.point.disturbance is None:
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
    shares, runs = dict[Load, float](), list[str]()
    for run in _runs_of({slot.arm.variant for slot in slots}, target):
        parts = [
            ((slot.arm.variant, point.name), _part_left(slot, (slot.arm.variant, _nameless(point))))
            for point, slot in product(run.record.points, slots)
        ]
        enough = any(part >= PORT_SHARE for _, part in parts)
        alike = {place for place, part in parts if part and enough}
        with suppress(LabError):  # as above
            of_run = leaving_loads(run.samples(partial(_is_alone_of, alike))) if alike else {}
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
    if point.model_copy(update={name: getattr(other, name) for name in MAY_DIFFER}) != other:
        return 0.0
    lasts_s, other_s = (each.duration_s + each.warmup_s for each in (point, other))
    return min(1.0, lasts_s / other_s) * (0.5 if slot.against else 1.0)
