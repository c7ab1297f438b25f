"""The loop: bring an arm up, read its knobs back, measure what is due on it, store each sample as it is made.

Everything it touches is handed in (target, generators, store, observer), so tests hand it fakes. Refuses to know what comes
next where no plan says it: that is the search's for a knee, which goes through `on_systems` as well.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Protocol

from lab.base.errors import LabError, LostError
from lab.base.files import StoreError
from lab.measure.disturbed import Disturbed
from lab.measure.measurement import (
    ChosenGenerator,
    Measurement,
    Regime,
    SampleRun,
    Start,
    UndrainedStartError,
    blank_sample,
    unmeasured,
)
from lab.measure.pair import PairRun
from lab.measure.steady import Steady
from lab.model.facts import EVERY_MOMENT
from lab.model.leftovers import MOST_BRING_UPS, Leftovers, undrained
from lab.model.pairs import SIDES, Layout, Renewed, Side
from lab.model.plan import Arm, Cell, Slot, needs_reload
from lab.model.run import RoundTrip
from lab.model.samples import Reason, Sample, cell, counts, planned_cells, settled
from lab.model.variants.variants import Variant
from lab.records.store import RunStore
from lab.records.tables import ROUNDTRIP
from lab.stats.histogram import Histogram
from lab.targets.base import System, Target, nothing
from lab.targets.readback import Reading, read_variant

STALE_BLOCK = timedelta(minutes=10)


class Observer(Protocol):
    """Who watches a run: the terminal, or a test."""

    def begins(self, slot: Slot, attempt: int) -> None:
        """Its system comes up (`attempt` 0), or it is measured for that time."""
        ...

    def bringing_up_anew(self, slot: Slot, why: Sequence[str]) -> None: ...
    def brought_up(self, slot: Slot, took_s: float, readings: Sequence[Reading]) -> None: ...
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
    """One run's parts. `measure()` works through what the plan holds and the store does not: what that holds need not be measured again."""

    target: Target
    variants: Mapping[str, Variant]
    chosen: Mapping[str, ChosenGenerator]
    """By point."""
    store: RunStore
    observer: Observer
    roundtrip: Callable[[System], RoundTrip] | None = None
    """Measures the bare network beside the direct reference, once per run; None = nobody does."""
    _done: set[Cell] = field(default_factory=set[Cell], init=False)
    """What needs no further measurement. No sample is kept: a run may go on for days."""
    _attempts: Counter[Cell] = field(default_factory=Counter[Cell], init=False)
    _generations: Counter[int] = field(default_factory=Counter[int], init=False)
    """Block → how often it was begun anew."""
    _left_out: dict[tuple[str, ...], float] = field(default_factory=dict[tuple[str, ...], float], init=False)
    """(point, variants) whose warm-up is left out, as it alone takes too many ports → what it answered per second, of a pair."""

    def __post_init__(self) -> None:
        for sample in self.store.samples():
            self._note(sample)

    def measure(self) -> None:
        """Everything the plan holds and the store does not: complete samples are kept, whoever measured them."""
        pending = [slot for slot in self.store.record.plan().slots if not self._done.issuperset(slot.cells)]
        for _, group in groupby(pending, key=lambda slot: slot.bring_up):
            slots = list(group)
            while slots:
                self.on_systems(slots)
                slots = [slot for slot in slots if not self._done.issuperset(slot.cells)]

    def on_systems(self, slots: Sequence[Slot], then: Callable[[], Slot | None] = nothing) -> None:
        """Bring one system up (of a pair both) for slots of one bring-up, and for those that `then` names once these are measured.

        When one does not come up, or is lost on the way, every slot that is not done has an invalid sample of that. A disturbed system
        is measured once: what has to be measured again is brought up again. Of a pair both sides are of one attempt: where a killed lab had
        kept one of them, the next is both's, be it one too many.
        """
        slot, due = slots[0], list(slots)
        self.observer.begins(slot, 0)
        try:
            with ExitStack() as lasting:
                systems, before = _Systems(self._up(slot, lasting), lasting), None
                for slot in due:  # it grows meanwhile
                    if needs_reload(slot, before):
                        systems.renew()
                    before = slot
                    first = max(self._attempts[each] for each in slot.cells) + 1
                    for attempt in range(first, max(first, slot.point.attempts) + 1):
                        self.observer.begins(slot, attempt)
                        if self._measured(slot, systems, attempt) or slot.point.disturbance is not None:
                            break
                    if slot is due[-1] and (following := then()) is not None:
                        due.append(following)
        except (StoreError, LostError):
            raise  # what cannot be recorded must not be measured; what has gone will not come up for the next arm either
        except LabError as error:
            self.observer.failed(slots[0], error)
            verdict = {"verdict": "invalid", "reason": Reason.BRING_UP_FAILED, "detail": str(error)}
            for side in [each for slot in due if not self._done.issuperset(slot.cells) for each in slot.sides]:
                chosen, attempt = self.chosen[side.point.name], self._attempts[cell(side)] + 1
                blank = blank_sample(self.target, side, chosen, self._generations[side.block], attempt, None)
                kept = self._keep(Measurement(blank.model_copy(update=verdict)))
                self.observer.measured(side, kept, None, settled(kept))

    def _up(self, slot: Slot, lasting: ExitStack, fresh: int = 0) -> list[_Up]:
        """The slot's systems, the left side's first: started in the order of its layout, all up at the same time, each read back.

        Each is waited for when those after it are up: most of a bring-up is waiting. `fresh`: how often they have been brought up anew, this
        time included.
        """
        mine = {(each.layout or Layout()).side: each for each in slot.sides}
        first: Side = slot.layout.first_up if slot.layout else SIDES[0]
        order: list[Side] = [side for side in dict.fromkeys((first, *SIDES)) if side in mine]
        waiting, systems = list(order), dict[Side, System]()

        def start() -> None:
            if waiting:
                side = waiting.pop(0)
                variant, changing = self.variants[mine[side].arm.variant], slot.point.disturbance is not None
                up = self.target.up(variant, changing=changing, side=side, meanwhile=start)
                systems[side] = lasting.enter_context(up)

        began = time.monotonic()
        start()
        took_s, found = (time.monotonic() - began) / len(order), dict[Side, _Up]()
        generation = self._generations[slot.block]
        for side in order:
            own, system = mine[side], systems[side]
            readings = read_variant(system, self.variants[own.arm.variant], self.target.name)
            _, *names, point = own.bring_up
            where = "-beside-".join(filter(None, names))
            told = [reading.as_json() for reading in readings]
            self.store.write_readback(slot.block, where, generation, told, point, fresh, system.deployed())
            self.observer.brought_up(own, took_s, readings)
            if own.arm.role == "reference" and self.roundtrip and self.store.roundtrip() is None:
                self.store.write(ROUNDTRIP, self.roundtrip(system))
            found[side] = _Up(own.arm, system, took_s, readings)
        return [found[side] for side in SIDES if side in found]

    def _measured(self, slot: Slot, systems: _Systems, attempt: int) -> bool:
        """Measure the slot once from a drained start and store what was made; return whether it needs no further attempt.

        The systems are brought up anew as often as that takes, MOST_BRING_UPS at most. Where that does not help nothing is loaded, and the
        sample has what is left as its reason. Where no fresh system comes up it is stored so, and the LabError raised.
        """
        # What decides whether a warm-up takes too many ports: the point and the variants, whatever their arms are called.
        load = slot.point.name, *sorted(side.arm.variant for side in slot.sides)
        tried = 0
        while True:
            before, faults = systems.look()
            warms_up, rate_rps = load not in self._left_out, self._left_out.get(load, 0.0)
            runs: list[SampleRun] = []
            for up, seen in zip(systems.up, before, strict=True):
                own = slot if up.arm == slot.arm else slot.turned
                start = Start(seen, systems.fresh, warms_up, rate_rps)
                state = up.took_s, up.readings, self.variants[own.arm.variant].manifests, up.renewed, start
                chosen, generation = self.chosen[own.point.name], self._generations[slot.block]
                runs.append(SampleRun(self.target, up.system, own, chosen, generation, *state))
            if not faults:
                try:
                    if slot.layout is not None:
                        left, right = runs
                        return self._keep_all(slot, runs, PairRun((left, right)).measure(attempt))
                    (run,), generator = runs, runs[0].chosen.generator
                    regime: Regime = Steady(run.system, slot.point, generator)
                    if slot.point.disturbance is not None:
                        regime = Disturbed(self.target, run.system, slot.point, generator, run.manifests)
                    return self._keep_all(slot, runs, [run.measure(regime, attempt)])
                except UndrainedStartError as error:
                    faults = list(error.reasons)
                    if error.by_warm_up:
                        self._left_out[load] = error.rate_rps
            lost: LabError | None = None
            if tried < MOST_BRING_UPS:
                tried += 1
                try:
                    self._up_anew(slot, systems, faults)
                    continue
                except (StoreError, LostError):
                    raise
                except LabError as error:
                    lost = error
                    faults.append(f"no fresh system came up: {error}")
            carried = [(Reason.CARRY_OVER, "; ".join(faults))]
            last = self._keep_all(slot, runs, [unmeasured(run.blank(attempt), carried) for run in runs])
            if lost is not None:
                raise lost
            return last

    def _up_anew(self, slot: Slot, systems: _Systems, why: Sequence[str]) -> None:
        """Replace the systems by fresh ones, whose workers a reload made where the slot's are to be. Raises LabError."""
        self.observer.bringing_up_anew(slot, why)
        systems.lasting.close()
        systems.up = self._up(slot, systems.lasting, systems.fresh + 1)
        systems.fresh += 1
        systems.first.clear()
        if slot.reload:
            systems.renew()

    def _keep_all(self, slot: Slot, runs: Sequence[SampleRun], made: Sequence[Measurement]) -> bool:
        """Store what was made of a slot's sides and show it; return whether the slot needs no further attempt."""
        kept = {run.slot.arm: self._keep(each) for run, each in zip(runs, made, strict=True)}
        last = all(map(settled, kept.values()))
        if slot.against is not None:
            self.observer.paired(slot, kept[slot.arm], kept[slot.against], last)
        else:
            self.observer.measured(slot, kept[slot.arm], made[0].histograms.get("latency"), last)
        return last

    def _keep(self, made: Measurement) -> Sample:
        self.store.write_sample(made.sample, made.raw, made.histograms, made.usage, made.events, made.left)
        self._note(made.sample)
        return made.sample

    def _note(self, sample: Sample) -> None:
        if counts(sample):
            self._attempts[cell(sample)] = max(sample.attempt, self._attempts[cell(sample)])
        else:
            self._generations[sample.block] = max(sample.generation + 1, self._generations[sample.block])
        if settled(sample):
            self._done.add(cell(sample))


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
