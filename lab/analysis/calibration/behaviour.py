"""How the server with known answers behaves."""

from __future__ import annotations

from dataclasses import dataclass


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
