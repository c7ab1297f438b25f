"""The effect that matters → how many blocks to measure, decided before the run from the noise that an earlier one found here.

Refuses to guess: without an earlier run under the same conditions there is no number, only the command that makes one.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from lab.analysis import rerun
from lab.analysis.decision import SURE_P
from lab.analysis.forecast import POOLED, Conditions, Past, judged_at, past_runs, together
from lab.analysis.noise import BASELINE, Noise
from lab.base.errors import UsageError, did_you_mean
from lab.model.metrics import RATIOS, about
from lab.model.pairs import Scheme
from lab.model.run import AtKnee, PlannedFor
from lab.model.sweeps import Point
from lab.stats import paired as stats
from lab.stats import power
from lab.stats.units import format_blocks

POWER = 0.9
PLACE = "--resolve"


@dataclass(frozen=True, slots=True)
class Resolve:
    """`5%,p99`: an effect as a fraction (0.05), and the metric, None for each variant's own primary one."""

    effect: float
    metric: str | None = None

    def __str__(self) -> str:
        return f"{100 * self.effect:g}%" + (f",{self.metric}" if self.metric else "")


def parse(text: str) -> Resolve:
    """As the command line has it: `5%`, `2.5 %,rate`; a bare number from 1 on is per cent, too. UsageError for what is neither more than 0 % nor at most 100 %."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+) ?(%?)(?:,(.+))?", text.strip(), re.ASCII)
    if not found or (not found[2] and 0 < float(found[1]) < 1):  # 0.05: a share, or per cent?
        raise UsageError(PLACE, f'expected a percentage, got "{text}"', "as in --resolve 5% or --resolve 5%,rate")
    percent, metric = float(found[1]), found[3]
    if not 0 < percent <= 100:
        raise UsageError(PLACE, f"expected more than 0% and at most 100%, got {found[1]}%", "as in --resolve 5%")
    if metric is not None and metric not in RATIOS:
        raise UsageError(PLACE, f"unknown metric '{metric}'", did_you_mean(metric, RATIOS))
    return Resolve(percent / 100, metric)


@dataclass(frozen=True, slots=True)
class Subject:
    """A variant that is to be judged against `baseline` (itself, where it is compared with nothing), whose manifests have that digest.

    `schemes`: point → how its effect is come by there; None where the arms alone lead.
    """

    variant: str
    baseline: str
    primary: str | None
    needs: str
    baseline_sha256: str
    schemes: Mapping[str, Scheme | None]


@dataclass(frozen=True, slots=True)
class Choice:
    """As many blocks as the subject and point that want the most; `past` is the run that said so. `once`: as many as those want that are
    measured on one generation of workers, where others are on several.
    """

    blocks: int
    planned_for: PlannedFor
    past: Past
    once: int = stats.MIN_BLOCKS


def choose_blocks(
    wanted: Resolve,
    subjects: Sequence[Subject],
    conditions: Conditions,
    sweep: str,
    at: AtKnee | None = None,
    k6_out: str | None = None,
    elsewhere: Past | None = None,
) -> Choice:
    """UsageError where nothing can be promised: a disturbed sweep, no metric, no earlier run, nothing judged, too many blocks.

    `at`: the knee at which the sweep's loads were placed. `k6_out`: what k6 keeps of its own. `elsewhere`: what is known of these very
    systems' scatter without a run of this machine, None: nothing.
    """
    if any(point.disturbance is not None for point in conditions.points):
        fault = f"what comes of the disturbance in sweep '{sweep}' varies in its own unit, not by per cent"
        raise UsageError(PLACE, fault, "name the number by --blocks: its own A/A pairs show what it resolved")
    load = f"--sweep {shlex.quote(sweep)}{rerun.placed(at, k6_out)}"
    pasts: dict[str, Past] = {}
    judged: list[tuple[Noise, Past]] = []
    for subject, metric in _judged(wanted, subjects):
        if subject.baseline not in pasts:
            pasts[subject.baseline] = _past_of(subject, conditions, load, elsewhere)
        past = pasts[subject.baseline]
        known, asked = past.of(subject.baseline), wanted.metric is not None
        noises = judged_at(known, conditions.points, metric, asked, subject.schemes)
        if not noises:
            raise _not_judged(subject, metric, past)
        judged += [(noise, past) for noise in noises]
    level = SURE_P / len(judged)  # of the first step of Holm's method over all of them
    points = {point.name: point for point in conditions.points}
    choices = [_choice(wanted, noise, past, level, points[noise.point]) for noise, past in judged]
    most = max(choices, key=lambda choice: choice.blocks)
    return replace(most, once=max(choice.once for choice in choices))


def _judged(wanted: Resolve, subjects: Sequence[Subject]) -> list[tuple[Subject, str]]:
    """Who is judged by what. UsageError if nobody is, or not by anything that steady loads have."""
    found = [(subject, metric) for subject in subjects if (metric := wanted.metric or subject.primary)]
    if not found:
        names = ", ".join(subject.variant for subject in subjects)
        fault = f"{names} is compared with nothing, so that no metric is its primary one"
        raise UsageError(PLACE, fault, f"name one: --resolve {Resolve(wanted.effect, 'cpu_per_request')}")
    for subject, metric in found:
        if subject.needs:
            fault = f"{subject.variant} needs {subject.needs}: no number of blocks shows its effect here"
            raise UsageError(PLACE, fault, "measure the others without it")
        if metric not in RATIOS:
            fault = f"the primary metric of {subject.variant} is {metric}, which is counted, not compared by per cent"
            raise UsageError(PLACE, fault, f"name another: --resolve {Resolve(wanted.effect, 'rate')}, or --blocks N")
    return found


def _past_of(subject: Subject, conditions: Conditions, load: str, elsewhere: Past | None) -> Past:
    covering = [past for past in past_runs(conditions) if past.covers({subject.baseline: subject.baseline_sha256})]
    if covering:
        return together(covering[:POOLED])
    if elsewhere is not None and elsewhere.of(subject.baseline):
        return elsewhere
    fault = (
        f"how noisy '{subject.baseline}' is here with {load} is not known: no earlier run on this machine has an"
        f" A/A pair of it with {stats.MIN_BLOCKS} valid blocks, the same manifests, target, facts, loads and generators"
    )
    name = "" if subject.baseline == BASELINE else f"{subject.baseline} "
    raise UsageError(PLACE, fault, f"measure it: just aa {name}{load}{rerun.place(conditions.target)}")


def _not_judged(subject: Subject, metric: str, past: Past) -> UsageError:
    noises = past.of(subject.baseline)
    why = dict.fromkeys(f"at {each.point}: {each.why}" for each in noises if each.metric == metric and each.why)
    judged = dict.fromkeys(each.metric for each in noises if not each.why)
    fault = f"{about(metric).title} was not judged in {past.id}: {'; '.join(why)}"
    return UsageError(PLACE, fault, f"name one that is: {', '.join(judged)}")


def _choice(wanted: Resolve, noise: Noise, past: Past, level: float, point: Point) -> Choice:
    assert noise.sd is not None, "what is judged has a spread"
    values = power.blocks_for(noise.sd, noise.pilot_blocks, wanted.effect, level, POWER)
    where = f"{about(noise.metric).title} at {noise.point}"
    if values is None:
        least = power.resolvable_now(noise.sd, noise.pilot_blocks, power.MAX_BLOCKS, level, POWER) or 0.0
        fault = (
            f"not even {format_blocks(power.MAX_BLOCKS)} resolve {100 * wanted.effect:g} % in {where} ({past.source})"
        )
        remedy = f"they resolve {100 * least:.2g} %: ask for more than that, or quieten the machine and measure `just aa` again"
        raise UsageError(PLACE, fault, remedy)
    effect, metric = wanted.effect, noise.metric
    planned = PlannedFor(
        effect=effect, metric=metric, point=noise.point, asked=wanted.metric, power=POWER, from_run=past.id
    )
    of_a_block = point.counting(1) if noise.scheme else 1
    blocks = max(stats.MIN_BLOCKS, ceil(values / of_a_block))
    return Choice(blocks, planned, past, blocks if point.generations == 1 else stats.MIN_BLOCKS)
