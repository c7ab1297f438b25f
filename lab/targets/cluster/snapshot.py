"""Snapshots of a container's processes and files: the script that the container's own `sh` runs, and the parsing of its output.

The script prints every file after its name, and the lines of /proc/PID/stat for processes and threads. A part of an output, and
its snapshot:

    @/proc/uptime
    25211.42 48123.90
    @processes
    1 (page) S 0 1 1 …           →   Snapshot(uptime_s=25211.42, processes={1: ProcessTimes("page", …)}, …)

A snapshot must not disturb the measurement. So the script starts no program if few processes run; with more than `MANY`, a
single `cat` is cheaper. At the beginning and the end of a sample (a single measurement), everything else is read outside of the
interval between the two readings of the CPU use. The shell and its children are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from lab.base.errors import MeasuringError
from lab.targets.cluster.shell import Shell
from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS, CgroupController
from lab.targets.common.sampler import INTERFACES, ProcessTimes, cpu_list, parse_stat, parse_times

_REMEDY = "use a container runtime that shows its containers the kernel's own /proc and /sys/fs/cgroup"
Moment = Literal["opening", "meanwhile", "closing"]

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
_DESCRIBE = f"""\
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
class ContainerInfo:
    """The properties of a container that do not change while it runs.

    Attributes:
        boot_id: The kernel's boot ID, which identifies the machine. Several nodes of kind are containers on one
            machine, so they have the same ID.
        cpus: The numbers of the CPUs that the container may use.
        page_bytes: The size of a memory page in bytes.
        network: The identity of the container's network namespace; empty if it is unknown. Pods on the host's network
            have the same one.
        groups: Cgroup controller (`cpu`, `memory`, `cpuacct`) → the folder with the container's cgroup files.

    """

    boot_id: str
    cpus: frozenset[int]
    page_bytes: int
    network: str
    groups: Mapping[str, cgroup.CgroupPlace]

    @property
    def usage_file(self) -> str:
        """The path of the cgroup file with the CPU time that the container has used so far."""
        place = self.groups["cpuacct"]
        return f"{place.folder}/{cgroup.USAGE_FILES[place.version]}"

    def files(
        self, controller: CgroupController, names: Mapping[tuple[int, CgroupController], tuple[str, ...]]
    ) -> list[str]:
        """Return the paths of the container's cgroup files for one controller.

        Args:
            controller: The cgroup controller, `cpu` or `memory`.
            names: (Cgroup version, controller) → names of files; `cgroup.LIMIT_FILES` or `cgroup.COUNT_FILES`.

        """
        place = self.groups[controller]
        return [f"{place.folder}/{name}" for name in names[place.version, controller]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a container at one moment: its processes, threads and some files.

    Attributes:
        uptime_s: The time of the snapshot, in seconds since the machine's boot.
        processes: Process number → times and memory of the process.
        threads: (Process number, thread number) → times and memory of the thread, for processes with several threads.
        files: Path → the lines of the file, for each file that was read.

    """

    uptime_s: float
    processes: Mapping[int, ProcessTimes]
    threads: Mapping[tuple[int, int], ProcessTimes]
    files: Mapping[str, Sequence[str]]

    def text(self, path: str) -> str:
        """Return the text of a file in the snapshot; empty if the file was not read."""
        return "\n".join(self.files.get(path, ()))


def read_container_info(shell: Shell) -> ContainerInfo:
    """Read those properties of a shell's container that do not change while it runs.

    Raises:
        MeasuringError: The container does not show its own cgroups, or does not answer.

    """
    files = _run_script(shell, _DESCRIBE)
    cgroups, mounts = "\n".join(files.get(_CGROUP, ())), "\n".join(files.get(_MOUNTS, ()))
    try:
        groups = {name: cgroup.find_group(name, cgroups, mounts) for name in (*CONTROLLERS, "cpuacct")}
    except (LookupError, ValueError) as error:
        raise MeasuringError(shell.place, f"does not show what it uses: {error}", _REMEDY) from None
    try:
        (boot_id,), (cpus,), (page_kib,) = files[_BOOT_ID], files["cpus"], files["page"]
        network = " ".join(files.get("network", ()))
        return ContainerInfo(boot_id, frozenset(cpu_list(cpus)), int(page_kib) * 1024, network, groups)
    except (KeyError, ValueError):
        raise MeasuringError(shell.place, "its /proc does not show machine, CPUs and page size", _REMEDY) from None


def take_snapshot(shell: Shell, container: ContainerInfo, script: str) -> Snapshot:
    """Run a script made by `build_script` in a container, and return its output as a snapshot.

    The shell that runs the script, and its child processes, are left out of the snapshot.

    Args:
        shell: The shell into the container.
        container: The properties of the container.
        script: The script.

    Raises:
        MeasuringError: The container does not answer in time, or the answer contains no time.

    """
    files = _run_script(shell, script)
    stats = {pid: (parent, times) for pid, parent, times in _parse_stats(files.get("processes", ()), container)}

    def is_shells(pid: int) -> bool:
        while pid in stats and pid != shell.pid:
            pid = stats[pid][0]
        return pid == shell.pid

    threads: dict[tuple[int, int], ProcessTimes] = {}
    for name, lines in files.items():
        if name.startswith("threads ") and not is_shells(pid := int(name.split()[1])):
            threads |= {(pid, tid): times for tid, _, times in _parse_stats(lines, container)}
    processes = {pid: times for pid, (_, times) in stats.items() if not is_shells(pid)}
    try:
        (uptime,) = files["/proc/uptime"]
        return Snapshot(float(uptime.split()[0]), processes, threads, files)
    except (KeyError, ValueError):
        raise MeasuringError(shell.place, "a look into it showed no /proc/uptime", _REMEDY) from None


def build_script(
    when: Moment,
    container: ContainerInfo,
    threads: bool = False,
    cpus: bool = False,
    network: bool = False,
    clock: bool = False,
) -> str:
    """Return the shell script that reads one snapshot of a container.

    Every script reads the processes. At the two ends of a sample it also reads the container's CPU use, cgroup counts
    and limits. The opening script reads the CPU use last and the closing script reads it first. So the work of the
    scripts themselves counts as little as possible.

    Args:
        when: `opening` or `closing` for an end of the sample; `meanwhile` for a moment in between.
        container: The properties of the container in which the script will run.
        threads: Whether to read threads.
        cpus: Whether to read the machine's CPUs; ignored in between.
        network: Whether to read the bytes that the network has sent; at the ends the network's counters, too.
        clock: Whether to read the wall clock; ignored in between.

    """
    processes = _PROCESSES + (_THREADS if threads else "") + (f"_file {SENT}\n" if network else "")
    if when == "meanwhile":
        return _FILE + processes
    exact = f"_file {container.usage_file}\n"
    counts = [path for name in CONTROLLERS for path in container.files(name, cgroup.COUNT_FILES)]
    limits = [path for name in CONTROLLERS for path in container.files(name, cgroup.LIMIT_FILES)]
    outer = [_CLOCK] if clock else []
    outer += [f"_file {path}\n" for path in (*limits, *(NETWORK if network else ()))]
    near = [f"_file {path}\n" for path in counts if path != container.usage_file] + ([_CPUS] if cpus else [])
    if when == "opening":
        return "".join([_FILE, *outer, processes, *near, exact])
    return "".join([_FILE, exact, *near, processes, *reversed(outer)])


def _run_script(shell: Shell, script: str) -> dict[str, list[str]]:
    """Run a script in a container, and return its output split into sections: name → lines.

    A line `@NAME` of the output begins a section. The shell's error messages are dropped, because some files are
    expected to be missing.

    Raises:
        MeasuringError: The container does not answer in time.

    """
    done = shell.script(f"{{\n{script}}} 2>/dev/null\ntrue\n", TIMEOUT_S)
    if done.returncode:
        raise MeasuringError(
            shell.place, f"a look into it failed: {done.stderr.strip()[-200:]}", "see what its node is doing"
        )
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in done.stdout.splitlines():
        if line.startswith("@"):
            lines = files.setdefault(line[1:], [])
        else:
            lines.append(line)
    return files


def _parse_stats(lines: Iterable[str], container: ContainerInfo) -> Iterator[tuple[int, int, ProcessTimes]]:
    """Parse lines of /proc/PID/stat files, each about one process or thread.

    An incomplete line (of a process that ended while it was read) is skipped. The CPU times are counted in clock
    ticks, because the scheduler's exact times would take one more file per thread.

    Yields:
        The number of the process or thread, the number of its parent process, and its times and memory.

    """
    for stat in map(str.encode, lines):
        with suppress(IndexError, ValueError):
            times = parse_times(stat, page_bytes=container.page_bytes)
            yield int(stat.split(None, 1)[0]), int(parse_stat(stat)[1][1]), times
