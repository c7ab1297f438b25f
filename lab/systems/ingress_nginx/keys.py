"""What keys of the ingress-nginx ConfigMap do here: the directives that they change, and whether nginx takes them.

Rendered, not guessed: nginx.conf with the keys and without them, for a variant (the shipped baseline, or that over TLS). Where a
value depends on the machine (CPUs, open files, addresses) it is rendered for two that cannot be, and what differs between those is no
check. Keys that are the real controller's are rendered by nobody here: `is_controllers` tells which these are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lab.model.variants.knobs import Check
from lab.model.variants.variants import load_variant
from lab.systems import checker
from lab.systems.ingress_nginx.configmap import FOREIGN, IDLE, look_up, settings
from lab.systems.ingress_nginx.system import CHECKER, files, render
from lab.systems.manifests import objects
from lab.systems.nginx.readback import directives
from lab.systems.nginx.system import nginx_version
from lab.systems.reading import ABSENT, UnreadableError
from lab.systems.system import Context

UNREAD = "the lab cannot read nginx.conf with it"
UNLIKELY = ((1013, 100_003), (1019, 100_019))
"""(CPUs, open files) of two machines that there are not."""

_LISTS = {"map", "geo", "types", "split_clients"}
"""Blocks that hold no directives: of what stands there a map's paths and patterns are read back, the rest by nothing."""
_NAMED = re.compile(r"http/server\[(?!_\])")
"""A server that the lab's loads ask for, and what is in it."""
_NAMELESS = re.compile(r"http/server(?!\[)")
"""Those that a controller has for itself, other ones than the lab."""
_PATH = re.compile(r"[/~]\S*")
_EVERYBODY = ("all", "0.0.0.0/0")
_OF_MODULES = re.compile(
    r"(?:^|[;{}])\s*(?:more_(?:set|clear)(?:_input)?_headers|(?:brotli|geoip2|opentelemetry|modsecurity)(?:_\w+)?|lua_\w+"
    r"|\w+_by_lua(?:_block|_file)?)\s",
    re.MULTILINE,
)
"""Where a directive begins that only the controller's nginx has, of a module of its own."""

Directives = dict[tuple[str, str], str]
"""(context, directive) → its arguments, several joined as the read-back joins them."""
Counts = dict[tuple[str, str, str, str], int]
"""(context, place, directive, arguments) → how often it stands there with just these."""


@dataclass(frozen=True, slots=True)
class Changed:
    """By kind of block, and where that shows nothing: one block at a time."""

    anywhere: Directives
    somewhere: Counts
    within: frozenset[str]
    """Blocks that were there before."""


@dataclass(frozen=True, slots=True)
class Found:
    """One key: its value as the controller decodes it, and its default. `told`: how that is not what was written; `idle`: why there is nothing to measure."""

    value: str
    default: str
    told: str = ""
    idle: str = ""


def is_controllers(name: str, text: str) -> bool:
    """Whether a key is the real controller's: its effect needs the controller's own logic, Lua or modules."""
    return name in FOREIGN or (name.endswith("-snippet") and bool(_OF_MODULES.search(text)))


def look(name: str, text: str) -> Found:
    """What the controller makes of a key that it has."""
    key, found = look_up(name, text)
    idle = ""
    if found.kept or (key.kind == "int" and not text):
        idle = found.told if found.kept else f"{found.told}: write the number that is meant"
    elif key.kind == "offset" and not found.value:
        idle = f"nothing to measure: {found.told or 'empty, the directive is left out, and its default is the shipped one'}"
    elif name in IDLE:
        idle = f"nothing to measure: it changes nothing for what the lab sends ({key.why})"
    elif found.value == key.default:
        shown = found.value if len(found.value) <= 40 else f"{found.value[:40]}…"
        idle = f"nothing to measure: {found.told + '; ' if found.told else ''}{shown!r} is the default"
    return Found(found.value, key.default, found.told, idle)


def refusal(data: Mapping[str, str], variant: str = "ingress-nginx") -> str:
    """Why nginx refuses this variant with these keys, in its own words, or UNREAD and why the lab cannot read them; empty = it takes them."""
    context = _context(variant, 1, 100_000)
    text = render(settings("ConfigMap", data), context, nginx_version())
    if said := checker.refusal(CHECKER, files(text, context)):
        return said
    try:
        _directives(tuple(sorted(data.items())), variant, UNLIKELY[0])
    except UnreadableError as error:
        return f"{UNREAD}: {error}"
    return ""


def differs(before: Mapping[str, str], after: Mapping[str, str], variant: str = "ingress-nginx") -> bool:
    """Whether nginx.conf does, between two sets of keys on the shipped defaults."""
    found = (_changed(before, after, variant, machine) for machine in UNLIKELY)
    return any(each.anywhere or each.somewhere for each in found)


def answered(before: Mapping[str, str], after: Mapping[str, str], variant: str = "ingress-nginx") -> str:
    """What `after` has nginx answer every request of the load with, instead of a backend; empty = nothing."""
    found = _changed(before, after, variant, UNLIKELY[0], every=True)
    let_in = {place for (_, place, name, _), times in found.somewhere.items() if name == "allow" and times}
    for (context, place, name, arguments), times in found.somewhere.items():
        serves = (_NAMED.match(place) and _block(context) in ("server", "location")) or place == "http"
        denies = name == "deny" and arguments in _EVERYBODY and place not in let_in
        if times and place in found.within and serves and (denies or name == "return"):
            return f"{name} {arguments}"
    return ""


def checks(before: Mapping[str, str], after: Mapping[str, str], variant: str = "ingress-nginx") -> tuple[Check, ...]:
    """Every directive that `after` changes, with what it must then be found to be; without those that depend on the machine.

    A key that is the real controller's is read back from the ConfigMap that the controller watches.
    """
    theirs = {key: text for key, text in after.items() if is_controllers(key, text) and key not in before}
    old, new = ({key: text for key, text in each.items() if key not in theirs} for each in (before, after))
    first, second = (_changed(old, new, variant, machine) for machine in UNLIKELY)
    same = {
        place: value
        for place, value in first.anywhere.items()
        if second.anywhere.get(place) == value and value and _readable(*place)
    }
    counted = {
        stated: times
        for stated, times in first.somewhere.items()
        if second.somewhere.get(stated) == times and stated[-1] and _readable(stated[0], stated[2])
    }
    return (
        *(  # the controller has locations of its own, through which it is told of backends: they keep their values
            Check(
                kind="nginx",
                name=name,
                context=context or None,
                value=value,
                among=_block(context) == "location" or None,
            )
            for (context, name), value in same.items()
        ),
        *(
            Check(kind="nginx", name=name, context=place or None, value=value, times=times)
            for (_, place, name, value), times in counted.items()
        ),
        *(Check(kind="configmap", name=name, value=text) for name, text in theirs.items()),
    )


def _block(context: str) -> str:
    return context.rpartition("/")[2]


def _readable(context: str, name: str) -> bool:
    block = _block(context)
    return block not in _LISTS or (block == "map" and bool(_PATH.fullmatch(name)))


def _changed(
    before: Mapping[str, str], after: Mapping[str, str], variant: str, machine: tuple[int, int], every: bool = False
) -> Changed:
    """`every`: one block at a time also where that is no news."""
    old, new = (_directives(tuple(sorted(side.items())), variant, machine) for side in (before, after))
    earlier, later = _joined(old), _joined(new)
    found = {place: value for place, value in later.items() if earlier.get(place) != value}
    found |= {place: ABSENT for place in earlier if place not in later}
    counted = {
        stated: new.get(stated, 0)
        for stated in dict.fromkeys((*new, *old))
        if new.get(stated) != old.get(stated)
        and not _NAMELESS.match(stated[1])
        and (every or (stated[0], stated[2]) not in found)
    }
    return Changed(found, counted, frozenset(place for _, place, _, _ in old))


def _joined(counts: Mapping[tuple[str, str, str, str], int]) -> Directives:
    found: dict[tuple[str, str], dict[str, None]] = {}
    for context, _, name, arguments in counts:
        found.setdefault((context, name), {})[arguments] = None
    return {place: ", ".join(values) for place, values in found.items()}


@lru_cache(maxsize=256)
def _directives(data: tuple[tuple[str, str], ...], variant: str, machine: tuple[int, int]) -> Counts:
    text = render(settings("ConfigMap", dict(data)), _context(variant, *machine), nginx_version())
    return Counter(
        (each.context, each.place, each.name, " ".join(each.arguments)) for each in directives({"nginx.conf": text})
    )


@lru_cache(maxsize=32)
def _context(variant: str, cpus: int, open_files: int) -> Context:
    wanted = objects.read(load_variant(variant).manifests)
    pod = wanted.role("proxy")[0]
    addresses = {each.name: f"192.0.2.{cpus % 250}" for each in wanted.pods}
    somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
    return Context(pod.containers[0], pod, wanted, addresses, cpus, somaxconn, open_files)
