"""Sabotage: is every knob's read-back able to fail? Each is tried on a system in which its knob did not take.

    left out            the variant without the knob's component, read back as if it had it
    misspelt            a name that it sets written wrongly: a ConfigMap's key, a field or an annotation of an object, an argument or a
                        variable of a container, which a controller may pass over without a word

Caught means: what is misspelt is refused, or a check of that knob fails; else every check of it fails, save those that hold on the baseline too (of a root: on itself without
knobs) or belong to another knob as well, and no check of another knob does, but where they make up a root. A knob all
of whose checks hold anyway is `already so`: here the baseline has its value (or its effect), and then its checks must
still fail when they ask for another value.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import getitem
from typing import Any, Literal, cast


from lab.base.errors import ImageError, LabError, NodeRefusesError, NotMeasurableError, StartError, UsageError
from lab.model.variants import diff as differences
from lab.model.variants.knobs import Check
from lab.model.variants.variants import Variant, load_variant, without
from lab.targets.base import Target
from lab.targets.readback import Reading, read_back

Outcome = Literal["holds", "caught", "already so", "not measurable", "NOT CAUGHT", "FAILED"]
SELECTED_BY_NOTHING = ("v1", "apps/v1")
"""Objects of which only the pods' labels are."""
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
        """Every own knob of a variant, sabotaged in every way that applies; nothing for a root without any."""
        variant = load_variant(name)
        for knob in variant.own_knobs:
            yield self._left_out(variant, knob)
            yield from self._misspelt(variant, knob)

    def _left_out(self, variant: Variant, knob: str) -> Finding:
        try:
            sabotaged = without(variant, knob)
        except UsageError as error:  # another knob of the variant builds on it
            return Finding(variant.name, knob, "left out", "caught", _line(error))
        return self._judged(variant, knob, "left out", sabotaged)

    def _misspelt(self, variant: Variant, knob: str) -> Iterator[Finding]:
        try:
            below = {differences.label(obj): obj for obj in without(variant, knob).manifests}
        except UsageError:  # told already
            return
        for number, place, wrong in told_apart(variant.manifests, below):
            manifests = (*variant.manifests[:number], wrong, *variant.manifests[number + 1 :])
            sabotaged = variant.model_copy(update={"manifests": manifests})
            where = f"{differences.label(variant.manifests[number])} {place}"
            yield self._judged(variant, knob, f"misspelt: {where}", sabotaged, part=True)

    def _judged(self, variant: Variant, knob: str, sabotage: str, sabotaged: Variant, part: bool = False) -> Finding:
        """`part`: of what the knob sets one name alone is wrong, and one check that fails is enough."""

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
        except StartError as error:  # as it is it came up, so its program refuses what is sabotaged
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
        if part and failed:
            return found("caught", "; ".join(_said(reading) for reading in failed))
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


def told_apart(
    objects: Sequence[dict[str, Any]], below: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """(object's place, where in it, the object with that name written wrongly), less what would tell nothing more: a further one of
    the many alike that a knob adds, and a label by which nothing is selected. `below`: label → the same without a knob.
    """
    selecting = json.dumps(_without_metadata([*objects]))
    tried: set[tuple[str, str]] = set()
    for number, obj in enumerate(objects):
        known = below.get(differences.label(obj))
        for place, wrong in misspellings(obj, known or {}):
            above, labelled, label = place.partition("metadata.labels.")
            selected = label in selecting and (above or obj["apiVersion"] not in SELECTED_BY_NOTHING)
            if (known is None and (obj["kind"], place) in tried) or (labelled and not selected):
                continue
            if known is None:
                tried.add((obj["kind"], place))
            yield number, place, wrong


def _without_metadata(node: Any) -> Any:
    """Of pods' templates, too: names and labels are what is selected, and all else may say by which."""
    if isinstance(node, list):
        return [_without_metadata(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    return {key: _without_metadata(value) for key, value in fields.items() if key != "metadata"}


def misspellings(obj: Mapping[str, Any], below: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, the object with that name written wrongly) for every name that it has and `below`, the same without a knob, has not."""
    for path, wrong in _names(obj, below, ()):
        ours = str(path[-1]).startswith("lab/")
        if ours or path[0] in ("apiVersion", "kind") or path[:2] in (("metadata", "name"), ("metadata", "namespace")):
            continue
        copied = copy.deepcopy(dict(obj))
        *above, last = path
        node = reduce(getitem, above, copied)
        if isinstance(node, list):
            node[last] = wrong
        else:
            kept = list(node.items())
            node.clear()
            node.update((wrong if key == last else key, value) for key, value in kept)
        yield ".".join(map(str, path)), copied


def _names(node: Any, below: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path of a key, or of an element of a list, what stands there instead). Names of containers and ports are others' matter."""
    if isinstance(node, dict):
        for key, value in cast("dict[str, Any]", node).items():
            inner = below.get(key) if isinstance(below, dict) else None
            if isinstance(value, dict | list) and value:
                yield from _names(value, inner, (*path, key))
            elif inner is None and path[-1:] != ("metadata",) and not (path and isinstance(path[-1], int)):
                yield (*path, key), _wrong(key)
    elif isinstance(node, list):
        had = below if isinstance(below, list) else []
        for place, item in enumerate(node):
            if path[-1] in ("args", "command") and isinstance(item, str) and item.startswith("-") and item not in had:
                name, equals, value = item.partition("=")
                letters = not name.startswith("--")  # each an option: with one left out it may do
                wrong = f"-Z{name[1:]}" if letters else _wrong(name)
                yield (*path, place), f"{wrong}{equals}{value}"
            elif path[-1] == "env" and item not in had:
                variable = cast("dict[str, Any]", item)
                yield (*path, place), {**variable, "name": _wrong(variable["name"])}
            elif isinstance(item, dict):
                before = next((each for each in had if each.get("name") == item.get("name")), {})
                yield from _names(item, before, (*path, place))


def _wrong(name: str) -> str:
    return name[:-2] + name[-1:]


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
