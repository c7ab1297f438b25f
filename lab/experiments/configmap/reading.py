"""The reader of a user's file in any common form: it returns the ConfigMap's keys and values.

    kind: ConfigMap          or Helm values, of this chart     or the keys alone:
    data:                    or of one around it:                keep-alive: "300"
      keep-alive: "300"        ingress-nginx:                    use-gzip: true
                                 controller:
                                   config:
                                     keep-alive: "300"

`searching` finds the settings in a parsed file. A file without settings is refused. A file with several maps of settings
is also refused, with the commands that extract each of them. A file of another form (such as Terraform) is refused with
the name of the form and the command that renders it, which are in a row of `forms.tsv`:

    resource "helm_release" "edge" {      "is Terraform (line 1)", "give what comes of it: terraform show -json | just bench --config -"

The column `where` defines the text in which a row's pattern is searched: `file` is the whole text before it is parsed;
`rest` is a text without settings; `value` is any value; `plain` is a value that cannot contain a variable of nginx; and
`number` is a value of a key that is not for text. The first row that matches is used.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from lab.base.errors import UsageError, refuse_if
from lab.base.files import read_tsv
from lab.experiments.configmap.searching import Named, SettingsMap, find_named, find_settings
from lab.experiments.configmap.yaml_text import (
    NO_NAME,
    NotYamlError,
    Scalar,
    Value,
    decode_text,
    parse_documents,
    text_at,
)
from lab.systems.ingress_nginx.configmap import KEYS, WRITTEN, join_words
from lab.systems.ingress_nginx.counterparts import directives_led, explain_name

KUBECTL = "kubectl -n ingress-nginx get configmap ingress-nginx-controller -o yaml"
FORM = "a ConfigMap, Helm values with controller.config, or keys and values"
LARGEST = 1024 * 1024
"""The bytes that all values of a ConfigMap may have together in the API server."""
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
class FileSettings:
    """The settings for ingress-nginx's controller in a user's file, in the form in which the controller gets them.

    Attributes:
        data: Key → value.
        notes: What was left out of the file, and what reaches the controller in another form than it is written in.

    """

    data: Mapping[str, str]
    notes: tuple[str, ...] = ()
    named_objects: Named = field(default_factory=dict[tuple[str, str], Mapping[str, str]])
    """The content of the file's other ConfigMaps and Secrets by kind and name; the keys may name them."""
    documents: tuple[Value, ...] = ()
    """The documents of the file, without exception."""


def read_settings(place: str, content: bytes, reader: str) -> FileSettings:
    """Read the settings for ingress-nginx's controller from a user's file: a ConfigMap, Helm values, or keys and values.

    Args:
        place: The name of the file, for errors.
        content: The bytes of the file.
        reader: The shell command that reads such a file from a pipe. Remedies in errors end in it.

    Raises:
        UsageError: The file has no settings, several maps of settings, too large values or another form.

    """
    text = decode_text(place, content, reader)
    blocks = find_blocks(text)
    docs, skipped = _parse(place, blocks)
    likely = find_settings(docs)
    if not likely:
        if not blocks:
            refuse_form(place, text, reader, "file")
        docs, faults = _parse(place, split_json(text))
        likely = [] if faults else find_settings(docs)
        if not likely and skipped:
            raise skipped[0]
        if not likely:
            refuse_form(place, text, reader, "file", "rest")
            raise faults[0] if faults else _build_error(place, docs, reader)
        skipped = []
    commands = "\n  ".join(f"{settings.command} | {reader}" for settings in likely)
    fault = f"holds {len(likely)} maps of settings: {'; '.join(settings.where for settings in likely)}"
    refuse_if(len(likely) > 1, place, fault, f"give one of them:\n  {commands}")
    data, notes = _convert_values(likely[0], reader)
    if (size := sum(len(value.encode()) for value in data.values())) > LARGEST:
        fault = f"its values have {size} bytes: the API server takes {LARGEST} in one ConfigMap"
        raise UsageError(place, fault, "make it shorter: the controller never gets this one")
    objects = {name: texts for doc in docs for name, texts in find_named(doc)}
    over = [f"a block of the page is passed over: {fault.fault}" for fault in skipped]
    return FileSettings(data, (*likely[0].notes, *over, *notes), objects, tuple(docs))


def _parse(place: str, texts: Iterable[str]) -> tuple[list[Value], list[UsageError]]:
    """Parse several texts as YAML, and return (the documents of all texts, the errors of texts that are not YAML)."""
    docs: list[Value] = []
    faults: list[UsageError] = []
    for text in texts:
        try:
            docs += parse_documents(place, text)
        except NotYamlError as fault:
            faults.append(fault)
    return docs, faults


def _build_error(place: str, docs: Sequence[Value], reader: str) -> UsageError:
    """Return the error for a file without settings; the error names what the file contains instead.

    Args:
        place: The name of the file.
        docs: The documents of the file.
        reader: The shell command that reads a ConfigMap from a pipe, for the remedy.

    """
    kinds = sorted({kind for doc in docs if (kind := text_at(doc, "kind")) not in ("", "ConfigMap", "List")})
    strays = [key for doc in docs if isinstance(doc, Mapping) for key in doc if key in KEYS]
    fault = "holds no settings"
    if kinds:
        fault += f": kind: expected ConfigMap, got {', '.join(map(repr, kinds))}"
    elif strays:
        fault += f": {', '.join(strays)} at the level of data: indent what belongs under it"
    return UsageError(place, fault, f"expected {FORM}; the controller's: {KUBECTL} | {reader}")


def _convert_values(settings: SettingsMap, reader: str) -> tuple[dict[str, str], list[str]]:
    """Convert the settings of a user's file to the texts that the controller gets, and return the texts and notes.

    A note is about a value that is left out, that kubectl refuses, or that YAML converts to another text.

    Args:
        settings: The settings as they are written in the file.
        reader: The shell command that reads such a file from a pipe, for remedies.

    Returns:
        (key → text, notes).

    """
    data: dict[str, str] = {}
    notes: list[str] = []
    waiting: dict[tuple[str, str], list[str]] = {}
    for key, value in settings.content.items():
        if key == "sops" and text_at(value, "mac"):  # metadata that SOPS adds to the values it encrypts
            continue
        if not _KEY.fullmatch(key):
            suggestion = f": {explain_name(key)}" if key not in ("", NO_NAME) else ""
            notes.append(f"{key!r} is no key of a ConfigMap: the API server refuses it{suggestion}")
        elif form := _find_value_form(value, KEYS[key].kind if key in KEYS else ""):
            waiting.setdefault(form, []).append(key)
        elif isinstance(value, Mapping):
            notes.append(f"{key}: a mapping is no value of a ConfigMap: write it as text, after `{key}: |`")
        elif not isinstance(value, Scalar):
            notes.append(f"{key}: a list is no value of a ConfigMap ({_describe_list(key, value, settings.helm)}")
        elif value.helm is None:
            notes.append(f"{key}: has no value, and is left out")
        else:
            data[key] = value.helm if settings.helm else value.text
            if value.bare and not settings.helm:
                notes.append(f'{key}: kubectl refuses it without quotes: write "{value.text}"')
            elif data[key].lower() != value.text.lower():
                notes.append(f"{key}: YAML makes {data[key]} of {value.text}")
    for (name, command), keys in waiting.items():
        notes.append(f"{', '.join(keys)}: {name}: {REMEDY}{command} | {reader}")
    return data, notes


def _find_value_form(value: Value, kind: str) -> tuple[str, str] | None:
    """Recognize a value that another tool must decrypt or fill in first, such as `{{ .Values.x }}`; None for an ordinary value.

    The result is (name of the form, command of the tool). Words that start with `$` in snippets and log formats are variables of
    nginx, so they are ordinary.

    Args:
        value: The value.
        kind: The kind of its key, for example `text`; empty where the controller has no such key.

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
    form = find_form(text, *places)
    return form and form[:2]


def _describe_list(key: str, value: Sequence[Value], helm: bool) -> str:
    """Describe for people how Helm or the API server treats a key whose value is a YAML list, and which text to write instead.

    Args:
        key: The key.
        value: The list.
        helm: Whether Helm prints the value; otherwise the API server gets it as it is.

    """
    items = [item.text for item in value if isinstance(item, Scalar)]
    became = f"Helm prints this one as [{' '.join(items)}]" if helm else "the API server refuses it"
    text = join_words(KEYS[key].kind if key in KEYS else "list", items)
    return f"{became}): write " + (f"the lines after `{key}: |`" if "\n" in text else f'"{text}"')


# -- other forms ------------------------------------------------------------------------------------------------


@cache
def load_forms() -> list[dict[str, str]]:
    """Return the rows of the table `forms.tsv`: forms of configuration files, such as Terraform, that are recognized and refused.

    A row has the name of a form, a regular expression that recognizes it (`pattern`), the kind of text that may match (`where`),
    and the command that turns such a file into a readable one. The result is cached.
    """
    return read_tsv(TABLE)


def find_form(text: str, *places: str) -> tuple[str, str, int] | None:
    """Return the first form in the table `forms.tsv` that a text matches, such as an encrypted file; None if it matches none.

    Args:
        text: The text.
        places: Only rows with one of these values in the column `where` are tried.

    Returns:
        (name of the form, command that converts it, number of the line in which its pattern matches).

    """
    for form in load_forms():
        if form["where"] in places and (match := re.search(form["pattern"], text, re.MULTILINE)):
            return form["name"], form["command"], text.count("\n", 0, match.start()) + 1
    return None


def refuse_form(place: str, text: str, reader: str, *places: str) -> None:
    """Raise an error if a text is recognized as something other than a ConfigMap, for example as an encrypted file.

    The table `forms.tsv` lists the forms. If `places` contains `rest`, nginx's own configuration is refused, too.

    Args:
        place: The name of the file, for the error.
        text: The text of the file.
        reader: The shell command that reads a ConfigMap from a pipe. The remedy ends in it.
        places: Only rows of `forms.tsv` with one of these values in the column `where` are tried.

    Raises:
        UsageError: The text has such a form, and the remedy is the command that turns the file into a readable one. Or the text is
            nginx's own configuration, and the remedy names the keys that set the same.

    """
    if form := find_form(text, *places):
        name, command, line = form
        raise UsageError(place, f"is {name} (line {line})", f"{REMEDY}{command} | {reader}")
    if "rest" in places and (keys := directives_led(text)) is not None:
        remedy = f"keys that set it: {keys}" if keys else "put it in a ConfigMap, after `http-snippet: |`"
        raise UsageError(place, "is nginx's own configuration, not a ConfigMap", remedy)


def find_blocks(text: str) -> list[str]:
    """Return the fenced code blocks of a Markdown page that are YAML, JSON or of no language; empty for any other text.

    Each block begins with empty lines, so that its lines have the same numbers as in the page.
    """
    return [
        "\n" * text.count("\n", 0, block.start("body")) + textwrap.dedent(block["body"])
        for block in _BLOCK.finditer(text)
        if block["language"].lower() in ("", "yaml", "yml", "json")
    ]


def split_json(text: str) -> Iterator[str]:
    """Yield each value of a text that is a stream of JSON values; for any other text, yield the text as a whole.

    A shell prompt with a command that was copied along with the text is removed. Each value begins with empty lines, so that its lines have
    the same numbers as in the text.
    """
    decoder, values, offset = json.JSONDecoder(), list[str](), 0
    while (remaining := text[offset:].lstrip())[:1] in ("{", "["):
        start = len(text) - len(remaining)
        try:
            _, offset = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        # JSON may escape a character as two surrogates, which YAML does not accept.
        value = _PAIR.sub(lambda match: match[1] + json.loads(f'"\\u{match[2]}\\u{match[3]}"'), text[start:offset])
        values.append("\n" * text.count("\n", 0, start) + value)
    yield from values if values and not text[offset:].strip() else [_PROMPT.sub("", text)]
