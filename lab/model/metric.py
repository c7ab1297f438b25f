"""What a metric is: its names, unit and direction, how two arms are compared in it, how it is read, and its numbers as people read them.

    Metric("p99", "ms", scale=1e-3, kind="ratio", histogram=…).text(0.00361)            3.61
    Metric("longest gap", "s", decimals=2).change(-29.62)                                −29.6 s

`lab.model.metrics` has all of them. Refuses to judge: a change is a number here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1
from typing import TYPE_CHECKING, Literal

from lab.stats.histogram import LIMIT_US, UNIT_S
from lab.stats.units import (
    format_interval,
    format_micros,
    format_percent,
    format_rate,
    format_size,
    significant,
    three_digits,
)

if TYPE_CHECKING:
    from lab.model.samples import Sample
    from lab.stats.histogram import Histogram

Kind = Literal["ratio", "difference", "claim"]
OfSample = Callable[["Sample"], float | None]
OfHistogram = Callable[["Histogram"], float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """`title` in sentences, `label` in tables (the title unless given). Shown in `unit`, of which one is `scale` of the number's own
    (seconds, bytes), with three significant digits; a `difference` with `decimals` at most. `better`: less or more of it, or neither.

    `kind` how two arms are compared in it: by ratio, as of steady loads; by difference, as what came of a disturbance may be 0; or
    only where a claim or a figure asks for it. `primary`: a variant's hypothesis may be about it.

    `sample`, `histogram`: what it is read from (`histogram`: then its level is that of all blocks' together); neither: what came of a
    disturbance lies in `Sample.outcome` by its name, and what a claim asks for is `lab.analysis.evidence`'s to read.
    `column`: its place in the table of steady loads, under `heading`; 0 = none.

    Of a difference: `detail` is part of the number above it; `always` is shown even where it is 0 everywhere; `idle`: a system has it
    whether disturbed or not, so that it is shown only where a disturbance moved it away from what its control run had. `seen`: what
    it is read from decides how finely it resolves: `requests` to one request's distance from the next, `both` also to what the
    clocks of generator and events may differ by; `events` (counts as well) have no such limit.
    """

    title: str
    unit: str = ""
    better: Literal["less", "more", "neither"] = "less"
    decimals: int = 0
    scale: float = 1.0
    kind: Kind = "difference"
    label: str = ""
    heading: str = ""
    column: int = 0
    primary: bool = False
    sample: OfSample | None = None
    histogram: OfHistogram | None = None
    seen: Literal["requests", "events", "both"] = "events"
    detail: bool = False
    always: bool = False
    idle: bool = False

    @property
    def ratio(self) -> bool:
        return self.kind == "ratio"

    @property
    def cost(self) -> bool:
        """Whether it is what a request costs, so that an effect is a time, too: per cent of another level are another time."""
        return self.ratio and self.unit == "µs"

    @property
    def latency(self) -> bool:
        """Whether it is of the latencies of a load: at a closed loop these follow from its throughput."""
        return self.histogram is not None

    @property
    def short(self) -> str:
        """Its name in a table's cell."""
        return self.label or self.title

    @property
    def own_unit(self) -> str:
        """The unit of the number itself: s, bytes, bytes/s, share, or what it is shown in."""
        if self.unit in ("s", "ms", "µs"):
            return "s"
        if self.unit in ("kB", "MB", "MB/s"):
            return f"bytes{self.unit[2:]}"
        return "share" if self.unit == "%" else self.unit

    def read(self, sample: Sample, histogram: Histogram | None) -> float | None:
        """None: not known, or too few requests beyond it. Of a difference, only where `Sample.outcome` has it."""
        if self.histogram is not None:
            return self.histogram(histogram) if histogram is not None else None
        return self.sample(sample) if self.sample is not None else None

    def text(self, value: float | None, signed: bool = False) -> str:
        """The number without its unit: 29.8, 2,981, 3.5 (a median of counts), – for None; of a difference with a true sign where `signed`."""
        if value is None:
            return "–"
        if self.kind != "difference":
            return format_rate(value) if self.unit == "req/s" else three_digits(value, 1 / self.scale)
        shown = abs(value / self.scale)
        if not self.unit:
            digits = 0 if shown.is_integer() else 1
        else:
            digits = min(self.decimals, 0 if shown >= 99.95 else 1 if shown >= 9.995 else 2 if shown >= 0.9995 else 3)
        text = f"{shown:,.{digits}f}"
        if float(text.replace(",", "")) == 0:
            return "0"
        return f"{'−' if value < 0 else '+' if signed else ''}{text}"

    def coarse(self, value: float, count: int = 2) -> str:
        """Return the number with `count` significant digits and without its unit, for what few blocks show: 30, 3,000.

        A whole number below 100 that is a count stays as it is, and the histogram's end is a bound.
        """
        if self.kind == "difference" and not self.unit and float(value).is_integer() and abs(value) < 100:
            return self.text(value)
        bound = "≥" if self.histogram is not None and value >= LIMIT_US * UNIT_S else ""
        return f"{bound}{significant(value / self.scale, count)}".replace("-", "−")

    def with_unit(self, value: float | None, signed: bool = False) -> str:
        return f"{self.text(value, signed)} {self.unit}".rstrip()

    # -- effects: log-ratios, or differences in the number's own unit ------------------------------------------

    def size(self, effect: float | None) -> str:
        """How large an effect is, a floor or a bound: `3.2 %`, `0.21 s`."""
        return format_size(effect) if self.ratio and effect is not None else self.with_unit(effect)

    def change(self, effect: float | None) -> str:
        """An effect with its sign: `−8.2 %`, `−29.6 s`."""
        return (
            f"{format_percent(effect)} %" if self.ratio and effect is not None else self.with_unit(effect, signed=True)
        )

    def time(self, effect: float, level: float | None) -> str:
        """What an effect is of a cost, at this level of what it is compared with: ` = −1.4 µs`; empty of anything else."""
        return f" = {format_micros(level * expm1(effect))} µs" if self.cost and level is not None else ""

    def ends(self, low: float | None, high: float | None) -> str:
        """An effect's interval: ` [−9.1, −7.3]`; empty where there is none."""
        if self.ratio or low is None or high is None:
            return format_interval(low, high)
        return f" [{self.text(low, signed=True)}, {self.text(high, signed=True)}]"
