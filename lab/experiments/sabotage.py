"""Sabotage: is every knob's read-back able to fail? Each is tried on a system in which its knob did not take.

    left out            the variant without the knob's component, read back as if it had it
    key misspelt        a key of its ConfigMap written wrongly, which the real controller would ignore
    container misnamed  its patch for a container that does not exist, which kustomize accepts

Caught means: every check of that knob fails, save those that hold on the baseline too (of a root: on itself without
knobs) or belong to another knob as well, and no check of another knob does, but where they make up a root. A knob all
of whose checks hold anyway is `already so`: here the baseline has its value (or its effect), and then its checks must
still fail when they ask for another value.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from lab.base.errors import LabError, NotMeasurableError, UsageError
from lab.model.variants import annotations as annotated
from lab.model.variants import diff as differences
from lab.model.variants.knobs import KEYS, MANIFESTS, Check
from lab.model.variants.variants import Variant, load_variant, without
from lab.targets.base import Target
from lab.targets.common.process import scratch
from lab.targets.readback import Reading, read_back

Outcome = Literal["holds", "caught", "already so", "not measurable", "NOT CAUGHT", "FAILED"]
BAD: frozenset[Outcome] = frozenset({"NOT CAUGHT", "FAILED"})


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
        """Every own knob of a variant, sabotaged in every way that applies; nothing for a root without any."""
        variant = load_variant(name)
        for knob in variant.own_knobs:
            yield self._left_out(variant, knob)
            yield from self._misspelt(variant, knob)
            if (edited := _misnamed(variant, knob)) is not None:
                yield edited

    def _left_out(self, variant: Variant, knob: str) -> Finding:
        try:
            sabotaged = without(variant, knob)
        except UsageError as error:  # another knob of the variant builds on it
            return Finding(variant.name, knob, "left out", "caught", _line(error))
        return self._judged(variant, knob, "left out", sabotaged)

    def _misspelt(self, variant: Variant, knob: str) -> Iterator[Finding]:
        folder = MANIFESTS / "components" / knob
        content = annotated.kustomization(folder, "Component", KEYS)
        for generator in content.get("configMapGenerator", []):
            for literal in generator.get("literals", []):
                key = str(literal).partition("=")[0]
                manifests = tuple(
                    _with_key(obj, str(generator["name"]), key, key[:-2] + key[-1]) for obj in variant.manifests
                )
                sabotaged = variant.model_copy(update={"manifests": manifests})
                yield self._judged(variant, knob, f"key misspelt: {key}", sabotaged)

    def _judged(self, variant: Variant, knob: str, sabotage: str, sabotaged: Variant) -> Finding:
        def found(outcome: Outcome, detail: str) -> Finding:
            return Finding(variant.name, knob, sabotage, outcome, detail)

        (own,) = [item.readback for item in variant.knobs if item.name == knob]
        shared = [check for item in variant.knobs for check in item.readback if item.name != knob]
        own_checks = [check for check in variant.readback if check in own]
        others = [_another(check) for check in own_checks]
        try:
            readings = _tried(self.target, sabotaged, [*variant.readback, *others])
        except NotMeasurableError as error:
            return found("not measurable", f"{error.what}: {error.why}")
        except UsageError as error:
            return found("caught", f"refused: {_line(error)}")
        except LabError as error:  # what fails later proves nothing about the read-back
            return found("FAILED", _line(error))
        count = len(variant.readback)
        failed = [reading for reading in readings[:count] if not reading.ok]
        harmed = [_said(reading) for reading in failed if reading.check not in own]
        if (
            harmed and variant.baseline is not None
        ):  # the parts of a root are made for one another: no TLS version without TLS
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
            return found(
                "already so", "; ".join(_said(reading) for reading in readings[:count] if reading.check in own)
            )
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


def _misnamed(variant: Variant, knob: str) -> Finding | None:
    """The knob's patch for containers of another name, in a copy of the manifests; None if it patches none."""
    with scratch() as folder:
        manifests = Path(shutil.copytree(MANIFESTS, folder / "manifests"))
        renamed = [name for path in (manifests / "components" / knob).glob("*.yaml") for name in _rename(path)]
        if not renamed:
            return None
        sabotage = f"container misnamed: {renamed[0]}"
        try:
            load_variant(variant.name, manifests)
        except UsageError as error:
            return Finding(variant.name, knob, sabotage, "caught", f"refused: {_line(error)}")
    return Finding(variant.name, knob, sabotage, "NOT CAUGHT", "the variant was accepted")


def _rename(path: Path) -> list[str]:
    """Renames the containers of a patch that patches existing ones; their names before."""
    documents = [item for item in yaml.safe_load_all(path.read_text("utf-8")) if isinstance(item, dict)]
    found: list[str] = []
    for document in documents:
        pod: dict[str, Any] = document.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", []):
            if "image" not in container and "$patch" not in container:
                found.append(container["name"])
                container["name"] += "-misnamed"
    if found:
        path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return found


def _with_key(obj: dict[str, Any], name: str, key: str, other: str) -> dict[str, Any]:
    """The object; of the ConfigMap of that name a copy with a key called otherwise."""
    if differences.label(obj) != f"ConfigMap/{name}":
        return obj
    return obj | {"data": {other if item == key else item: value for item, value in obj["data"].items()}}


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
