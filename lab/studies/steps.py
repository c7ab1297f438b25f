"""The tuning steps of all committed runs (a variant against its baseline at a load point), and the findings.

    data/reference/slow-link  →  TuningStep: gzip at rate-25 against baseline, p50 −62.5 %, better, of ingress-nginx, digitalocean

A step also has the sizes of its effect that claims published. A finding is a question in data/reference/findings.toml with the
step that answers it. Decisions and sentences are those of the run's own table (`lab.analysis.summary`,
`lab.analysis.explain.run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

from pydantic import Field

from lab.analysis.applied import describe_kept_defaults, map_programs
from lab.analysis.evidence import Evidence, further_boots, runs_elsewhere
from lab.analysis.explain.conclusion import condition_advice
from lab.analysis.explain.run import Verdict, format_difference, make_verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import SummaryRow
from lab.analysis.summary import Summary
from lab.base.errors import LabError, UsageError, refuse_unknown
from lab.base.files import reference_folder
from lab.base.validation import read_toml, validate_table
from lab.model.metrics import find_metric
from lab.model.names import DEFAULT_TARGET
from lab.model.variants.variants import load_chain, load_overlay
from lab.records.references import describe_machine
from lab.report.loads import describe_kind
from lab.studies.boots import (
    MIN_BOOTS,
    BootTask,
    StepOverBoots,
    compute_step_over_boots,
    list_claim_tasks,
    make_boot_task,
)
from lab.studies.claims.judging import ClaimVerdict as Judged
from lab.studies.claims.measuring import MeasuredTest
from lab.studies.study_files import StrictModel

Key = tuple[str, str, str, str, str]
"""The key of an effect: run, arm, what it is compared with, point, metric."""


@dataclass(frozen=True, slots=True)
class PublishedEffect:
    """The size of the effect of a tuning step (a variant against its baseline), as a claim published it.

    Attributes:
        claim: The claim's id.
        ratio: The metric's ratio to the baseline.

    """

    claim: str
    ratio: float


@dataclass(frozen=True, slots=True)
class TuningStep:
    """A tuning step: an arm (variant of a run) against its baseline at one load point, in the primary metric.

    Attributes:
        run: The run's id.
        folder: The name of the run's folder.
        target: The run's target.
        study: The study that the run or the variant belongs to; empty: none.
        system: The kustomize base at the bottom of the variant's manifests; empty: the variant no longer exists.
        arm: The arm's name.
        title: The variant's title.
        against: The arm that it is compared with.
        point: The load point's name.
        metric: The primary metric.
        decision: The run's decision about the effect.
        text: The effect in words.
        note: The run's note about the effect.
        gain: The effect as log-ratios (value, lower end, upper end), larger is better; None for a difference or without an interval.
        published: The sizes of the effect that claims published.
        knobs: The knobs (settings) that the arm adds to what it is compared with; empty: another system.
        load: The load in words, without its duration.
        level_s: The baseline's cost of a request in CPU seconds; None for another metric.
        blocks: The number of blocks (repetitions) that have the effect.
        boots: The boots of the machine that the effect rests on, in words.
        agree: Whether all boots support the decision.
        program: The program that ran as the arm's proxy, with its version; empty: it is unknown.
        machine: The machine, of a run of another machine, target or program than its reference; empty: of any other run.

    """

    run: str
    folder: str
    target: str
    study: str
    system: str
    arm: str
    title: str
    against: str
    point: str
    metric: str
    decision: Decision
    text: str
    note: str
    gain: tuple[float, float, float] | None
    published: tuple[PublishedEffect, ...] = ()
    knobs: tuple[str, ...] = ()
    load: str = ""
    level_s: float | None = None
    blocks: int = 0
    boots: str = ""
    agree: bool = True
    program: str = ""
    machine: str = ""

    @property
    def on(self) -> str:
        """The target where a tuning step was measured, as the end of a title: ` on kind`; empty for the target `local`."""
        return "" if self.target == DEFAULT_TARGET else f" on {self.target}"


class FindingQuestion(StrictModel):
    """A `[[finding]]` table of data/reference/findings.toml: a yes-or-no question, and which measured effect answers it.

    The effect is that of an arm (variant of a run) at a load point.
    """

    asks: str = Field(pattern=r"\?$")
    run: str
    arm: str
    point: str
    """The name of the point that decides; further boots measure the arm only there."""
    blocks: int | None = Field(default=None, ge=6)
    """The number of blocks of a further boot, where fewer than the first run's suffice; None: as many."""


class _Findings(StrictModel):
    finding: list[FindingQuestion]


@dataclass(frozen=True, slots=True)
class StepFinding:
    """A question about a tuning step (a variant against its baseline at a load point) with its measured answer.

    Attributes:
        asked: The question, and which run, arm (variant of the run) and load point answer it.
        title: The variant's title.
        verdict: The run's verdict about the arm.
        measured: The first part of the verdict's sentence (what was measured), followed by the boots of the machine that it rests on.
        advice: The second part of the verdict's sentence (what to do).
        boots: The effect on each boot of the machine that measured it.
        target: The run's target.
        program: The program that ran as the proxy, with its version.
        elsewhere: The same step under the same load on other targets: one for each target, load point and metric.
        machines: The same step in runs of other machines, targets or programs, which are pooled with nothing.
        kept: For a program that ran in place of a missing one: its costly default settings that the run did not change, in words; empty:
            none.

    """

    asked: FindingQuestion
    title: str
    verdict: Verdict
    measured: str
    advice: str
    boots: StepOverBoots
    target: str
    program: str
    elsewhere: tuple[TuningStep, ...]
    machines: tuple[TuningStep, ...]
    kept: str

    @property
    def where(self) -> str:
        """The target on which a finding was measured, and the program that ran there: `kind: Envoy Gateway 1.9.1`."""
        return f"{self.target}: {self.program}" if self.program else self.target


def list_steps(runs: Sequence[Evidence], judged: Sequence[Judged]) -> list[TuningStep]:
    """Return all tuning steps (variants against their baselines at a load point), from the best to the worst.

    Steps that are better come first, then equivalent and inconclusive ones, then worse ones. Within each group they are sorted by the
    effect, and effects that are no ratios come last. Variants that differ from their baselines in name only are left out. So are runs that
    cannot be summarised.

    Args:
        runs: The committed runs.
        judged: The verdicts of the claims.

    """
    published = dict[Key, list[PublishedEffect]]()
    for verdict in judged:
        for finding, part in ((measured, part) for measured in verdict.findings for part in measured.measured):
            ratio = read_published_ratio(verdict, part)
            if ratio and part.test.ratio_to and part.test.ratio_to.variant:
                key = (finding.run, part.arm, part.other, part.point, part.test.metric)
                published.setdefault(key, []).append(PublishedEffect(verdict.claim.id, ratio))
    rank = {Decision.BETTER: -1, Decision.WORSE: 1}

    def place(step: TuningStep) -> tuple[int, bool, float, str, str]:
        size = step.gain[0] if step.gain else 0.0
        return rank.get(step.decision, 0), step.gain is None, -size, step.arm, step.point

    return sorted((step for run in runs for step in _list_steps(run, published)), key=place)


def list_steps_elsewhere(runs: Sequence[Evidence]) -> list[TuningStep]:
    """Return the tuning steps in the runs of other machines, targets or programs that were added to committed runs, each with its machine.

    Args:
        runs: The committed runs, to which the others were added.

    """
    return [
        replace(step, machine=describe_machine(other.run.record))
        for run in runs
        for other in runs_elsewhere(run)
        for step in _list_steps(other, {})
    ]


def _list_steps(run: Evidence, published: Mapping[Key, Sequence[PublishedEffect]]) -> Iterator[TuningStep]:
    programs = map_programs(run.run)
    for summary in summarise_run(run):
        for row in summary.rows:
            if row.arm.role == "variant" and not row.point.control and row.arm.name not in summary.nulls:
                steps = (_make_step(run, row, effect, published) for effect in row.shown if effect.decision.judged)
                yield from (replace(step, program=programs.get(step.arm, "")) for step in steps)


def summarise_run(run: Evidence) -> tuple[Summary, ...]:
    """Return two summaries of a run, of its steady loads and of its disrupted ones; empty for a run that cannot be summarised."""
    try:
        return tuple(run.summary(disturbed) for disturbed in (False, True))
    except LabError:
        return ()


def _make_step(
    run: Evidence, row: SummaryRow, effect: Effect, published: Mapping[Key, Sequence[PublishedEffect]]
) -> TuningStep:
    record, estimate, metric = run.run.record, effect.estimate, find_metric(effect.metric)
    variant, study, system = record.variants[row.arm.variant], "", ""
    try:
        overlays = load_chain(row.arm.variant)
        study, system = load_overlay(row.arm.variant).study or "", overlays[0].resources[-1].name
    except (UsageError, IndexError):  # the variant no longer exists
        pass
    gain = None
    if metric.ratio and estimate is not None and estimate.interval is not None:
        low, middle, high = estimate.interval[0], estimate.effect, estimate.interval[1]
        gain = (middle, low, high) if metric.better == "more" else (-middle, -high, -low)
    key = (record.id, row.arm.name, effect.against, row.point.name, effect.metric)
    boots = compute_step_over_boots(run, further_boots(run), row.arm.name, row.point.name)
    return TuningStep(
        record.id, run.name, record.target, record.study or study, system, row.arm.name, variant.title, effect.against,
        row.point.name, effect.metric, effect.decision, format_difference(effect), effect.remark, gain, tuple(published.get(key, ())),
        variant.own_knobs if variant.baseline == effect.against else (), describe_kind(row.point), effect.level_s,
        estimate.n if estimate else 0, boots.text, boots.agree,
    )  # fmt: skip


def read_published_ratio(verdict: Judged, part: MeasuredTest) -> float | None:
    """Return the ratio to the baseline that a claim published, for comparison with a measured test; None if it published none.

    Percentages are converted: `+50 %` becomes 1.5, and `50 % faster` becomes 1/1.5 for a metric of time.

    Args:
        verdict: The claim's verdict.
        part: A measured test of the claim's rule.

    """
    if part.test.ratio_to is None or not part.test.bounded:
        return None
    if part.test.like and part.test.within:
        return sqrt(part.test.within[0] * part.test.within[1])
    number, unit = verdict.claim.number, verdict.claim.unit
    if number is not None and unit.startswith("%") and number > -100:
        ratio = 1 + number / 100
        slower = "faster" in unit and find_metric(part.test.metric).better == "less"
        return 1 / ratio if slower else ratio  # half as fast again is two thirds of the time
    return number if number is not None and unit.startswith("x") and number > 0 else None


def list_findings(runs: Sequence[Evidence]) -> list[StepFinding]:
    """Return the answers to the questions in data/reference/findings.toml, in the file's order.

    A question whose run is not among `runs` is left out.

    Args:
        runs: The committed runs.

    Raises:
        UsageError: The file is faulty.

    """
    path, place = Path(reference_folder()) / "findings.toml", "data/reference/findings.toml"
    if not path.is_file():
        return []
    questions = validate_table(_Findings, read_toml(path, place, "git's"), place, place, FindingQuestion).finding
    by_name = {run.name: run for run in runs}
    return [_answer(question, by_name[question.run], runs, place) for question in questions if question.run in by_name]


def _answer(question: FindingQuestion, run: Evidence, runs: Sequence[Evidence], place: str) -> StepFinding:
    """Return the finding for a question: the answer that the run named in the question gives.

    The finding's `elsewhere` has the same variant, baseline, load and metric on other targets, from the run with the most blocks
    (repetitions) on each target.

    Args:
        question: The question.
        run: The run that the question names.
        runs: The committed runs, the newest first.
        place: The path of the file with the questions, for messages.

    """
    steady, disturbed = run.summary(), run.summary(disturbed=True)
    by_arm = {verdict.arm: verdict for verdict in make_verdicts(disturbed if disturbed.rows else steady)}
    refuse_unknown(question.arm, by_arm, f"{place}: {question.run}", f"no arm '{question.arm}'")
    record, verdict = run.run.record, by_arm[question.arm]
    advice = condition_advice(verdict, record)
    against = next((arm.baseline for arm in record.arms if arm.name == question.arm), None)
    defaults = "" if disturbed.rows else describe_kept_defaults(run.run, (question.arm, against or ""))
    boots = compute_step_over_boots(run, further_boots(run), question.arm, question.point)
    if defaults and verdict.kind in {"better-system", "worse-system"}:
        advice = "no advice: its baseline costs more than the release that it is named for"
    if not boots.agree:
        advice = f"no advice: boots differ; on the first: {advice}"
    keys = {
        (step.against, step.point, step.load, step.metric) for step in _list_steps(run, {}) if step.arm == question.arm
    }
    others = [other for other in runs if other.run.record.target != record.target and other.arms(question.arm)]
    steps = [step for other in others for step in _list_steps(other, {}) if step.arm == question.arm]
    elsewhere: dict[tuple[str, str, str], TuningStep] = {}
    for step in (step for step in steps if (step.against, step.point, step.load, step.metric) in keys):
        identity = step.target, step.point, step.metric
        elsewhere[identity] = max(elsewhere.get(identity, step), step, key=lambda candidate: candidate.blocks)
    machines = [
        step for step in list_steps_elsewhere([run]) if (step.arm, step.point) == (question.arm, question.point)
    ]
    program = map_programs(run.run).get(question.arm, "")
    return StepFinding(
        question,
        record.variants[question.arm].title,
        verdict,
        f"{verdict.found}; {boots.text}",
        advice,
        boots,
        record.target,
        program.partition(", in place of ")[0],
        tuple(elsewhere.values()),
        tuple(machines),
        defaults,
    )


def list_boot_tasks(runs: Sequence[Evidence], judged: Sequence[Judged]) -> list[BootTask]:
    """Return the measurements to make after the machine's next start: first for findings, then for claims.

    A finding needs a measurement as long as it rests on fewer than `MIN_BOOTS` boots (starts of the machine). For a claim there
    is a second condition: a bound of its rule is near the measured value.

    Args:
        runs: The committed runs.
        judged: The verdicts of the claims.

    """
    further = {run.name: further_boots(run) for run in runs}
    by_name = {run.name: run for run in runs}
    tasks: list[BootTask] = []
    for question in (finding.asked for finding in list_findings(runs) if finding.boots.boots < MIN_BOOTS):
        run, points = by_name[question.run], [question.point]
        tasks.append(
            make_boot_task(
                run, further[run.name], "finding", question.asks, question.arm, points, blocks=question.blocks
            )
        )
    return [*tasks, *list_claim_tasks(judged, runs, further)]
