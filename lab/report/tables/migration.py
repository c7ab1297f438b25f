"""The pages of a plan to migrate from ingress-nginx: a page about one successor, or a table with a line for each successor.

The tables of a measured migration are in `lab.report.tables.gauges`.
"""

from __future__ import annotations

import textwrap
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import yaml
from rich.text import Text

from lab.analysis.migration.mapping import Line, Migration, MigrationPlan, Standing, Trap, find_streams, shorten
from lab.analysis.migration.table import COST, EXTRA, STREAMS, Weight, set_path, split_path
from lab.analysis.verification.compare import find_verified
from lab.report.grid import (
    Grid,
    Part,
    Sentences,
    make_columns,
    make_row,
    make_title,
)

WIDTH, PAGE_LINES = 108, 45
"""The columns and lines of a page about one successor."""
LABEL, FEW_LINES = 16, 10
"""The columns of a label, and the lines of a snippet from which on it is written in as few lines as possible."""
STREAMING, BREAKS, WEAKER, NOTICE, MINOR = (
    "YOUR SERVICES STREAM",
    "BREAKS OR COSTS A LOT",
    "WEAKER PROTECTION",
    "LOOKS DIFFERENT (clients notice)",
    "MINOR",
)
SECTIONS: Mapping[Weight, str] = {
    "fails": BREAKS,
    "costs": BREAKS,
    "guards": WEAKER,
    "answers": NOTICE,
    "seen": NOTICE,
    "nothing": MINOR,
}
VERIFIED: Mapping[str, str] = {"breaks": BREAKS, "protection": WEAKER, "clients": NOTICE, "backends": MINOR}
"""The consequence of a difference that verifications saw → the title of its section."""
VERIFY, VERIFY_LINES = "just migrate --verify", 2
"""The command that saw them, and the most lines that they take in a section of a short page."""
STANDING_TEXTS: dict[Standing, str] = {
    "set": "by COPY",
    "hand": "in other objects",
    "lost": "impossible",
    "same": "nothing to do",
    "off": "without effect today",
}
EMPTY, SECTIONED = "–", "sections"
CONTRADICTED, REPRODUCED = "contradicted", "reproduced"
TODAY = "ingress-nginx 1.15.1"
Evidence = Mapping[tuple[str, str], tuple[str, str]]
"""(successor, key or setting) → (what runs show of a difference, verdicts on published claims about it), both in words.

`lab.analysis.migration.table.read_seen` reads it.
"""


def page(plan: MigrationPlan, evidence: Evidence, every_line: bool = False, one_line_each: bool = False) -> list[Part]:
    """Return the page of a migration's plan: a page for each successor of ingress-nginx, or a table with a line for each.

    Args:
        plan: The plan.
        evidence: (successor, key or setting) → (what runs show of the difference, verdicts on published claims about it).
        every_line: Whether the pages show everything, however long they become.
        one_line_each: Whether to return the table instead; without effect with `every_line`.

    """
    if one_line_each and not every_line:
        return overview(plan, evidence)
    return [part for migration in plan.migrations for part in _make_page(plan, migration, evidence, every_line)]


# -- one successor ---------------------------------------------------------------------------------------------


def _make_page(plan: MigrationPlan, migration: Migration, evidence: Evidence, whole: bool) -> list[Part]:
    """Return the page about one successor of ingress-nginx, with as many differences as fit on PAGE_LINES lines.

    The most important differences come first. What verifications saw gets fewer lines where it would take those of the
    differences about streams or of the first other one.

    Args:
        plan: The plan.
        migration: The migration to the successor.
        evidence: (successor, key or setting) → (what runs show of the difference, verdicts on published claims about it).
        whole: Whether to show all differences instead.

    """
    sections, verified = _sort_traps(migration, evidence, find_streams(plan)), _describe_verified(migration, whole)
    make = partial(_yield_parts, plan, migration, sections, verified, evidence, whole)
    counts = range(len(migration.traps) + 1)
    if whole:
        return [*make(counts[-1], None)]
    least, most, room = min(len(sections[STREAMING]) + 1, counts[-1]), VERIFY_LINES + 1, 0
    while most and room <= least:
        most -= 1
        key = partial(_count_lines, partial(make, most=most))
        room = bisect_right(counts, PAGE_LINES, key=key)
    return [*make(max(room - 1, 0), most)]


def _count_lines(make: Callable[[int], Iterator[Sentences]], count: int) -> int:
    """Return the number of lines of the page that a function makes with a number of traps."""
    return sum(len(part.terminal) + part.blank for part in make(count))


def _sort_traps(migration: Migration, evidence: Evidence, streams: Container[str] = ()) -> dict[str, list[Trap]]:
    """Return the traps (differences that a migration runs into) by the section of the page in which they are shown.

    In each section, the traps that were seen in runs come first, and those that runs contradict last. A trap that only has a cost
    is in the section of costs if a run or a published claim is about it, and otherwise in the last section.

    Args:
        migration: The migration to the successor.
        evidence: (successor, key or setting) → (what runs show of the difference, verdicts on published claims about it).
        streams: The kinds of long answers that the user's files show. Traps about these have the first section.

    Returns:
        Title of a section → its traps.

    """

    def rank(trap: Trap) -> int:
        return 2 * _is_contradicted(migration.system, trap, evidence) or int(not (trap.line.row and trap.line.row.seen))

    sections: dict[str, list[Trap]] = {title: [] for title in (STREAMING, BREAKS, WEAKER, NOTICE, MINOR)}
    for trap in sorted(migration.traps, key=rank):
        row, leading = trap.line.row, sections[STREAMING]
        if row and any(kind in streams for kind in row.streams) and all(row != one.line.row for one in leading):
            leading.append(trap)
            continue
        known = trap.line.row and (trap.line.row.seen or trap.line.row.claims)
        sections[SECTIONS[trap.weight] if trap.weight != "costs" or known else MINOR].append(trap)
    return sections


def _describe_verified(migration: Migration, whole: bool) -> dict[str, list[str]]:
    """Return what verifications saw of a successor, beyond the traps of the migration: title of a section → paragraphs.

    Args:
        migration: The migration to the successor.
        whole: Whether to show every difference with its values, also those that do not concern the user's files. If not,
            the differences have short names.

    """
    names: dict[tuple[str, str], list[str]] = {}
    for row, concerns in find_verified(migration):
        aspect, _, change = row["difference"].partition(": ")
        name = row["about"] if " @" in aspect else aspect
        short = f"{name} {change}" if change in ("added", "missing") else name
        begin = f"Seen here by {VERIFY}" if concerns else f"Seen by {VERIFY} with other Ingresses"
        if concerns or whole:
            text = f"{name}: {change}".strip() if whole else short
            names.setdefault((VERIFIED[row["consequence"]], begin), []).append(text)
    paragraphs: dict[str, list[str]] = {}
    for (title, begin), texts in names.items():
        paragraphs.setdefault(title, []).append(f"{begin}: {'; '.join(dict.fromkeys(texts))}.")
    return paragraphs


def _is_contradicted(system: str, trap: Trap, evidence: Evidence) -> bool:
    """Return whether the lab's runs contradict a published claim about a trap (a difference that a migration runs into).

    The result is False if the runs also reproduce a claim about this trap.
    """
    ledger = _look_up(system, trap.line, evidence)[1]
    return CONTRADICTED in ledger and REPRODUCED not in ledger


def _look_up(system: str, line: Line, evidence: Evidence) -> tuple[str, str]:
    """Return the evidence about a difference in words: (what runs show of it, verdicts on published claims about it).

    Both texts are empty if there is no evidence.

    Args:
        system: The name of the successor.
        line: The difference.
        evidence: (successor, key or setting) → texts. The key is the first one in the difference's row of the migration table.

    """
    name = line.row.keys[0] if line.row and line.row.keys[0] != EXTRA else line.key or line.setting
    return evidence.get((system, name), ("", ""))


def _describe_streams(plan: MigrationPlan, system: str, evidence: Evidence) -> Mapping[str, str]:
    """Return paragraphs about the long answers (token streams, WebSockets, gRPC) of the user's services: label → text.

    `YOU STREAM` has the kinds of long answers, with the settings that show that the services use them. A label for each kind
    follows, with a text on how runs of the successor served this kind. `NO RUN YET` has commands to measure the kinds without a
    run. A text may be empty.
    """
    streams = find_streams(plan)
    texts = {kind: evidence.get((system, STREAMS[kind]), ("", ""))[0] for kind in streams}
    commands = {kind: f"just bench {system} --against ingress-nginx --sweep {kind}" for kind in streams}
    if "grpc" in commands:  # a system takes gRPC only with a setting of its own
        commands["grpc"] = "of gRPC, just study streams --plan has the commands"
    return {
        "YOU STREAM": "; ".join(f"{STREAMS[kind]} ({_join(reasons, 2)})" for kind, reasons in streams.items()),
        **{STREAMS[kind].upper(): text for kind, text in texts.items()},
        "NO RUN YET": "; ".join(commands[kind] for kind, text in texts.items() if not text),
    }


def _yield_parts(
    plan: MigrationPlan,
    migration: Migration,
    sections: Mapping[str, Sequence[Trap]],
    verified: Mapping[str, Sequence[str]],
    evidence: Evidence,
    whole: bool,
    count: int,
    most: int | None,
) -> Iterator[Sentences]:
    """Yield the parts of the page about one successor of ingress-nginx.

    Args:
        plan: The plan.
        migration: The migration to the successor.
        sections: Title of a section → its traps (differences that a migration runs into).
        verified: Title of a section → paragraphs about what verifications saw beyond the traps.
        evidence: (successor, key or setting) → (what runs show of the difference, verdicts on published claims about it).
        whole: Whether to show all notes and sections.
        count: The number of traps to show; of the others, only the names are listed.
        most: The maximum number of lines of a paragraph of `verified`; None: any number.

    """
    main = [trap for title, traps in sections.items() for trap in traps if title != MINOR]
    yield make_title(f"{TODAY} → {migration.about.setting}", blank=migration is not plan.migrations[0])
    yield from _yield_labels(
        {"READ": _describe_files(plan), "IN SHORT": _sum_up(plan, migration, main)}, None, blank=False
    )
    yield from _yield_labels(_describe_streams(plan, migration.system, evidence), None if whole else 2)
    number = 1
    for title in (STREAMING, BREAKS, WEAKER, NOTICE, *([MINOR] if whole else [])):
        numbered = enumerate(sections[title], number)
        entries = [(place, trap, *_describe(migration.system, trap, evidence, whole)) for place, trap in numbered]
        seen = verified.get(title, ()) if most != 0 else ()
        if entries or seen:
            yield _format_section(title, entries, count, seen, most)
        number += len(entries)
    copied = [*main[:count], *(trap for trap in migration.traps if trap.in_file)]
    if snippet := _write_snippet(migration, copied):
        hint = f"COPY ({migration.about.note}; whole: --out FOLDER)"
        lines = (Text(hint, style="bold"), *(Text(f"  {line}") for line in snippet))
        yield Sentences(lines, (f"**{hint}**", "", "```yaml", *snippet, "```"), blank=True)
    lines_read = [*migration.settings, *migration.annotations]
    busy = {line.key for line in lines_read if line.is_trap or (line.ingress and line.standing == "off")}
    idle = (
        f"{_short(line.key)}{f' ({line.note})' * bool(whole and line.note)}"
        for line in lines_read
        if line.key not in busy
    )
    sources = dict.fromkeys(part.split(",")[0].strip() for trap in main for part in trap.line.source.split(";"))
    named = ", ".join(name for name in sources if name and not name.startswith(("docs", "source", "read back")))
    minor, unverified = ", ".join(map(_name, sections[MINOR])), sum(trap.line.unverified for trap in main)
    labels = {
        "IGNORED TODAY": _list_ignored(plan),
        "ALSO": "; ".join(plan.notes),
        "NOTHING TO DO": ", ".join(dict.fromkeys(idle)),
        MINOR: f"{len(sections[MINOR])} more (CPU, memory, connections): {minor}" if minor and not whole else "",
        "SOURCES": f"checked {migration.about.default}, {unverified} not verified: {named}",
        "NEXT": "--out FOLDER: manifests; --measure: runs both, says first how long; --all: everything",
    }
    cost = evidence.get((migration.system, COST), ("", ""))[0]
    yield from _yield_labels({"COST HERE": cost}, None if whole else 3)
    yield from _yield_labels(labels, None if whole else 1, blank=not cost)


def _describe_files(plan: MigrationPlan) -> str:
    name = plan.place if plan.place.startswith("/dev/") else _short(plan.place)
    annotations = _count(len({(line.ingress, line.key) for line in plan.migrations[0].annotations}), "annotation")
    ingresses = f"{_count(len(plan.ingresses), 'Ingress', 'es')} with {annotations}"
    settings = f"{name}: {_count(len(plan.given), 'setting')}" if name else "no ConfigMap, so the defaults count"
    return f"{settings}; {ingresses if plan.ingresses else 'no Ingresses given (kubectl get ingress -A -o yaml)'}"


def _sum_up(plan: MigrationPlan, migration: Migration, main: Sequence[Trap]) -> str:
    """Return the summary of a migration in words.

    It says how many differences there are, how many of them can be fixed, and what becomes of the user's settings.

    Args:
        plan: The plan, with the keys that ingress-nginx does not know.
        migration: The migration to a successor.
        main: The differences that are not minor.

    """
    lost = [_name(trap) for trap in main if trap.line.standing == "lost"]
    copied = sum(trap.line.standing == "set" for trap in main)
    unfixed = f", {len(lost)} without a setting ({_join(lost, 2)})" if lost else ""
    own = {text: count for standing, text in STANDING_TEXTS.items() if (count := migration.standings.get(standing))}
    ignored = len(plan.unknown)
    own |= {"ignored today": ignored} if ignored else {}
    settings = f" Your {_count(sum(own.values()), 'setting')}: {', '.join(f'{own[text]} {text}' for text in own)}."
    fixed = f"{len(main) - len(lost)} you can fix before you switch ({copied} by COPY){unfixed}."
    return f"{_count(len(main), 'difference')}: {fixed}{settings if own else ''}"


def _describe(system: str, trap: Trap, evidence: Evidence, whole: bool) -> tuple[str, str, list[str]]:
    """Return the texts about a trap (a difference that a migration runs into): (sentence, what to do, further sentences).

    Args:
        system: The name of the successor.
        trap: The trap.
        evidence: (successor, key or setting) → (what runs show of the difference, verdicts on published claims about it).
        whole: Whether to add the values of all settings, and the sources.

    """
    line, ingresses = trap.line, _join((line.ingress for line in trap.lines), 2)
    text = f"{_join(map(_short, trap.keys), 4)} ({ingresses}): {line.differs}" if line.ingress else line.differs
    value = f": {shorten(line.to)}" if line.to not in ("", "true", "on", "none", line.value) else ""
    value += " (for all Ingresses)" * (bool(line.ingress) and line.how in ("arg", "key", "field"))
    fix = {"set": "COPY", "lost": "no setting"}.get(line.standing, f"{line.setting}{value}")
    runs, ledger = _look_up(system, line, evidence)
    reports = ", ".join(part.strip() for part in line.source.split(";") if "#" in part) or line.source
    details = {
        f"{'Reported, but not seen here' if _is_contradicted(system, trap, evidence) else 'Seen here'}: {runs}.": runs,
        f"Reported: {reports}; the ledger says {ledger} (just ledger).": ledger,
        **{f"Careful: {line.warning}.": line.warning for line in trap.lines},
        f"Not verified: {line.source}.": line.unverified,
        **{
            f"{_short(each.key) or 'its own'}: {shorten(each.value) or 'none'} → {each.setting or 'no setting'}"
            f" {' '.join(each.to.split())} (default: {each.default or 'none'})": whole
            for each in trap.lines
        },
        f"{line.note}{'; ' * bool(line.note)}source: {line.source}": whole,
    }
    return text, fix, [detail for detail, applies in details.items() if applies]


def _format_section(
    title: str,
    entries: Sequence[tuple[int, Trap, str, str, Sequence[str]]],
    count: int,
    seen: Sequence[str],
    most: int | None,
) -> Sentences:
    """Return a section of the page about a successor: its title, a numbered list of differences, and what was seen.

    Args:
        title: The title of the section.
        entries: (number, trap, sentence, what to do, further sentences) for each difference.
        count: The largest number that is shown; of differences with larger numbers, only the names are listed.
        seen: Paragraphs about what verifications saw.
        most: The maximum number of lines of such a paragraph; None: any number.

    """
    shown = [(number, text, fix, details) for number, _, text, fix, details in entries if number <= count]
    lines = [line for entry in shown for line in _lay_out(*entry)]
    markdown = [
        f"{number}. {text} → {fix}{''.join(f'<br>{each}' for each in details)}" for number, text, fix, details in shown
    ]
    if hidden := dict.fromkeys(_name(entry[1]) for entry in entries[len(shown) :]):
        text = f"… {len(entries) - len(shown)}{' more' * bool(shown)} (--all): {', '.join(hidden)}"
        lines, markdown = [*lines, *_wrap(f"   {text}", most=1)], [*markdown, "", text]
    lines += [line for text in seen for line in _wrap(f"   {text}", most=most)]
    markdown += [line for text in seen for line in ("", text)]
    return Sentences((Text(title, style="bold"), *map(Text, lines)), (f"**{title}**", "", *markdown), blank=True)


def _lay_out(number: int, text: str, fix: str, details: Sequence[str]) -> list[str]:
    """Return the lines about one numbered difference: its sentence, the remedy, then details.

    The remedy is at the right end of the sentence's last line if there is room, and otherwise on the next line.

    Args:
        number: The number of the difference.
        text: The sentence.
        fix: The remedy, for example `COPY` or a setting.
        details: Further sentences.

    """
    *first, last = _wrap(f"{number:>2} {text}")
    fits = len(last) + len(fix) + 4 <= WIDTH
    fixed = [f"{last}{f'→ {fix}'.rjust(WIDTH - len(last))}"] if fits else [last, *_wrap(f"     → {fix}", 7)]
    return [*first, *fixed, *(line for detail in details for line in _wrap(f"   {detail}"))]


def _write_snippet(migration: Migration, traps: Sequence[Trap]) -> list[str]:
    """Return lines of YAML with the settings of the successor that remove some traps (differences), for the user to copy.

    Further settings that these settings need are added. Values are complete, even if they are long.

    Args:
        migration: The migration to the successor.
        traps: The traps.

    """
    chosen = [line for trap in traps for line in trap.lines if line.standing == "set" and line.row]
    keys = {key for line in chosen if line.row for key in (line.key, *(name for name, _ in line.row.when)) if key}
    every = [line for line in (*migration.extras, *migration.defaults, *migration.settings) if line.standing == "set"]
    settings = {(line.key, line.setting) for line in chosen}
    documents: dict[str, dict[str, Any]] = {}
    for line in {
        line.setting: line for line in every if (line.key, line.setting) in settings or line.key in keys
    }.values():
        kind, _, path = line.setting.rpartition(" ")
        document = documents.setdefault(f"{line.how == 'arg'} {kind}", {"kind": kind} if kind else {})
        if line.how == "arg":
            words = [f"{path}{line.to}"] if path.endswith("=") else [path, line.to]
            document[migration.about.source] = [*document.get(migration.about.source, []), *words]
        elif kind or "." in path:
            in_section = migration.about.source == SECTIONED
            set_path(document, path.split(".", 1) if in_section else split_path(path), yaml.safe_load(line.to))
        else:
            set_path(document, ["data", path], line.to)
    return "\n---\n".join("\n".join(_dump(document)) for document in documents.values()).splitlines()


def _dump(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a YAML document, in as few lines as possible.

    Only a list, or the `data` of a ConfigMap, with at most FEW_LINES entries has a line for each entry.
    """
    for key, value in document.items():
        short = (key == "data" or isinstance(value, list)) and len(value) <= FEW_LINES
        text = yaml.safe_dump(
            {key: value}, sort_keys=False, allow_unicode=True, width=inf, default_flow_style=not short
        )
        # a line break stands for a space in YAML, in a quoted text, too
        yield from text.splitlines() if short else _wrap(text.strip()[1:-1], 4, WIDTH - 2)


def _list_ignored(plan: MigrationPlan) -> str:
    """Return advice about the user's keys and annotations that ingress-nginx ignores; empty if it ignores none.

    Each name has a hint on what the user may have meant: `delete or correct NAME (HINT); …`.
    """
    annotations = (line for line in plan.migrations[0].annotations if line.standing == "off")
    ignored = {_short(line.key): line.note.rpartition("(")[2].rstrip(")") for line in annotations}
    texts = [
        f"{name} ({hint})" for name, hint in {**{each.name: each.hint for each in plan.unknown}, **ignored}.items()
    ]
    return f"delete or correct {'; '.join(texts)}" if texts else ""


# -- all successors --------------------------------------------------------------------------------------------


def overview(plan: MigrationPlan, evidence: Evidence) -> list[Part]:
    """Return a page with a table that has a line for each successor of ingress-nginx, the one that breaks least first.

    A line has numbers about the user's settings (how many work unchanged, for example), the number of differences, and the worst
    difference.

    Args:
        plan: The plan.
        evidence: (successor, key or setting) → (what runs show of the difference, verdicts on published claims about it).

    """
    own = bool(plan.given or plan.migrations[0].annotations)
    standings: dict[str, Standing] = (
        {"works": "same", "line": "set", "objects": "hand", "impossible": "lost"} if own else {}
    )
    rows: list[tuple[str, ...]] = []
    for migration in plan.migrations:
        sections = _sort_traps(migration, evidence)
        counts = [migration.standings.get(standing, 0) for standing in standings.values()]
        counts += [len(sections[BREAKS]), len(sections[WEAKER])]
        worst = next((trap.line.differs for traps in sections.values() for trap in traps), EMPTY)
        rows.append((migration.system, *map(str, counts), textwrap.shorten(worst, 37 if own else 70, placeholder=" …")))
    rows.sort(key=lambda row: (int(row[-3]), int(row[-2])))
    columns = make_columns(("successor", *standings, "breaks", "weaker", "the worst"), left=(0, len(rows[0]) - 1))
    heads = (replace(column, over={"line": "one", "objects": "other"}.get(column.name, "")) for column in columns)
    meaning = (
        "of your settings: works: nothing to do; one line, other objects: what they need; impossible: no setting. "
        if own
        else ""
    )
    versions = ", ".join(f"{migration.system} {migration.about.value}" for migration in plan.migrations)
    labels = {
        "MEANING": f"{meaning}breaks: differences that break requests or cost a lot; weaker: that weaken protection. Fewest breaks first, which is no recommendation: a count has no weights",
        "IGNORED TODAY": _list_ignored(plan),
        "ALSO": "; ".join(plan.notes),
        "SOURCES": f"checked {max(migration.about.default for migration in plan.migrations)}: {versions}",
        "NEXT": "--to NAME: the page of a successor, with what to copy; --all: everything",
    }
    return [
        make_title(f"{TODAY} → {_count(len(rows), 'successor')}"),
        *_yield_labels({"READ": _describe_files(plan)}, None, blank=False),
        Grid(tuple(heads), tuple(make_row(*cells) for cells in rows), blank=True),
        *_yield_labels(labels, 3),
    ]


# -- words -----------------------------------------------------------------------------------------------------


def _yield_labels(labels: Mapping[str, str], most: int | None, blank: bool = True) -> Iterator[Sentences]:
    """Yield a paragraph for each label (such as `READ`) that has a text.

    Args:
        labels: Label → its text.
        most: The maximum number of lines of a paragraph, beyond which its text is cut. The labels `IGNORED TODAY` and `ALSO` may
            have one line more. None: any number.
        blank: Whether an empty line precedes the first paragraph.

    """
    for place, (label, text) in enumerate((label, " ".join(text.split())) for label, text in labels.items() if text):
        limit = most and most + (label in ("IGNORED TODAY", "ALSO"))
        lines = [Text(line) for line in _wrap(f"{label:<{LABEL}}{text}", LABEL, most=limit)]
        lines[0].stylize("bold", 0, len(label))
        yield Sentences(tuple(lines), (f"**{label}**: {text}",), blank and place == 0)


def _wrap(text: str, indent: int = 3, width: int = WIDTH, most: int | None = None) -> list[str]:
    """Break a text at spaces into lines; a word that is longer than a line stays whole.

    Args:
        text: The text.
        indent: The number of spaces before every line but the first.
        width: The maximum number of characters of a line.
        most: The maximum number of lines, beyond which the text is cut; None: any number.

    """
    return textwrap.wrap(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False,
        max_lines=most, placeholder=" … (--all)",
    )  # fmt: skip


def _count(count: int, one: str, ending: str = "s") -> str:
    return f"{count} {one}{ending * (count != 1)}"


def _join(names: Iterable[str], most: int) -> str:
    """Return names as a list in words, without repetitions: `a, b and 3 more`.

    Args:
        names: The names.
        most: The maximum number of names in the list; the others are only counted.

    """
    listed = list(dict.fromkeys(names))
    return ", ".join(listed[:most]) + f" and {len(listed) - most} more" * (len(listed) > most)


def _short(key: str) -> str:
    return key.rpartition("/")[2]


def _name(trap: Trap) -> str:
    """Return a short name for a trap (a difference that a migration runs into): its key, or the beginning of its sentence."""
    return _short(trap.line.key) or textwrap.shorten(trap.line.differs, 40, placeholder=" …")
