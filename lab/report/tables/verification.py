"""The pages of a verification: the differences between ingress-nginx and its successors, grouped by their consequence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from lab.analysis.verification.command import write_command
from lab.analysis.verification.compare import (
    ABSENT,
    CONSEQUENCES,
    Consequence,
    Difference,
    describe_reached,
    describe_status,
)
from lab.model.exchanges import Exchange
from lab.report.grid import Grid, Part, Sentences, make_columns, make_row, make_sentence, make_title

HEADINGS: dict[Consequence, str] = {
    "breaks": "breaks requests",
    "protection": "weakens protection",
    "clients": "visible to clients",
    "backends": "visible to backends",
}
INTRODUCTIONS: dict[Consequence, str] = {
    "breaks": "requests that ingress-nginx serves fail, or reach something else",
    "protection": "something passes that ingress-nginx refuses, or arrives that it replaces",
    "clients": "the same result, which looks different to clients",
    "backends": "the same request, which looks different to backends",
}
COMMAND_WIDTH, WIDTH = 102, 40
"""The maximum number of characters in a line of a command, and of a value; `--json` has them complete."""


def overview_page(rows: Sequence[tuple[str, str, int, Sequence[Difference], Sequence[str]]]) -> list[Part]:
    """Return the overview of a verification: a table with the number of differences from ingress-nginx for each successor.

    Differences are counted by their consequence. The last column has the number of new differences. These are missing in the
    lab's table of known differences.

    Args:
        rows: (name of the successor, its target, number of requests, differences, notes) for each successor.

    """
    heads = ("successor", "on", "requests", "breaks", "weakens", "clients", "backends", "new")
    cells = [make_row(name, target, f"{count:,}", *_count(found)) for name, target, count, found, _ in rows]
    legend = (
        "New: not in the migration table. Exit status 1: one of the new ones breaks requests or weakens protection."
    )
    return [Grid(make_columns(heads, {0, 1}), tuple(cells), blank=True), make_sentence(legend)]


def _count(differences: Sequence[Difference]) -> list[str]:
    counts = Counter(item.consequence for item in differences)
    return [*(str(counts[name]) for name in CONSEQUENCES), str(sum(not item.known for item in differences))]


def differences_page(system: str, differences: Sequence[Difference], notes: Sequence[str]) -> list[Part]:
    """Return the page of a verification about one successor of ingress-nginx, with all differences by their consequence.

    Each difference has a request that shows it, both answers, and the setting that removes it.

    Args:
        system: The name of the successor.
        differences: The differences.
        notes: Sentences about parts of the user's files that the successor did not get, and about how it ran.

    """
    parts: list[Part] = [make_title(system, f"compared with ingress-nginx: {len(differences)} differences", blank=True)]
    if notes:
        parts.append(Sentences(tuple(Text(f"  {note}") for note in notes), tuple(f"- {note}" for note in notes)))
    number = 0
    for consequence in CONSEQUENCES:
        found = [item for item in differences if item.consequence == consequence]
        if found:
            parts.append(make_title(HEADINGS[consequence], f"({len(found)}) {INTRODUCTIONS[consequence]}", blank=True))
        for item in found:
            number += 1
            parts += _yield_difference(number, system, item)
    return parts


def _yield_difference(number: int, system: str, item: Difference) -> Iterator[Part]:
    more = f" and {item.count - 1} more" if item.count > 1 else ""
    what = "" if item.aspect == "answer" else f"{item.aspect}: "
    request = item.left.request
    yield make_sentence(f"{number}. {what}{request.about}{more}", "bold", blank=True)
    command = write_command(request)
    yield Sentences(tuple(Text(line) for line in _fold(f"$ {command}")), (f"    {command}",))
    sides = item.left, item.right
    answers = ((describe_status(side.answer), side.answer.header("location")) for side in sides)
    rows = [make_row("answer", *(_shorten(" ".join(filter(None, texts))) for texts in answers))]
    if item.aspect != "answer":
        rows.append(make_row("differs", _shorten(item.before), _shorten(item.after)))
    rows.append(make_row("backend got", *(_shorten(_describe_received(side)) for side in sides)))
    yield Grid(make_columns(("", "ingress-nginx", system), left=range(3)), tuple(rows), indent=3)
    known = f"known: {_shorten(item.known)}" if item.known else "new: not in the migration table"
    lines = (known, f"set {item.setting}" if item.setting else "no setting closes it")
    yield Sentences(
        tuple(Text(f"   {line}", style="" if item.known else "yellow") for line in lines), ("; ".join(lines),)
    )


def _fold(command: str) -> list[str]:
    """Break a long shell command into several lines between words, with a backslash at the end of each line but the last."""
    lines = [""]
    for word in re.findall(r"""(?:'[^']*'|"[^"]*"|[^\s'"])+""", command):
        if len(lines[-1]) + len(word) > COMMAND_WIDTH and lines[-1]:
            lines.append("    ")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1].strip() else f"{lines[-1]}{word}"
    return [f"   {line}{' ' + chr(92) if number < len(lines) else ''}" for number, line in enumerate(lines, 1)]


def _describe_received(side: Exchange) -> str:
    if not side.received:
        return "nothing"
    first = side.received[0]
    return f"{first.method} {first.target} at {describe_reached(side.received)}"


def _shorten(text: str) -> str:
    plain = (
        "".join(letter if letter.isprintable() and letter != "\xad" else ascii(letter)[1:-1] for letter in text)
        or ABSENT
    )
    return plain if len(plain) <= WIDTH else f"{plain[: WIDTH - 1]}…"
