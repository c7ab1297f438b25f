"""A snapshot of a container by its own `sh`: what it is asked, and what the answer says.

    @/proc/uptime                     the shell prints every file behind its name, and of processes and threads the
    25211.42 48123.90                 lines of /proc/PID/stat
    @processes
    1 (page) S 0 1 1 …           →   Snapshot(uptime_s=25211.42, processes={1: ProcessTimes("page", …)}, …)

Looking must not be what is measured: no program is started where few processes run (from `MANY` on one `cat` is cheaper), and both ends of a sample
ask everything else outside of what the CPU's reading brackets. Refuses to count itself: the shell and its children are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from lab.base.errors import MeasuringError
from lab.targets.cluster.shell import Shell
from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS, Controller
from lab.targets.common.sampler import INTERFACES, ProcessTimes, cpu_list, parse_stat, parse_times

_REMEDY = "use a container runtime that shows its containers the kernel's own /proc and /sys/fs/cgroup"
When = Literal["opening", "meanwhile", "closing"]

MANY = 12
TIMEOUT_S = 10.0
SENT = f"/proc/{INTERFACES}"
NETWORK = ("/proc/net/netstat", "/proc/net/snmp", "/proc/net/stat/nf_conntrack")
_BOOT_ID, _CGROUP, _MOUNTS = "/proc/sys/kernel/random/boot_id", "/proc/self/cgroup", "/proc/self/mountinfo"
_FILE = """\
_file() {
  echo "@$1"
  while IFS= read -r line || [ -n "$line" ]; do echo "$line"; done <"$1"
}
"""
_ABOUT = f"""\
{_FILE}
_file {_BOOT_ID}
_file {_CGROUP}
echo @{_MOUNTS}
while IFS= read -r line; do case $line in *cgroup*) echo "$line" ;; esac; done <{_MOUNTS}
echo @cpus
while read -r name value; do [ "$name" != Cpus_allowed_list: ] || echo "$value"; done </proc/self/status
echo @page
while read -r name value rest; do [ "$name" != KernelPageSize: ] || {{ echo "$value"; break; }}; done </proc/self/smaps
echo @network
readlink /proc/self/ns/net
"""
_PROCESSES = f"""\
_file /proc/uptime
echo @processes
set -- /proc/[0-9]*
if [ $# -gt {MANY} ]; then
  cat /proc/[0-9]*/stat
else
  for one; do IFS= read -r line <"$one/stat" && echo "$line"; done
fi
"""
_THREADS = f"""\
for process in /proc/[0-9]*; do
  set -- "$process"/task/*
  [ $# -gt 1 ] || continue
  echo "@threads ${{process#/proc/}}"
  if [ $# -gt {MANY} ]; then
    cat "$process"/task/*/stat
  else
    for one; do IFS= read -r line <"$one/stat" && echo "$line"; done
  fi
done
"""
_CPUS = """\
echo @/proc/stat
while IFS= read -r line; do case $line in cpu*) echo "$line" ;; *) break ;; esac; done </proc/stat
"""
_CLOCK = """\
echo @clock
IFS= read -r line </proc/uptime && echo "$line"
date +%s.%N
"""


@dataclass(frozen=True, slots=True)
class Container:
    """What stays as it is while a container runs. `boot_id` tells machines apart: two nodes of kind are one.

    `cpus`: those that it may use. `network`: its network namespace, which pods on the host's network share; "" where it
    cannot be told. `groups`: controller (and `cpuacct`) → where its files lie.
    """

    boot_id: str
    cpus: frozenset[int]
    page_bytes: int
    network: str
    groups: Mapping[str, cgroup.Place]

    @property
    def usage_file(self) -> str:
        place = self.groups["cpuacct"]
        return f"{place.folder}/{cgroup.USAGE_FILES[place.version]}"

    def files(self, controller: Controller, which: Mapping[tuple[int, Controller], tuple[str, ...]]) -> list[str]:
        """Paths of `cgroup.LIMIT_FILES` or `COUNT_FILES`."""
        place = self.groups[controller]
        return [f"{place.folder}/{name}" for name in which[place.version, controller]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`uptime_s` is the machine's own clock; threads by (process, thread), of processes that have several."""

    uptime_s: float
    processes: Mapping[int, ProcessTimes]
    threads: Mapping[tuple[int, int], ProcessTimes]
    files: Mapping[str, Sequence[str]]

    def text(self, path: str) -> str:
        return "\n".join(self.files.get(path, ()))


def about(shell: Shell) -> Container:
    """Ask once. MeasuringError where the container does not show its own cgroups, or the question was not answered."""
    files = _files(shell, _ABOUT)
    cgroups, mounts = "\n".join(files.get(_CGROUP, ())), "\n".join(files.get(_MOUNTS, ()))
    try:
        groups = {name: cgroup.place(name, cgroups, mounts) for name in (*CONTROLLERS, "cpuacct")}
    except (LookupError, ValueError) as error:
        raise MeasuringError(shell.place, f"does not show what it uses: {error}", _REMEDY) from None
    try:
        (boot_id,), (cpus,), (page_kib,) = files[_BOOT_ID], files["cpus"], files["page"]
        network = " ".join(files.get("network", ()))
        return Container(boot_id, frozenset(cpu_list(cpus)), int(page_kib) * 1024, network, groups)
    except (KeyError, ValueError):
        raise MeasuringError(shell.place, "its /proc does not tell machine, CPUs and page size", _REMEDY) from None


def snapshot(shell: Shell, container: Container, script: str) -> Snapshot:
    """Ask a `script` made by `question`. MeasuringError when it was not answered in time."""
    files = _files(shell, script)
    stats = {pid: (parent, times) for pid, parent, times in _stats(files.get("processes", ()), container)}

    def ours(pid: int) -> bool:
        while pid in stats and pid != shell.pid:
            pid = stats[pid][0]
        return pid == shell.pid

    threads: dict[tuple[int, int], ProcessTimes] = {}
    for name, lines in files.items():
        if name.startswith("threads ") and not ours(pid := int(name.split()[1])):
            threads |= {(pid, tid): times for tid, _, times in _stats(lines, container)}
    processes = {pid: times for pid, (_, times) in stats.items() if not ours(pid)}
    try:
        (uptime,) = files["/proc/uptime"]
        return Snapshot(float(uptime.split()[0]), processes, threads, files)
    except (KeyError, ValueError):
        raise MeasuringError(shell.place, "a look into it showed no /proc/uptime", _REMEDY) from None


def question(
    when: When,
    container: Container,
    threads: bool = False,
    cpus: bool = False,
    network: bool = False,
    clock: bool = False,
) -> str:
    """The script of one snapshot. At an end: also what was used and counted, the CPUs, the network's counters, the clock.

    What the CPU's reading brackets is as short as can be: it comes last when a sample begins and first when it ends.
    """
    processes = _PROCESSES + (_THREADS if threads else "") + (f"_file {SENT}\n" if network else "")
    if when == "meanwhile":
        return _FILE + processes
    exact = f"_file {container.usage_file}\n"
    counts = [path for name in CONTROLLERS for path in container.files(name, cgroup.COUNT_FILES)]
    limits = [path for name in CONTROLLERS for path in container.files(name, cgroup.LIMIT_FILES)]
    rest = [_CLOCK] if clock else []
    rest += [f"_file {path}\n" for path in (*limits, *(NETWORK if network else ()))]
    near = [f"_file {path}\n" for path in counts if path != container.usage_file] + ([_CPUS] if cpus else [])
    if when == "opening":
        return "".join([_FILE, *rest, processes, *near, exact])
    return "".join([_FILE, exact, *near, processes, *reversed(rest)])


def _files(shell: Shell, script: str) -> dict[str, list[str]]:
    """Name → lines. Files that are not there are expected: what the shell says of them is not told."""
    done = shell.script(f"{{\n{script}}} 2>/dev/null\ntrue\n", TIMEOUT_S)
    if done.returncode:
        raise MeasuringError(
            shell.place, f"a look into it failed: {done.stderr.strip()[-200:]}", "see what its node is doing"
        )
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            lines = found.setdefault(line[1:], [])
        else:
            lines.append(line)
    return found


def _stats(lines: Iterable[str], container: Container) -> Iterator[tuple[int, int, ProcessTimes]]:
    """(process or thread, its parent, times) of every /proc/PID/stat but of those that ended while we looked.

    CPU time is in clock ticks: the scheduler's own count is a file per thread, and what a container used its cgroup says.
    """
    for stat in map(str.encode, lines):
        with suppress(IndexError, ValueError):
            times = parse_times(stat, page_bytes=container.page_bytes)
            yield int(stat.split(None, 1)[0]), int(parse_stat(stat)[1][1]), times
