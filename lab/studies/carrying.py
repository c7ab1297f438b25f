"""The comparison of effects between targets: whether a knob (setting) changes a request's CPU cost on each target as on `local`.

    ingress-nginx+access-log-off  local −3.1 µs of 16.7, −18.6 %;  apiserver −4.6 µs of 37.2, −12.4 %   →   another time, another share

All data comes from the runs in data/reference. Only effects that were measured in pairs (two variants at once) are used. Targets
and loads are never pooled. Two effects are equivalent if the 95 % interval of their difference lies within the equivalence margin
of a request's cost on the target. They differ if this interval excludes 0. Otherwise the comparison is inconclusive.

If a knob's effect in CPU time differs between a target and `local`, steps of the ladder (a chain of variants from plain nginx to
the controller) explain the difference. Steps with one cause are multiplied, since each is a ratio to the step before. For a knob
without such a step, the effect on `local` is multiplied by the ratio of a known work's cost on both targets. For each
inconclusive comparison, the page has the number of blocks (repetitions) that would decide it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log
from statistics import median
from typing import Literal

from lab.analysis.evidence import Evidence
from lab.analysis.judge.decision import to_log_margin
from lab.analysis.judge.effects import EffectCost, Interval, compute_cost, subtract_intervals
from lab.analysis.judge.rows import SummaryRow
from lab.model.metrics import find_metric
from lab.model.names import DEFAULT_TARGET, EQUIVALENCE_MARGIN
from lab.model.sweeps import LoadPoint
from lab.model.variants.knobs import CostPlace as Kind
from lab.report.grid import Part, TableCell, make_sentence, make_text_table
from lab.report.loads import describe_load
from lab.stats.paired import estimate_median
from lab.stats.power import MAX_BLOCKS
from lab.stats.units import format_micros, format_significant
from lab.studies import matrix
from lab.studies.steps import summarise_run

METRIC = "cpu_per_request"
"""The metric of this comparison: pairs measure it at every load, and it is both a time and a share."""
Comparison = Literal["same", "other", "open"]
"""The result of comparing two effects: equivalent, different or inconclusive."""
KNOWN_WORK = "ingress-nginx+extra-work-80"
"""The knob that adds the same known work on every target."""
POWER_FACTOR = 1.65
"""The ratio of a difference to half the width of its 95 % interval at which 90 % power finds the difference.

It is (1.96 + 1.28) / 1.96.
"""
LadderStep = tuple[str, tuple[str, ...], str]
"""A step of the ladder (a chain of variants from plain nginx to the controller): target, variant's names, and words.

The names are of one variant, the present one first, then old ones (`lab.model.variants.naming`). The words describe the step.
"""
CAUSES: Mapping[tuple[str, str], tuple[Sequence[LadderStep], str]] = {
    ("ingress-nginx+access-log-off", "kind"): (
        [
            ("kind", ("pod-address+access-log-memory",), "the log to a file, not a pipe"),
            ("apiserver", ("ingress-nginx+access-log-off", "metrics-log-off"), "no access log"),
        ],
        "on kind a log line goes through a pipe that the node's runtime empties, on local into a file in memory",
    ),
    ("ingress-nginx+crowded-workers-1", "kind"): (
        [("kind", ("pod-address+access-log-memory++one-worker",), "one worker")],
        "on kind the baseline has two workers, which share that pipe, on local it has one, so that the knob changes nothing",
    ),
}
"""The causes of different effects: (knob, target) → the ladder's steps that explain it, and the cause in words."""
PER_CONNECTION: Mapping[str, str] = {"tls": "the handshake of each connection"}
"""Knob → the cost that it adds once for each connection, in words. Requests of long connections have a smaller share of it."""
COST_PLACES = {"process": "in the proxy's process", "shared": "also in what a pair shares"}
"""The words for where a knob's cost can lie."""


@dataclass(frozen=True, slots=True)
class TargetEffect:
    """The effect of a knob (one setting) on a request's CPU time on one target, measured by one run.

    Attributes:
        run: The name of the run's folder.
        pairs: The number of pairs (the variant and its baseline measured at once).
        cost: The effect on the CPU time that a request costs.
        doubt: The uncertainty of the baseline's cost, as a share of that cost: half the width of its 95 % interval. With too few blocks
            (repetitions) for an interval, it is the entire range of the blocks.
        requests: The median number of requests per connection in the variant's sides of the pairs.

    """

    run: str
    pairs: int
    cost: EffectCost
    doubt: float
    requests: float = 0.0

    @property
    def seconds(self) -> Interval:
        """The effect of a knob (one setting) in CPU seconds per request, as (value, lower end, upper end).

        The interval is widened by the uncertainty of the baseline's cost.
        """
        value, low, high = self.cost.seconds
        margin = abs(value) * self.doubt
        return value, value - hypot(value - low, margin), value + hypot(high - value, margin)


@dataclass(frozen=True, slots=True)
class TransferLine:
    """The effects of one knob (one setting) at one load, on every target.

    Attributes:
        variant: The variant with the knob.
        against: The variant's baseline.
        kind: The place of the knob's cost, as its manifest states it: `process` (in the proxy's process) or `shared` (also in what the two
            sides of a pair share).
        point: The load.
        shown: Target → the knob's effect there.
        why: For each target without an effect, the reason.

    """

    variant: str
    against: str
    kind: Kind
    point: LoadPoint
    shown: Mapping[str, TargetEffect]
    why: Mapping[str, str]

    def seconds(self, target: str) -> Comparison:
        """Compare the effect of the knob (setting) on a target with its effect on the target `local`, in CPU seconds per request.

        The result is `same` (equivalent), `other` (different) or `open` (inconclusive).
        """
        on_target = self.shown[target]
        return _compare(
            on_target.seconds, self.shown[DEFAULT_TARGET].seconds, on_target.cost.level_s * EQUIVALENCE_MARGIN
        )

    def shares(self, target: str) -> Comparison:
        """Compare the knob's effect on a target with its effect on the target `local`, each as a share of a request's CPU cost there.

        The result is `same` (equivalent), `other` (different) or `open` (inconclusive).
        """
        return _compare(
            self.shown[target].cost.change, self.shown[DEFAULT_TARGET].cost.change, to_log_margin(EQUIVALENCE_MARGIN)
        )


def _compare(on_target: Interval, on_local: Interval, margin: float) -> Comparison:
    """Return how the effect of a knob (setting) on a target compares with its effect on the target `local`.

    The result is `same` if the difference's interval lies within the margin, `other` if that interval excludes 0, and otherwise `open`.

    Args:
        on_target: The effect on the target: a value and its 95 % interval.
        on_local: The effect on `local`, in the same unit.
        margin: The equivalence margin, in the same unit.

    """
    gap, half = subtract_intervals(on_target, on_local)
    if abs(gap) + half <= margin:
        return "same"
    return "other" if abs(gap) > half else "open"


def list_transfers(runs: Sequence[Evidence]) -> list[TransferLine]:
    """Return the effects of every knob (one setting) that committed runs measured on two targets or more at the same load.

    Only effects are used for which the variant with the knob and its baseline were measured as a pair (at once).

    Args:
        runs: The committed runs.

    Returns:
        One line per knob, sorted by the variant's name. A line is about a single load: the one with effects on most targets. Of several
        such loads, one without an offered rate (closed loop) is preferred.

    """
    by_knob: dict[tuple[str, str], dict[LoadPoint, dict[str, TargetEffect]]] = {}
    kinds: dict[tuple[str, str], Kind] = {}
    for run in runs:
        for knob, kind, point, effect in _list_effects(run):
            kinds.setdefault(knob, kind)
            targets = by_knob.setdefault(knob, {}).setdefault(point, {})
            previous = targets.get(run.run.record.target)
            if previous is None or effect.pairs > previous.pairs:  # among equals the newest run, which comes first
                targets[run.run.record.target] = effect
    lines: list[TransferLine] = []
    for knob, loads in sorted(by_knob.items()):
        point = max(loads, key=lambda load: (len(loads[load]), load.rate_rps is None))
        if len(loads[point]) > 1:
            reasons: dict[str, str] = {}
            for target in (place for place in matrix.list_targets() if place not in loads[point]):
                cell = matrix.find_cell_of_variants(target, [knob[0]])
                by_kind = {
                    "works": "it comes up there",
                    "measured": "not in pairs at this load",
                    "not possible": cell.said,
                }
                reasons[target] = by_kind.get(cell.kind, "not measured there")
            lines.append(TransferLine(*knob, kinds[knob], point, loads[point], reasons))
    return lines


def _list_effects(run: Evidence) -> Iterator[tuple[tuple[str, str], Kind, LoadPoint, TargetEffect]]:
    """Yield the effect of each knob (one setting) at each load that a run measured in pairs (variant and baseline at once).

    An effect without an estimate is left out.

    Yields:
        ((variant, its baseline), place of the knob's cost: `process` or `shared`, load, effect). The load has neutral values for duration,
        warm-up, repeats and threads, so that loads of several runs are equal. They change the precision of an effect, and the effect
        itself only for knobs in PER_CONNECTION.

    """
    record = run.run.record
    duration = {"duration_s": 0.0, "warmup_s": 0.0, "generations": 1, "repeats": 1, "singly": False}
    variants = {arm.name: record.variants[arm.variant] for arm in record.arms if arm.variant in record.variants}
    steady = summarise_run(run)[:1] if record.pairs else ()
    for row in (row for summary in steady for row in summary.rows if row.pair is not None):
        variant, base = variants[row.arm.name], variants.get(row.arm.baseline or "")
        if row.arm.role != "variant" or not variant.own_knobs or base is None or base.name != variant.baseline:
            continue
        effect = next((effect for effect in row.effects if effect.metric == METRIC), None)
        cost = compute_cost(effect) if effect is not None else None
        if effect is not None and effect.estimate is not None and cost is not None:
            load = row.point.model_copy(update={"threads": 1, "threads_at_most": None, **duration})
            requests = [sample.requests or 0 for sample in row.pair.own.counted.values()] if row.pair else []
            per_connection = median(requests or [0]) / row.point.connections
            on_target = TargetEffect(run.name, effect.estimate.n, cost, _estimate_doubt(row), per_connection)
            yield (variant.name, base.name), "shared" if variant.shared_cost else "process", load, on_target


def _estimate_doubt(row: SummaryRow) -> float:
    """Return the uncertainty of the baseline's CPU cost per request, as a share of that cost.

    It is half the width of the 95 % interval. With too few blocks (repetitions) for an interval, it is the entire range of the blocks as a
    log-ratio, and 0 where no block measured the cost.

    Args:
        row: The row of the run's summary that compares the variant with this baseline.

    """
    solo = list(row.base.known(METRIC).values()) if row.base else []
    level = estimate_median(solo) if solo else None
    if level is not None and level.low is not None and level.high is not None:
        return (level.high - level.low) / 2 / level.value
    several = solo if len(solo) > 1 or row.pair is None else list(row.pair.base.known(METRIC).values())
    return log(max(several) / min(several)) if several else 0.0


def write_sentences(lines: Sequence[TransferLine]) -> Iterator[str]:
    """Yield a sentence per target and place of cost: how well effects of knobs (settings) on `local` predict those on the target.

    An effect has two forms: CPU time per request, and share of a request's CPU cost. For each form, the sentence counts the knobs
    whose effects on the target and on `local` are equivalent, different, or inconclusively compared. The end of the sentence
    names the form that predicts better.

    The score of a form is the number of equivalent knobs minus the number of different ones. The form with the higher score
    predicts better. If the scores are equal, it is the form with fewer different knobs. If these numbers are equal, too, the
    question is left open. If the better score is 0 or less, the sentence says that neither form predicts the target.

    Args:
        lines: The effects of each knob on all targets.

    """
    phrases: Mapping[Comparison, str] = {
        "same": "is that there for",
        "other": "is another for",
        "open": "is inconclusive for",
    }
    kinds: set[tuple[Kind, str]] = {(line.kind, target) for line in lines for target in line.shown}
    for kind, target in sorted(kinds):
        shared = _select_shared(lines, target, kind)
        if not shared or target == DEFAULT_TARGET:
            continue
        counts = {
            "µs": Counter(line.seconds(target) for line in shared),
            "per cent": Counter(line.shares(target) for line in shared),
        }
        time, share = (
            ", ".join(f"{text} {count[held]}" for held, text in phrases.items() if count[held])
            for count in counts.values()
        )
        scores = {name: (count["same"] - count["other"], -count["other"]) for name, count in counts.items()}
        better = max(scores, key=lambda name: scores[name])
        conclusion = f"{DEFAULT_TARGET}'s {better} predict {target} better"
        if scores[better] == min(scores.values()):
            conclusion = f"which of the two predicts {target} is inconclusive"
        elif scores[better][0] <= 0:
            conclusion = f"neither predicts {target}"
        subject = f"of {len(shared)} knob{'s' if len(shared) > 1 else ''} whose cost can lie {COST_PLACES[kind]}"
        yield f"{target}: {subject} {DEFAULT_TARGET}'s time {time}; its share {share}: {conclusion}."


def _select_shared(lines: Sequence[TransferLine], target: str, kind: Kind = "process") -> list[TransferLine]:
    """Return the lines of the knobs that were measured both on `local` and on `target`, and whose cost is of the given kind.

    Args:
        lines: The effects of each knob (one setting) on all targets.
        target: The target.
        kind: The kind of cost. `process`: it lies in the proxy's process. `shared`: it can also lie in what both proxies that are measured
            at once use together, such as the kernel's queues or the disk.

    """
    return [line for line in lines if line.kind == kind and {DEFAULT_TARGET, target} <= line.shown.keys()]


# -- why a knob does something else there ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExplainedDifference:
    """A knob (one setting) whose effect on CPU time differs between a target and `local`, with an explanation.

    Attributes:
        variant: The variant with the knob.
        measured: The effect on the target: a value and its 95 % interval.
        predicted: The effect that the explanation predicts, in the unit of `measured`; None where it predicts none.
        share: True: `measured` and `predicted` are log-ratios. False: they are seconds.
        by: The explanation in words.

    """

    variant: str
    measured: Interval
    predicted: Interval | None
    share: bool
    by: str

    @property
    def fits(self) -> bool:
        """True if the explanation predicts the effect of the knob (setting): the interval of the measured minus the predicted effect contains 0."""
        if self.predicted is None:
            return False
        gap, half = subtract_intervals(self.measured, self.predicted)
        return abs(gap) <= half

    def text(self, interval: Interval) -> str:
        """Return the measured or the predicted effect as text with its interval, in per cent (for shares of a cost) or in µs.

        Args:
            interval: The effect to print: `measured` or `predicted`.

        """
        value, low, high = interval
        if self.share:
            return f"{find_metric(METRIC).change(value)}{find_metric(METRIC).ends(low, high)}"
        return f"{format_micros(value)} µs [{format_micros(low)}, {format_micros(high)}]"


def explain_differences(
    lines: Sequence[TransferLine], runs: Sequence[Evidence], target: str
) -> list[ExplainedDifference]:
    """Return each knob (one setting) whose effect on CPU time differs between a target and `local`, with an explanation.

    Only knobs whose cost lies in the proxy's process are compared.

    Args:
        lines: The knobs that were measured on several targets.
        runs: The committed runs, the newest first. Those of the sweep `ladder` (a chain of variants from plain nginx to the controller)
            explain differences.
        target: The target to compare with `local`.

    """
    shared = _select_shared(lines, target)
    work = next((line for line in shared if line.variant == KNOWN_WORK), None)
    return [_explain(line, work, runs, target) for line in shared if line.seconds(target) == "other"]


def _explain(
    line: TransferLine, work: TransferLine | None, runs: Sequence[Evidence], target: str
) -> ExplainedDifference:
    """Return a knob's effect on a target, with an explanation why it differs from the knob's effect on `local`.

    Where CAUSES names steps of the ladder (a chain of variants from plain nginx to the controller) for the knob, these steps explain the
    effect. Otherwise the prediction is the effect on `local`, multiplied by how many times as much a known extra work (KNOWN_WORK) costs on
    the target as on `local`.

    Args:
        line: The effects of the knob (one setting) on all targets.
        work: The effects of KNOWN_WORK on all targets; None where they were not measured on both targets.
        runs: The committed runs, which contain the steps of the ladder.
        target: The target whose effect is explained, for example `kind`.

    """
    target_cost, local_cost = line.shown[target].cost, line.shown[DEFAULT_TARGET].cost
    predicted = None
    if (line.variant, target) in CAUSES:
        steps, cause = CAUSES[line.variant, target]
        changes = [_find_step_change(place, variants, runs) for place, variants, _ in steps]
        measured = [change for change in changes if change is not None]
        if len(measured) == len(changes):  # log-ratios that were measured separately: their squares add up
            value, half = (
                sum(change[0] for change in measured),
                hypot(*((change[2] - change[1]) / 2 for change in measured)),
            )
            predicted = value, value - half, value + half
        by = f"{' and '.join(f'{text} ({place})' for place, _, text in steps)}: {cause}"
        return ExplainedDifference(line.variant, target_cost.change, predicted, share=True, by=by)
    by = f"what the same known work ({KNOWN_WORK}) costs there, times {DEFAULT_TARGET}'s time; no step of the ladder is about it"
    if line.variant in PER_CONNECTION:
        there, here = (line.shown[place].requests for place in (target, DEFAULT_TARGET))
        by += f"; not in it is {PER_CONNECTION[line.variant]}, which comes once in {there:,.0f} requests there, and once in {here:,.0f} on {DEFAULT_TARGET}"
    if line.variant == KNOWN_WORK:
        by = "it is the known work itself: its cost shows the speed of that CPU"
    elif work is not None:  # the log-ratio of its cost on the target to that on local, with its interval
        target_logs, local_logs = (
            [log(seconds) for seconds in work.shown[place].cost.seconds] for place in (target, DEFAULT_TARGET)
        )
        half = hypot((target_logs[2] - target_logs[1]) / 2, (local_logs[2] - local_logs[1]) / 2)
        seconds = local_cost.seconds
        value, relative = (
            seconds[0] * exp(target_logs[0] - local_logs[0]),
            hypot((seconds[2] - seconds[1]) / 2 / seconds[0], half),
        )
        predicted = value, value - abs(value) * relative, value + abs(value) * relative
    return ExplainedDifference(line.variant, target_cost.seconds, predicted, share=False, by=by)


def _find_step_change(target: str, variants: Sequence[str], runs: Sequence[Evidence]) -> Interval | None:
    """Return the effect of one step of a ladder as (log-ratio, lower end, upper end); None where no run has it.

    A ladder is a chain of variants from plain nginx to the controller, and a step is one variant against the one before it. The
    effect is that of the newest run in which it has an interval.

    Args:
        target: The target of the ladder.
        variants: The names of the step's variant, the present one before old ones; the first one that a run has is used.
        runs: The committed runs, the newest first.

    """
    ladders = [run for run in runs if (run.run.record.sweep, run.run.record.target) == ("ladder", target)]
    for variant in variants:
        rows = (
            row for run in ladders for summary in summarise_run(run) for row in summary.rows if row.arm.name == variant
        )
        for effect in (effect for row in rows for effect in row.effects if effect.metric == METRIC):
            if effect.estimate is not None and effect.estimate.interval is not None:
                return effect.estimate.effect, *effect.estimate.interval
    return None


def list_undecided(lines: Sequence[TransferLine], target: str) -> Iterator[tuple[str, int, int | None, str]]:
    """Yield each knob (one setting) for which the runs leave open whether it costs as much CPU time on a target as on `local`.

    Only knobs whose cost lies in the proxy's process are listed.

    Yields:
        (variant, measured blocks, needed blocks, text). The blocks (repetitions) are those on the target. With the needed number,
        nine of ten such comparisons would be decided, if the true effects are the measured ones. It is None if even MAX_BLOCKS
        blocks would not be enough. If `local`'s interval alone is too wide for a decision, the text says what is needed on both
        targets. Otherwise it is empty.

    """
    for line in (line for line in _select_shared(lines, target) if line.seconds(target) == "open"):
        on_target, on_local = line.shown[target], line.shown[DEFAULT_TARGET]
        gap, _ = subtract_intervals(on_target.seconds, on_local.seconds)
        target_half, local_half = ((effect.seconds[2] - effect.seconds[1]) / 2 for effect in (on_target, on_local))
        allowed = max(abs(gap), on_target.cost.level_s * EQUIVALENCE_MARGIN - abs(gap)) / POWER_FACTOR
        needed, on_both = MAX_BLOCKS + 1, ""
        if local_half < allowed:
            needed = round(on_target.pairs * target_half**2 / (allowed**2 - local_half**2) + 0.5)
        elif (
            on_local.cost.seconds[2] - on_local.cost.seconds[1]
        ) / 2 < allowed:  # it is the baseline that is not known
            widths = f"± {1e6 * local_half:.2g} µs, and less than ± {1e6 * allowed:.2g} µs is needed"
            known = f"{on_local.run} knows the baseline's cost to ± {100 * on_local.doubt:.0f} %"
            on_both = f"none there alone: {DEFAULT_TARGET}'s own interval is {widths} ({known})"
        else:
            factor = (target_half**2 + local_half**2) / allowed**2
            there, here = (round(effect.pairs * factor + 0.5) for effect in (on_target, on_local))
            on_both = f"{there:,}, and {here:,} on {DEFAULT_TARGET} (now {on_local.pairs})"
        yield line.variant, on_target.pairs, needed if needed <= MAX_BLOCKS else None, on_both


# -- as tables ------------------------------------------------------------------------------------------------


def page(lines: Sequence[TransferLine], runs: Sequence[Evidence] = ()) -> list[Part]:
    """Return the page about the effects of knobs (single settings) on each target: a table, and sentences that sum it up.

    There is a sentence for each target that has knobs in common with `local`, and for each place of cost (the proxy's process, or shared
    resources). If `lines` is empty, the page is one sentence with the commands that measure such effects. Links in the table are
    relative to the top of the checkout.

    Args:
        lines: The knobs that were measured on several targets.
        runs: The committed runs. If given, the page also explains why effects on a target differ, and lists how many blocks (repetitions)
            would decide the inconclusive comparisons.

    """
    if not lines:
        none = (
            "No knob has committed pairs on two targets yet: `just bench KNOB… --target apiserver` measures some, `just maintain pack RUN` and a copy in"
            " data/reference commit them."
        )
        return [make_sentence(none)]
    targets = matrix.list_targets()
    rows: list[tuple[str | TableCell, ...]] = []
    for line in lines:
        connections, how, _, *details = describe_load(line.point).split(", ")
        load = ", ".join([f"{line.point.name}: {connections}", how, *details])
        cells = (
            _make_cell(line.shown[target]) if target in line.shown else TableCell("–", tail=f" {line.why[target]}")
            for target in targets
        )
        rows.append((line.variant, line.against, load, COST_PLACES[line.kind], *cells))
    rule = (
        f"{find_metric(METRIC).title}. A cell reads: change in µs [95 %] of the baseline's µs; change in % [95 %]. Two effects are *the same* if the interval of their"
        f" difference lies within {100 * EQUIVALENCE_MARGIN:g} % of a request's cost there, and *others* if it excludes 0. The interval includes how surely the baseline's cost is known."
    )
    heads = ("knob", "against", "load", "its cost can lie", *targets)
    parts: list[Part] = [make_text_table(heads, rows), make_sentence(rule), *map(make_sentence, write_sentences(lines))]
    for target in targets if runs else ():
        if target != DEFAULT_TARGET:
            parts += _explain_target(lines, runs, target)
    return parts


def _make_cell(effect: TargetEffect) -> TableCell:
    """Return a table cell with an effect in time and as a share, linked to the run that measured it."""
    value, low, high = effect.cost.change
    share = f"{find_metric(METRIC).change(value)}{find_metric(METRIC).ends(low, high)}"
    level = format_significant(effect.cost.level_s * 1e6, 2)  # mostly from two solo blocks
    return TableCell(f"[{effect.cost.text} of {level}; {share}](data/reference/{effect.run})")


def _explain_target(lines: Sequence[TransferLine], runs: Sequence[Evidence], target: str) -> Iterator[Part]:
    """Yield the tables that explain the differences between a target and `local`.

    The first table has each knob (one setting) whose effects on both targets differ, with an explanation. The second table has
    the knobs whose comparison is inconclusive, with the number of blocks (repetitions) that would decide each. A table without
    rows is left out.

    Args:
        lines: The knobs that were measured on several targets.
        runs: The committed runs.
        target: The target to compare with `local`.

    """
    explanations: list[tuple[str, ...]] = []
    for knob in explain_differences(lines, runs, target):
        prediction = "–" if knob.predicted is None else knob.text(knob.predicted)
        result = (
            "explained" if knob.fits else "in part" if knob.predicted is not None and knob.share else "not explained"
        )
        explanations.append((knob.variant, knob.text(knob.measured), knob.by, prediction, result))
    if explanations:
        yield make_text_table(
            (f"another effect on {target}", "measured there", "explained by", "which makes", "so"), explanations
        )
        counts = Counter(explanation[-1] for explanation in explanations)
        parts = ", ".join(
            f"{counts[result]} {result}" for result in ("explained", "in part", "not explained") if counts[result]
        )
        yield make_sentence(
            f"{target}: of {len(explanations)} other effects by the ladder's steps, or else by the known work: {parts}."
        )
    blocks = [
        (
            variant,
            str(measured),
            on_both or (str(needed) if needed else f"more than {MAX_BLOCKS}"),
        )
        for variant, measured, needed, on_both in list_undecided(lines, target)
    ]
    if blocks:
        heads = (f"undecided on {target}", "blocks measured", "blocks that would decide it, nine times in ten")
        yield make_text_table(heads, blocks)
