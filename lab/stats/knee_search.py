"""The search for a knee, as pure functions: from the trials so far to the next rate to try, or to the answer.

The knee is the highest rate within the latency bound. The same trials always give the same step. A geometric ramp from
`start_rps` runs until a rate fails. Geometric bisection then narrows the gap between the highest rate that passed and
the lowest that failed. Three confirmations of the passing rate follow, on a fresh system each, and all must pass. If
one fails, that rate has failed, and the gap below it is bisected again. (Ramp, bisection and confirmations: nighthawk's
adaptive load; for the knee: Jain, The Art of Computer Systems Performance Analysis, 1991, §3.3.)

A rate that fails is tried again, and the majority of three trials decides. Before the confirmations, the failing rate
is tried once more on a fresh system; if it passes, the majority of five decides. So no single chance failure or pass
misplaces the knee: of rates that fail by chance with p = 0.1, 1.9 % lose two of three trials, and 0.5 % still fail after five.

An inconclusive trial (`unclear`: the machine was busy) is repeated at a slightly different rate; three in a row end the
search. The search also ends without an answer after `MAX_TRIALS` trials. Rates are whole requests per second, as wrk2
accepts no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONFIRMATIONS = 3
"""The number of trials on a fresh system that must confirm the answer's passing rate."""
MAX_UNCLEAR = 3
"""The number of inconclusive trials in a row that ends the search, as the machine is then too busy."""
MAX_TRIALS = 150
"""The number of trials after which the search ends without an answer."""
LEAST_RPS, MOST_RPS = 1, 10_000_000
"""The default of the lowest rate that may be tried, and the highest rate."""
RAMP_FACTORS = (1.0, 0.9, 1.1)
"""The factors of a ramp's next rate, by the number of unclear trials just before."""
BISECTION_SHARES = (0.5, 0.4, 0.6)
"""The positions of a bisection's next rate, from the low side (0) to the high side (1) on a logarithmic scale.

The number of unclear trials just before selects one of them.
"""

Verdict = Literal["pass", "fail", "unclear"]
SearchStage = Literal["ramp", "bisection", "again", "confirmation", "doubt"]


@dataclass(frozen=True, slots=True)
class KneeSearchSettings:
    """The settings of a search for the knee, the highest rate within the latency bound.

    Attributes:
        start_rps: The first rate to try, in requests per second.
        precision: The relative gap at which the search ends. The lowest rate that fails is then at most (1 + precision)
            times the highest rate that passes, or the next whole number.
        least_rps: The lowest rate that may be tried.

    """

    start_rps: int
    precision: float
    least_rps: int = LEAST_RPS


@dataclass(frozen=True, slots=True)
class KneeTrial:
    """A rate that a search for the knee (highest rate within the latency bound) has tried, and the verdict.

    The verdict is `pass`, `fail`, or `unclear` if the machine was busy.
    """

    rate_rps: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class NextTrial:
    """The rate to try next in a search for the knee (highest rate within the latency bound), and the stage that needs it.

    Attributes:
        rate_rps: The rate in requests per second.
        stage: The reason for the trial. `ramp` and `bisection` search for the knee. `again` repeats a rate that failed,
            until the majority of its trials decides. `doubt` tries the lowest failing rate once more, and
            `confirmation` the highest passing rate.

    """

    rate_rps: int
    stage: SearchStage

    @property
    def fresh(self) -> bool:
        """True if this trial of a rate needs a freshly started system, because it confirms or doubts an earlier result."""
        return self.stage in ("confirmation", "doubt")


@dataclass(frozen=True, slots=True)
class KneeFound:
    """The answer of a search for the knee (highest rate within the latency bound), in requests per second.

    Attributes:
        passes_rps: The knee: the highest rate that passes, which was confirmed.
        fails_rps: The lowest rate that failed; None if even the highest allowed rate (`MOST_RPS`) passed.

    """

    passes_rps: int
    fails_rps: int | None


@dataclass(frozen=True, slots=True)
class KneeNotFound:
    """The end of a search that found no knee (highest rate within the latency bound).

    Attributes:
        passes_rps: The highest rate that passed, confirmed or not; None if none passed.
        fails_rps: The lowest rate that failed, even if only once; None if none failed.
        why: `unclear` if three trials in a row were inconclusive, `nothing` if not even `least_rps` passes, `endless`
            if `MAX_TRIALS` trials gave no answer.

    """

    passes_rps: int | None
    fails_rps: int | None
    why: Literal["unclear", "nothing", "endless"]


SearchStep = NextTrial | KneeFound | KneeNotFound


def choose_step(search: KneeSearchSettings, trials: Sequence[KneeTrial]) -> SearchStep:
    """Return the next step of a search for the knee (highest rate within the latency bound): a rate to try, or the end.

    Every trial is used, also one that this search would not have requested, such as one of a resumed run.

    Args:
        search: The settings of the search.
        trials: The trials so far, in order.

    """
    state = _State(search)
    for trial in trials:
        state.note(trial)
    return state.step()


def simulate_search(
    search: KneeSearchSettings, verdict_at: Callable[[int], Verdict]
) -> tuple[SearchStep, list[KneeTrial]]:
    """Run a search for the knee (highest rate within the latency bound) on a simulated system.

    The result is the end of the search, and the trials of rates that led to it.

    Args:
        search: The settings of the search.
        verdict_at: A function that returns the simulated verdict for a rate.

    """
    state, trials = _State(search), list[KneeTrial]()
    while isinstance(step := state.step(), NextTrial):
        trials.append(KneeTrial(step.rate_rps, verdict_at(step.rate_rps)))
        state.note(trials[-1])
    return step, trials


@dataclass(slots=True)
class _Rate:
    passes: int = 0
    fails: int = 0
    confirmed: int = 0
    refused: bool = False
    """True if a confirmation failed."""
    doubted: bool = False
    """True if the rate was tried once more as the failing side of the answer; the majority of five trials then decides."""

    @property
    def verdict(self) -> Verdict:
        needed = 3 if self.doubted else 2
        if self.refused or self.fails >= needed:
            return "fail"
        return "pass" if self.passes >= needed or (self.passes and not self.fails) else "unclear"


@dataclass(slots=True)
class _State:
    search: KneeSearchSettings
    rates: dict[int, _Rate] = field(default_factory=dict[int, _Rate])
    count: int = 0
    unclear: int = 0
    """The number of unclear trials in a row up to now."""

    def note(self, trial: KneeTrial) -> None:
        step = self.step()
        self.count += 1
        if trial.verdict == "unclear":
            self.unclear += 1
            return
        self.unclear = 0
        rate, passed = self.rates.setdefault(trial.rate_rps, _Rate()), trial.verdict == "pass"
        stage = step.stage if isinstance(step, NextTrial) and step.rate_rps == trial.rate_rps else None
        if stage == "confirmation":
            rate.confirmed += passed
            rate.refused |= not passed
            return
        rate.doubted |= stage == "doubt"
        rate.passes += passed
        rate.fails += not passed

    def step(self) -> SearchStep:
        rates: dict[Verdict, list[int]] = {"pass": [], "fail": [], "unclear": []}
        for rate, tally in self.rates.items():
            rates[tally.verdict].append(rate)
        high = min(rates["fail"], default=None)
        low = max((rate for rate in rates["pass"] if high is None or rate < high), default=None)
        step = NextTrial(min(rates["unclear"]), "again") if rates["unclear"] else self._choose_step(low, high)
        if isinstance(step, NextTrial) and (self.count >= MAX_TRIALS or self.unclear >= MAX_UNCLEAR):
            failed = [rate for rate, tally in self.rates.items() if tally.fails > tally.passes and rate > (low or 0)]
            lowest_failed = min((*failed, high) if high is not None else failed, default=None)
            return KneeNotFound(low, lowest_failed, "endless" if self.count >= MAX_TRIALS else "unclear")
        return step

    def _choose_step(self, low: int | None, high: int | None) -> SearchStep:
        """Return the next step of the search, given the rates that are known to pass or fail.

        Args:
            low: The highest rate below `high` that passed; None if none passed.
            high: The lowest rate that failed; None if none failed.

        """
        least = self.search.least_rps
        factor = RAMP_FACTORS[min(self.unclear, MAX_UNCLEAR - 1)]
        if low is None:
            if high is None:
                return NextTrial(_clamp(self.search.start_rps * factor, least, MOST_RPS), "ramp")
            if high <= least:
                return KneeNotFound(None, high, "nothing")
            return NextTrial(_clamp(high / 2 * factor, least, high - 1), "ramp")
        if high is None and low < MOST_RPS:
            return NextTrial(_clamp(low * 2 * factor, low + 1, MOST_RPS), "ramp")
        if high is not None and high - low > 1 and high / low > 1 + self.search.precision:
            share = BISECTION_SHARES[min(self.unclear, MAX_UNCLEAR - 1)]
            return NextTrial(_clamp(low * (high / low) ** share, low + 1, high - 1), "bisection")
        if high is not None and not (self.rates[high].refused or self.rates[high].doubted):
            return NextTrial(high, "doubt")
        if self.rates[low].confirmed < CONFIRMATIONS:
            return NextTrial(low, "confirmation")
        return KneeFound(low, high)


def _clamp(rate_rps: float, least: int, limit: int) -> int:
    return max(least, min(limit, round(rate_rps)))
