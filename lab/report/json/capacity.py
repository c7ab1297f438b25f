"""What `capacity --json` prints: an answer, or with `--check` the checks alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, RootModel

from lab.analysis.capacity.answer import Answer
from lab.analysis.capacity.checks import Check
from lab.analysis.capacity.costs import Bound
from lab.analysis.capacity.size import Size
from lab.report.json.printed import Count, Printed
from lab.stats.usl import Scaling

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


class ScalingJson(Printed):
    """The law of scalability by which throughput grows with cores."""

    source: str
    sigma: float
    sigma_interval: Interval
    kappa: float
    kappa_interval: Interval
    r_squared: float
    peak: float | None = Field(description="cores beyond which a proxy gets slower; null = none in sight")

    @staticmethod
    def of(law: Scaling, source: str) -> ScalingJson:
        return ScalingJson(
            source=source,
            sigma=law.sigma.value,
            sigma_interval=(law.sigma.low, law.sigma.high),
            kappa=law.kappa.value,
            kappa_interval=(law.kappa.low, law.kappa.high),
            r_squared=law.r_squared,
            peak=law.peak,
        )


class SizeJson(Printed):
    """Proxies of so many cores each."""

    cores: Count
    efficiency: float = Field(description="throughput / (cores x that of one core), by the law; 1 without one")
    serves_rps: float
    serves_interval_rps: Interval
    proxies: Count
    proxies_interval: tuple[Count, Count] | None = Field(description="95 % interval; null below six blocks")
    advised: Count = Field(description="the interval's upper end, and one spare")

    @staticmethod
    def of(size: Size) -> SizeJson:
        return SizeJson(
            cores=size.cores,
            efficiency=size.efficiency,
            serves_rps=size.serves_rps,
            serves_interval_rps=size.serves_interval,
            proxies=size.proxies,
            proxies_interval=size.proxies_interval,
            advised=size.advised,
        )


class AdvisedJson(Printed):
    """The size to run, and how to write it down."""

    cores: Count
    proxies: Count
    snippet: str


class CheckJson(Printed):
    """A load that was held out: predicted from the others, then compared."""

    arm: str
    point: str
    source: str = Field(description="what it was predicted from")
    predicted_rps: float
    interval_rps: Interval
    measured_rps: float
    error: float = Field(description="predicted / measured - 1")
    lower_bound: bool = Field(description="predicted from less load alone: the rate can only be higher")
    repeat: bool = Field(description="predicted from the same load of the A/A twin: nothing of the model is in it")
    inside: bool | None

    @staticmethod
    def of(check: Check) -> CheckJson:
        low, high = check.low_rps, check.high_rps
        return CheckJson(
            arm=check.arm,
            point=check.point,
            source=check.source,
            predicted_rps=check.predicted_rps,
            interval_rps=None if low is None or high is None else (low, high),
            measured_rps=check.measured_rps,
            error=check.error,
            lower_bound=check.bound,
            repeat=check.repeat,
            inside=check.inside,
        )


class CapacityJson(Printed):
    """How many proxies serve what was asked for. Seconds, requests per second, fractions."""

    schema_version: Literal[1]
    wanted: WantedJson
    runs: tuple[str, ...]
    variant: str
    cost: CostJson
    cores: float
    cores_interval: Interval
    scaling: ScalingJson | None = Field(description="null = linear in cores")
    sizes: tuple[SizeJson, ...]
    advised: AdvisedJson
    checks: tuple[CheckJson, ...]
    assumptions: tuple[str, ...]
    narrow: tuple[str, ...] = Field(description="what to measure for a narrower answer")


class ChecksJson(Printed):
    """What `capacity --check --json` prints."""

    schema_version: Literal[1]
    runs: tuple[str, ...]
    checks: tuple[CheckJson, ...]
    unchecked: str = Field(description="why there is no check; empty where there is one")


class EitherJson(RootModel[CapacityJson | ChecksJson]):
    """Of an answer, or of checks alone."""

    model_config = ConfigDict(
        title="What `capacity --json` prints, and `capacity --check --json`; seconds, requests per second, fractions"
    )


def printed(found: Answer) -> CapacityJson:
    wanted, law, cost = found.wanted, found.scaling, found.cost
    return CapacityJson(
        schema_version=1,
        wanted=WantedJson.model_validate(wanted),
        runs=found.runs,
        variant=cost.loads[0].arm.variant,
        cost=CostJson(
            cpu_per_request_s=cost.value_s,
            interval_s=cost.interval_s,
            blocks=cost.blocks,
            how=cost.how,
            bound=cost.bound,
            basis=cost.basis,
        ),
        cores=found.cores,
        cores_interval=found.cores_interval,
        scaling=None if law is None else ScalingJson.of(law, found.scaling_source),
        sizes=tuple(map(SizeJson.of, found.sizes)),
        advised=AdvisedJson(cores=found.advised.cores, proxies=found.advised.advised, snippet=found.snippet),
        checks=tuple(map(CheckJson.of, found.checks)),
        assumptions=found.assumptions,
        narrow=found.narrow,
    )


def checks_printed(runs: Sequence[str], found: Sequence[Check], unchecked: str) -> ChecksJson:
    """`unchecked`: why there is no check, if there is none."""
    checks = tuple(map(CheckJson.of, found))
    return ChecksJson(schema_version=1, runs=tuple(runs), checks=checks, unchecked="" if found else unchecked)
