"""The keys of the ingress-nginx ConfigMap, with their defaults in release 1.15.1 and the directives of nginx that they become.

The keys come from the table `configmap.tsv` in this folder. A line of it is, for example,

    keep-alive  int  http  75  keepalive_timeout {}s     →  in the block http: keepalive_timeout 75s;

Source of names, kinds and defaults: kubernetes/ingress-nginx at controller-v1.15.1 (dbb11b9),
internal/ingress/controller/config/config.go and template/configmap.go. The column `where`:

    main, events, http, location, upstream     the block that has the key's directive, in which `{}` stands for the value
    written        the template `nginx.conf.j2` composes the directives of the key
    idle           the key has no effect on the requests that the lab sends, in the real controller too
    controller     only the real controller applies the key, by its own logic, Lua or modules: `--target apiserver` measures it, only its default is accepted here

The column `tags`: `optional` means that an empty value leaves the directive out. `tls` means that only a load over TLS can show
the key's effect, and `behind` that only a load behind a load balancer can. `decode_settings` refuses a wrong key or value in a
manifest, which the real controller would accept silently. The controller decodes a value (`decode`) by the rules of Go:

    int    0x3C → 60, 0o74 → 60, 1_000 → 1000, -1 → -1, "" → 0; 1e2 and "75s" → the default stays, and a warning is logged
    bool   True → true, 0 → false, "" → false; yes, on → the default stays
    offset 10g → 10g; 10 GB → no directive, and so nginx's own default

Source: github.com/mitchellh/mapstructure v1.5.0 with WeaklyTypedInput (decodeInt, decodeBool), Go's strconv and time,
template/configmap.go (lists, codes) and template.go (isValidByteSize). The tests compare the rules with answers of the
controller's own decoder. Values that only nginx would refuse are not refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from lab.base.errors import UsageError, did_you_mean
from lab.base.files import read_tsv


@dataclass(frozen=True, slots=True)
class Decoded:
    """The value that the ingress-nginx controller reads from the text of a ConfigMap key.

    Attributes:
        value: the value, as text.
        remark: a message, if the controller reads another value than the text suggests; otherwise empty.
        kept: True if the text does not fit the key's type, so that the controller keeps the key's default.

    """

    value: str
    remark: str = ""
    kept: bool = False


_DIGITS = (
    (re.compile(r"0[xX](?:_?[0-9a-fA-F])+"), 16),
    (re.compile(r"0[bB](?:_?[01])+"), 2),
    (re.compile(r"0[oO](?:_?[0-7])+|0(?:_?[0-7])*"), 8),
    (re.compile(r"[1-9](?:_?[0-9])*"), 10),
)
_TRUE, _FALSE = {"1", "t", "T", "TRUE", "true", "True"}, {"0", "f", "F", "FALSE", "false", "False", ""}

_LONGEST = 19
"""The number of decimal digits of the largest integer that the controller can hold."""
_EXCERPT = 60
"""The number of characters of a text that a message shows."""
_OFFSET = re.compile(r"[0-9]+[kKmMgG]?")


def _parse_int(text: str) -> str | None:
    sign, digits = (text[:1], text[1:]) if text[:1] in ("+", "-") else ("", text)
    base = next((base for form, base in _DIGITS if form.fullmatch(digits)), None)
    if base is None:
        return None if text else "0"
    if base == 10 and len(digits.replace("_", "")) > _LONGEST:
        return None
    number = int(sign + digits.replace("_", ""), base)
    return str(number) if -(2**63) <= number < 2**63 else None


def _parse_bool(text: str) -> str | None:
    return "true" if text in _TRUE else "false" if text in _FALSE else None


def split_list(text: str) -> list[str]:
    """Split a text at commas as the ingress-nginx controller does, and remove the blanks around each item.

    Items without any character are dropped before the blanks are removed. So `a,,b` becomes `a` and `b`, but `a, ,b` becomes
    `a`, an empty text, and `b`.
    """
    return [item.strip() for item in text.split(",") if item]


def codes(text: str) -> list[int]:
    """Return the status codes in a list such as `404,503`, as the ingress-nginx controller reads its key custom-http-errors.

    Only whole numbers from 300 to 599 are returned; other items of the list are ignored.
    """
    return [number for item in split_list(text) if (number := _atoi(item)) is not None and 299 < number < 600]


def _atoi(text: str) -> int | None:
    """Parse a decimal integer of at most 19 digits (without leading zeros); return None for any other text.

    The controller stores the number in 64 bits, which limits the number of digits.
    """
    digits = text.lstrip("+-").lstrip("0")
    if not re.fullmatch(r"[+-]?[0-9]+", text) or len(digits) > _LONGEST:
        return None
    return int(f"{'-' if text[0] == '-' else ''}{digits or 0}")


def _parse_redirect(text: str) -> str | None:
    return number if (number := str(_atoi(text))) in ("301", "302", "307", "308") else None


_KINDS: Mapping[str, tuple[str, Callable[[str], str | None]]] = {
    "text": ("text", lambda text: text),
    "format": ("a log format", lambda text: text),
    "directives": ("nginx's directives", lambda text: text),
    "list": ("names separated by commas", lambda text: text),
    "colons": ("names separated by colons", lambda text: text),
    "codes": ("codes from 300 to 599", lambda text: ",".join(map(str, codes(text)))),
    "bool": ("true or false", _parse_bool),
    "int": ("a whole number", _parse_int),
    "redirect": ("301, 302, 307 or 308", _parse_redirect),
    "offset": ("a size such as 8m", lambda text: text if _OFFSET.fullmatch(text.strip()) else ""),
}
"""Kind of a value → its description, and the decoder of a text, which returns None where the default stays."""


_BETWEEN = {"list": ",", "codes": ",", "colons": ":", "directives": "\n"}
"""The separator of the words of a value, by its kind; every other kind has a space, like nginx's own arguments."""
WRITTEN = ("format", "directives")
"""The kinds of values that may contain nginx's variables."""


def join_words(kind: str, texts: Sequence[str]) -> str:
    """Join several words into one value of a ConfigMap key, with the separator for values of the key's kind.

    Args:
        kind: the kind of the key's values. The kind `list`, for example, needs commas, and most kinds need blanks.
        texts: the words.

    """
    return _BETWEEN.get(kind, " ").join(texts)


def decode(kind: str, text: str, default: str) -> Decoded:
    """Return the value that the ingress-nginx controller reads from the text of a ConfigMap key.

    Args:
        kind: the kind of the key's values, such as `int` or `bool`.
        text: the text in the ConfigMap.
        default: the key's default, which the controller keeps if the text does not fit the kind.

    """
    expected, decode = _KINDS[kind]
    excerpt = text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}…"
    value = decode(text)
    if value is None:
        return Decoded(
            default, f"{excerpt!r} is not {expected}: the controller logs that and keeps {default!r}", kept=True
        )
    if kind == "offset" and not value and text:
        return Decoded(
            value,
            f"{excerpt!r} is not {expected}: the controller leaves the directive out, and nginx's own default holds",
        )
    if kind == "codes" and value != ",".join(split_list(text)):
        return Decoded(value, f"of {excerpt!r} the controller takes {value or 'nothing'}: {expected}")
    if kind == "int" and (value != text or value.startswith("-")):
        return Decoded(value, f"{excerpt!r} is read as {value}" if text else "is empty: the controller reads 0")
    return Decoded(value)


Where = Literal["main", "events", "http", "location", "upstream", "written", "idle", "controller"]


@dataclass(frozen=True, slots=True)
class IngressNginxKey:
    """A key of the ingress-nginx ConfigMap, from one line of the table `configmap.tsv`.

    Attributes:
        name: the name of the key.
        kind: the kind of the key's values, such as `int`.
        default: the key's default value, as text.
        where: where the key's directive belongs: a block of nginx.conf (`main`, `events`, `http`, `location`,
            `upstream`), or `written` if a template composes it. `idle`: the key has no effect under the load that the
            lab sends. `controller`: only the real controller applies the key.
        directive: the directive, with `{}` for the value.
        optional: whether an empty value leaves the directive out.
        tls: whether only a load over TLS can show the key's effect.
        behind: whether only a load behind a load balancer can show the key's effect.
        sweep: the sweep (a set of loads) in which the effect could show. Empty: the sweep of a component in the lab's manifests
            that has the key, or else `quick` (over TLS: `tls`).
        names: the kind of another object (such as `Secret`) that the value names as `namespace/name`; empty for other keys.
        why: for `idle` and `controller`, the reason; for any other key a remark.

    """

    name: str
    kind: str
    default: str
    where: Where
    directive: str
    optional: bool
    tls: bool
    behind: bool
    sweep: str
    names: str
    why: str


KEYS: Mapping[str, IngressNginxKey] = {
    row["key"]: IngressNginxKey(
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
    for row in read_tsv(Path(__file__).with_suffix(".tsv"))
}
"""The keys of ingress-nginx 1.15.1, by their names."""
IDLE, FOREIGN = (frozenset(name for name, key in KEYS.items() if key.where == kind) for kind in ("idle", "controller"))
REALISED = tuple(key for key in KEYS.values() if key.name not in IDLE | FOREIGN)


def look_up(name: str, text: str) -> tuple[IngressNginxKey, Decoded]:
    """Return a ConfigMap key of ingress-nginx by its name, and the value that the controller reads from the key's text.

    Args:
        name: the name of an existing key.
        text: the text of the key in the ConfigMap.

    """
    return KEYS[name], decode(KEYS[name].kind, text, KEYS[name].default)


def decode_settings(place: str, data: Mapping[str, str]) -> dict[str, str]:
    """Return the value of every key that the lab applies to its own nginx: name of a key → value.

    The value is the one in the ConfigMap, as the controller would read it, or else the key's default. Keys that have no effect on
    the lab's load are ignored.

    Args:
        place: the ConfigMap, for error messages.
        data: the data of the ConfigMap.

    Raises:
        UsageError: for a key that does not exist, a text that does not fit its key's kind, or a key that only the real controller
            applies and whose value differs from the default. The error lists all such keys.

    """
    values = {key.name: key.default for key in REALISED}
    faults: list[tuple[str, str, str]] = []
    for name, text in data.items():
        key_place = f"{place}: data.{name}"
        if name not in KEYS:
            fault = "ingress-nginx 1.15.1 has no such key, and would ignore it"
            faults.append((key_place, fault, did_you_mean(name, KEYS)))
            continue
        key, value = look_up(name, text)
        if name in IDLE:
            continue
        if value.kept:
            faults.append((key_place, value.remark, f"correct it, or leave it at {key.default!r}"))
        elif name not in FOREIGN:
            values[name] = value.value
        elif value.value != key.default:
            fault = f"the local target cannot realise this key: it {key.why}"
            faults.append((key_place, fault, f"use --target apiserver, or leave it at {key.default!r}"))
    if faults:
        (key_place, fault, remedy), *further = faults
        raise UsageError(
            key_place, fault, "\n  ".join([remedy, *(f"{spot}: {text}: {cure}" for spot, text, cure in further)])
        )
    return values


def render_lines(values: Mapping[str, str], block: Where) -> list[str]:
    """Return the lines of one block of nginx.conf that result from ConfigMap keys with a directive in `configmap.tsv`.

    Args:
        values: name of a key → value, for all keys that the lab applies.
        block: the block, such as `http`.

    """
    switches = {"true": "on", "false": "off"}
    selected = ((key, values[key.name]) for key in REALISED if key.where == block)
    return [
        key.directive.format(switches[value] if key.kind == "bool" else value) + ";"
        for key, value in selected
        if value or not (key.optional or key.kind == "offset")
    ]
