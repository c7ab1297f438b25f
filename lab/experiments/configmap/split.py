"""Keys and values → what is measured of them, and a note for everything else. All that is wrong with a file is found at once.

    one key          that nginx takes by itself and that changes something, or with the others that it needs for either
    keys together    that decide one directive together, or need each other
    the whole file   without what the controller ignores or nginx refuses

The controller hands nginx all or nothing: one value that nginx refuses, and the old configuration stays. So the whole file is
what would be left once that is corrected, and a note says so. Keys whose effect needs the controller itself are left out where a stock nginx
stands for it, with the command that measures the whole file; where the controller runs they are read back from its ConfigMap.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.base.errors import UsageError
from lab.experiments.configmap.reading import Given
from lab.model.variants.knobs import Check
from lab.systems import checker
from lab.systems.ingress_nginx import keys
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.ingress_nginx.counterparts import f5_text, hint, is_f5

BASELINE, OVER_TLS, BEHIND, OVER_TLS_BEHIND = "ingress-nginx", "tls", "balancer", "balancer-tls"
TLS = (OVER_TLS, OVER_TLS_BEHIND)
_ROOTS = {(False, False): BASELINE, (True, False): OVER_TLS, (False, True): BEHIND, (True, True): OVER_TLS_BEHIND}
"""(over TLS, behind a load balancer) → the variant that keys are set on."""
NAMESPACE = "ingress-lab"
WHOLE = "your-configuration"
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,19}(?<!-)")
_ELSEWHERE = re.compile(
    r"host not found in |dlopen\(|(?:open|opendir|BIO_new_file|glob)\(|cannot load certificate|SSL_\w+\(\"/"
)
"""How nginx tells of a name or a file that is not here, and that a controller may have (mounted, or by its cluster's DNS)."""
_UNDEFINED = re.compile(r"unknown (?!directive)|is unknown|zero size|host not found in upstream")
"""How nginx tells of a variable, a zone, a format, an upstream that another part of the configuration makes."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Keys that are set together on a root, and what that changes; `needs`: others that must be there, which it is compared with."""

    values: Mapping[str, str]
    checks: tuple[Check, ...]
    needs: Mapping[str, str]
    root: str
    whole: bool = False
    beside: tuple[str, ...] = ()
    """Objects that its values name, as JSON."""

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
    beside: tuple[str, ...] = ()

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
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    beside: dict[str, None] = {}
    for key, value in given.data.items():
        if key not in KEYS:
            notes.append(f"{key}: ingress-nginx 1.15.1 has no such key, and ignores it: {hint(key, value)}")
            continue
        look = keys.look(key, value)
        if look.idle or look.told:
            notes.append(f"{key}: {look.idle or look.told}")
        if look.idle:
            continue
        (theirs if keys.is_controllers(key, value) else ours)[key] = value
        if elsewhere and (kind := KEYS[key].names):
            if (named := _named(kind, value, given)) is None:
                notes.append(
                    f"{key}: names a {kind} that the file does not hold: give both, and name it as namespace/name"
                )
                del theirs[key]
            else:
                theirs[key], text = named
                beside[text] = None
    if theirs and not elsewhere:
        count = f"{len(theirs)} of {len(given.data)} keys {'is' if len(theirs) == 1 else 'are'} the real controller's"
        file = shlex.quote(place) if place != "standard input" else "-"
        command = f"scripts/shell just bench --configmap {file} --target apiserver"
        notes.append(f"{count} ({', '.join(theirs)}): left out here; measured with the whole file by: {command}")
    tried = OVER_TLS if any(KEYS[key].tls for key in ours) else BASELINE
    taken = _taken(ours, tried)
    refused = _explain(ours, taken, theirs, tried)
    notes += [f"{key}: {fault}" for key, fault in refused.items()]
    answering, kept = _answering(taken, tried)
    notes += [
        f"{key}: not measurable: with it nginx answers every request itself (`{it}`), and no backend"
        for key, it in answering.items()
    ]
    singles: list[Setting] = []
    objects = tuple(beside)
    for key in kept:
        root = _ROOTS[KEYS[key].tls, KEYS[key].behind]
        needs = _needs(key, kept, root)
        own = {key: kept[key]}
        if needs and not keys.differs({}, needs, root):  # nothing to be compared with: both at once
            own, needs = {**own, **needs}, {}
        single = _setting(own, needs, _bearing({**needs, **own}, root), ()) if needs is not None else None
        if single is None and not any(key in item.values for item in singles):
            notes.append(f"{key}: nothing to measure: by itself it changes no directive")
        elif single and not single.checks:
            notes.append(f"{key}: not measurable: what it sets depends on the machine, or is read back by nothing")
        elif single:
            singles.append(single)
    for key, value in theirs.items() if elsewhere else ():
        root = _ROOTS[KEYS[key].tls, KEYS[key].behind]
        singles.append(_setting({key: value}, {}, _bearing({key: value}, root), objects))
        kept[key] = value
    left = [*refused, *answering, *(() if elsewhere else theirs)]
    if left and kept:
        notes.append(f"{WHOLE}: the whole file without {', '.join(left)}")
    if not singles:
        raise UsageError(place, "nothing to measure", "\n  ".join(notes) or "it holds no settings")
    if len(kept) == 1:
        notes.append(f"{WHOLE}: the whole file is {singles[0].name}")
    return Split(tuple(singles), {key: kept[key] for key in given.data if key in kept}, tuple(notes), objects)


def _named(kind: str, value: str, given: Given) -> tuple[str, str] | None:
    """Return an object of the file that a key names, as the lab has it beside its own: (what names it, itself); None where it is not there."""
    content = given.beside.get((kind, value.rpartition("/")[2]))
    if content is None or "/" not in value:
        return None
    name = f"your-{value.rpartition('/')[2]}"
    data = {"stringData" if kind == "Secret" else "data": dict(content)}
    metadata = {"name": name, "namespace": NAMESPACE}
    return f"{NAMESPACE}/{name}", json.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata, **data})


def _explain(
    asked: Mapping[str, str], taken: Mapping[str, str], theirs: Mapping[str, str], variant: str
) -> dict[str, str]:
    """Key → why it is not among those that nginx takes: this place's fault, another key's, or a refusal that the controller meets, too."""
    found: dict[str, str] = {}
    left = [*(key for key in asked if key not in taken), *theirs]
    for key in left[: len(left) - len(theirs)]:
        said = keys.refusal({**taken, key: asked[key]}, variant)
        others = ", ".join(other for other in left if other != key)
        if _UNDEFINED.search(said) and others:
            found[key] = f"not measurable here: it may need what {others} would define: {said}"
        elif _ELSEWHERE.match(said):
            found[key] = f"not measurable here: it needs what only your cluster can have: {said}"
        elif said.startswith(keys.UNREAD):
            found[key] = f"not measurable here: {said}"
        elif checker.is_late(said):
            found[key] = f"not measurable here: whether nginx takes it cannot be said: {said}"
        else:
            found[key] = f"nginx refuses it, and so the controller the whole file: {said}"
    return found


def _answering(kept: Mapping[str, str], tried: str) -> tuple[dict[str, str], dict[str, str]]:
    """Keys with which no request reaches a backend, each with what is answered; and the others."""
    left, found = dict(kept), dict[str, str]()
    for key in list(kept) if keys.answered({}, kept, tried) else ():
        fewer = {other: text for other, text in left.items() if other != key}
        answer = keys.answered(fewer, left, tried)
        if answer and not keys.refusal(fewer, tried):
            left, found[key] = fewer, answer
    return found, left


def _bearing(values: Mapping[str, str], root: str) -> str:
    """The root on which they can be set: who expects PROXY protocol gets it, and who redirects everybody to TLS is asked over it.

    But for a load of redirects.
    """

    def on(key: str) -> bool:
        return key in values and keys.look(key, values[key]).value == "true"

    redirects = on("force-ssl-redirect") and any(KEYS[key].sweep != "redirects" for key in values)
    return _ROOTS[root in TLS or redirects, root in (BEHIND, OVER_TLS_BEHIND) or on("use-proxy-protocol")]


def _taken(changed: Mapping[str, str], variant: str) -> dict[str, str]:
    """As many of them as nginx takes together, in their order; of two of which one turns the other on, the other is to blame."""
    if not keys.refusal(changed, variant):
        return dict(changed)
    kept: dict[str, str] = {}
    left = sorted(changed, key=lambda key: KEYS[key].kind != "bool")
    while fitting := [key for key in left if not keys.refusal({**kept, key: changed[key]}, variant)]:
        for key in fitting:
            if not keys.refusal({**kept, key: changed[key]}, variant):
                kept[key] = changed[key]
        left = [key for key in left if key not in kept]
    return {key: value for key, value in changed.items() if key in kept}


def _needs(key: str, kept: Mapping[str, str], root: str) -> dict[str, str] | None:
    """The others without which nginx refuses the key or nothing changes; None where nothing changes with all of them."""
    others = {other: value for other, value in kept.items() if other != key}

    def fits(without: Mapping[str, str]) -> bool:
        whole = {**without, key: kept[key]}
        return not any(keys.refusal(each, root) for each in (whole, without)) and keys.differs(without, whole, root)

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
    values: Mapping[str, str], needs: Mapping[str, str], root: str, beside: tuple[str, ...], whole: bool = False
) -> Setting:
    named = tuple(
        text for text in beside if any(json.loads(text)["metadata"]["name"] in value for value in values.values())
    )
    return Setting(values, keys.checks(needs, {**needs, **values}, root), needs, root, whole, named)


def _groups(singles: Sequence[Setting]) -> Iterator[tuple[set[str], str]]:
    """Keys that need each other, or decide one directive together, each group with its root."""
    groups: list[tuple[set[str], set[object], str]] = []
    for item in singles:
        own, subjects = {*item.values, *item.needs}, {check.subject for check in item.checks}
        near = [group for group in groups if group[0] & own or (group[1] & subjects and group[2] == item.root)]
        groups = [group for group in groups if group not in near]
        groups.append((own.union(*(each[0] for each in near)), subjects.union(*(each[1] for each in near)), item.root))
    return ((names, root) for names, _, root in groups)
