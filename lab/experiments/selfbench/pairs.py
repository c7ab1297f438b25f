"""Three ways to compare two systems, side by side in one run: each alone one after the other, by turns in slices, both together.

A round brings both up afresh: alone, then as a pair that is measured twice in each of its ways. So what one pair repeats is told from
what a fresh one differs by. A measurement is a line of FOLDER/pairs.jsonl as soon as it is over, and who goes on there leaves out whole
rounds. Refuses to leave out what did not count: it is in the file with its reason, and only its number is not used.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from math import log
from pathlib import Path

from pydantic import ValidationError

from lab.analysis.pairs import REPEATS, Compared, Way
from lab.base.errors import UsageError
from lab.base.files import writing
from lab.experiments.bench.loads import choose
from lab.measure.measurement import Measurement
from lab.measure.pair import Layout, PairRun
from lab.measure.sample_run import SampleRun
from lab.measure.steady import Steady
from lab.model.metrics import METRICS
from lab.model.pairs import Scheme
from lab.model.plan import Arm, Slot
from lab.model.sweeps import Point
from lab.model.variants import workers
from lab.model.variants.variants import Variant, load_variant
from lab.records.sweep_files import load_sweep
from lab.targets.base import System, Target
from lab.targets.readback import read_back

DONE = "pairs.jsonl"
SWEEP = "quick"
METRICS_COMPARED = ("cpu_per_request", "p50", "p90", "p99")
SAMPLE_S = 7.0
"""Of a load of that sweep with its warm-up and canaries, about."""
BRING_UP_S = 2.0

SCHEMES: Mapping[bool, Scheme] = {True: "slices", False: "together"}
"""By whether the loop is closed."""


def takes_s(rounds: int, variants: int) -> float:
    """About."""
    plain, paired = 2 * (BRING_UP_S + 2 * SAMPLE_S), 2 * BRING_UP_S + 2 * REPEATS * SAMPLE_S
    return rounds * variants * (plain + paired)


def finished(folder: Path) -> list[Compared]:
    """Those of whole rounds, as they were measured. UsageError for a damaged file."""
    try:
        lines = (folder / DONE).read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    try:
        return [Compared.model_validate_json(line) for line in lines if line.endswith("}")]  # the last one may be cut
    except ValidationError as error:
        raise UsageError(str(folder / DONE), f"not what selfbench wrote: {error}", "name another folder") from None


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
                with writing(folder, "--into"):
                    folder.mkdir(parents=True, exist_ok=True)
                    with (folder / DONE).open("a", encoding="utf-8") as file:
                        file.writelines(f"{one.model_dump_json()}\n" for one in found)
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
    with ExitStack() as up:
        first_up = lots.randrange(2)
        systems: dict[int, System] = {}
        for side in (first_up, 1 - first_up):
            systems[side] = up.enter_context(target.up(order[side], side="right" if side else "left"))
        for repeat in range(REPEATS):
            for point in lots.sample(list(points), len(points)):
                layout = Layout(1 if first_up else 0, 1 if first_slice else 0, longer=bool(repeat))
                left, other = (_run(target, systems[side], order[side], point) for side in (0, 1))
                made = PairRun((left, other), layout).measure(1)
                yield _compared(made, right, baseline, variant, point, number, SCHEMES[point.rate_rps is None], repeat)
    if not plain:
        yield from _plain(target, order, right, points, number)


def _plain(
    target: Target, order: Sequence[Variant], right: bool, points: Sequence[Point], number: int
) -> Iterator[Compared]:
    """Each alone on the machine, one after the other."""
    made: dict[str, list[Measurement]] = {point.name: [] for point in points}
    for each in order:
        with target.up(each) as system:
            for point in points:
                run = _run(target, system, each, point)
                made[point.name].append(run.measure(Steady(system, point, run.chosen.generator), 1))
    baseline, variant = order if right else order[::-1]
    for point in points:
        first, second = made[point.name]
        yield _compared((first, second), right, baseline, variant, point, number, "plain", 0)


def _run(target: Target, system: System, variant: Variant, point: Point) -> SampleRun:
    slot = Slot(1, 1, Arm(variant.name, variant.name, "variant", None), point)
    readings = read_back(system, variant.readback)
    return SampleRun(target, system, slot, choose(point, target), 0, 0.0, readings, workers.asked(variant.manifests))


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
        baseline=baseline.name,
        point=point.name,
        way=way,
        repeat=repeat,
        right=right,
        valid=not faults,
        detail="; ".join(dict.fromkeys(faults)),
        log_ratios={
            metric: log(mine / theirs)
            for metric in METRICS_COMPARED
            if (mine := _value(other, metric)) and (theirs := _value(base, metric))
        },
        backend=log(mine / theirs) if (mine := _backend(other)) and (theirs := _backend(base)) else None,
        slice_s=pair.slice_s if pair else None,
        in_flight=pair.in_flight if pair else None,
    )


def _value(made: Measurement, metric: str) -> float | None:
    return METRICS[metric].read(made.sample, made.histograms.get("latency"))


def _backend(made: Measurement) -> float | None:
    usage, requests = made.sample.usage.get("backend"), made.sample.requests
    return usage.cpu_s / requests if usage and requests else None


def line(one: Compared) -> str:
    """As it is told while measuring."""
    ratios = ", ".join(f"{METRICS[name].short} {100 * value:+.1f} %" for name, value in one.log_ratios.items())
    fate = ratios if one.valid else f"does not count: {one.detail}"
    return f"round {one.round + 1}: {one.variant} at {one.point}, {one.way}: {fate}"
