"""Pairs of two variants that are measured at once: the layout of their two sides, and what a sample records of its pair."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from lab.base.validation import Record

Side = Literal["left", "right"]
Scheme = Literal["slices", "together"]
"""How both sides are loaded: interleaved slices of a closed loop, or concurrently at an offered rate."""
SIDES: tuple[Side, Side] = ("left", "right")
MAX_IN_FLIGHT = 0.02
"""The share of a side's answers that may arrive in the other side's slices; above it no rate is reported."""


class Layout(Record):
    """The planned layout of a pair (two variants measured at once) at one load point in one block (repetition).

    It fixes which side ("left" or "right") each variant has, which side starts first, and how long the time slices are.
    Over the blocks each choice has both values equally often, as far as their number allows, in randomized order.
    """

    side: Side = Field(default="left", description="of the slot's own arm")
    first_up: Side = Field(default="left", description="which side is brought up first")
    first_slice: Side = Field(default="left", description="which side runs first")
    longer: bool = Field(default=False, description="the longer of two lengths of slice")

    @property
    def turned(self) -> Layout:
        """A copy of this layout of a pair, as the pair's other variant sees it: `side` is exchanged, all else is equal."""
        return self.model_copy(update={"side": SIDES[1 - SIDES.index(self.side)]})


class Renewed(Record):
    """A reload by which a proxy replaced its worker processes: the processes that began and those that ended."""

    began: tuple[int, ...] = Field(description="processes of the proxy that were not there before")
    ended: tuple[int, ...] = Field(description="those that were, and are gone")
    took_s: float = Field(description="until the new ones alone served")


class PairSide(Record):
    """The part of a sample that describes how it was measured as one side of a pair, in seconds and fractions.

    A pair is two arms (variants in a run) that are measured at once. Each arm has a sample.
    """

    against: str = Field(description="the arm on the other side")
    side: Side = Field(description="which of the two places it had")
    scheme: Scheme = Field(description="slices: one of the two ran at any time; together: both did")
    first_up: bool = Field(description="whether it was brought up before the other")
    first_slice: bool = Field(default=False, description="whether it ran first")
    slice_s: float | None = Field(default=None, description="the length of a slice; null = together")
    own_s: float | None = Field(default=None, description="for how long it ran, of all slices")
    slices: int | None = Field(default=None, description="how many it had")
    in_flight: float | None = Field(
        default=None, description="at most this share of its answers was due in its slices and came in the other's"
    )
    unexplained: float | None = Field(
        default=None, description="of the time for which CPUs were busy, what no process of anybody's was seen to use"
    )
    reload: int = Field(
        default=0,
        description="which generation of workers of this point in its bring-up; 0 = those that were there when it began",
    )
    repeat: int = Field(default=0, description="which measurement of that generation, from 0")
    renewed: Renewed | None = Field(
        default=None, description="the reload that made this generation; null = there was none"
    )


REPEATS = 2
"""The number of measurements of one pair of variants in each scheme; solo, one after the other, there is only one."""
Way = Literal["plain", "slices", "together"]
"""How a comparison is measured: solo one after the other, or as a pair of either scheme."""
WAYS = get_args(Way)


class Compared(Record):
    """The result of measuring a variant against the baseline once, either one after the other (solo) or at once (as a pair).

    `log_ratios` has ln(variant / baseline) for each metric, by the metric's name.
    """

    round: int
    variant: str
    dose: float = Field(default=0.0, description="units of a known cost that the variant adds, of its knobs; 0 = none")
    baseline: str
    point: str
    way: Way
    repeat: int = Field(description="0 or 1: of the same pair")
    right: bool = Field(description="whether the variant was on the right side, or alone the second")
    valid: bool
    detail: str = Field(description="why it does not count")
    log_ratios: dict[str, float]
    backend: float | None = Field(
        default=None, description="the same of the backends' CPU per request: no knob reaches them"
    )
    slice_s: float | None = None
    in_flight: float | None = None
    unexplained: float | None = None
