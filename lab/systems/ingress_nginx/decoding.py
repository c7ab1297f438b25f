"""What the controller makes of a ConfigMap's value: Go's conversions, as ingress-nginx 1.15.1 has them.

    int    0x3C → 60, 0o74 → 60, 1_000 → 1000, -1 → -1, "" → 0; 1e2 and "75s" → the default stays, and a warning is logged
    bool   True → true, 0 → false, "" → false; yes, on → the default stays
    offset 10g → 10g; 10 GB → no directive, and so nginx's own default

Source: github.com/mitchellh/mapstructure v1.5.0 with WeaklyTypedInput (decodeInt, decodeBool), Go's strconv and time,
internal/ingress/controller/template/configmap.go (lists, codes) and template.go (isValidByteSize). Tested against what the
controller's own decoder answered. Refuses nothing: what nginx refuses, nginx says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


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
_ATOI = re.compile(r"[+-]?[0-9]+")
_LONGEST = 19
"""Decimal digits of the largest whole number that the controller can hold."""
_SHOWN = 60
"""Characters of a text that are told of it."""
_OFFSET = re.compile(r"[0-9]+[kKmMgG]?")
_REDIRECTS = {"301", "302", "307", "308"}


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
    if not _ATOI.fullmatch(text) or len(digits) > _LONGEST:
        return None
    return int(f"{'-' if text[0] == '-' else ''}{digits or 0}")


def _redirect(text: str) -> str | None:
    number = str(_atoi(text))
    return number if number in _REDIRECTS else None


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
    if kind == "int" and not text:
        return Decoded(value, "is empty: the controller reads 0")
    if kind == "int" and (value != text or value.startswith("-")):
        return Decoded(value, f"{shown!r} is read as {value}")
    return Decoded(value)
