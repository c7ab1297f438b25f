"""A file of what people have → the ConfigMap's keys and values in it.

    kind: ConfigMap          or Helm values, of this chart     or the keys alone:
    data:                    or of one around it:                keep-alive: "300"
      keep-alive: "300"        ingress-nginx:                    use-gzip: true
                                 controller:
                                   config:
                                     keep-alive: "300"

Where they may stand: `searching`; what has another form: `forms`. Refuses a file that holds none, or several, with the command that
extracts one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lab.base.errors import UsageError
from lab.experiments.configmap.forms import REMEDY, Form, find_blocks, find_form, refuse_form, split_json
from lab.experiments.configmap.searching import Named, Settings, find_named, find_settings
from lab.experiments.configmap.yaml_text import NO_NAME, NotYamlError, Scalar, Value, documents, text_at, text_of
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.ingress_nginx.counterparts import hint
from lab.systems.ingress_nginx.configmap import WRITTEN, joined

KUBECTL = "kubectl -n ingress-nginx get configmap ingress-nginx-controller -o yaml"
FORM = "a ConfigMap, Helm values with controller.config, or keys and values"
LARGEST = 1024 * 1024
"""Bytes of all values that the API server takes in one ConfigMap."""
_KEY = re.compile(r"[-._a-zA-Z0-9]+")


@dataclass(frozen=True, slots=True)
class Given:
    """What a file sets; `notes`: what it says that no ConfigMap can hold."""

    data: Mapping[str, str]
    notes: tuple[str, ...] = ()
    beside: Named = field(default_factory=dict[tuple[str, str], Mapping[str, str]])
    """Of the file's other ConfigMaps and Secrets, which its keys may name: (kind, name) → what is in it."""
    documents: tuple[Value, ...] = ()
    """All that the file holds."""


def read(place: str, content: bytes, into: str) -> Given:
    """The keys and values of a file in any of these forms, as the controller gets them. UsageError otherwise, for all faults at once.

    `into`: see `lab.base.handing.again`.
    """
    text = text_of(place, content, into)
    blocks = find_blocks(text)
    docs, passed = _parse(place, blocks)
    likely = find_settings(docs)
    if not likely:
        if not blocks:
            refuse_form(place, text, into, "file")
        docs, faults = _parse(place, split_json(text))
        likely = [] if faults else find_settings(docs)
        if not likely and passed:
            raise passed[0]
        if not likely:
            refuse_form(place, text, into, "file", "rest")
            raise faults[0] if faults else _nothing(place, docs, into)
        passed = []
    if len(likely) > 1:
        commands = "\n  ".join(f"{each.command} | {into}" for each in likely)
        fault = f"holds {len(likely)} maps of settings: {'; '.join(each.where for each in likely)}"
        raise UsageError(place, fault, f"give one of them:\n  {commands}")
    data, notes = _values(likely[0], into)
    if (size := sum(len(value.encode()) for value in data.values())) > LARGEST:
        fault = f"its values have {size} bytes: the API server takes {LARGEST} in one ConfigMap"
        raise UsageError(place, fault, "make it shorter: the controller never gets this one")
    beside = {name: texts for doc in docs for name, texts in find_named(doc)}
    over = [f"a block of the page is passed over: {fault.fault}" for fault in passed]
    return Given(data, (*likely[0].notes, *over, *notes), beside, tuple(docs))


def _parse(place: str, texts: Iterable[str]) -> tuple[list[Value], list[UsageError]]:
    """Return the documents of all texts, and what is wrong with those that are no YAML."""
    docs: list[Value] = []
    faults: list[UsageError] = []
    for text in texts:
        try:
            docs += documents(place, text)
        except NotYamlError as fault:
            faults.append(fault)
    return docs, faults


def _nothing(place: str, docs: Sequence[Value], into: str) -> UsageError:
    """Return what a file without settings holds instead."""
    kinds = sorted({kind for doc in docs if (kind := text_at(doc, "kind")) not in ("", "ConfigMap", "List")})
    strays = [key for doc in docs if isinstance(doc, Mapping) for key in doc if key in KEYS]
    fault = "holds no settings"
    if kinds:
        fault += f": kind: expected ConfigMap, got {', '.join(map(repr, kinds))}"
    elif strays:
        fault += f": {', '.join(strays)} beside data: indent what belongs under it"
    return UsageError(place, fault, f"expected {FORM}; the controller's: {KUBECTL} | {into}")


def _values(found: Settings, into: str) -> tuple[dict[str, str], list[str]]:
    """As texts, with what no ConfigMap can hold left out and told."""
    data: dict[str, str] = {}
    notes: list[str] = []
    waiting: dict[Form, list[str]] = {}
    for key, value in found.content.items():
        if key == "sops" and text_at(value, "mac"):  # what SOPS keeps of its own beside what it encrypts
            continue
        if not _KEY.fullmatch(key):
            meant = f": {hint(key)}" if key not in ("", NO_NAME) else ""
            notes.append(f"{key!r} is no key of a ConfigMap: the API server refuses it{meant}")
        elif form := _form_of(value, KEYS[key].kind if key in KEYS else ""):
            waiting.setdefault(form, []).append(key)
        elif isinstance(value, Mapping):
            notes.append(f"{key}: a mapping is no value of a ConfigMap: write it as text, after `{key}: |`")
        elif not isinstance(value, Scalar):
            notes.append(f"{key}: a list is no value of a ConfigMap ({_listed(key, value, found.helm)}")
        elif value.helm is None:
            notes.append(f"{key}: has no value, and is left out")
        else:
            data[key] = value.helm if found.helm else value.text
            if value.bare and not found.helm:
                notes.append(f'{key}: kubectl refuses it without quotes: write "{value.text}"')
            elif data[key].lower() != value.text.lower():
                notes.append(f"{key}: YAML makes {data[key]} of {value.text}")
    notes += [f"{', '.join(keys)}: {form.name}: {REMEDY}{form.command} | {into}" for form, keys in waiting.items()]
    return data, notes


def _form_of(value: Value, kind: str) -> Form | None:
    """Return the form of a value that a tool is to decrypt or fill in first. `kind`: of the key, empty where it is none.

    The controller never sees one. nginx's own variables are none: in snippets and log formats all that starts with $ is nginx's.
    """
    places = ["value"]
    if kind and kind not in WRITTEN:
        places += ["plain"] if kind == "text" else ["plain", "number"]
    if isinstance(value, Mapping) and NO_NAME in value:
        text, places = "{{ … }}", ["plain"]
    elif isinstance(value, Scalar):
        text = f"tag:{value.tag}" if value.tag else value.text
    else:
        return None
    found = find_form(text, *places)
    return found[0] if found else None


def _listed(key: str, value: Sequence[Value], helm: bool) -> str:
    """What becomes of a list, and how its words are written: as the key's kind has them."""
    words = [item.text for item in value if isinstance(item, Scalar)]
    became = f"Helm prints this one as [{' '.join(words)}]" if helm else "the API server refuses it"
    text = joined(KEYS[key].kind if key in KEYS else "list", words)
    return f"{became}): write " + (f"the lines after `{key}: |`" if "\n" in text else f'"{text}"')
