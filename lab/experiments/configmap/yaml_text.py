"""YAML and JSON text → mappings whose scalars are still text, as Go's tools read them. Pure.

    use-gzip: on              Scalar("on", helm="true")     a bare word that YAML makes something else
    use-gzip: "on"            Scalar("on", helm="on")

What Helm writes into a ConfigMap is what sigs.k8s.io/yaml makes of a value (YAML 1.1: yes and on are true, 0o74 is 60, 1e2 is
100), printed as text. Refuses a key that stands twice, with both lines: kubectl does, and Helm takes one of them silently.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import yaml
from yaml.resolver import Resolver

from lab.base.errors import UsageError
from lab.systems.ingress_nginx.configmap import decoded

Value: TypeAlias = "Scalar | Mapping[str, Value] | Sequence[Value]"

DEPTH = 60
NO_NAME = "{…}"
"""What a key is called that is a mapping or a list: `{{ .Values.x }}` without quotes, for one."""
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_RESOLVER = Resolver()
_WORDS = {"y": "true", "yes": "true", "true": "true", "on": "true"} | dict.fromkeys(
    ("n", "no", "false", "off"), "false"
)
_NULL = {"", "~", "null", "Null", "NULL"}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_PACKED = {
    b"\x1f\x8b": ("packed with gzip", "zcat FILE"),
    b"\0GITCRYPT\0": ("encrypted by git-crypt", "git-crypt unlock && cat FILE"),
}


class NotYamlError(UsageError):
    """A text that no parser of YAML takes: it may have another form."""


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
    """Of UTF-8, or of UTF-16 that says so by its first two bytes; lines end in a newline alone. UsageError for anything else.

    `into`: see `lab.base.handing.again`.
    """
    mark, encoding = next(((mark, name) for mark, name in _BOMS if content.startswith(mark)), (b"", "utf-8"))
    for start, (fault, command) in _PACKED.items():
        if content.startswith(start):
            raise UsageError(place, f"is {fault}", f"give what is in it: {command} | {into}")
    try:
        text = content.removeprefix(mark).decode(encoding)
    except UnicodeDecodeError as error:
        raise UsageError(place, f"is no UTF-8 at byte {error.start}", "save it as UTF-8") from None
    if "\0" in text:
        raise UsageError(place, "holds bytes of zero: no UTF-8", "save it as UTF-8")
    return text.replace("\r\n", "\n")


def documents(place: str, text: str) -> list[Value]:
    """Every document that is not empty. NotYamlError for what is no YAML, UsageError for keys that stand twice."""
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=yaml.CSafeLoader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(filter(None, (f"line {mark.line + 1}:" if mark else "", error.context, error.problem)))
        lines = text.splitlines()
        tab = mark and mark.line < len(lines) and re.match(r" *\t", lines[mark.line])
        remedy = "YAML is indented with spaces: replace the tab" if tab else "correct it at the line named"
        raise NotYamlError(place, f"not YAML: {said}", remedy) from None
    except yaml.YAMLError as error:
        raise NotYamlError(place, f"not YAML: {' '.join(str(error).split())}", "correct it") from None
    twice: list[str] = []
    read: dict[int, Value] = {}
    found = [_value(place, node, twice, read) for node in nodes]
    if twice:
        raise UsageError(place, "; ".join(twice), "keep one of them: kubectl refuses a key that stands twice")
    return [value for value in found if not (isinstance(value, Scalar) and value.helm is None)]


def _value(place: str, node: yaml.Node, twice: list[str], read: dict[int, Value], depth: int = 0) -> Value:
    """Return what a node stands for. `read`: what was made of each, as an anchor's may stand in a thousand places."""
    if depth > DEPTH:
        raise UsageError(place, f"is nested more than {DEPTH} deep", "give the map alone")
    if id(node) in read:
        return read[id(node)]
    found: Value
    match node:
        case yaml.MappingNode():
            pairs: dict[str, Value] = {}
            lines: dict[str, int] = {}
            for key, item in node.value:
                value = _value(place, item, twice, read, depth + 1)
                if key.tag == _MERGE:
                    for merged in value if isinstance(value, list) else [value]:
                        pairs = {**merged, **pairs} if isinstance(merged, Mapping) else pairs
                    continue
                name, line = str(key.value) if isinstance(key, yaml.ScalarNode) else NO_NAME, key.start_mark.line + 1
                if name in lines:
                    twice.append(f"{name!r} stands at line {lines[name]} and at line {line}")
                lines[name] = line
                pairs[name] = value
            found = pairs
        case yaml.SequenceNode():
            found = [_value(place, item, twice, read, depth + 1) for item in node.value]
        case yaml.ScalarNode():
            text, tag = str(node.value), node.tag if re.match(r"!\w", node.tag) else ""
            stated = node.tag == _TEXT != _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # `!!str 5`
            found = Scalar(text, *((text, False) if node.style or stated or tag else _helm(text)), tag)
        case _:
            raise UsageError(place, "holds what is neither a mapping, a list nor a text", "correct it")
    read[id(node)] = found
    return found


def _helm(text: str) -> tuple[str | None, bool]:
    """A bare word as sigs.k8s.io/yaml reads it and Helm prints it; whether it is no text."""
    if text in _NULL:
        return None, True
    # YAML 1.1's words, in these three spellings only.
    if text in {text.lower(), text.capitalize(), text.upper()} and text.lower() in _WORDS:
        return _WORDS[text.lower()], True
    plain = text.replace("_", "")
    if re.match(r"[-+]?[0-9]", plain) and not (whole := decoded("int", plain, "")).kept:
        return whole.value, True
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        return str(int(number)) if number.is_integer() and abs(number) < 1e21 else repr(number), True
    return text, False
