"""The search itself: which rate is due, as the trials before say, and the loop that measures it.

A system is brought up for the ramp and the bisection together, for each confirmation anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from lab.analysis.knee.report import step_of, trials_of
from lab.experiments.bench.loads import generator_record
from lab.experiments.knee import point_name
from lab.measure.loop import Loop, Observer, nothing
from lab.measure.measurement import ChosenGenerator
from lab.model.plan import Arm, Slot
from lab.model.variants.variants import Variant
from lab.records.store import RunStore
from lab.stats.knee_search import Try
from lab.targets.base import Target


@dataclass(slots=True)
class AdaptiveSearch:
    """A search's parts. `run()` goes on until every arm's search has ended."""

    target: Target
    variants: Mapping[str, Variant]
    chosen: ChosenGenerator
    store: RunStore
    observer: Observer
    _loop: Loop = field(init=False)
    _chosen: dict[str, ChosenGenerator] = field(default_factory=dict[str, ChosenGenerator])
    """By point."""

    def run(self) -> None:
        """Trials that are stored are replayed, not measured."""
        self._chosen |= {point.name: self.chosen for point in self.store.record.points}
        self._loop = Loop(self.target, self.variants, self._chosen, self.store, self.observer)
        self._loop.take_stored()
        for arm in self.store.record.arms:
            while (due := self._due(arm)) is not None:
                slot, fresh = due
                self._loop.on_systems([slot], nothing if fresh else partial(self._following, arm))

    def _following(self, arm: Arm) -> Slot | None:
        """What is due next, unless it wants a system of its own."""
        due = self._due(arm)
        return None if due is None or due[1] else due[0]

    def _due(self, arm: Arm) -> tuple[Slot, bool] | None:
        """The trial to measure next, in the plan from now on, and whether it wants a system of its own. None: the search has ended.

        Trials that were planned and not measured to their end come first: what is known has to be known in their order.
        """
        record = self.store.record
        found = trials_of(record, arm.name, self.store.samples(), self.store.histogram)
        slots = [slot for slot in record.plan().slots if slot.arm.name == arm.name]
        step = step_of(record, found)
        fresh = isinstance(step, Try) and step.fresh
        if len(slots) > len(found):
            return slots[len(found)], fresh
        if not isinstance(step, Try):
            return None
        first = record.points[0]
        point = first.model_copy(update={"name": point_name(step.rate_rps), "rate_rps": float(step.rate_rps)})
        block = len(record.slots) + 1
        self.store.extend(point, (block, arm.name, point.name), generator_record(self.chosen))
        self._chosen[point.name] = self.chosen
        return Slot(block, block, arm, point), fresh
