"""What boom (today hey) prints of a load: the two outputs that NDS published, and the same of a run's samples.

    nds_boom_summary.csv: … added,yes,8000,800,4,3.4305,3.0162,0.0009,0.1335,2332.0068,8000 …
    →  Output(connections=800, requested=8000, answered=8000, rate_rps=2332.0068, times_s={"Total": 3.4305, …}, …)

Levels are of different machines, so beside each stands what it is of its own output: times as multiples of the average, the rate as
the share of the requests at once that were under way on average (Little's law), answers as a share of the requests. Refuses to
pool blocks: each is an output of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from lab.analysis.claims.evidence import Evidence
from lab.model.samples import Sample
from lab.records import published
from lab.report.figures.buckets import Bucket
from lab.report.figures.intervals import Told
from lab.report.grid import Grid, Part, Row, columns, row
from lab.stats import paired as stats
from lab.stats.histogram import Histogram, bucket_edges_s
from lab.stats.units import digits, format_blocks, with_interval

SUMMARY, PERCENTILES, HISTOGRAM = "nds_boom_summary", "nds_boom_percentiles", "nds_boom_histogram"
BUCKETS = ("up to (ms), published", "responses", "share (%)", "up to (ms), here", "share (%) [95 %]")
STEPS = 10
"""Of the same width, from the fastest to the slowest response: boom's own rule, which the published edges follow."""
PRINTED = {"Total": "total_s", "Slowest": "slowest_s", "Fastest": "fastest_s", "Average": "average_s"}
"""boom's word → column of SUMMARY."""


@dataclass(frozen=True, slots=True)
class Output:
    """`times_s`: by boom's words, percentiles as `50 %`; None: too few responses beyond it. `buckets`: upper edge (s), responses."""

    connections: int
    requested: int
    answered: int
    rate_rps: float
    times_s: Mapping[str, float | None]
    buckets: Sequence[tuple[float, int]]

    @property
    def levels(self) -> dict[str, tuple[float | None, float | None]]:
        """Line → what is printed (times in ms), and what it is of its own output."""
        average_s = self.times_s["Average"] or 0.0
        lines = {f"{name} (ms)": (_ms(at_s), _over(at_s, average_s)) for name, at_s in self.times_s.items()}
        lines["requests/s"] = (self.rate_rps, self.rate_rps * average_s / self.connections)
        lines["answered 200"] = (float(self.answered), self.answered / self.requested)
        return lines

    @property
    def shares(self) -> list[float]:
        """Of all responses, those in each bucket."""
        total = sum(count for _, count in self.buckets) or 1
        return [count / total for _, count in self.buckets]


def outputs() -> dict[int, Output]:
    """Requests at once → the published output. UsageError when a table is damaged."""
    percentiles, histogram = published.frame(PERCENTILES), published.frame(HISTOGRAM)
    found: dict[int, Output] = {}
    for line in published.frame(SUMMARY).iter_rows(named=True):
        own = pl.col("version") == line["version"]
        times_s: dict[str, float | None] = {word: line[column] for word, column in PRINTED.items()}
        times_s |= {
            _word(share): at_s for share, at_s in percentiles.filter(own)["percentile", "response_time_s"].rows()
        }
        buckets = histogram.filter(own).sort("bucket_index")["bucket_upper_edge_s", "responses"].rows()
        told = line["total_requested"], line["responses_200"], line["requests_per_s"], times_s, buckets
        found[line["concurrency"]] = Output(line["concurrency"], *told)
    return found


def shares() -> list[float]:
    """The percentiles that boom prints, 0 … 1."""
    return sorted({share / 100 for share in published.frame(PERCENTILES)["percentile"].to_list()})


def measured(run: Evidence, variant: str, connections: int) -> dict[int, Output]:
    """Block → its output at so many requests at once. UsageError when a histogram is damaged."""
    found: dict[int, Output] = {}
    for arm in run.arms(variant)[:1]:
        for point in (each for each in run.points if each.connections == connections and not each.control):
            for block, sample in run.blocks(arm, point.name).items():
                whole = run.run.histogram(sample)
                if whole is not None and whole.total and sample.duration_s:
                    found[block] = _output(sample, whole, sample.duration_s)
    return found


def _output(sample: Sample, whole: Histogram, took_s: float) -> Output:
    filled = np.flatnonzero(whole.counts)
    low_s, high_s = bucket_edges_s(filled)
    counts = whole.counts[filled]
    fastest_s, slowest_s = float(low_s[0]), float(high_s[-1])
    times_s = {
        "Total": took_s,
        "Slowest": slowest_s,
        "Fastest": fastest_s,
        "Average": float(np.average((low_s + high_s) / 2, weights=counts)),
        **{_word(100 * share): whole.quantile_s(share) for share in shares()},
    }
    edges_s = [fastest_s + (slowest_s - fastest_s) * step / STEPS for step in range(STEPS)] + [slowest_s]
    below = [int(counts[low_s <= edge_s].sum()) for edge_s in edges_s]
    steps = [after - before for before, after in zip([0, *below], below, strict=False)]
    status = sample.errors.get("status", 0)
    made = sample.requests or 0
    return Output(
        sample.point.connections,
        made + sum(sample.errors.values()) - status,
        made - status,
        sample.achieved_rps or 0.0,
        times_s,
        list(zip(edges_s, steps, strict=True)),
    )


def page(connections: int, ours: Mapping[int, Output]) -> list[Part]:
    """Two tables of so many requests at once: what is printed, line by line, and the histogram; published beside the blocks' medians
    [95 %].
    """
    known = outputs().get(connections)
    heads = (f"{connections} requests at once", "published", "of its own", "here [95 %]", "of its own [95 %]")
    told, blocks = known.levels if known else {}, [output.levels for output in ours.values()]
    lines: list[Row] = []
    for line in dict.fromkeys([*told, *(name for levels in blocks for name in levels)]):
        published = (digits(value) for value in told.get(line, (None, None)))
        lines.append(row(line, *published, *(_middle([levels[line][side] for levels in blocks]) for side in (0, 1))))
    steps: list[Row] = []
    for step in range(STEPS + 1):
        cells = ["–"] * 3
        if known and step < len(known.buckets):
            edge_s, count = known.buckets[step]
            cells = [digits(_ms(edge_s)), f"{count:,}", digits(100 * known.shares[step])]
        cells.append(_middle([_ms(output.buckets[step][0]) for output in ours.values()], False))
        cells.append(_middle([100 * output.shares[step] for output in ours.values()]))
        steps.append(row(*cells))
    return [Grid(columns(heads, left=[0]), tuple(lines)), Grid(columns(BUCKETS), tuple(steps), blank=True)]


def buckets(known: Output | None, ours: Mapping[int, Output]) -> dict[str, list[Bucket]]:
    """For `lab.report.figures.buckets`: the published histogram and ours."""
    found: dict[str, list[Bucket]] = {}
    if known:
        told = [Told("published", "published", share) for share in known.shares]
        found["published"] = [Bucket(edge_s, share) for (edge_s, _), share in zip(known.buckets, told, strict=True)]
    for step in range(STEPS + 1) if ours else ():
        edges = stats.middle([output.buckets[step][0] for output in ours.values()])
        middle = stats.middle(values := [output.shares[step] for output in ours.values()])
        share = Told("here", "here", middle.value, middle.low, middle.high, values, format_blocks(len(values)))
        found.setdefault("here", []).append(Bucket(edges.value, share))
    return found


def points(metric: str) -> list[tuple[float, Told]]:
    """What boom printed of a metric of ours (`mean_s`, `rate`, `p50`, `p75_s` …): (requests at once, value); empty where nothing."""
    found: list[tuple[float, Told]] = []
    for connections, output in sorted(outputs().items()):
        names = {"mean_s": output.times_s["Average"], "rate": output.rate_rps}
        names |= {f"p{word[:-2]}": at_s for word, at_s in output.times_s.items() if word.endswith(" %")}
        if (value := names.get(metric.removesuffix("_s") if metric != "mean_s" else metric)) is not None:
            found.append((float(connections), Told(f"{metric} of {connections} at once", "published", value)))
    return found


def _word(percent: float) -> str:
    return f"{percent:g} %"


def _ms(at_s: float | None) -> float | None:
    return None if at_s is None else at_s * 1e3


def _over(at_s: float | None, average_s: float) -> float | None:
    return at_s / average_s if at_s is not None and average_s else None


def _middle(values: Sequence[float | None], interval: bool = True) -> str:
    known = [value for value in values if value is not None]
    found = stats.middle(known) if known else None
    if found is None or not interval:
        return digits(found and found.value)
    return with_interval(found.value, found.low, found.high)
