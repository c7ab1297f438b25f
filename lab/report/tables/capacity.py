"""A capacity answer, and its checks, as people read them. Microseconds only here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.text import Text

from lab.analysis.capacity.answer import Answer
from lab.analysis.capacity.checks import NONE, Check
from lab.analysis.capacity.size import Size
from lab.report.grid import Grid, Part, Words, columns, plain, row
from lab.stats.units import three_digits

SIZE_HEADERS = ("cores each", "one serves (req/s)", "95 %", "proxies", "95 %", "run (one spare)")
CHECK_HEADERS = ("held out", "predicted", "req/s", "95 %", "measured", "error", "")


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
        *check_page(found.checks, found.unchecked, blank=True),
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
        f" {_percent(found.wanted.utilisation)} CPU, before growth with cores",
    ]


def check_page(found: Sequence[Check], unchecked: str = NONE, blank: bool = False) -> list[Part]:
    """Predicted against measured, and how many lie inside. `unchecked`: why there is nothing to show."""
    head = Text("held-out points: predicted without them, then compared", "bold cyan")
    if not found:
        return [Words((head, Text(f"  {unchecked}")), (f"Held-out points: {unchecked}",), blank)]
    rows = tuple(row(*_check_cells(check)) for check in found)
    return [Words((head,), None, blank), Grid(columns(CHECK_HEADERS, left=(0, 1, 6)), rows), plain(tally(found))]


def tally(found: Sequence[Check]) -> str:
    """How far to trust the model, in a sentence; repeats, which do not need it, and bounds are counted by themselves."""
    bounds, repeats = [c for c in found if c.bound], [c for c in found if c.repeat]
    points = [c for c in found if not c.bound and not c.repeat]
    parts: list[str] = []
    if points:
        parts.append(f"{_inside(points)}the largest error {_largest(points)}: allow for that much")
    if repeats:
        model = "no load that needs the model was held out (a run at --sweep at-knee or page-sizes has some)"
        only = "" if points else f": {model}"
        parts.append(f"the same load again: {_inside(repeats)}the largest difference {_largest(repeats)}{only}")
    if bounds:
        held = sum(check.measured_rps >= (check.low_rps or check.predicted_rps) for check in bounds)
        parts.append(f"{held} of {len(bounds)} lower bounds held (the price of little load is no price of much)")
    return "; ".join(parts)


def _inside(found: Sequence[Check]) -> str:
    judged = [check for check in found if check.inside is not None]
    return f"{sum(check.inside is True for check in judged)} of {len(judged)} inside their interval, " if judged else ""


def _largest(found: Sequence[Check]) -> str:
    return _error(max(found, key=lambda check: abs(check.error)))


def _size_cells(size: Size) -> list[str]:
    serves, proxies = size.serves_interval, size.proxies_interval
    return [
        f"{size.cores}",
        f"{size.serves_rps:,.0f}",
        f"[{serves[0]:,.0f}, {serves[1]:,.0f}]" if serves else "–",
        f"{size.proxies:,}",
        f"[{proxies[0]:,}, {proxies[1]:,}]" if proxies else "–",
        f"{size.advised:,}",
    ]


def _check_cells(check: Check) -> list[str]:
    span = (
        "–" if check.low_rps is None else f"[{check.low_rps:,.0f}, {'…' if check.bound else f'{check.high_rps:,.0f}'}]"
    )
    verdict = {None: "no interval", True: "inside", False: "OUTSIDE"}[check.inside]
    if check.bound:
        verdict = {None: "lower bound", True: "lower bound: held", False: "lower bound: NOT held"}[check.inside]
    measured = f"{check.measured_rps:,.0f}"
    return [
        f"{check.arm} {check.point}",
        check.source,
        f"{check.predicted_rps:,.0f}",
        span,
        measured,
        _error(check),
        verdict,
    ]


def _error(check: Check) -> str:
    return f"{100 * check.error:+.1f} %".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _us(value_s: float) -> str:
    return three_digits(value_s, 1e6)


def _span(pair: tuple[float, float] | None, text: Callable[[float], str]) -> str:
    return f" [{text(pair[0])}, {text(pair[1])}]" if pair else ""
