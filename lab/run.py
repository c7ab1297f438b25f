"""The loop: bring an arm up, read its knobs back, measure its points, store each sample as it is made.

Everything it touches is handed in (target, generators, store, observer), so tests hand it fakes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Protocol

from lab.errors import LabError
from lab.histogram import Histogram
from lab.measurement import Chosen, Measurement, Measuring, blank_sample, not_measured
from lab.plan import Slot
from lab.readback import Reading, read_back
from lab.samples import Reason, Sample
from lab.store import RunStore, StoreError
from lab.targets.base import Target
from lab.variants import Variant

ATTEMPTS = 3  # one measurement and up to two more after an environmental reason
STALE_BLOCK = timedelta(minutes=10)


class Observer(Protocol):
    """Who watches a run: the terminal, or a test."""

    def bringing_up(self, slot: Slot) -> None: ...
    def brought_up(self, slot: Slot, took_s: float, readings: Sequence[Reading]) -> None: ...
    def measuring(self, slot: Slot, attempt: int) -> None: ...
    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None: ...
    def failed(self, slot: Slot, error: LabError) -> None: ...


@dataclass(frozen=True, slots=True)
class Bench:
    """One run's parts. `measure()` works through what the store does not hold yet."""

    target: Target
    variants: Mapping[str, Variant]
    chosen: Mapping[str, Chosen]
    store: RunStore
    observer: Observer

    def measure(self) -> None:
        done = self.store.samples()
        tried = {
            slot: [s for s in done if cell(s) == cell(slot) and counts(s)] for slot in self.store.record.plan().slots
        }
        pending = [slot for slot, samples in tried.items() if not any(settled(s) for s in samples)]
        for (block, _), group in groupby(pending, key=lambda slot: (slot.block, slot.arm.name)):
            generation = 1 + max(
                (s.generation for s in done if s.block == block and not counts(s)),
                default=-1,
            )
            self._measure_arm({slot: len(tried[slot]) for slot in group}, generation)

    def _measure_arm(self, tried: Mapping[Slot, int], generation: int) -> None:
        slots = list(tried)
        first = slots[0]
        variant = self.variants[first.arm.variant]
        self.observer.bringing_up(first)
        began = time.monotonic()
        try:
            with self.target.up(variant) as system:
                took_s = time.monotonic() - began
                readings = read_back(system, variant.readback)
                self.store.write_readback(
                    first.block,
                    first.arm.name,
                    generation,
                    [reading.as_json() for reading in readings],
                )
                self.observer.brought_up(first, took_s, readings)
                for slot in slots:
                    chosen = self.chosen[slot.point.name]
                    measuring = Measuring(self.target, system, slot, chosen, generation, took_s, readings)
                    self._until_settled(measuring, tried[slot])
        except StoreError:
            raise  # what cannot be recorded must not be measured
        except LabError as error:
            self.observer.failed(first, error)
            stored = {cell(sample) for sample in self.store.samples() if settled(sample)}
            for slot in slots:
                if cell(slot) not in stored:
                    blank = blank_sample(
                        self.target,
                        slot,
                        self.chosen[slot.point.name],
                        generation,
                        tried[slot] + 1,
                        None,
                    )
                    self._keep(slot, not_measured(blank, error))

    def _until_settled(self, measuring: Measuring, tried: int) -> None:
        for attempt in range(tried + 1, ATTEMPTS + 1):
            self.observer.measuring(measuring.slot, attempt)
            if settled(self._keep(measuring.slot, measuring.once(attempt))):
                return

    def _keep(self, slot: Slot, made: Measurement) -> Sample:
        self.store.write_sample(made.sample, made.raw, made.histograms, made.usage)
        self.observer.measured(slot, made.sample, made.histograms.get("latency"), settled(made.sample))
        return made.sample


def cell(of: Slot | Sample) -> tuple[int, str, str]:
    """(block, arm, point): what is measured once."""
    arm = of.arm if isinstance(of.arm, str) else of.arm.name
    return of.block, arm, of.point.name


def counts(sample: Sample) -> bool:
    """Whether it belongs to its block as it stands (its block was not begun anew)."""
    return sample.reason != Reason.BLOCK_INTERRUPTED


def settled(sample: Sample) -> bool:
    """Whether its cell needs no further measurement: valid, beyond help, or tried often enough."""
    helpless = sample.reason is not None and not sample.reason.environmental
    return counts(sample) and (sample.valid or helpless or sample.attempt >= ATTEMPTS)


def stale_blocks(store: RunStore, facts: Mapping[str, str]) -> list[Sample]:
    """Samples of blocks that were interrupted for too long, or on a machine with other facts: to be marked before resuming."""
    record, done = (
        store.record,
        [sample for sample in store.samples() if counts(sample)],
    )
    last = record.facts | (dict(record.resumed[-1]) if record.resumed else {})
    changed = any(last.get(key) != value for key, value in facts.items())
    found: list[Sample] = []
    for block in sorted({sample.block for sample in done}):
        mine = [sample for sample in done if sample.block == block]
        planned = {cell(slot) for slot in record.plan().slots if slot.block == block}
        if planned <= {cell(sample) for sample in mine if settled(sample)}:
            continue
        ended = max(datetime.fromisoformat(s.started_at) + timedelta(seconds=s.duration_s or 0) for s in mine)
        if changed or datetime.now(UTC) - ended > STALE_BLOCK:
            found += mine
    return found
