"""Two arms measured at once: how their sides are laid out, and what a sample says of its pair."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from lab.base.validation import Record

Side = Literal["left", "right"]
Scheme = Literal["slices", "together"]
SIDES: tuple[Side, Side] = ("left", "right")
MAX_IN_FLIGHT = 0.02
"""Of a side's answers, those that may come in the other's slices: where more do, no rate is told."""


class Layout(Record):
    """One pair at one point in one block, as it is planned: over the blocks each is half and half, in an order drawn by lot."""

    side: Side = Field(default="left", description="of the slot's own arm")
    first_up: Side = Field(default="left", description="which side is brought up first")
    first_slice: Side = Field(default="left", description="which side runs first")
    longer: bool = Field(default=False, description="the longer of two lengths of slice")

    @property
    def turned(self) -> Layout:
        """As the arm on the other side has it."""
        return self.model_copy(update={"side": SIDES[1 - SIDES.index(self.side)]})


class Renewed(Record):
    """A reload of one system's proxy by its own means, as it was read back: which of its processes began by it, and which are gone."""

    began: tuple[int, ...] = Field(description="processes of the proxy that were not there before")
    ended: tuple[int, ...] = Field(description="those that were, and are gone")
    took_s: float = Field(description="until the new ones alone served")


class PairSide(Record):
    """One side of a pair, in that side's sample. Seconds; shares are fractions."""

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
"""Measurements of one pair in each of its ways."""
Way = Literal["plain", "slices", "together"]
WAYS = get_args(Way)


class Compared(Record):
    """One measurement of a variant against the baseline. `log_ratios`: metric → natural logarithm of variant / baseline."""

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
