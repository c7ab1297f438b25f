"""A study's published numbers with a run's beside them: gains against what was claimed, placement, tables.

Refuses to compare levels of different machines (what is drawn in one plot is relative to its own baseline)
and to judge (`lab.studies.claims`). Where a run lacks something, what stands there says why.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from lab.analysis import rerun
from lab.analysis.evidence import Evidence
from lab.analysis.summary import Summary
from lab.base.errors import UsageError, did_you_mean, refuse_unknown
from lab.model.metrics import about
from lab.model.names import DEFAULT_TARGET
from lab.model.pages import PAGES
from lab.model.variants.variants import of_the_node
from lab.records import published
from lab.records.sweep_files import load_sweep
from lab.report import figures
from lab.report.figures.beside import Pair
from lab.report.figures.intervals import Told
from lab.report.figures.style import INK, dressed, gap
from lab.report.markdown import markdown
from lab.stats import paired as stats
from lab.studies import study_tables
from lab.studies.claims import claims, fits
from lab.studies.study_files import load_study

NOTHING = Summary(None, 0, 0, (), (), {})
"""Of no run: its tables have the published numbers alone."""
PRINTED = {"mean_s": "average_s", "rate": "requests_per_s"}
"""Metric of ours → column of the summaries that NDS' tool printed."""
ALONE = "no block in which both count"
STEERING = "rps"
INTERRUPTS = "irq-affinity"


def gains(
    run: Evidence, title: str, metric: str, point: str, pairs: Sequence[tuple[str, str]], claimed: Sequence[str]
) -> go.Figure:
    """The metric's change in percent, of each (variant, what it is against), and the claims of these ids as lines.

    Pairs that the run does not have are named below it, with why, and blocks that do not count.
    """
    points = points_of(run, point)
    found = {pair: told_gains(run, metric, point, [pair]) for pair in pairs}
    rows = [row for each in found.values() for row in each]
    lacking = {
        pair: next((f"{name} is {why}" for name in pair if (why := absent(run, name))), "")
        for pair in pairs
        if not found[pair]
    }
    missing = [f"{variant} against {against}: {why or ALONE}" for (variant, against), why in lacking.items()]
    if not rows:
        return gap(title, "<br>".join(missing))
    name, unit = f"{about(metric).title}, change", "%"
    figure = figures.intervals(rows, title, name, unit)
    figure.add_vline(x=0, line={"color": INK, "width": 1})
    for claim in claimed:
        value, text = _claimed(claim)
        line, note = {"color": INK, "dash": "dash", "width": 1.5}, {"text": text, "font": {"size": 11}}
        figure.add_vline(x=value, line=line, annotation=note, annotation_position="top")
    below = (
        "diamond: paired effect with its 95 % interval; rings: single blocks, where no pair leads; dashed: as claimed"
    )
    shown = [arm for pair in pairs if found[pair] for each in pair for arm in run.arms(each)[:1]]
    lost = (f"{arm} at {at}: {why}" for arm in shown for at in points if (why := run.lost(arm, at)))
    lines = [*missing, *dict.fromkeys(lost)]
    dressed(figure, title, 170 + 34 * len(rows) + 18 * len(lines), below)
    figure.update_layout(
        margin_b=70 + 18 * len(lines),
        meta={"gaps": [why or line for why, line in zip(lacking.values(), missing, strict=True)]},
    )
    return figure.update_xaxes(title_text="<br>".join([f"{name} ({unit})", *lines]))


def claimed_alone(title: str, metric: str, claimed: Sequence[str]) -> go.Figure:
    """What these claims say of the metric's change, where there is no run to show beside them. UsageError as `gains`."""
    told = [Told(text, name, value) for name in claimed for value, text in [_claimed(name)]]
    if not told:
        return gap(title, "nothing of this was claimed or recorded:")
    figure = figures.intervals(told, title, f"{about(metric).title}, change", "%")
    return dressed(figure, title, 170 + 34 * len(told), "as claimed")


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


def told_gains(run: Evidence, metric: str, point: str, pairs: Sequence[tuple[str, str]]) -> list[Told]:
    """Of each pair at each such point, where the run has it."""
    points = points_of(run, point)
    told = (_gain(run, *pair, at, metric, len(points) > 1) for pair in pairs for at in points)
    return [row for row in told if row is not None]


def _gain(run: Evidence, variant: str, against: str, point: str, metric: str, named: bool) -> Told | None:
    """Of the pair, where the two were one and its effect leads; else of the blocks that have both. None where the run has neither."""
    mine, other = (next(iter(run.arms(name)), None) for name in (variant, against))
    if mine is None or other is None:
        return None
    pair = run.as_pair(mine, other, point, metric)
    found, blocks = pair.estimate if pair else None, list[float]()
    if not pair:  # each by itself, in percent of each block that has both
        values, theirs = run.values(mine, point, metric), run.values(other, point, metric)
        sides = [(values[block] or 0.0, theirs.get(block) or 0.0) for block in values]
        if both := [each for each in sides if min(each) > 0]:
            found = stats.paired([first for first, _ in both], [second for _, second in both])
            blocks = [_percent(first / second) for first, second in both]
    if found is None:
        return None
    limits = {sample.limited_by for arm in (mine, other) for sample in run.blocks(arm, point).values()}
    note = "in some block the generator was the limit" if metric == "rate" and "generator" in limits else ""
    label = f"{variant} against {against}{f' · {point}' if named else ''}{' (generator-limited)' if note else ''}"
    low, high = (None, None) if found.ratio_interval is None else (_percent(end) for end in found.ratio_interval)
    return Told(label, variant, _percent(found.ratio), low, high, blocks, note)


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


def _claimed(name: str) -> tuple[float, str]:
    """(change in percent, words) of a claim that published one number, in percent or as a factor."""
    value, unit, text = published_number(name)
    return (_percent(value), text) if unit.startswith("x") else (value, text)


def published_number(name: str) -> tuple[float, str, str]:
    """(number, unit, words) of a claim that published one number. UsageError for one that did not, and for one that there is not."""
    known = {claim.id: claim for claim in claims()}
    refuse_unknown(name, known, "claims.csv", f"there is no claim '{name}'")
    claim = known[name]
    try:
        return float(claim.published), claim.unit, f"{name}: {claim.published} {claim.unit}"
    except ValueError:
        raise UsageError("claims.csv", f"{name} published no single number", "name another claim") from None


def filling(claim: str) -> tuple[float, Told]:
    """(size of the page, the whole link) of a claim that such a page fills a link. UsageError as `published_number`."""
    value, unit, text = published_number(claim)
    page = f"{value:g}{unit}.bin"
    refuse_unknown(page, PAGES, "claims.csv", f"{claim}: no page is called {page}")
    return float(PAGES[page]), Told(text, "published", 1.0)


def pages(sweep: str) -> list[str]:
    """Those that a sweep asks for, in its order."""
    return list(dict.fromkeys(point.page for point in load_sweep(sweep)[1].expanded()))


def loads(study: str) -> tuple[float, float]:
    """The fewest and the most connections of the study's own sweep."""
    sizes = [point.connections for point in load_sweep(load_study(study).file.sweep)[1].expanded()]
    return float(min(sizes)), float(max(sizes))


def printed(metric: str) -> list[tuple[float, Told]]:
    """What NDS' tool printed of a metric of ours (`mean_s`, `rate`, `p50`, `p75_s` …): (requests at once, value); empty where nothing."""
    summaries = published.rows("nds_boom_summary")
    sizes = {line["version"]: line["concurrency"] for line in summaries}
    told = [(line["concurrency"], line[PRINTED[metric]]) for line in summaries if metric in PRINTED]
    told += [
        (sizes[line["version"]], line["response_time_s"])
        for line in published.rows("nds_boom_percentiles")
        if metric.removesuffix("_s") == f"p{line['percentile']:g}"
    ]
    return [
        (float(size or 0), Told(f"{metric} of {size} at once", "published", float(value or 0))) for size, value in told
    ]


def published_placement() -> list[Sequence[str]]:
    """A row per instance type: its name, and the CPUs of interrupts, packet steering and workers."""
    columns = ("irq_cores", "rps_cores", "nginx_worker_cores")
    rows = published.rows("aws_a1_irq_mapping")
    return [(f"{row['instance_type']}, published", *(str(row[name]) for name in columns)) for row in rows]


def placed(run: Evidence, variant: str) -> Sequence[str]:
    """One more row, what was read back of a variant beside its first sample that counts, and the CPUs that the run pins the
    proxy to; or why there is nothing. UsageError when that is missing or damaged.
    """
    arm = next(iter(run.arms(variant)), None)
    where = f"{run.run.record.target}, {variant}"
    if arm is None:
        missing = next((item for item in run.run.record.not_measurable if item.variant == variant), None)
        why = f"not measurable here: {missing.what}: {missing.why}" if missing else "not part of this run"
        return where, why, "–", "–"
    slot = min((slot for slot in run.counted if slot[1] == arm), default=None)
    if slot is None:
        return where, "no block of it counts", "–", "–"
    facts = run.run.record.facts
    own = facts.get("cpus_proxy") or facts.get("pinning", "not told")
    readings = run.run.readings(run.counted[slot])
    found = {str(each.get("name") or each.get("kind")): str(each.get("observed")) for each in readings}
    steered = found.get(STEERING, "where they arrive")
    steering = f"the proxy's own: {own}" if steered == "own" else steered
    return where, found.get(INTERRUPTS, "left as they are"), steering, f"as pinned: {own}"


def ratios(study: str, title: str, run: Evidence | None) -> list[Pair]:
    """Every cell of the study's table of this title, relative to its reference, as published and as measured; the references left out.

    UsageError where the study has no such table with references, else as `tables`.
    """
    shown = [table for table in _shaped(study, run) if table.shape.title == title and table.shape.reference]
    if not shown:
        titles = [table.title for table in load_study(study).file.tables if table.reference]
        raise UsageError(f"study {study}", f"no table '{title}' with references", did_you_mean(title, titles))
    pairs: list[Pair] = []
    for key, cell in shown[0].cells.items():
        if not (cell.relative or cell.published_relative):
            continue
        lacks = absent(run, cell.variant) if run and cell.variant else ""
        label, why = " · ".join(key), f"{cell.variant} is {lacks}" if lacks else "; ".join(cell.notes)
        if run and not cell.variant:
            why += f": just study {study}"
        told = None if cell.relative is None else Told(label, "here", *cell.relative, note=why)
        pairs.append(Pair(label, cell.published_relative, told, why or "its reference was not measured"))
    return pairs


def tables(study: str, titles: Sequence[str], run: Evidence | None) -> str:
    """Markdown: the study's tables (those of these titles, if any are named) with the run's cells beside the published ones.

    MeasuringError and UsageError for a run that cannot be summarised.
    """
    shown = [table for table in _shaped(study, run) if not titles or table.shape.title in titles]
    return markdown(study_tables.page(shown))


def _shaped(study: str, run: Evidence | None) -> Sequence[study_tables.Shaped]:
    summary = run.summary() if run is not None else NOTHING
    return study_tables.shaped(load_study(study), summary)


def points_of(run: Evidence, pattern: str) -> list[str]:
    """Names of the points of that name or pattern, without control runs."""
    return [point.name for point in run.points if not point.control and fits(pattern, point.name)]
