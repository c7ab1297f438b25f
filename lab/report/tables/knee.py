"""A search's result as a terminal table, with every rate that was tried, and a sentence per variant that ends in something to do."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from lab.analysis import rerun
from lab.analysis.knee.report import CONTRADICT, Knee, KneeReport, Rate, between, differs
from lab.generators import GENERATORS, generator
from lab.model.run import KneeSearch
from lab.records.sweep_files import load_sweep
from lab.report.grid import Cell, Grid, Heading, Part, Row, Words, columns, heading_text, plain, row, title
from lab.report.loads import load_text
from lab.stats.units import format_rate, format_seconds

AT_KNEE = "at-knee"
CPU = ("p99", "CPU/req", "generator CPU", "proxy CPU")
NOBODY = {
    "p99": "answers only came too late",
    "unknown": "more --connections or another generator tells whether it was the proxy",
}
MANY_CPUS = "a target with more CPUs (`--target remote`)"


def page(report: KneeReport) -> list[Part]:
    """The knees, every rate that was tried, what a rate had to meet, and a sentence per variant."""
    conditions = f"passes: {conditions_text(report.conditions)}"
    load = load_text(report.load.model_copy(update={"rate_rps": None})).replace("closed loop, ", "")
    head = heading_text(Heading("knee", f"{report.target}: {load} a trial"))
    heads = ("variant", "generator", "knee", "fails at", "limited by", *CPU, "trials")
    units = ("", "", "req/s", "req/s", "", "", "µs", "", "", "")
    parts: list[Part] = [
        Words((head,), (f"**{head.plain}**",)),
        Grid(columns(heads, {0, 1, 4}, units), tuple(map(_row, report.knees))),
    ]
    for knee in report.knees:
        heads = ("req/s", "passed", "failed", "unclear", "achieved", *CPU, "")
        rates = Grid(columns(heads, {9}), tuple(_rate_row(rate, knee) for rate in knee.rates))
        parts += [title(knee.variant, "every rate that was tried", blank=True), rates]
    parts.append(Words((Text(""), Text(conditions, "dim"), Text("")), (f"- {conditions}",)))
    return [
        *parts,
        *(plain(sentence(report, knee), "bold" if knee.rate_rps is not None else "") for knee in report.knees),
    ]


def conditions_text(search: KneeSearch) -> str:
    """What a rate must meet, in words."""
    return (
        f"achieved/offered at least {search.min_achieved:g}, no errors, none dropped, p99 at most"
        f" {format_seconds(search.p99_s)}, generator below {100 * search.max_generator_core:g} % of its CPU"
    )


def _row(knee: Knee) -> Row:
    rate = f"{'≥ ' if knee.at_least else ''}{format_rate(knee.rate_rps)}" if knee.rate_rps is not None else "–"
    maker = knee.generator or "–"
    return row(
        knee.variant,
        f"{maker} (for {knee.stand_in_for})" if knee.stand_in_for else maker,
        Cell(rate, "bold"),
        format_rate(knee.fails_rps),
        Cell(knee.limited_by or "–", "yellow" if knee.at_least else ""),
        format_seconds(knee.p99_s),
        *_cpu(knee),
        str(knee.trials),
    )


def _rate_row(rate: Rate, knee: Knee) -> Row:
    style = "bold" if rate.rate_rps == knee.rate_rps else "dim" if not rate.passed else ""
    return row(
        format_rate(rate.rate_rps),
        *(str(count or "") for count in (rate.passed, rate.failed, rate.unclear)),
        format_rate(rate.achieved_rps),
        format_seconds(rate.p99_s),
        *_cpu(rate),
        "; ".join(rate.why),
        style=style,
    )


def _cpu(found: Knee | Rate) -> list[str]:
    """Of the proxy per request in µs; how busy generator and proxy kept their CPUs."""
    cost_s = found.cpu_per_request_s
    shares = (found.generator_core, found.proxy_core)
    return [
        f"{cost_s * 1e6:.1f}" if cost_s is not None else "–",
        *(f"{100 * s:.0f} %" if s is not None else "–" for s in shares),
    ]


def sentence(report: KneeReport, knee: Knee) -> str:
    """What was found, who was the limit, and what to do."""
    if knee.rate_rps is None:
        return f"{knee.variant}: no knee: {knee.why}{_remedy(report, knee)}"
    rate, where = format_rate(knee.rate_rps), between(knee.rate_rps, knee.fails_rps)
    advice = f"run it at 50-80 % of it: {at_knee(report, knee)}"
    if knee.limited_by in ("generator", "backend"):
        who = f"the generator ({knee.generator})" if knee.limited_by == "generator" else "the backend"
        full = f"; the proxy's CPU was {100 * knee.proxy_core:.0f} % busy at it" if knee.proxy_core is not None else ""
        return (
            f"{knee.variant}: at least {rate} req/s: {who}, not the proxy, was the limit ({knee.why}{full})\n"
            f"  to find the proxy's own: {'; or '.join(_others(knee))}\n"
            f"  {advice}"
        )
    limited = f"limited by {knee.limited_by or 'nothing'}: {_limit(knee)}"
    return f"{knee.variant}: {rate} req/s ({where}), {limited}\n  {advice}"


def _limit(knee: Knee) -> str:
    """Who was full where it failed, and what failed."""
    failed = next((rate for rate in knee.rates if rate.rate_rps == knee.fails_rps), None)
    if failed is None:
        return "no rate failed"
    cores = {"generator": failed.generator_core, "proxy": failed.proxy_core}
    busy = ", ".join(f"{role} {100 * share:.0f} %" for role, share in cores.items() if share is not None)
    full = "its CPU was full" if knee.limited_by == "proxy" else "no CPU was full"
    said = f"{knee.why} at {format_rate(failed.rate_rps)} req/s, {full}{f' ({busy})' if busy else ''}"
    return "; ".join([said, *(NOBODY[who] for who in [knee.limited_by or ""] if who in NOBODY)])


def _remedy(report: KneeReport, knee: Knee) -> str:
    """What to do where none was found."""
    if "--resume" in knee.why:
        return ""
    anew = f"just knee {knee.variant}{rerun.place(report.target)}"
    if CONTRADICT in knee.why:
        return f"\n  search anew, with longer trials (--duration) or a wider --precision: {anew}"
    if "not resolved" in knee.why:
        return f"\n  try again when the machine is quiet: just knee{rerun.resumed(report.run, report.target)}"
    if knee.limited_by == "generator":
        return f"\n  the generator ({knee.generator}) was the limit: {'; or '.join(_others(knee))}"
    return f"\n  mend that, or ask for less (--p99, --connections), then search anew: {anew}"


def at_knee(report: KneeReport, knee: Knee) -> str:
    """The command that measures this variant below its knee; of another load than the sweep's it takes a sweep of one's own.

    A search of several is asked for its baseline's knee by its name, so that the others' are named by their rate.
    """
    target = rerun.place(report.target)
    other = differs(report.load, load_sweep(AT_KNEE)[1].expanded())
    sweep = "YOURS.toml" if other else AT_KNEE
    how = f" (YOURS: lab/sweeps/{AT_KNEE}.toml with this load: it is {other})" if other else ""
    named = report.run if len(report.knees) == 1 else f"{knee.rate_rps or 0:.0f}"
    return f"just bench {knee.variant} --sweep {sweep}{target} --knee {named}{how}"


def _others(knee: Knee) -> Sequence[str]:
    """Generators that take less CPU for a request, the best first, and how to get them; then more CPUs."""
    if knee.limited_by == "backend":
        return [MANY_CPUS]
    better = generator("wrk2").stand_ins if knee.generator != "wrk2" else ()
    names = ["wrk2", *better] if better else []
    cheaper = names[: names.index(knee.generator)] if knee.generator in names else names
    return [*(f"{name}: {GENERATORS[name].remedy}" for name in cheaper), MANY_CPUS]
