"""Every tuning step that was measured: the effects that may claim, of all committed runs, each with what was published of it; and ten of them in plain words.

    data/reference/slow-link  →  Step("gzip at rate-25 against baseline", p50 −62.5 %, better, of ingress-nginx, digitalocean)

Refuses to judge anew: decisions and sentences are the run's table's own (`lab.analysis.summary`, `lab.analysis.explain.run`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import Path

from pydantic import Field

from lab.analysis.applied import describe_kept_defaults
from lab.analysis.evidence import Evidence, further_boots
from lab.analysis.explain.run import Verdict, difference_text, verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import Row
from lab.analysis.summary import Summary
from lab.base.errors import LabError, UsageError, refuse_unknown
from lab.base.files import reference_folder
from lab.base.validation import read_toml, validated
from lab.model.metrics import about
from lab.model.names import DEFAULT_TARGET
from lab.model.variants.variants import chain, load_overlay
from lab.studies.boots import WANTED, BootWanted, StepOverBoots, boot_wanted, step_over_boots, wanted_for_claims
from lab.studies.claims.judging import Verdict as Judged
from lab.studies.claims.measuring import Measured
from lab.studies.study_files import Strict

Key = tuple[str, str, str, str, str]
"""run, arm, what it is against, point, metric"""


@dataclass(frozen=True, slots=True)
class Published:
    """What a claim says of a step. `ratio`: against the baseline, of the metric."""

    claim: str
    text: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Step:
    """One arm against its baseline at one point, in the metric that may claim. `text`: the effect; `system`: the base that its
    root is made of; `gain`: log-ratios, value and interval, larger is better; None of a difference.
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
    published: tuple[Published, ...] = ()

    @property
    def on(self) -> str:
        """` on TARGET` where that is not the one that most steps are measured on."""
        return "" if self.target == DEFAULT_TARGET else f" on {self.target}"

    def gained(self, ratio: float) -> float:
        """A ratio of its metric as `gain` has it."""
        return log(ratio) if about(self.metric).better == "more" else -log(ratio)


class Asked(Strict):
    """One `[[finding]]` of data/reference/findings.toml: a question that can be answered with yes, and the step that answers it."""

    asks: str = Field(pattern=r"\?$")
    run: str
    arm: str
    point: str
    """The point that decides: further boots measure the arm there alone."""
    blocks: int | None = Field(default=None, ge=6)
    """Blocks of a further boot, where fewer than the first run's do; None = as many."""


class _Findings(Strict):
    finding: list[Asked]


@dataclass(frozen=True, slots=True)
class Finding:
    """`measured` and `advice`: the run's own sentence, in its two parts, the first with the boots that it rests on; `boots`: the effect over them.

    `elsewhere`: the same step on other targets, one of each target and metric. `kept`: the costly defaults of its own that a stand-in kept in its
    run.
    """

    asked: Asked
    title: str
    verdict: Verdict
    measured: str
    advice: str
    boots: StepOverBoots
    target: str
    elsewhere: tuple[Step, ...]
    kept: str

    @property
    def on(self) -> str:
        """Where it was measured, in words: `on kind`."""
        return f"on {self.target}"


def steps(runs: Sequence[Evidence], judged: Sequence[Judged]) -> list[Step]:
    """The better ones first, then what is the same or cannot be told, then the worse ones, each by size, what is no ratio last. Without the same variant under another name, and without runs that cannot be summarised."""
    told = dict[Key, list[Published]]()
    for verdict in judged:
        for finding, part in ((each, part) for each in verdict.findings for part in each.measured):
            ratio = published_ratio(verdict, part)
            if ratio and part.test.ratio_to and part.test.ratio_to.variant:
                key = (finding.run, part.arm, part.other, part.point, part.test.metric)
                told.setdefault(key, []).append(Published(verdict.claim.id, verdict.claim.value, ratio))
    rank = {Decision.BETTER: -1, Decision.WORSE: 1}

    def place(step: Step) -> tuple[int, bool, float, str, str]:
        size = step.gain[0] if step.gain else 0.0
        return rank.get(step.decision, 0), step.gain is None, -size, step.arm, step.point

    return sorted((step for run in runs for step in _of(run, told)), key=place)


def _of(run: Evidence, told: Mapping[Key, Sequence[Published]]) -> Iterator[Step]:
    for summary in summaries(run):
        for row in summary.rows:
            if row.arm.role == "variant" and not row.point.control and row.arm.name not in summary.nulls:
                yield from (_step(run, row, one, told) for one in row.shown if one.decision.judged)


def summaries(run: Evidence) -> tuple[Summary, ...]:
    """Of its steady loads, and of the disturbed ones; empty where it cannot be summarised."""
    try:
        return tuple(run.summary(disturbed) for disturbed in (False, True))
    except LabError:
        return ()


def _step(run: Evidence, row: Row, effect: Effect, told: Mapping[Key, Sequence[Published]]) -> Step:
    record, estimate, metric = run.run.record, effect.estimate, about(effect.metric)
    variant, study, system = record.variants[row.arm.variant], "", ""
    try:
        overlays = chain(row.arm.variant)
        study, system = load_overlay(row.arm.variant).study or "", overlays[0].resources[-1].name
    except (UsageError, IndexError):  # there is no such variant any more
        pass
    gain = None
    if metric.ratio and estimate is not None and estimate.interval is not None:
        low, middle, high = estimate.interval[0], estimate.effect, estimate.interval[1]
        gain = (middle, low, high) if metric.better == "more" else (-middle, -high, -low)
    key = (record.id, row.arm.name, effect.against, row.point.name, effect.metric)
    return Step(
        record.id, run.name, record.target, record.study or study, system, row.arm.name, variant.title, effect.against,
        row.point.name, effect.metric, effect.decision, difference_text(effect), effect.note, gain, tuple(told.get(key, ())),
    )  # fmt: skip


def published_ratio(verdict: Judged, part: Measured) -> float | None:
    """What the claim published of this ratio; None where that is no number, or of something else."""
    if part.test.ratio_to is None or not part.test.bounded:
        return None
    if part.test.like and part.test.within:
        return sqrt(part.test.within[0] * part.test.within[1])
    number, unit = verdict.claim.number, verdict.claim.unit
    if number is not None and unit.startswith("%") and number > -100:
        ratio = 1 + number / 100
        slower = "faster" in unit and about(part.test.metric).better == "less"
        return 1 / ratio if slower else ratio  # half as fast again is two thirds of the time
    return number if number is not None and unit.startswith("x") and number > 0 else None


def findings(runs: Sequence[Evidence]) -> list[Finding]:
    """Those of data/reference/findings.toml, in its order; one whose run is damaged or not there is left out. UsageError for a faulty file."""
    path, place = Path(reference_folder()) / "findings.toml", "data/reference/findings.toml"
    if not path.is_file():
        return []
    asked = validated(_Findings, read_toml(path, place, "git's"), place, place, Asked).finding
    there = {run.name: run for run in runs}
    return [_found(each, there[each.run], runs, place) for each in asked if each.run in there]


def _found(asked: Asked, run: Evidence, runs: Sequence[Evidence], place: str) -> Finding:
    """`elsewhere` has the same variant, baseline, point and metric, of each target the newest run: `runs` as
    `lab.analysis.evidence.references` orders them.
    """
    steady, disturbed = summaries(run)
    told = {verdict.arm: verdict for verdict in verdicts(disturbed if disturbed.rows else steady)}
    refuse_unknown(asked.arm, told, f"{place}: {asked.run}", f"no arm '{asked.arm}'")
    said = told[asked.arm].text.partition("\n")[0].removeprefix(f"{asked.arm}: ").removesuffix(":")
    measured, _, advice = said.rpartition(": ")
    against = next((arm.baseline for arm in run.run.record.arms if arm.name == asked.arm), None)
    kept = "" if disturbed.rows else describe_kept_defaults(run.run, (asked.arm, against or ""))
    boots = step_over_boots(run, further_boots(run), asked.arm, asked.point)
    if not boots.agree:
        advice = f"no advice: boots differ; on the first: {advice}"
    title, target = run.run.record.variants[asked.arm].title, run.run.record.target
    mine = {(step.against, step.point, step.metric) for step in _of(run, {}) if step.arm == asked.arm}
    elsewhere: dict[tuple[str, str, str], Step] = {}
    for other in runs:
        if other.run.record.target != target and other.arms(asked.arm):
            for step in _of(other, {}):
                if step.arm == asked.arm and (step.against, step.point, step.metric) in mine:
                    elsewhere.setdefault((step.target, step.point, step.metric), step)
    said = f"{measured}; {boots.text}"
    return Finding(asked, title, told[asked.arm], said, advice, boots, target, tuple(elsewhere.values()), kept)


def boots_wanted(runs: Sequence[Evidence], judged: Sequence[Judged]) -> list[BootWanted]:
    """Return what is to be measured once the machine has booted anew: findings that rest on fewer boots than `WANTED`, then claims."""
    further = {run.name: further_boots(run) for run in runs}
    there = {run.name: run for run in runs}
    found: list[BootWanted] = []
    for asked in (each.asked for each in findings(runs) if each.boots.boots < WANTED):
        run, points = there[asked.run], [asked.point]
        found.append(boot_wanted(run, further[run.name], "finding", asked.asks, asked.arm, points, blocks=asked.blocks))
    return [*found, *wanted_for_claims(judged, runs, further)]
