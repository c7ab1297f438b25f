"""A parser of YAML and JSON that returns each scalar as the written text, and as the text that Helm would print for it.

    use-gzip: on              Scalar("on", helm="true")     a bare word that YAML converts
    use-gzip: "on"            Scalar("on", helm="on")

Helm parses a value with sigs.k8s.io/yaml (a Go library), and writes the result into a ConfigMap as text. Like this
library, the parser follows YAML 1.1: `yes` and `on` are true, 0o74 is 60, 1e2 is 100. A key that occurs twice in a
mapping is an error that names both lines. kubectl refuses such a file as well, while Helm silently uses one of the two.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import yaml
from yaml.resolver import Resolver

from lab.base.errors import UsageError, refuse_if
from lab.systems.ingress_nginx.configmap import decode

Value: TypeAlias = "Scalar | Mapping[str, Value] | Sequence[Value]"

DEPTH = 60
NO_NAME = "{…}"
"""The name of a key that is a mapping or a list, such as `{{ .Values.x }}` without quotes."""
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
    """The error for a text that is not YAML; it may still be a file of another form."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value (scalar) in a YAML text, as it is written and as Helm prints it.

    Attributes:
        text: The text as written.
        helm: The text that Helm prints for the value; None if it is YAML's null.

    """

    text: str
    helm: str | None
    bare: bool = False
    """The mark of a word that YAML converts to another type than text, which kubectl refuses in a ConfigMap."""
    tag: str = ""
    """The tag, if it is not one of YAML's (`!vault`): only another tool knows the value. Empty for no such tag."""


def text_at(value: Value | None, key: str) -> str:
    """Return the text of the scalar at a key of a mapping; empty if the value is no mapping or has no scalar at this key."""
    item = value.get(key) if isinstance(value, Mapping) else None
    return item.text if isinstance(item, Scalar) else ""


def decode_text(place: str, content: bytes, reader: str) -> str:
    """Decode the bytes of a file as UTF-8, or as UTF-16 if they begin with its byte order mark; CRLF becomes LF.

    Args:
        place: The name of the file, for errors.
        content: The bytes of the file.
        reader: The shell command that reads such a file from a pipe. Remedies in errors end in it.

    Raises:
        UsageError: The file is packed or encrypted, or has another encoding.

    """
    mark, encoding = next(((mark, name) for mark, name in _BOMS if content.startswith(mark)), (b"", "utf-8"))
    for start, (fault, command) in _PACKED.items():
        refuse_if(content.startswith(start), place, f"is {fault}", f"give what is in it: {command} | {reader}")
    try:
        text = content.removeprefix(mark).decode(encoding)
    except UnicodeDecodeError as error:
        raise UsageError(place, f"is no UTF-8 at byte {error.start}", "save it as UTF-8") from None
    refuse_if("\0" in text, place, "holds bytes of zero: no UTF-8", "save it as UTF-8")
    return text.replace("\r\n", "\n")


def parse_documents(place: str, text: str) -> list[Value]:
    """Parse a text as YAML, and return its documents; empty documents are left out.

    Args:
        place: The name of the file, for errors.
        text: The text.

    Raises:
        NotYamlError: The text is not YAML.
        UsageError: A mapping has a key twice, or the text is nested too deep.

    """
    try:
        nodes = [node for node in yaml.compose_all(text, Loader=yaml.CSafeLoader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = " ".join(filter(None, (f"line {mark.line + 1}:" if mark else "", error.context, error.problem)))
        lines = text.splitlines()
        tab = mark and mark.line < len(lines) and re.match(r" *\t", lines[mark.line])
        remedy = "YAML is indented with spaces: replace the tab" if tab else "correct it at the line named"
        raise NotYamlError(place, f"not YAML: {message}", remedy) from None
    except yaml.YAMLError as error:
        raise NotYamlError(place, f"not YAML: {' '.join(str(error).split())}", "correct it") from None
    twice: list[str] = []
    cache: dict[int, Value] = {}
    values = [_convert(place, node, twice, cache) for node in nodes]
    refuse_if(twice, place, "; ".join(twice), "keep one of them: kubectl refuses a key that stands twice")
    return [value for value in values if not (isinstance(value, Scalar) and value.helm is None)]


def _convert(place: str, node: yaml.Node, twice: list[str], cache: dict[int, Value], depth: int = 0) -> Value:
    """Convert a node of a YAML document to a mapping, a list or a scalar.

    Args:
        place: The name of the file, for errors.
        node: The node.
        twice: Receives a message for every repeated key.
        cache: id of a node → its value. A node with a YAML anchor may occur in a thousand places.
        depth: The number of nodes around this one.

    """
    refuse_if(depth > DEPTH, place, f"is nested more than {DEPTH} deep", "give the map alone")
    if id(node) in cache:
        return cache[id(node)]
    result: Value
    match node:
        case yaml.MappingNode():
            pairs: dict[str, Value] = {}
            lines: dict[str, int] = {}
            for key, item in node.value:
                value = _convert(place, item, twice, cache, depth + 1)
                if key.tag == _MERGE:
                    for merged in value if isinstance(value, list) else [value]:
                        pairs = {**merged, **pairs} if isinstance(merged, Mapping) else pairs
                    continue
                name, line = str(key.value) if isinstance(key, yaml.ScalarNode) else NO_NAME, key.start_mark.line + 1
                if name in lines:
                    twice.append(f"{name!r} stands at line {lines[name]} and at line {line}")
                lines[name] = line
                pairs[name] = value
            result = pairs
        case yaml.SequenceNode():
            result = [_convert(place, item, twice, cache, depth + 1) for item in node.value]
        case yaml.ScalarNode():
            text, tag = str(node.value), node.tag if re.match(r"!\w", node.tag) else ""
            stated = node.tag == _TEXT != _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # `!!str 5`
            result = Scalar(text, *((text, False) if node.style or stated or tag else _convert_word(text)), tag)
        case _:
            raise UsageError(place, "holds what is neither a mapping, a list nor a text", "correct it")
    cache[id(node)] = result
    return result


def _convert_word(text: str) -> tuple[str | None, bool]:
    """Convert a YAML word without quotes as Helm does (by sigs.k8s.io/yaml): `yes → true`, `0x10 → 16`.

    Returns:
        (the text that Helm prints; None for null, whether YAML converts the word to another type than text).

    """
    if text in _NULL:
        return None, True
    # The words of YAML 1.1, in these three spellings only.
    if text in {text.lower(), text.capitalize(), text.upper()} and text.lower() in _WORDS:
        return _WORDS[text.lower()], True
    plain = text.replace("_", "")
    if re.match(r"[-+]?[0-9]", plain) and not (integer := decode("int", plain, "")).kept:
        return integer.value, True
    if _FLOAT.fullmatch(plain):
        number = float(plain)
        return str(int(number)) if number.is_integer() and abs(number) < 1e21 else repr(number), True
    return text, False
