"""A probe before a run: short trials of the rates that two systems at once can serve on the target.

A run measures pairs: two variants at the same time. Two load generators at an offered rate then share CPUs with two
proxies and two backends. If the machine has too few CPUs, every pair of the run is invalid. So two systems of the
baseline get a few seconds of the load beforehand, and the rate is lowered until both achieve it. If they achieve none of
the tried rates, the variants are measured one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace

from lab.base.errors import LabError, LostError
from lab.base.files import StoreError
from lab.experiments.bench.measurable import MeasurableRun, choose_generator
from lab.generators.k6 import Out
from lab.measure.measurement import SampleRun
from lab.measure.pair import PairRun
from lab.measure.validity import MIN_ACHIEVED
from lab.model.bottleneck import BUSY
from lab.model.facts import select_lasting
from lab.model.pairs import SIDES, Layout
from lab.model.plan import Arm, Slot
from lab.model.run import Probe, ProbeTrial
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.model.variants.variants import Variant
from lab.records.store import RunStore, run_names
from lab.targets.base import Target

MAX_TRIALS = 3
SPARE = 0.75
"""The next rate to try, as a share of the rate that two overloaded systems achieved, but at most half of the offered rate."""
LEAST_RPS = 100.0
"""The lowest rate that is tried: below it, the proxy would be nearly idle."""
LOAD_S, WARM_UP_S = 3.0, 1.0
"""The most seconds of a trial's load and of its warm-up; generators that cannot make a rate fail within the first of them."""
RECENT = 20
"""The number of newest runs that are searched for a probe of the same load under the same facts."""

TrialOf = Callable[[LoadPoint], ProbeTrial]
ProbeTrials = Callable[[Target, Variant, Out | None], AbstractContextManager[TrialOf]]
"""The type of functions that bring up two systems of a variant on a target, and yield a function that tries loads."""


def probe_points(
    run: MeasurableRun, target: Target, baseline: str, out: Out | None, trials: ProbeTrials
) -> MeasurableRun:
    """Find out at which rates two systems at once can serve the loads of a run on the target, and return the run with these rates.

    If two systems can serve none of the rates that are tried for a load, the load is marked to be measured with one variant at a time. The
    result of a recent run for the same load is used again. If the trials fail with an error, the load keeps its requested rate. Only the
    errors for a lost target and for a failed write are raised.

    Args:
        run: The run, whose `to_probe` lists the load points.
        target: The target.
        baseline: The variant of which two systems are brought up.
        out: The form of output that k6 keeps, as in the loads of the run.
        trials: The function that brings the two systems up.

    """
    variant, points = run.variants[baseline], run.to_probe
    probes = {point.name: probe for point in points if (probe := _find_probe(run, target, variant, point)) is not None}
    missing = [point for point in points if point.name not in probes]
    if missing:
        try:
            with trials(target, variant, out) as trial_of:
                probes |= {point.name: probe_of(point, trial_of) for point in missing}
        except (LostError, StoreError):
            raise
        except LabError as error:
            reason = f"the probe could not be made ({error.fault}): the load is planned as it was asked for"
            probes |= {
                point.name: Probe(point=point.name, rate_rps=point.rate_rps or 0.0, decided="as-asked", why=reason)
                for point in missing
                if point.name not in probes
            }
    return _apply_probes(run, {point.name: probes[point.name] for point in points})


def probe_of(point: LoadPoint, trial_of: TrialOf) -> Probe:
    """Try a load on two systems at once, at falling rates, until both achieve the offered rate.

    There are at most `MAX_TRIALS` trials, and fewer if the rate reaches `LEAST_RPS`. If both systems achieve none of the rates, the
    result's `decided` is `solo`.

    Args:
        point: The load point with the requested rate.
        trial_of: The function that loads both systems at the rate of a load point.

    """
    assert point.rate_rps is not None, "only given rates are probed"
    trials: list[ProbeTrial] = []
    rate = point.rate_rps
    while True:
        trials.append(trial := trial_of(point.model_copy(update={"rate_rps": rate})))
        if trial.carried:
            decided = "lowered" if len(trials) > 1 else "as-asked"
            return Probe(
                point=point.name, rate_rps=point.rate_rps, carried_rps=rate, decided=decided, trials=tuple(trials)
            )
        half = rate / 2
        lower = half if trial.achieved_rps is None else min(half, SPARE * trial.achieved_rps)
        lower = max(LEAST_RPS, float(f"{lower:.2g}"))
        if len(trials) == MAX_TRIALS or lower >= rate:
            return Probe(point=point.name, rate_rps=point.rate_rps, decided="solo", trials=tuple(trials))
        rate = lower


def judge_trial(rate_rps: float, samples: Sequence[Sample]) -> ProbeTrial:
    """Judge whether two systems that were loaded at once both achieved the offered rate.

    Three conditions must hold. Each system achieved at least the share `MIN_ACHIEVED` of the rate. No request was dropped. The
    CPU use of each load generator was below `BUSY`.

    Args:
        rate_rps: The offered rate of each system, in requests per second.
        samples: The samples of both systems.

    """
    achieved = [sample.achieved_rps for sample in samples]
    cores = [sample.generator_core for sample in samples if sample.generator_core is not None]
    dropped = sum(sample.dropped or 0 for sample in samples)
    lowest = None if None in achieved else min(rate for rate in achieved if rate is not None)
    core = max(cores, default=None)
    faults = {
        f"nothing was measured: {samples[0].detail}": lowest is None,
        f"{dropped:,} requests dropped": dropped > 0,
        f"{lowest or 0:,.0f} req/s on a side": lowest is not None and lowest < MIN_ACHIEVED * rate_rps,
        f"generator {core or 0:.0%} busy": core is not None and core >= BUSY,
    }
    reason = ", ".join(fault for fault, holds in faults.items() if holds)
    return ProbeTrial(
        rate_rps=rate_rps, achieved_rps=lowest, dropped=dropped, generator_core=core, carried=not reason, why=reason
    )


@contextmanager
def bring_up_pair(say: Callable[[str], None], target: Target, variant: Variant, out: Out | None) -> Iterator[TrialOf]:
    """Bring up two systems of a variant for the duration of a `with` statement, and yield a function that loads both at once.

    Each call of the function is a trial of at most LOAD_S seconds, after at most WARM_UP_S seconds of warm-up. Nothing is stored.

    Args:
        say: Receives a line for the user.
        target: The target.
        variant: The variant.
        out: The form of output that k6 keeps; None: none.

    Yields:
        A function that takes a load point with an offered rate, and returns how the trial with this load went.

    """
    say(f"what does this target carry for two sides at once? Two of {variant.name} are brought up …")
    left_arm, right_arm = (Arm(name, variant.name, "variant", None) for name in (variant.name, f"{variant.name} too"))
    with ExitStack() as stack:
        systems = [stack.enter_context(target.up(variant, side=side)) for side in SIDES]

        def trial_of(point: LoadPoint) -> ProbeTrial:
            short = {"duration_s": min(LOAD_S, point.duration_s), "warmup_s": min(WARM_UP_S, point.warmup_s)}
            point = point.model_copy(update=short)
            chosen, slot = choose_generator(point, target, out), Slot(1, 1, left_arm, point, right_arm, Layout())
            left, right = (
                SampleRun(target, system, side, chosen, 0, 0.0, (), variant.manifests)
                for system, side in zip(systems, slot.sides, strict=True)
            )
            return judge_trial(point.rate_rps or 0.0, [result.sample for result in PairRun((left, right)).measure(1)])

        yield trial_of


def _apply_probes(run: MeasurableRun, probes: Mapping[str, Probe]) -> MeasurableRun:
    """Return the run with the rates that two systems at once can serve, as its probes (short trials of its loads) show them.

    If two systems at once achieved no rate, the load is marked to be measured with one variant at a time, at the rate of the last trial. A
    new rate also replaces the old one in the name of its load point, unless another load point has that name.

    Args:
        run: The run.
        probes: Name of a load point → its probe.

    """
    names = {point.name for point in run.record.points}
    points: list[LoadPoint] = []
    renamed: dict[str, str] = {}
    for point in run.record.points:
        probe = probes.get(point.name)
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
        for variant, by_point in run.endpoints.items()
    }
    updates = {"points": tuple(points), "probes": tuple(probes.values())}
    return replace(run, record=run.record.model_copy(update=updates), endpoints=endpoints)


def _find_probe(run: MeasurableRun, target: Target, variant: Variant, point: LoadPoint) -> Probe | None:
    """Return the probe of the same load (short trials on two systems at once) from a recent comparable run; None without one.

    A run is comparable if it has the same target, the same manifests of the variant and the same facts about the machine. Two
    loads are the same if their names and rates are equal.

    Args:
        run: The run, which has the facts of the machine.
        target: The target.
        variant: The variant of which two systems would be brought up.
        point: The load point.

    """
    for name in list(reversed(run_names()))[:RECENT]:
        try:
            record = RunStore.open(name).record
        except LabError:
            continue  # a damaged run is no guide; it is reported when it is used
        recorded = record.variants.get(variant.name)
        same = recorded is not None and recorded.manifests_sha256 == variant.manifests_sha256
        if same and record.target == target.name and select_lasting(record.facts) == select_lasting(run.record.facts):
            for probe in record.probes:
                if (probe.point, probe.rate_rps) == (point.name, point.rate_rps) and probe.trials:
                    return probe.model_copy(update={"from_run": record.id})
    return None
