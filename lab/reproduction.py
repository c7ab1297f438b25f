"""A study's published numbers with a run's beside them: workers and their law, gains against what was claimed, placement, tables.

Refuses to compare levels of different machines (what is drawn in one plot has its own law, or is relative to its own baseline)
and to judge (`lab.claims`). Where a run lacks something, what stands there says why.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from lab import capacity_scaling, figures, published, scalability, stats, study_tables
from lab.claims import claims, fits
from lab.claims.measuring import said_as
from lab.errors import UsageError, did_you_mean
from lab.evidence import Evidence
from lab.figures.intervals import Told
from lab.figures.law import Sized
from lab.figures.style import INK, dressed, gap
from lab.studies import load_study
from lab.summary import Summary, summarise_run

NOTHING = Summary(None, 0, 0, (), (), {})
"""Of no run: its tables have the published numbers alone."""
STEERING = "rps"
INTERRUPTS = "irq-affinity"


def published_law(study: str) -> Sized:
    """A study's table of workers with its law. UsageError where it has none."""
    found = capacity_scaling.sized(f"{capacity_scaling.PREFIX}{study}")
    pairs = zip(found.sizes, found.rates_rps, strict=True)
    told = [(size, Told(_workers(size), "published", rate_rps)) for size, rate_rps in pairs]
    return Sized(f"{study}, as published", told, found.fit())


def measured_law(run: Evidence, variants: str, point: str) -> Sized:
    """Requests per second of every arm that `variants` fits, by its workers; the law of the blocks that the proxy limited."""
    told: list[tuple[float, Told]] = []
    ceilings: list[tuple[float, float]] = []
    for arm in (each for each in run.arms() if fits(variants, each)):
        for at in _points(run, point):
            size = capacity_scaling.workers_of(run.run, arm)
            rates = {block: rate for block, rate in run.values(arm, at, "rate").items() if rate}
            if size is None or not rates:
                continue
            limits = {block: sample.limited_by for block, sample in run.blocks(arm, at).items()}
            level = stats.middle(list(rates.values()))
            note = f"limited by: {', '.join(sorted({limits[block] or 'the rate offered' for block in rates}))}"
            label = f"{arm} at {at}"
            told.append((float(size), Told(label, arm, level.value, level.low, level.high, list(rates.values()), note)))
            ceilings += [(float(size), rate) for block, rate in rates.items() if limits[block] == "proxy"]
    absent = [item for item in run.run.record.not_measurable if fits(variants, item.variant)]
    kinds = ", ".join(dict.fromkeys(item.what for item in absent))
    missing = [f"not measurable here ({kinds}): {', '.join(item.variant for item in absent)}"] if absent else []
    name = f"measured on {run.run.record.target}"
    try:
        return Sized(
            name, told, scalability.fit([n for n, _ in ceilings], [x for _, x in ceilings]), "; ".join(missing)
        )
    except ValueError as error:
        return Sized(name, told, None, "; ".join([f"no law: {str(error).removeprefix('fit: ')}", *missing]))


def gains(
    run: Evidence, title: str, metric: str, point: str, pairs: Sequence[tuple[str, str]], claimed: Sequence[str]
) -> go.Figure:
    """The metric's change in percent, of each (variant, what it is against), and the claims of these ids as lines.

    Pairs that the run does not have are named below it, with why.
    """
    points = _points(run, point)
    found = {
        pair: [row for at in points if (row := _gain(run, *pair, at, metric, len(points) > 1)) is not None]
        for pair in pairs
    }
    rows = [row for each in found.values() for row in each]
    missing = [
        f"{variant} against {against}: {_why_not(run, variant, against)}"
        for variant, against in pairs
        if not found[variant, against]
    ]
    if not rows:
        return gap(title, "<br>".join(missing))
    name, unit = f"{said_as(metric)[0]}, change", "%"
    figure = figures.intervals(rows, title, name, unit)
    figure.add_vline(x=0, line={"color": INK, "width": 1})
    for claim in claimed:
        value, text = _claimed(claim)
        line, note = {"color": INK, "dash": "dash", "width": 1.5}, {"text": text, "font": {"size": 11}}
        figure.add_vline(x=value, line=line, annotation=note, annotation_position="top")
    below = "diamond: paired effect with its 95 % interval; rings: single blocks; dashed: as claimed"
    dressed(figure, title, 170 + 34 * len(rows) + 18 * len(missing), below)
    figure.update_layout(margin_b=70 + 18 * len(missing))
    return figure.update_xaxes(title_text="<br>".join([f"{name} ({unit})", *missing]))


def _why_not(run: Evidence, variant: str, against: str) -> str:
    absent = {item.variant: item.what for item in run.run.record.not_measurable}
    for name in (variant, against):
        if name in absent:
            return f"not measurable here ({absent[name]})"
        if not run.arms(name):
            return f"{name} is not part of this run"
    return "no block in which both count"


def _gain(run: Evidence, variant: str, against: str, point: str, metric: str, named: bool) -> Told | None:
    """None where the run has not measured both in one block."""
    mine, other = (next(iter(run.arms(name)), None) for name in (variant, against))
    if mine is None or other is None:
        return None
    values, theirs = run.values(mine, point, metric), run.values(other, point, metric)
    sides = {block: (values[block] or 0.0, theirs.get(block) or 0.0) for block in values}
    both = {block: pair for block, pair in sides.items() if min(pair) > 0}
    if not both:
        return None
    found = stats.paired([pair[0] for pair in both.values()], [pair[1] for pair in both.values()])
    blocks = [_percent(first / second) for first, second in both.values()]
    limits = {sample.limited_by for arm in (mine, other) for sample in run.blocks(arm, point).values()}
    note = "in some block the generator was the limit" if metric == "rate" and "generator" in limits else ""
    label = f"{variant} against {against}{f' · {point}' if named else ''}{' (generator-limited)' if note else ''}"
    low, high = (None, None) if found.ratio_interval is None else (_percent(end) for end in found.ratio_interval)
    return Told(label, variant, _percent(found.ratio), low, high, blocks, note)


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _claimed(name: str) -> tuple[float, str]:
    """(change in percent, words) of a claim that published one number, in percent or as a factor."""
    known = {claim.id: claim for claim in claims()}
    if name not in known:
        raise UsageError("claims.csv", f"there is no claim '{name}'", did_you_mean(name, known))
    claim = known[name]
    try:
        value = float(claim.published)
    except ValueError:
        raise UsageError("claims.csv", f"{name} published no single number", "name another claim") from None
    text = f"{name}: {claim.published} {claim.unit}"
    return (_percent(value), text) if claim.unit.startswith("x") else (value, text)


def published_placement() -> list[str]:
    """Markdown: the table's head, and a row per instance type."""
    columns = ("irq_cores", "rps_cores", "nginx_worker_cores")
    rows = [(f"{row['instance_type']}, published", *(row[name] for name in columns)) for row in _placements()]
    return [
        "| machine | interrupts on CPUs | packet steering to CPUs | workers on CPUs |",
        "| --- | --- | --- | --- |",
        *(f"| {' | '.join(map(str, row))} |" for row in rows),
    ]


def _placements() -> Sequence[dict[str, published.Value]]:
    return [dict(row) for row in published.rows("aws_a1_irq_mapping")]


def placed(run: Evidence, variant: str) -> str:
    """Markdown: one more row, what was read back of a variant on its first bring-up, or why there is nothing. UsageError when damaged."""
    arm = next(iter(run.arms(variant)), None)
    where = f"{run.run.record.target}, {variant}"
    if arm is None:
        missing = next((item for item in run.run.record.not_measurable if item.variant == variant), None)
        why = f"not measurable here: {missing.what}: {missing.why}" if missing else "not part of this run"
        return f"| {where} | {why} | – | – |"
    facts = run.run.record.facts
    own = facts.get("cpus_proxy") or facts.get("pinning", "not told")
    readings = run.run.readings(1, arm)
    found = {str(each.get("name") or each.get("kind")): str(each.get("observed")) for each in readings}
    steered = found.get(STEERING, "where they arrive")
    steering = f"the proxy's own: {own}" if steered == "own" else steered
    return f"| {where} | {found.get(INTERRUPTS, 'left as they are')} | {steering} | the proxy's own: {own} |"


def tables(study: str, titles: Sequence[str], run: Evidence | None) -> str:
    """Markdown: the study's tables (those of these titles, if any are named) with the run's cells beside the published ones.

    MeasuringError and UsageError for a run that cannot be summarised.
    """
    known = load_study(study)
    summary = summarise_run(run.run.record, run.samples, run.run.histogram) if run is not None else NOTHING
    shown = [table for table in study_tables.shaped(known, summary) if not titles or table.shape.title in titles]
    return study_tables.as_markdown(shown)


def _points(run: Evidence, pattern: str) -> list[str]:
    return [point.name for point in run.points if not point.control and fits(pattern, point.name)]


def _workers(size: float) -> str:
    return f"{size:g} worker{'' if size == 1 else 's'}"
