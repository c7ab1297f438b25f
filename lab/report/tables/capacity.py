"""A capacity answer, as people read it. Microseconds only here."""

from __future__ import annotations

from collections.abc import Callable

from rich.text import Text

from lab.analysis.capacity.answer import Answer
from lab.analysis.capacity.size import Size
from lab.report.grid import Grid, Part, Words, columns, row
from lab.stats.units import three_digits

SIZE_HEADERS = ("cores each", "one serves (req/s)", "95 %", "proxies", "95 %", "run (one spare)")


def page(found: Answer) -> list[Part]:
    """The whole answer, what to do first."""
    said, price = head(found), price_lines(found)
    assumed = [Text("assumptions", "bold cyan"), *(Text(f"  {line}") for line in found.assumptions)]
    if found.narrow:
        assumed += [Text(""), Text("what would narrow it", "bold cyan"), *(Text(f"  {line}") for line in found.narrow)]
    bullets = [*(f"- {line}" for line in found.assumptions), *(f"- to narrow it: {line}" for line in found.narrow)]
    sizes = (row(*_size_cells(size), style="bold" if size is found.advised else "") for size in found.sizes)
    return [
        Words(
            (Text(said, "bold"), *(Text(f"  {line}") for line in found.snippet.splitlines())),
            (f"**{said}**", "", "```", found.snippet, "```"),
        ),
        Words(tuple(map(Text, price)), tuple(price), blank=True),
        Grid(columns(SIZE_HEADERS), tuple(sizes), blank=True),
        Words(tuple(assumed), tuple(bullets), blank=True),
    ]


def head(found: Answer) -> str:
    """The sentence to act on."""
    size, wanted = found.advised, found.wanted
    needed = "" if size.proxies_interval is None else f" [{size.proxies_interval[0]:,}, {size.proxies_interval[1]:,}]"
    noun = "core" if size.cores == 1 else "cores"
    end = "the interval's upper end" if size.proxies_interval else "no interval: fewer than six blocks"
    bound = f"{found.cost.bound} " if found.cost.bound else ""
    return (
        f"run {bound}{size.advised:,} proxies of {size.cores} {noun}: {size.proxies:,}{needed} serve {wanted.rate_rps:,.0f} req/s"
        f" at {_percent(wanted.utilisation)} CPU; {end}, and one that may be gone"
    )


def price_lines(found: Answer) -> list[str]:
    """What a request costs, and how many cores that makes."""
    cost, of = found.cost, ", ".join(found.runs)
    return [
        f"{_us(cost.value_s)} µs of proxy CPU per request{_span(cost.interval_s, _us)}: {cost.loads[0].kind}, {cost.basis} ({of})",
        f"{found.cores:,.1f} cores{_span(found.cores_interval, lambda value: f'{value:,.1f}')} at"
        f" {_percent(found.wanted.utilisation)} CPU",
    ]


def _size_cells(size: Size) -> list[str]:
    serves, proxies = size.serves_interval_rps, size.proxies_interval
    return [
        f"{size.cores}",
        f"{size.serves_rps:,.0f}",
        f"[{serves[0]:,.0f}, {serves[1]:,.0f}]" if serves else "–",
        f"{size.proxies:,}",
        f"[{proxies[0]:,}, {proxies[1]:,}]" if proxies else "–",
        f"{size.advised:,}",
    ]


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _us(value_s: float) -> str:
    return three_digits(value_s, 1e6)


def _span(pair: tuple[float, float] | None, text: Callable[[float], str]) -> str:
    return f" [{text(pair[0])}, {text(pair[1])}]" if pair else ""
