"""What a release takes from other files and objects, which the file that names them does not hold. Pure.

valuesFrom: [{kind: Secret, name: tls}]     "valuesFrom (Secret tls): what it holds is not in this file: helm …"

Says nothing of whether it has settings: nobody can see that from here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from lab.experiments.configmap.yaml_text import Scalar, Value, text_at

_FIELD = re.compile(r"(?:additional)?values?(?:From|Files?|Secrets?)|fileParameters|secrets", re.IGNORECASE)
"""How Flux, Argo CD, helmfile, k3s, Fleet and Kustomize call them."""


def elsewhere(release: Mapping[str, Value], values: Collection[str]) -> Iterator[str]:
    """A note's beginning for each. `values`: the release's fields that hold values themselves."""
    for field, item in release.items():
        if _FIELD.fullmatch(field):
            if not isinstance(item, Scalar) and not item:
                continue
            names = ", ".join(filter(None, map(_name, item if isinstance(item, list) else [item])))
            yield f"{field} ({names})" if names else field
        elif field in values:
            yield from (f"{field} ({name})" for each in item if (name := _path(each))) if isinstance(item, list) else ()
        elif isinstance(item, Mapping):
            yield from elsewhere(item, values)


def _name(item: Value) -> str:
    if isinstance(item, Scalar):
        return item.text if item.helm is not None else ""
    return " ".join(filter(None, (text_at(item, "kind"), text_at(item, "name"))))


def _path(item: Value) -> str:
    """Of an entry of values that is a file's name, not values; of a parameter whose value is in a file."""
    if isinstance(item, Scalar):
        return "" if item.helm is None or re.search(r"\n|:(?: |$)|^\{", item.text.strip()) else item.text
    return f"{text_at(item, 'name')} of {path}" if (path := text_at(item, "file")) else ""
