"""The loop: bring an arm up, read its knobs back, measure what is due on it, store each sample as it is made.

Everything it touches is handed in (target, generators, store, observer), so tests hand it fakes. Refuses to know what comes
next where no plan says it: that is the search's for a knee, which goes through `on_systems` as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Protocol

from lab.base.errors import LabError, LostError
from lab.base.files import StoreError
from lab.measure.disturbed import Disturbed
from lab.measure.measurement import ChosenGenerator, Measurement, Regime, blank_sample, not_brought_up, unmeasured
from lab.measure.pair import PairRun
from lab.measure.sample_run import SampleRun, Start, UndrainedStartError
from lab.measure.steady import Steady
from lab.model.facts import EVERY_MOMENT
from lab.model.leftovers import MOST_BRING_UPS, Leftovers, undrained
from lab.model.pairs import SIDES, Layout, Renewed, Side
from lab.model.plan import Arm, Slot, needs_reload
from lab.model.run import RoundTrip
from lab.model.samples import Cell, Reason, Sample, cell, cells, counts, planned_cells, settled
from lab.model.variants.variants import Variant
from lab.records.store import RunStore
from lab.records.tables import ROUNDTRIP
from lab.stats.histogram import Histogram
from lab.systems import stand_ins, workers
from lab.targets.base import System, Target, nothing
from lab.targets.readback import Reading, read_back

STALE_BLOCK = timedelta(minutes=10)


class Observer(Protocol):
    """Who watches a run: the terminal, or a test."""

    def bringing_up(self, slot: Slot) -> None: ...
    def bringing_up_anew(self, slot: Slot, why: Sequence[str]) -> None: ...
    def brought_up(self, slot: Slot, took_s: float, readings: Sequence[Reading]) -> None: ...
    def measuring(self, slot: Slot, attempt: int) -> None: ...
    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None: ...
    def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None: ...
    def failed(self, slot: Slot, error: LabError) -> None: ...


@dataclass(frozen=True, slots=True)
class _Up:
    """An arm that is up, and what was read back of it."""

    arm: Arm
    system: System
    took_s: float
    readings: Sequence[Reading]
    workers: int | None
    renewed: Renewed | None = None
    """The reload that made its workers; None: it came up with them."""


@dataclass(slots=True)
class _Systems:
    """The systems of one bring-up, the left side's first. They may be replaced by fresh ones, which `lasting` holds then.

    Attributes:
        fresh: How often they have been brought up anew.
        first: Arm → what was seen of it at its first look after it came up.

    """

    up: list[_Up]
    lasting: ExitStack
    fresh: int = 0
    first: dict[str, Leftovers] = field(default_factory=dict[str, Leftovers])

    def renew(self) -> None:
        """Reload every system's proxy."""
        self.up = [replace(side, renewed=side.system.renew()) for side in self.up]

    def look(self) -> tuple[list[Leftovers], list[str]]:
        """Look at what is left in each system: (that, a sentence for each bound that is not kept)."""
        seen = [side.system.leftovers() for side in self.up]
        faults: list[str] = []
        for side, leftovers in zip(self.up, seen, strict=True):
            whose = f"{side.arm.name}: " if len(self.up) > 1 else ""
            faults += [f"{whose}{fault}" for fault in undrained(leftovers, self.first.get(side.arm.name))]
            self.first.setdefault(side.arm.name, leftovers)
        return seen, faults


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
    _done: set[Cell] = field(default_factory=set[Cell])
    """What needs no further measurement. No sample is kept: a run may go on for days."""
    _attempts: dict[Cell, int] = field(default_factory=dict[Cell, int])
    _generations: dict[int, int] = field(default_factory=dict[int, int])
    _left_out: dict[tuple[str, ...], float] = field(default_factory=dict[tuple[str, ...], float])
    """(point, variants) whose warm-up is left out, as it alone takes too many ports → what it answered per second, of a pair."""

    def measure(self) -> None:
        """Everything the plan holds and the store does not: complete samples are kept, whoever measured them."""
        self.take_stored()
        pending = [slot for slot in self.store.record.plan().slots if not self._is_done(slot)]
        for _, group in groupby(pending, key=lambda slot: slot.bring_up):
            slots = list(group)
            while slots:
                self.on_systems(slots)
                slots = [slot for slot in slots if not self._is_done(slot)]

    def take_stored(self) -> None:
        """What the store holds need not be measured again."""
        for sample in self.store.samples():
            self._note(sample)

    def on_systems(self, slots: Sequence[Slot], then: Callable[[], Slot | None] = nothing) -> None:
        """Bring one system up (of a pair both) for slots of one bring-up, and for those that `then` names once these are measured.

        When one does not come up, or is lost on the way, every slot that is not done has an invalid sample of that.
        """
        first, due = slots[0], list(slots)
        self.observer.bringing_up(first)
        try:
            with ExitStack() as lasting:
                systems, before = _Systems(self._up(first, lasting), lasting), None
                for slot in due:  # it grows meanwhile
                    if needs_reload(slot, before):
                        systems.renew()
                    before = slot
                    self._until_settled(slot, systems)
                    if slot is due[-1] and (following := then()) is not None:
                        due.append(following)
        except (StoreError, LostError):
            raise  # what cannot be recorded must not be measured; what has gone will not come up for the next arm either
        except LabError as error:
            self.observer.failed(first, error)
            for side in [side for slot in due if not self._is_done(slot) for side in slot.sides]:
                attempt, generation = self._attempts.get(cell(side), 0) + 1, self._generation(side)
                blank = blank_sample(self.target, side, self.chosen[side.point.name], generation, attempt, None)
                kept = self._keep(not_brought_up(blank, error))
                self.observer.measured(side, kept, None, settled(kept))

    def _up(self, slot: Slot, lasting: ExitStack, fresh: int = 0) -> list[_Up]:
        """The slot's systems, the left side's first: started in the order of its layout, all up at the same time, each read back.

        `fresh`: how often they have been brought up anew, this time included.
        """
        mine = {(each.layout or Layout()).side: each for each in slot.sides}
        first = slot.layout.first_up if slot.layout else SIDES[0]
        order: dict[Side, Slot] = {side: mine[side] for side in (first, *SIDES) if side in mine}
        began = time.monotonic()
        systems = self._started(list(order.items()), lasting)
        took_s = (time.monotonic() - began) / len(order)
        up = {side: self._read(each, systems[side], took_s, fresh) for side, each in order.items()}
        return [up[side] for side in SIDES if side in up]

    def _started(self, slots: Sequence[tuple[Side, Slot]], lasting: ExitStack) -> dict[Side, System]:
        """Each is waited for when those after it are up: most of a bring-up is waiting."""
        (side, slot), *others = slots
        systems: dict[Side, System] = {}

        def rest() -> None:
            if others:
                systems.update(self._started(others, lasting))

        variant, changing = self.variants[slot.arm.variant], slot.point.disturbance is not None
        systems[side] = lasting.enter_context(self.target.up(variant, changing=changing, side=side, meanwhile=rest))
        return systems

    def _up_anew(self, slot: Slot, systems: _Systems, why: Sequence[str]) -> None:
        """Replace the systems by fresh ones, whose workers a reload made where the slot's are to be. Raises LabError."""
        self.observer.bringing_up_anew(slot, why)
        systems.lasting.close()
        systems.up = self._up(slot, systems.lasting, systems.fresh + 1)
        systems.fresh += 1
        systems.first.clear()
        if slot.reload:
            systems.renew()

    def _read(self, slot: Slot, system: System, took_s: float, fresh: int) -> _Up:
        variant, generation = self.variants[slot.arm.variant], self._generation(slot)
        readings = read_back(system, [*stand_ins.list_checks(variant.manifests, self.target.name), *variant.readback])
        name, point = slot.bring_up[1:3], slot.bring_up[3]
        where = "-beside-".join(filter(None, name))
        found = [reading.as_json() for reading in readings]
        self.store.write_readback(slot.block, where, generation, found, point, fresh, system.deployed())
        self.observer.brought_up(slot, took_s, readings)
        if slot.arm.role == "reference" and self.roundtrip and self.store.roundtrip() is None:
            self.store.write(ROUNDTRIP, self.roundtrip(system))
        cpus = len(self.target.cpus().get("proxy", ())) or None
        return _Up(slot.arm, system, took_s, readings, workers.asked(variant.manifests, cpus))

    def _runs(self, slot: Slot, systems: _Systems, before: Sequence[Leftovers]) -> list[SampleRun]:
        """A run of the slot on each of its systems, the left side's first; `before`: what was seen of each."""
        load, generation = self._load(slot), self._generation(slot)
        rate_rps = self._left_out.get(load, 0.0)
        runs: list[SampleRun] = []
        for up, seen in zip(systems.up, before, strict=True):
            own = slot if up.arm == slot.arm else slot.turned
            start = Start(seen, systems.fresh, load not in self._left_out, rate_rps)
            state = up.took_s, up.readings, up.workers, up.renewed, start
            runs.append(SampleRun(self.target, up.system, own, self.chosen[own.point.name], generation, *state))
        return runs

    def _load(self, slot: Slot) -> tuple[str, ...]:
        """Return what decides whether a warm-up takes too many ports: the point and the variants, whatever their arms are called."""
        return slot.point.name, *sorted(side.arm.variant for side in slot.sides)

    def _until_settled(self, slot: Slot, systems: _Systems) -> None:
        """A disturbed system is measured once: what has to be measured again is brought up again.

        Of a pair both sides are of one attempt: where a killed lab had kept one of them, the next is both's, be it one too many.
        """
        first = max(self._attempts.get(each, 0) for each in cells(slot)) + 1
        for attempt in range(first, max(first, slot.point.attempts) + 1):
            self.observer.measuring(slot, attempt)
            last = self._keep_all(slot, *self._drained(slot, systems, attempt))
            if last or slot.point.disturbance is not None:
                return

    def _keep_all(self, slot: Slot, runs: Sequence[SampleRun], made: Sequence[Measurement]) -> bool:
        """Store what was made of a slot's sides and show it; return whether the slot needs no further attempt."""
        kept = {run.slot.arm: self._keep(each) for run, each in zip(runs, made, strict=True)}
        last = all(map(settled, kept.values()))
        if slot.against is not None:
            self.observer.paired(slot, kept[slot.arm], kept[slot.against], last)
        else:
            self.observer.measured(slot, kept[slot.arm], made[0].histograms.get("latency"), last)
        return last

    def _drained(
        self, slot: Slot, systems: _Systems, attempt: int
    ) -> tuple[Sequence[SampleRun], Sequence[Measurement]]:
        """Measure the slot once from a drained start, bringing the systems up anew as often as that takes, MOST_BRING_UPS at most.

        Where that does not help nothing is loaded, and the sample has what is left as its reason. Where no fresh system comes up it is
        stored so, and the LabError raised.
        """
        tried = 0
        while True:
            before, faults = systems.look()
            runs = self._runs(slot, systems, before)
            if not faults:
                try:
                    return runs, self._loaded(slot, runs, attempt)
                except UndrainedStartError as error:
                    faults = list(error.reasons)
                    if error.by_warm_up:
                        self._left_out[self._load(slot)] = error.rate_rps
            if tried == MOST_BRING_UPS:
                return runs, _carried_over(runs, attempt, faults)
            tried += 1
            try:
                self._up_anew(slot, systems, faults)
            except (StoreError, LostError):
                raise
            except LabError as error:
                faults.append(f"no fresh system came up: {error}")
                self._keep_all(slot, runs, _carried_over(runs, attempt, faults))
                raise

    def _loaded(self, slot: Slot, runs: Sequence[SampleRun], attempt: int) -> Sequence[Measurement]:
        """Measure the slot on its systems as they are, of a pair both sides. Raises UndrainedStartError."""
        if slot.layout is not None:
            left, right = runs
            return PairRun((left, right)).measure(attempt)
        run, point, generator = runs[0], slot.point, runs[0].chosen.generator
        regime: Regime = Steady(run.system, point, generator)
        if point.disturbance is not None:
            manifests = self.variants[slot.arm.variant].manifests
            regime = Disturbed(self.target, run.system, point, generator, manifests)
        return (run.measure(regime, attempt),)

    def _is_done(self, slot: Slot) -> bool:
        """Of a pair both sides."""
        return all(each in self._done for each in cells(slot))

    def _keep(self, made: Measurement) -> Sample:
        self.store.write_sample(made.sample, made.raw, made.histograms, made.usage, made.events, made.left)
        self._note(made.sample)
        return made.sample

    def _note(self, sample: Sample) -> None:
        if counts(sample):
            self._attempts[cell(sample)] = max(sample.attempt, self._attempts.get(cell(sample), 0))
        else:
            self._generations[sample.block] = max(sample.generation + 1, self._generations.get(sample.block, 0))
        if settled(sample):
            self._done.add(cell(sample))

    def _generation(self, slot: Slot) -> int:
        """How often its block was begun anew."""
        return self._generations.get(slot.block, 0)


def _carried_over(runs: Sequence[SampleRun], attempt: int, faults: Sequence[str]) -> list[Measurement]:
    """Return what is stored of a slot that was not loaded because of what earlier loads had left."""
    return [unmeasured(run.blank(attempt), [(Reason.CARRY_OVER, "; ".join(faults))]) for run in runs]


def stale_blocks(
    store: RunStore, facts: Mapping[str, str], clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> list[Sample]:
    """Samples of blocks that were interrupted for too long, or on a machine with other facts: to be marked before resuming.

    Also of blocks that ended later than it is now by the wall's `clock`: it was stepped, and nobody can tell for how long.
    """
    record, done = store.record, [sample for sample in store.samples() if counts(sample)]
    last = record.facts | (dict(record.resumed[-1]) if record.resumed else {})
    changed = any(last.get(key) != value for key, value in facts.items() if key not in EVERY_MOMENT)
    found: list[Sample] = []
    for block in sorted({sample.block for sample in done}):
        mine = [sample for sample in done if sample.block == block]
        planned = planned_cells(slot for slot in record.plan().slots if slot.block == block)
        if planned <= {cell(sample) for sample in mine if settled(sample)}:
            continue
        ended = max(ended_at(sample) for sample in mine)
        if changed or abs(clock() - ended) > STALE_BLOCK:
            found += mine
    return found


def ended_at(sample: Sample) -> datetime:
    """When its measuring was over, about."""
    took_s = sample.point.warmup_s + (sample.duration_s or 0.0)
    return datetime.fromisoformat(sample.started_at) + timedelta(seconds=took_s)
