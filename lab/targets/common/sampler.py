"""A sampler that reads the CPU time and memory of processes from /proc once a second while a measurement runs.

Counters of the kernel are read at the beginning and at the end of the measurement. Threads of the proxy and the
backend are recorded as well if a process has several, as `pidstat -t` does.

Process times come from the scheduler's nanosecond clock, which includes the use of ended threads. (A sum over living
threads would fall with each thread that ends.) Thread times come from the thread's schedstat. If the kernel does not
report these times, clock ticks are used.

Processes that are not the lab's are read from the host's /proc, which is passed into the lab's namespaces as an open
folder (`find_host_proc`). Kernel threads do not count as such processes, because they process the packets of the load.
When a process ends, its CPU time is added to that of the parent that waits for it. So the sum over all processes and
their ended children includes every ended process that a parent waited for.
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

from lab.base.files import read_text_if_readable
from lab.model.usage import USAGE_SCHEMA, Observation, Usage

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
"""The length of a clock tick in seconds."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
"""The size of a memory page in bytes."""
KTHREADD = 2
"""The process id of the parent of all kernel threads."""
ROLES_WITH_THREADS = frozenset({"proxy", "backend"})
"""The roles whose threads are recorded one by one."""
RESIDUAL_NOISE = 0.15
"""The busy fraction of a CPU that clock ticks may wrongly show in addition to our own processes.

Up to 0.11 was measured on a quiet machine.
"""
COUNTERS = {
    ("TcpExt", "ListenOverflows"),
    ("TcpExt", "ListenDrops"),
    ("TcpExt", "TCPTimeouts"),
    ("Tcp", "ActiveOpens"),
    ("Tcp", "PassiveOpens"),
    ("Tcp", "InSegs"),
    ("Tcp", "OutSegs"),
    ("Tcp", "RetransSegs"),
}
"""The recorded TCP counters, as (group, name) of /proc/net/netstat and snmp."""
INTERFACES = "net/dev"
"""The file in /proc/PID with what each network interface has received and sent.

It is short, which matters because some readers read it byte by byte.
"""
HOST_PROC = "LAB_HOST_PROC"
"""The environment variable with the descriptor of the host's /proc."""
OUTER_PID = "LAB_OUTER_PID"
"""The environment variable with the process id of the lab's outermost process."""

Processes = Callable[[], Mapping[str, list[int]]]
"""A function that returns the process ids of each role."""


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """The resource use of one process or thread at one moment.

    Times and page faults are counted since the process began. Memory and the number of threads are those of the
    moment.

    Attributes:
        title: The command name.
        threads: The number of threads.
        user_s: The CPU seconds in user mode, counted in clock ticks.
        system_s: The CPU seconds in the kernel, counted in clock ticks.
        cpu_s: All CPU seconds, by the scheduler's exact clock; by clock ticks where that clock does not exist or is not
            read (on a cluster).
        minflt: The number of page faults without disk access (minor).
        majflt: The number of page faults with disk access (major).
        vsz_bytes: The virtual memory.
        rss_bytes: The resident memory.

    """

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
    """The seconds that one CPU has spent in each state, either since the machine booted or between two moments."""

    busy_s: float
    """The seconds of work: all states but idle, waiting for input or output, and steal."""
    steal_s: float
    """The seconds that the hypervisor gave to another virtual machine."""
    total_s: float
    """The seconds in all states."""
    interrupts_s: float = 0.0
    """The part of busy_s that was spent in hard and soft interrupts, whichever process they interrupted."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The clocks, CPU times and counters at the beginning or at the end of a sample.

    Attributes:
        wall_s: The time of the wall clock, in seconds since the epoch.
        monotonic_s: The time of the monotonic clock, in seconds.
        cpus: CPU number → the times of the CPU since the machine booted.
        others_s: The CPU seconds that processes other than the lab's have used so far; None if they cannot be seen.
        counters: The cumulative counters by `role/name`, such as those of the proxy's network namespace.

    """

    wall_s: float
    monotonic_s: float
    cpus: Mapping[int, CpuTimes]
    others_s: float | None
    counters: Mapping[str, int]


class Sampler:
    """A context manager that measures the resource use of the system's processes while its `with` block runs.

    After the block, `observation()` returns the result. The CPU time of a role is summed over all its processes. A
    process that exists at the beginning counts from then on; one that appears later counts from its start.
    """

    def __init__(
        self, processes: Processes, extra: Callable[[], Mapping[str, int]] = dict[str, int], interval_s: float = 1.0
    ) -> None:
        """Prepare the sampler; the measuring begins when the context is entered.

        Args:
            processes: The function that returns role → process ids; it is called at every reading.
            extra: The function that returns the target's own cumulative counters by `role/name`, in addition to the
                kernel's. It is called when the `with` block begins and when it ends.
            interval_s: The seconds between two readings of the processes' resource use.

        """
        self._processes, self._extra, self._interval_s = processes, extra, interval_s
        self._first: dict[tuple[str, int], float] = {}
        self._peak_bytes: dict[tuple[str, int], int] = {}
        self._last: dict[tuple[str, int], ProcessTimes] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._ends: list[_Snapshot] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._ends.append(self._take_snapshot())
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()
        self._ends.append(self._take_snapshot())

    def _run(self) -> None:
        began = time.monotonic()
        while not self._done.wait(self._interval_s - (time.monotonic() - began) % self._interval_s):
            self._look()

    def _look(self) -> None:
        """Record the present resource use of every process; for the roles in ROLES_WITH_THREADS, also that of each thread."""
        elapsed_s = time.monotonic() - self._ends[0].monotonic_s
        first = not self._first
        for role, pids in self._processes().items():
            sent = {pid: sent_bytes(pid) for pid in _select_one_per_network(pids)} if role in ROLES_WITH_THREADS else {}
            for pid in pids:
                usage = process_times(pid)
                if usage is not None:
                    self._first.setdefault((role, pid), usage.cpu_s if first else 0.0)
                    self._last[role, pid] = usage
                    self._peak_bytes[role, pid] = max(usage.rss_bytes, self._peak_bytes.get((role, pid), 0))
                    self._rows.append((elapsed_s, role, pid, None, *astuple(usage), sent.get(pid)))
                    if role in ROLES_WITH_THREADS and usage.threads > 1:
                        self._rows += [
                            (elapsed_s, role, pid, tid, *astuple(times), None)
                            for tid, times in thread_times(pid).items()
                        ]

    def _take_snapshot(self) -> _Snapshot:
        counters = Counter[str]()
        for role, pids in self._processes().items():
            for pid in _select_one_per_network(pids) if role in ("proxy", "backend") else ():
                counters.update({f"{role}/{name}": value for name, value in network_counters(pid).items()})
        counters.update(self._extra())
        return _Snapshot(time.time(), time.monotonic(), cpu_times(), other_processes_s(), counters)

    def observation(self) -> Observation:
        """Return the resource use between the beginning and the end of the `with` block; call this after the block."""
        start, end = self._ends
        elapsed_s = end.monotonic_s - start.monotonic_s
        usage = {}
        for role in dict.fromkeys(role for role, _ in self._last):
            keys = [key for key in self._last if key[0] == role]
            usage[role] = Usage(
                cpu_s=sum(self._last[key].cpu_s - self._first[key] for key in keys),
                rss_bytes=sum(self._peak_bytes[key] for key in keys),
                processes=len(keys),
            )
        cpus = subtract_cpu_times(start.cpus, end.cpus)
        total_s = sum(span.total_s for span in cpus.values())
        start_s, end_s = start.others_s, end.others_s
        return Observation(
            elapsed_s=elapsed_s,
            usage=usage,
            rows=pl.DataFrame(self._rows, schema=USAGE_SCHEMA, orient="row"),
            busy={cpu: span.busy_s / (span.total_s or 1.0) for cpu, span in cpus.items()},
            interrupts={cpu: span.interrupts_s / (span.total_s or 1.0) for cpu, span in cpus.items()},
            steal=sum(span.steal_s for span in cpus.values()) / (total_s or 1.0),
            others=None if start_s is None or end_s is None else max(0.0, end_s - start_s) / elapsed_s,
            counters={name: value - start.counters.get(name, value) for name, value in end.counters.items()},
            clock_step_s=end.wall_s - start.wall_s - elapsed_s,
        )


def process_times(pid: int) -> ProcessTimes | None:
    """Return the resource use of a process, including its ended threads; None if the process is gone."""
    scheduled_s = 0.0
    with suppress(OSError):  # the process' CPU-time clock, numbered as clock_getcpuclockid(3) does
        scheduled_s = time.clock_gettime(~pid << 3 | 2)
    return _read_times(f"/proc/{pid}", scheduled_s)


def thread_times(pid: int) -> Mapping[int, ProcessTimes]:
    """Return the resource use of each living thread of a process, by thread id; empty if the process is gone.

    The memory in each entry is that of the whole process.
    """
    usage: dict[int, ProcessTimes] = {}
    for tid in thread_ids(pid):
        folder = f"/proc/{pid}/task/{tid}"
        schedule = read_text_if_readable(
            f"{folder}/schedstat"
        ).split()  # empty if it is not reported, or the thread ended
        if times := _read_times(folder, int(schedule[0]) * 1e-9 if schedule else 0.0):
            usage[tid] = times
    return usage


def thread_ids(pid: int) -> list[int]:
    """Return the sorted ids of a process's living threads; empty if the process is gone."""
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []


def _read_times(folder: str, scheduled_s: float) -> ProcessTimes | None:
    try:
        with open(f"{folder}/stat", "rb") as handle:
            return parse_times(handle.read(), scheduled_s)
    except (OSError, IndexError, ValueError):
        return None  # it ended in the meantime


def parse_times(stat: bytes, scheduled_s: float = 0.0, page_bytes: int = PAGE_BYTES) -> ProcessTimes:
    """Parse the content of a /proc/PID/stat file into the resource use of the process.

    Args:
        stat: The content of the file.
        scheduled_s: The CPU seconds by the scheduler's exact clock, for `cpu_s`. With 0 (unknown), the file's clock
            ticks are used.
        page_bytes: The size of a memory page in bytes.

    Raises:
        ValueError: The text has another form.
        IndexError: The text has another form.

    """
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
    """Split the content of a /proc/PID/stat file into the command name and the list of fields from `state` on.

    The command name is in parentheses, and may itself contain spaces and parentheses.
    """
    name, _, fields = text.partition(b"(")[2].rpartition(b")")
    return name.decode("utf-8", "replace"), fields.split()


def cpu_times() -> Mapping[int, CpuTimes]:
    """Return how many seconds each CPU of this machine has spent in each state since the boot, by CPU number."""
    with open("/proc/stat") as handle:
        return parse_cpus(handle)


def parse_cpus(stat: Iterable[str]) -> Mapping[int, CpuTimes]:
    """Parse the lines of /proc/stat into the times of each CPU, by CPU number.

    A CPU counts as busy in all states but idle, iowait and steal.
    """
    cpus: dict[int, CpuTimes] = {}
    for line in stat:
        name, *values = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, idle, iowait, irq, softirq, steal = (int(value) * TICK_S for value in values[:8])
            busy = user + nice + system + irq + softirq
            cpus[int(name[3:])] = CpuTimes(busy, steal, busy + idle + iowait + steal, irq + softirq)
    return cpus


def subtract_cpu_times(start: Mapping[int, CpuTimes], end: Mapping[int, CpuTimes]) -> Mapping[int, CpuTimes]:
    """Return how many seconds each CPU spent in each state between two moments, by CPU number.

    The kernel's iowait may decrease (proc(5)). So the total of a CPU is set to at least the sum of its busy and steal
    time.

    Args:
        start: CPU number → times at the first moment.
        end: CPU number → times at the second moment.

    """
    elapsed: dict[int, CpuTimes] = {}
    for cpu, now in end.items():
        if was := start.get(cpu):
            busy_s, steal_s, total_s, interrupts_s = (
                max(0.0, after - before) for before, after in zip(astuple(was), astuple(now), strict=True)
            )
            elapsed[cpu] = CpuTimes(busy_s, steal_s, max(total_s, busy_s + steal_s), interrupts_s)
    return elapsed


def other_processes_s() -> float | None:
    """Return the CPU seconds that all foreign processes on this machine have used so far, as a sum.

    A process is foreign if it is neither a kernel thread nor part of the lab (the lab's outermost process and its
    descendants). Ended children that their parent has waited for are included. The result is None if the machine's
    processes cannot be seen from here.
    """
    proc, lab_pid = find_host_proc()
    processes = host_processes(proc)
    if lab_pid not in processes:
        return None
    return sum(
        process.cpu_s for pid, process in processes.items() if not is_descendant(pid, (lab_pid, KTHREADD), processes)
    )


def find_busiest(during_s: float = 0.5) -> dict[str, float]:
    """Return how many CPUs each foreign process uses now, by process name, the busiest first.

    A process is foreign if it is neither a kernel thread nor part of the lab. The result is empty if the machine's
    processes cannot be seen. A use of more CPUs than the machine has is left out. It appears when a parent has waited
    for an ended child, because the child's whole CPU time is then added to the parent's.

    Args:
        during_s: The seconds between the two readings that are compared.

    """
    proc, lab_pid = find_host_proc()
    start, most_s = host_processes(proc), during_s * (os.cpu_count() or 1)
    time.sleep(during_s)
    usage: dict[str, float] = {}
    for pid, process in (end := host_processes(proc)).items():
        was = start.get(pid)
        if lab_pid in end and was and was.start == process.start and not is_descendant(pid, (lab_pid, KTHREADD), end):
            used_s = process.cpu_s - was.cpu_s
            if 0 <= used_s <= most_s + TICK_S:
                usage[process.title] = usage.get(process.title, 0.0) + used_s / during_s
    return dict(sorted(usage.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process of this machine, as the machine's own /proc (outside the lab's namespaces) shows it.

    Attributes:
        parent: The process id of the parent.
        start: The start time in clock ticks since the boot. It distinguishes the process from a later one with the
            same id.
        title: The command name.
        cpu_s: The CPU seconds of the process, including those of ended children that it has waited for.

    """

    parent: int
    start: int
    title: str
    cpu_s: float


def host_processes(proc: str) -> Mapping[int, HostProcess]:
    """Return all processes that a /proc folder shows, by process id.

    A process that ends during the reading is left out.

    Args:
        proc: The path of the folder, such as `/proc`.

    """
    processes: dict[int, HostProcess] = {}
    for pid in filter(str.isdigit, os.listdir(proc)):
        with suppress(OSError), open(f"{proc}/{pid}/stat", "rb") as stat:
            title, fields = parse_stat(stat.read())
            cpu_s = sum(map(int, fields[11:15])) * TICK_S
            processes[int(pid)] = HostProcess(int(fields[1]), int(fields[19]), title, cpu_s)
    return processes


def is_descendant(pid: int, roots: Collection[int], processes: Mapping[int, HostProcess]) -> bool:
    """Return whether a process is one of the processes `roots`, or a descendant of one of them.

    Args:
        pid: The id of the process.
        roots: The ids of the possible ancestors.
        processes: All processes, by id.

    """
    while pid in processes and pid not in roots:
        pid = processes[pid].parent
    return pid in roots


def find_host_proc() -> tuple[str, int]:
    """Return the path of the machine's own /proc, and the process id that the lab's outermost process has there.

    Inside the lab's namespaces, `/proc` shows only the lab's processes, so another path is returned. Outside them, the
    result is `/proc` and the id of this process.
    """
    handle = os.environ.get(HOST_PROC)
    return (f"/proc/self/fd/{handle}", int(os.environ[OUTER_PID])) if handle else ("/proc", os.getpid())


def cpu_list(text: str) -> list[int]:
    """Parse a list of CPUs in the kernel's form: `0-1,3` → [0, 1, 3]."""
    ranges = [part.partition("-") for part in text.split(",")]
    return [cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)]


def _select_one_per_network(pids: Sequence[int]) -> list[int]:
    """Return the ids of some of these processes: one for each network namespace that they are in."""
    selected: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):  # it ended in the meantime
            selected.setdefault(Path(f"/proc/{pid}/ns/net").stat().st_ino, pid)
    return list(selected.values())


def sent_bytes(pid: int | str) -> int | None:
    """Return how many bytes the network namespace of a process has sent so far, without those over the loopback.

    The result is None if the process is gone, or if the namespace has no interface but the loopback.
    """
    return parse_sent(read_text_if_readable(f"/proc/{pid}/{INTERFACES}").splitlines())


def parse_sent(lines: Sequence[str]) -> int | None:
    """Return the number of bytes sent by all interfaces but the loopback; None if there is no such interface.

    Args:
        lines: The lines of /proc/net/dev (proc_net_dev(5)).

    """
    rows = [line.partition(":") for line in lines if ":" in line]
    sent = [int(numbers.split()[8]) for name, _, numbers in rows if name.strip() != "lo"]
    return sum(sent) if sent else None


def network_counters(pid: int | str) -> Mapping[str, int]:
    """Return the cumulative TCP and connection-tracking counters of a process's network namespace, by name.

    Args:
        pid: The process id, or `thread-self` for the calling thread.

    """
    tables = (read_text_if_readable(f"/proc/{pid}/net/{name}") for name in ("netstat", "snmp", "stat/nf_conntrack"))
    return parse_network(*map(str.splitlines, tables))


def parse_network(netstat: Sequence[str], snmp: Sequence[str], conntrack: Sequence[str]) -> Mapping[str, int]:
    """Parse the lines of three files into TCP and connection-tracking counters, by name.

    Counters that the files lack are left out.

    Args:
        netstat: The lines of /proc/net/netstat.
        snmp: The lines of /proc/net/snmp.
        conntrack: The lines of /proc/net/stat/nf_conntrack; empty if there is no such file.

    """
    counters: dict[str, int] = {}
    for lines in (netstat, snmp):
        for head, values in zip(lines[::2], lines[1::2], strict=False):
            group, *names = head.split()
            counts = dict(zip(names, values.split()[1:], strict=False))
            counters |= {
                key: int(counts[key]) for table, key in COUNTERS if table == group.rstrip(":") and key in counts
            }
    head, *rows = conntrack or [""]
    columns = head.split()
    for name in {"drop", "early_drop"} & set(columns):
        counters[f"conntrack_{name}"] = sum(int(row.split()[columns.index(name)], 16) for row in rows)
    return counters
