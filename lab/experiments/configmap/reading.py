"""A file of what people have → the ConfigMap's keys and values in it.

    kind: ConfigMap          or Helm values, of this chart     or the keys alone:
    data:                    or of one around it:                keep-alive: "300"
      keep-alive: "300"        ingress-nginx:                    use-gzip: true
                                 controller:
                                   config:
                                     keep-alive: "300"

Where they may stand: `searching`; what is no YAML as it stands: `forms`. Refuses a file that holds none, or several, with the
command that extracts one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lab.base.errors import UsageError
from lab.experiments.configmap import forms
from lab.experiments.configmap.named import Named, named
from lab.experiments.configmap.placeholders import of_sops, parameters, placeholder
from lab.experiments.configmap.searching import FIELDS, Settings, hidden, maps
from lab.experiments.configmap.yaml_text import NO_NAME, Scalar, Value, copied, documents, text_at, text_of
from lab.targets.local.configmap import KEYS
from lab.targets.local.counterparts import hint
from lab.targets.local.decoding import joined
from lab.targets.local.routes import PREFIX

FORM = "a ConfigMap, Helm values with controller.config, or keys and values"
LARGEST = 1024 * 1024
"""Bytes of all values that the API server takes in one ConfigMap."""
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_QUOTED = re.compile(
    r"[\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb`\u00b4](.*)[\u2018\u2019\u201c\u201d\u00ab\u00bb`\u00b4]",
    re.DOTALL,
)
"""As a program for texts makes them."""
_OF_HELM = f"its values are elsewhere: {forms.HELM}"
_FILLED_IN = {
    "Kustomization": "what it refers to is elsewhere: kubectl kustomize FOLDER",
    "HelmRelease": _OF_HELM,
    "HelmChart": _OF_HELM,
    "Application": _OF_HELM,
}


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
    whole = text_of(place, content, into)
    texts, missing = forms.texts(place, whole, into)
    docs = [doc for text in texts for doc in documents(place, text)]
    likely = _likely(docs)
    if not likely:
        raise _nothing(place, docs, [*missing, *filter(None, [copied(whole)])], into)
    if len(likely) > 1:
        commands = "\n  ".join(f"{each.command} | {into}" for each in likely)
        fault = f"holds {len(likely)} maps of settings: {'; '.join(each.where for each in likely)}"
        raise UsageError(place, fault, f"give one of them:\n  {commands}")
    (found,) = likely
    data, notes = _values(found, parameters(docs), into)
    if (size := sum(len(value.encode()) for value in data.values())) > LARGEST:
        fault = f"its values have {size} bytes: the API server takes {LARGEST} in one ConfigMap"
        raise UsageError(place, fault, "make it shorter: the controller never gets this one")
    beside = {name: texts for doc in docs for name, texts in named(doc)} | dict(found.beside)
    return Given(data, (*found.notes, *missing, *notes), beside, tuple(docs))


def _likely(docs: list[Value]) -> list[Settings]:
    """Those with keys that the controller knows, else any that hold something."""
    found = [each for number, doc in enumerate(docs) for each in maps(doc, number if len(docs) > 1 else None)]
    known = [each for each in found if each.known]
    known = known or [
        each for number, doc in enumerate(docs) for each in hidden(doc, number if len(docs) > 1 else None)
    ]
    if known or found:
        return known or [each for each in found if each.content]
    alone = [
        doc
        for doc in docs
        if isinstance(doc, Mapping) and not {"kind", "apiVersion", "controller"} & doc.keys()
        if any(key in KEYS or isinstance(value, Scalar) for key, value in doc.items())
    ]
    return [Settings("the file", "", doc, helm=True) for doc in alone]


def _nothing(place: str, docs: list[Value], missing: list[str], into: str) -> UsageError:
    """What a file without settings holds instead."""
    kinds = {kind for doc in docs if (kind := text_at(doc, "kind")) not in ("", "ConfigMap", "List")}
    fault = "holds no settings"
    if kinds:
        fault += f": kind: expected ConfigMap, got {', '.join(map(repr, sorted(kinds)))}"
    elif odd := next((doc for doc in docs if isinstance(doc, Mapping) and _odd(doc)), None):
        fault += f": ConfigMap {text_at(odd.get('metadata'), 'name') or 'without a name'}: {_odd(odd)}"
    remedy = next((f"{_FILLED_IN[kind]} | {into}" for kind in sorted(kinds & _FILLED_IN.keys())), None)
    annotations = [
        key.removeprefix(PREFIX)
        for doc in docs
        if isinstance(doc, Mapping) and isinstance(meta := doc.get("metadata"), Mapping)
        if isinstance(noted := meta.get("annotations"), Mapping)
        for key in noted
        if key.startswith(PREFIX)
    ]
    if annotations:
        remedy = f"as keys of a ConfigMap: {'; '.join(f'{name} → {name if name in KEYS else hint(PREFIX + name)}' for name in annotations)}"
    if any(of_sops(field, item) for doc in docs if isinstance(doc, Mapping) for field, item in doc.items()):
        remedy = f"decrypt it first: sops -d FILE | {into}"
    remedy = remedy or "\n  ".join(missing)
    return UsageError(place, fault, remedy or f"expected {FORM}; the controller's: {forms.KUBECTL} | {into}")


def _odd(obj: Mapping[str, Value]) -> str:
    """Why a ConfigMap has no settings, in words; empty where it is just empty."""
    data = obj.get("data")
    beside = [key for key in obj if key in KEYS]
    if beside and not isinstance(data, Mapping):
        return (
            f"{', '.join(beside)} {'stand' if len(beside) > 1 else 'stands'} beside data: indent what belongs under it"
        )
    if isinstance(data, list):
        return "data is a list: expected `key: value`"
    if isinstance(data, Scalar) and data.helm is not None:
        return "data is a text: expected `key: value`"
    elsewhere = [name for name in ("stringData", "binaryData") if isinstance(obj.get(name), Mapping)]
    if elsewhere:
        return f"{elsewhere[0]} is not read by the controller: write it under data"
    odd = next((field for field in obj if field not in FIELDS), None)
    if odd is None or text_at(obj, "kind") != "ConfigMap" or isinstance(data, Mapping):
        return ""
    return f"{odd!r} is no field of it: keys and values stand under data"


def _values(found: Settings, declared: Collection[str], into: str) -> tuple[dict[str, str], list[str]]:
    """As texts, with what no ConfigMap can hold left out and told."""
    data: dict[str, str] = {}
    notes: list[str] = []
    waiting: dict[tuple[str, str], list[str]] = {}
    for key, value in found.content.items():
        if of_sops(key, value):
            continue
        if not _KEY.fullmatch(key) and key != NO_NAME:
            notes.append(
                f"{key!r} is no key of a ConfigMap: the API server refuses it" + (f": {hint(key)}" if key else "")
            )
            continue
        match value:
            case _ if key == NO_NAME:
                notes.append("a key is a mapping or a list: no ConfigMap has such, and it is left out")
                continue
            case Scalar(helm=None):
                notes.append(f"{key}: has no value, and is left out")
            case Scalar(text=text) if found.helm and "{{" in text:
                notes.append(
                    f"{key}: {text!r} is a template that Helm fills in: give what comes of it, or {forms.KUBECTL} | {into}"
                )
            case Scalar() if (what := placeholder(value, KEYS[key].kind if key in KEYS else "", declared)) and what[0]:
                waiting.setdefault(what, []).append(key)
            case Scalar(text=text, helm=helm, bare=bare):
                data[key] = str(helm) if found.helm else text
                if quoted := _QUOTED.fullmatch(text):
                    notes.append(f'{key}: the quotes of {text} are none of YAML\'s, and stay: write "{quoted[1]}"')
                if bare and not found.helm:
                    notes.append(f'{key}: kubectl refuses it without quotes: write "{text}"')
                elif bare and (printed := _as_float(data[key])):
                    told = f"some releases of Helm print {text} without quotes as {printed}, which the controller takes for no number"
                    notes.append(f'{key}: {told}: write "{data[key]}"')
                elif data[key].lower() != text.lower():
                    notes.append(f"{key}: YAML makes {data[key]} of {text}")
            case Mapping() if NO_NAME in value:
                notes.append(f"{key}: {{{{ … }}}} is a template: give what comes of it, or {forms.KUBECTL} | {into}")
            case Mapping():
                notes.append(f"{key}: a mapping is no value of a ConfigMap: write it as text, after `{key}: |`")
            case _:
                notes.append(f"{key}: a list is no value of a ConfigMap ({_listed(key, value, found.helm)}")
    for (told, command), keys in waiting.items():
        notes.append(f"{', '.join(keys)}: {told}{f': {command} | {into}' if command else ''}")
    data |= {key: value for key, value in found.more.items() if key not in data}
    return data, notes


def _listed(key: str, value: Sequence[Value], helm: bool) -> str:
    """What becomes of a list, and how its words are written: as the key's kind has them."""
    words = [item.text for item in value if isinstance(item, Scalar)]
    became = f"Helm prints this one as [{' '.join(words)}]" if helm else "the API server refuses it"
    text = joined(KEYS[key].kind if key in KEYS else "list", words)
    return f"{became}): write " + (f"the lines after `{key}: |`" if "\n" in text else f'"{text}"')


def _as_float(number: str) -> str:
    """How Go prints a whole number of seven digits or more that went through a float64 (`%v`: 1.048576e+06); empty for what it prints as it is."""
    if not re.fullmatch(r"[1-9][0-9]{6,14}", number):
        return ""
    first, rest = number[0], number[1:].rstrip("0")
    return f"{first}{'.' if rest else ''}{rest}e+{len(number) - 1:02d}"
