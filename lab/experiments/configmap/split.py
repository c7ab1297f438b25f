"""Keys and values → what is measured of them, and a note for everything else. All that is wrong with a file is found at once.

    one key          that nginx takes by itself and that changes something, or with the others that it needs for either
    keys together    that decide one directive together, or need each other
    the whole file   without what the controller ignores or nginx refuses

The controller hands nginx all or nothing: one value that nginx refuses, and the old configuration stays. So the whole file is
what would be left once that is corrected, and a note says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lab.base.errors import UsageError
from lab.experiments.configmap import faults
from lab.experiments.configmap.reading import Given
from lab.model.variants.knobs import Check
from lab.targets.local import keys
from lab.targets.local.configmap import FOREIGN, IDLE, KEYS
from lab.targets.local.counterparts import f5_text, hint, is_f5

BASELINE, OVER_TLS, BEHIND, OVER_TLS_BEHIND = "baseline", "tls", "balancer", "balancer-tls"
TLS = (OVER_TLS, OVER_TLS_BEHIND)
_ROOTS = {(False, False): BASELINE, (True, False): OVER_TLS, (False, True): BEHIND, (True, True): OVER_TLS_BEHIND}
"""(over TLS, behind a load balancer) → the variant that keys are set on."""
NAMESPACE = "ingress-lab"
WHOLE = "your-configuration"
DH = "dhparam.pem"
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,19}(?<!-)")


@dataclass(frozen=True, slots=True)
class Setting:
    """Keys that are set together on a root, and what that changes; `needs`: others that must be there, which it is compared with."""

    values: Mapping[str, str]
    checks: tuple[Check, ...]
    needs: Mapping[str, str]
    root: str
    whole: bool = False
    beside: keys.Beside = ()
    """Objects that its values name."""

    @property
    def name(self) -> str:
        """`keep-alive-300` where the value is a word; `gzip-level-and-2-more`; `your-configuration`."""
        over = "-over-tls" if self.root in TLS else ""
        if self.whole:
            return f"{WHOLE}{over}"
        key, *others = self.values
        if others:
            return f"{key}-and-{len(others)}-more{over}"
        word = self.values[key].lower().replace("_", "-")
        return f"{key}-{word}" if _WORD.fullmatch(word) else key


@dataclass(frozen=True, slots=True)
class Split:
    """Single keys; then what else is measured is made of those of them that can be."""

    singles: tuple[Setting, ...]
    kept: Mapping[str, str]
    """The whole file: every key that changes something and that nginx takes beside the others."""
    notes: tuple[str, ...]
    beside: keys.Beside = ()

    def together(self, without: Sequence[str] = ()) -> list[Setting]:
        """The whole file, over TLS too where a key wants that, and smaller groups of keys that belong together."""
        kept = {key: value for key, value in self.kept.items() if key not in without}
        roots = dict.fromkeys(_bearing(kept, item.root) for item in self.singles if len(kept) > 1)
        found = [_setting(kept, {}, root, self.beside, whole=True) for root in roots]
        for group, root in _groups(self.singles):
            values = {key: value for key, value in kept.items() if key in group}
            alone = any(item.values == values and not item.needs for item in self.singles)
            if 1 < len(values) < len(kept) and not alone:
                found.append(_setting(values, {}, _bearing(values, root), self.beside))
        return [item for item in found if item.checks]


def refuse_f5(place: str, given: Given) -> None:
    """UsageError for the map of another controller."""
    if is_f5(given.data):
        named = "; ".join(map(f5_text, given.data))
        raise UsageError(
            place,
            "is the ConfigMap of F5's NGINX Ingress Controller, not of ingress-nginx",
            f"their counterparts: {named}\n  written with those keys, `just bench --configmap FILE` measures it, and"
            " `just migrate --configmap FILE` tells what every successor makes of it",
        )


def split(place: str, given: Given, elsewhere: bool = False) -> Split:
    """UsageError where nothing is left to measure, with all notes. `elsewhere`: for a target on which the controller itself runs."""
    refuse_f5(place, given)
    notes = list(given.notes)
    changed: dict[str, str] = {}
    silent: dict[str, str] = {}
    beside: keys.Beside = ()
    for key, value in given.data.items():
        if key not in KEYS:
            notes.append(f"{key}: ingress-nginx 1.15.1 has no such key, and ignores it: {hint(key, value)}")
            continue
        look = keys.look(key, value, elsewhere)
        kind = "" if look.idle else KEYS[key].names
        content = given.beside.get((kind, value.rpartition("/")[2]))
        if kind and (idle := _unnamed(kind, value, content)):
            look = replace(look, idle=idle)
        if key in IDLE and look.value != look.default:
            silent[key] = value
        elif look.idle or look.told:
            notes.append(f"{key}: {look.idle or look.told}")
        if not look.idle:
            changed[key] = value
        if not look.idle and content is not None:
            changed[key], text = _object(kind, value, content)
            beside = tuple(dict.fromkeys([*beside, text]))
    tried = OVER_TLS if any(KEYS[key].tls for key in changed) else BASELINE
    asked = {**changed, **silent}
    taken = _taken(asked, tried, beside)
    notes += [f"{key}: {keys.look(key, silent[key]).idle}" for key in silent if key in taken]
    if lacking := keys.unchecked(asked):
        notes.append(f"{WHOLE}: not tried: the controller's block `stream`: {lacking}")
    unrealised = {key: text for key, text in given.data.items() if key in FOREIGN and keys.look(key, text).idle}
    found = faults.of(asked, taken, unrealised, tried, beside)
    notes += [f"{key}: {fault}" for key, fault in found.items()]
    kept = {key: text for key, text in taken.items() if key in changed}
    answering, kept = _answering(kept, tried, beside)
    notes += [
        f"{key}: not measurable: with it nginx answers every request itself (`{it}`), and no backend"
        for key, it in answering.items()
    ]
    shut, kept = _shutting(kept, tried, beside, elsewhere)
    notes += [
        f"{key}: not measurable: with it nginx refuses the lab's own clients (`{it}`)" for key, it in shut.items()
    ]
    left = [*found, *answering, *shut]
    if left and kept:
        notes.append(f"{WHOLE}: the whole file without {', '.join(left)}")
    singles: list[Setting] = []
    for key in kept:
        if key in FOREIGN:
            continue
        root = _ROOTS[KEYS[key].tls, KEYS[key].behind]
        needs = _needs(key, kept, root, beside)
        own = {key: kept[key]}
        if needs and not keys.differs({}, needs, root, beside):  # nothing to be compared with: both at once
            own, needs = {**own, **needs}, {}
        single = _setting(own, needs, _bearing({**needs, **own}, root), beside) if needs is not None else None
        if single is None and not any(key in item.values for item in singles):
            notes.append(f"{key}: nothing to measure: by itself it changes no directive")
        elif single and not single.checks:
            notes.append(f"{key}: not measurable: what it sets depends on the machine, or is read back by nothing")
        elif single:
            singles.append(single)
    if not singles:
        raise UsageError(place, "nothing to measure", "\n  ".join(notes) or "it holds no settings")
    if len(kept) == 1:
        notes.append(f"{WHOLE}: the whole file is {singles[0].name}")
    return Split(tuple(singles), kept, tuple(notes), beside)


def _answering(kept: Mapping[str, str], tried: str, beside: keys.Beside) -> tuple[dict[str, str], dict[str, str]]:
    """Keys with which no request reaches a backend, each with what is answered; and the others."""
    left, found = dict(kept), dict[str, str]()
    for key in list(kept) if keys.answered({}, kept, tried, beside) else ():
        fewer = {other: text for other, text in left.items() if other != key}
        answer = keys.answered(fewer, left, tried, beside)
        if answer and not keys.refusal(fewer, tried, beside):
            left, found[key] = fewer, answer
    return found, left


def _shutting(
    kept: Mapping[str, str], tried: str, beside: keys.Beside, elsewhere: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Keys with which no client of the lab's is let in, each with the rule; and the others."""
    left, found = dict(kept), dict[str, str]()
    while rule := keys.shut_out(left, tried, beside, elsewhere):
        without = {key: {other: text for other, text in left.items() if other != key} for key in left}
        key = next((key for key in left if keys.shut_out(without[key], tried, beside, elsewhere) != rule), None)
        if key is None:
            break
        left, found[key] = without[key], rule
    return found, left


def _unnamed(kind: str, value: str, content: Mapping[str, str] | None) -> str:
    """Why the object that a key names is not there for the controller, or not in this file; empty = it is."""
    if "/" not in value:
        return (
            f"names no namespace: the controller looks for a {kind} by namespace/name, finds none, and goes on without"
        )
    if content is None:
        return f"names a {kind} that the file does not hold: give both, with a line `---` in between"
    if kind == "Secret" and DH not in content:
        return f"the Secret has no {DH}, and the controller goes on without"
    return ""


def _object(kind: str, value: str, content: Mapping[str, str]) -> tuple[str, str]:
    """An object of the file as the lab has it, beside its own: (what names it, itself)."""
    name = f"your-{value.rpartition('/')[2]}"
    metadata = {"name": name, "namespace": NAMESPACE}
    data = {"stringData" if kind == "Secret" else "data": dict(content)}
    return f"{NAMESPACE}/{name}", json.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata, **data})


def _bearing(values: Mapping[str, str], root: str) -> str:
    """The root on which they can be set: who expects PROXY protocol gets it, and who redirects everybody to TLS is asked over it.

    But for a load of redirects.
    """

    def on(key: str) -> bool:
        return key in values and keys.look(key, values[key]).value == "true"

    redirects = on("force-ssl-redirect") and any(KEYS[key].sweep != "redirects" for key in values)
    return _ROOTS[root in TLS or redirects, root in (BEHIND, OVER_TLS_BEHIND) or on("use-proxy-protocol")]


def _taken(changed: Mapping[str, str], variant: str, beside: keys.Beside) -> dict[str, str]:
    """As many of them as nginx takes together, in their order; of two of which one turns the other on, the other is to blame."""
    if not keys.refusal(changed, variant, beside):
        return dict(changed)

    def without(key: str) -> dict[str, str]:
        return {other: value for other, value in changed.items() if other != key}

    def switch(key: str) -> bool:
        return KEYS[key].kind == "bool"

    if alone := [key for key in changed if not keys.refusal(without(key), variant, beside)]:
        return without(min(alone, key=switch))
    kept: dict[str, str] = {}
    left = sorted(changed, key=lambda key: not switch(key))
    while fitting := [key for key in left if not keys.refusal({**kept, key: changed[key]}, variant, beside)]:
        for key in fitting:
            if not keys.refusal({**kept, key: changed[key]}, variant, beside):
                kept[key] = changed[key]
                left.remove(key)
    return {key: value for key, value in changed.items() if key in kept}


def _needs(key: str, kept: Mapping[str, str], root: str, beside: keys.Beside) -> dict[str, str] | None:
    """The others without which nginx refuses the key or nothing changes; None where nothing changes with all of them."""
    others = {other: value for other, value in kept.items() if other != key}

    def fits(without: Mapping[str, str]) -> bool:
        whole = {**without, key: kept[key]}
        taken = not any(keys.refusal(each, root, beside) for each in (whole, without))
        return taken and keys.differs(without, whole, root, beside)

    if fits({}):
        return {}
    if one := next((other for other, value in others.items() if fits({other: value})), None):
        return {one: others[one]}
    if not fits(others):
        return None
    for other in list(others):
        fewer = {name: value for name, value in others.items() if name != other}
        others = fewer if fits(fewer) else others
    return others


def _setting(
    values: Mapping[str, str], needs: Mapping[str, str], root: str, beside: keys.Beside, whole: bool = False
) -> Setting:
    named = tuple(
        text for text in beside if any(json.loads(text)["metadata"]["name"] in value for value in values.values())
    )
    return Setting(values, keys.checks(needs, {**needs, **values}, root, beside), needs, root, whole, named)


def _groups(singles: Sequence[Setting]) -> Iterator[tuple[set[str], str]]:
    """Keys that need each other, or decide one directive together, each group with its root."""
    groups: list[tuple[set[str], set[object], str]] = []
    for item in singles:
        own, subjects = {*item.values, *item.needs}, {check.subject for check in item.checks}
        near = [group for group in groups if group[0] & own or (group[1] & subjects and group[2] == item.root)]
        groups = [group for group in groups if group not in near]
        groups.append((own.union(*(each[0] for each in near)), subjects.union(*(each[1] for each in near)), item.root))
    return ((names, root) for names, _, root in groups)
