"""What keys of the ingress-nginx ConfigMap do here: the directives that they change, and whether nginx takes them.

Rendered, not guessed: nginx.conf with the keys and without them, for a variant (the shipped baseline, or that over TLS). Where a
value depends on the machine (CPUs, open files, addresses) it is rendered for two that cannot be, and what differs between those is no check.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lab.model.variants.knobs import Check
from lab.model.variants.variants import load_variant
from lab.targets.local import checker, modules, objects, told
from lab.targets.local.configmap import FOREIGN, IDLE, KEYS, look_up, settings
from lab.targets.local.images import Context
from lab.targets.local.images.ingress_nginx import CHECKER, files, nginx_version
from lab.targets.local.nginx_conf import headers_named, render, stream
from lab.targets.readback.nginx import directives
from lab.targets.readback.reading import ABSENT

UNLIKELY = ((1013, 100_003), (1019, 100_019))
"""(CPUs, open files) of two machines that there are not."""

_LISTS = {"map", "geo", "types", "split_clients"}
"""Blocks that hold no directives: of what stands there a map's paths and patterns are read back, the rest by nothing."""
_NAMED = re.compile(r"http/server\[(?!_\])")
"""A server that the lab's loads ask for, and what is in it."""
_NAMELESS = re.compile(r"http/server(?!\[)")
"""Those that a controller has for itself, other ones than the lab."""
_PATH = re.compile(r"[/~]\S*")

UNSEEN = "in the whole file only"
"""Why a key that only other targets realise is no knob of its own there."""
Beside = tuple[str, ...]
"""Objects that keys name, as JSON."""

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
    """One key: its value as the controller decodes it, and its default. `told`: how that is not what was written; `idle`: why there is nothing to measure here."""

    value: str
    default: str
    told: str = ""
    idle: str = ""
    tls: bool = False


def look(name: str, text: str, elsewhere: bool = False) -> Found:
    """What the controller makes of a key that it has. `elsewhere`: it runs itself, and so realises every one."""
    key, found = look_up(name, text)
    if found.kept or (key.kind.startswith("int") and not text):
        idle = found.told if found.kept else f"{found.told}: write the number that is meant"
        return Found(found.value, key.default, idle=idle)
    if key.kind == "offset" and not found.value:
        idle = f"nothing to measure: {found.told or 'empty, the directive is left out, and its default is the shipped one'}"
    elif name in IDLE:
        idle = f"nothing to measure: it changes nothing for what the lab sends ({IDLE[name][1]})"
    elif found.value == key.default:
        shown = found.value if len(found.value) <= 40 else f"{found.value[:40]}…"
        idle = f"nothing to measure: {found.told + '; ' if found.told else ''}{shown!r} is the default"
    elif name in FOREIGN and elsewhere:
        return Found(found.value, key.default, f"{UNSEEN}: how to see that it took is not known")
    elif name in FOREIGN:
        idle = f"not measurable on the local target: it {FOREIGN[name][1]}: use --target kind"
    else:
        idle = ""
    return Found(found.value, key.default, "; ".join(filter(None, (found.told, key.remark))), idle, key.tls)


def refusal(data: Mapping[str, str], variant: str = "baseline", beside: Beside = ()) -> str:
    """Why nginx refuses this variant with these keys, in its own words; empty = it takes them.

    Tried is what the controller writes, its block for TCP and UDP too where they change that and this nginx has such blocks.
    """
    streamed = "" if unchecked(data) else _stream(data)
    told = _refusal(data, variant, beside, streamed)
    apart = told and streamed and not _refusal(data, variant, beside, "")
    return f"{told}, in the block `stream`, which the controller always writes" if apart else told


def _refusal(data: Mapping[str, str], variant: str, beside: Beside, streamed: str) -> str:
    context, values = _context(variant, 1, 100_000, beside), _values(data)
    text = render(values, context, nginx_version(), unused=_unused(data)) + streamed
    return checker.refusal(CHECKER, files(values, text, context), programs=modules.hidden())


def unchecked(data: Mapping[str, str]) -> str:
    """What to do where nginx here cannot try the block for TCP and UDP that these keys make; empty = it can, or nothing of it changes."""
    return modules.advice(_stream(data))


def nginx_conf(data: Mapping[str, str], variant: str = "baseline", beside: Beside = ()) -> str:
    """What these keys make, those left out that the controller ignores or keeps at their defaults."""
    taken = {key: value for key, value in data.items() if key in KEYS and (key in IDLE or not look(key, value).idle)}
    return render(_values(taken), _context(variant, 1, 100_000, beside), nginx_version()) + _stream(taken)


def _stream(data: Mapping[str, str]) -> str:
    """Empty where it is what it is without these keys, and nothing else asks for such a block."""
    ours, shipped = (stream({**_values(each), **_unused(each)}) for each in (data, {}))
    return ours if ours != shipped or "stream" in modules.needed(data.get("main-snippet", "")) else ""


def _unused(data: Mapping[str, str]) -> Mapping[str, str]:
    """Of the keys that no request of the lab's meets."""
    return {
        name: look_up(name, data[name])[1].value if name in data else key.default for name, (key, _) in IDLE.items()
    }


def differs(
    before: Mapping[str, str], after: Mapping[str, str], variant: str = "baseline", beside: Beside = ()
) -> bool:
    """Whether nginx.conf does, between two sets of keys on the shipped defaults."""
    found = (_changed(before, after, variant, beside, machine) for machine in UNLIKELY)
    return any(each.anywhere or each.somewhere for each in found)


def answered(
    before: Mapping[str, str], after: Mapping[str, str], variant: str = "baseline", beside: Beside = ()
) -> str:
    """What `after` has nginx answer every request of the load with, instead of a backend; empty = nothing."""
    found = _changed(before, after, variant, beside, UNLIKELY[0], every=True)
    return next(
        (
            f"{name} {arguments}"
            for (context, place, name, arguments), times in found.somewhere.items()
            if name == "return" and times and place in found.within and _serves(context, place)
        ),
        "",
    )


def shut_out(data: Mapping[str, str], variant: str = "baseline", beside: Beside = (), elsewhere: bool = False) -> str:
    """The `deny` that the lab's own clients meet, of the rules in the innermost blocks that have any; empty = none.

    Blocks of a snippet's own count for nothing. `elsewhere`: where clients' addresses are not known, what denies all.
    """
    old, new = (_directives(tuple(sorted(side.items())), variant, beside, UNLIKELY[0]) for side in ({}, data))
    there = {place for _, place, _, _ in old if place == "http" or _NAMED.match(place)}
    rules: dict[str, list[tuple[str, str]]] = {}
    for _, place, name, network in new:
        if name in ("allow", "deny") and place in there:
            rules.setdefault(place, []).append((name, network))
    depth = max((place.count("/") for place in rules), default=0)
    met = [
        next((rule for rule in found if told.is_among(rule[1], everybody=elsewhere)), ("allow", ""))
        for place, found in rules.items()
        if place.count("/") == depth
    ]
    return next((f"{name} {network}" for name, network in met if name == "deny"), "")


def checks(
    before: Mapping[str, str], after: Mapping[str, str], variant: str = "baseline", beside: Beside = ()
) -> tuple[Check, ...]:
    """Every directive that `after` changes, with what it must then be found to be; without those that depend on the machine."""
    first, second = (_changed(before, after, variant, beside, machine) for machine in UNLIKELY)
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
        *(
            Check(kind="nginx", name=name, context=context or None, value=value, among=_among(context))
            for (context, name), value in same.items()
        ),
        *(
            Check(kind="nginx", name=name, context=place or None, value=value, times=times)
            for (_, place, name, value), times in counted.items()
        ),
        *_echoes(before, after, variant, beside),
    )


def _among(context: str) -> bool | None:
    """The controller has locations of its own, through which it is told of backends: they keep their values."""
    return True if context.rpartition("/")[2] == "location" else None


def _serves(context: str, place: str) -> bool:
    """A block in which a request is answered at once, whatever it is."""
    return bool(_NAMED.match(place)) and context.rpartition("/")[2] in ("server", "location")


def _readable(context: str, name: str) -> bool:
    block = context.rpartition("/")[2]
    return block not in _LISTS or (block == "map" and bool(_PATH.fullmatch(name)))


def _echoes(before: Mapping[str, str], after: Mapping[str, str], variant: str, beside: Beside) -> Iterator[Check]:
    """What a backend is told otherwise of the same request."""
    values, context = _values(after), _context(variant, 1, 100_000, beside)
    behind = bool(context.objects.role("balancer"))
    old, new = (
        told.told(each, headers_named(each, "proxy-set-headers", context), behind) for each in (_values(before), values)
    )
    for name in new:
        if old.get(name, "") != new[name]:
            yield Check(kind="echo", name=name, context=told.sent(values) or None, value=new[name] or ABSENT)


def _values(data: Mapping[str, str]) -> Mapping[str, str]:
    """Of the keys that are realised here."""
    return settings("ConfigMap", {name: text for name, text in data.items() if name not in FOREIGN})


def shipped(name: str) -> str:
    return KEYS[name].default


def _changed(
    before: Mapping[str, str],
    after: Mapping[str, str],
    variant: str,
    beside: Beside,
    machine: tuple[int, int],
    every: bool = False,
) -> Changed:
    """`every`: one block at a time also where that is no news."""
    old, new = (_directives(tuple(sorted(side.items())), variant, beside, machine) for side in (before, after))
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
def _directives(data: tuple[tuple[str, str], ...], variant: str, beside: Beside, machine: tuple[int, int]) -> Counts:
    text = render(_values(dict(data)), _context(variant, *machine, beside), nginx_version())
    return Counter(
        (each.context, each.place, each.name, " ".join(each.arguments)) for each in directives({"nginx.conf": text})
    )


@lru_cache(maxsize=32)
def _context(variant: str, cpus: int, open_files: int, beside: Beside) -> Context:
    wanted = objects.read([*load_variant(variant).manifests, *map(json.loads, beside)])
    pod = wanted.role("proxy")[0]
    addresses = {each.name: f"192.0.2.{cpus % 250}" for each in wanted.pods}
    somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
    return Context(pod.containers[0], pod, wanted, addresses, cpus, somaxconn, open_files)
