"""Three ways to compare two systems, side by side in one run: each alone one after the other, by turns in slices, both together.

A round brings both up afresh: alone, then as a pair that is measured twice in each of its ways. So what one pair repeats is told from
what a fresh one differs by. A round's measurements are lines of FOLDER/pairs.jsonl once it is over, and who goes on there leaves it
out. Refuses to leave out what did not count: it is in the file with its reason, and only its number is not used.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import log
from pathlib import Path

from lab.experiments.bench.loads import choose
from lab.experiments.selfbench import lines
from lab.measure.measurement import Measurement
from lab.measure.pair import PairRun
from lab.measure.sample_run import SampleRun
from lab.measure.steady import Steady
from lab.model.metrics import METRICS
from lab.model.pairs import REPEATS, SIDES, Compared, Layout, Way
from lab.model.plan import Arm, Slot
from lab.model.sweeps import Point
from lab.model.variants.variants import Variant, load_variant
from lab.records.sweep_files import load_sweep
from lab.systems import workers
from lab.targets.base import System, Target
from lab.targets.readback import Reading, read_back

DONE = "pairs.jsonl"
SWEEP = "quick"
METRICS_COMPARED = ("cpu_per_request", "p50", "p90", "p99")
SAMPLE_S = 7.0
"""Of a load of that sweep with its warm-up and canaries, about."""
BRING_UP_S = 2.0


def takes_s(rounds: int, variants: int) -> float:
    """About."""
    plain, paired = 2 * (BRING_UP_S + 2 * SAMPLE_S), 2 * BRING_UP_S + 2 * REPEATS * SAMPLE_S
    return rounds * variants * (plain + paired)


def finished(folder: Path) -> list[Compared]:
    """Those of whole rounds, as they were measured. UsageError for a damaged file."""
    return lines.read(folder / DONE, Compared)


def measured(
    target: Target, baseline: str, variants: Sequence[str], rounds: int, seed: int, folder: Path
) -> Iterator[Compared]:
    """What `folder` does not hold yet, in rounds; the target is entered. UsageError, MeasuringError as a bench."""
    target.check()
    loaded = {name: load_variant(name) for name in dict.fromkeys([baseline, *variants])}
    points = load_sweep(SWEEP)[1].expanded()
    for each in loaded.values():
        target.check_variant(each, points)
    have = {(one.round, one.variant) for one in finished(folder)}
    for number in range(rounds):
        lots = random.Random(f"{seed} {number}")
        for variant in lots.sample(list(variants), len(variants)):
            if (number, variant) not in have:
                found = list(_round(target, loaded[baseline], loaded[variant], points, number, lots))
                lines.add(folder / DONE, found)
                yield from found


def _round(
    target: Target, baseline: Variant, variant: Variant, points: Sequence[Point], number: int, lots: random.Random
) -> Iterator[Compared]:
    """Both alone and as pairs, in an order drawn by lot. Sides alternate from round to round, first slices from two to two."""
    right, first_slice = bool(number % 2), number // 2 % 2
    order = [baseline, variant] if right else [variant, baseline]
    plain = lots.random() < 0.5
    if plain:
        yield from _plain(target, order, right, points, number)
    here = dict(zip(SIDES, order, strict=True))
    with ExitStack() as up:
        order_up = lots.sample(SIDES, len(SIDES))
        systems = {side: _up(up.enter_context(target.up(here[side], side=side)), here[side]) for side in order_up}
        for repeat in range(REPEATS):
            for point in lots.sample(list(points), len(points)):
                layout = Layout(first_up=order_up[0], first_slice=SIDES[first_slice], longer=bool(repeat))
                left, other = (systems[side] for side in SIDES)
                slot = Slot(1, 1, left.arm, point, other.arm, layout)
                made = PairRun((left.run(target, slot), other.run(target, slot.turned))).measure(1)
                yield _compared(made, right, baseline, variant, point, number, point.scheme, repeat)
    if not plain:
        yield from _plain(target, order, right, points, number)


def _plain(
    target: Target, order: Sequence[Variant], right: bool, points: Sequence[Point], number: int
) -> Iterator[Compared]:
    """Each alone on the machine, one after the other."""
    made: dict[str, list[Measurement]] = {point.name: [] for point in points}
    for each in order:
        with target.up(each) as system:
            up = _up(system, each)
            for point in points:
                run = up.run(target, Slot(1, 1, up.arm, point))
                made[point.name].append(run.measure(Steady(system, point, run.chosen.generator), 1))
    baseline, variant = order if right else order[::-1]
    for point in points:
        first, second = made[point.name]
        yield _compared((first, second), right, baseline, variant, point, number, "plain", 0)


@dataclass(frozen=True, slots=True)
class _Up:
    """A variant that is up, and what was read back of it."""

    system: System
    variant: Variant
    readings: Sequence[Reading]

    @property
    def arm(self) -> Arm:
        return Arm(self.variant.name, self.variant.name, "variant", None)

    def run(self, target: Target, slot: Slot) -> SampleRun:
        asked = workers.asked(self.variant.manifests, len(target.cpus().get("proxy", ())) or None)
        return SampleRun(target, self.system, slot, choose(slot.point, target), 0, 0.0, self.readings, asked)


def _up(system: System, variant: Variant) -> _Up:
    return _Up(system, variant, read_back(system, variant.readback))


def _compared(
    made: tuple[Measurement, Measurement],
    right: bool,
    baseline: Variant,
    variant: Variant,
    point: Point,
    number: int,
    way: Way,
    repeat: int,
) -> Compared:
    base, other = made if right else made[::-1]
    faults = [each.sample.detail for each in made if not each.sample.valid]
    pair = other.sample.pair
    return Compared(
        round=number,
        variant=variant.name,
        dose=variant.dose,
        baseline=baseline.name,
        point=point.name,
        way=way,
        repeat=repeat,
        right=right,
        valid=not faults,
        detail="; ".join(dict.fromkeys(faults)),
        log_ratios={
            metric: ratio for metric in METRICS_COMPARED if (ratio := _log_ratio(other, base, metric)) is not None
        },
        backend=_log_ratio(other, base, "backend_cpu_per_request"),
        slice_s=pair.slice_s if pair else None,
        in_flight=pair.in_flight if pair else None,
        unexplained=pair.unexplained if pair else None,
    )


def _log_ratio(other: Measurement, base: Measurement, metric: str) -> float | None:
    mine, theirs = (METRICS[metric].read(made.sample, made.histograms.get("latency")) for made in (other, base))
    return log(mine / theirs) if mine and theirs else None


def line(one: Compared) -> str:
    """As it is told while measuring."""
    ratios = ", ".join(f"{METRICS[name].short} {100 * value:+.1f} %" for name, value in one.log_ratios.items())
    fate = ratios if one.valid else f"does not count: {one.detail}"
    return f"round {one.round + 1}: {one.variant} at {one.point}, {one.way}: {fate}"
