"""Sabotage: is every knob's read-back able to fail? Each is tried on the variant without that knob's component, read back as if it had it.

Caught means: the variant without it is refused, or every check of the knob fails, save those that hold on the baseline too (of a root: on itself
without knobs) or belong to another knob as well, and no check of another knob does, but where they make up a root. A knob all of whose checks
hold anyway is `already so`: here the baseline has its value (or its effect), and then its checks must still fail when they ask for another value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from lab.base.errors import ImageError, LabError, NodeRefusesError, NotMeasurableError, StartError, UsageError
from lab.model.variants.knobs import Check
from lab.model.variants.variants import Variant, load_variant, without
from lab.targets.base import Target
from lab.targets.readback import Reading, read_back

Outcome = Literal["holds", "caught", "already so", "not measurable", "NOT CAUGHT", "FAILED"]
BAD: frozenset[Outcome] = frozenset({"NOT CAUGHT", "FAILED"})
LEFT_OUT = "left out"


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


@dataclass(slots=True)
class Saboteur:
    """Remembers which checks hold on which baseline, which is asked only where one holds that should not."""

    target: Target
    _held: dict[tuple[str, Check], bool] = field(default_factory=dict[tuple[str, Check], bool])

    def findings(self, name: str) -> Iterator[Finding]:
        """Every own knob of a variant, left out; nothing for a root without any."""
        variant = load_variant(name)
        for knob in variant.own_knobs:
            try:
                sabotaged = without(variant, knob)
            except UsageError as error:  # another knob of the variant builds on it
                yield Finding(variant.name, knob, LEFT_OUT, "caught", _line(error))
            else:
                yield self._judged(variant, knob, sabotaged)

    def _judged(self, variant: Variant, knob: str, sabotaged: Variant) -> Finding:
        def found(outcome: Outcome, detail: str) -> Finding:
            return Finding(variant.name, knob, LEFT_OUT, outcome, detail)

        (own,) = [item.readback for item in variant.knobs if item.name == knob]
        shared = [check for item in variant.knobs for check in item.readback if item.name != knob]
        own_checks = [check for check in variant.readback if check in own]
        others = [_another(check) for check in own_checks]
        try:
            readings = _tried(self.target, sabotaged, [*variant.readback, *others])
        except NotMeasurableError as error:
            return found("not measurable", f"{error.what}: {error.why}")
        except (UsageError, StartError) as error:  # as it is it came up, so its program refuses what is sabotaged
            return found("caught", f"refused: {_line(error)}")
        except LabError as error:  # what fails later proves nothing about the read-back
            return found("FAILED", _line(error))
        count = len(variant.readback)
        failed = [reading for reading in readings[:count] if not reading.ok]
        harmed = [_said(reading) for reading in failed if reading.check not in own]
        if harmed and variant.baseline is not None:  # the parts of a root are made for one another
            return found("NOT CAUGHT", f"a check of another knob fails: {'; '.join(harmed)}")
        held = [reading.check for reading in readings[:count] if reading.ok and reading.check in own]
        unexplained = [check for check in held if check not in shared and not self._holds(variant, check)]
        if unexplained:
            told = "; ".join(_said(reading) for reading in readings[:count] if reading.check in unexplained)
            return found("NOT CAUGHT", f"holds without the knob, and not on {_below(variant)}: {told}")
        toothless = [_said(reading) for reading in readings[count:] if reading.ok]
        if toothless:
            return found("NOT CAUGHT", f"holds whatever it asks for: {'; '.join(toothless)}")
        if not failed:
            said = "; ".join(_said(reading) for reading in readings[:count] if reading.check in own)
            return found("already so", said)
        return found("caught", "; ".join(_said(reading) for reading in failed))

    def _holds(self, variant: Variant, check: Check) -> bool:
        """On the baseline; a root that has knobs of its own is asked without any of them."""
        below = _below(variant)
        if (below, check) not in self._held:
            try:
                (reading,) = _tried(self.target, _bare(variant), [check])
                self._held[below, check] = reading.ok
            except LabError:
                self._held[below, check] = False
        return self._held[below, check]


def _below(variant: Variant) -> str:
    return variant.baseline or f"{variant.name} without its knobs"


def _bare(variant: Variant) -> Variant:
    if variant.baseline is not None:
        return load_variant(variant.baseline)
    return without(variant, *variant.own_knobs)


def findings(target: Target, names: Sequence[str], intact_only: bool) -> Iterator[Finding]:
    """Of each variant as it is and, unless `intact_only`, sabotaged."""
    saboteur = Saboteur(target)
    for name in names:
        yield intact(target, name)
        if not intact_only:
            try:
                yield from saboteur.findings(name)
            except LabError as error:
                yield Finding(name, "", "", "FAILED", _line(error))


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
