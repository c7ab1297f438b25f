"""What one check found, and the questions that all kinds of checks ask of a running system."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from lab.base.paths import at
from lab.model.system import System
from lab.model.variants.variants import Check

ABSENT = "absent"
CLOCK_S = 1.0
"""Start times of processes are known to the boot time's second."""


class ReadingRecord(Check):
    """One reading as `readback/` has it: the check's own keys without empty ones, and what was found."""

    observed: str = Field(description="what the running system has; or `absent`, `unreadable`")
    ok: bool
    detail: str = Field(description="why it is not ok, in words")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one check found. `detail` says why it is not ok, in words."""

    check: Check
    observed: str
    ok: bool
    detail: str = ""

    def __str__(self) -> str:
        check = self.check
        port, context = f"port {check.port}" if check.port else None, f"in {check.context}" if check.context else None
        asked = " ".join(filter(None, (check.role, check.kind, check.process, check.name, port, context)))
        found = f"asked for {check.value}, found {self.observed}"
        return f"{asked}: {found}" + (f" ({self.detail})" if self.detail else "")

    def as_json(self) -> dict[str, Any]:
        """A `ReadingRecord`, as plain data."""
        found = {"observed": self.observed, "ok": self.ok, "detail": self.detail}
        return ReadingRecord.model_validate(self.check.model_dump() | found).model_dump(exclude_none=True)


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    title: str


class UnreadableError(Exception):
    """The system did not answer the question."""


Reader = Callable[[System, Check], Reading]
"""One kind of check. Raises UnreadableError for what cannot be read."""


def run(system: System, check: Check, argv: Sequence[str]) -> str:
    done = system.exec(check.role, argv)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise UnreadableError(f"{' '.join(argv)[:60]}: exited {done.returncode}: {said[-1]}")
    return done.stdout


def asked(system: System, check: Check, port: int, path: str) -> str:
    """What the proxy's own interface answers, on its pod's loopback."""
    try:
        return system.ask(check.role, port, path)
    except OSError as error:
        raise UnreadableError(f"port {port}: {path[:60]}: {error}") from None


def processes(system: System, check: Check) -> list[Process]:
    """The processes of the check's role, as its own /proc shows them."""
    script = (
        'for p in /proc/[0-9]*; do printf "%s\\t" "${p#/proc/}"; tr "\\000\\n" "  " <$p/cmdline; echo; done 2>/dev/null'
    )
    rows = [line.partition("\t") for line in run(system, check, ["sh", "-c", script]).splitlines()]
    return [Process(int(pid), " ".join(title.split())) for pid, _, title in rows if pid.isdigit() and title.strip()]


def matching(system: System, check: Check) -> list[Process]:
    prefix = given(check, "process")
    found = [process for process in processes(system, check) if process.title.startswith(prefix)]
    if not found:
        raise UnreadableError(f"no process is called {prefix!r}")
    return found


def soft_limit(system: System, check: Check, pid: int, name: str) -> str:
    for line in run(system, check, ["cat", f"/proc/{pid}/limits"]).splitlines():
        if line.startswith(name + "  "):
            return line.removeprefix(name).split()[0]
    raise UnreadableError(f"/proc/{pid}/limits has no row {name!r}")


def given(check: Check, key: str) -> str:
    value = getattr(check, key)
    if value is None:
        raise UnreadableError(f"a check of kind {check.kind} needs '{key}'")
    return str(value)


def shown(value: Any) -> str:
    """What a program tells as JSON, as a check's value is written: a text as it is, anything else as JSON."""
    return ABSENT if value is None else value if isinstance(value, str) else json.dumps(value)


def joined(values: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def compared(check: Check, observed: str, wanted: str | None = None) -> Reading:
    expected = check.value if wanted is None else wanted
    ok = observed == expected
    return Reading(check, observed, ok, "" if ok else f"expected {expected!r}, found {observed!r}")


def wrong(check: Check, observed: str, detail: str) -> Reading:
    """A reading that is not what was asked for, or not what runs."""
    return Reading(check, observed, ok=False, detail=detail)


def of_parts(check: Check, parts: Mapping[str, Sequence[Any]], part: str, path: str, page: str) -> Reading:
    """A path in every part of that name of a configuration, which a page of the proxy shows. UnreadableError where it shows no such part."""
    if not parts.get(part):
        raise UnreadableError(f"{page} has no {part!r} that serves the load, only {', '.join(parts)}")
    return compared(check, joined([shown(at(tree, path)) for tree in parts[part]]))


def metric(system: System, check: Check, port: int, page: str, name: str) -> Reading:
    """A metric of that name on a page of them: the sum over its labels, a whole number without a point."""
    form = rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$"
    found = re.findall(form, asked(system, check, port, page), re.MULTILINE)
    return compared(check, f"{sum(map(float, found)):g}" if found else ABSENT)


def started(system: System, check: Check, pids: Sequence[int]) -> list[float]:
    """When processes started, in seconds since 1970: boot time plus field 22 of their stat, in hundredths."""
    paths = [f"/proc/{pid}/stat" for pid in pids]
    lines = run(system, check, ["cat", "/proc/stat", *paths]).splitlines()
    boot = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    return [boot + int(line.rpartition(")")[2].split()[19]) / 100 for line in lines if re.match(r"\d+ \(", line)]
