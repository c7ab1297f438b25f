"""The exhibits about streamed or long-lived responses (events, WebSockets, gRPC, large transfers): whether systems pass them.

    ("token streams", "haproxy", "late", "106 ms [106, 106]", "212 ms [212, 212]", "27.4 µs [26.4, 28.4]", …)   a row of the table

A table has a row for each variant and load point of a study's runs, with delays and the CPU cost. A figure has the delay of each
event over time. The numbers are measured as for claims (`lab.studies.claims.measuring`), and runs are never pooled. A missing run
is a row with the command that makes the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import median

import plotly.graph_objects as go

from lab.analysis.evidence import Evidence, Shelf
from lab.generators.events import Events, read_event_delays_s
from lab.model.metrics import find_metric
from lab.model.plan import Arm
from lab.model.sweeps import LoadPoint
from lab.model.variants.knobs import load_knob
from lab.records.sweep_files import load_sweep
from lab.report import figures
from lab.report.figures.intervals import MeasuredNumber
from lab.report.figures.style import make_empty_figure
from lab.report.grid import make_text_table
from lab.report.markdown import render_markdown
from lab.stats.paired import estimate_median
from lab.studies.claims import ClaimTest, Other
from lab.studies.claims.measuring import measure_test
from lab.studies.exhibits.frames import arms_of, draws_run, explain_absence, gap_lines, note_lacking
from lab.studies.study_files import StudyChange, load_study

LATE_S = 0.01
"""The median delay in seconds from which on events, or messages that come back, count as late."""
TLS = "-tls"
"""The end of the names of knobs that only give a system a certificate; such a system still counts as shipped."""
ENDS = {"not_opened": "refused", "cut": "cut"}
"""Outcome of a stream or WebSocket that did not pass → the word for it."""


@dataclass(frozen=True, slots=True)
class Service:
    """A kind of streamed or long-lived response, and the metrics by which the table shows it.

    Attributes:
        title: The name of the kind in words.
        delays: The metrics of the median delay and of the delay that one in a hundred exceeds; empty: none.
        cost: The metric of the CPU time of one event, message, call or transfer.

    """

    title: str
    delays: tuple[str, ...]
    cost: str


EVENTS = Events.name
"""The generator of streams of events."""
SERVICES: Mapping[str, Service] = {
    EVENTS: Service("token streams", ("delay_p50_s", "delay_p99_s"), "cpu_per_event_s"),
    "k6-websocket": Service("WebSockets", ("round_trip_p50_s", "round_trip_p99_s"), "cpu_per_message_s"),
    "k6-grpc": Service("gRPC", (), "cpu_per_request"),
    "h2load": Service("large transfers", (), "cpu_per_request"),
}
"""Generator of a load → the kind of streamed or long-lived response that the load consists of."""


def passing(shelf: Shelf, study: str) -> str:
    """Return a Markdown table of a study's systems: which streamed or long-lived responses pass each, and at what cost.

    A list below the table explains the settings with which the systems were measured.

    Args:
        shelf: The committed runs.
        study: The study's key. Its own run and each of its `changes` give rows.

    """
    settings, missing = dict[str, str](), list[str]()
    rows: dict[str, list[tuple[str, ...]]] = {service.title: [] for service in SERVICES.values()}
    for change, names, service, run in _select_runs(shelf, study):
        if run is None:
            command = change.command(quick=False, place="")
            missing.append(f"{service.title} ({change.question}): {command}")
            rows[service.title].append((", ".join(names), f"no run yet: `{command}`", *[""] * 6))
            continue
        place = f"{run.name} on {run.run.record.target}"
        for arm in (arm for arm in run.run.record.arms if arm.role in ("variant", "baseline")):
            knobs = [name for name in run.run.record.variants[arm.variant].knobs if not name.endswith(TLS)]
            settings |= {name: load_knob(name).title for name in knobs}
            rows[service.title] += [(*_make_row(run, arm, point, service, knobs), place) for point in run.points]
        absent = (name for name in names if not run.arms(name))
        rows[service.title] += [(name, explain_absence(run, name), *[""] * 5, place) for name in absent]
    heads = (
        "",
        "variant",
        "passes",
        "delay p50",
        "delay p99",
        "CPU of each",
        "against its baseline",
        "throughput",
        "run",
    )
    table = make_text_table(heads, [(title, *row) for title, lines in rows.items() for row in lines])
    caption = (
        f"medians of the blocks [95 %]; refused or cut: the most in a block; late: the median delay is above {1e3 * LATE_S:g} ms;"
        " delay: of an event, of a WebSocket a message's round trip; CPU of each: of an event, a message, a call or a transfer"
    )
    explained = [f"- `{name}`: {title}" for name, title in settings.items()]
    return "\n".join([render_markdown([table]), *explained, *gap_lines(missing), "", caption])


def describe_systems(shelf: Shelf, study: str) -> dict[tuple[str, str], str]:
    """Return in words how each system serves each kind of streamed or long-lived response, with a link to each run.

    The numbers are from the runs of a study. The mapping is (system, kind of response) → text. A kind is for example
    `token streams`. Only variants that were compared with a baseline are described.

    Args:
        shelf: The committed runs.
        study: The study's key.

    """
    texts: dict[tuple[str, str], list[str]] = {}
    for _, _, service, run in _select_runs(shelf, study):
        for arm, point in product(run.run.record.arms, run.points) if run else ():
            if run and arm.role == "variant":
                variant = run.run.record.variants[arm.variant]
                knobs = [name for name in variant.knobs if not name.endswith(TLS)]
                name, passes, middle, tail, cost, gain, _ = _make_row(run, arm, point, service, knobs)
                delay = f"delay p50 {middle}, p99 {tail}; " if middle else ""
                more = f" ({gain} against {arm.baseline})" if gain else ""
                place = f"[{run.name}](data/reference/{run.name}) on {run.run.record.target}"
                text = f"{name}: {passes.replace('yes', 'passes', 1)}"
                text += f"; {delay}{find_metric(service.cost).title} {cost}{more}; {place}" if cost else ""
                texts.setdefault((variant.base, service.title), []).append(text)
    return {key: ". ".join(parts) for key, parts in texts.items()}


def _select_runs(shelf: Shelf, study: str) -> Iterator[tuple[StudyChange, list[str], Service, Evidence | None]]:
    """Yield (question, its variants, the kind of response that it is about, its run or None) for each question of a study.

    The study's main question comes second, after the first of its `changes`. A run with all variants is preferred to a run that
    lacks some.
    """
    file = load_study(study)
    own = StudyChange(question=file.question, variants=file.variants, sweep=file.sweep, quick=file.quick.sweep)
    for change in (*file.changes[:1], own, *file.changes[1:]):
        names = [*change.variants, *([change.against] if change.against else [])]
        choices = (
            shelf.of(change.sweep, change.quick, variant=choice, target=change.target)
            for choice in (names, *change.variants)
        )
        run = next((run for run in choices if isinstance(run, Evidence)), None)
        yield change, names, SERVICES[load_sweep(change.sweep)[1].load_points[0].generator], run


def _make_row(run: Evidence, arm: Arm, point: LoadPoint, service: Service, knobs: list[str]) -> tuple[str, ...]:
    """Return the cells of the table's row for an arm (variant of a run) at a load point, without the first and the last cell.

    Args:
        run: The run.
        arm: The arm.
        point: The load point.
        service: The kind of streamed or long-lived response that the load consists of.
        knobs: The names of the settings with which the system was measured.

    """

    def measure(metric: str, base: str | None = None) -> str:
        other, ratio = Other(variant=base) if base else None, find_metric(metric).ratio
        test = ClaimTest(
            metric=metric, points=point.name, ratio_to=other if ratio else None, minus=None if ratio else other
        )
        (part,) = measure_test(test, arm.variant, run)
        text = part.text.removeprefix(f"{find_metric(metric).title} ").partition(" against ")[0].partition(" at ")[0]
        return part.why if part.value is None else text

    system = f"{arm.variant} at {point.name}" if len(run.points) > 1 else arm.variant
    if not run.blocks(arm.name, point.name):
        return system, run.lost(arm.name, point.name), *[""] * 5
    asked, ends = point.connections * point.streams, ENDS if point.has_outcome else ()
    lost = {name: max(value or 0.0 for value in run.values(arm.name, point.name, name).values()) for name in ends}
    reasons = [f"{count:g} of {asked} {ENDS[name]}" for name, count in lost.items() if count]
    reasons += [f"the first after {measure('cut_s')}"] if lost.get("cut") else []
    late = [value for name in service.delays[:1] for value in run.values(arm.name, point.name, name).values() if value]
    answer = f"no: {', '.join(reasons)}" if reasons else "late" if late and median(late) > LATE_S else "yes"
    needed = f", with {', '.join(f'`{name}`' for name in knobs)}" if knobs else ""
    base = next((other.variant for other in run.run.record.arms if other.name == arm.baseline), None)
    delays = [measure(name) for name in service.delays] or ["", ""]
    cost, gain = measure(service.cost), measure(service.cost, base) if base else ""
    return system, answer + needed, *delays, cost, gain, measure("throughput") if point.transfer else ""


@draws_run
def event_delays(run: Evidence, title: str, variants: tuple[str, ...] = ()) -> go.Figure:
    """Draw the delay of each event over the time of its stream, with a line for each arm (variant of a run).

    An event's delay is the median over all streams of a sample, as the generator's output has it. A mark is the median over the blocks
    (repetitions), with its 95 % interval.

    Args:
        run: A run with a load of streams of events.
        title: The figure's title.
        variants: The variants to show; empty: all.

    """
    points = [point.name for point in run.points if point.generator == EVENTS]
    lines = {arm: [*_list_delays(run, arm, point)] for point in points for arm in arms_of(run, variants)}
    if not any(lines.values()):
        return make_empty_figure(title, "no streams of events were measured in this run")
    title_x, title_y = "seconds since a stream's first event was due", "delay of an event"
    figure = figures.scaling(lines, title, title_x, title_y, "s", log_y=True, log_x=False)
    seconds = sorted({due_s for line in lines.values() for due_s, _ in line if due_s.is_integer()})
    figure.update_xaxes(tickvals=seconds, ticktext=[f"{second:g}" for second in seconds])
    return note_lacking(run, figure, variants, "*")


def _list_delays(run: Evidence, arm: str, point: str) -> Iterator[tuple[float, MeasuredNumber]]:
    """Yield (the seconds after which an event is due, its delay over the blocks) for each event of an arm's streams."""
    by_event: dict[float, list[float]] = {}
    for sample in run.blocks(arm, point).values():
        for number, delay_s in enumerate(read_event_delays_s(run.run.raw(sample)[0])):
            by_event.setdefault(round(number * (sample.point.every_s or 0.0), 6), []).append(delay_s)
    for due_s, delays_s in by_event.items():
        level = estimate_median(delays_s)
        yield (
            due_s,
            MeasuredNumber(f"{arm}, event after {due_s:g} s", arm, level.value, level.low, level.high, delays_s),
        )
