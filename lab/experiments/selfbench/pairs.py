"""A sample of the lab beside the same load by hand, on one system that stays up: does the lab take longer, does it slow the load?

By hand: a bash loop in the client's place, on the generator's CPU as the lab has it, over the warm-up and the load: the recorded
argv with the files that belong to it. Each pair's order is drawn by lot. What is compared is wall time and what the generator
itself reported, read by one parser.
"""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from lab.analysis.selfbench import Report, Row, compared
from lab.base.errors import MeasuringError
from lab.base.files import write_texts, writing
from lab.experiments import bench
from lab.experiments.selfbench.overhead import VARIANT
from lab.experiments.selfbench.process import ended
from lab.generators import command
from lab.generators.loads import load_of
from lab.measure.measurement import ChosenGenerator
from lab.measure.sample_run import SampleRun
from lab.measure.steady import Steady
from lab.model.load import Load, OutputError
from lab.model.plan import Slot
from lab.records.store import RunStore
from lab.targets.base import System, Target
from lab.targets.common.process import GRACE_S, scratch

SCRIPT = """\
#!/usr/bin/env bash
# By hand: what each folder's `run` holds, one after the other. Usage: by-hand.sh FOLDER…
set -euo pipefail
for folder in "$@"; do
  (cd "$folder" && bash ./run >out 2>err)
done
"""
Say = Callable[[str], None]


class Side(BaseModel):
    """One of a pair: seconds, requests per second as reported, the median latency in seconds (None: not reported)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    wall_s: float
    rate_rps: float
    p50_s: float | None


class Pair(BaseModel):
    """One point measured both ways, one right after the other. `valid`: whether the lab's sample counts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    point: str
    planned_s: float
    """Warm-up and load."""
    lab: Side
    by_hand: Side
    valid: bool


@dataclass(frozen=True, slots=True)
class Bench:
    """What a pair is measured with: a system that is up, and a run that samples are written to."""

    target: Target
    system: System
    store: RunStore
    chosen: dict[str, ChosenGenerator]


def measure(target: Target, sweep: Path, count: int, say: Say = lambda _: None, seed: int = 1) -> list[Pair]:
    """`count` pairs of each point of a sweep. MeasuringError when one of them brought no number."""
    request = bench.Request((VARIANT,), str(sweep), count, seed, label="selfbench")
    prepared = bench.prepare(request, target, ("lab", "selfbench"))
    with bench.opened(prepared, None, target) as store, target.up(prepared.variants[VARIANT]) as system:
        parts = Bench(target, system, store, dict(prepared.chosen))
        found: list[Pair] = []
        for pair in pairs(parts, random.Random(seed)):
            found.append(pair)
            say(f"{pair.point}: lab {pair.lab.wall_s:.2f} s, by hand {pair.by_hand.wall_s:.2f} s")
        return found


def pairs(parts: Bench, lots: random.Random) -> Iterator[Pair]:
    """Every slot of the run's first arm, both ways."""
    slots = [slot for slot in parts.store.record.plan().slots if slot.arm == parts.store.record.arms[0]]
    for slot in slots:
        first = lots.random() < 0.5
        by_hand = None if first else _by_hand(parts, slot)
        lab, argv, valid = _lab(parts, slot)
        by_hand = by_hand or _by_hand(parts, slot)
        if argv != by_hand[1]:
            raise MeasuringError("selfbench: by hand", f"ran {by_hand[1]}, the lab recorded {argv}")
        point = slot.point
        planned_s = point.duration_s + (max(1.0, point.warmup_s) if point.warmup_s else 0.0)
        yield Pair(point=point.name, planned_s=planned_s, lab=lab, by_hand=by_hand[0], valid=valid)


def rows_of(found: list[Pair]) -> Report:
    """Wall time, reported rate and median latency of every point, lab against by hand."""
    rows: list[Row] = []
    for point in dict.fromkeys(pair.point for pair in found):
        mine = [pair for pair in found if pair.point == point]
        note = f"{len(mine) - sum(pair.valid for pair in mine)} of {len(mine)} invalid" * (
            not all(p.valid for p in mine)
        )
        lab, hand = [pair.lab for pair in mine], [pair.by_hand for pair in mine]
        planned = f"{mine[0].planned_s:g} s of it planned"
        rows.append(
            compared("samples", f"{point}: wall time", "s", [s.wall_s for s in lab], [s.wall_s for s in hand], planned)
        )
        rates = ([side.rate_rps for side in lab], [side.rate_rps for side in hand])
        rows.append(compared("samples", f"{point}: reported rate", "req/s", *rates, note))
        both = [(p.lab.p50_s, p.by_hand.p50_s) for p in mine if p.lab.p50_s is not None and p.by_hand.p50_s is not None]
        if both:
            rows.append(
                compared("samples", f"{point}: reported p50", "s", [a for a, _ in both], [b for _, b in both], note)
            )
    return Report(rows=tuple(rows))


def _lab(parts: Bench, slot: Slot) -> tuple[Side, tuple[str, ...], bool]:
    """As the run's loop does it: measured and stored."""
    began = time.monotonic()
    chosen = parts.chosen[slot.point.name]
    run = SampleRun(parts.target, parts.system, slot, chosen, 0, 0.0, ())
    made = run.measure(Steady(parts.system, slot.point, chosen.generator), 1)
    parts.store.write_sample(made.sample, made.raw, made.histograms, made.usage, made.events)
    wall_s = time.monotonic() - began
    latency = made.histograms.get("latency")
    if made.sample.achieved_rps is None or latency is None:
        raise MeasuringError(f"selfbench: {slot.point.name}", made.sample.detail or "the generator reported nothing")
    side = Side(wall_s=wall_s, rate_rps=made.sample.achieved_rps, p50_s=latency.quantile_s(0.5))
    return side, made.sample.argv, made.sample.valid


def _by_hand(parts: Bench, slot: Slot) -> tuple[Side, tuple[str, ...]]:
    """(what came of it, the load's argv)."""
    point, chosen = slot.point, parts.chosen[slot.point.name]
    load = load_of(point, parts.system.endpoint(point))
    warm_up = replace(load, duration_s=max(1.0, point.warmup_s), requests=None)
    loads = {"warm-up": warm_up, "load": load} if point.warmup_s else {"load": load}
    with scratch() as folder:
        for name, each in loads.items():
            _lay(folder / name, chosen, each)
        with writing(folder, "TMPDIR"):
            (folder / "by-hand.sh").write_text(SCRIPT)
        with open(folder / "said", "wb") as said:
            began = time.monotonic()
            process = parts.system.popen(["bash", "by-hand.sh", *loads], folder, said, said)
            status = ended(process, sum(each.duration_s for each in loads.values()) + GRACE_S)
            wall_s = time.monotonic() - began
        out, err = ((folder / "load" / name).read_text(errors="replace") for name in ("out", "err"))
    try:
        told = chosen.generator.parse(out, err, status, load)
    except OutputError as error:
        raise MeasuringError(f"selfbench: {point.name} by hand", f"exit status {status}: {error}") from None
    side = Side(wall_s=wall_s, rate_rps=told.achieved_rps, p50_s=told.latency.quantile_s(0.5))
    return side, tuple(command(chosen.generator, chosen.path, load))


def _lay(folder: Path, chosen: ChosenGenerator, load: Load) -> None:
    with writing(folder, "TMPDIR"):
        folder.mkdir()
    argv = shlex.join(command(chosen.generator, chosen.path, load))
    write_texts(folder, {**chosen.generator.files(load), "run": f"exec {argv}\n", "out": "", "err": ""})
