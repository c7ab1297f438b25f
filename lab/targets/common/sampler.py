"""CPU, memory and kernel counters while a sample is measured, from /proc, at 1 Hz and at both ends.

Of proxy and backend every thread is looked at as well where a process has several, as `pidstat -t` does.
Process times come from the scheduler's nanosecond clock, which keeps what ended threads used (a sum over those alive would
fall with each that ends), a thread's from its schedstat; from clock ticks where the kernel keeps neither. Other people's
processes are read from the host's /proc, which the lab hands into its namespaces as an open folder (`host_proc`); kernel
threads are not counted as theirs, because they carry the packets of the load itself. A process that ends hands its CPU time
to the parent that waits for it, so the sum over all processes and their ended children misses none that somebody waited for.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from lab.base.files import readable
from lab.model.usage import USAGE_SCHEMA, Observation, Usage

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KTHREADD = 2
THREADED = frozenset({"proxy", "backend"})
"""Roles whose threads are told apart."""
RESIDUAL_NOISE = 0.15
"""Busy fraction of a CPU that the clock ticks may wrongly see beside our own processes (measured: up to 0.11 on a quiet machine)."""
COUNTED = {
    ("TcpExt", "ListenOverflows"),
    ("TcpExt", "ListenDrops"),
    ("TcpExt", "TCPTimeouts"),
    ("Tcp", "ActiveOpens"),
    ("Tcp", "PassiveOpens"),
    ("Tcp", "InSegs"),
    ("Tcp", "OutSegs"),
    ("Tcp", "RetransSegs"),
}
INTERFACES = "net/dev"
"""In /proc/PID: what each network interface has received and sent. Short, as some looks read it byte by byte."""
HOST_PROC = "LAB_HOST_PROC"
OUTER_PID = "LAB_OUTER_PID"

Processes = Callable[[], Mapping[str, list[int]]]


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """One process at one moment; seconds and counts since it began, bytes now."""

    title: str
    threads: int
    user_s: float
    system_s: float
    cpu_s: float
    minflt: int
    majflt: int
    vsz_bytes: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class CpuTimes:
    busy_s: float
    steal_s: float
    total_s: float
    interrupts_s: float = 0.0
    """Part of busy_s: hard and soft interrupts, in whatever process they came."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    wall_s: float
    monotonic_s: float
    cpus: Mapping[int, CpuTimes]
    others_s: float | None
    counters: Mapping[str, int]


class Sampler:
    """A context manager around the measuring; `observation()` afterwards.

    `processes` gives role → process ids and is asked anew every second. A role's CPU is the sum over
    all its processes, each from its first to its last sight; one that appears later counts from zero.
    `extra` gives what the target counts beside the kernel, cumulative, by `role/name`; it is asked at both ends.
    """

    def __init__(
        self, processes: Processes, extra: Callable[[], Mapping[str, int]] = dict[str, int], interval_s: float = 1.0
    ) -> None:
        self._processes, self._extra, self._interval_s = processes, extra, interval_s
        self._first: dict[tuple[str, int], float] = {}
        self._peak_bytes: dict[tuple[str, int], int] = {}
        self._last: dict[tuple[str, int], ProcessTimes] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._ends: list[_Snapshot] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._ends.append(self._snapshot())
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()
        self._ends.append(self._snapshot())

    def _run(self) -> None:
        began = time.monotonic()
        while not self._done.wait(self._interval_s - (time.monotonic() - began) % self._interval_s):
            self._look()

    def _look(self) -> None:
        at = time.monotonic() - self._ends[0].monotonic_s
        first = not self._first
        for role, pids in self._processes().items():
            sent = {pid: sent_bytes(pid) for pid in _one_per_network(pids)} if role in THREADED else {}
            for pid in pids:
                seen = process_times(pid)
                if seen is not None:
                    self._first.setdefault((role, pid), seen.cpu_s if first else 0.0)
                    self._last[role, pid] = seen
                    self._peak_bytes[role, pid] = max(seen.rss_bytes, self._peak_bytes.get((role, pid), 0))
                    self._rows.append((at, role, pid, None, *astuple(seen), sent.get(pid)))
                    if role in THREADED and seen.threads > 1:
                        threads = thread_times(pid)
                        self._rows += [(at, role, pid, tid, *astuple(times), None) for tid, times in threads.items()]

    def _snapshot(self) -> _Snapshot:
        counters = Counter[str]()
        for role, pids in self._processes().items():
            for pid in _one_per_network(pids) if role in ("proxy", "backend") else ():
                counters.update({f"{role}/{name}": value for name, value in network_counters(pid).items()})
        counters.update(self._extra())
        return _Snapshot(time.time(), time.monotonic(), cpu_times(), other_processes_s(), counters)

    def observation(self) -> Observation:
        start, end = self._ends
        elapsed_s = end.monotonic_s - start.monotonic_s
        usage = {}
        for role in dict.fromkeys(role for role, _ in self._last):
            mine = [key for key in self._last if key[0] == role]
            usage[role] = Usage(
                cpu_s=sum(self._last[key].cpu_s - self._first[key] for key in mine),
                rss_bytes=sum(self._peak_bytes[key] for key in mine),
                processes=len(mine),
            )
        cpus = spans(start.cpus, end.cpus)
        total_s = sum(span.total_s for span in cpus.values())
        was_s, now_s = start.others_s, end.others_s
        return Observation(
            elapsed_s=elapsed_s,
            usage=usage,
            rows=pl.DataFrame(self._rows, schema=USAGE_SCHEMA, orient="row"),
            busy={cpu: span.busy_s / (span.total_s or 1.0) for cpu, span in cpus.items()},
            interrupts={cpu: span.interrupts_s / (span.total_s or 1.0) for cpu, span in cpus.items()},
            steal=sum(span.steal_s for span in cpus.values()) / (total_s or 1.0),
            others=None if was_s is None or now_s is None else max(0.0, now_s - was_s) / elapsed_s,
            counters={name: value - start.counters.get(name, value) for name, value in end.counters.items()},
            clock_step_s=end.wall_s - start.wall_s - elapsed_s,
        )


def process_times(pid: int) -> ProcessTimes | None:
    """What the kernel tells of a process (proc(5)), its ended threads included, or None when it has gone."""
    scheduled_s = 0.0
    with suppress(OSError):  # its CPU-time clock, numbered as clock_getcpuclockid(3) does
        scheduled_s = time.clock_gettime(~pid << 3 | 2)
    return _times(f"/proc/{pid}", scheduled_s)


def thread_times(pid: int) -> Mapping[int, ProcessTimes]:
    """Thread → what it alone has used; memory is its process's. Empty when the process has gone."""
    found: dict[int, ProcessTimes] = {}
    for tid in thread_ids(pid):
        folder = f"/proc/{pid}/task/{tid}"
        schedule = readable(f"{folder}/schedstat").split()  # empty where the kernel does not tell, or it ended
        if times := _times(folder, int(schedule[0]) * 1e-9 if schedule else 0.0):
            found[tid] = times
    return found


def thread_ids(pid: int) -> list[int]:
    """Those alive, in order; empty when the process has gone."""
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []


def _times(folder: str, scheduled_s: float) -> ProcessTimes | None:
    try:
        with open(f"{folder}/stat", "rb") as handle:
            return parse_times(handle.read(), scheduled_s)
    except (OSError, IndexError, ValueError):
        return None  # it ended while we looked


def parse_times(stat: bytes, scheduled_s: float = 0.0, page_bytes: int = PAGE_BYTES) -> ProcessTimes:
    """A /proc/PID/stat; `scheduled_s` is what the scheduler counted, 0 = unknown. ValueError or IndexError for anything else."""
    title, fields = parse_stat(stat)
    user_s, system_s = int(fields[11]) * TICK_S, int(fields[12]) * TICK_S
    return ProcessTimes(
        title=title,
        threads=int(fields[17]),
        user_s=user_s,
        system_s=system_s,
        cpu_s=scheduled_s or user_s + system_s,
        minflt=int(fields[7]),
        majflt=int(fields[9]),
        vsz_bytes=int(fields[20]),
        rss_bytes=int(fields[21]) * page_bytes,
    )


def parse_stat(text: bytes) -> tuple[str, list[bytes]]:
    """(command name, fields from `state` on): the name may hold spaces and parentheses."""
    name, _, rest = text.partition(b"(")[2].rpartition(b")")
    return name.decode("utf-8", "replace"), rest.split()


def cpu_times() -> Mapping[int, CpuTimes]:
    """Of this machine."""
    with open("/proc/stat") as handle:
        return parse_cpus(handle)


def parse_cpus(stat: Iterable[str]) -> Mapping[int, CpuTimes]:
    """Per CPU, from the lines of /proc/stat: busy (all but idle, iowait and steal), steal, all, and interrupts."""
    found: dict[int, CpuTimes] = {}
    for line in stat:
        name, *values = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, idle, iowait, irq, softirq, steal = (int(value) * TICK_S for value in values[:8])
            busy = user + nice + system + irq + softirq
            found[int(name[3:])] = CpuTimes(busy, steal, busy + idle + iowait + steal, irq + softirq)
    return found


def spans(start: Mapping[int, CpuTimes], end: Mapping[int, CpuTimes]) -> Mapping[int, CpuTimes]:
    """What each CPU did between two looks at it; all of it is at least its parts, though the kernel's iowait may fall (proc(5))."""
    found: dict[int, CpuTimes] = {}
    for cpu, now in end.items():
        if was := start.get(cpu):
            busy_s, steal_s, total_s, interrupts_s = (
                max(0.0, after - before) for before, after in zip(astuple(was), astuple(now), strict=True)
            )
            found[cpu] = CpuTimes(busy_s, steal_s, max(total_s, busy_s + steal_s), interrupts_s)
    return found


def other_processes_s() -> float | None:
    """CPU seconds so far of every process on the host that is neither the lab's nor a kernel thread; None if hidden.

    Ended children that were waited for are in it. The lab's own are the descendants of the process `LAB_OUTER_PID`.
    """
    proc, own = host_proc()
    found = host_processes(proc)
    if own not in found:
        return None
    return sum(process.cpu_s for pid, process in found.items() if not descends(pid, (own, KTHREADD), found))


def busiest(during_s: float = 0.5) -> dict[str, float]:
    """Name → the CPUs that processes of that name use which are not the lab's, the busiest first; empty where they cannot be seen.

    Looks at them twice, `during_s` apart. What is more than all CPUs have is of a child that ended and was waited for, at whatever time it was used.
    """
    proc, own = host_proc()
    start, most_s = host_processes(proc), during_s * (os.cpu_count() or 1)
    time.sleep(during_s)
    found: dict[str, float] = {}
    for pid, process in (end := host_processes(proc)).items():
        was = start.get(pid)
        if own in end and was and was.start == process.start and not descends(pid, (own, KTHREADD), end):
            used_s = process.cpu_s - was.cpu_s
            if 0 <= used_s <= most_s + TICK_S:
                found[process.title] = found.get(process.title, 0.0) + used_s / during_s
    return dict(sorted(found.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True)
class HostProcess:
    """`start` tells it from another that is given its number later."""

    parent: int
    start: int
    title: str
    cpu_s: float
    """Its own and that of children it has waited for."""


def host_processes(proc: str) -> Mapping[int, HostProcess]:
    """All that a /proc shows, by number, but for those that end meanwhile."""
    found: dict[int, HostProcess] = {}
    for pid in filter(str.isdigit, os.listdir(proc)):
        with suppress(OSError), open(f"{proc}/{pid}/stat", "rb") as stat:
            title, fields = parse_stat(stat.read())
            cpu_s = sum(map(int, fields[11:15])) * TICK_S
            found[int(pid)] = HostProcess(int(fields[1]), int(fields[19]), title, cpu_s)
    return found


def descends(pid: int, roots: Collection[int], processes: Mapping[int, HostProcess]) -> bool:
    """From one of them, or is one."""
    while pid in processes and pid not in roots:
        pid = processes[pid].parent
    return pid in roots


def host_proc() -> tuple[str, int]:
    """The host's /proc, and the lab's outermost process in it; our own where the lab is not inside namespaces."""
    handle = os.environ.get(HOST_PROC)
    return (f"/proc/self/fd/{handle}", int(os.environ[OUTER_PID])) if handle else ("/proc", os.getpid())


def cpu_list(text: str) -> list[int]:
    """CPUs in the kernel's list form: `0-1,3` → 0, 1, 3."""
    ranges = [part.partition("-") for part in text.split(",")]
    return [cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)]


def _one_per_network(pids: Sequence[int]) -> list[int]:
    """One process of each network namespace among them."""
    found: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):  # it ended while we looked
            found.setdefault(Path(f"/proc/{pid}/ns/net").stat().st_ino, pid)
    return list(found.values())


def sent_bytes(pid: int | str) -> int | None:
    """Return how many bytes the network namespace of a process has sent so far; None when the process has gone."""
    return parse_sent(readable(f"/proc/{pid}/{INTERFACES}").splitlines())


def parse_sent(lines: Sequence[str]) -> int | None:
    """Return the bytes sent by all interfaces but the loopback, from the lines of /proc/net/dev (proc_net_dev(5)); None without any."""
    rows = [line.partition(":") for line in lines if ":" in line]
    sent = [int(numbers.split()[8]) for name, _, numbers in rows if name.strip() != "lo"]
    return sum(sent) if sent else None


def network_counters(pid: int | str) -> Mapping[str, int]:
    """TCP and connection-tracking counters of the network namespace that a process (or `thread-self`) lives in."""
    tables = (readable(f"/proc/{pid}/net/{name}") for name in ("netstat", "snmp", "stat/nf_conntrack"))
    return parse_network(*map(str.splitlines, tables))


def parse_network(netstat: Sequence[str], snmp: Sequence[str], conntrack: Sequence[str]) -> Mapping[str, int]:
    """The same from the lines of /proc/net/netstat, snmp and stat/nf_conntrack; what is not there is left out."""
    found: dict[str, int] = {}
    for lines in (netstat, snmp):
        for head, values in zip(lines[::2], lines[1::2], strict=False):
            group, *names = head.split()
            counts = dict(zip(names, values.split()[1:], strict=False))
            found |= {key: int(counts[key]) for table, key in COUNTED if table == group.rstrip(":") and key in counts}
    head, *rows = conntrack or [""]
    columns = head.split()
    for name in {"drop", "early_drop"} & set(columns):
        found[f"conntrack_{name}"] = sum(int(row.split()[columns.index(name)], 16) for row in rows)
    return found
