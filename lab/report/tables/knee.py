"""The page of a search for the knee, the highest rate that a variant serves within the latency bound.

The page has the knee of each variant, every rate that was tried, and a sentence of advice per variant.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from lab.analysis import rerun
from lab.analysis.knee.report import CONTRADICT, Knee, KneeReport, Rate, describe_difference, describe_interval
from lab.generators import GENERATORS, get_generator
from lab.model.run import KneeSearch
from lab.records.sweep_files import load_sweep
from lab.report.grid import (
    Grid,
    Heading,
    Part,
    Sentences,
    TableCell,
    TableRow,
    heading_text,
    make_columns,
    make_row,
    make_sentence,
    make_title,
)
from lab.report.loads import describe_load
from lab.stats.units import format_rate, format_seconds

AT_KNEE = "at-knee"
CPU = ("p99", "CPU/req", "generator CPU", "proxy CPU")
LIMIT_TEXTS = {
    "p99": "answers only came too late",
    "unknown": "more --connections or another generator shows whether it was the proxy",
}
MANY_CPUS = "a target with more CPUs (`--target remote`)"


def page(report: KneeReport) -> list[Part]:
    """Return the page of a search for the knee (the highest rate within the latency bound) of each variant.

    It has the table of knees, a table of all tried rates for each variant, the conditions that a rate must meet, and a sentence for each
    variant.
    """
    conditions = f"passes: {describe_conditions(report.conditions)}"
    load = describe_load(report.load.model_copy(update={"rate_rps": None})).replace("closed loop, ", "")
    head = heading_text(Heading("knee", f"{report.target}: {load} a trial"))
    heads = ("variant", "generator", "knee", "fails at", "limited by", *CPU, "trials")
    units = ("", "", "req/s", "req/s", "", "", "µs", "", "", "")
    parts: list[Part] = [
        Sentences((head,), (f"**{head.plain}**",)),
        Grid(make_columns(heads, {0, 1, 4}, units), tuple(map(_make_knee_row, report.knees))),
    ]
    for knee in report.knees:
        heads = ("req/s", "passed", "failed", "unclear", "achieved", *CPU, "")
        rates = Grid(make_columns(heads, {9}), tuple(_make_rate_row(rate, knee) for rate in knee.rates))
        parts += [make_title(knee.variant, "every rate that was tried", blank=True), rates]
    parts.append(Sentences((Text(""), Text(conditions, "dim"), Text("")), (f"- {conditions}",)))
    return [
        *parts,
        *(
            make_sentence(describe_knee(report, knee), "bold" if knee.rate_rps is not None else "")
            for knee in report.knees
        ),
    ]


def describe_conditions(search: KneeSearch) -> str:
    """Return in words the conditions that an offered rate must meet to pass in a search for the knee (the highest rate that passes)."""
    return (
        f"achieved/offered at least {search.min_achieved:g}, no errors, none dropped, p99 at most"
        f" {format_seconds(search.p99_s)}, generator below {100 * search.max_generator_core:g} % of its CPU"
    )


def _make_knee_row(knee: Knee) -> TableRow:
    rate = f"{'≥ ' if knee.at_least else ''}{format_rate(knee.rate_rps)}" if knee.rate_rps is not None else "–"
    maker = knee.generator or "–"
    return make_row(
        knee.variant,
        f"{maker} (for {knee.stand_in_for})" if knee.stand_in_for else maker,
        TableCell(rate, "bold"),
        format_rate(knee.fails_rps),
        TableCell(knee.limited_by or "–", "yellow" if knee.at_least else ""),
        format_seconds(knee.p99_s),
        *_format_cpu(knee),
        str(knee.trials),
    )


def _make_rate_row(rate: Rate, knee: Knee) -> TableRow:
    style = "bold" if rate.rate_rps == knee.rate_rps else "dim" if not rate.passed else ""
    return make_row(
        format_rate(rate.rate_rps),
        *(str(count or "") for count in (rate.passed, rate.failed, rate.unclear)),
        format_rate(rate.achieved_rps),
        format_seconds(rate.p99_s),
        *_format_cpu(rate),
        "; ".join(rate.why),
        style=style,
    )


def _format_cpu(result: Knee | Rate) -> list[str]:
    """Return three cells about CPUs: the proxy's time per request in µs, and how busy the generator's and the proxy's CPUs were.

    A value that is not known is `–`.
    """
    cost_s = result.cpu_per_request_s
    shares = (result.generator_core, result.proxy_core)
    return [
        f"{cost_s * 1e6:.1f}" if cost_s is not None else "–",
        *(f"{100 * s:.0f} %" if s is not None else "–" for s in shares),
    ]


def describe_knee(report: KneeReport, knee: Knee) -> str:
    """Return a text about the knee (the highest rate within the latency bound) of a variant: its rate, what limits it, and what to do."""
    if knee.rate_rps is None:
        return f"{knee.variant}: no knee: {knee.why}{_suggest_remedy(report, knee)}"
    rate, where = format_rate(knee.rate_rps), describe_interval(knee.rate_rps, knee.fails_rps)
    advice = f"run it at 50-80 % of it:\n    {command_at_knee(report, knee)}"
    if knee.limited_by in ("generator", "backend"):
        limit = f"the generator ({knee.generator})" if knee.limited_by == "generator" else "the backend"
        full = f"; the proxy's CPU was {100 * knee.proxy_core:.0f} % busy at it" if knee.proxy_core is not None else ""
        return (
            f"{knee.variant}: at least {rate} req/s: {limit}, not the proxy, was the limit ({knee.why}{full})\n"
            f"  to find the proxy's own: {'; or '.join(_list_alternatives(knee))}\n"
            f"  {advice}"
        )
    limited = f"limited by {knee.limited_by or 'nothing'}: {_describe_limit(knee)}"
    return f"{knee.variant}: {rate} req/s ({where}), {limited}\n  {advice}"


def _describe_limit(knee: Knee) -> str:
    """Return in words which condition failed at the lowest failing rate, and whether a CPU was full there."""
    failed = next((rate for rate in knee.rates if rate.rate_rps == knee.fails_rps), None)
    if failed is None:
        return "no rate failed"
    cores = {"generator": failed.generator_core, "proxy": failed.proxy_core}
    busy = ", ".join(f"{role} {100 * share:.0f} %" for role, share in cores.items() if share is not None)
    full = "its CPU was full" if knee.limited_by == "proxy" else "no CPU was full"
    failure = f"{knee.why} at {format_rate(failed.rate_rps)} req/s, {full}{f' ({busy})' if busy else ''}"
    return "; ".join([failure, *(LIMIT_TEXTS[limit] for limit in [knee.limited_by or ""] if limit in LIMIT_TEXTS)])


def _suggest_remedy(report: KneeReport, knee: Knee) -> str:
    """Return a line with advice for a variant without a knee (highest rate within the latency bound).

    The line is empty if the reason why there is no knee already contains a command.
    """
    if "--resume" in knee.why:
        return ""
    command = f"just knee {knee.variant}{rerun.place(report.target)}"
    if CONTRADICT in knee.why:
        return f"\n  search anew, with longer trials (--duration) or a wider --precision: {command}"
    if "not resolved" in knee.why:
        return f"\n  try again when the machine is quiet: just knee{rerun.resumed(report.run, report.target)}"
    if knee.limited_by == "generator":
        return f"\n  the generator ({knee.generator}) was the limit: {'; or '.join(_list_alternatives(knee))}"
    return f"\n  mend that, or ask for less (--p99, --connections), then search anew: {command}"


def command_at_knee(report: KneeReport, knee: Knee) -> str:
    """Return the `just bench` command to measure a variant at fractions of its knee (highest rate within the latency bound).

    - `--sweep` is `at-knee`, a list of loads at such fractions of a knee. If the search was made with another load than that of
      `at-knee`, it is `YOURS.toml`, and a remark after the command says how the user has to write this file.
    - `--knee` is the name of the search, from which `bench` reads the knee, if the search was about this variant only. If it was
      about several variants, `bench` would read the baseline's knee from it. So `--knee` is then the variant's knee as a number.
    """
    target = rerun.place(report.target)
    difference = describe_difference(report.load, load_sweep(AT_KNEE)[1].load_points)
    sweep = "YOURS.toml" if difference else AT_KNEE
    how = f" (YOURS: lab/sweeps/{AT_KNEE}.toml with this load: it is {difference})" if difference else ""
    search_or_rate = report.run if len(report.knees) == 1 else f"{knee.rate_rps or 0:.0f}"
    return f"just bench {knee.variant} --sweep {sweep}{target} --knee {search_or_rate}{how}"


def _list_alternatives(knee: Knee) -> Sequence[str]:
    """Return remedies for a search that the generator or the backend limited: cheaper generators, and a target with more CPUs.

    A cheaper generator needs less CPU per request than the one that was used. The cheapest one comes first, and each text says
    how to install the generator. If the backend was the limit, the only remedy is more CPUs.
    """
    if knee.limited_by == "backend":
        return [MANY_CPUS]
    better = get_generator("wrk2").stand_ins if knee.generator != "wrk2" else ()
    names = ["wrk2", *better] if better else []
    cheaper = names[: names.index(knee.generator)] if knee.generator in names else names
    return [*(f"{name}: {GENERATORS[name].remedy}" for name in cheaper), MANY_CPUS]
