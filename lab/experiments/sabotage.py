"""Mutation testing of the read-backs: it checks that the read-back of every knob is able to fail.

A knob is a setting of a variant, and its read-back consists of checks that the running system has this setting. Each
knob in turn is left out of its variant, and the checks are run as if it were still there. The read-back has caught this
if the system refuses to start, or if all checks of the knob fail. Some checks need not fail: those that hold on the
variant's baseline, too, and those that also belong to another knob. The checks of other knobs must not fail. A root (a
variant without a baseline) is excepted, since its knobs depend on one another.

If no check fails, the outcome is `already so`, because the baseline has the same value. Every check must also fail if
it expects another value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lab.base.errors import (
    ImageError,
    LabError,
    NodeRefusesError,
    NotMeasurableError,
    StartError,
    UsageError,
    refuse_if,
)
from lab.experiments.bench.request import fixtures_of
from lab.model import facts
from lab.model.run import format_now
from lab.model.variants.knobs import Check
from lab.model.variants.variants import Variant, load_variant, render_without, variant_names
from lab.records import trials
from lab.records.sweep_files import load_sweep
from lab.records.trials import TargetTrial, TrialResult
from lab.targets.base import Target
from lab.targets.readback import Reading, read_back
from lab.targets.survey import check_variant, collect_facts

Outcome = Literal["holds", "caught", "already so", "not measurable", "NOT CAUGHT", "FAILED"]
BAD_OUTCOMES: frozenset[Outcome] = frozenset({"NOT CAUGHT", "FAILED"})
LEFT_OUT = "left out"
EXPLAINING_FACTS = (
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
"""The facts that explain why something is not possible on a target."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one trial of a variant's read-backs (checks that a running system has the variant's settings).

    The variant is brought up unchanged, or without one of its knobs (settings), to see whether the read-backs notice.

    Attributes:
        variant: The name of the variant.
        knob: The knob that was left out; empty where the variant was unchanged.
        sabotage: `left out`; empty where the variant was unchanged.
        outcome: Without the knob: `caught` (a read-back failed, or the system did not accept it), `already so` (the baseline has the knob's
            value, too) or `NOT CAUGHT`. Unchanged: `holds`. In both cases also `not measurable` or `FAILED`. `NOT CAUGHT` and `FAILED` are
            faults.
        detail: The readings or the error that show the outcome.

    """

    variant: str
    knob: str
    sabotage: str
    outcome: Outcome
    detail: str = ""


def try_intact(target: Target, name: str) -> Finding:
    """Bring up a variant unchanged, and return whether all its read-backs (checks of its settings) hold, as a `Finding`."""
    try:
        variant = load_variant(name)
        variant = load_variant(name, fixtures=_list_fixtures(variant))
        readings = _bring_up_and_read(target, variant, variant.readback)
    except NotMeasurableError as error:
        return Finding(name, "", "", "not measurable", f"{error.what}: {error.place}: {error.why}")
    except NodeRefusesError as error:
        return Finding(name, "", "", "not measurable", f"node: {error.fault}")
    except ImageError as error:
        return Finding(name, "", "", "FAILED", f"image: {error.image} cannot be had here")
    except LabError as error:
        return Finding(name, "", "", "FAILED", _format_error(error))
    bad = [_format_reading(reading) for reading in readings if not reading.ok]
    return Finding(name, "", "", "FAILED" if bad else "holds", "; ".join(bad) or f"{len(readings)} checks")


def _list_fixtures(variant: Variant) -> tuple[str, ...]:
    """Return the names of additional components that a variant needs: a backend for gRPC calls if its own sweep makes them.

    Such a variant may speak HTTP/2 to its backend, which the usual backend does not understand.
    """
    points = load_sweep(variant.sweep)[1].load_points if variant.sweep is not None else []
    return fixtures_of([point for point in points if point.grpc])


def try_variants(target: Target, names: Sequence[str], intact_only: bool) -> Iterator[Finding]:
    """Try the read-backs (checks of settings) of variants, unchanged and without each of their knobs (settings); yield results.

    Args:
        target: The target.
        names: The names of the variants.
        intact_only: Whether to try only the unchanged variants.

    """
    held: dict[tuple[str, Check], bool] = {}
    for name in names:
        yield try_intact(target, name)
        if not intact_only:
            try:
                variant = load_variant(name)
                for knob in variant.own_knobs:
                    yield Finding(variant.name, knob, LEFT_OUT, *try_without_knob(target, variant, knob, held))
            except LabError as error:
                yield Finding(name, "", "", "FAILED", _format_error(error))


def try_without_knob(
    target: Target, variant: Variant, knob: str, held: dict[tuple[str, Check], bool]
) -> tuple[Outcome, str]:
    """Bring up a variant without one of its own knobs (settings), and return (outcome, reason): whether its read-backs notice.

    Read-backs are checks of the settings of a running system. The outcome is one of those of `Finding`, such as `caught`.

    Args:
        target: The target.
        variant: The variant with the knob.
        knob: The name of the knob.
        held: A cache: (name of a baseline, check) → whether the check holds there. The function adds to it for each check that holds
            without the knob.

    """
    (own_checks,) = [item.readback for item in variant.knobs if item.name == knob]
    shared = [check for item in variant.knobs for check in item.readback if item.name != knob]
    altered = [_alter(check) for check in variant.readback if check in own_checks]
    try:
        without_it = render_without(variant, knob, fixtures=_list_fixtures(variant))
    except UsageError as error:  # another knob of the variant builds on it
        return "caught", _format_error(error)
    try:
        results = _bring_up_and_read(target, without_it, [*variant.readback, *altered])
    except NotMeasurableError as error:
        return "not measurable", f"{error.what}: {error.why}"
    except (UsageError, StartError) as error:  # the unchanged variant came up, so its program refuses the changed one
        return "caught", f"refused: {_format_error(error)}"
    except LabError as error:  # a later failure proves nothing about the read-back
        return "FAILED", _format_error(error)
    readings, altered_readings = results[: len(variant.readback)], results[len(variant.readback) :]
    failed = [reading for reading in readings if not reading.ok]
    harmed = [_format_reading(reading) for reading in failed if reading.check not in own_checks]
    if harmed and variant.baseline is not None:  # the parts of a root depend on one another
        return "NOT CAUGHT", f"a check of another knob fails: {'; '.join(harmed)}"
    baseline = variant.baseline or f"{variant.name} without its knobs"
    unexplained: list[str] = []
    for reading in readings:
        check = reading.check
        if reading.ok and check in own_checks and check not in shared:
            if (baseline, check) not in held:
                held[baseline, check] = _check_baseline(target, variant, check)
            unexplained += [] if held[baseline, check] else [_format_reading(reading)]
    if unexplained:
        return "NOT CAUGHT", f"holds without the knob, and not on {baseline}: {'; '.join(unexplained)}"
    if toothless := [_format_reading(reading) for reading in altered_readings if reading.ok]:
        return "NOT CAUGHT", f"holds whatever it asks for: {'; '.join(toothless)}"
    if not failed:
        return "already so", "; ".join(_format_reading(reading) for reading in readings if reading.check in own_checks)
    return "caught", "; ".join(_format_reading(reading) for reading in failed)


def _load_baseline(variant: Variant) -> Variant:
    """Return the baseline of a variant; without a baseline, return the variant itself without its own knobs (settings)."""
    return render_without(variant, *variant.own_knobs) if variant.baseline is None else load_variant(variant.baseline)


def _check_baseline(target: Target, variant: Variant, check: Check) -> bool:
    """Bring up the baseline of a variant, and return whether a check holds there; False if the baseline does not come up."""
    try:
        (reading,) = _bring_up_and_read(target, _load_baseline(variant), [check])
    except LabError:
        return False
    return reading.ok


def _alter(check: Check) -> Check:
    """Return a copy of a check that expects a wrong value, so that it should fail.

    A single number in the value is increased by 1. If there are several numbers, the first one stays, and all others become
    the first plus 1. A value without a number gets the ending `-not`.

    >>> _alter(Check(kind="ports", value="1024 65000")).value
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


def _bring_up_and_read(target: Target, variant: Variant, checks: Sequence[Check]) -> list[Reading]:
    target.check_variant(variant, [])
    with target.up(variant) as system:
        return read_back(system, checks)


def _format_reading(reading: Reading) -> str:
    """Return the result of a check of a running system as text; a detail that only repeats the expected value is left out."""
    return str(replace(reading, detail="") if reading.detail.startswith("expected ") else reading)


def _format_error(error: LabError) -> str:
    return f"{error.place}: {error.fault}"


# -- trials of all variants and of the studies' sweeps on a target: evidence for the matrix (`lab.records.trials`) ------


def try_all(
    target: Target,
    report: Callable[[str, TrialResult], None],
    sweeps: Mapping[str, Sequence[str]],
    find_more: Callable[[Mapping[str, TrialResult]], Sequence[str]],
    names: Sequence[str] = (),
) -> TargetTrial:
    """Try variants and sweeps (lists of load points) on a target without measuring, and return the record.

    Without `names`, all variants are tried. With `names`, only these are tried again, and the results of the others are taken from the
    committed record. The sweeps are tried in both cases.

    Args:
        target: The target, which has been checked.
        report: Called with the name and result of each variant and sweep as soon as it is tried.
        sweeps: Sweep of the studies → the variants that are measured with it.
        find_more: Returns further variants to try, given the results of all variants.
        names: The variants to try again; empty: all variants.

    Raises:
        UsageError: There is no committed record of the target to update, or it is of another machine.

    """
    all_facts, commit = collect_facts(target), facts.read_git_commit()
    relevant = {name: all_facts[name] for name in EXPLAINING_FACTS if name in all_facts}
    committed = trials.read_trials().get(target.name) if names else None
    if names:
        remedy = "leave the variants out: it tries every one"
        if committed is None:
            raise UsageError("--record", f"{trials.TOP} has no trial of {target.name} yet", remedy)
        for name, was in committed.facts.items():
            fault = f"{committed.place} was made with {name} {was}, here it is {relevant.get(name)}"
            refuse_if(name != "cluster" and was != relevant.get(name), "--record", fault, remedy)
    variants: dict[str, TrialResult] = {}

    def bring_up(requested: Sequence[str]) -> None:
        for name in dict.fromkeys(requested):
            finding = try_intact(target, name)
            variants[name] = TrialResult(outcome=finding.outcome, detail=finding.detail)
            report(name, variants[name])

    bring_up(names or variant_names())
    if committed is None:
        bring_up(find_more(variants))
    accepted: dict[str, TrialResult] = {}
    for name, candidates in sweeps.items():
        accepted[name] = _try_sweep(target, name, candidates)
        report(name, accepted[name])
    if committed is not None:
        again = {**committed.again, **dict.fromkeys(variants, commit)}
        changes = {"variants": {**committed.variants, **variants}, "sweeps": accepted, "again": again}
        return committed.model_copy(update=changes)
    return TargetTrial(
        target=target.name, tried_at=format_now(), git_commit=commit, facts=relevant, variants=variants, sweeps=accepted
    )


def _try_sweep(target: Target, sweep: str, candidates: Sequence[str]) -> TrialResult:
    """Return whether the target accepts the load points of a sweep on one of several variants.

    The result names the first variant that works. Without one, it has the reason why the last variant does not.

    Args:
        target: The target.
        sweep: The name of the sweep.
        candidates: The names of the variants to try, in order.

    """
    result = TrialResult(outcome="FAILED", detail="no variant is measured with it")
    points = [point.on_cpus(target.generator_cpus()) for point in load_sweep(sweep)[1].load_points]
    for name in candidates:
        try:
            check_variant(load_variant(name), target, points)
        except NotMeasurableError as error:
            result = TrialResult(outcome="not measurable", detail=f"{error.what}: {error.why}")
        except LabError as error:
            result = TrialResult(outcome="FAILED", detail=_format_error(error))
        else:
            return TrialResult(outcome="accepted", detail=f"on {name}")
    return result
