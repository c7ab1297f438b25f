"""What every exhibit has around it: the run's target and id, or the gap where there is none, and what it lacks of variants and points, with why.

A damaged log is a gap, too: no exhibit stops a notebook.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import plotly.graph_objects as go

from lab.analysis import rerun
from lab.analysis.aggregate.absolute import clusters_of, clusters_text
from lab.analysis.evidence import Evidence, Missing
from lab.base.errors import LabError
from lab.model.metrics import about
from lab.model.names import DEFAULT_TARGET
from lab.model.variants.variants import of_the_node
from lab.report.figures.intervals import Told
from lab.report.figures.style import gap, noted
from lab.stats import paired as stats
from lab.studies.claims import fits

P = ParamSpec("P")
Run = Evidence | Missing
TWO_CLUSTERS = "two clusters: "
"""How the note begins of an arm whose blocks no mean describes."""


def figured(make: Callable[Concatenate[Evidence, str, P], go.Figure]) -> Callable[Concatenate[Run, str, P], go.Figure]:
    """The figure of a run under a title, or a gap with the reason."""

    @wraps(make)
    def shown(run: Run, title: str, *args: P.args, **kwargs: P.kwargs) -> go.Figure:
        if isinstance(run, Missing):
            return gap(title, folded(run.why))
        try:
            return of_runs([run], make(run, f"{title} ({run.run.record.target})", *args, **kwargs))
        except LabError as error:
            return of_runs([run], gap(title, folded(f"{error.place}: {error.fault}")))

    return shown


def beside(
    make: Callable[Concatenate[Evidence | None, str, P], go.Figure],
) -> Callable[Concatenate[Run, str, P], go.Figure]:
    """What was published with the run beside it; where there is none, or a damaged one, as one gap, what was published alone."""

    @wraps(make)
    def shown(run: Run, title: str, *args: P.args, **kwargs: P.kwargs) -> go.Figure:
        why = run.said if isinstance(run, Missing) else ""
        try:
            if isinstance(run, Evidence):
                return of_runs([run], make(run, f"{title} ({run.run.record.target})", *args, **kwargs))
        except LabError as error:
            why = f"{error.place}: {error.fault}"
        figure = noted(make(None, title, *args, **kwargs), folded(why))
        return of_runs([run], figure, [why] if figure.data else [])  # one that is nothing but a gap needs none

    return shown


def worded(make: Callable[Concatenate[Evidence | None, P], str]) -> Callable[Concatenate[Run, P], str]:
    """Markdown of a run, with what was published; of none, or a damaged one, what was published alone, and why."""

    @wraps(make)
    def shown(run: Run, *args: P.args, **kwargs: P.kwargs) -> str:
        why = run.said
        if isinstance(run, Evidence):
            try:
                return make(run, *args, **kwargs)
            except LabError as error:
                why = f"no run: {run.name} is damaged: {error.place}: {error.fault}"
        return f"{make(None, *args, **kwargs)}\n\n*{why}*".lstrip()

    return shown


def of_runs(runs: Iterable[Run], figure: go.Figure, gaps: Sequence[str] | None = None) -> go.Figure:
    """The figure with these runs' ids, which `just report` puts beside it, and what each of its empty panels, lines or rows lacks,
    which it counts and lists; None: as the figure says.
    """
    layout: Any = figure.layout
    empty = (layout.meta or {}).get("gaps", ()) if gaps is None else gaps
    ids = [run.run.record.id for run in runs if isinstance(run, Evidence)]
    return figure.update_layout(meta={"runs": list(dict.fromkeys(ids))} | ({"gaps": list(empty)} if empty else {}))


def lacking_noted(run: Evidence, figure: go.Figure, variants: Sequence[str], point: str) -> go.Figure:
    """The figure with what it lacks of these variants and points below its title."""
    missing, short = lacking(run, variants, point)
    return noted(figure, folded("; ".join([*missing, *short])), missing)


def lacking(run: Evidence, variants: Sequence[str], pattern: str, rated: bool = False) -> tuple[list[str], list[str]]:
    """(what has no block that counts: arms at points, variants, the points themselves; what has some), each with why.

    `rated`: only at points with a rate.
    """
    points = points_of(run, pattern)
    if not points:
        return [f"no load of this run is called `{pattern}`"], []
    rates = {point.name: point.rate_rps for point in run.points}
    wanted = variants or [item.variant for item in run.run.record.not_measurable]
    missing, short = [f"{each} is {why}" for each in wanted if (why := absent(run, each))], list[str]()
    for arm in arms_of(run, variants):
        for at in (at for at in points if not rated or rates[at] is not None):
            if why := run.lost(arm, at):
                if run.blocks(arm, at):
                    short.append(f"{arm} at {at}: {why}")
                else:
                    missing.append(f"{arm} at {at}: {why}: just bench {arm}{rerun.load(run.run.record)}")
    return missing, short


def absent(run: Evidence, variant: str) -> str:
    """What a variant is of which a run has no arm, with what it asks for or how it is measured; empty where it has one."""
    record = run.run.record
    if run.arms(variant):
        return ""
    unable = next((item for item in (*record.not_measurable, *run.unable) if item.variant == variant), None)
    if unable is not None:
        return f"not measurable here ({unable.what}: {unable.why})"
    if record.target == DEFAULT_TARGET and of_the_node(variant):
        return f"not measurable here (it sets what is the node's own): {rerun.bench(variant, record.sweep, 'kind')}"
    return f"not part of this run: just bench {variant}{rerun.load(record)}"


def gap_lines(missing: Sequence[str]) -> list[str]:
    """Lines of Markdown, each a gap that `just report` counts."""
    return [line for each in missing for line in ("", f"*nothing to show: {each}*")]


def folded(text: str, width: int = 90) -> str:
    """Long texts do not fold by themselves in a figure."""
    return "<br>".join(textwrap.wrap(text, width, break_on_hyphens=False))


def points_of(run: Evidence, pattern: str) -> list[str]:
    """Names of the points of that name or pattern, without control runs."""
    return [point.name for point in run.points if not point.control and fits(pattern, point.name)]


def arms_of(run: Evidence, variants: Sequence[str]) -> list[str]:
    return [arm for variant in variants for arm in run.arms(variant)] if variants else run.arms()


def told_of(run: Evidence, arm: str, point: str, metric: str, label: str) -> Told | None:
    """None where no block has the metric."""
    values = run.values(arm, point, metric)
    known = [value for value in values.values() if value is not None]
    if not known:
        return None
    if clusters := clusters_of(known, metric):
        note = f"{TWO_CLUSTERS}{clusters_text(about(metric), clusters, len(known))}"
        return Told(label, arm, sorted(known)[len(known) // 2], None, None, known, note)
    level, untold = stats.middle(known), len(values) - len(known)
    return Told(label, arm, level.value, level.low, level.high, known, f"not told in {untold} blocks" if untold else "")
