"""Names that people write into an ingress-nginx ConfigMap and that are none of its keys → the key that does what is meant.

From one table that a person can check, `counterparts.tsv` beside this file: nginx's own directives, keys of F5's controller and of
older ingress-nginx, annotations. Otherwise the nearest names. Pure.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.manifests.routes import PREFIX

TABLE = Path(__file__).with_suffix(".tsv")
F5 = "F5"
_SAID = {
    "nginx": "nginx's {directive} is {keys} here",
    "spelling": "{keys} is meant",
    "older": "a key of older versions; now {keys}",
    "annotation": "an annotation; its key is {keys}",
    F5: "a key of F5's controller; here {keys}",
}
_NONE = {
    "nginx": "nginx's {directive} has no key here",
    "older": "a key of older versions",
    "annotation": "an annotation, which has no key",
    F5: "a key of F5's controller, which has none here",
}
_DIRECTIVE = re.compile(r"(?:^|[;{}])\s*([a-z][a-z0-9_]*)\s[^:#{};]*(?=[;{])", re.MULTILINE)
_YAML = re.compile(r"^\s*(?:- +)?[\w.\"'/-]+:(?:\s|$)|^---$", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|\s)#.*$", re.MULTILINE)
_BLOCKS = {"events", "http", "server", "location", "upstream", "stream", "types", "map", "if"}
_SNIPPET = "a snippet"
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PREFIXES = (PREFIX, "ingress.kubernetes.io/", "nginx.org/", "nginx.com/")


@dataclass(frozen=True, slots=True)
class Counterpart:
    """A line of the table. `keys`: empty where no key does it; a name may end in `*`."""

    dialect: str
    name: str
    keys: tuple[str, ...]
    remark: str

    def text(self, name: str) -> str:
        """In words, of a name that this line is for."""
        said = (_SAID if self.keys else _NONE)[self.dialect]
        told = said.format(directive=name.replace("-", "_"), keys=" and ".join(self.keys))
        return f"{told} ({self.remark})" if self.remark else told


@cache
def counterparts() -> tuple[Counterpart, ...]:
    """The table's lines, in its order: where a name stands twice, the first is meant."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", restval=""))
    return tuple(
        Counterpart(
            row["dialect"],
            row["name"],
            tuple(key for key in row["key"].split(", ") if key != "-"),
            row["remark"],
        )
        for row in rows
    )


def hint(name: str, text: str = "") -> str:
    """What was meant by a name that is no key, in words. `text`: its value."""
    if told := directives_led(text):
        return f"nginx's own configuration, which it never reads; keys that set it: {told}"
    plain = _plain(name)
    if plain in KEYS:
        return f"{plain} is meant"
    rows = [row for row in counterparts() if fnmatchcase(plain, row.name)]
    if name.startswith(PREFIX):  # one it is, whatever else has that name
        rows = [row for row in rows if row.dialect == "annotation"] or [row for row in rows if row.keys]
    if rows:
        return rows[0].text(plain)
    if name.startswith(PREFIX):
        return _NONE["annotation"]
    return f"the nearest: {', '.join(difflib.get_close_matches(plain, KEYS, n=3, cutoff=0.0))}"


def lead(name: str) -> str:
    """The key that does what nginx's directive `name` does, in as few words."""
    plain = _plain(name)
    if plain in KEYS:
        return plain
    for row in counterparts():
        if fnmatchcase(plain, row.name) and row.dialect in ("nginx", "spelling"):
            return " and ".join(row.keys) or f"none ({row.remark})"
    return _SNIPPET


def directives_led(text: str) -> str | None:
    """Of nginx's own configuration: `directive → key` of each that is no block, maybe none; None for any other text."""
    plain = _COMMENT.sub("", text).strip()
    names = dict.fromkeys(_DIRECTIVE.findall(plain))
    if not names or plain[-1] not in ";}" or _YAML.search(plain):
        return None
    if "(" in plain and not any(name in _BLOCKS or lead(name) != _SNIPPET for name in names):
        return None  # a program
    return "; ".join(f"{name} → {lead(name)}" for name in names if name not in _BLOCKS)


def is_f5(names: Collection[str]) -> bool:
    """Whether these are the keys of an F5 NIC ConfigMap: all are F5's, and some are no key of ingress-nginx."""
    known = [row.name for row in counterparts() if row.dialect == F5]
    return any(name not in KEYS for name in names) and all(
        any(fnmatchcase(name, own) for own in known) for name in names
    )


def f5_text(name: str) -> str:
    """An F5 key's counterpart in words."""
    row = next(row for row in counterparts() if row.dialect == F5 and fnmatchcase(name, row.name))
    return f"{name} → {' and '.join(row.keys) or 'none'}"


def _plain(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    name = _CAMEL.sub("-", name.removeprefix("controller.config."))
    return name.strip().lower().replace("_", "-").replace(" ", "-").removeprefix("proxy.").removeprefix("--")
