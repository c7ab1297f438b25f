"""The loop: bring an arm up, read its knobs back, measure what is due on it, store each sample as it is made.

Everything it touches is handed in (target, generators, store, observer), so tests hand it fakes. Refuses to know what comes
next where no plan says it: that is the search's for a knee, which goes through `on_one_system` as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Protocol

from lab.base.errors import LabError, LostError
from lab.base.files import StoreError
from lab.measure.disturbed import Disturbed
from lab.measure.measurement import ChosenGenerator, Measurement, blank_sample, not_brought_up
from lab.measure.regime import Regime
from lab.measure.sample_run import SampleRun
from lab.measure.steady import Steady
from lab.model.plan import Slot
from lab.model.run import RoundTrip
from lab.model.samples import ATTEMPTS, Cell, Sample, cell, counts, settled
from lab.model.variants import workers
from lab.model.variants.variants import Variant
from lab.records.store import RunStore
from lab.stats.histogram import Histogram
from lab.targets.base import System, Target
from lab.targets.readback import Reading, read_back

STALE_BLOCK = timedelta(minutes=10)


class Observer(Protocol):
    """Who watches a run: the terminal, or a test."""

    def bringing_up(self, slot: Slot) -> None: ...
    def brought_up(self, slot: Slot, took_s: float, readings: Sequence[Reading]) -> None: ...
    def measuring(self, slot: Slot, attempt: int) -> None: ...
    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None: ...
    def failed(self, slot: Slot, error: LabError) -> None: ...


def nothing() -> None:
    """No slot follows."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One run's parts. `measure()` works through what the plan holds and the store does not."""

    target: Target
    variants: Mapping[str, Variant]
    chosen: Mapping[str, ChosenGenerator]
    """By point."""
    store: RunStore
    observer: Observer
    roundtrip: Callable[[System], RoundTrip] | None = None
    """Measures the bare network beside the direct reference, once per run; None = nobody does."""
    done: dict[Cell, Sample] = field(default_factory=dict[Cell, Sample])
    """What needs no further measurement."""
    _attempts: dict[Cell, int] = field(default_factory=dict[Cell, int])
    _generations: dict[int, int] = field(default_factory=dict[int, int])

    def measure(self) -> None:
        """Everything the plan holds and the store does not: complete samples are kept, whoever measured them."""
        self.take_stored()
        pending = [slot for slot in self.store.record.plan().slots if cell(slot) not in self.done]
        for _, group in groupby(pending, key=lambda slot: slot.bring_up):
            slots = list(group)
            while slots:
                self.on_one_system(slots)
                slots = [slot for slot in slots if cell(slot) not in self.done]

    def take_stored(self) -> None:
        """What the store holds need not be measured again."""
        for sample in self.store.samples():
            self._note(sample)

    def on_one_system(self, slots: Sequence[Slot], then: Callable[[], Slot | None] = nothing) -> None:
        """Bring one system up for slots of one arm, and for those that `then` names once these are measured.

        When it does not come up, or is lost on the way, every slot that is not done has an invalid sample of that.
        """
        first, due = slots[0], list(slots)
        variant, generation = self.variants[first.arm.variant], self._generation(first)
        self.observer.bringing_up(first)
        began = time.monotonic()
        try:
            with self.target.up(variant, changing=first.point.disturbance is not None) as system:
                took_s = time.monotonic() - began
                readings = read_back(system, variant.readback)
                found = [reading.as_json() for reading in readings]
                *_, point = first.bring_up
                self.store.write_readback(first.block, first.arm.name, generation, found, point)
                self.store.write_deployed(first.block, first.arm.name, generation, system.deployed(), point)
                self.observer.brought_up(first, took_s, readings)
                if first.arm.role == "reference" and self.roundtrip and self.store.roundtrip() is None:
                    self.store.write_roundtrip(self.roundtrip(system))
                asked = workers.asked(variant.manifests)
                for slot in due:  # it grows meanwhile
                    chosen, begun = self.chosen[slot.point.name], self._generation(slot)
                    self._until_settled(SampleRun(self.target, system, slot, chosen, begun, took_s, readings, asked))
                    if slot is due[-1] and (following := then()) is not None:
                        due.append(following)
        except (StoreError, LostError):
            raise  # what cannot be recorded must not be measured; what has gone will not come up for the next arm either
        except LabError as error:
            self.observer.failed(first, error)
            for slot in due:
                if cell(slot) not in self.done:
                    chosen, attempt = self.chosen[slot.point.name], self._attempts.get(cell(slot), 0) + 1
                    blank = blank_sample(self.target, slot, chosen, generation, attempt, None)
                    self._keep(slot, not_brought_up(blank, error))

    def _until_settled(self, run: SampleRun) -> None:
        """A disturbed system is measured once: what has to be measured again is brought up again."""
        slot = run.slot
        for attempt in range(self._attempts.get(cell(slot), 0) + 1, ATTEMPTS + 1):
            self.observer.measuring(slot, attempt)
            made = self._keep(slot, run.measure(self._regime(run), attempt))
            if settled(made) or slot.point.disturbance is not None:
                return

    def _regime(self, run: SampleRun) -> Regime:
        point, generator = run.slot.point, run.chosen.generator
        if point.disturbance is None:
            return Steady(run.system, point, generator)
        manifests = self.variants[run.slot.arm.variant].manifests
        return Disturbed(self.target, run.system, point, generator, manifests)

    def _keep(self, slot: Slot, made: Measurement) -> Sample:
        self.store.write_sample(made.sample, made.raw, made.histograms, made.usage, made.events, made.left)
        self._note(made.sample)
        self.observer.measured(slot, made.sample, made.histograms.get("latency"), settled(made.sample))
        return made.sample

    def _note(self, sample: Sample) -> None:
        if counts(sample):
            self._attempts[cell(sample)] = max(sample.attempt, self._attempts.get(cell(sample), 0))
        else:
            self._generations[sample.block] = max(sample.generation + 1, self._generations.get(sample.block, 0))
        if settled(sample):
            self.done[cell(sample)] = sample

    def _generation(self, slot: Slot) -> int:
        """How often its block was begun anew."""
        return self._generations.get(slot.block, 0)


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
        ended = max(ended_at(sample) for sample in mine)
        if changed or datetime.now(UTC) - ended > STALE_BLOCK:
            found += mine
    return found


def ended_at(sample: Sample) -> datetime:
    """When its measuring was over, about."""
    took_s = sample.point.warmup_s + (sample.duration_s or 0.0)
    return datetime.fromisoformat(sample.started_at) + timedelta(seconds=took_s)
