"""A price and the run that it came from → what to measure for a narrower one, as commands where there is one that can.

Names that run's own variant, load and target, as runs that differ in these are never mixed. Refuses to send anybody to a page
that is not served, or to a sweep that has another page or keeps connections where the price does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from lab.analysis import rerun
from lab.analysis.capacity.costs import Cost
from lab.analysis.capacity.size import Wanted
from lab.model.names import DEFAULT_TARGET
from lab.model.pages import PAGES
from lab.model.run import RunRecord
from lab.records.sweep_files import load_sweep
from lab.stats.paired import MIN_BLOCKS

WIDE, WIDE_BLOCKS = 0.2, 20
"""An interval whose ends lie so far apart, as a part of the price, is worth narrowing, with so many blocks."""
FAR = 0.1
"""From a load whose utilisation lies further than this from the wanted one, a nearer one narrows the price."""


def narrow(cost: Cost, wanted: Wanted, record: RunRecord) -> Iterator[str]:
    """A line for each thing that is loose. `record`: of the run that `cost` came from."""
    variant = cost.loads[0].arm.variant
    if cost.draws is None:
        yield f"no interval: {cost.blocks} of {MIN_BLOCKS} blocks; {_more(record, variant, MIN_BLOCKS)}"
    elif cost.interval_s is not None:
        low, high = cost.interval_s
        if high - low > WIDE * cost.value_s and cost.how == "measured" and len(cost.loads) == 1:
            yield f"the price's interval is wide: more blocks narrow it: {_more(record, variant, WIDE_BLOCKS)}"
    if pages := _pages(cost, wanted):
        made = (
            _has("page-sizes", pages, wanted.keepalive) and record.target == DEFAULT_TARGET
        )  # only there its link is shaped
        command = f", or just bench {variant} --sweep page-sizes" if made else ""
        yield f"what is served nearest to {wanted.page}: a sweep of yours with page = {json.dumps(pages)}{command}"
    busy = [load.busy for load in cost.loads if load.busy is not None]
    if busy and min(abs(each - wanted.utilisation) for each in busy) > FAR:
        rate = wanted.utilisation / cost.value_s
        place, command = rerun.place(record.target), ""
        if _has("at-knee", [load.point.page for load in cost.loads], wanted.keepalive):
            command = f"just knee {variant}{place}, then just bench {variant} --sweep at-knee{place}; or "
        yield (
            f"a load that fills the proxy to {100 * wanted.utilisation:.0f} %, some {rate:,.0f} req/s for each of its CPUs:"
            f" {command}a sweep of yours with that rate_rps"
        )


def _more(record: RunRecord, variant: str, blocks: int) -> str:
    """What measures the same in so many blocks; a search has none to choose."""
    if record.knee is not None:
        return f"a search tries each rate too seldom: a sweep of yours with its load and blocks = {blocks}"
    return f"{rerun.measure(record, variant)} --blocks {blocks}"


def _pages(cost: Cost, wanted: Wanted) -> list[str]:
    """That page, or of those that are served the next smaller and the next larger, as far as they were not measured."""
    served = {size: page for page, size in PAGES.items() if page.endswith(".bin")}
    smaller = [size for size in served if size <= wanted.page_bytes]
    larger = [size for size in served if size >= wanted.page_bytes]
    measured = {load.page_bytes for load in cost.loads}
    return [served[size] for size in sorted({*smaller[-1:], *larger[:1]} - measured)]


def _has(sweep: str, pages: list[str], keepalive: bool) -> bool:
    """Whether a sweep asks for all these pages over connections of that kind."""
    return set(pages) <= {point.page for point in load_sweep(sweep)[1].expanded() if point.keepalive == keepalive}
