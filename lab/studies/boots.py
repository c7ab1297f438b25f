"""The effects of a committed run on several boots (starts of the machine), and the measurements to make on another boot.

    data/reference/slow-link, …/boot-2, …/boot-3  →  "over three boots p50 at rate-25 −61.8 % [−68.0, −54.4] (…)"

The interval of one boot does not describe the next boot. So a result from one boot is marked with `one boot`. Blocks of two boots
are never pooled: each boot has one effect, with its standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import stdev

from rich.text import Text

from lab.analysis import rerun
from lab.analysis.evidence import Damaged, Evidence, further_boots
from lab.analysis.explain.run import format_difference
from lab.analysis.judge.effects import Effect
from lab.base.errors import LabError, UsageError
from lab.model.metrics import find_metric
from lab.model.names import BRING_UP_S
from lab.model.run import RunRecord
from lab.model.sweeps import find_control
from lab.records.references import describe_processor, list_boots
from lab.report.grid import Notes, Part, make_sentence, make_text_table
from lab.stats.boots import OverBoots, compute_standard_error, estimate_over_boots, format_boots
from lab.stats.units import format_percent, format_size
from lab.studies.claims.judging import ClaimVerdict
from lab.studies.claims.measuring import MeasuredTest

MIN_BOOTS = 3
"""The number of boots that a finding should rest on.

With two boots, an interval over boots is twelve standard errors wide.
"""
NEAR_BOUND = 0.2
"""The distance from a claim's bound to the measured value, as a share of that value, within which the bound is near.

From boot to boot a ratio differs by 8 to 9.5 % (SD), so another boot can move the value to the other side of a near bound.
"""
ONE_BOOT_CAVEAT = (
    "Every size is of one boot of one machine, unless it says of how many: from boot to boot a ratio differs by 8 to 9.5 % (SD),"
    " which no interval of one boot contains"
)
"""The sentence that stands above results from one boot."""


@dataclass(frozen=True, slots=True)
class StepOverBoots:
    """The effect of an arm (one variant of a run) at a load point, measured on each boot of the machine.

    A boot is the time from one start of the machine to the next one. Effects differ more between boots than within one.

    Attributes:
        point: The name of the load point.
        effects: One effect for each boot on which it was measured; that of the first run comes first.
        over: The mean of the effects, with its interval over boots; None for one boot.
        lost: For each further boot whose run cannot be used, the reason.

    """

    point: str
    effects: tuple[Effect, ...]
    over: OverBoots | None
    lost: tuple[str, ...] = ()

    @property
    def boots(self) -> int:
        """The number of boots (starts of the machine) on which the effect of the arm (variant of a run) was measured."""
        return len(self.effects)

    @property
    def text(self) -> str:
        """The boots of the machine on which an effect was measured, in words: `one boot`, or `over three boots` with the effects.

        Example: `over three boots p50 at rate-25 −61.8 % [−68.0, −54.4] (…)`. The mean effect has its interval, and the
        brackets at the end contain the effect on each boot. For boots whose runs cannot be used, the reasons follow.
        """
        lost = "".join(f"; {reason}" for reason in self.lost)
        if self.over is None:
            return f"{format_boots(max(1, self.boots))}{lost}"
        metric = find_metric(self.effects[0].metric)
        mean = f"{metric.change(self.over.effect)}{metric.ends(self.over.low, self.over.high)}"
        singles = ", ".join(metric.change(effect.estimate.effect) for effect in self.effects if effect.estimate)
        return f"over {format_boots(self.boots)} {metric.title} at {self.point} {mean} ({singles}){lost}"

    @property
    def agree(self) -> bool:
        """True if later boots of the machine support the decision about an effect on the first boot, or if there were no later ones.

        From three boots on, the 95 % interval of the effect's mean over boots is compared with that decision. If the decision is better or
        worse, the interval must not contain 0 (no difference). Otherwise it must lie within the equivalence margin (differences too small
        to matter). With two boots, the range of the two effects is used instead of the interval.
        """
        if self.over is None:
            return True
        first = self.effects[0]
        values = [effect.estimate.effect for effect in self.effects if effect.estimate]
        low, high = (self.over.low, self.over.high) if self.boots >= MIN_BOOTS else (min(values), max(values))
        if first.decision.resolved:
            return low > 0 or high < 0
        return -first.size.margin <= low and high <= first.size.margin


def compute_step_over_boots(
    first: Evidence, further: Sequence[Evidence | Damaged], arm: str, point: str
) -> StepOverBoots:
    """Return the effect of an arm (variant of a run) at a load point on each boot of the machine, and the mean over the boots.

    The effect compares the arm with its baseline in the primary metric (the metric that decides). The first run may have no estimate of the
    effect: its samples are not steady, or its values fall into two clusters. The result then has this run's effect alone, without a mean.

    Args:
        first: The run of a reference (a committed measurement) on the first boot.
        further: The runs of the same reference on other boots of the machine.
        arm: The name of the arm.
        point: The load point's name.

    Raises:
        UsageError: The first run has not measured the arm at that point.

    """
    first_effect = find_deciding_effect(first, arm, point)
    if first_effect is None:
        raise UsageError(f"{first.name}: {arm}", f"has no effect at point {point}", "name a point that the run has")
    if first_effect.estimate is None:
        return StepOverBoots(point, (first_effect,), None)
    effects, estimates, lost = [first_effect], [first_effect.estimate], list[str]()
    for run in further:
        effect = None if isinstance(run, Damaged) else find_deciding_effect(run, arm, point, first_effect.metric)
        if effect is not None and effect.estimate is not None and effect.estimate.has_interval:
            effects.append(effect)
            estimates.append(effect.estimate)
        else:
            few = f"{run.name} has too few valid blocks of {arm} at {point}"
            lost.append(run.said if isinstance(run, Damaged) else few)
    errors = [compute_standard_error(estimate.sd, estimate.n) or 0.0 for estimate in estimates]
    over = estimate_over_boots([estimate.effect for estimate in estimates], errors) if estimates[1:] else None
    return StepOverBoots(point, tuple(effects), over, tuple(lost))


def find_deciding_effect(run: Evidence, arm: str, point: str, metric: str = "") -> Effect | None:
    """Return the effect of an arm (variant of a run) at a load point in the primary metric; None if the run does not have it.

    If there are several, it is the first one about which the run has decided, or else the first of all.

    Args:
        run: The run.
        arm: The name of the arm.
        point: The load point's name.
        metric: Another metric to use in place of the primary one; empty: the primary one.

    """
    for disturbed in (False, True):
        for row in run.summary(disturbed).rows:
            if (row.arm.name, row.point.name) == (arm, point):
                effects = [effect for effect in row.effects if effect.metric == metric] if metric else row.shown
                return next((effect for effect in effects if effect.decision.judged), next(iter(effects), None))
    return None


# -- what is to be measured on another boot ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BootTask:
    """A measurement to make after the machine's next start, for a reference (a committed run in data/reference).

    Attributes:
        kind: What needs the measurement: `finding` (a question in data/reference/findings.toml) or `claim` (a published sentence).
        why: The finding's question, or the claim with its bound and the measured value.
        reference: The reference's name.
        arm: The arm (one variant of the run) that is measured again.
        against: The arm's baseline.
        sweep: The name of the sweep (a list of load points).
        target: The target's name.
        points: The names of the load points to measure.
        boots: The ids of the machine's boots on which the reference has runs.
        bench: The shell command that measures the arm.
        minutes: The approximate duration of that command.
        pack: The shell command that adds the new run to the reference.

    """

    kind: str
    why: str
    reference: str
    arm: str
    against: str
    sweep: str
    target: str
    points: tuple[str, ...]
    boots: tuple[str, ...]
    bench: str
    minutes: float
    pack: str


def make_boot_task(run: Evidence, further: Sequence[Evidence | Damaged], kind: str, reason: str, arm: str, points: Sequence[str], further_arms: Sequence[str] = (), blocks: int | None = None) -> BootTask:  # fmt: skip
    """Return the task of measuring one arm (variant) of a reference (a committed run) again on another boot of the machine.

    The arm's baseline and the A/A twin (the baseline a second time) are measured with the arm.

    Args:
        run: The reference's first run.
        further: The reference's runs on other boots.
        kind: What needs the measurement: `finding` or `claim`.
        reason: The finding's question, or the claim with its bound and the measured value.
        arm: The name of the arm (one variant of the run).
        points: The names of the load points to measure.
        further_arms: Arms that `arm` is compared with, in addition to its baseline.
        blocks: The number of blocks (repetitions of the entire plan); None: as many as the first run has.

    """
    record = run.run.record
    arms = {entry.name: entry for entry in record.arms}
    baseline = arms[arm].baseline or arm
    extra = [name for name in further_arms if name not in (arm, baseline)]
    against = f" --against {baseline}" if any(argument.startswith("--against=") for argument in record.command) else ""
    arguments = (
        f"{' '.join([arms[arm].variant, *(arms[name].variant for name in extra)])}{against} --points {','.join(points)}"
    )
    # The sweep is named even if it is the default: an arm's default could be another one by now.
    bench = f"just bench {arguments} --sweep {record.sweep} --blocks {blocks or record.blocks}{rerun.placed(record.at_knee, None)}{rerun.place(record.target)}"
    lasts_min = round(select_part(record, {arm, *extra}, points).plan().lasts_s(BRING_UP_S[record.target]) / 60, 1)
    minutes = round(lasts_min * (blocks or record.blocks) / record.blocks, 1)
    boots = [boot for entry in (run, *further) if isinstance(entry, Evidence) for boot in list_boots(entry.run.record)]
    return BootTask(
        kind, reason, run.name, arm, baseline, record.sweep, record.target, tuple(dict.fromkeys(points)),
        tuple(dict.fromkeys(boots)), bench, minutes, f"just maintain pack RUN --into {run.name}",
    )  # fmt: skip


def select_part(record: RunRecord, arms: set[str], points: Sequence[str]) -> RunRecord:
    """Return a copy of a run's record that contains only some of the arms (variants of the run) and load points.

    The copy also contains the baselines of these arms, their A/A twins (a baseline measured a second time), and the control runs
    of these points.

    Args:
        record: The run's record.
        arms: The names of the arms that the copy contains.
        points: The names of the load points that the copy contains.

    """
    bases = {arm.baseline for arm in record.arms if arm.name in arms and arm.baseline} | arms
    twins = {arm.name for arm in record.arms if arm.role == "again" and arm.baseline in bases}
    names = bases | twins
    chosen = [point for point in record.points if point.name in points]
    controls = [find_control(record.points, point) for point in chosen]
    point_names = {point.name for point in (*chosen, *controls) if point is not None}
    against = {pair.order: pair.against for pair in record.pairs}
    orders = [
        order
        for order, (_, arm, point) in enumerate(record.slots, start=1)
        if arm in names and against.get(order, arm) in names and point in point_names
    ]
    place = {order: number for number, order in enumerate(orders, start=1)}
    pairs = [pair for pair in record.pairs if pair.order in place]
    return record.model_copy(
        update={
            "arms": tuple(arm for arm in record.arms if arm.name in names),
            "points": tuple(point for point in record.points if point.name in point_names),
            "slots": tuple(record.slots[order - 1] for order in orders),
            "pairs": tuple(pair.model_copy(update={"order": place[pair.order]}) for pair in pairs),
        }
    )


def compute_distance_to_bound(part: MeasuredTest) -> float | None:
    """Return the distance of a claim's measured value from the nearest bound of the claim's test, as a share of the value.

    A bound of 1 for a ratio, or of 0 for a difference, is ignored, since it only requires a direction. The result is None without
    any other bound, and for an undecided test.
    """
    test = part.test
    neutral = 1.0 if test.ratio_to is not None else 0.0
    bounds = [
        bound for bound in (test.above, test.below, *(test.within or ())) if bound is not None and bound != neutral
    ]
    if not bounds or not part.value or part.holds is None:
        return None
    return min(abs(bound - part.value) / abs(part.value) for bound in bounds)


def list_claim_tasks(verdicts: Sequence[ClaimVerdict], runs: Sequence[Evidence], further: dict[str, list[Evidence | Damaged]]) -> list[BootTask]:  # fmt: skip
    """Return the measurements to make on another boot of the machine, for claims that could turn out differently there.

    Such a claim was decided on fewer than three boots, and a bound of its rule is near the measured value. A bound of 1 for a
    ratio, or of 0 for a difference, is ignored. There is one task per claim and run, for the test with the nearest bound.

    Args:
        verdicts: The verdicts of the claims.
        runs: The references' first runs.
        further: Reference → its runs on other boots.

    """
    by_name = {run.name: run for run in runs}
    decided = [verdict for verdict in verdicts if verdict.answer in ("reproduced", "contradicted")]
    tasks: list[BootTask] = []
    for verdict, finding in (
        (claim_verdict, finding) for claim_verdict in decided for finding in claim_verdict.findings
    ):
        near = [
            (distance, part)
            for part in finding.measured
            if (distance := compute_distance_to_bound(part)) is not None and distance <= NEAR_BOUND
        ]
        if not near:
            continue
        run, part = by_name[finding.name], min(near, key=lambda pair: pair[0])[1]
        test, base = part.test, part.test.ratio_to or part.test.minus
        points, further_arms = [part.point], list[str]()
        if base is not None and base.variant is None:
            points.append(part.other)
        elif base is not None:
            further_arms = run.arms(part.other)
        if test.within is not None:
            bound = f"within {test.within[0]:.3g} to {test.within[1]:.3g}"
        else:
            bound = f"above {test.above:g}" if test.above is not None else f"below {test.below:g}"
        reason = f"{verdict.claim.id}: {part.text}, bound: {bound}"
        try:
            tasks.append(
                make_boot_task(run, further.get(run.name, []), "claim", reason, part.arm, points, further_arms)
            )
        except LabError as error:
            raise UsageError(f"{verdict.claim.id}: {run.name}", error.fault, error.remedy) from None
    return [task for task in tasks if len(task.boots) < MIN_BOOTS]


# -- as tables ---------------------------------------------------------------------------------------------

LENGTHS = "known-cost-lengths"
"""The name of a sweep that measures a known cost in samples of two lengths, and of the committed run with it."""
LENGTHS_ARM = "ingress-nginx+extra-work-80"
"""The arm with the known cost."""
UNLIKE_RUNS = ("known-costs", "knobs-local")
"""Two committed runs, each on another boot, that measured the known cost in samples of 2 s and of 4 s, and found different costs."""


def make_lengths_page(runs: Sequence[Evidence]) -> list[Part]:
    """Return the page that compares the cost of a known extra work in samples of 2 s and of 4 s.

    A table has a row for each boot of the machine. Two committed runs (UNLIKE_RUNS) found different costs; the sentence below the
    table states how much of this is due to the length of their samples, and how much to the boot. If no committed run has
    measured the cost, the page is one sentence with the command that measures it.

    Args:
        runs: The committed runs.

    """
    run = next((entry for entry in runs if entry.name == LENGTHS), None)
    if run is None:
        command = f"just bench {LENGTHS_ARM} --sweep {LENGTHS} && just maintain pack RUN --into {LENGTHS}"
        return [make_sentence(f"Not measured yet. On each boot: `{command}`.")]
    rows: list[tuple[str, ...]] = []
    changes: list[float] = []
    errors: list[float] = []
    shorts: list[float] = []
    processors: set[str] = set()
    for boot in (run, *(further for further in further_boots(run) if isinstance(further, Evidence))):
        short, long = (find_deciding_effect(boot, LENGTHS_ARM, point) for point in ("ceiling-2s", "ceiling-4s"))
        if not (short and short.estimate and long and long.estimate):
            rows.append((f"{len(rows) + 1}", "no valid block", "", ""))
            continue
        shorts.append(short.estimate.effect)
        changes.append(long.estimate.effect - short.estimate.effect)
        both = [compute_standard_error(effect.sd, effect.n) or 0.0 for effect in (short.estimate, long.estimate)]
        errors.append(hypot(*both))
        processor = describe_processor(boot.run.record)
        processors.add(processor)
        label = f"{len(rows) + 1}: {processor}; {boot.run.record.created_at[:10]}"
        rows.append((label, format_difference(short), format_difference(long), format_percent(changes[-1])))
    table = make_text_table(("boot", "2 s", "4 s", "4 s against 2 s"), rows)
    unlike = [
        find_deciding_effect(entry, LENGTHS_ARM, "ceiling")
        for name in UNLIKE_RUNS
        for entry in runs
        if entry.name == name
    ]
    estimates = [effect.estimate for effect in unlike if effect is not None and effect.estimate is not None]
    if len(changes) < 2 or len(estimates) != len(UNLIKE_RUNS):
        return [table, make_sentence("How much is the boot and how much the length takes two boots with both lengths.")]
    gap, metric = estimates[1].effect - estimates[0].effect, find_metric("cpu_per_request")
    length, spread = estimate_over_boots(changes, errors), stdev(shorts)
    in_short, in_long = (metric.change(estimate.effect) for estimate in estimates)
    text = (
        f"In {UNLIKE_RUNS[0]} the cost is {in_short} (samples of 2 s), and in {UNLIKE_RUNS[1]}, on another boot, {in_long} (4 s): a ratio of CPU"
        f" per request that is {format_size(gap)} larger. On one and the same boot, samples of 4 s change the ratio by"
        f" {metric.change(length.effect)}{metric.ends(length.low, length.high)} (mean of {format_boots(len(changes))}). The boot makes the other"
        f" {format_size(gap - length.effect)}. From boot to boot the ratio in 2 s differs by {format_size(spread)} (SD), and that of two boots by"
        f" {format_size(sqrt(2) * spread)}; the {format_boots(len(changes))} had {len(processors)} different processors."
    )
    return [table, make_sentence(text)]


def make_boots_page(tasks: Sequence[BootTask]) -> list[Part]:
    """Return a table of the measurements to make after the machine's next start, with their total time below it."""
    rows = [
        (
            f"{task.kind}: {task.why}",
            f"{format_boots(len(task.boots))} of {task.reference}",
            f"{task.minutes:.0f}",
            f"{task.bench} && {task.pack}",
        )
        for task in tasks
    ]
    minutes = {kind: sum(task.minutes for task in tasks if task.kind == kind) for kind in ("finding", "claim")}
    lasts = ", ".join(f"{kind}s about {length:.0f} minutes" for kind, length in minutes.items() if length)
    return [
        make_text_table(("for", "rests on", "minutes", "measure, then add the run"), rows),
        Notes((Text(f"On each further boot: {lasts or 'nothing'}. RUN is the run's name that bench prints."),)),
    ]
