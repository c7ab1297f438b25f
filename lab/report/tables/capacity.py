"""The page of the command `capacity`, which answers how many proxies a load needs."""

from __future__ import annotations

from rich.text import Text

from lab.analysis.capacity.answer import Answer
from lab.report.grid import Grid, Part, Sentences, make_columns, make_row
from lab.stats.units import format_three_digits


def page(answer: Answer) -> list[Part]:
    """Return the page that answers how many proxies are needed: first the advice, then the cost, the sizes and the assumptions."""
    size, demand, cost, ends = answer.advised, answer.wanted, answer.cost, answer.cost.interval_s
    needed = f"{size.proxies:,} {_format_interval(size.proxies_interval)}".rstrip()
    noun = "core" if size.cores == 1 else "cores"
    end = "the interval's upper end" if size.proxies_interval else "no interval: fewer than six blocks"
    bound = f"{cost.bound} " if cost.bound else ""
    advice = (
        f"run {bound}{size.advised:,} proxies of {size.cores} {noun}: {needed} serve {demand.rate_rps:,.0f} req/s"
        f" at {100 * demand.utilisation:g} % CPU; {end}, and one that may be gone"
    )
    span = f" [{format_three_digits(ends[0], 1e6)}, {format_three_digits(ends[1], 1e6)}]" if ends else ""
    cores = f" [{answer.cores_interval[0]:,.1f}, {answer.cores_interval[1]:,.1f}]" if answer.cores_interval else ""
    price = [
        f"{format_three_digits(cost.value_s, 1e6)} µs of proxy CPU per request{span}: {cost.loads[0].kind}, {cost.basis}"
        f" ({', '.join(answer.runs)})",
        f"{answer.cores:,.1f} cores{cores} at {100 * demand.utilisation:g} % CPU",
    ]
    sizes = (
        make_row(
            f"{size.cores}",
            f"{size.serves_rps:,.0f}",
            _format_interval(size.serves_interval_rps) or "–",
            f"{size.proxies:,}",
            _format_interval(size.proxies_interval) or "–",
            f"{size.advised:,}",
            style="bold" if size is answer.advised else "",
        )
        for size in answer.sizes
    )
    return [
        Sentences(
            (Text(advice, "bold"), *(Text(f"  {line}") for line in answer.snippet.splitlines())),
            (f"**{advice}**", "", "```", answer.snippet, "```"),
        ),
        Sentences(tuple(map(Text, price)), tuple(price), blank=True),
        Grid(
            make_columns(("cores each", "one serves (req/s)", "95 %", "proxies", "95 %", "run (one spare)")),
            tuple(sizes),
            blank=True,
        ),
        Sentences(
            (Text("assumptions", "bold cyan"), *(Text(f"  {line}") for line in answer.assumptions)),
            tuple(f"- {line}" for line in answer.assumptions),
            blank=True,
        ),
    ]


def _format_interval(ends: tuple[float, float] | None) -> str:
    return f"[{ends[0]:,.0f}, {ends[1]:,.0f}]" if ends else ""
