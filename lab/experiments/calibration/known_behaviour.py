"""What the known server does on purpose, and when each of its answers is to be written. Pure, and standard library only."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SECOND = 1_000_000_000
"""Nanoseconds."""
SEED = 7
"""Of which requests are slow: the same in every run."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What it does on purpose; seconds.

    An answer is written `delay_s` after its request's bytes were there; one of every `slow_every`, at a random place among
    them, after `slow_s`. Answers that fall into the `pause_s` that begin `pause_at_s` after the first request wait for its
    end. A connection is closed, without a word of warning, after `close_after` answers. `at_most_rps`: answers are at
    least that far apart, first come, first served. 0 = not at all.
    """

    delay_s: float = 0.0
    slow_s: float = 0.0
    slow_every: int = 0
    pause_s: float = 0.0
    pause_at_s: float = 0.0
    close_after: int = 0
    at_most_rps: float = 0.0

    def arguments(self) -> list[str]:
        """As `main` reads them."""
        pairs = ((name.removesuffix("_s").removesuffix("_rps"), getattr(self, name)) for name in self.__slots__)
        return [f"--{name.replace('_', '-')}={value:g}" for name, value in pairs]


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
