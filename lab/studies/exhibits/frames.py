"""The common parts of all exhibits (figures and tables of runs): the run's target and id, and reasons for missing data.

If a run, a variant or a load point is missing, the exhibit has the reason. The same holds for a damaged run, so that no exhibit
stops a notebook.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import plotly.graph_objects as go

from lab.analysis import rerun
from lab.analysis.aggregate.absolute import find_clusters, format_clusters
from lab.analysis.evidence import Evidence, Missing
from lab.base.errors import LabError
from lab.model.metrics import find_metric
from lab.model.names import DEFAULT_TARGET
from lab.model.variants.variants import sets_node
from lab.report.figures.intervals import MeasuredNumber
from lab.report.figures.style import add_note, make_empty_figure
from lab.stats import paired as stats

P = ParamSpec("P")
RunOrMissing = Evidence | Missing
"""A run, or the reason why there is none."""
TWO_CLUSTERS = "two clusters: "
"""The beginning of the note of an arm whose blocks fall into two clusters, which no mean describes."""


def draws_run(
    make: Callable[Concatenate[Evidence, str, P], go.Figure],
) -> Callable[Concatenate[RunOrMissing, str, P], go.Figure]:
    """Decorate a function that draws a run, so that it also accepts a missing or damaged run.

    For such a run the result is an empty figure with the reason. For any other run, the title gets the run's target.
    """

    @wraps(make)
    def draw(run: RunOrMissing, title: str, *args: P.args, **kwargs: P.kwargs) -> go.Figure:
        if isinstance(run, Missing):
            return make_empty_figure(title, fold_text(run.why))
        try:
            return add_runs([run], make(run, f"{title} ({run.run.record.target})", *args, **kwargs))
        except LabError as error:
            return add_runs([run], make_empty_figure(title, fold_text(f"{error.place}: {error.fault}")))

    return draw


def draws_published(
    make: Callable[Concatenate[Evidence | None, str, P], go.Figure],
) -> Callable[Concatenate[RunOrMissing, str, P], go.Figure]:
    """Decorate a function that draws published numbers next to a run, so that it also accepts a missing or damaged run.

    For such a run the figure has only the published numbers, and below the title the reason why the run is missing.
    """

    @wraps(make)
    def draw(run: RunOrMissing, title: str, *args: P.args, **kwargs: P.kwargs) -> go.Figure:
        reason = run.said if isinstance(run, Missing) else ""
        try:
            if isinstance(run, Evidence):
                return add_runs([run], make(run, f"{title} ({run.run.record.target})", *args, **kwargs))
        except LabError as error:
            reason = f"{error.place}: {error.fault}"
        figure = add_note(make(None, title, *args, **kwargs), fold_text(reason))
        return add_runs([run], figure, [reason] if figure.data else [])  # a figure that is only a gap needs no other

    return draw


def writes_run(make: Callable[Concatenate[Evidence | None, P], str]) -> Callable[Concatenate[RunOrMissing, P], str]:
    """Decorate a function that writes published numbers and a run as Markdown, so that it also accepts a missing or damaged run.

    For such a run the text has only the published numbers. The reason why the run is missing follows them.
    """

    @wraps(make)
    def write(run: RunOrMissing, *args: P.args, **kwargs: P.kwargs) -> str:
        reason = run.said
        if isinstance(run, Evidence):
            try:
                return make(run, *args, **kwargs)
            except LabError as error:
                reason = f"no run: {run.name} is damaged: {error.place}: {error.fault}"
        return f"{make(None, *args, **kwargs)}\n\n*{reason}*".lstrip()

    return write


def add_runs(runs: Iterable[RunOrMissing], figure: go.Figure, gaps: Sequence[str] | None = None) -> go.Figure:
    """Store in a figure's metadata the ids of the runs that it shows, and its gaps (parts without data).

    `just report` prints these ids, and counts and lists the gaps.

    Args:
        runs: The figure's runs; missing ones are ignored.
        figure: The figure.
        gaps: A text about what is missing, for each empty panel, line or row of the figure. None: the gaps that are already in
            the figure's metadata.

    """
    layout: Any = figure.layout
    empty = (layout.meta or {}).get("gaps", ()) if gaps is None else gaps
    ids = [run.run.record.id for run in runs if isinstance(run, Evidence)]
    return figure.update_layout(meta={"runs": list(dict.fromkeys(ids))} | ({"gaps": list(empty)} if empty else {}))


def note_lacking(run: Evidence, figure: go.Figure, variants: Sequence[str], point: str) -> go.Figure:
    """Write below a figure's title which of the requested variants and load points the run lacks, with reasons.

    Args:
        run: The run that the figure shows.
        figure: The figure.
        variants: The variants that the figure should show; empty: all of the run's.
        point: The pattern of the load points' names, with `*` as a wildcard.

    """
    missing, short = list_lacking(run, variants, point)
    return add_note(figure, fold_text("; ".join([*missing, *short])), missing)


def list_lacking(
    run: Evidence, variants: Sequence[str], pattern: str, rated: bool = False
) -> tuple[list[str], list[str]]:
    """Return which of the requested variants and load points a run lacks, each with the reason.

    Args:
        run: The run.
        variants: The requested variants; empty: all of the run's.
        pattern: The pattern of the load points' names, with `*` as a wildcard.
        rated: Whether only load points with an offered rate count.

    Returns:
        (lines about data that no block has, lines about data that only some of the blocks have). A block is one repetition of the
        plan.

    """
    points = list_points(run, pattern)
    if not points:
        return [f"no load of this run is called `{pattern}`"], []
    rates = {point.name: point.rate_rps for point in run.points}
    names = variants or [item.variant for item in run.run.record.not_measurable]
    missing, short = [f"{name} is {reason}" for name in names if (reason := explain_absence(run, name))], list[str]()
    for arm in arms_of(run, variants):
        for point in (point for point in points if not rated or rates[point] is not None):
            if reason := run.lost(arm, point):
                if run.blocks(arm, point):
                    short.append(f"{arm} at {point}: {reason}")
                else:
                    missing.append(f"{arm} at {point}: {reason}: just bench {arm}{rerun.load(run.run.record)}")
    return missing, short


def explain_absence(run: Evidence, variant: str) -> str:
    """Return the reason why a run has not measured a variant, if possible with the command that measures the variant.

    Example: `not part of this run: just bench …`. The text is empty if the run has measured the variant.
    """
    record = run.run.record
    if run.arms(variant):
        return ""
    unable = next((item for item in (*record.not_measurable, *run.unable) if item.variant == variant), None)
    if unable is not None:
        return f"not measurable here ({unable.what}: {unable.why})"
    if record.target == DEFAULT_TARGET and sets_node(variant):
        return f"not measurable here (it sets what is the node's own): {rerun.bench(variant, record.sweep, 'kind')}"
    return f"not part of this run: just bench {variant}{rerun.load(record)}"


def gap_lines(missing: Sequence[str]) -> list[str]:
    """Return lines of Markdown about missing data: for each text an empty line, then `*nothing to show: …*`.

    The command `just report` recognizes these lines, and counts them as gaps.

    Args:
        missing: Texts that name what is missing, and why.

    """
    return [line for need in missing for line in ("", f"*nothing to show: {need}*")]


def fold_text(text: str, width: int = 90) -> str:
    """Break a long text into lines with `<br>`, since plotly does not break the lines of a figure's texts.

    Args:
        text: The text.
        width: The largest number of characters of a line.

    """
    return "<br>".join(textwrap.wrap(text, width, break_on_hyphens=False))


def list_points(run: Evidence, pattern: str) -> list[str]:
    """Return the names of a run's load points that match a pattern; control runs are left out."""
    return [point.name for point in run.points if not point.control and fnmatchcase(point.name, pattern)]


def arms_of(run: Evidence, variants: Sequence[str]) -> list[str]:
    """Return the names of a run's arms that measure some variants.

    An arm is a variant in a run. If `variants` is empty, the result is all arms. Second measurements of a baseline (A/A) are left
    out.
    """
    return [arm for variant in variants for arm in run.arms(variant)] if variants else run.arms()


def make_row(run: Evidence, arm: str, point: str, metric: str, label: str) -> MeasuredNumber | None:
    """Return a metric of an arm (variant of a run) at a load point as a row of a figure, or None where no block has it.

    The value is the median of the blocks (repetitions) with its 95 % interval. For blocks in two clusters there is no interval, but a note.

    Args:
        run: The run.
        arm: The arm's name.
        point: The load point's name.
        metric: The metric's name.
        label: The name of the row.

    """
    values = run.values(arm, point, metric)
    numbers = [value for value in values.values() if value is not None]
    if not numbers:
        return None
    if clusters := find_clusters(numbers, metric):
        note = f"{TWO_CLUSTERS}{format_clusters(find_metric(metric), clusters, len(numbers))}"
        return MeasuredNumber(label, arm, sorted(numbers)[len(numbers) // 2], None, None, numbers, note)
    level, missing = stats.estimate_median(numbers), len(values) - len(numbers)
    return MeasuredNumber(
        label, arm, level.value, level.low, level.high, numbers, f"unknown in {missing} blocks" if missing else ""
    )
