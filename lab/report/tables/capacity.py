"""A capacity answer, as people read it. Microseconds only here."""

from __future__ import annotations

from rich.text import Text

from lab.analysis.capacity.answer import Answer
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
    sizes = (
        row(
            f"{size.cores}",
            f"{size.serves_rps:,.0f}",
            _interval(size.serves_interval_rps) or "–",
            f"{size.proxies:,}",
            _interval(size.proxies_interval) or "–",
            f"{size.advised:,}",
            style="bold" if size is found.advised else "",
        )
        for size in found.sizes
    )
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
    needed = f"{size.proxies:,} {_interval(size.proxies_interval)}".rstrip()
    noun = "core" if size.cores == 1 else "cores"
    end = "the interval's upper end" if size.proxies_interval else "no interval: fewer than six blocks"
    bound = f"{found.cost.bound} " if found.cost.bound else ""
    return (
        f"run {bound}{size.advised:,} proxies of {size.cores} {noun}: {needed} serve {wanted.rate_rps:,.0f} req/s"
        f" at {100 * wanted.utilisation:g} % CPU; {end}, and one that may be gone"
    )


def price_lines(found: Answer) -> list[str]:
    """What a request costs, and how many cores that makes."""
    cost, ends, of = found.cost, found.cost.interval_s, ", ".join(found.runs)
    span = f" [{three_digits(ends[0], 1e6)}, {three_digits(ends[1], 1e6)}]" if ends else ""
    cores = f" [{found.cores_interval[0]:,.1f}, {found.cores_interval[1]:,.1f}]" if found.cores_interval else ""
    return [
        f"{three_digits(cost.value_s, 1e6)} µs of proxy CPU per request{span}: {cost.loads[0].kind}, {cost.basis} ({of})",
        f"{found.cores:,.1f} cores{cores} at {100 * found.wanted.utilisation:g} % CPU",
    ]


def _interval(ends: tuple[float, float] | None) -> str:
    return f"[{ends[0]:,.0f}, {ends[1]:,.0f}]" if ends else ""
