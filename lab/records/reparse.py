"""A run's numbers recomputed from the generators' verbatim output, instead of the numbers stored beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lab.model.load import Result
from lab.model.samples import Sample
from lab.records.outcomes import outcome
from lab.records.store import RunStore, Series
from lab.stats.histogram import Histogram

UNTIMED: Mapping[str, Any] = dict.fromkeys(("achieved_rps", "duration_s", "recorded_s", "histogram"))
"""What a generator cannot know that was stopped in between."""


class Reparsed(RunStore):
    """A run of which what the generators reported comes from `raw.zst` through today's parsers.

    Verdicts stay: they rest on what was seen while measuring, which the output cannot tell.
    """

    def samples(self, wanted: Callable[[Sample], bool] = lambda _: True) -> list[Sample]:
        return [self._again(sample) for sample in super().samples(wanted)]

    def histogram(self, sample: Sample, series: Series = "latency") -> Histogram | None:
        return self._read_again.get(sample.id, {}).get(series)

    def _again(self, sample: Sample) -> Sample:
        if sample.requests is None:
            return sample  # nothing was reported then either
        if sample.outcome:
            # events and usage are as they were stored: nobody but the system could tell them again
            requests, events, usage = self.requests(sample), self.events(sample), self.usage(sample)
            error_s = sample.outcome.get("clock_error_s") or 0.0
            again = outcome(sample.point, requests, events, usage, 0.0, error_s)
            sample = sample.model_copy(update={"outcome": again})
        result = self.result(sample)
        self._read_again[sample.id] = {} if sample.untimed else result.histograms
        return sample.model_copy(update={**reported(result), **(UNTIMED if sample.untimed else {})})


def from_raw(store: RunStore) -> Reparsed:
    return Reparsed(store.folder, store.record, store.names)


def reported(result: Result | None) -> dict[str, Any]:
    if result is None:
        return {}
    return {
        "achieved_rps": result.achieved_rps,
        "requests": result.requests,
        "duration_s": result.duration_s,
        "recorded_s": result.recorded_s,
        "errors": {str(kind): count for kind, count in result.errors.items() if count},
        "dropped": result.dropped,
        "size_bytes": result.size_bytes,
        "histogram": result.latency.kind,
    }
