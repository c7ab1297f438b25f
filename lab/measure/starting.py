"""The start of a load: what earlier ones have left is looked at before the warm-up, when the load starts and after it.

Refuses to bring anything up: that too much is left is raised to the loop, which has the system brought up anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.model.drained import ports_are_taken, ports_taken
from lab.model.leftovers import Leftovers, Moment
from lab.targets.base import System


class UndrainedStartError(Exception):
    """The warm-up, or what was there before it, has taken so many local ports that the load must not begin.

    Attributes:
        reasons: A sentence for each system whose ports are taken.
        by_warm_up: Whether a warm-up alone took them, so that it has to be left out.
        rate_rps: What both generators of a pair answered per second while they warmed up; 0 where nobody needs it.

    """

    def __init__(self, reasons: Sequence[str], by_warm_up: bool, rate_rps: float) -> None:
        super().__init__("; ".join(reasons))
        self.reasons, self.by_warm_up, self.rate_rps = tuple(reasons), by_warm_up, rate_rps


@dataclass(slots=True)
class Start:
    """What one system shows around one load.

    Attributes:
        before: What was seen before the warm-up; None: nobody looked, so no start is refused.
        fresh_bring_ups: How often the system had been brought up anew in its block.
        warms_up: Whether the load's warm-up is made.
        rate_rps: What both generators of a pair answered per second in a warm-up that is left out since; 0: not known.

    """

    before: Leftovers | None = None
    fresh_bring_ups: int = 0
    warms_up: bool = True
    rate_rps: float = 0.0
    _seen: dict[Moment, Leftovers] = field(default_factory=dict[Moment, Leftovers])

    def look(self, system: System, moment: Moment) -> None:
        """Look at the system when its load starts or has ended."""
        self._seen[moment] = system.leftovers()

    def excess(self) -> tuple[str, bool] | None:
        """Return (a sentence, whether the warm-up alone did it) where TIME_WAIT sockets take too many ports; None where not."""
        start = self._seen["start"]
        if self.before is None or not ports_are_taken(start):
            return None
        by_warm_up = self.warms_up and ports_are_taken(start, self.before)
        return f"{ports_taken(start)}{' after the warm-up' if by_warm_up else ''}", by_warm_up

    def columns(self) -> dict[str, Any]:
        """Return the sample's columns of what was seen so far."""
        before: dict[Moment, Leftovers] = {"before": self.before} if self.before is not None else {}
        return {"leftovers": before | self._seen, "fresh_bring_ups": self.fresh_bring_ups}

    def notes(self) -> list[str]:
        """Return a sentence for each place that could not be looked at before the warm-up."""
        unseen: Mapping[str, str] = self.before.unseen if self.before is not None else {}
        return [f"what earlier loads left in the {place} could not be seen: {why}" for place, why in unseen.items()]


def refuse_undrained(starts: Sequence[Start], rate_rps: float = 0.0) -> None:
    """Raise UndrainedStartError where too many ports of one of these systems are taken when their load starts."""
    excesses = [excess for start in starts if (excess := start.excess()) is not None]
    if excesses:
        by_warm_up = any(alone for _, alone in excesses)
        raise UndrainedStartError([sentence for sentence, _ in excesses], by_warm_up, rate_rps)
