"""The translation of ingress-nginx's values into a successor's, by a template of a table's column `value`.

    template                       value     result
    {seconds}s                     1h        3600s
    {value:true=Allow false=}      true      Allow      words become words; nothing after = leaves the successor's default
    {tls_min:1.2=TLSv1_2}          TLSv1.2   TLSv1_2    the result of a conversion may be mapped to words, too
    {value:0=-1 *=*}               320       320        all other values stay as they are
    {truth:true="" false=}         true                 two quotes are an empty text, which some successors take as off

A value without a translation is refused with the reason: nothing is guessed. `compare_amounts` compares two values as amounts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import ceil, inf
from string import Formatter

_TIME = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800, "M": 2592000, "y": 31536000}
_SIZE = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
TRUTH: Mapping[str, bool] = {"true": True, "on": True, "false": False, "off": False}
NO_NUMBER = r"0|.*\D.*|"
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?(ms|[smhdkg]?)(?:i?b)?(?![\w.%])", re.IGNORECASE)
_ENDLESS = re.compile(r"(?:-1|infinity|no limit)(?![\w.%])")
_VERSION = re.compile(r"TLSv1(?:\.[1-3])?")
_CIPHER = re.compile(r"(ECDHE-(?:ECDSA|RSA))-(AES\d+-GCM-SHA\d+|CHACHA20-POLY1305)")


class UntranslatableError(ValueError):
    """The error for a value that has no translation; its message is the reason, such as `is no time`.

    The message is printed after the value.
    """


class LeaveDefaultError(Exception):
    """The signal that a value corresponds to the successor's own default, so that nothing has to be set.

    The successor is the proxy that is migrated to.
    """


def translate(template: str, value: str, key_values: Mapping[str, str] | None = None) -> str:
    """Translate a value of an ingress-nginx key (setting) into the value of a successor's setting, by a template.

    Example: the template `{seconds}s` translates `1h` to `3600s`.

    Args:
        template: The template. One without braces is itself the result, whatever the value.
        value: The value in ingress-nginx.
        key_values: Name → value of other keys of ingress-nginx. A template may have such a value, as in
            `{proxy-buffer-size}`, or the value after a conversion, as in `{proxy-buffer-size|size}`.

    Raises:
        UntranslatableError: The value has no translation.
        LeaveDefaultError: The value corresponds to the successor's default, so that nothing has to be set.

    """
    parts: list[str] = []
    for literal, name, mapping, _ in Formatter().parse(template):
        parts.append(literal)
        if name is not None:  # the name of a conversion, of another key, or `key|conversion`
            key, _, conversion = ("", "", name) if name in CONVERSIONS else name.partition("|")
            given = (key_values or {})[key] if key else value
            parts.append(_map_text(CONVERSIONS[conversion](given) if conversion else given, mapping or ""))
    return "".join(parts)


def compare_amounts(first: str, second: str) -> int | None:
    """Compare two amounts: times, sizes or counts, each with or without a unit.

    `0`, `-1` and `infinity` mean that there is no limit, which is more than any number.

    Args:
        first: The first amount.
        second: The second amount, which words may follow (`60 KiB for all headers`).

    Returns:
        1 if the second is more than the first, -1 if it is less, 0 if they are equal; None if one of the texts is not
        an amount.

    """
    matches = [_AMOUNT.fullmatch(first.strip()), _AMOUNT.match(second)]
    if any(match is None and not _ENDLESS.match(text) for text, match in zip((first, second), matches, strict=True)):
        return None
    units = _TIME if {match[2].lower() for match in matches if match} & {"ms", "s", "h", "d"} else _SIZE
    ours, theirs = (float(match[1]) * units.get(match[2].lower(), 1) or inf if match else inf for match in matches)
    return (theirs > ours) - (theirs < ours)


def list_names(template: str) -> set[str]:
    """Return the names in the braces of a template (see `translate`): conversions, and other keys of ingress-nginx.

    Example: `{proxy-buffer-size|size}` has the key `proxy-buffer-size` and the conversion `size`.
    """
    return {part for _, name, _, _ in Formatter().parse(template) if name is not None for part in name.split("|")}


def _map_text(text: str, mapping: str) -> str:
    """Map a text to another one by a list of pairs: the pairs `true=Allow false=` map `true` to `Allow`.

    Args:
        text: The text, already converted.
        mapping: Pairs `text=result`, separated by spaces. `<N=result` is for whole numbers below N, and `*=result` for
            every other text. If there are no pairs, the text stays as it is.

    Raises:
        UntranslatableError: No pair fits the text.
        LeaveDefaultError: The result is empty, which means that the successor (the proxy that is migrated to) keeps its
            default.

    """
    if not mapping:
        return text
    results = dict(pair.split("=", 1) for pair in mapping.split())
    limits = (
        result for limit, result in results.items() if limit[0] == "<" and text.isdigit() and int(text) < int(limit[1:])
    )
    match = results[text] if text in results else next(limits, results.get("*"))
    if match is None:
        raise UntranslatableError(f"is none of {', '.join(results)}")
    if not match:
        raise LeaveDefaultError
    return {"*": text, '""': ""}.get(match, match)


def _convert_seconds(value: str) -> str:
    """Convert a time of nginx (`1h 30m`, or a number of seconds) to seconds, as text (`5400`).

    Raises:
        UntranslatableError: The value is not a time, or it is 0, whose meaning differs between systems (such as no
            limit).

    """
    pieces = re.findall(r"(\d+)(ms|[smhdwMy]?)", value)
    if "".join(number + unit for number, unit in pieces) != value.replace(" ", "") or not pieces:
        raise UntranslatableError("is no time")
    total = sum(int(number) * _TIME[unit or "s"] for number, unit in pieces)
    if not total:
        raise UntranslatableError("means no limit there, or its default: to be decided by hand")
    return f"{total:g}" if total < 1e6 else str(int(total))


def _convert_duration(value: str) -> str:
    """Convert a time of nginx to at most four digits and one unit: `1h 30m` → `5400s`.

    Gateway API and NGINX Gateway Fabric require this form. A time that has no exact such form is rounded up.
    """
    ms = ceil(float(_convert_seconds(value)) * 1000)
    units = [(1000, "s"), (60_000, "m"), (3_600_000, "h")] if ms % 1000 == 0 else [(1, "ms"), (1000, "s")]
    for even in (True, False):
        for per, unit in units:
            if ms <= 9999 * per and (not even or ms % per == 0):
                return f"{ceil(ms / per)}{unit}"
    raise UntranslatableError("is longer than can be written there")


def _convert_bytes(value: str) -> str:
    match = re.fullmatch(r"(\d+)([kmg]?)", value.lower())
    if not match:
        raise UntranslatableError("is no size")
    return str(int(match[1]) * _SIZE[match[2]])


def _convert_size(value: str) -> str:
    """Convert a size of nginx to at most four digits and the largest unit that is exact: `1024k` → `1m`."""
    total = int(_convert_bytes(value))
    even = next((unit for unit in ("g", "m", "k") if total % _SIZE[unit] == 0 and (total or unit == "k")), "")
    if total > 9999 * _SIZE[even]:
        raise UntranslatableError("cannot be written there in four digits and a unit")
    return f"{total // _SIZE[even]}{even}"


def _convert_buffers(value: str) -> str:
    """Convert nginx's number and size of buffers to the bytes of all buffers: `4 8k` → `32768`; a size alone is one buffer."""
    number, _, size = value.rpartition(" ")
    return str(int(number or 1) * int(_convert_bytes(size))) if (number or "1").isdigit() else _convert_bytes(value)


def _refuse_matches(refused: str, value: str, reason: str) -> str:
    """Return a value unchanged, or raise an error if a pattern matches all of it.

    Args:
        refused: The regular expression of the values to refuse.
        value: The value.
        reason: The message of the error.

    Raises:
        UntranslatableError: The pattern matches.

    """
    if re.fullmatch(refused, value):
        raise UntranslatableError(reason)
    return value


def _convert_count(value: str) -> str:
    if value == "auto":
        raise LeaveDefaultError
    if not value.isdigit():
        raise UntranslatableError("is no number")
    return value


def _convert_truth(value: str) -> bool:
    if value.lower() not in TRUTH:
        raise UntranslatableError("is neither true nor false")
    return TRUTH[value.lower()]


def _list_versions(value: str) -> list[str]:
    if not value.split() or not all(_VERSION.fullmatch(version) for version in value.split()):
        raise UntranslatableError("names versions older than TLS 1.0, or none")
    return sorted(version.removeprefix("TLSv") if "." in version else "1.0" for version in value.split())


def _list_items(value: str) -> list[str]:
    if value == "auto":
        raise LeaveDefaultError
    if re.search(r"[!+@]|(^|:)(HIGH|ALL|DEFAULT)", value):
        raise UntranslatableError("is an expression of OpenSSL's, not a list of names")
    return [item for item in re.split(r"[,:\s]+", value) if item]


def _list_ciphers(value: str) -> list[re.Match[str]]:
    """Return the regular-expression matches of the ciphers in a list that BoringSSL and Go support.

    These are ECDHE with AES-GCM or ChaCha20; other ciphers of the list are left out.

    Raises:
        UntranslatableError: The list names no such cipher.

    """
    matches = [match for name in _list_items(value) if (match := _CIPHER.fullmatch(name))]
    if not matches:
        raise UntranslatableError("names none that it has")
    return matches


def _convert_log_buffer(value: str) -> str:
    match = re.search(r"\bbuffer=(\S+)", value)
    if not match:
        raise UntranslatableError("says nothing of a buffer")
    return str(max(int(_convert_bytes(match[1])) // 1024, 1))


CONVERSIONS: dict[str, Callable[[str], str]] = {
    "value": str,
    "seconds": _convert_seconds,
    "whole_seconds": lambda value: str(ceil(float(_convert_seconds(value)))),  # for settings without parts of a second
    "bytes": _convert_bytes,
    "limit": lambda value: "no limit" if _convert_bytes(value) == "0" else _convert_bytes(value),
    "header_bytes": _convert_buffers,
    "header_kb": lambda value: str(max(int(_convert_buffers(value)) // 1024, 1)),
    "line_bytes": lambda value: _convert_bytes(
        value.rpartition(" ")[2]
    ),  # one buffer of `4 8k`: the most of one header
    "size": _convert_size,
    "duration": _convert_duration,
    "nginx_time": lambda value: "0s" if value == "0" else _convert_duration(value),
    "connections": lambda value: _refuse_matches(
        NO_NUMBER, value, "means as many as open files allow: a number is to be chosen there"
    ),
    "idle": lambda value: _refuse_matches("0", value, "keeps no idle connections: turned off there by another setting"),
    "count": _convert_count,
    "truth": lambda value: str(_convert_truth(value)).lower(),
    "inverse": lambda value: str(not _convert_truth(value)).lower(),
    "onoff": lambda value: "on" if _convert_truth(value) else "off",
    "tls_min": lambda value: _list_versions(value)[0],
    "tls_max": lambda value: _list_versions(value)[-1],
    "tls_plus": lambda value: " ".join(f"+TLSv{version.removesuffix('.0')}" for version in _list_versions(value)),
    "list": lambda value: ",".join(re.split(r"[,\s]+", value.strip(", \t\n"))),
    "list_yaml": lambda value: f"[{', '.join(_list_items(value))}]",
    "ciphers_iana": lambda value: ",".join(
        f"TLS_{match[1].replace('-', '_')}_WITH_{match[2].replace('AES', 'AES_').replace('-', '_')}"
        f"{'_SHA256' if match[2].endswith('POLY1305') else ''}"
        for match in _list_ciphers(value)
    ),
    "ciphers_ecdhe": lambda value: f"[{', '.join(match[0] for match in _list_ciphers(value))}]",
    "log_buffer_kb": _convert_log_buffer,
    "reuses": lambda value: str(max(int(_convert_count(value)) - 1, 0)),  # requests on a connection after its first
    "retries": lambda value: str(int(_refuse_matches(NO_NUMBER, value, "means as often as there are backends")) - 1),
}
"""The name of each conversion → the function that converts a value."""
