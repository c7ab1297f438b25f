"""A value of ingress-nginx's → as a successor writes it, by a template of a table's column `value`.

    {seconds}s                     1h        3600s
    {value:true=Allow false=}      true      Allow      words become words, to none: it is left as it is by itself
    {tls_min:1.2=TLSv1_2}          TLSv1.2   TLSv1_2    what a conversion gives may be put into words, too
    {value:0=-1 *=*}               320       320        all others stay as they are
    {truth:true="" false=}         true                 two quotes: an empty text, by which some turn a thing off

Refuses what has no translation, with the reason: nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import ceil
from string import Formatter

_TIME = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "M": 2592000, "y": 31536000}
_SIZE = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_TRUTH = {"true": True, "on": True, "false": False, "off": False}
NO_NUMBER = r"0|.*\D.*|"
_VERSION = re.compile(r"TLSv1(?:\.[1-3])?")
_CIPHER = re.compile(r"(ECDHE-(?:ECDSA|RSA))-(AES\d+-GCM-SHA\d+|CHACHA20-POLY1305)")


class UntranslatableError(ValueError):
    """With the reason, which follows the value."""


class LeaveError(Exception):
    """The successor's own default is what is meant."""


def translated(template: str, value: str, others: Mapping[str, str] | None = None) -> str:
    """UntranslatableError, or LeaveError where nothing is to be set. A template without braces is what is set, whatever the value.

    `others`: values of other keys, by which `{proxy-buffer-size}` stands for one, and `{proxy-buffer-size|size}` for what becomes of it.
    """
    parts: list[str] = []
    for literal, name, words, _ in Formatter().parse(template):
        parts.append(literal)
        if name is not None:  # of a conversion, of another key, or `key|conversion`
            key, _, conversion = ("", "", name) if name in CONVERSIONS else name.partition("|")
            given = (others or {})[key] if key else value
            parts.append(_word(CONVERSIONS[conversion](given) if conversion else given, words or ""))
    return "".join(parts)


def conversions(template: str) -> set[str]:
    """The names that a template uses: of conversions, and of other keys."""
    return {part for _, name, _, _ in Formatter().parse(template) if name is not None for part in name.split("|")}


def _word(text: str, words: str) -> str:
    if not words:
        return text
    known = dict(pair.split("=", 1) for pair in words.split())
    below = (said for limit, said in known.items() if limit[0] == "<" and text.isdigit() and int(text) < int(limit[1:]))
    found = known[text] if text in known else next(below, known.get("*"))
    if found is None:
        raise UntranslatableError(f"is none of {', '.join(known)}")
    if not found:
        raise LeaveError
    return {"*": text, '""': ""}.get(found, found)


def _seconds(value: str) -> str:
    """Of nginx's times and of plain seconds; 0 is another thing everywhere (no limit, instead of none at all)."""
    pieces = re.findall(r"(\d+)(ms|[smhdwMy]?)", value)
    if "".join(number + unit for number, unit in pieces) != value.replace(" ", "") or not pieces:
        raise UntranslatableError("is no time")
    total = sum(int(number) * _TIME[unit or "s"] for number, unit in pieces)
    if not total:
        raise UntranslatableError("means no limit there, or its default: to be decided by hand")
    return f"{total:g}" if total < 1e6 else str(int(total))


def _duration(value: str) -> str:
    """Of at most four digits and one unit, as Gateway API and NGINX Gateway Fabric take them; what does not come out even is longer by a part."""
    ms = ceil(float(_seconds(value)) * 1000)
    units = [(1000, "s"), (60_000, "m"), (3_600_000, "h")] if ms % 1000 == 0 else [(1, "ms"), (1000, "s")]
    for even in (True, False):
        for per, unit in units:
            if ms <= 9999 * per and (not even or ms % per == 0):
                return f"{ceil(ms / per)}{unit}"
    raise UntranslatableError("is longer than can be written there")


def _bytes(value: str) -> str:
    found = re.fullmatch(r"(\d+)([kmg]?)", value.lower())
    if not found:
        raise UntranslatableError("is no size")
    return str(int(found[1]) * _SIZE[found[2]])


def _size(value: str) -> str:
    """nginx's, of at most four digits."""
    total = int(_bytes(value))
    even = next((unit for unit in ("g", "m", "k") if total % _SIZE[unit] == 0 and (total or unit == "k")), "")
    if total > 9999 * _SIZE[even]:
        raise UntranslatableError("cannot be written there in four digits and a unit")
    return f"{total // _SIZE[even]}{even}"


def _buffers(value: str) -> str:
    """Bytes of `4 8k`, and of `8k`."""
    number, _, size = value.rpartition(" ")
    return str(int(number or 1) * int(_bytes(size))) if (number or "1").isdigit() else _bytes(value)


def _unless(refused: str, value: str, why: str) -> str:
    """The value, unless that is what `refused` matches."""
    if re.fullmatch(refused, value):
        raise UntranslatableError(why)
    return value


def _count(value: str) -> str:
    if value == "auto":
        raise LeaveError
    if not value.isdigit():
        raise UntranslatableError("is no number")
    return value


def _truth(value: str) -> bool:
    if value.lower() not in _TRUTH:
        raise UntranslatableError("is neither true nor false")
    return _TRUTH[value.lower()]


def _versions(value: str) -> list[str]:
    if not value.split() or not all(_VERSION.fullmatch(word) for word in value.split()):
        raise UntranslatableError("names versions older than TLS 1.0, or none")
    return sorted(word.removeprefix("TLSv") if "." in word else "1.0" for word in value.split())


def _items(value: str) -> list[str]:
    if value == "auto":
        raise LeaveError
    if re.search(r"[!+@]|(^|:)(HIGH|ALL|DEFAULT)", value):
        raise UntranslatableError("is an expression of OpenSSL's, not a list of names")
    return [word for word in re.split(r"[,:\s]+", value) if word]


def _ciphers(value: str) -> list[re.Match[str]]:
    """Those that BoringSSL and Go have: ECDHE with AES-GCM or ChaCha20."""
    found = [match for name in _items(value) if (match := _CIPHER.fullmatch(name))]
    if not found:
        raise UntranslatableError("names none that it has")
    return found


def _log_buffer(value: str) -> str:
    found = re.search(r"\bbuffer=(\S+)", value)
    if not found:
        raise UntranslatableError("says nothing of a buffer")
    return str(max(int(_bytes(found[1])) // 1024, 1))


CONVERSIONS: dict[str, Callable[[str], str]] = {
    "value": str,
    "seconds": _seconds,
    "whole_seconds": lambda value: str(ceil(float(_seconds(value)))),  # for those that take no part of a second
    "bytes": _bytes,
    "limit": lambda value: "no limit" if _bytes(value) == "0" else _bytes(value),
    "header_bytes": _buffers,
    "header_kb": lambda value: str(max(int(_buffers(value)) // 1024, 1)),
    "line_bytes": lambda value: _bytes(value.rpartition(" ")[2]),  # one buffer of `4 8k`: what a single header may fill
    "size": _size,
    "duration": _duration,
    "nginx_time": lambda value: "0s" if value == "0" else _duration(value),
    "connections": lambda value: _unless(
        NO_NUMBER, value, "means as many as open files allow: a number is to be chosen there"
    ),
    "idle": lambda value: _unless("0", value, "keeps no idle connections: turned off there by another setting"),
    "count": _count,
    "truth": lambda value: str(_truth(value)).lower(),
    "inverse": lambda value: str(not _truth(value)).lower(),
    "onoff": lambda value: "on" if _truth(value) else "off",
    "tls_min": lambda value: _versions(value)[0],
    "tls_max": lambda value: _versions(value)[-1],
    "tls_plus": lambda value: " ".join(f"+TLSv{version.removesuffix('.0')}" for version in _versions(value)),
    "list": lambda value: ",".join(re.split(r"[,\s]+", value.strip(", \t\n"))),
    "list_yaml": lambda value: f"[{', '.join(_items(value))}]",
    "ciphers_iana": lambda value: ",".join(
        f"TLS_{match[1].replace('-', '_')}_WITH_{match[2].replace('AES', 'AES_').replace('-', '_')}"
        f"{'_SHA256' if match[2].endswith('POLY1305') else ''}"
        for match in _ciphers(value)
    ),
    "ciphers_ecdhe": lambda value: f"[{', '.join(match[0] for match in _ciphers(value))}]",
    "log_buffer_kb": _log_buffer,
    "reuses": lambda value: str(max(int(_count(value)) - 1, 0)),  # requests on a connection, its first not counted
    "retries": lambda value: str(int(_unless(NO_NUMBER, value, "means as often as there are backends")) - 1),
}
"""Name → what it makes of a value."""
