"""What k6 prints at the end of a part that it made."""

from __future__ import annotations

import json

from lab.generators.k6 import KINDS, PERCENTS


def summary(
    made: int, latency_ms: float, dropped: int = 0, duration_ms: float = 5000.0, wrong: int = 0, **failed: int
) -> str:
    """The line of one runner all of whose answers took as long; `wrong`: answers of another status; `failed`: none, by kind of error."""
    latency = {f"p({percent})": latency_ms for percent in PERCENTS}
    latency |= {"count": made - sum(failed.values()), "min": latency_ms, "max": latency_ms}
    errors = dict.fromkeys(KINDS, 0) | failed | {"status": wrong}
    told = {"lab": 1, "duration_ms": duration_ms, "made": made, "dropped": dropped, "received_bytes": 100 * made}
    return json.dumps({**told, "errors": errors, "latency": latency}, separators=(",", ":"))
