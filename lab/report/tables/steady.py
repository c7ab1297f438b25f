"""A summary as a terminal table, as JSON and as Markdown, with its verdicts. Milliseconds and microseconds only here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import exp
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lab.analysis.effects import Effect
from lab.analysis.rows import Row
from lab.analysis.summary import Summary
from lab.analysis.verdicts import effect_text, floor_line, verdicts
from lab.base.text import aligned
from lab.model.metrics import QUANTILES
from lab.model.sweeps import Point
from lab.stats.units import format_rate, three_digits

HEADERS = (
    "variant",
    "generator",
    "offered",
    "achieved",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "errors",
    "CPU/req",
    "blocks",
    "effect",
)
UNITS = ("", "", "req/s", "req/s", "ms", "ms", "ms", "ms", "ms", "", "µs", "", "")
LEFT = frozenset({0, 1, 12})  # text; everything else is a number and stands right


def print_table(console: Console, summary: Summary, width: int | None = None) -> None:
    """The rows grouped by point, numbered notes, and the verdicts with what to apply (of a baseline alone, its floor).

    One line per row where it fits; else two, the variant with its generator and effect above its numbers. What is not a
    terminal gets one line per row whatever its length, so that logs can be searched.
    """
    limit = width or (console.width if console.is_terminal else None)
    found = verdicts(summary)
    lines = [*table_lines(summary, limit), Text("")]
    for verdict in found:
        lines.append(Text(verdict.text, style="bold" if verdict.kind == "apply" else ""))
        lines += [Text(f"  {line}") for line in verdict.snippet.splitlines()]
    for line in lines if found else [*lines, Text(floor_line(summary))]:
        console.print(line, soft_wrap=limit is None, highlight=False)


def table_lines(summary: Summary, width: int | None) -> list[Text]:
    numbers = _numbered(summary)
    grid = [[Text(text, style="bold") for text in HEADERS], [Text(text, style="dim") for text in UNITS]]
    grid += [_cells(row, numbers) for row in summary.rows]
    layouts = (layout(grid, gap) for layout, gap in ((_one_line, 2), (_one_line, 1), (_two_lines, 2)))
    blocks = next((blocks for blocks in layouts if width is None or _width(blocks) <= width), _two_lines(grid, 1))
    lines = [*blocks[0], *blocks[1]]
    point = ""
    for row, block in zip(summary.rows, blocks[2:], strict=True):
        if row.point.name != point:
            point = row.point.name
            lines += [Text(""), _heading(row.point)]
        lines += block
    lines += _not_measurable(summary)
    for line in lines:
        line.rstrip()
    notes = [Text(f"{superscript(number)} {note}", style="dim") for note, number in numbers.items()]
    return [*lines, Text(""), *notes, *(Text(note, style="dim") for note in summary.notes)]


def _not_measurable(summary: Summary) -> list[Text]:
    """A line per variant that was asked for and cannot be shown here; why is in its verdict."""
    found = summary.not_measurable
    width = max((cell_len(item.variant) for item in found), default=0)
    lines = [
        Text.assemble((item.variant.ljust(width), "bold"), (f"  not measurable: {item.what}", "yellow"))
        for item in found
    ]
    return [Text(""), Text.assemble(("not measurable here", "bold cyan")), *lines] if found else []


def _width(blocks: Sequence[Sequence[Text]]) -> int:
    return max(cell_len(line.plain.rstrip()) for block in blocks for line in block)


def _numbered(summary: Summary) -> dict[str, int]:
    return {
        note: number for number, note in enumerate(dict.fromkeys(note for row in summary.rows for note in row.notes), 1)
    }


def _one_line(grid: Sequence[Sequence[Text]], gap: int) -> list[list[Text]]:
    return [[line] for line in aligned(grid, LEFT, gap)]


def _two_lines(grid: Sequence[Sequence[Text]], gap: int) -> list[list[Text]]:
    """Variant, generator and effect above, numbers below."""
    above = aligned([[*row[:2], *row[12:]] for row in grid], frozenset({0, 1, 2}), gap)
    below = aligned([[Text(""), *row[2:12]] for row in grid], frozenset(), gap)
    return [[line] if number == 1 else [above[number], line] for number, line in enumerate(below)]


def load_text(point: Point) -> str:
    """A point's load in words: `64 connections, closed loop, 5 s, 1kB.bin, new connection per request`."""
    load = f"{point.rate_rps:,g} req/s" if point.rate_rps is not None else "closed loop"
    extra = ["new connection per request"] if not point.keepalive else []
    extra += [f"TLS {point.tls}"] if point.tls not in ("none", "routed") else []
    extra += [f"client link {point.link_mbit:g} Mbit/s"] if point.link_mbit is not None else []
    extra += [f"accepts {point.accept_encoding}"] if point.accept_encoding != "identity" else []
    extra += [f"{point.routes} routes"] if point.routes != 1 else []
    extra += [f"TLS sessions {'' if point.resumption else 'not '}resumed"] if point.resumption is not None else []
    amount = f"{point.requests:,} requests" if point.requests is not None else f"{point.duration_s:g} s"
    return ", ".join([f"{point.connections:,} connections", load, amount, point.page, *extra])


def _heading(point: Point) -> Text:
    return Text.assemble((point.name, "bold cyan"), (f"  {load_text(point)}", "dim"))


def _cells(row: Row, numbers: Mapping[str, int]) -> list[Text]:
    marks = {
        effect.metric: "↑" if effect.estimate and effect.estimate.effect > 0 else "↓"
        for effect in row.effects
        if effect.judgement == "marked"
    }
    lost, more = sum(row.cell.errors.values()), sum(row.cell.errors_invalid.values())
    refs = ",".join(superscript(numbers[note]) for note in row.notes)
    colour = {"claimed": "bold green" if all(effect.better for effect in row.shown) else "bold red", "a/a": "cyan"}
    return [
        Text(row.arm.name, style="bold" if row.arm.role == "variant" else ""),
        Text(_made_by(row)),
        Text(format_rate(row.point.rate_rps) if row.point.rate_rps is not None else "closed"),
        Text(format_rate(row.cell.shown("rate")) + marks.get("rate", "")),
        *(Text(three_digits(row.cell.shown(name), 1e3) + marks.get(name, "")) for name in QUANTILES),
        Text(three_digits(row.cell.shown("slowest_s"), 1e3)),
        Text(f"{lost:,}" + (f" (+{more:,})" if more else ""), style="red" if lost else ""),
        Text(three_digits(row.cell.shown("cpu_per_request"), 1e6) + marks.get("cpu_per_request", "")),
        Text(
            f"{row.cell.valid_blocks}/{row.cell.planned_blocks}{refs}",
            style="yellow" if row.cell.valid_blocks < row.cell.planned_blocks else "",
        ),
        Text(
            ", ".join(effect_text(effect) for effect in row.shown),
            style=colour.get(row.shown[0].judgement, "dim") if row.shown else "",
        ),
    ]


def _made_by(row: Row) -> str:
    """The generator used, and the one it stands in for: `k6 (for wrk2)`."""
    name = row.cell.generator or row.point.generator
    return f"{name} (for {row.cell.stand_in_for})" if row.cell.stand_in_for else name


def superscript(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def as_json(summary: Summary) -> dict[str, Any]:
    """Plain data with stable keys, in seconds, requests per second and ratios (variant/baseline); null = not known.

    {schema_version, target, blocks, seed, complete, floor: str, notes: [str], not_measurable: [{variant, what, why, remedy}],
     verdicts: [{arm, kind, text, snippet}],
     rows: [{arm, variant, role, baseline, point, connections, generator, stand_in_for,
             offered_rps (null = closed loop), achieved_rps, latency_s: {p50, p90, p99, p99.9, max}, histogram,
             requests, errors: {kind: n}, errors_invalid: {kind: n}, cpu_per_request_s, cpu_of, memory_bytes,
             gauges: {role/name: value}, bring_up_s, valid_blocks, planned_blocks, invalid: {reason: n},
             generator_limited, notes: [str],
             effects: [{metric, against, primary, judgement, blocks, ratio, ratio_low, ratio_high, p_value,
                        holm_p_value, floor_ratio, hodges_lehmann_ratio, hodges_lehmann_low,
                        hodges_lehmann_high, notes: [str]}]}]}
    Intervals and p-values are null below six blocks. `judgement` as in `Effect`, `kind` as in `Verdict`.
    """
    return {
        "schema_version": 1,
        "target": summary.target,
        "blocks": summary.blocks,
        "seed": summary.seed,
        "complete": summary.complete,
        "floor": floor_line(summary),
        "not_measurable": [item.model_dump() for item in summary.not_measurable],
        "notes": list(summary.notes),
        "verdicts": [asdict(verdict) for verdict in verdicts(summary)],
        "rows": [_row_json(row) for row in summary.rows],
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "arm": row.arm.name,
        "variant": row.arm.variant,
        "role": row.arm.role,
        "baseline": row.arm.baseline,
        "point": row.point.name,
        "connections": row.point.connections,
        "generator": row.cell.generator,
        "stand_in_for": row.cell.stand_in_for,
        "offered_rps": row.point.rate_rps,
        "achieved_rps": row.cell.shown("rate"),
        "latency_s": {name: row.cell.shown(name) for name in QUANTILES} | {"max": row.cell.shown("slowest_s")},
        "histogram": row.cell.histogram,
        "requests": row.cell.requests,
        "errors": dict(row.cell.errors),
        "errors_invalid": dict(row.cell.errors_invalid),
        "cpu_per_request_s": row.cell.shown("cpu_per_request"),
        "cpu_of": row.cell.cpu_of,
        "memory_bytes": row.cell.shown("memory_bytes"),
        "gauges": dict(row.cell.gauges),
        "bring_up_s": row.cell.shown("bring_up_s"),
        "valid_blocks": row.cell.valid_blocks,
        "planned_blocks": row.cell.planned_blocks,
        "invalid": {str(reason): count for reason, count in row.cell.invalid.items()},
        "generator_limited": row.generator_limited,
        "notes": list(row.notes),
        "effects": [effect_json(effect) for effect in row.effects],
    }


def effect_json(effect: Effect) -> dict[str, Any]:
    estimate = effect.estimate
    low, high = estimate.interval if estimate and estimate.interval else (None, None)
    return {
        "metric": effect.metric,
        "against": effect.against,
        "primary": effect.primary,
        "judgement": effect.judgement,
        "blocks": estimate.n if estimate else 0,
        "ratio": estimate.ratio if estimate else None,
        "ratio_low": _ratio(low),
        "ratio_high": _ratio(high),
        "p_value": estimate.p_value if estimate and estimate.has_interval else None,
        "holm_p_value": effect.holm_p,
        "floor_ratio": _ratio(effect.floor),
        "hodges_lehmann_ratio": _ratio(estimate.hodges_lehmann) if estimate else None,
        "hodges_lehmann_low": _ratio(estimate.hl_low) if estimate else None,
        "hodges_lehmann_high": _ratio(estimate.hl_high) if estimate else None,
        "notes": [*([effect.note] if effect.note else []), *(estimate.notes if estimate else ())],
    }


def as_markdown(summary: Summary) -> str:
    """One table per point with the terminal's columns, then the same notes and verdicts."""
    numbers = _numbered(summary)
    head = [f"{name} ({unit})" if unit else name for name, unit in zip(HEADERS, UNITS, strict=True)]
    lines: list[str] = []
    point = ""
    for row in summary.rows:
        if row.point.name != point:
            point = row.point.name
            rule = "|".join(" :-- " if column in LEFT else " --: " for column in range(len(head)))
            title = _heading(row.point).plain.replace("  ", "**: ", 1)
            lines += [*([""] if lines else []), f"**{title}", "", f"| {' | '.join(head)} |", f"|{rule}|"]
        lines.append(f"| {' | '.join(cell.plain.replace('|', '/') for cell in _cells(row, numbers))} |")
    for item in summary.not_measurable:
        lines.append(f"| {item.variant} | not measurable: {item.what} |{' |' * (len(head) - 2)}")
    notes = [f"{superscript(number)} {note}" for note, number in numbers.items()]
    lines += ["", *(f"- {note}" for note in [*notes, *summary.notes])]
    found = verdicts(summary)
    for verdict in found:
        lines += ["", verdict.text, *(["", "```", verdict.snippet.rstrip(), "```"] if verdict.snippet else [])]
    return "\n".join([*lines, *([] if found else ["", floor_line(summary)])]) + "\n"


def _ratio(log_ratio: float | None) -> float | None:
    return exp(log_ratio) if log_ratio is not None else None
