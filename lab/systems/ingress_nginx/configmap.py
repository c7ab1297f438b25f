"""The ingress-nginx ConfigMap: the keys of `configmap.tsv` beside this file, ingress-nginx 1.15.1's defaults, and what each becomes.

    keep-alive  int  http  75  keepalive_timeout {}s     →  in the block http: keepalive_timeout 75s;

Source of names, kinds and defaults: kubernetes/ingress-nginx at controller-v1.15.1 (dbb11b9),
internal/ingress/controller/config/config.go and template/configmap.go. The column `where`:

    main, events, http, location, upstream     the block in which its directive stands, `{}` its value
    written        the template composes it itself, of what a stock nginx has
    idle           without meaning for what the lab sends, in the real controller too
    controller     the real controller's, as it needs its own logic, Lua or modules: `--target apiserver` measures it, only its default is accepted here

Of tags, `optional`: an empty value leaves the directive out; `tls`: only a load over TLS can show it; `behind`: only behind a load balancer.
`settings` refuses anything else in a manifest, where the real controller would say nothing. What the controller makes of a value (`decoded`) is Go's:

    int    0x3C → 60, 0o74 → 60, 1_000 → 1000, -1 → -1, "" → 0; 1e2 and "75s" → the default stays, and a warning is logged
    bool   True → true, 0 → false, "" → false; yes, on → the default stays
    offset 10g → 10g; 10 GB → no directive, and so nginx's own default

Source: github.com/mitchellh/mapstructure v1.5.0 with WeaklyTypedInput (decodeInt, decodeBool), Go's strconv and time, template/configmap.go (lists, codes)
and template.go (isValidByteSize). Tested against what the controller's own decoder answered. What nginx refuses, nginx says.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from lab.base.errors import UsageError, did_you_mean


@dataclass(frozen=True, slots=True)
class Decoded:
    """`value` as text; `told` where that is not what the file says; `kept`: the default, since the text is none of its kind."""

    value: str
    told: str = ""
    kept: bool = False


_DIGITS = (
    (re.compile(r"0[xX](?:_?[0-9a-fA-F])+"), 16),
    (re.compile(r"0[bB](?:_?[01])+"), 2),
    (re.compile(r"0[oO](?:_?[0-7])+|0(?:_?[0-7])*"), 8),
    (re.compile(r"[1-9](?:_?[0-9])*"), 10),
)
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False", ""}

_LONGEST = 19
"""Decimal digits of the largest whole number that the controller can hold."""
_SHOWN = 60
"""Characters of a text that are told of it."""
_OFFSET = re.compile(r"[0-9]+[kKmMgG]?")


def _whole(text: str) -> str | None:
    sign, digits = (text[:1], text[1:]) if text[:1] in ("+", "-") else ("", text)
    base = next((base for form, base in _DIGITS if form.fullmatch(digits)), None)
    if base is None:
        return None if text else "0"
    if base == 10 and len(digits.replace("_", "")) > _LONGEST:
        return None
    number = int(sign + digits.replace("_", ""), base)
    return str(number) if -(2**63) <= number < 2**63 else None


def _bool(text: str) -> str | None:
    return "true" if text in _TRUE else "false" if text in _FALSE else None


def items(text: str) -> list[str]:
    """A list as the controller splits it: at commas, empty fields left out, then trimmed."""
    return [item.strip() for item in text.split(",") if item]


def codes(text: str) -> list[int]:
    """Of custom-http-errors, those that the controller takes: whole numbers from 300 to 599."""
    return [number for item in items(text) if (number := _atoi(item)) is not None and 299 < number < 600]


def _atoi(text: str) -> int | None:
    """None where it is no whole number, or longer than any that can be held."""
    digits = text.lstrip("+-").lstrip("0")
    if not re.fullmatch(r"[+-]?[0-9]+", text) or len(digits) > _LONGEST:
        return None
    return int(f"{'-' if text[0] == '-' else ''}{digits or 0}")


def _redirect(text: str) -> str | None:
    return number if (number := str(_atoi(text))) in ("301", "302", "307", "308") else None


_KINDS: Mapping[str, tuple[str, Callable[[str], str | None]]] = {
    "text": ("text", lambda text: text),
    "format": ("a log format", lambda text: text),
    "directives": ("nginx's directives", lambda text: text),
    "list": ("names separated by commas", lambda text: text),
    "colons": ("names separated by colons", lambda text: text),
    "codes": ("codes from 300 to 599", lambda text: ",".join(map(str, codes(text)))),
    "bool": ("true or false", _bool),
    "int": ("a whole number", _whole),
    "redirect": ("301, 302, 307 or 308", _redirect),
    "offset": ("a size such as 8m", lambda text: text if _OFFSET.fullmatch(text.strip()) else ""),
}
"""Kind → what it is in words, and what a text becomes; None: the controller keeps the default."""


_BETWEEN = {"list": ",", "codes": ",", "colons": ":", "directives": "\n"}
"""Kind → what separates its words; of every other it is a space, as nginx's own arguments are."""
WRITTEN = ("format", "directives")
"""Kinds in which nginx's variables stand."""


def joined(kind: str, words: Sequence[str]) -> str:
    """Several words as one value of this kind."""
    return _BETWEEN.get(kind, " ").join(words)


def decoded(kind: str, text: str, default: str) -> Decoded:
    """What the controller holds then, for a key of this kind and default."""
    expected, read = _KINDS[kind]
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    value = read(text)
    if value is None:
        return Decoded(
            default, f"{shown!r} is not {expected}: the controller logs that and keeps {default!r}", kept=True
        )
    if kind == "offset" and not value and text:
        return Decoded(
            value,
            f"{shown!r} is not {expected}: the controller leaves the directive out, and nginx's own default holds",
        )
    if kind == "codes" and value != ",".join(items(text)):
        return Decoded(value, f"of {shown!r} the controller takes {value or 'nothing'}: {expected}")
    if kind == "int" and (value != text or value.startswith("-")):
        return Decoded(value, f"{shown!r} is read as {value}" if text else "is empty: the controller reads 0")
    return Decoded(value)


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
    return KEYS[name], decoded(KEYS[name].kind, text, KEYS[name].default)


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
