"""One load made by several processes at once, each a part of it: their results as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce

from lab.model.load import ErrorKind, Result
from lab.stats.histogram import Histogram


def merged(results: Sequence[Result]) -> Result:
    """Counts and bytes are added, histograms too (percentiles come from the sum, never from an average); of durations the longest.

    The parts ran side by side, so a rate is the sum of the requests over that. ValueError when there is none.
    """
    if not results:
        raise ValueError("no result to merge")
    errors: Counter[ErrorKind] = Counter()
    for result in results:
        errors.update(result.errors)
    first, sizes = results[0], [result.size_bytes for result in results]
    services = [result.service for result in results]
    scheduled = [result.scheduled_s for result in results]
    return Result(
        requests=sum(result.requests for result in results),
        duration_s=max(result.duration_s for result in results),
        latency=reduce(Histogram.merge, (result.latency for result in results)),
        recorded_s=max(result.recorded_s for result in results),
        errors=dict(errors),
        dropped=sum(result.dropped for result in results),
        size_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        size_includes_headers=first.size_includes_headers,
        size_includes_tls=first.size_includes_tls,
        service=None if None in services else reduce(Histogram.merge, (each for each in services if each is not None)),
        notes=tuple(dict.fromkeys(note for result in results for note in result.notes)),
        scheduled_s=None if None in scheduled else max(each for each in scheduled if each is not None),
        uncalibrated=any(result.uncalibrated for result in results),
    )
