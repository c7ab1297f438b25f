"""The counterparts of names that people write into an ingress-nginx ConfigMap although these are no keys of it.

A counterpart is the key that has the intended effect. The names and counterparts come from one table that a person can check,
`counterparts.tsv` in this folder: nginx's own directives, keys of F5's controller and of older ingress-nginx, and annotations.
For any other name, the most similar keys are proposed. The module reads the table, and does no other I/O.
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
_WITH_KEYS = {
    "nginx": "you mean {keys}",
    "spelling": "you mean {keys}",
    "older": "a key of older versions; now {keys}",
    "annotation": "an annotation; its key is {keys}",
    F5: "a key of F5's controller; here {keys}",
}
_WITHOUT_KEY = {
    "nginx": "no key does what nginx's {directive} does",
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
    """The keys of ingress-nginx's ConfigMap that have the effect intended by another name, from `counterparts.tsv`.

    Attributes:
        dialect: the origin of the name: nginx, spelling, older, annotation or F5.
        name: the name, which may end in `*`.
        keys: the keys with the intended effect; empty where no key has it.
        remark: a further explanation; may be empty.

    """

    dialect: str
    name: str
    keys: tuple[str, ...]
    remark: str

    def text(self, name: str) -> str:
        """Describe the counterpart in words, for a name that this line matches."""
        template = (_WITH_KEYS if self.keys else _WITHOUT_KEY)[self.dialect]
        description = template.format(directive=name.replace("-", "_"), keys=" and ".join(self.keys))
        return f"{description} ({self.remark})" if self.remark else description


@cache
def counterparts() -> tuple[Counterpart, ...]:
    """Return the lines of `counterparts.tsv`: wrong names in the ConfigMap, and the keys to use instead.

    A wrong name is, for example, a directive of nginx, a misspelt or old key, or a key of F5's controller. A line has the keys of
    ingress-nginx that have the effect which the name intends. The lines are in the table's order.

    Where a name occurs twice, the first line applies.
    """
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


def explain_name(name: str, text: str = "") -> str:
    """Explain in words what was probably intended by a name in the ConfigMap that is no key.

    Args:
        name: the name.
        text: the value of that name in the ConfigMap.

    """
    if keys := directives_led(text):
        return f"nginx's own configuration, which it never reads; keys that set it: {keys}"
    plain = _normalize(name)
    if plain in KEYS:
        return f"you mean {plain}"
    rows = [row for row in counterparts() if row.name == plain or ("*" in row.name and fnmatchcase(plain, row.name))]
    if name.startswith(PREFIX):  # it is an annotation, even if a name of another dialect is the same
        rows = [row for row in rows if row.dialect == "annotation"] or [row for row in rows if row.keys]
    if rows:
        return rows[0].text(plain)
    if name.startswith(PREFIX):
        return _WITHOUT_KEY["annotation"]
    return f"nearest: {', '.join(difflib.get_close_matches(plain, KEYS, n=3, cutoff=0.0))}"


def find_key(name: str) -> str:
    """Return in few words the key that has the effect of nginx's directive `name`, or `a snippet`, or `none (…)`."""
    plain = _normalize(name)
    if plain in KEYS:
        return plain
    for row in counterparts():
        if fnmatchcase(plain, row.name) and row.dialect in ("nginx", "spelling"):
            return " and ".join(row.keys) or f"none ({row.remark})"
    return _SNIPPET


def directives_led(text: str) -> str | None:
    """Return the keys for the directives in a text that is nginx's own configuration.

    Returns:
        `directive → key; …` for each directive that is no block; empty where all directives are blocks. None: the text is no
        configuration of nginx.

    """
    plain = _COMMENT.sub("", text).strip()
    names = dict.fromkeys(_DIRECTIVE.findall(plain))
    if not names or plain[-1] not in ";}" or _YAML.search(plain):
        return None
    if "(" in plain and not any(name in _BLOCKS or find_key(name) != _SNIPPET for name in names):
        return None  # a program
    return "; ".join(f"{name} → {find_key(name)}" for name in names if name not in _BLOCKS)


def is_f5(names: Collection[str]) -> bool:
    """Return whether names are the keys of a ConfigMap for F5's NGINX Ingress Controller.

    All of them must be keys of F5's controller, and at least one must be no key of ingress-nginx.
    """
    patterns = [row.name for row in counterparts() if row.dialect == F5]
    return any(name not in KEYS for name in names) and all(
        any(fnmatchcase(name, pattern) for pattern in patterns) for name in names
    )


def f5_text(name: str) -> str:
    """Describe the ingress-nginx keys that correspond to a key of F5's controller, as `name → keys`."""
    row = next(row for row in counterparts() if row.dialect == F5 and fnmatchcase(name, row.name))
    return f"{name} → {' and '.join(row.keys) or 'none'}"


def _normalize(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    name = _CAMEL.sub("-", name.removeprefix("controller.config."))
    return name.strip().lower().replace("_", "-").replace(" ", "-").removeprefix("proxy.").removeprefix("--")
