"""What `capacity --json` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from lab.analysis.capacity.answer import Answer
from lab.analysis.capacity.costs import Bound
from lab.report.json.printed import Count, Printed

Interval = Annotated[tuple[float, float] | None, Field(description="95 % interval; null below six blocks")]


class WantedJson(Printed):
    """What was asked for."""

    rate_rps: float
    tls: str
    keepalive: bool
    page_bytes: Count
    utilisation: float = Field(description="of the proxies' CPUs, a fraction")


class CostJson(Printed):
    """What a request costs."""

    cpu_per_request_s: float = Field(description="CPU seconds of the proxy per good answer")
    interval_s: Interval
    blocks: Count
    how: Literal["measured", "between sizes", "beyond sizes"]
    bound: Bound = Field(description="on which side of the true price and number these lie")
    basis: str


class SizeJson(Printed):
    """Proxies of so many cores each."""

    cores: Count
    serves_rps: float
    serves_interval_rps: Interval
    proxies: Count
    proxies_interval: tuple[Count, Count] | None = Field(description="95 % interval; null below six blocks")
    advised: Count = Field(description="the interval's upper end, and one spare")


class AdvisedJson(Printed):
    """The size to run, and how to write it down."""

    cores: Count
    proxies: Count
    snippet: str


class CapacityJson(Printed):
    """How many proxies serve what was asked for."""

    model_config = ConfigDict(title="What `capacity --json` prints; seconds, requests per second, fractions")

    schema_version: Literal[2]
    wanted: WantedJson
    runs: tuple[str, ...]
    variant: str
    cost: CostJson
    cores: float
    cores_interval: Interval
    sizes: tuple[SizeJson, ...]
    advised: AdvisedJson
    assumptions: tuple[str, ...]
    narrow: tuple[str, ...] = Field(description="what to measure for a narrower answer")


def printed(found: Answer) -> CapacityJson:
    cost = found.cost
    return CapacityJson(
        schema_version=2,
        wanted=WantedJson.model_validate(found.wanted),
        runs=found.runs,
        variant=cost.loads[0].arm.variant,
        cost=CostJson(
            cpu_per_request_s=cost.value_s,
            interval_s=cost.interval_s,
            blocks=cost.blocks,
            how="measured",
            bound=cost.bound,
            basis=cost.basis,
        ),
        cores=found.cores,
        cores_interval=found.cores_interval,
        sizes=tuple(map(SizeJson.model_validate, found.sizes)),
        advised=AdvisedJson(cores=found.advised.cores, proxies=found.advised.advised, snippet=found.snippet),
        assumptions=found.assumptions,
        narrow=found.narrow,
    )
