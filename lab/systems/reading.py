"""The result of one read-back check, and the queries to a running system that all kinds of checks share."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from lab.base.paths import get_path
from lab.model.system import System
from lab.model.variants.variants import Check

ABSENT = "absent"
CLOCK_S = 1.0
"""The uncertainty of a process's start time in seconds, as the boot time is known to the second only."""


class ReadingRecord(Check):
    """A read-back check (a test whether a setting took effect) and its result, in the form of the JSON files in `readback/`.

    Keys without a value are left out of the files.
    """

    observed: str = Field(description="what the running system has; or `absent`, `unreadable`")
    ok: bool
    detail: str = Field(description="why it is not ok, in words")


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of one read-back check, which reads from the running system whether a setting took effect.

    Attributes:
        check: the check.
        observed: the value that the running system has; `absent` if it has none, and `unreadable` if it cannot be read.
        ok: whether the observed value is the expected one.
        detail: the reason why the check failed; empty if it passed.

    """

    check: Check
    observed: str
    ok: bool
    detail: str = ""

    def __str__(self) -> str:
        check = self.check
        port, context = f"port {check.port}" if check.port else None, f"in {check.context}" if check.context else None
        subject = " ".join(filter(None, (check.role, check.kind, check.process, check.name, port, context)))
        comparison = f"asked for {check.value}, found {self.observed}"
        return f"{subject}: {comparison}" + (f" ({self.detail})" if self.detail else "")

    def as_json(self) -> dict[str, Any]:
        """Return the read-back check and its result as a dict that can be written as JSON (see `ReadingRecord`)."""
        result = {"observed": self.observed, "ok": self.ok, "detail": self.detail}
        return ReadingRecord.model_validate(self.check.model_dump() | result).model_dump(exclude_none=True)


@dataclass(frozen=True, slots=True)
class ListedProcess:
    """A process in the container that a read-back check examines.

    Attributes:
        pid: the id of the process, as it is numbered inside the container.
        title: the command line of the process, with single blanks between the arguments.

    """

    pid: int
    title: str


class UnreadableError(Exception):
    """The error of a read-back check whose value cannot be read from the running system, for example because nothing answers."""


Reader = Callable[[System, Check], Reading]
"""A function that performs read-back checks of one kind. It raises UnreadableError for a value that cannot be read."""


def run_in_container(system: System, check: Check, argv: Sequence[str]) -> str:
    """Run a command in the container of the check's role (such as `proxy`), and return the command's output.

    Raises:
        UnreadableError: when the command fails.

    """
    done = system.exec(check.role, argv)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise UnreadableError(f"{' '.join(argv)[:60]}: exited {done.returncode}: {lines[-1]}")
    return done.stdout


def request_page(system: System, check: Check, port: int, path: str) -> str:
    """Request a page from a port on the loopback of the checked pod, and return the answer's text.

    Args:
        system: the running system.
        check: the check, whose role (such as `proxy`) names the pod.
        port: the port.
        path: the path of the page, with its query.

    Raises:
        UnreadableError: when the request fails.

    """
    try:
        return system.ask(check.role, port, path)
    except OSError as error:
        raise UnreadableError(f"port {port}: {path[:60]}: {error}") from None


def list_processes(system: System, check: Check) -> list[ListedProcess]:
    """Return all processes that /proc shows in the container of the check's role (such as `proxy`).

    Kernel threads and other processes without a command line are left out.
    """
    script = (
        'for p in /proc/[0-9]*; do printf "%s\\t" "${p#/proc/}"; tr "\\000\\n" "  " <$p/cmdline; echo; done 2>/dev/null'
    )
    rows = [line.partition("\t") for line in run_in_container(system, check, ["sh", "-c", script]).splitlines()]
    return [
        ListedProcess(int(pid), " ".join(title.split())) for pid, _, title in rows if pid.isdigit() and title.strip()
    ]


def list_matching_processes(system: System, check: Check) -> list[ListedProcess]:
    """Return the processes whose command line begins with the text in the check's key `process`.

    Raises:
        UnreadableError: when there is no such process, or the check does not have the key.

    """
    prefix = require_key(check, "process")
    matches = [process for process in list_processes(system, check) if process.title.startswith(prefix)]
    if not matches:
        raise UnreadableError(f"no process is called {prefix!r}")
    return matches


def read_soft_limit(system: System, check: Check, pid: int, name: str) -> str:
    """Return a soft limit of a process, from the process's file /proc/PID/limits.

    Args:
        system: the running system.
        check: the check, whose role names the container.
        pid: the id of the process, as it is numbered inside the container.
        name: the name of the limit in the file, such as `Max open files`.

    Raises:
        UnreadableError: when the file has no such limit.

    """
    for line in run_in_container(system, check, ["cat", f"/proc/{pid}/limits"]).splitlines():
        if line.startswith(name + "  "):
            return line.removeprefix(name).split()[0]
    raise UnreadableError(f"/proc/{pid}/limits has no row {name!r}")


def require_key(check: Check, key: str) -> str:
    """Return the value of a key of a read-back check as text; raise an error if the check does not have the key.

    Raises:
        UnreadableError: when the check does not have the key.

    """
    value = getattr(check, key)
    if value is None:
        raise UnreadableError(f"a check of kind {check.kind} needs '{key}'")
    return str(value)


def format_value(value: Any) -> str:
    """Convert a decoded JSON value to text: None becomes `absent`, and a text stays unchanged.

    Any other value is written as JSON (`True` → `true`). Read-back checks compare values in this form.
    """
    return ABSENT if value is None else value if isinstance(value, str) else json.dumps(value)


def join_distinct(values: Sequence[str]) -> str:
    """Join texts by `, `, each distinct text once, in the order of first occurrence."""
    return ", ".join(dict.fromkeys(values))


def compare_value(check: Check, observed: str, value: str | None = None) -> Reading:
    """Compare an observed value with the expected one, and return the result of the read-back check.

    Args:
        check: the check.
        observed: the value that the running system has.
        value: the expected value; None = the value in the check.

    """
    expected = check.value if value is None else value
    ok = observed == expected
    return Reading(check, observed, ok, "" if ok else f"expected {expected!r}, found {observed!r}")


def fail_reading(check: Check, observed: str, detail: str) -> Reading:
    """Return the result of a read-back check that failed, with the reason.

    Args:
        check: the check.
        observed: the value that the running system has.
        detail: the reason why the check failed.

    """
    return Reading(check, observed, ok=False, detail=detail)


def check_parts(check: Check, parts: Mapping[str, Sequence[Any]], part: str, path: str, page: str) -> Reading:
    """Check a value in all parts of one kind in a proxy's running configuration, for example in all clusters of Envoy.

    The check passes if each of these parts has the expected value.

    Args:
        check: the check.
        parts: kind of part → the parts of this kind in the running configuration that serve the load.
        part: the kind of part to look at, such as `cluster`.
        path: the path of the value in each part, such as `a.0.b`.
        page: the page that showed the configuration, for the error message.

    Raises:
        UnreadableError: when there is no part of this kind.

    """
    if not parts.get(part):
        raise UnreadableError(f"{page} has no {part!r} that serves the load, only {', '.join(parts)}")
    return compare_value(check, join_distinct([format_value(get_path(tree, path)) for tree in parts[part]]))


def check_metric(system: System, check: Check, port: int, page: str, name: str) -> Reading:
    """Check the value of a metric that the proxy shows on a page in Prometheus' format.

    If the page shows the metric several times, with different labels, the values are added. The sum is compared with
    at most six significant digits, a whole number below a million without a decimal point. A metric that the page does
    not show is `absent`.

    Args:
        system: the running system.
        check: the check, with the expected value.
        port: the port of the page on the pod's loopback.
        page: the path of the page.
        name: the name of the metric.

    """
    form = rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$"
    numbers = re.findall(form, request_page(system, check, port, page), re.MULTILINE)
    return compare_value(check, f"{sum(map(float, numbers)):g}" if numbers else ABSENT)


def read_start_times(system: System, check: Check, pids: Sequence[int]) -> list[float]:
    """Return the times at which processes were started, in seconds since 1970.

    A time is the machine's boot time plus the start time in /proc/PID/stat (field 22, in hundredths of a second).

    Args:
        system: the running system.
        check: the check, whose role names the container.
        pids: the ids of the processes, as they are numbered inside the container.

    """
    lines = run_in_container(system, check, ["cat", "/proc/stat", *(f"/proc/{pid}/stat" for pid in pids)]).splitlines()
    boot = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    return [boot + int(line.rpartition(")")[2].split()[19]) / 100 for line in lines if re.match(r"\d+ \(", line)]
