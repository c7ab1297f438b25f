"""Two arms measured at once: how their sides are laid out, and what a sample says of its pair."""

from __future__ import annotations

from typing import Literal

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
