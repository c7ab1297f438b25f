"""What a target carries for two sides at once, found out before a plan is fixed: a few seconds of the load itself, on two of the baseline.

Two generators at a given rate share CPUs with two proxies and two backends. Where that is more than a machine has, every concurrent pair of a
run is lost. So the rate is lowered until both sides have it, and where no rate that was tried is carried, arms are measured one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

from lab.base.errors import LabError, LostError
from lab.base.files import StoreError
from lab.experiments.bench.measurable import MeasurableRun, choose
from lab.generators.k6 import Out
from lab.measure.measurement import SampleRun
from lab.measure.pair import PairRun
from lab.measure.validity import MIN_ACHIEVED
from lab.model.bottleneck import BUSY
from lab.model.facts import lasting
from lab.model.pairs import SIDES, Layout
from lab.model.plan import Arm, Slot
from lab.model.run import Probe, ProbeTrial
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.model.variants.variants import Variant
from lab.records import store
from lab.records.store import RunStore
from lab.targets.base import Target

MOST_TRIALS = 3
SPARE = 0.75
"""Of what an overloaded pair achieved, the share that is tried next, where it is less than half of what was asked for."""
LEAST_RPS = 100.0
"""Below this a proxy that is nearly idle would be measured: a load is not lowered farther."""
LOAD_S, WARM_UP_S = 3.0, 1.0
"""Seconds of a trial. Generators that cannot make a rate show it within the first of these."""
RECENT = 20
"""Runs, the newest, that are looked through for a probe of the same load under the same facts."""

TrialOf = Callable[[Point], ProbeTrial]
Trials = Callable[[Target, Variant, Out | None], AbstractContextManager[TrialOf]]
"""Brings two of a variant up on a target, and tries loads on both."""


def probed(shown: MeasurableRun, target: Target, baseline: str, out: Out | None, trials: Trials) -> MeasurableRun:
    """Return the run with its concurrent points at rates that the target carries, or solo, and what was found out.

    `baseline`: the variant of which two are brought up; `out`: what k6 keeps of its own, as the run's loads will have it.
    """
    variant, asked = shown.variants[baseline], shown.to_probe
    found = {point.name: probe for point in asked if (probe := _known(shown, target, variant, point)) is not None}
    unknown = [point for point in asked if point.name not in found]
    if unknown:
        try:
            with trials(target, variant, out) as trial_of:
                found |= {point.name: probe_of(point, trial_of) for point in unknown}
        except (LostError, StoreError):
            raise
        except LabError as error:
            why = f"the probe could not be made ({error.fault}): the load is planned as it was asked for"
            found |= {
                point.name: Probe(point=point.name, rate_rps=point.rate_rps or 0.0, decided="as-asked", why=why)
                for point in unknown
                if point.name not in found
            }
    return _applied(shown, {point.name: found[point.name] for point in asked})


def probe_of(point: Point, trial_of: TrialOf) -> Probe:
    """Try a point's load at falling rates until both sides have it."""
    assert point.rate_rps is not None, "only given rates are probed"
    made: list[ProbeTrial] = []
    rate = point.rate_rps
    while True:
        made.append(trial := trial_of(point.model_copy(update={"rate_rps": rate})))
        if trial.carried:
            decided = "lowered" if len(made) > 1 else "as-asked"
            return Probe(
                point=point.name, rate_rps=point.rate_rps, carried_rps=rate, decided=decided, trials=tuple(made)
            )
        half = rate / 2
        lower = half if trial.achieved_rps is None else min(half, SPARE * trial.achieved_rps)
        lower = max(LEAST_RPS, float(f"{lower:.2g}"))
        if len(made) == MOST_TRIALS or lower >= rate:
            return Probe(point=point.name, rate_rps=point.rate_rps, decided="solo", trials=tuple(made))
        rate = lower


def trial_of_samples(rate_rps: float, samples: Sequence[Sample]) -> ProbeTrial:
    """Return whether both sides of a pair had their rate: what was asked for, nothing dropped, no generator as good as full."""
    achieved = [sample.achieved_rps for sample in samples]
    cores = [sample.generator_core for sample in samples if sample.generator_core is not None]
    dropped = sum(sample.dropped or 0 for sample in samples)
    least = None if None in achieved else min(rate for rate in achieved if rate is not None)
    core = max(cores, default=None)
    faults = {
        f"nothing was measured: {samples[0].detail}": least is None,
        f"{dropped:,} requests dropped": dropped > 0,
        f"{least or 0:,.0f} req/s on a side": least is not None and least < MIN_ACHIEVED * rate_rps,
        f"generator {core or 0:.0%} busy": core is not None and core >= BUSY,
    }
    why = ", ".join(fault for fault, holds in faults.items() if holds)
    return ProbeTrial(
        rate_rps=rate_rps, achieved_rps=least, dropped=dropped, generator_core=core, carried=not why, why=why
    )


@contextmanager
def pair_trials(say: Callable[[str], None], target: Target, variant: Variant, out: Out | None) -> Iterator[TrialOf]:
    """Bring two of a variant up, one on each side, and measure a load on both at once as a concurrent pair is; nothing is stored."""
    say(f"what does this target carry for two sides at once? Two of {variant.name} are brought up …")
    own, other = (Arm(name, variant.name, "variant", None) for name in (variant.name, f"{variant.name} too"))
    with ExitStack() as up:
        systems = [up.enter_context(target.up(variant, side=side)) for side in SIDES]

        def trial_of(point: Point) -> ProbeTrial:
            short = {"duration_s": min(LOAD_S, point.duration_s), "warmup_s": min(WARM_UP_S, point.warmup_s)}
            point = point.model_copy(update=short)
            chosen, slot = choose(point, target, out), Slot(1, 1, own, point, other, Layout())
            left, right = (
                SampleRun(target, system, each, chosen, 0, 0.0, (), variant.manifests)
                for system, each in zip(systems, slot.sides, strict=True)
            )
            made = PairRun((left, right)).measure(1)
            return trial_of_samples(point.rate_rps or 0.0, [one.sample for one in made])

        yield trial_of


def _applied(shown: MeasurableRun, found: Mapping[str, Probe]) -> MeasurableRun:
    """Return the run with each probed point as it was decided; a lowered rate that stands in a point's name changes that, too."""
    names = {point.name for point in shown.record.points}
    points: list[Point] = []
    renamed: dict[str, str] = {}
    for point in shown.record.points:
        probe = found.get(point.name)
        if probe is None or probe.decided == "as-asked" or point.rate_rps is None:
            points.append(point)
            continue
        if probe.decided == "solo":
            rate, changes = (
                probe.trials[-1].rate_rps,
                {"alone": "two sides at once are more than this target carries (probe)"},
            )
        else:
            rate, changes = probe.carried_rps or 0.0, dict[str, str]()
        name = point.name.replace(f"{point.rate_rps:.0f}", f"{rate:.0f}")
        if name not in names:
            renamed[point.name] = name
            changes["name"] = name
        points.append(point.model_copy(update={**changes, "rate_rps": rate}))
    endpoints = {
        variant: {renamed.get(name, name): endpoint for name, endpoint in by_point.items()}
        for variant, by_point in shown.endpoints.items()
    }
    changed = {"points": tuple(points), "probes": tuple(found.values())}
    return replace(shown, record=shown.record.model_copy(update=changed), endpoints=endpoints)


def _known(shown: MeasurableRun, target: Target, variant: Variant, point: Point) -> Probe | None:
    """Return what a recent run found out of the same load on the same variant, target and facts; None where none did."""
    for name in list(reversed(store.run_names()))[:RECENT]:
        try:
            record = RunStore.open(name).record
        except LabError:
            continue  # a damaged run is no guide; it is reported when it is asked for
        there = record.variants.get(variant.name)
        same = there is not None and there.manifests_sha256 == variant.manifests_sha256
        if same and record.target == target.name and lasting(record.facts) == lasting(shown.record.facts):
            for probe in record.probes:
                if (probe.point, probe.rate_rps) == (point.name, point.rate_rps) and probe.trials:
                    return probe.model_copy(update={"from_run": record.id})
    return None
