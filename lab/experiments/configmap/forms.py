"""What people hand over that is no YAML or JSON of settings → its name, and the command that renders it: a row of `forms.tsv`.

    resource "helm_release" "edge" {      "is Terraform (line 1)", "give what comes of it: terraform show -json | just bench --configmap -"

A row's `where` says what its pattern is tried on: `file` on the whole text before it is read, `rest` on a text without settings, `value` on
a value, `plain` on one in which no variable of nginx's stands, `number` on one that is no text either. The first row that matches is meant.
"""

from __future__ import annotations

import csv
import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.base.errors import UsageError
from lab.systems.ingress_nginx.counterparts import directives_led

TABLE = Path(__file__).with_suffix(".tsv")
REMEDY = "give what comes of it: "
_BLOCK = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)[ \t]*(?P<language>\w*)[^\n`]*\n(?P<body>(?:.*\n)*?)[ \t]*(?P=fence)[ \t]*$",
    re.MULTILINE,
)
_PROMPT = re.compile(r"\A\$ +(?:kubectl|oc|helm) .*\bget\b.*")
_PAIR = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB]\w\w)\\u([dD][c-fC-F]\w\w)")


@dataclass(frozen=True, slots=True)
class Form:
    """A row of the table. `command` prints what the lab reads."""

    where: str
    pattern: re.Pattern[str]
    name: str
    command: str


@cache
def forms() -> tuple[Form, ...]:
    """Return the table's rows in their order."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return tuple(
        Form(row["where"], re.compile(row["pattern"], re.MULTILINE), row["name"], row["command"]) for row in rows
    )


def find_form(text: str, *places: str) -> tuple[Form, int] | None:
    """Return the first form of these places that the text has, and the line in which its pattern was found."""
    for form in forms():
        if form.where in places and (found := form.pattern.search(text)):
            return form, text.count("\n", 0, found.start()) + 1
    return None


def refuse_form(place: str, text: str, into: str, *places: str) -> None:
    """Refuse a text that has a form of these places, with its name and command, and nginx's own configuration, with its keys."""
    if found := find_form(text, *places):
        form, line = found
        raise UsageError(place, f"is {form.name} (line {line})", f"{REMEDY}{form.command} | {into}")
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
