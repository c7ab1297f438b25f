"""The comparison of what two systems make of the same requests, and what a difference means to whom.

An exchange (a request, its answer and what the backend received) is described by aspects, such as `client status` → `200` or
`backend header x-real-ip` → `{client}`. Two exchanges differ in the aspects whose values are unequal. Some values differ with
every request: addresses, dates, ids, the host and path of the request itself. They are first replaced by names in braces, so
that equal differences of many requests become one.

If the status or the reached Service differs, everything else follows from this difference, and is not listed.

    aspects.tsv   which settings of ingress-nginx an aspect is about, how the migration tables speak of it, and its consequence if
                  the aspect itself does not show it
    verified.tsv  the differences that verifications found and no other row of a migration table names; `--learn` adds to it, and
                  the page of a migration has those that no trap states (`find_verified`)
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import unquote

from lab.analysis.migration.mapping import Line, Migration
from lab.analysis.verification.command import write_command
from lab.analysis.verification.requests import load_catalogue
from lab.base.files import read_tsv
from lab.base.grouping import group_values
from lab.model.exchanges import Answer, Exchange, Headers, RawRequest, Received
from lab.systems.manifests.routes import PREFIX

Consequence = Literal["breaks", "protection", "clients", "backends"]
"""The consequence of a difference, the heaviest first.

Requests fail or reach something else; something is open that was guarded; clients see it; backends see it.
"""
CONSEQUENCES: tuple[Consequence, ...] = get_args(Consequence)
ABSENT = "–"
ASPECTS, VERIFIED = Path(__file__).with_name("aspects.tsv"), Path(__file__).with_name("verified.tsv")
MIN_LETTERS = 3
"""The largest number of letters in a value that is too short to be recognised in other values."""
EXCEPTED = frozenset({"date", "age", "expires", "content-length", "transfer-encoding", "connection", "keep-alive"})
"""The headers of answers that are not compared as such: those of time, and those that `framing` and `connection` stand for."""
EXCEPTED_OF_REQUESTS = frozenset({"content-length", "transfer-encoding", "connection", "x-lab-kept"})
"""The headers of received requests that are not compared as such: those of one hop."""
_SECURITY = re.compile(
    r"client header (strict-transport-security|x-frame-options|content-security-policy|x-content-type-options)"
)
_TRUSTED = re.compile(r"x-forwarded-|x-real-ip|x-original-|x-scheme|forwarded$|.*_|proxy$")
_RANDOM = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "{uuid}"),
    (re.compile(r"(?<![0-9a-f%])[0-9a-f]{32}(?![0-9a-f])"), "{32 hexadecimal digits}"),
    (re.compile(r"(?<![0-9a-f%])[0-9a-f]{16}(?![0-9a-f])"), "{16 hexadecimal digits}"),
    (re.compile(r"\b\w{3}, \d\d[ -]\w{3}[ -]\d{2,4} \d\d:\d\d:\d\d GMT\b"), "{date}"),
    (re.compile(r"\b\d{10}\.\d+\.\d+\.\d+\|?"), "{number}"),
)
_CLIMBS = re.compile(r"\.\.|%2e|%2f|//|\\|%5c", re.IGNORECASE)
"""The parts of a path that may make it another path for a backend."""
_FOLLOWS_COMPRESSION = (
    "client body",
    "client framing",
    "client header vary",
    "client header etag",
    "client header accept-ranges",
)
_HTTPS = (301, 302, 307, 308)


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between ingress-nginx and a successor that one or more requests show.

    An exchange is a request with its answer and what the backend received.

    Attributes:
        key: The difference in words that are equal in every run, such as `client header server: nginx → envoy`.
        consequence: What it means: `breaks` (requests fail or reach something else), `protection` (something is open
            that was guarded), or `clients` or `backends` (who sees it).
        aspect: The property that differs, such as `client header server`.
        before: Its value with ingress-nginx.
        after: Its value with the successor.
        left: The exchange with ingress-nginx for the smallest request that shows the difference. One that curl can send
            is preferred.
        right: The exchange with the successor for the same request.
        count: The number of requests that show it.
        cases: The names of the edge cases that these requests try.
        known: What names the difference already: a key, a default or a note of the migration table, or the words that a
            verification found it before; empty if it is new.
        setting: The setting that removes the difference; empty if there is none, or if none is known.

    """

    key: str
    consequence: Consequence
    aspect: str
    before: str
    after: str
    left: Exchange
    right: Exchange
    count: int
    cases: tuple[str, ...]
    known: str
    setting: str

    @property
    def fails(self) -> bool:
        """True if the difference makes the verification fail: it is new, and breaks requests or weakens protection."""
        return not self.known and self.consequence in ("breaks", "protection")


# -- aspects of one exchange ---------------------------------------------------------------------------------------


def list_aspects(exchange: Exchange, places: Mapping[str, str]) -> dict[str, str]:
    """List the properties (aspects) of one exchange, such as `client status` → `200`, so that two can be compared.

    An exchange is a request with its answer and what the backend received. Values that differ with every request, such
    as addresses and dates, are replaced by names in braces.

    Args:
        exchange: The exchange.
        places: Address → its name in braces, such as `{proxy}`.

    """
    request, answer = exchange.request, exchange.answer

    sent = {request.target: "{target}", request.target.partition("?")[0]: "{path}"}
    sent |= {request.host.lower(): "{host in lower case}", request.host: "{host}"}

    def name(text: str) -> str:
        """Return a text in which fixed words replace what differs with every request.

        These are addresses, the request's host and target, dates and random ids.
        """
        for pattern, word in _RANDOM:
            text = pattern.sub(word, text)
        for value, word in {**places, **sent}.items():
            text = text.replace(value, word) if len(value) > MIN_LETTERS else text
        return text

    aspects = {"client status": describe_status(answer), "backend reached": describe_reached(exchange.received)}
    aspects |= {f"client TLS {key}": text for key, text in answer.tls.items()}
    if not answer.status:
        return aspects
    own = not answer.header("x-lab-echo")  # the proxy's own answer
    excepted = EXCEPTED | {"content-type", "etag", "last-modified", "accept-ranges"} if own else EXCEPTED
    headers = {key: values for key, values in _group(answer.headers).items() if key not in excepted}
    aspects |= {
        "client HTTP version": answer.version,
        "client interim answers": ", ".join(map(str, answer.interim)) or ABSENT,
        "client connection": "kept" if answer.kept else "closed",
        "client trailers": _join(answer.trailers),
        **{f"client header {key}": name(values) for key, values in headers.items()},
    }
    if own:
        aspects["client error page"] = f"{answer.header('content-type') or 'no type'}" if answer.body else "empty"
    else:
        aspects["client framing"] = answer.framing
        coding = answer.header("content-encoding")
        aspects["client body"] = f"encoded: {coding}" if coding else f"{len(answer.body)} bytes"
    for received in exchange.received[:1]:
        headers = {key: values for key, values in _group(received.headers).items() if key not in EXCEPTED_OF_REQUESTS}
        lower = all(key == key.lower() for key, _ in received.headers)
        aspects |= {
            "backend method": received.method,
            "backend path": name(received.target),
            "backend HTTP version": received.version,
            "backend body": received.body,
            "backend trailers": _join(received.trailers),
            "backend client address": name(received.client),
            **{f"backend header {key}": name(values) for key, values in headers.items()},
            "backend case of header names": "lower" if lower else "as it was sent",
        }
    return aspects


def describe_status(answer: Answer) -> str:
    """Describe the status of an answer: `200`, `301 to https` for a redirect to https, or the error if no answer came.

    If there is neither a status nor an error, it is `TLS only`.
    """
    if not answer.status:
        return answer.error or "TLS only"
    scheme = answer.header("location").partition(":")[0] if answer.status in _HTTPS else ""
    return f"{answer.status} to https" if scheme == "https" else str(answer.status)


def describe_reached(received: Sequence[Received]) -> str:
    """Describe which Service a request reached, and how often: `shop`, `shop 2 times`, or `no backend`."""
    if not received:
        return "no backend"
    counts = Counter(item.service for item in received)
    return ", ".join(service if number == 1 else f"{service} {number} times" for service, number in counts.items())


def _group(headers: Headers) -> dict[str, str]:
    """Return header name in lower case → all its values, joined with ` | `; cookies are sorted."""
    grouped = group_values((key.lower(), value) for key, value in headers)
    return {key: " | ".join(sorted(values) if key == "set-cookie" else values) for key, values in grouped.items()}


def _join(headers: Headers) -> str:
    return ", ".join(f"{key.lower()}: {value}" for key, value in headers) or ABSENT


# -- differences of two systems ------------------------------------------------------------------------------------


def compare_exchanges(left: Mapping[str, str], right: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Compare two exchanges property by property, and return those that differ: aspect → (left value, right value).

    An exchange is a request with its answer; an aspect is one of its properties, such as `client status`. Consequences
    of another difference are left out:

    - If the status or the reached Service differs, the result is only `answer`, with both as its value.
    - If only one of the two pages is the backend's, `client page` replaces all aspects of the page: the body, its
      framing, the headers and the proxy's error page.
    - If the compression differs, the headers and lengths that it changes are left out.

    Args:
        left: Aspect → value of the first exchange.
        right: Aspect → value of the second exchange.

    """
    unlike = {
        key: (left.get(key, ABSENT), right.get(key, ABSENT))
        for key in dict.fromkeys([*left, *right])
        if left.get(key, ABSENT) != right.get(key, ABSENT)
    }
    if "client status" in unlike or "backend reached" in unlike:
        before, after = (f"{side['client status']}, {side['backend reached']}" for side in (left, right))
        return {"answer": (before, after)}
    if ("client body" in left) != ("client body" in right):  # everything else about the page follows from whose it is
        about_page = ("client body", "client framing", "client error page", "client header ")
        whose = ("the backend's" if "client body" in aspects else "the proxy's own" for aspects in (left, right))
        kept = {key: values for key, values in unlike.items() if not key.startswith(about_page)}
        return {**kept, "client page": (next(whose), next(whose))}
    follows = _FOLLOWS_COMPRESSION if "client header content-encoding" in unlike else ()
    return {key: values for key, values in unlike.items() if key not in follows}


def find_differences(
    left: Sequence[tuple[Exchange, Mapping[str, str]]],
    right: Sequence[tuple[Exchange, Mapping[str, str]]],
    migration: Migration | None,
) -> list[Difference]:
    """Return the differences between two systems, the heaviest first, each with the smallest request that shows it.

    A request that curl can send is preferred to a smaller one that curl cannot send.

    Args:
        left: The exchanges (request and answer) of ingress-nginx, each with its properties as `list_aspects` returns
            them.
        right: The exchanges of the successor with the same requests, in the same order.
        migration: The migration of the user's settings, whose lines predict differences; None to count all as new.

    """
    groups = group_values(
        (_make_key(aspect, before, after, old, new), (before, after, old, new))
        for (before, before_aspects), (after, after_aspects) in zip(left, right, strict=True)
        for aspect, (old, new) in compare_exchanges(before_aspects, after_aspects).items()
    )
    differences = list[Difference]()
    for key, found in groups.items():
        aspect = key.partition(":")[0].partition(" @")[0]
        before, after, old, new = min(
            found, key=lambda item: ("curl -i" not in write_command(item[0].request), item[0].request.size)
        )
        row = _find_row(aspect, before.request.case)
        forced: list[Consequence] = [name for name in CONSEQUENCES if name == row["consequence"]]
        consequence = forced[0] if forced else _weigh(aspect, before, after, old, new)
        known, setting = _find_known(key, aspect, before.request, row, migration)
        cases = tuple(dict.fromkeys(item[0].request.case for item in found))
        differences.append(
            Difference(key, consequence, aspect, old, new, before, after, len(found), cases, known, setting)
        )
    return sorted(differences, key=lambda item: (CONSEQUENCES.index(item.consequence), bool(item.known), item.key))


def _make_key(aspect: str, before: Exchange, after: Exchange, old: str, new: str) -> str:
    """Return the words that identify a difference in every run, such as `client header server: nginx → envoy`.

    For the properties `answer` and `backend path`, the words also name the edge case that the request tries. A row of
    `aspects.tsv` may give several edge cases a common name.

    Args:
        aspect: The property that differs, such as `client header server`.
        before: The exchange (request and answer) with ingress-nginx.
        after: The exchange with the successor.
        old: The value of the property with ingress-nginx.
        new: Its value with the successor.

    """
    case = before.request.case
    if aspect not in ("answer", "backend path"):
        change = "added" if old == ABSENT else "missing" if new == ABSENT else f"{old} → {new}"
        return f"{aspect}: {change}"
    row = _find_row(aspect, case)
    name = f"{aspect} @{row['name'] or case}"
    if aspect == "backend path":
        return f"{name}: changed"
    moved = before.received and after.received and describe_reached(before.received) != describe_reached(after.received)
    sides = (f"{describe_status(side.answer)}{' of the backend' if side.received else ''}" for side in (before, after))
    return f"{name}: {' → '.join(sides)}{', of another Service' if moved else ''}"


@cache
def read_table(table: Path) -> tuple[dict[str, str], ...]:
    """Return the rows of a table of this package, each as column → text, in the file's order."""
    return tuple(read_tsv(table))


def add_verified(system: str, differences: Iterable[Difference]) -> int:
    """Append a successor's new differences from ingress-nginx to the table `verified.tsv`, and return their number.

    A difference is new if nothing names it yet (`Difference.known` is empty): neither a line of the migration nor the
    table. A difference is left out if one of the requests that show it is from the user's own file of requests.

    Args:
        system: The name of the successor.
        differences: The differences, new and known ones.

    """
    new = [item for item in differences if not item.known and "yours" not in item.cases]
    with VERIFIED.open("a", encoding="utf-8", newline="") as file:
        file.writelines(f"{system}\t{item.key}\t{item.consequence}\t{item.left.request.about}\n" for item in new)
    read_table.cache_clear()
    return len(new)


def find_verified(migration: Migration) -> list[tuple[Mapping[str, str], bool]]:
    """Return what verifications saw of a successor and no trap of a migration states: rows of `verified.tsv`.

    A trap is a line about something that would behave differently. The rows that concern the user's files come first,
    and of these the ones about annotations. Then, a row about ordinary requests precedes one about a single edge case.

    Args:
        migration: The migration of the user's settings to the successor.

    Returns:
        (row as column → text, True if it concerns the user's files) for each row. A row concerns every file if its
        request is one of the catalogue. Any other was seen with the Ingresses of some file, and concerns files with an
        annotation that it is about.

    """
    catalogue = {case["about"]: case for case in load_catalogue()}
    used = {f"@{line.key.removeprefix(PREFIX)}" for line in migration.annotations if line.value != "false"}
    found = list[tuple[Mapping[str, str], bool]]()
    for row in (row for row in read_table(VERIFIED) if row["system"] == migration.system):
        aspect, _, name = row["difference"].partition(": ")[0].partition(" @")
        case = catalogue.get(row["about"], {"case": name, "keys": ""})
        subject = _find_row(aspect, case["case"])
        keys = [*subject["keys"].split(), *(case["keys"].split() if name else ())]
        line = _find_line(migration, keys, subject["words"])
        if line is None or not line.is_trap:
            found.append((row, row["about"] in catalogue or not used.isdisjoint(keys)))
    return sorted(found, key=lambda item: (not item[1], item[0]["about"] in catalogue, " @" in item[0]["difference"]))


def _find_row(aspect: str, case: str) -> Mapping[str, str]:
    """Return the first row of `aspects.tsv` that fits a property of an exchange and an edge case, as column → text.

    An exchange is a request with its answer. If no row fits, all cells are empty.

    Args:
        aspect: The property, such as `client header server`.
        case: The name of the edge case that the request tries.

    """
    rows = (row for row in read_table(ASPECTS) if re.search(row["aspect"], f"{aspect} @{case}"))
    return next(rows, {"name": "", "keys": "", "words": "", "consequence": ""})


def _find_known(
    key: str, aspect: str, request: RawRequest, row: Mapping[str, str], migration: Migration | None
) -> tuple[str, str]:
    """Return what names a difference already (a key, default or note of the migration), and the setting that removes it.

    If only an earlier verification found the difference, the first text is `found before by a verification`. The first
    text is empty if the difference is new. The second text is empty if no such setting is known.

    Args:
        key: The difference in words (`Difference.key`).
        aspect: The property that differs.
        request: The request that shows it.
        row: The row of `aspects.tsv` for it, as column → text.
        migration: The migration of the user's settings; None if there is none.

    """
    if migration is None:
        return "", ""
    keys = [*row["keys"].split(), *(request.keys if aspect in ("answer", "backend path") else ())]
    line = _find_line(migration, keys, row["words"])
    if line is None:
        pairs = {(item["system"], item["difference"]) for item in read_table(VERIFIED)}
        return "found before by a verification" * ((migration.system, key) in pairs), ""
    setting = f"{line.setting}: {line.to}" if line.standing == "set" else line.setting * (line.standing == "hand")
    return line.key.rpartition("/")[2] or line.default or line.note, setting


def _weigh(aspect: str, left: Exchange, right: Exchange, old: str, new: str) -> Consequence:
    """Return the consequence of a difference, such as `breaks` (requests fail), as far as the difference itself shows it.

    The others are `protection` (something is open that was guarded), `clients` and `backends` (who sees it).

    Args:
        aspect: The property that differs, such as `client header server`.
        left: The exchange (request and answer) with ingress-nginx.
        right: The exchange with the successor.
        old: The value of the property with ingress-nginx.
        new: Its value with the successor.

    """
    side, _, what = aspect.partition(" ")
    if aspect == "answer":
        return _weigh_answers(left, right)
    if _SECURITY.match(aspect):
        return "protection" if new == ABSENT or old != ABSENT else "clients"
    if aspect in ("client body", "backend method", "backend body"):
        return "breaks"
    if side == "client":
        return "clients"
    if what == "path":
        before, after = (side.received[0].target for side in (left, right))
        if _normalise(before) == _normalise(after):
            return "protection" if _CLIMBS.search(after) and not _CLIMBS.search(before) else "backends"
        return "protection" if _CLIMBS.search(after) else "breaks"
    sent = {key.lower(): value for key, value in left.request.headers}
    name = what.removeprefix("header ")
    if what.startswith("header ") and _TRUSTED.match(name) and new != ABSENT and name in sent and sent[name] in new:
        return "protection" if old == ABSENT or sent[name] not in old else "backends"
    return "backends"


def _normalise(target: str) -> str:
    """Return a request target decoded and without empty and dot segments, as most servers read it: `/a//b/%2e%2e/c` → `/a/c`."""
    path, mark, query = target.partition("?")
    return f"{posixpath.normpath(unquote(path))}{mark}{query}"


def _weigh_answers(left: Exchange, right: Exchange) -> Consequence:
    """Return the consequence if answers differ in status or come from different Services: `breaks`, `protection`, `clients`.

    `breaks` means that requests fail, `protection` that something is open that was guarded, `clients` that clients see
    it.

    Args:
        left: The exchange (request and answer) with ingress-nginx.
        right: The exchange with the successor.

    """
    before, after = left.answer.status, right.answer.status
    if left.received and not right.received:
        return "breaks"
    if right.received and not left.received:
        secured = before in _HTTPS and left.answer.header("location").startswith("https:")
        return "protection" if secured or before in (0, 501, 505) or 400 <= before < 500 else "breaks"
    if left.received and right.received and describe_reached(left.received) != describe_reached(right.received):
        return "breaks"
    if bool(left.answer.tls) != bool(right.answer.tls) and not (before and after):  # a handshake was refused
        return "breaks" if left.answer.tls else "protection"
    return "breaks" if 0 < before < 400 and not 0 < after < 400 else "clients"


def _find_line(migration: Migration, keys: Iterable[str], words: str) -> Line | None:
    """Return the first line of a migration that predicts a difference for one of the given keys; None if no line does.

    A line is the result of the migration for one key (setting) or annotation. A line *already equivalent* (or with a
    key that does nothing) predicts a difference only if it has a note and is not about an annotation.

    Args:
        migration: The migration to the successor.
        keys: The names of the keys, and of annotations with `@` in front.
        words: A regular expression that finds the line by its text if no name fits; empty for none.

    """
    names = {f"{PREFIX}{key[1:]}" if key.startswith("@") else key for key in keys}
    lines = [
        line
        for line in (*migration.settings, *migration.annotations, *migration.defaults, *migration.extras)
        if line.standing in ("set", "hand", "lost") or (line.note and not line.ingress)
    ]
    by_key = (line for line in lines if line.key in names)
    by_words = (line for line in lines if words and re.search(words, f"{line.setting} {line.default} {line.note}"))
    return next(by_key, None) or next(by_words, None)
