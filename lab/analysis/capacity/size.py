"""What a request costs, at which utilisation, on how many cores → how many proxies of which size, with the interval.

    cores needed = rate · c / utilisation        one proxy of k cores serves k · utilisation / c

c: CPU seconds of the proxy per request (`costs`). This is the utilisation law (U = X·S, Denning & Buzen 1978) read backwards, linear
in cores, which is said. Refuses to say anything of latency, memory, bandwidth or of other machines: those are assumptions, and stand
in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from lab.analysis.capacity.cells import Kind, Load, has_price
from lab.analysis.capacity.costs import Cost, OutOfRangeError, cost_of, interval
from lab.base.errors import UsageError
from lab.model.endpoint import Tls
from lab.model.sweeps import Point, sweep_names
from lab.records.sweep_files import load_sweep

SIZES = (1, 2, 4, 8, 16)
ADVISED = 4
"""Cores of the proxy that the advice is for, unless another size is asked for."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked: good answers per second, of which kind and size, with the proxies' CPUs so full at most (0 to 1)."""

    rate_rps: float
    tls: Tls
    keepalive: bool
    page: str
    page_bytes: int
    utilisation: float
    resumption: bool | None = None
    variant: str | None = None

    def fits(self, variant: str, kind: Kind) -> bool:
        """Whether such requests to this variant are what is asked."""
        resumption = self.resumption is None or kind.resumption in (None, self.resumption)
        alike = kind.tls == self.tls and kind.keepalive == self.keepalive and resumption
        return alike and self.variant in (None, variant)


@dataclass(frozen=True, slots=True)
class Size:
    """Proxies of so many cores: what one serves (req/s) and how many it takes; intervals None below six blocks."""

    cores: int
    serves_rps: float
    serves_interval_rps: tuple[float, float] | None
    proxies: int
    proxies_interval: tuple[int, int] | None

    @property
    def advised(self) -> int:
        """The interval's upper end, and one that may be gone."""
        return (self.proxies_interval[1] if self.proxies_interval else self.proxies) + 1


def price(loads: Sequence[Load], wanted: Wanted) -> Cost:
    """What a request of the kind wanted costs. The baseline's price where several arms have one and none is named, of several
    systems the `usual` one's: an arm that has the very page goes before one that has it not. UsageError where no arm has it, or
    more than one kind is meant.
    """
    fitting = [load for load in loads if wanted.fits(load.arm.variant, load.kind)]
    arms = sorted(
        {load.arm.name: load.arm for load in fitting}.values(),
        key=lambda arm: (
            not any(load.page_bytes == wanted.page_bytes for load in fitting if load.arm.name == arm.name),
            arm.role != "baseline",
            arm.variant != usual(wanted),
        ),
    )
    if not arms:
        have = (f"{load.arm.variant}: {load.kind}" for load in loads)
        raise missing(list(dict.fromkeys(have)), wanted)
    own = [load for load in fitting if load.arm == arms[0]]
    if len({load.kind for load in own}) > 1:
        fault = (
            f"{arms[0].name} was measured with full and with resumed TLS handshakes, which cost very different amounts"
        )
        raise UsageError("--handshakes", fault, "say which: --handshakes full, or --handshakes resumed")
    try:
        return cost_of(own, wanted.page_bytes, wanted.utilisation)
    except OutOfRangeError as error:
        pages = ", ".join(dict.fromkeys(load.point.page for load in own))
        remedy = f"measured: {pages}; measure others: just bench {arms[0].variant} --sweep page-sizes"
        if not wanted.keepalive:
            remedy = f"measured: {pages}; measure it with a sweep of yours: keepalive = false and this page"
        raise UsageError("--page", f"no price of {wanted.page}: {error}", remedy) from None


def size(cost: Cost, wanted: Wanted, cores: int) -> Size:
    """How many proxies of `cores` cores."""
    serves = cores * wanted.utilisation / cost.value_s
    if cost.draws is None:
        return Size(cores, serves, None, whole(wanted.rate_rps / serves), None)
    low, high = interval(cores * wanted.utilisation / cost.draws)
    low, high = min(low, serves), max(high, serves)  # rounding: one draw's quantile is no point estimate
    proxies = (whole(wanted.rate_rps / high), whole(wanted.rate_rps / low))
    return Size(cores, serves, (low, high), whole(wanted.rate_rps / serves), proxies)


def cores_needed(cost: Cost, wanted: Wanted) -> tuple[float, tuple[float, float] | None]:
    """CPUs that so many requests fill to the utilisation; with the interval."""
    factor, found = wanted.rate_rps / wanted.utilisation, cost.interval_s
    return factor * cost.value_s, (factor * found[0], factor * found[1]) if found else None


def whole(proxies: float) -> int:
    """Rounded up, at least one; what is a whole number but for rounding stays it."""
    return max(1, ceil(proxies * (1 - 1e-12)))


def missing(have: Sequence[str], wanted: Wanted) -> UsageError:
    """That no run has such a price, what runs there are (`variant: kind`), and what to measure."""
    new_tls = wanted.tls != "none" and not wanted.keepalive
    kind = Kind(wanted.tls, wanted.keepalive, wanted.resumption if new_tls else None)
    of = f" of '{wanted.variant}'" if wanted.variant else ""
    there = f"what runs there are have: {'; '.join(have)}\n  " if have else ""
    return UsageError("capacity", f"no price{of} for {kind} was measured", f"{there}measure it: {measure(wanted)}")


def measure(wanted: Wanted) -> str:
    """The command that measures such a price; of new connections in the first sweep that has such a load (S: none has)."""
    if wanted.keepalive:
        return f"just bench {usual(wanted)}"
    having = (
        name for name in sweep_names() if any(_measures(point, wanted) for point in load_sweep(name)[1].expanded())
    )
    return f"just bench {usual(wanted)} --sweep {next(having, 'S')}"


def _measures(point: Point, wanted: Wanted) -> bool:
    """Whether a sweep's load is of the kind wanted, its handshakes are told, and any variant has routes enough for it."""
    tls = wanted.tls if point.tls == "routed" else point.tls
    told = tls == "none" or point.resumption is not None
    fits = wanted.fits(usual(wanted), Kind(tls, point.keepalive, point.resumption if tls != "none" else None))
    return has_price(point) and told and fits and point.routes in (1, "all")


def usual(wanted: Wanted) -> str:
    """The variant whose price it is, unless a run says otherwise."""
    if wanted.variant is not None:
        return wanted.variant
    if wanted.tls != "none":
        return f"okd-{wanted.tls}"
    return "baseline" if wanted.keepalive else "okd"
