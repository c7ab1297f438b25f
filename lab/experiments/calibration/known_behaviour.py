"""What the known server does on purpose, and when each of its answers is to be written. Pure, and standard library only."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from lab.analysis.calibration.behaviour import Behaviour

SECOND = 1_000_000_000
"""Nanoseconds."""
SEED = 7
"""Of which requests are slow: the same in every run."""


@dataclass(slots=True)
class Planner:
    """When each answer is to be written (ns), from when its request arrived (ns), in the order of arrival."""

    behaviour: Behaviour
    began_ns: int = 0
    _count: int = 0
    _slow_one: int = -1
    _last_ns: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(SEED))

    def planned_ns(self, arrived_ns: int) -> int:
        how = self.behaviour
        if not self._count:
            self.began_ns = arrived_ns
        delay_s = how.delay_s
        if how.slow_every:
            place = self._count % how.slow_every
            if place == 0:
                self._slow_one = self._random.randrange(how.slow_every)
            delay_s = how.slow_s if place == self._slow_one else delay_s
        self._count += 1
        planned = arrived_ns + round(delay_s * SECOND)
        if how.pause_s:
            begin = self.began_ns + round(how.pause_at_s * SECOND)
            end = begin + round(how.pause_s * SECOND)
            planned = end if begin <= planned < end else planned
        if how.at_most_rps:
            planned = max(planned, self._last_ns + round(SECOND / how.at_most_rps))
            self._last_ns = planned
        return planned
