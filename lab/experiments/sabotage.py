"""Sabotage: is every knob's read-back able to fail? Each is tried on the variant without that knob's component, read back as if it had it.

Caught means: the variant without it is refused, or every check of the knob fails, save those that hold on the baseline too (of a root: on itself
without knobs) or belong to another knob as well, and no check of another knob does, but where they make up a root. A knob all of whose checks
hold anyway is `already so`: here the baseline has its value (or its effect), and then its checks must still fail when they ask for another value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.base.errors import ImageError, LabError, NodeRefusesError, NotMeasurableError, StartError, UsageError
from lab.model import facts
from lab.model.run import now
from lab.model.variants.knobs import Check
from lab.model.variants.variants import Variant, load_variant, variant_names, without
from lab.records import trials
from lab.records.sweep_files import load_sweep
from lab.records.trials import Trial, Tried
from lab.targets.base import Target
from lab.targets.readback import Reading, read_back
from lab.targets.survey import checked, facts_of

Outcome = Literal["holds", "caught", "already so", "not measurable", "NOT CAUGHT", "FAILED"]
BAD: frozenset[Outcome] = frozenset({"NOT CAUGHT", "FAILED"})
LEFT_OUT = "left out"
TELLING = (
    "cpus",
    "kernel",
    "os",
    "cgroup",
    "privilege",
    "nginx",
    "haproxy",
    "controllers",
    "kubernetes",
    "provider",
    "nodes",
    "cluster",
)
"""Facts that say why something is not possible there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one trial. `knob` and `sabotage` are empty where the variant was brought up as it is."""

    variant: str
    knob: str
    sabotage: str
    outcome: Outcome
    detail: str = ""


def intact(target: Target, name: str) -> Finding:
    """The variant as it is: it comes up and every knob reads back."""
    try:
        variant = load_variant(name)
        readings = _tried(target, variant, variant.readback)
    except NotMeasurableError as error:
        return Finding(name, "", "", "not measurable", f"{error.what}: {error.place}: {error.why}")
    except NodeRefusesError as error:
        return Finding(name, "", "", "not measurable", f"node: {error.fault}")
    except ImageError as error:
        return Finding(name, "", "", "FAILED", f"image: {error.image} cannot be had here")
    except LabError as error:
        return Finding(name, "", "", "FAILED", _line(error))
    bad = [_said(reading) for reading in readings if not reading.ok]
    return Finding(name, "", "", "FAILED" if bad else "holds", "; ".join(bad) or f"{len(readings)} checks")


def findings(target: Target, names: Sequence[str], intact_only: bool) -> Iterator[Finding]:
    """Of each variant as it is and, unless `intact_only`, with each of its own knobs left out; nothing more for a root without any."""
    held: dict[tuple[str, Check], bool] = {}
    for name in names:
        yield intact(target, name)
        if not intact_only:
            try:
                variant = load_variant(name)
                for knob in variant.own_knobs:
                    yield Finding(variant.name, knob, LEFT_OUT, *sabotaged(target, variant, knob, held))
            except LabError as error:
                yield Finding(name, "", "", "FAILED", _line(error))


def sabotaged(target: Target, variant: Variant, knob: str, held: dict[tuple[str, Check], bool]) -> tuple[Outcome, str]:
    """What comes of a variant without one of its own knobs, and why.

    `held`: whether a check holds on a baseline, which is asked only where one holds that should not; added to.
    """
    (own,) = [item.readback for item in variant.knobs if item.name == knob]
    shared = [check for item in variant.knobs for check in item.readback if item.name != knob]
    others = [_another(check) for check in variant.readback if check in own]
    try:
        without_it = without(variant, knob)
    except UsageError as error:  # another knob of the variant builds on it
        return "caught", _line(error)
    try:
        found = _tried(target, without_it, [*variant.readback, *others])
    except NotMeasurableError as error:
        return "not measurable", f"{error.what}: {error.why}"
    except (UsageError, StartError) as error:  # as it is it came up, so its program refuses what is sabotaged
        return "caught", f"refused: {_line(error)}"
    except LabError as error:  # what fails later proves nothing about the read-back
        return "FAILED", _line(error)
    readings, of_others = found[: len(variant.readback)], found[len(variant.readback) :]
    failed = [reading for reading in readings if not reading.ok]
    harmed = [_said(reading) for reading in failed if reading.check not in own]
    if harmed and variant.baseline is not None:  # the parts of a root are made for one another
        return "NOT CAUGHT", f"a check of another knob fails: {'; '.join(harmed)}"
    below = variant.baseline or f"{variant.name} without its knobs"
    unexplained: list[str] = []
    for reading in readings:
        check = reading.check
        if reading.ok and check in own and check not in shared:
            if (below, check) not in held:
                held[below, check] = _holds_below(target, variant, check)
            unexplained += [] if held[below, check] else [_said(reading)]
    if unexplained:
        return "NOT CAUGHT", f"holds without the knob, and not on {below}: {'; '.join(unexplained)}"
    if toothless := [_said(reading) for reading in of_others if reading.ok]:
        return "NOT CAUGHT", f"holds whatever it asks for: {'; '.join(toothless)}"
    if not failed:
        return "already so", "; ".join(_said(reading) for reading in readings if reading.check in own)
    return "caught", "; ".join(_said(reading) for reading in failed)


def _below(variant: Variant) -> Variant:
    """The baseline; a root that has knobs of its own is asked without any of them."""
    return without(variant, *variant.own_knobs) if variant.baseline is None else load_variant(variant.baseline)


def _holds_below(target: Target, variant: Variant, check: Check) -> bool:
    try:
        (reading,) = _tried(target, _below(variant), [check])
    except LabError:
        return False
    return reading.ok


def _another(check: Check) -> Check:
    """The same check for another value, of the same form where it holds numbers (of a range, an empty one).

    >>> _another(Check(kind="ports", value="1024 65000")).value
    '1024 1025'
    """
    first, *rest = re.findall(r"\d+", check.value) or [""]
    if not first:
        value = f"{check.value}-not"
    elif rest:
        numbers = iter([first, *(str(int(first) + 1) for _ in rest)])
        value = re.sub(r"\d+", lambda _: next(numbers), check.value)
    else:
        value = check.value.replace(first, str(int(first) + 1))
    return check.model_copy(update={"value": value if value != check.value else f"{value}-not"})


def _tried(target: Target, variant: Variant, checks: Sequence[Check]) -> list[Reading]:
    target.check_variant(variant, [])
    with target.up(variant) as system:
        return read_back(system, checks)


def _said(reading: Reading) -> str:
    """The reading in words; that what was found is not what was asked for goes without saying."""
    return str(replace(reading, detail="") if reading.detail.startswith("expected ") else reading)


def _line(error: LabError) -> str:
    return f"{error.place}: {error.fault}"


# -- everything once on a target, also each study's sweep: evidence for the matrix, as `lab.records.trials` has it ---------


def tried(
    target: Target,
    told: Callable[[str, Tried], None],
    sweeps: Mapping[str, Sequence[str]],
    more: Callable[[Mapping[str, Tried]], Sequence[str]],
    names: Sequence[str] = (),
) -> Trial:
    """Try every variant and sweep on a target that was checked; or the named variants and the sweeps anew, for the committed trial.

    `told` is called with each as it comes; `sweeps`: each of the studies', with the variants that are measured with it; `more`: what came
    of every variant → the further ones to try. UsageError: there is no committed trial to try some of, or it is of another machine.
    """
    known, commit = facts_of(target), facts.git_commit()
    here = {name: known[name] for name in TELLING if name in known}
    committed = trials.committed().get(target.name) if names else None
    if names:
        remedy = "leave the variants out: it tries every one"
        if committed is None:
            raise UsageError("--record", f"{trials.TOP} has no trial of {target.name} yet", remedy)
        for name, was in committed.facts.items():
            if name != "cluster" and was != here.get(name):
                fault = f"{committed.place} was made with {name} {was}, here it is {here.get(name)}"
                raise UsageError("--record", fault, remedy)
    found: dict[str, Tried] = {}

    def bring_up(wanted: Sequence[str]) -> None:
        for name in dict.fromkeys(wanted):
            finding = intact(target, name)
            found[name] = Tried(outcome=finding.outcome, detail=finding.detail)
            told(name, found[name])

    bring_up(names or variant_names())
    if committed is None:
        bring_up(more(found))
    accepted: dict[str, Tried] = {}
    for name, on in sweeps.items():
        accepted[name] = _accepted(target, name, on)
        told(name, accepted[name])
    if committed is not None:
        again = {**committed.again, **dict.fromkeys(found, commit)}
        changes = {"variants": {**committed.variants, **found}, "sweeps": accepted, "again": again}
        return committed.model_copy(update=changes)
    return Trial(target=target.name, tried_at=now(), git_commit=commit, facts=here, variants=found, sweeps=accepted)


def _accepted(target: Target, sweep: str, on: Sequence[str]) -> Tried:
    """By the first of its variants that the target can load so; why not, of the last, where there is none."""
    found = Tried(outcome="FAILED", detail="no variant is measured with it")
    points = [point.on_cpus(target.generator_cpus()) for point in load_sweep(sweep)[1].expanded()]
    for name in on:
        try:
            checked(load_variant(name), target, points)
        except NotMeasurableError as error:
            found = Tried(outcome="not measurable", detail=f"{error.what}: {error.why}")
        except LabError as error:
            found = Tried(outcome="FAILED", detail=_line(error))
        else:
            return Tried(outcome="accepted", detail=f"on {name}")
    return found
