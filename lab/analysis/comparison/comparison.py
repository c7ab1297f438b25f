"""The comparison of two arms (variants), in one run or across two: absolute values, effect and decision for each metric.

Results are never pooled: two runs stay two sides, and sides whose loads, targets or generators differ are not compared.
Inside a run the two arms are compared block by block. Blocks of two runs do not belong together (`lab.stats.unpaired`),
and whatever else changed between the runs is part of the effect.
"""

from __future__ import annotations

from collections.abc import Collection

from lab.analysis.explain.notes import list_run_differences, list_run_notes
from lab.analysis.judge.comparison import TOO_FEW, Comparison, build_rows, count_needed_blocks, judge_rows
from lab.analysis.judge.meeting import (
    ComparedRuns,
    RunCells,
    match_points,
    refuse_incomparable_runs,
    refuse_other_family,
)
from lab.analysis.judge.thirds import SecondsOf, make_totals_reader
from lab.analysis.summary import decide_run
from lab.base.errors import refuse_if, refuse_unknown
from lab.model.plan import Arm
from lab.model.sweeps import LoadPoint
from lab.records.store import RunStore
from lab.stats.units import format_blocks


def compare_runs(
    base: RunStore,
    other: RunStore | None,
    base_arm: str | None = None,
    other_arm: str | None = None,
    asked: Collection[str] = (),
) -> Comparison:
    """Compare arms (variants) of one run, or of two runs, in every metric at every load that both sides have.

    Within one run, each variant is compared with its baseline. Of two runs, arms with equal names are compared. If one
    arm is named, only this arm is compared; if both are named, these two are.

    Args:
        base: The first run.
        other: The second run; None to compare arms of the first run.
        base_arm: The name of the arm on the first side, or None.
        other_arm: The name of the arm on the second side, or None.
        asked: Outcomes of disruptions that get a row even if they are 0 in every block (repetition).

    Raises:
        UsageError: The two cannot be compared at all (such as runs of different targets, which are never pooled), or a
            run is damaged.

    """
    first, second = RunCells.of(base), RunCells.of(other) if other else None
    same = other is None or base.folder.resolve() == other.folder.resolve()
    if second and not same and (first.record, first.samples) != (second.record, second.samples):
        return _compare_across(first, second, base_arm or other_arm, other_arm or base_arm, asked)
    refuse_if(
        second and (base_arm is None or other_arm is None or base_arm == other_arm),
        base.record.id,
        "is the same run twice: nothing differs from itself",
        f"name two runs, one alone (`just compare {base.record.id}`), or two of its arms as RUN:ARM RUN:ARM",
    )
    return _compare_inside(first, make_totals_reader(base), base_arm, other_arm, asked)


def _compare_inside(
    run: RunCells, seconds_of: SecondsOf, base_arm: str | None, other_arm: str | None, asked: Collection[str]
) -> Comparison:
    """Compare arms (variants) of one run block by block (repetition by repetition).

    If each compared arm is a variant and its counterpart is its baseline, the decisions are those of the run's table.

    Args:
        run: The run.
        seconds_of: The function that reads the totals of requests and CPU time up to each second of a sustained sample
            (a load of minutes).
        base_arm: The name of the first side's arm, or of the only named arm; None if no arm is named.
        other_arm: The name of the second side's arm; None if it is not named.
        asked: Outcomes of disruptions that get a row even if they are 0 in every block.

    """
    if base_arm is not None and other_arm is not None:
        pairs = [(_find_arm(run, base_arm), _find_arm(run, other_arm))]
    else:
        name = base_arm or other_arm
        chosen = [_find_arm(run, name)] if name else [arm for arm in run.record.arms if arm.role == "variant"]
        refuse_if(
            not chosen,
            run.record.id,
            "has a baseline and no variant to compare with it",
            "`just table` shows it against itself; name a second run, or two of its arms as RUN:ARM RUN:ARM",
        )
        alone = next((arm.name for arm in chosen if arm.baseline is None), "")
        refuse_if(
            alone,
            run.record.id,
            f"'{alone}' is compared with nothing in its run",
            f"name the other side too: RUN:ARM RUN:{alone}",
        )
        pairs = [(run.arms[arm.baseline or ""], arm) for arm in chosen]
    meeting = ComparedRuns(run, run, {point.name: point for point in run.points}, paired=True, margin=run.record.margin)
    as_in_table = all(other.role == "variant" and other.baseline == base.name for base, other in pairs)
    effects = decide_run(run.record, run.cells, run.samples, seconds_of) if as_in_table else {}
    rows = list(build_rows(meeting, run.points, pairs, asked, effects))
    in_family = [effect.primary for effect in effects.values() if effect.holm_p is not None]
    family = tuple(filter(None, (in_family.count(is_primary) for is_primary in (True, False))))
    if not as_in_table:
        family, rows = (sum(row.tested for row in rows),), judge_rows(rows)
    return Comparison(run.record, run.record, True, tuple(rows), tuple(list_run_notes(run)), family)


def _compare_across(
    first: RunCells, second: RunCells, base_arm: str | None, other_arm: str | None, asked: Collection[str]
) -> Comparison:
    """Compare arms (variants) of two runs, whose blocks (repetitions) do not belong together.

    Second measurements of a baseline (A/A) and the direct reference (no proxy) are compared only if they are named.

    Args:
        first: The first run.
        second: The second run.
        base_arm: The name of the arm of the first run; None for every arm that both runs have.
        other_arm: The name of the arm of the second run; None for every arm that both runs have.
        asked: Outcomes of disruptions that get a row even if they are 0 in every block.

    """
    refuse_incomparable_runs(first, second)
    first_arms, second_arms = (
        {arm.name: arm for arm in run.record.arms if arm.role not in {"again", "reference"}} for run in (first, second)
    )
    pairs = [(arm, second_arms[name]) for name, arm in first_arms.items() if name in second_arms]
    if base_arm is not None and other_arm is not None:
        pairs = [(_find_arm(first, base_arm), _find_arm(second, other_arm))]
    sides = (", ".join(run.arms) for run in (first, second))
    fault = f"and {second.record.id} have no arm in common ({' / '.join(sides)})"
    refuse_if(not pairs, first.record.id, fault, "name two arms: RUN:ARM RUN:ARM")
    meeting = ComparedRuns(first, second, match_points(first, second), paired=False)
    for pair in pairs:
        refuse_other_family(meeting, *pair)
    points = [point for point in first.points if point.name in meeting.points]
    rows, notes = judge_rows(list(build_rows(meeting, points, pairs, asked, {}))), list(list_run_differences(meeting))
    family = sum(row.tested for row in rows)
    if needed := count_needed_blocks(rows):
        never = f"{family} {TOO_FEW}: not even sides without any overlap would be resolved"
        notes.append(f"{never}; compare one arm (RUN:ARM), or measure {format_blocks(needed)} or more in both runs")
    return Comparison(
        first.record,
        second.record,
        False,
        tuple(rows),
        tuple(notes),
        family=(family,),
        missing_arms=() if base_arm else tuple(name for name in first_arms if name not in second_arms),
        missing_points=tuple(
            point for point in first.points if any(_misses_point(meeting, *pair, point) for pair in pairs)
        ),
    )


def _misses_point(meeting: ComparedRuns, base: Arm, other: Arm, point: LoadPoint) -> bool:
    """Return whether the first run planned to measure its arm (variant) at a load point, and the second run did not."""
    counterpart = meeting.points.get(point.name)
    planned = counterpart is not None and meeting.other.at(other.name, counterpart.name) is not None
    return meeting.base.at(base.name, point.name) is not None and not planned


def _find_arm(run: RunCells, name: str) -> Arm:
    refuse_unknown(name, run.arms, run.record.id, f"has no arm '{name}'")
    return run.arms[name]
