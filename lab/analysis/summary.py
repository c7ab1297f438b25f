"""The summary of a run, made from its samples in three steps: cells, effects with decisions, notes.

A cell has the samples of one arm (variant) at one load point (package `aggregate`). The package `judge` makes effects with
decisions from cells, and `explain` makes notes. The module does not weigh one row against another. Steady loads and disrupted
loads are never in one table: effects of steady loads are ratios, those of disrupted loads are differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lab.analysis import levels, rerun
from lab.analysis.aggregate.cells import Cells, HistogramOf, build_cells
from lab.analysis.aggregate.exhaustion import MEANING, compute_exhaustions
from lab.analysis.aggregate.order import find_missing_by_order, format_order_note, run_order_tests
from lab.analysis.explain.notes import describe_resumptions, list_exceeded_promises, list_row_notes, list_table_notes
from lab.analysis.judge.effects import Effect, Effects, RunQuestions, outcome_metric
from lab.analysis.judge.rows import Summary, SummaryRow
from lab.analysis.judge.thirds import SecondsOf, Thirds, compute_thirds
from lab.model.plan import Arm, Plan
from lab.model.run import RunRecord
from lab.model.samples import Reason, Sample, key_of_measurement, planned_cells
from lab.model.sweeps import LoadPoint


def summarise_run(
    record: RunRecord,
    samples: Sequence[Sample],
    histogram_of: HistogramOf,
    disturbed: bool = False,
    seconds_of: SecondsOf | None = None,
) -> Summary:
    """Summarise a stored run, with the plan, primary metrics and manifest snippets of its record.

    If the user named a metric when the number of blocks (repetitions) was planned, it is the primary metric of the
    steady loads.

    Args:
        record: The run's record.
        samples: All samples of the run.
        histogram_of: The function that reads a sample's histogram of latencies. It is called for each sample of a
            steady load that is used for results.
        disturbed: True to summarise the disrupted loads, False for the steady ones.
        seconds_of: The function that reads the totals of requests and CPU time up to each second of a sustained sample
            (a load of minutes). If it is None, effects in parts of samples are not computed.

    Raises:
        MeasuringError: The samples mix targets, loads or generators, or do not belong to the plan.

    """
    ran = {arm.name: record.variants[arm.variant] for arm in record.arms}
    variants = {arm.name: ran[arm.name] for arm in record.arms if arm.role == "variant"}
    summary = summarise(
        record.plan(),
        samples,
        histogram_of,
        _read_questions(record, disturbed),
        {name: variant.snippet for name, variant in variants.items()},
        disturbed,
        {name: variant.knobs for name, variant in ran.items()},
        seconds_of,
    )
    nulls = frozenset(arm.name for arm in list_null_arms(record.arms))
    counted = (sample for sample in samples if sample.reason is not Reason.BLOCK_INTERRUPTED)
    left_out = planned_cells(record.plan().slots) - {key_of_measurement(sample) for sample in counted}
    notes = (
        *summary.notes,
        *([MEANING] if any(row.exhaustion for row in summary.rows) else []),
        *describe_resumptions(record),
        *(str(probe) for probe in record.probes if probe.decided != "as-asked" and not disturbed),
        *levels.list_start_notes(record.target, {ran[arm.name].name for arm in record.arms if arm.role != "reference"}),
        *(() if disturbed else list_exceeded_promises(record, summary.rows)),
    )
    return replace(
        summary,
        elsewhere={
            name: variant.hypothesis_sweep
            for name, variant in variants.items()
            if variant.hypothesis_sweep not in (None, record.sweep)
        },
        notes=notes,
        not_measurable=record.not_measurable,
        systems=record.systems - nulls,
        nulls=nulls,
        instruments={
            name: variant.only_to_measure_by for name, variant in variants.items() if variant.only_to_measure_by
        },
        resume=rerun.resume(record) if left_out else "",
    )


def summarise(
    plan: Plan,
    samples: Sequence[Sample],
    histogram_of: HistogramOf,
    questions: RunQuestions,
    snippets: Mapping[str, str] | None = None,
    disturbed: bool = False,
    knobs: Mapping[str, Sequence[str]] | None = None,
    seconds_of: SecondsOf | None = None,
) -> Summary:
    """Summarise samples as a table, with a row for each planned arm (variant) at each load point, measured or not.

    Args:
        plan: The plan.
        samples: All samples of the run.
        histogram_of: The function that reads a sample's histogram of latencies. It is called for each sample of a
            steady load that is used for results.
        questions: The questions that the run must answer.
        snippets: Name of an arm → the manifest snippet to apply if the arm's variant is better.
        disturbed: True to summarise the disrupted loads, False for the steady ones.
        knobs: Name of an arm → the knobs (changed settings) of its variant. If the mapping is None, the time until
            local ports run out is not computed.
        seconds_of: As for `summarise_run`.

    Raises:
        MeasuringError: The samples mix targets, loads or generators, or do not belong to the plan.

    """
    cells = build_cells(plan, samples, histogram_of, disturbed)
    places, missing = _list_places(cells, disturbed), find_missing_by_order(samples)
    rows = [
        SummaryRow(
            cells.at(arm.name, point),
            cells.at(arm.baseline, point) if arm.baseline else None,
            effects,
            cells.pair(arm.name, point),
            missing=at_point if (at_point := missing.get(point.name)) and at_point.concerns(arm) else None,
        )
        for (arm, point), effects in zip(places, Effects(cells, questions, missing).table(places), strict=True)
    ]
    order = "" if disturbed else format_order_note(run_order_tests(cells, samples))
    notes = (*list_table_notes(rows, disturbed), *filter(None, [order]))
    if knobs is not None:
        loaded = [(row.arm.variant, knobs[row.arm.name], row.samples) for row in rows]
        rows = [replace(row, exhaustion=ports) for row, ports in zip(rows, compute_exhaustions(loaded), strict=True)]
    for number, row in enumerate(rows):
        if thirds := _compute_sustained_thirds(cells, row.arm, row.point, seconds_of):
            rows[number] = replace(row, thirds=thirds, effects=tuple(map(thirds.settle, row.effects)))
    return Summary(
        target=next((sample.target for sample in samples if sample.point.has_outcome is disturbed), None),
        blocks=plan.blocks,
        seed=plan.seed,
        rows=tuple(replace(row, notes=tuple(dict.fromkeys(list_row_notes(row)))) for row in rows),
        notes=notes,
        snippets=snippets or {},
        disturbed=disturbed,
        primary={
            arm: outcome_metric(metric, rows[0].point) if rows and disturbed else metric
            for arm, metric in questions.primary.items()
        },
    )


def list_null_arms(arms: Sequence[Arm]) -> list[Arm]:
    """Return the null arms of a run: arms of the role `variant` that measure the same variant as their baseline.

    A null arm gets decisions like any other variant, so each effect that it shows is a false one. The A/A arm measures
    its baseline's variant a second time, too. But its role is `again`: it only shows the noise, and is not returned.
    """
    variant_of = {arm.name: arm.variant for arm in arms}
    return [arm for arm in arms if arm.role == "variant" and variant_of.get(arm.baseline or "") == arm.variant]


def decide_run(
    record: RunRecord, cells: Cells, samples: Sequence[Sample], seconds_of: SecondsOf | None
) -> Mapping[tuple[str, str, str], Effect]:
    """Return (name of the arm, of the load point, of the metric) → the effect with its decision, as in the run's tables.

    Args:
        record: The run's record.
        cells: The samples of the run by arm (variant) and load point, of steady and of disrupted loads.
        samples: All samples of the run.
        seconds_of: The function that reads the totals of requests and CPU time up to each second of a sustained sample
            (a load of minutes). If it is None, whole samples decide, without a look at their parts.

    """
    table_effects: dict[tuple[str, str, str], Effect] = {}
    for disturbed in (False, True):
        places = _list_places(cells, disturbed)
        effects = Effects(cells, _read_questions(record, disturbed), find_missing_by_order(samples))
        table = zip(places, effects.table(places), strict=True)
        for (arm, point), row in table:
            thirds = _compute_sustained_thirds(cells, arm, point, seconds_of)
            for effect in map(thirds.settle, row) if thirds else row:
                table_effects[arm.name, point.name, effect.metric] = effect
    return table_effects


def _compute_sustained_thirds(cells: Cells, arm: Arm, point: LoadPoint, seconds_of: SecondsOf | None) -> Thirds | None:
    """Return an arm's effects in each third of its sustained samples (loads of minutes); None for any other load.

    The result is also None if the arm (variant) has no baseline, or if the samples have no totals by second.
    """
    if seconds_of is None or not point.sustained or not arm.baseline:
        return None
    return compute_thirds(cells.at(arm.name, point).counted, cells.at(arm.baseline, point).counted, seconds_of)


def _read_questions(record: RunRecord, disturbed: bool) -> RunQuestions:
    """Return the questions that a run must answer (such as its primary metrics), as its design and its hypotheses fixed them.

    Args:
        record: The run's record.
        disturbed: True for the questions about disrupted loads, False for those about steady ones.

    """
    variants = {arm.name: record.variants[arm.variant] for arm in record.arms if arm.role == "variant"}
    design = record.designed
    metric = design.planned_for.asked if design.planned_for and not disturbed else None
    return RunQuestions(
        primary={name: metric or variant.primary_metric for name, variant in variants.items()},
        needs={name: variant.needs for name, variant in variants.items()},
        solo={(place.arm, place.point): place.solo_decides for place in design.places if not place.against},
        margin=record.margin,
    )


def _list_places(cells: Cells, disturbed: bool) -> list[tuple[Arm, LoadPoint]]:
    """Return (arm, load point) for each row of a table, in the table's order.

    Points are in plan order, with control runs (loads without their disruption) last. At each point the direct
    reference (no proxy) comes first, then the baselines, then the variants. Each is followed by the arm that repeats it
    (A/A), if there is one. An arm that is not planned at a point has no row there.
    """
    arms = {arm.name: arm for arm in cells.plan.arms}

    def rank(arm: Arm) -> tuple[int, int, bool]:
        """Return the key by which arms are sorted; an A/A arm follows the arm that it repeats."""
        first = arms.get(arm.baseline or "", arm) if arm.role == "again" else arm
        return {"reference": 0, "variant": 2}.get(first.role, 1), list(arms).index(first.name), first is not arm

    points = [point for point in cells.plan.points if point.has_outcome is disturbed]
    return [
        (arm, point)
        for point in sorted(points, key=lambda point: point.control)
        for arm in sorted(arms.values(), key=rank)
        if cells.at(arm.name, point).planned or cells.pair(arm.name, point)
    ]
