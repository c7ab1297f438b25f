"""The effects of ingress-nginx ConfigMap keys: the directives that they change, and whether nginx accepts them.

The effects are found by a comparison: nginx.conf is rendered with the keys and without them, for a variant (the shipped
baseline, or the baseline over TLS). Some values depend on the machine (CPUs, open files, addresses). So nginx.conf is rendered
for two machines that do not exist, and lines that differ between these two are not checked. Keys that only the real controller
applies are not rendered (`needs_controller`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from lab.model.variants.knobs import Check
from lab.model.variants.variants import load_variant
from lab.systems import checker
from lab.systems.ingress_nginx.configmap import FOREIGN, IDLE, decode_settings, look_up
from lab.systems.ingress_nginx.system import CHECKER, files, render
from lab.systems.manifests import objects
from lab.systems.nginx.readback import list_directives
from lab.systems.nginx.system import nginx_version
from lab.systems.reading import ABSENT, UnreadableError
from lab.systems.system import Context

UNREAD = "the lab cannot read nginx.conf with it"
UNLIKELY = ((1013, 100_003), (1019, 100_019))
"""The (CPUs, open files) of two machines that do not exist."""

_LISTS = {"map", "geo", "types", "split_clients"}
"""The blocks of nginx.conf that contain no directives; of these blocks, only a map's paths and patterns can be read back."""
_LOADED_SERVER = re.compile(r"http/server\[(?!_\])")
"""The form of a place inside an nginx server from which the lab's loads request pages."""
_NAMELESS_SERVER = re.compile(r"http/server(?!\[)")
"""The form of a place inside an nginx server without a name.

A controller has such servers for its own use, and they differ from those in the lab's configuration.
"""
_PATH = re.compile(r"[/~]\S*")
_ALL_CLIENTS = ("all", "0.0.0.0/0")
_OF_MODULES = re.compile(
    r"(?:^|[;{}])\s*(?:more_(?:set|clear)(?:_input)?_headers|(?:brotli|geoip2|opentelemetry|modsecurity)(?:_\w+)?|lua_\w+"
    r"|\w+_by_lua(?:_block|_file)?)\s",
    re.MULTILINE,
)
"""The beginning of a directive of a module that only the controller's nginx has."""

Directives = dict[tuple[str, str], str]
"""(context, directive) → its arguments; different arguments of several occurrences are joined by commas."""
Counts = dict[tuple[str, str, str, str], int]
"""(context, place, directive, arguments) → number of occurrences; see `lab.systems.nginx.readback.Directive`."""


@dataclass(frozen=True, slots=True)
class DirectiveChanges:
    """The differences between two versions of nginx.conf, one before and one after a change of ConfigMap keys.

    Attributes:
        anywhere: the changes, summed up by kind of block: (kind of block such as `http/server`, directive) → all arguments that
            the directive has in blocks of this kind after the change, or `absent`.
        somewhere: the changes in single blocks: (kind of block, block, directive, arguments) → number of occurrences
            after the change. Normally, a change that `anywhere` shows is left out.
        within: the blocks that existed before the change.

    """

    anywhere: Directives
    somewhere: Counts
    within: frozenset[str]


@dataclass(frozen=True, slots=True)
class InspectedKey:
    """The value that the controller reads for one ConfigMap key, and whether the key's effect can be measured.

    Attributes:
        value: the value, as text.
        remark: a message, if the controller reads another value than the ConfigMap's text suggests; otherwise empty.
        idle: the reason why the key has no effect that can be measured; empty if it has such an effect.
        kind: the kind of that reason. `invalid`: the text does not fit the key. `default`: the value is the default. `unseen`: no
            load of the lab shows the effect. `read`: there is no such reason, and the key has an effect.

    """

    value: str
    remark: str = ""
    idle: str = ""
    kind: Literal["read", "invalid", "default", "unseen"] = "read"


def needs_controller(name: str, text: str) -> bool:
    """Return whether a ConfigMap key has an effect in the real ingress-nginx controller, but none in the lab's plain nginx.

    Such a key needs the controller's own logic, its Lua code, or nginx modules of the controller's image.

    Args:
        name: the name of the key.
        text: the value of the key. It is used only for a key whose name ends in `-snippet`. Such a value is a piece of
            nginx.conf, and may have directives of Lua or of such a module.

    """
    return name in FOREIGN or (name.endswith("-snippet") and bool(_OF_MODULES.search(text)))


def inspect_key(name: str, text: str) -> InspectedKey:
    """Return the value that the controller reads for a ConfigMap key, and whether the key's effect can be measured.

    Args:
        name: the name of an existing key.
        text: the text of the key in the ConfigMap.

    """
    key, decoded = look_up(name, text)
    kind, idle = "read", ""
    if decoded.kept or (key.kind == "int" and not text):
        kind, idle = "invalid", decoded.remark if decoded.kept else f"{decoded.remark}: write the number that is meant"
    elif key.kind == "offset" and not decoded.value:
        idle = f"nothing to measure: {decoded.remark or 'empty, the directive is left out, and its default is the shipped one'}"
        kind = "invalid" if decoded.remark else "default"
    elif name in IDLE:
        kind, idle = "unseen", f"nothing to measure: it changes nothing for what the lab sends ({key.why})"
    elif decoded.value == key.default:
        excerpt = decoded.value if len(decoded.value) <= 40 else f"{decoded.value[:40]}…"
        kind, idle = (
            "default",
            f"nothing to measure: {decoded.remark + '; ' if decoded.remark else ''}{excerpt!r} is the default",
        )
    return InspectedKey(decoded.value, decoded.remark, idle, kind)


def refusal(data: Mapping[str, str], variant: str = "ingress-nginx") -> str:
    """Return the reason why nginx refuses the configuration that results from ConfigMap keys; empty if nginx accepts it.

    The reason is in nginx's own words. If nginx accepts the configuration but the lab cannot parse it, the text begins with
    `UNREAD`.

    Args:
        data: the data of the ConfigMap.
        variant: the variant (a configuration of the system) whose ConfigMap gets this data.

    """
    machine = (1, 100_000)
    text = _render_text(tuple(sorted(data.items())), variant, machine)
    if message := checker.find_refusal(CHECKER, files(text, _context(variant, *machine))):
        return message
    try:
        _count_directives(data, variant, UNLIKELY[0])
    except UnreadableError as error:
        return f"{UNREAD}: {error}"
    return ""


def differs(before: Mapping[str, str], after: Mapping[str, str], variant: str = "ingress-nginx") -> bool:
    """Return whether two sets of ConfigMap keys result in different directives in nginx.conf.

    Args:
        before: key → value of the first set. All other keys have their defaults.
        after: key → value of the second set, in the same form.
        variant: the variant (a configuration of the system) whose ConfigMap has the keys.

    """
    changes = (_compare(before, after, variant, machine) for machine in UNLIKELY)
    return any(change.anywhere or change.somewhere for change in changes)


def find_answering_directive(
    before: Mapping[str, str], after: Mapping[str, str], variant: str = "ingress-nginx"
) -> str:
    """Return a directive by which nginx itself would answer the load's requests after a change of ConfigMap keys.

    The directive is a `return` or a `deny` that the change adds to a block which existed before. With such a directive, the
    requests would never reach the backend, so that a measurement would be useless.

    Args:
        before: key → value, before the change.
        after: key → value, after the change.
        variant: the variant (a configuration of the system) whose ConfigMap has the keys.

    Returns:
        The directive with its arguments, such as `deny all`; empty if there is none.

    """
    change = _compare(before, after, variant, UNLIKELY[0], every=True)
    allowing = {place for (_, place, name, _), times in change.somewhere.items() if name == "allow" and times}
    for (context, place, name, arguments), times in change.somewhere.items():
        serves = (_LOADED_SERVER.match(place) and _innermost(context) in ("server", "location")) or place == "http"
        denies = name == "deny" and arguments in _ALL_CLIENTS and place not in allowing
        if times and place in change.within and serves and (denies or name == "return"):
            return f"{name} {arguments}"
    return ""


def derive_checks(
    before: Mapping[str, str], after: Mapping[str, str], variant: str = "ingress-nginx"
) -> tuple[Check, ...]:
    """Return the read-back checks for a change of ConfigMap keys: one for each directive of nginx.conf that changes.

    A read-back check reads from the running system whether a setting took effect. Directives whose arguments depend on the machine
    are left out. A key that only the real controller applies changes no directive here. Its check reads the ConfigMap instead.

    Args:
        before: key → value, before the change.
        after: key → value, after the change.
        variant: the variant (a configuration of the system) whose ConfigMap has the keys.

    """
    by_controller = {key: text for key, text in after.items() if needs_controller(key, text) and key not in before}
    old, new = ({key: text for key, text in data.items() if key not in by_controller} for data in (before, after))
    first, second = (_compare(old, new, variant, machine) for machine in UNLIKELY)
    stable = {
        place: value
        for place, value in first.anywhere.items()
        if second.anywhere.get(place) == value and value and _is_readable(*place)
    }
    counted = {
        stated: times
        for stated, times in first.somewhere.items()
        if second.somewhere.get(stated) == times and stated[-1] and _is_readable(stated[0], stated[2])
    }
    return (
        *(  # the controller has locations through which it receives the backends: they keep their values
            Check(
                kind="nginx",
                name=name,
                context=context or None,
                value=value,
                among=_innermost(context) == "location" or None,
            )
            for (context, name), value in stable.items()
        ),
        *(
            Check(kind="nginx", name=name, context=place or None, value=value, times=times)
            for (_, place, name, value), times in counted.items()
        ),
        *(Check(kind="configmap", name=name, value=text) for name, text in by_controller.items()),
    )


def _innermost(context: str) -> str:
    """Return the innermost block of a directive's context (`http/server` → `server`)."""
    return context.rpartition("/")[2]


def _is_readable(context: str, name: str) -> bool:
    block = _innermost(context)
    return block not in _LISTS or (block == "map" and bool(_PATH.fullmatch(name)))


def _compare(
    before: Mapping[str, str], after: Mapping[str, str], variant: str, machine: tuple[int, int], every: bool = False
) -> DirectiveChanges:
    """Compare the two versions of nginx.conf that result from two sets of ConfigMap keys.

    Args:
        before: key → value, before the change.
        after: key → value, after the change.
        variant: the variant (a configuration of the system) whose ConfigMap has the keys.
        machine: (number of CPUs, limit of open files) of the machine for which nginx.conf is rendered.
        every: whether `somewhere` of the result also includes the changes in single blocks that `anywhere` shows.

    """
    old, new = (_count_directives(side, variant, machine) for side in (before, after))
    earlier, later = _join(old), _join(new)
    values = {place: value for place, value in later.items() if earlier.get(place) != value}
    values |= {place: ABSENT for place in earlier if place not in later}
    counted = {
        stated: new.get(stated, 0)
        for stated in dict.fromkeys((*new, *old))
        if new.get(stated) != old.get(stated)
        and not _NAMELESS_SERVER.match(stated[1])
        and (every or (stated[0], stated[2]) not in values)
    }
    return DirectiveChanges(values, counted, frozenset(place for _, place, _, _ in old))


def _join(counts: Mapping[tuple[str, str, str, str], int]) -> Directives:
    values: dict[tuple[str, str], dict[str, None]] = {}
    for context, _, name, arguments in counts:
        values.setdefault((context, name), {})[arguments] = None
    return {place: ", ".join(texts) for place, texts in values.items()}


def _count_directives(data: Mapping[str, str], variant: str, machine: tuple[int, int]) -> Counts:
    return _count_in(_render_text(tuple(sorted(data.items())), variant, machine))


@lru_cache(maxsize=1024)
def _render_text(data: tuple[tuple[str, str], ...], variant: str, machine: tuple[int, int]) -> str:
    return render(decode_settings("ConfigMap", dict(data)), _context(variant, *machine), nginx_version())


@lru_cache(maxsize=256)
def _count_in(text: str) -> Counts:
    return Counter(
        (directive.context, directive.place, directive.name, " ".join(directive.arguments))
        for directive in list_directives({"nginx.conf": text})
    )


@lru_cache(maxsize=32)
def _context(variant: str, cpus: int, open_files: int) -> Context:
    parsed = objects.read_objects(load_variant(variant).manifests)
    pod = parsed.role("proxy")[0]
    addresses = {pod.name: f"192.0.2.{cpus % 250}" for pod in parsed.pods}
    somaxconn = int(Path("/proc/sys/net/core/somaxconn").read_text())
    return Context(pod.containers[0], pod, parsed, addresses, cpus, somaxconn, open_files)
