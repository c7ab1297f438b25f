"""What earlier runs teach of one that is about to start: how much its metrics vary here, and how long a bring-up takes.

Runs under the same conditions (target, loads, generators, facts) are put together. Without any, what is committed of pairs' scatter
elsewhere tells (`elsewhere`). Refuses to go by a damaged run, and by one with too few blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from statistics import median

from lab.analysis import levels
from lab.analysis.judge.recovery import scatter_elsewhere
from lab.analysis.judge.rulings import carrier
from lab.analysis.noise import Noise, noises, null_arms, pairs, pooled
from lab.analysis.starts import known_anew
from lab.analysis.summary import Summary, summarise_run
from lab.base.errors import LabError
from lab.model.design import PlannedAnew
from lab.model.facts import differing
from lab.model.pairs import Scheme
from lab.model.run import RunRecord
from lab.model.samples import Sample, bring_ups_s
from lab.model.sweeps import Point
from lab.records import store
from lab.records.store import RunStore
from lab.stats import paired as stats

POOLED = 10
"""Earlier runs whose noise is put together."""
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
    for name in reversed(store.run_names()):
        try:
            run = RunStore.open(name)
            there = run.record
            alike = (there.target, there.points, there.generators) == conditions
            if (
                name == record.id
                or there.blocks < stats.MIN_BLOCKS
                or not alike
                or differing(record.facts, there.facts)
            ):
                continue
            samples = run.samples()
            past = past_of(there, samples, summarise_run(there, samples, run.histogram)) if samples else None
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
    return Past((record.id,), median(taken) if taken else None, noises(summary), digests, only_aa)


def best_past(record: RunRecord) -> Past | None:
    """All that know the noise of what is compared with, as it is now, pooled; else the newest that knows of any; else the newest."""
    baselines = {name: record.variants[name].manifests_sha256 for name in pairs(record.arms)}
    found = list(islice(past_runs(record), POOLED))
    if covering := [past for past in found if past.covers(baselines)]:
        return together(covering)
    return next((past for past in found if any(not noise.why for noise in past.noises)), next(iter(found), None))


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
