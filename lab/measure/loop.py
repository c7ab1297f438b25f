"""The loop that measures a run: start a system, check its settings, carry out the planned measurements, and store each sample.

Target, generators, store and observer are parameters, so that tests can pass fakes. The plan determines which measurement comes
next. The search for a knee (the highest rate within a latency bound) determines this itself, and uses
`MeasuringLoop.on_systems`.
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
from lab.measure.disturbed import DisruptedRegime
from lab.measure.measurement import (
    ChosenGenerator,
    LoadStart,
    Measurement,
    Regime,
    SampleRun,
    UndrainedStartError,
    make_blank_sample,
    make_unmeasured,
)
from lab.measure.pair import PairRun
from lab.measure.streamed import STEADY_REGIMES, StreamedRegime
from lab.model.facts import EVERY_MOMENT
from lab.model.leftovers import MAX_FRESH_BRING_UPS, Leftovers, find_undrained_faults
from lab.model.pairs import SIDES, Layout, Renewed, Side
from lab.model.plan import Arm, CellKey, Slot, needs_reload
from lab.model.run import RoundTrip
from lab.model.samples import Reason, Sample, belongs_to_block, is_settled, key_of_measurement, planned_cells
from lab.model.variants.variants import Variant
from lab.records.store import RunStore
from lab.records.tables import ROUNDTRIP
from lab.stats.histogram import Histogram
from lab.targets.base import System, Target, do_nothing
from lab.targets.readback import Reading, read_variant

STALE_BLOCK = timedelta(minutes=10)
"""The interruption after which a block begins anew."""


class Observer(Protocol):
    """The interface of objects that are notified of a run's progress, such as the display on a terminal.

    A slot is a planned measurement.
    """

    def begins(self, slot: Slot, attempt: int) -> None:
        """Take note that a planned measurement begins.

        Args:
            slot: The planned measurement.
            attempt: The number of the attempt, from 1; 0 = the system is being started.

        """
        ...

    def bringing_up_anew(self, slot: Slot, why: Sequence[str]) -> None:
        """Take note that the systems of a planned measurement are stopped and started again.

        Args:
            slot: The planned measurement.
            why: The reasons in words, such as too many sockets in TIME_WAIT.

        """
        ...

    def brought_up(self, slot: Slot, took_s: float, readings: Sequence[Reading]) -> None:
        """Take note that the system of a planned measurement has started.

        Args:
            slot: The planned measurement.
            took_s: The seconds that the start took; for a pair, half of the time that both sides took together.
            readings: The results of the read-backs (checks of the running system's settings).

        """
        ...

    def measured(self, slot: Slot, sample: Sample, latency: Histogram | None, last: bool) -> None:
        """Take note that a solo sample (a system with the machine to itself) was measured.

        Args:
            slot: The planned measurement.
            sample: The sample.
            latency: The histogram of its latencies; None if nothing was measured.
            last: Whether the measurement is not repeated.

        """
        ...

    def paired(self, slot: Slot, own: Sample, base: Sample, last: bool) -> None:
        """Take note that a pair (two systems at once) was measured.

        Args:
            slot: The planned measurement.
            own: The sample of `slot.arm`.
            base: The sample of the variant on the other side.
            last: Whether the measurement is not repeated.

        """
        ...

    def failed(self, slot: Slot, error: LabError) -> None:
        """Take note that the system of a planned measurement did not start, or was lost."""
        ...


@dataclass(frozen=True, slots=True)
class _RunningArm:
    """A running system of an arm (a variant in the run), and the results of its read-backs (checks of its settings)."""

    arm: Arm
    system: System
    took_s: float
    readings: Sequence[Reading]
    renewed: Renewed | None = None
    """The reload that made its workers; None: it came up with them."""


@dataclass(slots=True)
class _Systems:
    """The systems that are up together: one, or the two of a pair (two variants at once) with the left side first.

    Attributes:
        up: The running systems.
        lasting: The context managers of the running systems, which stop them at the end.
        fresh: How many times they were stopped and started again.
        first: The state of each system just after its start, by the name of its arm (the variant in the run).

    """

    up: list[_RunningArm]
    lasting: ExitStack
    fresh: int = 0
    first: dict[str, Leftovers] = field(default_factory=dict[str, Leftovers])

    def renew(self) -> None:
        """Reload the proxies of all these systems, so that new worker processes serve."""
        self.up = [replace(side, renewed=side.system.renew()) for side in self.up]

    def look(self) -> tuple[list[Leftovers], list[str]]:
        """Return the state that earlier loads have left in each system, and why the systems are not fit for the next load.

        The second part has a sentence for each limit that is exceeded; it is empty if the systems are fit.
        """
        states = [side.system.leftovers() for side in self.up]
        faults: list[str] = []
        for side, leftovers in zip(self.up, states, strict=True):
            label = f"{side.arm.name}: " if len(self.up) > 1 else ""
            faults += [f"{label}{fault}" for fault in find_undrained_faults(leftovers, self.first.get(side.arm.name))]
            self.first.setdefault(side.arm.name, leftovers)
        return states, faults


@dataclass(frozen=True, slots=True)
class MeasuringLoop:
    """The loop that measures a run; `measure` carries out all planned measurements that are not stored yet."""

    target: Target
    variants: Mapping[str, Variant]
    chosen: Mapping[str, ChosenGenerator]
    """The generator of each load point."""
    store: RunStore
    observer: Observer
    roundtrip: Callable[[System], RoundTrip] | None = None
    """The measuring of the bare network with the direct reference, once per run; None: it is not measured."""
    _done: set[CellKey] = field(default_factory=set[CellKey], init=False)
    """The cells that need no further measurement.

    Samples are not kept in memory, since a run may go on for days.
    """
    _attempts: Counter[CellKey] = field(default_factory=Counter[CellKey], init=False)
    _generations: Counter[int] = field(default_factory=Counter[int], init=False)
    """Block → how often it was begun anew."""
    _left_out: dict[tuple[str, ...], float] = field(default_factory=dict[tuple[str, ...], float], init=False)
    """(point, variants) whose warm-up is left out → requests per second that it answered, of a pair.

    The warm-up of these alone takes too many ports.
    """

    def __post_init__(self) -> None:
        for sample in self.store.samples():
            self._record(sample)

    def measure(self) -> None:
        """Measure everything in the plan that is not stored yet, and store each sample at once."""
        pending = [slot for slot in self.store.record.plan().slots if not self._done.issuperset(slot.cells)]
        for _, group in groupby(pending, key=lambda slot: slot.bring_up):
            slots = list(group)
            while slots:
                self.on_systems(slots)
                slots = [slot for slot in slots if not self._done.issuperset(slot.cells)]

    def on_systems(self, slots: Sequence[Slot], next_slot: Callable[[], Slot | None] = do_nothing) -> None:
        """Start the system of some planned measurements (both systems of a pair), and carry the measurements out.

        If a system does not start or is lost, an invalid sample with this reason is stored for every measurement that
        is not done. A system with a disruption, streams of events or WebSockets is used once only; a repetition needs a
        new start. Both samples of a pair belong to one attempt, also if only one of them was stored before an
        interruption.

        Args:
            slots: The planned measurements on one start of the system.
            next_slot: A function that returns one more measurement when all others are done; None = there is none.

        Raises:
            StoreError: A sample cannot be stored.
            LostError: The target (where systems run) was lost.

        """
        slot, queue = slots[0], list(slots)
        self.observer.begins(slot, 0)
        try:
            with ExitStack() as lasting:
                systems, before = _Systems(self._bring_up(slot, lasting), lasting), None
                for slot in queue:  # it grows during the iteration
                    if needs_reload(slot, before):
                        systems.renew()
                    before = slot
                    first = max(self._attempts[key] for key in slot.cells) + 1
                    for attempt in range(first, max(first, slot.point.attempts) + 1):
                        self.observer.begins(slot, attempt)
                        if self._measure_slot(slot, systems, attempt) or slot.point.has_outcome:
                            break
                    if slot is queue[-1] and (following := next_slot()) is not None:
                        queue.append(following)
        except (StoreError, LostError):
            raise  # what cannot be stored must not be measured; a target that is lost will not bring up the next arm either
        except LabError as error:
            self.observer.failed(slots[0], error)
            verdict = {"verdict": "invalid", "reason": Reason.BRING_UP_FAILED, "detail": str(error)}
            for side in [side for slot in queue if not self._done.issuperset(slot.cells) for side in slot.sides]:
                chosen, attempt = self.chosen[side.point.name], self._attempts[key_of_measurement(side)] + 1
                blank = make_blank_sample(self.target, side, chosen, self._generations[side.block], attempt, None)
                stored = self._store_measurement(Measurement(blank.model_copy(update=verdict)))
                self.observer.measured(side, stored, None, is_settled(stored))

    def _bring_up(self, slot: Slot, lasting: ExitStack, fresh: int = 0) -> list[_RunningArm]:
        """Start the systems of a planned measurement, and read their settings back.

        The two systems of a pair start in the order of the planned layout and overlap in time: the second one is
        started while the first one is not ready yet.

        Args:
            slot: The first planned measurement on this start.
            lasting: Holds the systems, and stops them later.
            fresh: How many times they were stopped and started again, this time included.

        Returns:
            The running systems, with the left side of a pair first.

        """
        sides = {(side.layout or Layout()).side: side for side in slot.sides}
        first: Side = slot.layout.first_up if slot.layout else SIDES[0]
        order: list[Side] = [side for side in dict.fromkeys((first, *SIDES)) if side in sides]
        waiting, systems = list(order), dict[Side, System]()

        def start() -> None:
            if waiting:
                side = waiting.pop(0)
                variant, changing = self.variants[sides[side].arm.variant], slot.point.disturbance is not None
                up = self.target.up(variant, changing=changing, side=side, meanwhile=start)
                systems[side] = lasting.enter_context(up)

        began = time.monotonic()
        start()
        took_s, running = (time.monotonic() - began) / len(order), dict[Side, _RunningArm]()
        generation = self._generations[slot.block]
        for side in order:
            side_slot, system = sides[side], systems[side]
            readings = read_variant(system, self.variants[side_slot.arm.variant], self.target.name)
            _, *names, point = side_slot.bring_up
            label = "-beside-".join(filter(None, names))
            records = [reading.as_json() for reading in readings]
            self.store.write_readback(slot.block, label, generation, records, point, fresh, system.deployed())
            self.observer.brought_up(side_slot, took_s, readings)
            if side_slot.arm.role == "reference" and self.roundtrip and self.store.roundtrip() is None:
                self.store.write(ROUNDTRIP, self.roundtrip(system))
            running[side] = _RunningArm(side_slot.arm, system, took_s, readings)
        return [running[side] for side in SIDES if side in running]

    def _measure_slot(self, slot: Slot, systems: _Systems, attempt: int) -> bool:
        """Try once to carry out a planned measurement, and store the samples.

        The load begins only if earlier loads have left little in the systems. Otherwise the systems are stopped and
        started again, up to `MAX_FRESH_BRING_UPS` times. If that does not help, nothing is loaded, and the stored
        samples are invalid with the reason.

        Args:
            slot: The planned measurement.
            systems: The running systems.
            attempt: The number of the attempt, from 1.

        Returns:
            Whether the measurement needs no further attempt.

        Raises:
            LabError: The systems could not be started again; invalid samples are stored before.

        """
        # The point and the variants decide whether a warm-up takes too many ports, whatever their arms are called.
        load = slot.point.name, *sorted(side.arm.variant for side in slot.sides)
        tried = 0
        while True:
            before, faults = systems.look()
            warms_up, rate_rps = load not in self._left_out, self._left_out.get(load, 0.0)
            runs: list[SampleRun] = []
            for up, leftovers in zip(systems.up, before, strict=True):
                side = slot if up.arm == slot.arm else slot.turned
                start = LoadStart(leftovers, systems.fresh, warms_up, rate_rps)
                state = up.took_s, up.readings, self.variants[side.arm.variant].manifests, up.renewed, start
                chosen, generation = self.chosen[side.point.name], self._generations[slot.block]
                runs.append(SampleRun(self.target, up.system, side, chosen, generation, *state))
            if not faults:
                try:
                    if slot.layout is not None:
                        return self._store_all(slot, runs, PairRun(runs).measure(attempt))
                    (run,) = runs
                    regime: Regime = STEADY_REGIMES[slot.point.grpc](run.system, slot.point)
                    if slot.point.every_s is not None:
                        regime = StreamedRegime(run.system, slot.point)
                    if slot.point.disturbance is not None:
                        regime = DisruptedRegime(self.target, run.system, slot.point, run.manifests)
                    return self._store_all(slot, runs, [run.measure(regime, attempt)])
                except UndrainedStartError as error:
                    faults = list(error.reasons)
                    if error.by_warm_up:
                        self._left_out[load] = error.rate_rps
            if tried == MAX_FRESH_BRING_UPS:
                return self._store_carried_over(slot, runs, attempt, faults)
            tried += 1
            try:
                self._bring_up_anew(slot, systems, faults)
            except (StoreError, LostError):
                raise
            except LabError as error:
                self._store_carried_over(slot, runs, attempt, [*faults, f"no fresh system came up: {error}"])
                raise

    def _store_carried_over(self, slot: Slot, runs: Sequence[SampleRun], attempt: int, faults: Sequence[str]) -> bool:
        """Store invalid samples of a planned measurement whose load was not made, because of what earlier loads left.

        Args:
            slot: The planned measurement.
            runs: The sides that would have been measured.
            attempt: The number of the attempt, from 1.
            faults: What earlier loads left in the systems, in words.

        Returns:
            Whether the measurement needs no further attempt.

        """
        carried = [(Reason.CARRY_OVER, "; ".join(faults))]
        return self._store_all(slot, runs, [make_unmeasured(run.blank(attempt), carried) for run in runs])

    def _bring_up_anew(self, slot: Slot, systems: _Systems, reasons: Sequence[str]) -> None:
        """Stop the systems and start them again; reload their proxies if the measurement needs workers after a reload.

        Args:
            slot: The planned measurement.
            systems: The running systems, which are replaced.
            reasons: Why this is necessary, in words.

        Raises:
            LabError: A system did not start.

        """
        self.observer.bringing_up_anew(slot, reasons)
        systems.lasting.close()
        systems.up = self._bring_up(slot, systems.lasting, systems.fresh + 1)
        systems.fresh += 1
        systems.first.clear()
        if slot.reload:
            systems.renew()

    def _store_all(self, slot: Slot, runs: Sequence[SampleRun], measurements: Sequence[Measurement]) -> bool:
        """Store the samples of a planned measurement, and notify the observer.

        Args:
            slot: The planned measurement.
            runs: The sides that were measured: one, or two for a pair (two variants at once).
            measurements: The result of each side.

        Returns:
            Whether the measurement needs no further attempt.

        """
        samples = {
            run.slot.arm: self._store_measurement(measurement)
            for run, measurement in zip(runs, measurements, strict=True)
        }
        last = all(map(is_settled, samples.values()))
        if slot.against is not None:
            self.observer.paired(slot, samples[slot.arm], samples[slot.against], last)
        else:
            self.observer.measured(slot, samples[slot.arm], measurements[0].histograms.get("latency"), last)
        return last

    def _store_measurement(self, measurement: Measurement) -> Sample:
        """Store the result of one side of a measurement, and return its sample."""
        self.store.write_sample(
            measurement.sample,
            measurement.raw,
            measurement.histograms,
            measurement.usage,
            measurement.events,
            measurement.left,
        )
        self._record(measurement.sample)
        return measurement.sample

    def _record(self, sample: Sample) -> None:
        """Update the counts of attempts after a sample, and remember if its measurement needs no repetition.

        If the sample is of a block (repetition) that was interrupted and begun anew, only the count of the block's new
        beginnings is updated.
        """
        if belongs_to_block(sample):
            self._attempts[key_of_measurement(sample)] = max(sample.attempt, self._attempts[key_of_measurement(sample)])
        else:
            self._generations[sample.block] = max(sample.generation + 1, self._generations[sample.block])
        if is_settled(sample):
            self._done.add(key_of_measurement(sample))


def find_stale_samples(
    store: RunStore, facts: Mapping[str, str], clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> list[Sample]:
    """Return the samples that must become invalid before an interrupted run is resumed, since their blocks begin anew.

    A block (a repetition of all measurements) that is not complete begins anew in these cases:

    - It was interrupted for longer than `STALE_BLOCK`.
    - The machine's facts have changed.
    - The clock shows a time before the block's end, so it was changed.

    Args:
        store: The run.
        facts: The facts of the machine now: name → value.
        clock: A function that returns the current time.

    """
    record, done = store.record, [sample for sample in store.samples() if belongs_to_block(sample)]
    last = record.facts | (dict(record.resumed[-1]) if record.resumed else {})
    changed = any(last.get(key) != value for key, value in facts.items() if key not in EVERY_MOMENT)
    stale: list[Sample] = []
    for block in sorted({sample.block for sample in done}):
        samples = [sample for sample in done if sample.block == block]
        planned = planned_cells(slot for slot in record.plan().slots if slot.block == block)
        missing = planned - {key_of_measurement(sample) for sample in samples if is_settled(sample)}
        ended = max(estimate_end(sample) for sample in samples)
        if missing and (changed or abs(clock() - ended) > STALE_BLOCK):
            stale += samples
    return stale


def estimate_end(sample: Sample) -> datetime:
    """Return approximately when the measuring of a sample ended: its start plus warm-up and load."""
    took_s = sample.point.warmup_s + (sample.duration_s or 0.0)
    return datetime.fromisoformat(sample.started_at) + timedelta(seconds=took_s)
