"""The right keys for wrong names that people write into an ingress-nginx ConfigMap.

The right key, or counterpart, is the key of the ConfigMap that has the intended effect. The names and their counterparts are
in the table `counterparts.tsv` of this folder: directives of nginx, misspelt keys, keys of F5's controller and of older
ingress-nginx, and annotations. For a name that is neither in the table nor an annotation, the most similar keys are proposed.
The module reads the table, and does no other I/O.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from lab.base.files import read_tsv
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
    """A line of the table `counterparts.tsv`: a name that is no key of ingress-nginx's ConfigMap, and the keys to use instead.

    Attributes:
        dialect: where the name comes from: `nginx` (a directive), `spelling` (a misspelt key), `older` (a key of older versions),
            `annotation`, or `F5` (a key of F5's controller).
        name: the name, which may end in `*`.
        keys: the keys of ingress-nginx that have the effect intended by the name; empty if there are none.
        remark: a further explanation; may be empty.

    """

    dialect: str
    name: str
    keys: tuple[str, ...]
    remark: str

    def text(self, name: str) -> str:
        """Return in words which keys of ingress-nginx to use instead of a wrong name, such as `you mean keep-alive`.

        Args:
            name: the wrong name, which this line of the table matches.

        """
        template = (_WITH_KEYS if self.keys else _WITHOUT_KEY)[self.dialect]
        description = template.format(directive=name.replace("-", "_"), keys=" and ".join(self.keys))
        return f"{description} ({self.remark})" if self.remark else description


@cache
def counterparts() -> tuple[Counterpart, ...]:
    """Return the lines of the table `counterparts.tsv`, in the table's order.

    A line has a name that people write into ingress-nginx's ConfigMap although it is no key, such as a directive of nginx. The
    line also has the keys with the intended effect, if such keys exist.
    """
    return tuple(
        Counterpart(
            row["dialect"],
            row["name"],
            tuple(key for key in row["key"].split(", ") if key != "-"),
            row["remark"],
        )
        for row in read_tsv(TABLE)
    )


def explain_name(name: str, text: str = "") -> str:
    """Return in words which key a user probably meant by a wrong name in ingress-nginx's ConfigMap.

    Args:
        name: the wrong name.
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
    """Return the ConfigMap key of ingress-nginx that has the effect of a directive of nginx.

    Args:
        name: the name of the directive.

    Returns:
        The key, or several keys joined by `and`. `none (REASON)` if the table has the directive without a key, and `a snippet` if
        the table does not have the directive.

    """
    plain = _normalize(name)
    if plain in KEYS:
        return plain
    rows = (row for row in counterparts() if fnmatchcase(plain, row.name) and row.dialect in ("nginx", "spelling"))
    return next((" and ".join(row.keys) or f"none ({row.remark})" for row in rows), _SNIPPET)


def directives_led(text: str) -> str | None:
    """Return the ConfigMap keys for the directives in a text, if the text is in nginx's own configuration language.

    Args:
        text: the text.

    Returns:
        `directive → key; …` for all directives in the text, except directives that open a block (such as `server`). The result is
        empty if the text has no other directives, and None if the text is not in nginx's language.

    """
    plain = _COMMENT.sub("", text).strip()
    names = dict.fromkeys(_DIRECTIVE.findall(plain))
    if not names or plain[-1] not in ";}" or _YAML.search(plain):
        return None
    if "(" in plain and not any(name in _BLOCKS or find_key(name) != _SNIPPET for name in names):
        return None  # a program
    return "; ".join(f"{name} → {find_key(name)}" for name in names if name not in _BLOCKS)


def is_f5(names: Collection[str]) -> bool:
    """Return whether a ConfigMap was written for F5's NGINX Ingress Controller instead of ingress-nginx.

    The result is True if all keys are keys of F5's controller, and at least one of them is no key of ingress-nginx.

    Args:
        names: the keys in the ConfigMap.

    """
    patterns = [row.name for row in counterparts() if row.dialect == F5]
    return any(name not in KEYS for name in names) and all(
        any(fnmatchcase(name, pattern) for pattern in patterns) for name in names
    )


def f5_text(name: str) -> str:
    """Return the text `NAME → KEYS` for a key of F5's controller; KEYS are the ingress-nginx keys with its effect, or `none`."""
    row = next(row for row in counterparts() if row.dialect == F5 and fnmatchcase(name, row.name))
    return f"{name} → {' and '.join(row.keys) or 'none'}"


def _normalize(name: str) -> str:
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    name = _CAMEL.sub("-", name.removeprefix("controller.config."))
    return name.strip().lower().replace("_", "-").replace(" ", "-").removeprefix("proxy.").removeprefix("--")
