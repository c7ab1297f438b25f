"""A reference's runs on several boots → an effect over boots, and what is still to be measured on another one.

    data/reference/slow-link, …/boot-2, …/boot-3  →  "over three boots p50 at rate-25 −61.8 % [−68.0, −54.4] (…)"

An interval of one boot says nothing of the next, so that what rests on one is tagged `one boot`. Refuses to pool blocks of two boots: each
boot has one effect, with its standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

from rich.text import Text

from lab.analysis import rerun
from lab.analysis.evidence import Damaged, Evidence, further_boots
from lab.analysis.explain.run import difference_text
from lab.analysis.judge.effects import Effect
from lab.base.errors import LabError, UsageError
from lab.model.metrics import about
from lab.model.names import BRING_UP_S
from lab.model.run import RunRecord
from lab.model.sweeps import control_of
from lab.records.references import boots_of
from lab.report.grid import Notes, Part, plain, texts
from lab.stats.boots import OverBoots, format_boots, over_boots, standard_error
from lab.stats.units import format_percent, format_size
from lab.studies.claims.judging import Verdict
from lab.studies.claims.measuring import Measured

WANTED = 3
"""Boots that a finding is to rest on: with two, an interval over boots is twelve standard errors wide."""
NEAR = 0.2
"""A claim's bound is near what was measured within this share of it; the effect of a boot (SD 8 to 9.5 %) can move one across the other."""
ONE_BOOT = (
    "Every size is of one boot of one machine, unless it says of how many: from boot to boot a ratio differs by 8 to 9.5 % (SD),"
    " which no interval of one boot contains"
)


@dataclass(frozen=True, slots=True)
class StepOverBoots:
    """One arm's effect at one point, boot by boot.

    `effects`: of each boot that has one, the first run's first; `over`: their mean with its interval over boots, None for one boot;
    `lost`: why a further boot does not count.
    """

    point: str
    effects: tuple[Effect, ...]
    over: OverBoots | None
    lost: tuple[str, ...] = ()

    @property
    def boots(self) -> int:
        return len(self.effects)

    @property
    def text(self) -> str:
        """For people: `one boot`, or the effect over boots with each boot's."""
        lost = "".join(f"; {why}" for why in self.lost)
        if self.over is None:
            return f"{format_boots(max(1, self.boots))}{lost}"
        metric = about(self.effects[0].metric)
        said = f"{metric.change(self.over.effect)}{metric.ends(self.over.low, self.over.high)}"
        each = ", ".join(metric.change(one.estimate.effect) for one in self.effects if one.estimate)
        return f"over {format_boots(self.boots)} {metric.title} at {self.point} {said} ({each}){lost}"

    @property
    def agree(self) -> bool:
        """Whether the boots bear the first one's decision out.

        From three on the interval over boots decides as the run's own did: it excludes no difference, or of an equivalent step lies
        within the equivalence margin. Two boots need the same sign, or each an effect within the margin.
        """
        if self.over is None:
            return True
        first = self.effects[0]
        values = [one.estimate.effect for one in self.effects if one.estimate]
        low, high = (self.over.low, self.over.high) if self.boots >= WANTED else (min(values), max(values))
        if first.decision.resolved:
            return low > 0 or high < 0
        return -first.size.worth <= low and high <= first.size.worth


def step_over_boots(first: Evidence, further: Sequence[Evidence | Damaged], arm: str, point: str) -> StepOverBoots:
    """Return an arm's deciding effect at a point over a reference's boots.

    Where the first run has no estimate (samples that are not steady, two clusters), its own sentence is all there is, of one boot.
    UsageError where the run has not measured the arm at that point.
    """
    own = deciding_effect(first, arm, point)
    if own is None:
        raise UsageError(f"{first.name}: {arm}", f"has no effect at point {point}", "name a point that the run has")
    if own.estimate is None:
        return StepOverBoots(point, (own,), None)
    effects, estimates, lost = [own], [own.estimate], list[str]()
    for run in further:
        found = None if isinstance(run, Damaged) else deciding_effect(run, arm, point, own.metric)
        if found is not None and found.estimate is not None and found.estimate.has_interval:
            effects.append(found)
            estimates.append(found.estimate)
        else:
            few = f"{run.name} has too few valid blocks of {arm} at {point}"
            lost.append(run.said if isinstance(run, Damaged) else few)
    errors = [standard_error(one.sd, one.n) or 0.0 for one in estimates]
    over = over_boots([one.effect for one in estimates], errors) if estimates[1:] else None
    return StepOverBoots(point, tuple(effects), over, tuple(lost))


def deciding_effect(run: Evidence, arm: str, point: str, metric: str = "") -> Effect | None:
    """Return the effect of an arm at a point in the metric that may claim (or the one named): a judged one first. None where there is none."""
    for disturbed in (False, True):
        for row in run.summary(disturbed).rows:
            if (row.arm.name, row.point.name) == (arm, point):
                effects = [one for one in row.effects if one.metric == metric] if metric else row.shown
                return next((one for one in effects if one.decision.judged), next(iter(effects), None))
    return None


# -- what is to be measured on another boot ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BootWanted:
    """What to measure once the machine has booted anew, and into which reference it goes.

    `why`: the finding's question, or the claim with its bound and what was measured; `boots`: ids of those that are there;
    `bench`: the command that measures it, `minutes`: about how long that takes; `pack`: the command that adds it.
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


def boot_wanted(run: Evidence, further: Sequence[Evidence | Damaged], kind: str, why: str, arm: str, points: Sequence[str], others: Sequence[str] = (), blocks: int | None = None) -> BootWanted:  # fmt: skip
    """Return how to measure an arm of a reference on another boot: it, its baseline and the A/A twin, at these points alone.

    Args:
        run: the reference's first run.
        further: its runs on other boots.
        kind: `finding` or `claim`.
        why: which one.
        arm: the arm that is measured again.
        points: names of the points.
        others: further arms that it is compared with, beside its baseline.
        blocks: how many; None = as many as the first run.

    """
    record = run.run.record
    known = {each.name: each for each in record.arms}
    baseline = known[arm].baseline or arm
    more = [name for name in others if name not in (arm, baseline)]
    against = f" --against {baseline}" if any(word.startswith("--against=") for word in record.command) else ""
    asked = f"{' '.join([known[arm].variant, *(known[name].variant for name in more)])}{against} --points {','.join(points)}"
    # the sweep is named though it be the default: an arm's own could be another by now
    bench = f"just bench {asked} --sweep {record.sweep} --blocks {blocks or record.blocks}{rerun.placed(record.at_knee, None)}{rerun.place(record.target)}"
    lasts_min = round(part_of(record, {arm, *more}, points).plan().lasts_s(BRING_UP_S[record.target]) / 60, 1)
    minutes = round(lasts_min * (blocks or record.blocks) / record.blocks, 1)
    boots = [boot for each in (run, *further) if isinstance(each, Evidence) for boot in boots_of(each.run.record)]
    return BootWanted(
        kind, why, run.name, arm, baseline, record.sweep, record.target, tuple(dict.fromkeys(points)),
        tuple(dict.fromkeys(boots)), bench, minutes, f"just maintain pack RUN --into {run.name}",
    )  # fmt: skip


def part_of(record: RunRecord, arms: set[str], points: Sequence[str]) -> RunRecord:
    """Return a run's record with these arms, their baselines and A/A twins at these points (and their control runs) alone."""
    bases = {arm.baseline for arm in record.arms if arm.name in arms and arm.baseline} | arms
    twins = {arm.name for arm in record.arms if arm.role == "again" and arm.baseline in bases}
    names = bases | twins
    wanted = [point for point in record.points if point.name in points]
    controls = [control_of(record.points, point) for point in wanted]
    kept = {point.name for point in (*wanted, *controls) if point is not None}
    against = {pair.order: pair.against for pair in record.pairs}
    orders = [
        order
        for order, (_, arm, point) in enumerate(record.slots, start=1)
        if arm in names and against.get(order, arm) in names and point in kept
    ]
    place = {order: number for number, order in enumerate(orders, start=1)}
    pairs = [pair for pair in record.pairs if pair.order in place]
    return record.model_copy(
        update={
            "arms": tuple(arm for arm in record.arms if arm.name in names),
            "points": tuple(point for point in record.points if point.name in kept),
            "slots": tuple(record.slots[order - 1] for order in orders),
            "pairs": tuple(pair.model_copy(update={"order": place[pair.order]}) for pair in pairs),
        }
    )


def distance_to_bound(part: Measured) -> float | None:
    """Return how far the nearest bound of a test is from what was measured, as a share of that; None where no bound is a size."""
    test = part.test
    nothing = 1.0 if test.ratio_to is not None else 0.0
    bounds = [each for each in (test.above, test.below, *(test.within or ())) if each is not None and each != nothing]
    if not bounds or not part.value or part.holds is None:
        return None
    return min(abs(bound - part.value) / abs(part.value) for bound in bounds)


def wanted_for_claims(verdicts: Sequence[Verdict], runs: Sequence[Evidence], further: dict[str, list[Evidence | Damaged]]) -> list[BootWanted]:  # fmt: skip
    """Return what to measure for every claim whose bound is a size near what was measured and that rests on fewer than three boots.

    A bound that only asks for a direction (a ratio of 1, a difference of 0) is no size. Each claim and run once, by its nearest test.
    """
    by_name = {run.name: run for run in runs}
    decided = [verdict for verdict in verdicts if verdict.answer in ("reproduced", "contradicted")]
    found: list[BootWanted] = []
    for verdict, finding in ((each, found_by) for each in decided for found_by in each.findings):
        near = [
            (far, part) for part in finding.measured if (far := distance_to_bound(part)) is not None and far <= NEAR
        ]
        if not near:
            continue
        run, part = by_name[finding.name], min(near, key=lambda each: each[0])[1]
        test, other = part.test, part.test.ratio_to or part.test.minus
        points, others = [part.point], list[str]()
        if other is not None and other.variant is None:
            points.append(part.other)
        elif other is not None:
            others = run.arms(part.other)
        if test.within is not None:
            bound = f"within {test.within[0]:.3g} to {test.within[1]:.3g}"
        else:
            bound = f"above {test.above:g}" if test.above is not None else f"below {test.below:g}"
        why = f"{verdict.claim.id}: {part.text}, bound: {bound}"
        try:
            found.append(boot_wanted(run, further.get(run.name, []), "claim", why, part.arm, points, others))
        except LabError as error:
            raise UsageError(f"{verdict.claim.id}: {run.name}", error.fault, error.remedy) from None
    return [wanted for wanted in found if len(wanted.boots) < WANTED]


# -- as tables ---------------------------------------------------------------------------------------------

LENGTHS = "known-cost-lengths"
"""The sweep, which is also the reference's name."""
LENGTHS_ARM = "ingress-nginx+extra-work-80"


def lengths(runs: Sequence[Evidence]) -> list[Part]:
    """Return the known cost in samples of 2 s and 4 s, a row for each boot, with how far lengths and boots differ; or how to measure it."""
    run = next((each for each in runs if each.name == LENGTHS), None)
    if run is None:
        command = f"just bench {LENGTHS_ARM} --sweep {LENGTHS} && just maintain pack RUN --into {LENGTHS}"
        return [plain(f"Not measured yet. On each boot: `{command}`.")]
    rows: list[tuple[str, ...]] = []
    changes: list[float] = []
    shorts: list[float] = []
    for each in (run, *(boot for boot in further_boots(run) if isinstance(boot, Evidence))):
        short, long = (deciding_effect(each, LENGTHS_ARM, point) for point in ("ceiling-2s", "ceiling-4s"))
        if not (short and short.estimate and long and long.estimate):
            rows.append((f"{len(rows) + 1}", "no valid block", "", ""))
            continue
        shorts.append(short.estimate.effect)
        changes.append(long.estimate.effect - short.estimate.effect)
        where = f"{len(rows) + 1}: {each.run.record.facts['cpu']}, {each.run.record.created_at[:10]}"
        rows.append((where, difference_text(short), difference_text(long), format_percent(changes[-1])))
    said = "No boot has both"
    if changes:
        mean = format_percent(sum(changes) / len(changes))
        said = f"Of {format_boots(len(changes))}. The length of the sample makes {mean} on average"
    if len(shorts) > 1:
        said += f"; from boot to boot the cost in 2 s differs by {format_size(stdev(shorts))} (SD of the ratio)"
    return [texts(("boot", "2 s", "4 s", "4 s against 2 s"), rows), plain(f"{said}.")]


def page(wanted: Sequence[BootWanted]) -> list[Part]:
    """Return the table of what to measure once the machine has booted anew, with its length in all."""
    rows = [
        (
            f"{one.kind}: {one.why}",
            f"{format_boots(len(one.boots))} of {one.reference}",
            f"{one.minutes:.0f}",
            f"{one.bench} && {one.pack}",
        )
        for one in wanted
    ]
    said = {kind: sum(one.minutes for one in wanted if one.kind == kind) for kind in ("finding", "claim")}
    lasts = ", ".join(f"{kind}s about {length:.0f} minutes" for kind, length in said.items() if length)
    return [
        texts(("for", "rests on", "minutes", "measure, then add the run"), rows),
        Notes((Text(f"On each further boot: {lasts or 'nothing'}. RUN is the run's name that bench prints."),)),
    ]
