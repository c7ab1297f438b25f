"""What a calibration says of one generator, as data: `Row`, and what it is made of. Refuses unknown keys."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.analysis.calibration.records import Known
from lab.base.validation import Strict

Sight = Literal["visible", "exaggerated", "hidden"]


class Spread(Strict):
    """The median of the repeats, and their range."""

    median: float
    low: float
    high: float
    count: int


class Bias(Strict):
    """Reported minus true, in seconds and as a share of the truth. Null = fewer than ten requests beyond it."""

    true_s: Spread | None
    reported_s: Spread | None
    bias_s: Spread | None
    bias_share: Spread | None


class Pause(Strict):
    reported_share: Spread
    true_share: Spread
    dropped: Spread
    sight: Sight = Field(description="what its latencies show of the pause; hidden = coordinated omission")


class Close(Strict):
    reported: Spread | None = Field(description="requests completed; null = it reported nothing")
    true: Spread = Field(description="answers of the server")
    errors: Spread | None
    closed: Spread = Field(description="connections that the server closed")


class RateCeiling(Strict):
    offered_rps: float | None
    achieved_rps: Spread
    true_rps: Spread
    reasons: tuple[str, ...] = Field(description="what the lab calls such a sample invalid for")
    recognised: bool | None = Field(description="whether that says that the rate was not made; null = closed loop")


class Ceiling(Strict):
    achieved_rps: Spread = Field(description="with the server on the same CPU, where they share one")
    alone_rps: Spread | None = Field(description="what one CPU of its own would give it: 1 / CPU per request")
    cpu_per_request_s: Spread | None
    server_cpu_per_request_s: Spread | None


class Row(Strict):
    """One generator."""

    known: Known
    bias: dict[str, dict[str, Bias]] = Field(description="scenario → p50, p99, p99.9")
    pause: Pause | None
    close: Close | None
    rate_ceiling: RateCeiling | None
    ceiling: Ceiling | None
    cpu_per_request_s: Spread | None = Field(description="at the moderate rate")
    measurements: int
    noisy: dict[str, int] = Field(description="scenario → disturbed measurements")
    failures: dict[str, str] = Field(description="scenario → why nothing was reported")
    advice: str
