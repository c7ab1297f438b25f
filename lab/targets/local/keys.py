"""What a key of the ingress-nginx ConfigMap does here: its default, and the directives that it changes.

Rendered, not guessed: nginx.conf with the key and without it, for the shipped baseline. Where a value depends on the
machine (CPUs, open files) it is rendered for two that cannot be, and what differs between those is no check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lab.model.variants.knobs import Check
from lab.model.variants.variants import load_variant
from lab.targets.local import objects
from lab.targets.local.configmap import NO_MEANING, NOT_HERE, TABLE, settings
from lab.targets.local.images import Context
from lab.targets.local.images.ingress_nginx import nginx_version
from lab.targets.local.nginx_conf import render
from lab.targets.readback.nginx import directives

UNLIKELY = ((1013, 100_003), (1019, 100_019))
"""(CPUs, open files) of two machines that there are not."""

Directives = dict[tuple[str, str], str]
"""(context, directive) → its arguments, several joined as the read-back joins them."""


@dataclass(frozen=True, slots=True)
class Found:
    """One key: its value as the controller reads it and its default; `idle` says why there is nothing to measure here."""

    value: str
    default: str
    idle: str = ""


def look_up(place: str, key: str, value: str) -> Found:
    """UsageError for a key that ingress-nginx has not, or a value that it would not take."""
    for reason, names in NO_MEANING.items():
        if key in names.split():
            return Found(value, "", f"nothing to measure: it changes nothing for what the lab sends ({reason})")
    for reason, names in NOT_HERE.items():
        if key in names:
            default = "nothing to measure: it is the default"
            why = default if value == names[key] else f"not measurable on the local target: it {reason}"
            return Found(value, names[key] or "", why)
    return Found(settings(place, {key: value})[key], shipped(key))


def shipped(key: str) -> str:
    return next(known.default for known in TABLE if known.name == key)


def differs(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Whether nginx.conf does, between two sets of keys on the shipped defaults."""
    return any(_changed(before, after, machine) for machine in UNLIKELY)


def checks(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Check, ...]:
    """Every directive that `after` changes, with what it must then be found to be; without those that depend on the machine."""
    first, second = (_changed(before, after, machine) for machine in UNLIKELY)
    same = {place: value for place, value in first.items() if second.get(place) == value and value}
    return tuple(
        Check(kind="nginx", name=name, context=context or None, value=value) for (context, name), value in same.items()
    )


def rendered(data: Mapping[str, str]) -> Directives:
    """Every directive of nginx.conf with these keys."""
    return _directives(tuple(sorted(data.items())), UNLIKELY[0])


def _changed(before: Mapping[str, str], after: Mapping[str, str], machine: tuple[int, int]) -> Directives:
    old, new = (_directives(tuple(sorted(side.items())), machine) for side in (before, after))
    found = {place: value for place, value in new.items() if old.get(place) != value}
    return found | {place: "absent" for place in old if place not in new}


@lru_cache(maxsize=256)
def _directives(data: tuple[tuple[str, str], ...], machine: tuple[int, int]) -> Directives:
    text = render(settings("ConfigMap", dict(data)), _context(*machine), nginx_version())
    found: dict[tuple[str, str], dict[str, None]] = {}
    for context, name, arguments in directives({"nginx.conf": text}):
        found.setdefault((context, name), {})[" ".join(arguments)] = None
    return {place: ", ".join(values) for place, values in found.items()}


@lru_cache(maxsize=4)
def _context(cpus: int, open_files: int) -> Context:
    wanted = objects.read(load_variant("baseline").manifests)
    pod = wanted.role("proxy")[0]
    addresses = {each.name: "192.0.2.1" for each in wanted.pods}
    somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
    return Context(pod.containers[0], pod, wanted, addresses, cpus, somaxconn, open_files)
