"""Is the knob really set? Each check of a variant is compared with the running system, before a sample counts.

Knows no target: everything is asked through `System.exec`, inside the role's container. A directive is read from
what nginx itself prints (`nginx -T` of the file that its master was started with), parsed, never searched for as text;
since that is the file and not what is loaded, the workers must be younger than the file, and where a directive has an
effect that can be seen in the processes (open files, number of workers), that is compared too. A directive that is not
in the configuration reads as `absent`. Refuses to fail silently: what cannot be read is not ok, with the reason.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crossplane

from lab.files import own_faults
from lab.process import scratch
from lab.targets.base import System
from lab.variants import Check

ABSENT = "absent"

_HEADER = re.compile(r"^# configuration file (.+):$", re.MULTILINE)
_CLOCK_S = 1.0
"""Start times of processes are known to the boot time's second."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one check found. `detail` says why it is not ok, in words."""

    check: Check
    observed: str
    ok: bool
    detail: str = ""

    def __str__(self) -> str:
        check = self.check
        words = [check.role, check.kind, check.process, check.name, f"port {check.port}" if check.port else None]
        asked = " ".join([word for word in words if word] + ([f"in {check.context}"] if check.context else []))
        found = f"asked for {self.check.value}, found {self.observed}"
        return f"{asked}: {found}" + (f" ({self.detail})" if self.detail else "")

    def as_json(self) -> dict[str, Any]:
        """For `readback/`: the check's own keys without empty ones, `observed`, `ok` and `detail`."""
        return {
            **self.check.model_dump(exclude_none=True),
            "observed": self.observed,
            "ok": self.ok,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    title: str


class UnreadableError(Exception):
    """The system did not answer the question."""


def read_back(system: System, checks: Sequence[Check]) -> list[Reading]:
    """One reading per check, in their order. Never raises for what it finds, or fails to find, in the system.

    StoreError when this machine lacks what the asking takes (space, descriptors, memory): the knob is not to blame.
    """
    readings = []
    for check in checks:
        try:
            with own_faults("read-back"):
                readings.append(_READERS[check.kind](system, check))
        except UnreadableError as error:
            readings.append(Reading(check, "unreadable", ok=False, detail=str(error)))
        except (ValueError, LookupError, StopIteration, OSError) as error:  # garbage in the answer
            readings.append(Reading(check, "unreadable", ok=False, detail=f"{type(error).__name__}: {error}"))
    return readings


def _sysctl(system: System, check: Check) -> Reading:
    name = _given(check, "name")
    path = "/proc/sys/" + name.replace(".", "/")
    return _compared(check, " ".join(_run(system, check, ["cat", path]).split()), " ".join(check.value.split()))


def _backlog(system: System, check: Check) -> Reading:
    """`ss`: state, receive queue, send queue (the backlog of a listening socket), local address, peer."""
    port = _given(check, "port")
    rows = [line.split() for line in _run(system, check, ["ss", "-lntH"]).splitlines()]
    found = [row[2] for row in rows if len(row) > 3 and row[3].rpartition(":")[2] == port]
    if not found:
        raise UnreadableError(f"nothing listens on port {port}")
    return _compared(check, _joined(found))


def _limit(system: System, check: Check) -> Reading:
    name, matching = _given(check, "name"), _matching(system, check)
    return _compared(check, _joined([_soft_limit(system, check, process.pid, name) for process in matching]))


def _count(system: System, check: Check) -> Reading:
    prefix = _given(check, "process")
    return _compared(check, str(sum(process.title.startswith(prefix) for process in processes(system, check))))


def _nginx(system: System, check: Check) -> Reading:
    name = _given(check, "name")
    running = processes(system, check)
    masters = [process for process in running if process.title.startswith("nginx: master process")]
    workers = [process for process in running if process.title == "nginx: worker process"]
    if len(masters) != 1 or not workers:
        raise UnreadableError(
            f"expected one nginx master with workers, found {len(masters)} and {len(workers)} workers"
        )
    options = re.findall(r"(?:^| )-([cp]) (\S+)", masters[0].title)
    files = dump(
        _run(system, check, ["nginx", *(word for option, value in options for word in (f"-{option}", value)), "-T"])
    )
    main = next(iter(files))
    found = [
        " ".join(args)
        for where, directive, args in directives(files)
        if directive == name and check.context in (None, where)
    ]
    reading = _compared(check, _joined(found) if found else ABSENT)
    if len(set(found)) > 1 and check.context is None:
        reading = Reading(
            check,
            reading.observed,
            ok=False,
            detail=f"{name} stands in several places with several values: the check needs a context",
        )
    return _loaded(system, reading, main, workers) if reading.ok else reading


def _loaded(system: System, reading: Reading, main: str, workers: Sequence[Process]) -> Reading:
    """The same reading, if what nginx runs is what its file says."""
    check = reading.check
    written = int(_run(system, check, ["stat", "-c", "%Y", main]))
    oldest = min(_started(system, check, [worker.pid for worker in workers]))
    if oldest + _CLOCK_S < written:
        return Reading(
            check,
            reading.observed,
            ok=False,
            detail=f"{main} was written after the workers had started: it is not what they run",
        )
    if emergency := next((line for line in system.log_tail().splitlines() if "[emerg]" in line), None):
        return Reading(check, reading.observed, ok=False, detail=f"nginx logged: {emergency.strip()}")
    if check.name == "worker_processes" and check.value.isdigit() and len(workers) != int(check.value):
        return Reading(
            check,
            f"{reading.observed}, and {len(workers)} running",
            ok=False,
            detail=f"asked for {check.value} workers, {len(workers)} run",
        )
    if check.name == "worker_rlimit_nofile":
        limits = _joined([_soft_limit(system, check, worker.pid, "Max open files") for worker in workers])
        if limits != check.value:
            return Reading(
                check,
                limits,
                ok=False,
                detail=f"asked for {check.value} open files, the workers have {limits}: the hard limit is lower",
            )
    return reading


_READERS = {"nginx": _nginx, "sysctl": _sysctl, "backlog": _backlog, "limit": _limit, "processes": _count}


def processes(system: System, check: Check) -> list[Process]:
    """The processes of the check's role, as its own /proc shows them."""
    script = (
        'for p in /proc/[0-9]*; do printf "%s\\t" "${p#/proc/}"; tr "\\000\\n" "  " <$p/cmdline; echo; done 2>/dev/null'
    )
    found = []
    for line in _run(system, check, ["sh", "-c", script]).splitlines():
        pid, _, title = line.partition("\t")
        if pid.isdigit() and title.strip():
            found.append(Process(int(pid), " ".join(title.split())))
    return found


def dump(text: str) -> dict[str, str]:
    """`nginx -T` → file → text, the main file first. UnreadableError when there is none."""
    parts = _HEADER.split(text)
    files = dict(zip(parts[1::2], parts[2::2], strict=True))
    if not files:
        raise UnreadableError(f"nginx -T printed no configuration: {text.strip()[-200:]!r}")
    return files


def directives(files: Mapping[str, str]) -> Iterator[tuple[str, str, list[str]]]:
    """(context, directive, arguments) in order, includes followed; a context is the blocks' names, such as `http/server`."""
    main = next(iter(files))
    with scratch() as folder:
        parsed = {name: _parse(folder / str(number), text) for number, (name, text) in enumerate(files.items())}
    yield from _walk(parsed[main], "", parsed, posixpath.dirname(main))


def _parse(file: Path, text: str) -> list[dict[str, Any]]:
    file.write_text(text)
    answer: Any = crossplane.parse(str(file), single=True, strict=False, check_ctx=False, check_args=False)
    if answer["status"] != "ok":
        raise UnreadableError(f"nginx -T cannot be parsed: {answer['errors'][0]['error']}")
    return answer["config"][0]["parsed"]


def _walk(
    blocks: Sequence[Mapping[str, Any]], context: str, files: Mapping[str, list[dict[str, Any]]], folder: str
) -> Iterator[tuple[str, str, list[str]]]:
    for block in blocks:
        if block["directive"] == "include":
            pattern = posixpath.join(folder, block["args"][0])
            for name in sorted(fnmatch.filter(files, pattern)):
                yield from _walk(files[name], context, files, folder)
            continue
        yield context, block["directive"], list(block["args"])
        if "block" in block:
            yield from _walk(block["block"], f"{context}/{block['directive']}".lstrip("/"), files, folder)


def _run(system: System, check: Check, argv: Sequence[str]) -> str:
    done = system.exec(check.role, argv)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UnreadableError(
            f"{' '.join(argv)[:60]}: exited {done.returncode}: {said[-1] if said else 'it printed nothing'}"
        )
    return done.stdout


def _matching(system: System, check: Check) -> list[Process]:
    prefix = _given(check, "process")
    found = [process for process in processes(system, check) if process.title.startswith(prefix)]
    if not found:
        raise UnreadableError(f"no process is called {prefix!r}")
    return found


def _soft_limit(system: System, check: Check, pid: int, name: str) -> str:
    for line in _run(system, check, ["cat", f"/proc/{pid}/limits"]).splitlines():
        if line.startswith(name + "  "):
            return line.removeprefix(name).split()[0]
    raise UnreadableError(f"/proc/{pid}/limits has no row {name!r}")


def _started(system: System, check: Check, pids: Sequence[int]) -> list[float]:
    """When processes started, in seconds since 1970: boot time plus field 22 of their stat, in hundredths."""
    paths = [f"/proc/{pid}/stat" for pid in pids]
    lines = _run(system, check, ["cat", "/proc/stat", *paths]).splitlines()
    boot = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    return [boot + int(line.rpartition(")")[2].split()[19]) / 100 for line in lines if re.match(r"\d+ \(", line)]


def _given(check: Check, key: str) -> str:
    value = getattr(check, key)
    if value is None:
        raise UnreadableError(f"a check of kind {check.kind} needs '{key}'")
    return str(value)


def _joined(values: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(values))


def _compared(check: Check, observed: str, wanted: str | None = None) -> Reading:
    expected = check.value if wanted is None else wanted
    ok = observed == expected
    return Reading(check, observed, ok, "" if ok else f"expected {expected!r}, found {observed!r}")
