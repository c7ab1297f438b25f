"""An outcome summary as a terminal table, as JSON and as Markdown. Arms stand side by side, what came of each below one another:

    kill  100 req/s, …; kill after 5 s (role proxy, how delete)

                          baseline                  proxy-replicas-2
    failed requests          2,981 [2,975, 2,990]            0
      against baseline                                  −2,981 [−2,990, −2,972]

Shows what a disturbance produced and nothing else: a number that it left as its control run had it has no line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lab.analysis.effects import Effect
from lab.analysis.rows import Row, slowed_by
from lab.analysis.summary import Summary
from lab.analysis.verdicts import floor_line, interval_text, verdicts
from lab.model.metric import Metric
from lab.model.metrics import DIFFERENCES, METRICS
from lab.model.sweeps import Point
from lab.report.tables.steady import load_text, superscript
from lab.stats import paired as stats

MOVED = 1.2
"""What any system has is shown where it is so many times what the control run had, at least."""
CONTROL_METRICS = ("requests", "failed", "gap_s", "p50_during_s", "p99_during_s", "max_during_s")
LATENCY_AFTER = "_after_s"
UNDISTURBED = "nothing failed, and no good answer was missing for 0.1 s or three times the p99: what stands above came of the disturbance"


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a table: a title, a unit, and per arm (number, what follows it, style)."""

    title: str
    unit: str
    cells: tuple[tuple[str, str, str], ...]
    style: str = ""


def print_tables(console: Console, summary: Summary, width: int | None = None) -> None:
    """Each point's table, then the control runs', notes and verdicts. As many arms side by side as fit; the others below, beside
    the baseline again. What is not a terminal gets them all in one line.
    """
    limit = width or (console.width if console.is_terminal else None)
    lines: list[Text] = []
    numbers = _numbered(summary)
    for point in summary.points:
        rows = summary.at(point)
        lines += [Text(""), _heading(point)] if lines else [_heading(point)]
        for panel in _panels(summary, rows, numbers, limit):
            lines += [Text(""), *_aligned(*panel)]
        if point.control and (said := control_text(rows)):
            lines += [Text(""), Text(said, style="dim")]
    lines += [Text(""), *(Text(note, style="dim") for note in _notes(summary, numbers)), Text("")]
    found = verdicts(summary)
    for verdict in found:
        lines.append(Text(verdict.text, style="bold" if verdict.kind == "apply" else ""))
        lines += [Text(f"  {line}") for line in verdict.snippet.splitlines()]
    for line in lines if found else [*lines, Text(floor_line(summary))]:
        line.rstrip()
        console.print(line, soft_wrap=limit is None, highlight=False)


def as_markdown(summary: Summary) -> str:
    """The same tables, one column per arm."""
    numbers = _numbered(summary)
    parts: list[str] = []
    for point in summary.points:
        rows = summary.at(point)
        title = _heading(point).plain.replace("  ", "**: ", 1)
        head = ["", *(row.arm.name for row in rows)]
        parts += [
            *([""] if parts else []),
            f"**{title}",
            "",
            f"| {' | '.join(head)} |",
            f"|{' :-- |' + ' --: |' * len(rows)}",
        ]
        for line in _lines(summary, rows, numbers):
            title = f"{line.title}, {line.unit}" if line.unit else line.title
            cells = [f"{number}{after}" for number, after, _ in line.cells]
            parts.append(f"| {title.replace('  ', '&emsp;', 1)} | {' | '.join(cells)} |")
        if point.control and (said := control_text(rows)):
            parts += ["", said]
    parts += ["", *(f"- {note}" for note in _notes(summary, numbers))]
    found = verdicts(summary)
    for verdict in found:
        parts += ["", verdict.text, *(["", "```", verdict.snippet.rstrip(), "```"] if verdict.snippet else [])]
    return "\n".join([*parts, *([] if found else ["", floor_line(summary)])]) + "\n"


def as_json(summary: Summary) -> dict[str, Any]:
    """Plain data with stable keys; seconds, bytes and counts; null = not known.

    {complete, floor, notes: [str], verdicts: [{arm, kind, text, snippet}],
     metrics: {name: {title, better}},
     rows: [{arm, variant, role, baseline, point, control, disturbance, generator, stand_in_for, valid_blocks,
             planned_blocks, invalid: {reason: n}, clock_error_s, notes: [str],
             values: {metric: {block: value}}, medians: {metric: {value, low, high, blocks}},
             slowdowns: {p99 | p50: {ratio, low, high, blocks}},
             effects: [{metric, against, primary, judgement, blocks, difference, low, high, p_value, holm_p_value,
                        floor, hodges_lehmann, hodges_lehmann_low, hodges_lehmann_high, notes: [str]}]}]}
    Intervals and p-values are null below six blocks.
    """
    return {
        "complete": summary.complete,
        "floor": floor_line(summary),
        "notes": list(summary.notes),
        "verdicts": [asdict(verdict) for verdict in verdicts(summary)],
        "metrics": {name: {"title": METRICS[name].title, "better": METRICS[name].better} for name in DIFFERENCES},
        "rows": [_row_json(row) for row in summary.rows],
    }


def _row_json(row: Row) -> dict[str, Any]:
    disturbance = row.point.disturbance
    return {
        "arm": row.arm.name,
        "variant": row.arm.variant,
        "role": row.arm.role,
        "baseline": row.arm.baseline,
        "point": row.point.name,
        "control": row.point.control,
        "disturbance": disturbance.model_dump() if disturbance else None,
        "generator": row.cell.generator,
        "stand_in_for": row.cell.stand_in_for,
        "valid_blocks": row.cell.valid_blocks,
        "planned_blocks": row.cell.planned_blocks,
        "invalid": {str(reason): count for reason, count in row.cell.invalid.items()},
        "clock_error_s": row.cell.clock_error_s,
        "notes": list(row.notes),
        "values": {
            name: {str(block): value for block, value in found.items()} for name, found in row.cell.values.items()
        },
        "medians": {
            name: {"value": level.value, "low": level.low, "high": level.high, "blocks": level.n}
            for name in row.cell.values
            if (level := row.cell.level(name)) is not None
        },
        "slowdowns": {name: _slowdown_json(estimate) for name, estimate in row.cell.slowdowns.items()},
        "effects": [effect_json(effect) for effect in row.effects],
    }


def _slowdown_json(estimate: stats.Estimate) -> dict[str, Any]:
    low, high = estimate.ratio_interval or (None, None)
    return {"ratio": estimate.ratio, "low": low, "high": high, "blocks": estimate.n}


def effect_json(effect: Effect) -> dict[str, Any]:
    estimate = effect.estimate
    low, high = estimate.interval if estimate and estimate.interval else (None, None)
    return {
        "metric": effect.metric,
        "against": effect.against,
        "primary": effect.primary,
        "judgement": effect.judgement,
        "blocks": estimate.n if estimate else 0,
        "difference": estimate.effect if estimate else None,
        "low": low,
        "high": high,
        "p_value": estimate.p_value if estimate and estimate.has_interval else None,
        "holm_p_value": effect.holm_p,
        "floor": effect.floor,
        "hodges_lehmann": estimate.hodges_lehmann if estimate else None,
        "hodges_lehmann_low": estimate.hl_low if estimate else None,
        "hodges_lehmann_high": estimate.hl_high if estimate else None,
        "notes": [*([effect.note] if effect.note else []), *(estimate.notes if estimate else ())],
    }


def disturbance_text(point: Point) -> str:
    """What is done, and when: `kill after 5 s (role proxy, how delete)`."""
    if point.disturbance is None:
        return ""
    told = point.disturbance.model_dump(exclude_none=True)
    kind, at_s = told.pop("kind"), told.pop("at_s")
    details = ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in told.items()
    )
    return f"{kind} after {at_s:g} s" + (f" ({details})" if details else "")


def control_text(rows: Sequence[Row]) -> str:
    """What the control runs prove; empty where none is valid."""
    valid, planned = sum(row.cell.valid_blocks for row in rows), sum(row.cell.planned_blocks for row in rows)
    if not valid:
        return ""
    return (
        f"{valid} of {planned} control runs: {UNDISTURBED}"
        if valid < planned
        else f"{valid} control runs: {UNDISTURBED}"
    )


def _heading(point: Point) -> Text:
    done = "nothing is done to the system" if point.control else disturbance_text(point)
    return Text.assemble((point.name, "bold cyan"), (f"  {load_text(point)}; {done}", "dim"))


def _notes(summary: Summary, numbers: Mapping[str, int]) -> list[str]:
    return [*(f"{superscript(number)} {note}" for note, number in numbers.items()), *summary.notes]


def _numbered(summary: Summary) -> dict[str, int]:
    return {note: n for n, note in enumerate(dict.fromkeys(note for row in summary.rows for note in row.notes), 1)}


# -- what is shown ------------------------------------------------------------------------------------------


def _lines(summary: Summary, rows: Sequence[Row], numbers: Mapping[str, int]) -> Iterator[_Line]:
    yield _Line("blocks", "", tuple(_blocks(row, numbers) for row in rows))
    slowed = slowed_by(rows)
    for metric in metrics_shown(summary, rows):
        about = METRICS[metric]
        cells = tuple(_cell(row, metric, about) for row in rows)
        yield _Line(("  " if about.detail else "") + about.title, about.unit, cells, "dim" if about.detail else "")
        effects = [next((effect for effect in row.shown if effect.metric == metric), None) for row in rows]
        if any(effects):
            against = ", ".join(dict.fromkeys(effect.against for effect in effects if effect))
            yield _Line(f"  against {against}", about.unit, tuple(_effect_cell(effect) for effect in effects), "dim")
        if metric == f"{slowed}_during_s":
            yield _Line(
                f"  {slowed} during against before", "×", tuple(_slowdown_cell(row, slowed) for row in rows), "dim"
            )


def _slowdown_cell(row: Row, name: str | None) -> tuple[str, str, str]:
    estimate = row.cell.slowdowns.get(name) if name else None
    if estimate is None:
        return "–", "", ""
    ends = estimate.ratio_interval
    return ratio_text(estimate.ratio), f" [{', '.join(map(ratio_text, ends))}]" if ends else "", ""


def ratio_text(value: float) -> str:
    """Three significant digits, two decimals at most: 0.98, 12.3, 1,234."""
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def metrics_shown(summary: Summary, rows: Sequence[Row]) -> list[str]:
    """The metrics worth a line at this point: primary ones, what is never left out, and what the disturbance brought about."""
    wanted = {effect.metric for row in rows for effect in row.shown}
    known = [metric for metric in DIFFERENCES if any(metric in row.cell.values for row in rows)]
    if rows and rows[0].point.control:
        return [metric for metric in known if metric in CONTROL_METRICS]
    return [metric for metric in known if metric in wanted or _worth(summary, rows, metric)]


def _worth(summary: Summary, rows: Sequence[Row], metric: str) -> bool:
    about = METRICS[metric]
    if metric == "clock_error_s":
        return False  # a note says it
    if metric == "reloads" and not any("changes" in row.cell.values for row in rows):
        return any(row.cell.largest(metric) for row in rows)
    if metric == "max_before_s":
        return False
    if metric == "max_after_s":  # later than it acts, the worst is its doing as well
        return any(_moved(row.cell.largest(metric), row.cell.largest("max_during_s")) for row in rows)
    if metric.endswith(LATENCY_AFTER):
        return any(
            _moved(row.cell.largest(metric), row.cell.largest(metric.replace(LATENCY_AFTER, "_before_s")))
            for row in rows
        )
    if about.idle:
        controls = {row.arm.name: summary.control_of(row) for row in rows}
        return any(
            _moved(
                row.cell.largest(metric), control.cell.largest(metric) if (control := controls[row.arm.name]) else None
            )
            for row in rows
        )
    return about.always or any(row.cell.largest(metric) for row in rows)


def _moved(value: float | None, control: float | None) -> bool:
    if value is None:
        return False
    return control is None or value > MOVED * control


def _blocks(row: Row, numbers: Mapping[str, int]) -> tuple[str, str, str]:
    refs = ",".join(superscript(numbers[note]) for note in row.notes)
    return (
        f"{row.cell.valid_blocks}/{row.cell.planned_blocks}",
        refs,
        "yellow" if row.cell.valid_blocks < row.cell.planned_blocks else "",
    )


def _cell(row: Row, metric: str, about: Metric) -> tuple[str, str, str]:
    found, level = row.cell.values.get(metric), row.cell.level(metric)
    if found is None:
        return "", "", ""
    if level is None:
        return "–", "", ""
    mark = next(
        (_arrow(effect) for effect in row.effects if effect.metric == metric and effect.judgement == "marked"), ""
    )
    return about.text(level.value), f"{mark}{_spread(about, level, found)}", ""


def _arrow(effect: Effect) -> str:
    return "↑" if effect.estimate is not None and effect.estimate.effect > 0 else "↓"


def _spread(about: Metric, level: stats.Level, found: Mapping[int, float | None]) -> str:
    """The interval, or the range below six blocks; nothing where all blocks show the same; and how many did not tell."""
    known = [value for value in found.values() if value is not None]
    low, high = (level.low, level.high) if level.low is not None else (min(known), max(known))
    texts = about.text(low), about.text(high)
    untold = f" ({len(found) - len(known)} –)" if len(known) < len(found) else ""
    if texts[0] == texts[1] == about.text(level.value):
        return untold
    return (f" [{texts[0]}, {texts[1]}]" if level.low is not None else f" ({texts[0]} to {texts[1]})") + untold


def _effect_cell(effect: Effect | None) -> tuple[str, str, str]:
    if effect is None:
        return "", "", ""
    about = METRICS[effect.metric]
    if effect.judgement == "a/a" and effect.floor is not None:
        return "", f" floor {about.text(effect.floor)}", "cyan"
    if effect.estimate is None or effect.judgement == "not-judged":
        return "–", "", "dim"
    number = about.text(effect.estimate.effect, signed=True)
    if effect.judgement == "claimed":
        return number, interval_text(effect), "bold green" if effect.better else "bold red"
    if effect.judgement == "unresolved":
        return "~", interval_text(effect), "dim"
    return number, " no interval", "dim"


# -- lines of text ------------------------------------------------------------------------------------------


def _panels(
    summary: Summary, rows: Sequence[Row], numbers: Mapping[str, int], limit: int | None
) -> Iterator[tuple[Sequence[Row], list[_Line]]]:
    """As many arms as fit beside one another; the first arm is repeated, as it is what the others are compared with."""
    lines = list(_lines(summary, rows, numbers))
    rest = list(range(1, len(rows)))
    columns = [0]
    while True:
        while rest and (limit is None or len(columns) < 2 or _width(rows, lines, [*columns, rest[0]]) <= limit):
            columns.append(rest.pop(0))
        kept = [line for line in (_only(line, columns) for line in lines) if _told(line)]
        yield [rows[column] for column in columns], kept
        if not rest:
            return
        columns = [0]


def _only(line: _Line, columns: Iterable[int]) -> _Line:
    return _Line(line.title, line.unit, tuple(line.cells[column] for column in columns), line.style)


def _told(line: _Line) -> bool:
    return any(number or after for number, after, _ in line.cells)


def _width(rows: Sequence[Row], lines: Sequence[_Line], columns: Sequence[int]) -> int:
    shown = [_only(line, columns) for line in lines]
    return max(cell_len(line.plain.rstrip()) for line in _aligned([rows[column] for column in columns], shown))


def _aligned(rows: Sequence[Row], lines: Sequence[_Line]) -> list[Text]:
    """Numbers end in one column and what follows them begins there; an arm's name stands over both."""
    title = max(cell_len(line.title) for line in lines)
    unit = max(cell_len(line.unit) for line in lines)
    left = [max(cell_len(line.cells[n][0]) for line in lines) for n in range(len(rows))]
    right = [max(cell_len(line.cells[n][1]) for line in lines) for n in range(len(rows))]
    widths = [max(left[n] + right[n], cell_len(row.arm.name)) for n, row in enumerate(rows)]
    head = Text(" " * (title + 2 + unit))
    for row, width in zip(rows, widths, strict=True):
        style = "bold" if row.arm.role == "variant" else ""
        head.append_text(Text.assemble("   ", (row.arm.name.ljust(width), style)))
    found = [head]
    for line in lines:
        text = Text.assemble((line.title.ljust(title), line.style), "  ", (line.unit.ljust(unit), "dim"))
        for n, (number, after, style) in enumerate(line.cells):
            cell = f"{number.rjust(left[n])}{after}"
            text.append_text(Text.assemble("   ", (cell + " " * (widths[n] - cell_len(cell)), style)))
        found.append(text)
    return found
