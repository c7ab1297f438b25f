"""The ingress-nginx ConfigMap: the keys of `configmap.tsv` beside this file, ingress-nginx 1.15.1's defaults, and what each becomes.

    keep-alive  int  http  75  keepalive_timeout {}s     →  in the block http: keepalive_timeout 75s;

Source of names, kinds and defaults: kubernetes/ingress-nginx at controller-v1.15.1 (dbb11b9),
internal/ingress/controller/config/config.go and template/configmap.go. How a value is decoded: `decoding`. The column `where`:

    main, events, http, location, upstream     the block in which its directive stands, `{}` its value
    written        the template composes it itself, of what a stock nginx has
    idle           without meaning for what the lab sends, in the real controller too
    controller     the real controller's, as it needs its own logic, Lua or modules: `--target apiserver` measures it, only its default is accepted here

Of tags, `optional`: an empty value leaves the directive out; `tls`: only a load over TLS can show it; `behind`: only behind a load balancer.
`settings` refuses anything else in a manifest, where the real controller would say nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from lab.base.errors import UsageError, did_you_mean
from lab.systems.ingress_nginx.decoding import Decoded, decoded

Where = Literal["main", "events", "http", "location", "upstream", "written", "idle", "controller"]


@dataclass(frozen=True, slots=True)
class Key:
    """One line of the table."""

    name: str
    kind: str
    default: str
    where: Where
    directive: str
    optional: bool
    tls: bool
    behind: bool
    sweep: str
    """In which the key could show something; empty: as a shipped component of it says, else quick (over TLS: tls)."""
    names: str
    """The kind of another object, which is named by the value as `namespace/name`; it belongs into the same file."""
    why: str
    """Why it is idle, or the controller's; of any other a remark."""


def _read_keys() -> dict[str, Key]:
    with Path(__file__).with_suffix(".tsv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", restval="", quoting=csv.QUOTE_NONE))
    return {
        row["key"]: Key(
            name=row["key"],
            kind=row["kind"],
            default=row["default"],
            where=cast("Where", row["where"]),
            directive=row["directive"],
            optional="optional" in row["tags"],
            tls="tls" in row["tags"],
            behind="behind" in row["tags"],
            sweep=row["sweep"],
            names=row["names"],
            why=row["why"],
        )
        for row in rows
    }


KEYS: Mapping[str, Key] = _read_keys()
"""Every key that ingress-nginx 1.15.1 has."""
IDLE, FOREIGN = (
    frozenset(name for name, key in KEYS.items() if key.where == where) for where in ("idle", "controller")
)
REALISED = tuple(key for key in KEYS.values() if key.name not in IDLE | FOREIGN)


def look_up(name: str, text: str) -> tuple[Key, Decoded]:
    """A key that is known, and what the controller makes of this value."""
    key = KEYS[name]
    return key, decoded(key.kind, text, key.default)


def settings(place: str, data: Mapping[str, str]) -> dict[str, str]:
    """Every key that is realised here with the ConfigMap's value or the default, as decoded. UsageError that names all that is refused."""
    values = {key.name: key.default for key in REALISED}
    faults: list[tuple[str, str, str]] = []
    for name, text in data.items():
        where = f"{place}: data.{name}"
        if name not in KEYS:
            fault = "ingress-nginx 1.15.1 has no such key, and would ignore it"
            faults.append((where, fault, did_you_mean(name, KEYS)))
            continue
        key, found = look_up(name, text)
        if name in IDLE:
            continue
        if found.kept:
            faults.append((where, found.told, f"correct it, or leave it at {key.default!r}"))
        elif name not in FOREIGN:
            values[name] = found.value
        elif found.value != key.default:
            fault = f"the local target cannot realise this key: it {key.why}"
            faults.append((where, fault, f"use --target apiserver, or leave it at {key.default!r}"))
    if faults:
        (where, fault, remedy), *others = faults
        raise UsageError(where, fault, "\n  ".join([remedy, *(f"{at}: {told}: {cure}" for at, told, cure in others)]))
    return values


def lines(values: Mapping[str, str], where: Where) -> list[str]:
    """The directives of one block that the table alone describes."""
    words = {"true": "on", "false": "off"}
    there = ((key, values[key.name]) for key in REALISED if key.where == where)
    return [
        key.directive.format(words[value] if key.kind == "bool" else value) + ";"
        for key, value in there
        if value or not (key.optional or key.kind == "offset")
    ]
