"""Where is the knee? Pure: the trials so far → the next rate to try, or the answer. The same trials give the same step.

A geometric ramp from `start_rps` until a rate fails, bisection (geometric) of what lies between the highest rate that passed and
the lowest that failed, then three confirmations of the low side on a fresh system each, all of which must pass: where one
fails, that rate has failed, and what lies below is bisected again. (Ramp, bisection, confirmations: nighthawk's
adaptive load; Jain, The Art of Computer Systems Performance Analysis, 1991, §3.3 for the knee.)

A rate that fails is tried again, the majority of three decides. Before the confirmations the failing side is tried once
more on a fresh system; where it passes then, the majority of five decides. So no single hiccup, on either side, misplaces
the knee: of rates that fail by chance with p = 0.1, 1.9 % lose two of three, 0.5 % do after five.

What could not be told (`unclear`: the machine was busy) is tried again at a rate beside it; three in a row end the search. Refuses to
go on for ever: after TRIALS_MOST trials it is stuck. Rates are whole requests per second, as wrk2 takes no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONFIRMATIONS = 3
UNCLEAR_MOST = 3
"""Trials in a row that could not be told: then the machine is not fit to tell."""
TRIALS_MOST = 150
LEAST_RPS, MOST_RPS = 1, 10_000_000
BESIDE = (1.0, 0.9, 1.1)
"""Factors of a ramp's next rate, by the number of unclear trials just before."""
BETWEEN = (0.5, 0.4, 0.6)
"""The same of a bisection: how far from the low side to the high one, in logarithms."""

Verdict = Literal["pass", "fail", "unclear"]
Stage = Literal["ramp", "bisection", "again", "confirmation", "doubt"]


@dataclass(frozen=True, slots=True)
class Search:
    """Requests per second; `precision`: high / low of the answer is at most 1 + this, or they are neighbours."""

    start_rps: int
    precision: float
    least_rps: int = LEAST_RPS
    most_rps: int = MOST_RPS


@dataclass(frozen=True, slots=True)
class Trial:
    rate_rps: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Try:
    """The rate to try next. `fresh`: on a system that was brought up for this trial."""

    rate_rps: int
    stage: Stage

    @property
    def fresh(self) -> bool:
        return self.stage in ("confirmation", "doubt")


@dataclass(frozen=True, slots=True)
class Found:
    """`passes_rps` was confirmed; `fails_rps` is the lowest rate that failed (None: `most_rps` passed)."""

    passes_rps: int
    fails_rps: int | None


@dataclass(frozen=True, slots=True)
class Stuck:
    """No knee: the highest rate that passed, confirmed or not, and the lowest that failed, were it once, as far as there are any.

    unclear   three trials in a row could not be told
    nothing   not even `least_rps` passes
    endless   TRIALS_MOST trials, and no answer
    """

    passes_rps: int | None
    fails_rps: int | None
    why: Literal["unclear", "nothing", "endless"]


Step = Try | Found | Stuck


def next_step(search: Search, trials: Sequence[Trial]) -> Step:
    """What to do after these trials. Trials that this search would not have made (a resumed run's) count as what they show."""
    state = _State(search)
    for trial in trials:
        state.note(trial)
    return state.step()


def sought(search: Search, verdict_at: Callable[[int], Verdict]) -> tuple[Step, list[Trial]]:
    """The search on a simulated system: how it ends, and its trials."""
    state, trials = _State(search), list[Trial]()
    while isinstance(step := state.step(), Try):
        trials.append(Trial(step.rate_rps, verdict_at(step.rate_rps)))
        state.note(trials[-1])
    return step, trials


@dataclass(slots=True)
class _Rate:
    passes: int = 0
    fails: int = 0
    confirmed: int = 0
    refused: bool = False
    """A confirmation failed."""
    doubted: bool = False
    """Tried once more as the answer's failing side: the majority of five decides."""

    @property
    def verdict(self) -> Verdict:
        needed = 3 if self.doubted else 2
        if self.refused or self.fails >= needed:
            return "fail"
        return "pass" if self.passes >= needed or (self.passes and not self.fails) else "unclear"


@dataclass(slots=True)
class _State:
    search: Search
    rates: dict[int, _Rate] = field(default_factory=dict[int, _Rate])
    count: int = 0
    unclear: int = 0
    """In a row, up to now."""

    def note(self, trial: Trial) -> None:
        step = self.step()
        self.count += 1
        if trial.verdict == "unclear":
            self.unclear += 1
            return
        self.unclear = 0
        rate, passed = self.rates.setdefault(trial.rate_rps, _Rate()), trial.verdict == "pass"
        stage = step.stage if isinstance(step, Try) and step.rate_rps == trial.rate_rps else None
        if stage == "confirmation":
            rate.confirmed += passed
            rate.refused |= not passed
            return
        rate.doubted |= stage == "doubt"
        rate.passes += passed
        rate.fails += not passed

    def step(self) -> Step:
        of: dict[Verdict, list[int]] = {"pass": [], "fail": [], "unclear": []}
        for rate, found in self.rates.items():
            of[found.verdict].append(rate)
        high = min(of["fail"], default=None)
        low = max((rate for rate in of["pass"] if high is None or rate < high), default=None)
        due = Try(min(of["unclear"]), "again") if of["unclear"] else self._due(low, high)
        if isinstance(due, Try) and (self.count >= TRIALS_MOST or self.unclear >= UNCLEAR_MOST):
            failed = [rate for rate, found in self.rates.items() if found.fails > found.passes and rate > (low or 0)]
            seen = min((*failed, high) if high is not None else failed, default=None)
            return Stuck(low, seen, "endless" if self.count >= TRIALS_MOST else "unclear")
        return due

    def _due(self, low: int | None, high: int | None) -> Step:
        """`low`: the highest rate that passed below `high`, the lowest that failed."""
        least, most = self.search.least_rps, self.search.most_rps
        beside = BESIDE[min(self.unclear, UNCLEAR_MOST - 1)]
        if low is None and high is None:
            return Try(_within(self.search.start_rps * beside, least, most), "ramp")
        if low is None:
            assert high is not None
            ended = high <= least
            return Stuck(None, high, "nothing") if ended else Try(_within(high / 2 * beside, least, high - 1), "ramp")
        if high is None and low < most:
            return Try(_within(low * 2 * beside, low + 1, most), "ramp")
        if high is not None and high - low > 1 and high / low > 1 + self.search.precision:
            share = BETWEEN[min(self.unclear, UNCLEAR_MOST - 1)]
            return Try(_within(low * (high / low) ** share, low + 1, high - 1), "bisection")
        if high is not None and not (self.rates[high].refused or self.rates[high].doubted):
            return Try(high, "doubt")
        if self.rates[low].confirmed < CONFIRMATIONS:
            return Try(low, "confirmation")
        return Found(low, high)


def _within(rate_rps: float, least: int, most: int) -> int:
    return max(least, min(most, round(rate_rps)))
