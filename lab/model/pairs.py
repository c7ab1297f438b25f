"""Two arms measured at once: how their sides were laid out, and what a sample says of its pair."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.base.validation import Record

Side = Literal["left", "right"]
Scheme = Literal["slices", "together"]


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
