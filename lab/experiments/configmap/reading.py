"""A file of what people have → the ConfigMap's keys and values in it.

    kind: ConfigMap          or Helm values, of this chart     or the keys alone:
    data:                    or of one around it:                keep-alive: "300"
      keep-alive: "300"        ingress-nginx:                    use-gzip: true
                                 controller:
                                   config:
                                     keep-alive: "300"

Where they may stand: `searching`. Refuses a file that holds none, or several, with the command that extracts one; and what has another
form, with its name and the command that renders it, a row of `forms.tsv`:

    resource "helm_release" "edge" {      "is Terraform (line 1)", "give what comes of it: terraform show -json | just bench --configmap -"

A row's `where` says what its pattern is tried on: `file` on the whole text before it is read, `rest` on a text without settings, `value` on
a value, `plain` on one in which no variable of nginx's stands, `number` on one that is no text either. The first row that matches is meant.
"""

from __future__ import annotations

import csv
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lab.base.errors import UsageError
from lab.experiments.configmap.searching import Named, Settings, find_named, find_settings
from lab.experiments.configmap.yaml_text import NO_NAME, NotYamlError, Scalar, Value, documents, text_at, text_of
from lab.systems.ingress_nginx.configmap import KEYS, WRITTEN, joined
from lab.systems.ingress_nginx.counterparts import directives_led, hint

KUBECTL = "kubectl -n ingress-nginx get configmap ingress-nginx-controller -o yaml"
FORM = "a ConfigMap, Helm values with controller.config, or keys and values"
LARGEST = 1024 * 1024
"""Bytes of all values that the API server takes in one ConfigMap."""
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
TABLE = Path(__file__).with_name("forms.tsv")
REMEDY = "give what comes of it: "
_BLOCK = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)[ \t]*(?P<language>\w*)[^\n`]*\n(?P<body>(?:.*\n)*?)[ \t]*(?P=fence)[ \t]*$",
    re.MULTILINE,
)
_PROMPT = re.compile(r"\A\$ +(?:kubectl|oc|helm) .*\bget\b.*")
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB]\w\w)\\u([dD][c-fC-F]\w\w)")


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
    waiting: dict[tuple[str, str], list[str]] = {}
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
    for (name, command), keys in waiting.items():
        notes.append(f"{', '.join(keys)}: {name}: {REMEDY}{command} | {into}")
    return data, notes


def _form_of(value: Value, kind: str) -> tuple[str, str] | None:
    """Return (name, command) of a value's form that a tool is to decrypt or fill in first. `kind`: of the key, empty where it is none.

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
    return found and found[:2]


def _listed(key: str, value: Sequence[Value], helm: bool) -> str:
    """What becomes of a list, and how its words are written: as the key's kind has them."""
    words = [item.text for item in value if isinstance(item, Scalar)]
    became = f"Helm prints this one as [{' '.join(words)}]" if helm else "the API server refuses it"
    text = joined(KEYS[key].kind if key in KEYS else "list", words)
    return f"{became}): write " + (f"the lines after `{key}: |`" if "\n" in text else f'"{text}"')


# -- what has another form --------------------------------------------------------------------------------------


@cache
def forms() -> list[dict[str, str]]:
    """Return the table's rows in their order. A row's command prints what the lab reads."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def find_form(text: str, *places: str) -> tuple[str, str, int] | None:
    """Return (name, command, line in which its pattern was found) of the first form of these places that the text has."""
    for form in forms():
        if form["where"] in places and (found := re.search(form["pattern"], text, re.MULTILINE)):
            return form["name"], form["command"], text.count("\n", 0, found.start()) + 1
    return None


def refuse_form(place: str, text: str, into: str, *places: str) -> None:
    """Refuse a text that has a form of these places, with its name and command, and nginx's own configuration, with its keys."""
    if found := find_form(text, *places):
        name, command, line = found
        raise UsageError(place, f"is {name} (line {line})", f"{REMEDY}{command} | {into}")
    if "rest" in places and (told := directives_led(text)) is not None:
        remedy = f"keys that set it: {told}" if told else "put it in a ConfigMap, after `http-snippet: |`"
        raise UsageError(place, "is nginx's own configuration, not a ConfigMap", remedy)


def find_blocks(text: str) -> list[str]:
    """Return the blocks of YAML and JSON between the fences of a Markdown page, each with its lines where they were; empty for no page."""
    return [
        "\n" * text.count("\n", 0, each.start("body")) + textwrap.dedent(each["body"])
        for each in _BLOCK.finditer(text)
        if each["language"].lower() in ("", "yaml", "yml", "json")
    ]


def split_json(text: str) -> Iterator[str]:
    """Yield each value of a stream of JSON with its lines where they were, or any other text as it is, less the prompt it was copied with."""
    decoder, values, at = json.JSONDecoder(), list[str](), 0
    while (rest := text[at:].lstrip())[:1] in ("{", "["):
        start = len(text) - len(rest)
        try:
            _, at = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        # YAML has no characters in two halves.
        value = _PAIR.sub(lambda halves: halves[1] + json.loads(f'"\\u{halves[2]}\\u{halves[3]}"'), text[start:at])
        values.append("\n" * text.count("\n", 0, start) + value)
    yield from values if values and not text[at:].strip() else [_PROMPT.sub("", text)]
