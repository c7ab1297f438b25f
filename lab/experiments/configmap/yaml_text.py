"""YAML and JSON text → mappings whose scalars are still text, as Go's tools read them. Pure.

    use-gzip: on              Scalar("on", helm="true")     a bare word that YAML makes something else
    use-gzip: "on"            Scalar("on", helm="on")

What Helm writes into a ConfigMap is what sigs.k8s.io/yaml makes of a value (YAML 1.1: yes and on are true, 0o74 is 60, 1e2 is
100), printed as text. Refuses a key that stands twice, with both lines: kubectl does, and Helm takes one of them silently.
"""

from __future__ import annotations

import base64
import codecs
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import yaml

from lab.base.errors import UsageError
from lab.targets.local.decoding import decoded

Value: TypeAlias = "Scalar | Mapping[str, Value] | Sequence[Value]"

DEPTH = 60
NO_NAME = "{…}"
"""What a key is called that is a mapping or a list: `{{ .Values.x }}` without quotes, for one."""
_TEXT = "tag:yaml.org,2002:str"
_BINARY = "tag:yaml.org,2002:binary"
_TRUE = {"y", "yes", "true", "on"}
_FALSE = {"n", "no", "false", "off"}
_NULL = {"", "~", "null", "Null", "NULL"}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FROM_A_PAGE = "as text copied from a page has: write a space, or nothing, for it"
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


@dataclass(frozen=True, slots=True)
class Scalar:
    """`text` as it stands there; `helm`: as Helm prints it, None for no value."""

    text: str
    helm: str | None
    bare: bool = False
    """Whether YAML makes something else than a text of it, which kubectl refuses in a ConfigMap."""
    tag: str = ""
    """One that is no YAML's own (`!vault`): what it stands for another tool knows."""


def text_at(value: Value | None, key: str) -> str:
    """Of a mapping; empty where it is something else, or has none there."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return found.text if isinstance(found, Scalar) else ""


def text_of(place: str, content: bytes, into: str) -> str:
    """Of UTF-8, or of UTF-16 that says so by its first two bytes. UsageError for anything else. `into`: see `lab.base.handing.again`."""
    mark, encoding = next(((mark, name) for mark, name in _BOMS if content.startswith(mark)), (b"", "utf-8"))
    if content.startswith(b"\x1f\x8b"):
        raise UsageError(place, "is packed with gzip", f"unpack it: zcat FILE | {into}")
    try:
        text = content.removeprefix(mark).decode(encoding)
    except UnicodeDecodeError as error:
        raise UsageError(place, f"is no UTF-8 at byte {error.start}", "save it as UTF-8") from None
    if "\0" in text:
        raise UsageError(place, "holds bytes of zero: no UTF-8", "save it as UTF-8")
    return text


def documents(place: str, text: str) -> list[Value]:
    """Every document that is not empty. UsageError for what is no YAML, and for keys that stand twice."""
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=yaml.CSafeLoader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        said = " ".join(filter(None, (error.context, error.problem)))
        line = text.splitlines()[mark.line] if mark and mark.line < len(text.splitlines()) else ""
        tab = "\t" in line[: len(line) - len(line.lstrip())]
        remedy = "YAML is indented with spaces: replace the tab" if tab else "correct it at the line named"
        if odd := copied(text):
            remedy = odd
        if "{{" in text:
            remedy = f"its templates ({{{{ … }}}}) are filled in when it is installed: give what comes of it, {remedy}"
        raise UsageError(place, f"not YAML: {where}{said}", remedy) from None
    except yaml.YAMLError as error:
        raise UsageError(place, f"not YAML: {' '.join(str(error).split())}", "correct it") from None
    twice: list[str] = []
    read: dict[int, Value] = {}
    found = [_value(place, node, twice, read) for node in nodes]
    if twice:
        raise UsageError(place, "; ".join(twice), "keep one of them: kubectl refuses a key that stands twice")
    return [value for value in found if not (isinstance(value, Scalar) and value.helm is None)]


def copied(text: str) -> str:
    """The first character that looks like a space or like nothing, and is neither for YAML, in words; empty where none is."""
    for number, line in enumerate(text.splitlines(), 1):
        if strange := _strange(line.partition("#")[0]):
            return f"line {number} has a {strange}, {_FROM_A_PAGE}"
    return ""


def _strange(text: str) -> str:
    """The first such character, by its name."""
    found = next((char for char in text if unicodedata.category(char) in ("Zs", "Cf") and char != " "), None)
    return f"{unicodedata.name(found).lower()} (U+{ord(found):04X})" if found else ""


def _value(place: str, node: yaml.Node, twice: list[str], read: dict[int, Value], depth: int = 0) -> Value:
    """`read`: what was made of each node, as an anchor's may stand in a thousand places."""
    if depth > DEPTH:
        raise UsageError(place, f"is nested more than {DEPTH} deep", "give the map alone")
    if id(node) not in read:
        read[id(node)] = _read(place, node, twice, read, depth)
    return read[id(node)]


def _read(place: str, node: yaml.Node, twice: list[str], read: dict[int, Value], depth: int) -> Value:
    match node:
        case yaml.MappingNode():
            found: dict[str, Value] = {}
            lines: dict[str, int] = {}
            for key, item in node.value:
                name = str(key.value) if isinstance(key, yaml.ScalarNode) else NO_NAME
                line = key.start_mark.line + 1
                if strange := _strange(name[:1] + name[-1:]):  # which indents nothing
                    fault = f"line {line}: the key {name.strip()!r} has a {strange} beside it"
                    raise UsageError(place, fault, _FROM_A_PAGE)
                value = _value(place, item, twice, read, depth + 1)
                if key.tag == "tag:yaml.org,2002:merge":
                    for merged in value if isinstance(value, list) else [value]:
                        found = {**merged, **found} if isinstance(merged, Mapping) else found
                    continue
                if name in lines:
                    twice.append(f"{name!r} stands at line {lines[name]} and at line {line}")
                lines[name] = line
                found[name] = value
            return found
        case yaml.SequenceNode():
            return [_value(place, item, twice, read, depth + 1) for item in node.value]
        case yaml.ScalarNode():
            text = str(node.value)
            if node.tag == _BINARY:
                with suppress(ValueError):
                    text = base64.b64decode("".join(text.split()), validate=True).decode()
            helm, other = (text, False) if node.style or node.tag == _BINARY or _stated(node) else _helm(text)
            return Scalar(text, helm, other, node.tag if re.match(r"!\w", node.tag) else "")
        case _:
            raise UsageError(place, "holds what is neither a mapping, a list nor a text", "correct it")


def _stated(node: yaml.ScalarNode) -> bool:
    """Whether the file says that a bare word is a text (`!!str 5`)."""
    return node.tag == _TEXT != yaml.SafeLoader("").resolve(yaml.ScalarNode, node.value, (True, False))


def _helm(text: str) -> tuple[str | None, bool]:
    """A bare word as sigs.k8s.io/yaml reads it and Helm prints it; whether it is no text."""
    if text in _NULL:
        return None, True
    # YAML 1.1's words, in these three spellings only.
    if text in {text.lower(), text.capitalize(), text.upper()} and text.lower() in _TRUE | _FALSE:
        return "true" if text.lower() in _TRUE else "false", True
    plain = text.replace("_", "")
    if plain[:1].isdigit() or (plain[:1] in ("-", "+") and plain[1:2].isdigit()):
        whole = decoded("int", plain, "")
        if not whole.kept:
            return whole.value, True
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        return str(int(number)) if number.is_integer() and abs(number) < 1e21 else repr(number), True
    return text, False
