"""The prerequisites of every target, each found out by trying it: what is there, and how to get what is not.

Trusts no version string where it can try the thing itself: namespaces are made, sysctls written inside them, a
process limited by a cgroup of its own. Refuses to repair anything, and to judge: `doctor` does.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from lab import generators
from lab.base.errors import UsageError
from lab.base.files import readable, runs_folder
from lab.systems.table import CONTROLLERS, SYSTEMS
from lab.targets.apiserver import programs
from lab.targets.cluster import docker
from lab.targets.common.sampler import cpu_times, spans
from lab.targets.local import target as local
from lab.targets.local.control_plane import services
from lab.targets.local.sandbox import cgroups

Need = Literal["local", "apiserver", "kind", "remote", "optional"]
APISERVER: tuple[Need, ...] = ("apiserver",)
LOCAL: tuple[Need, ...] = ("local", "apiserver")
"""Both run the same processes."""
KIND: tuple[Need, ...] = ("kind",)
REMOTE: tuple[Need, ...] = ("remote",)
OPTIONAL: tuple[Need, ...] = ("optional",)
TARGETS: tuple[Need, ...] = ("local", "apiserver", "kind", "remote")
SHELL = "start it by scripts/shell, which brings it"
BROUGHT = "it is brought when it is first needed: scripts/bring {}"
ROOT = "run the lab as root (sudo -E scripts/shell …), or use --target kind"
FREE_BYTES = 2 * 1024**3
OPEN_FILES = 4096
STEAL_PERCENT = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One prerequisite. `missing` is something a target cannot do without, `optional` what only narrows it."""

    check: str
    needed_by: tuple[Need, ...]
    ok: bool
    found: str
    remedy: str = ""

    @property
    def status(self) -> Literal["ok", "missing", "optional"]:
        if self.ok:
            return "ok"
        return "optional" if self.needed_by == OPTIONAL else "missing"


@dataclass(frozen=True, slots=True)
class Tool:
    """A program, how it tells its version, and the oldest that will do, with the reason; without one any version will."""

    name: str
    version: Sequence[str]
    minimum: tuple[int, ...]
    needed_by: tuple[Need, ...]
    why: str = ""
    remedy: str = SHELL


_VERSIONED = (
    Tool("nginx", ["-v"], (1, 19, 10), LOCAL, "upstream keepalive_time", "apt-get install nginx, or scripts/shell"),
    Tool("kustomize", ["version"], (5, 0), TARGETS, "components"),
    Tool("ip", ["-V"], (5, 0), LOCAL, "network namespaces", "apt-get install iproute2"),
    Tool("ss", ["-V"], (5, 0), LOCAL, "reads the accept queues back", "apt-get install iproute2"),
    Tool("unshare", ["--version"], (2, 36), LOCAL, "--map-user", "apt-get install util-linux"),
    Tool("setpriv", ["--version"], (2, 33), LOCAL, "--pdeathsig", "apt-get install util-linux"),
    Tool("git", ["--version"], (2, 20), LOCAL, "the commit that a run records", "apt-get install git"),
    Tool("kubectl", ["version", "--client"], (1, 28), ("kind", "remote"), "", BROUGHT.format("kubectl")),
    Tool("kind", ["version"], (0, 27), KIND, "", BROUGHT.format("kind")),
    *(
        Tool(tool.name, tool.argv, tool.least, OPTIONAL, tool.why, tool.remedy)
        for system in SYSTEMS
        for tool in system.tools
    ),
    Tool("tc", ["-V"], (5, 0), OPTIONAL, "slow links", "apt-get install iproute2"),
    Tool("lsattr", ["-V"], (1, 40), OPTIONAL, "access logs on a slow disk", "apt-get install e2fsprogs"),
    Tool("sockperf", ["--version"], (3, 6), OPTIONAL, "the bare network's round trip", "apt-get install sockperf"),
)
TOOLS = (
    *(
        Tool(name, [], (), LOCAL, remedy=local.PACKAGES)
        for name in local.TOOLS
        if name not in {tool.name for tool in _VERSIONED}
    ),
    *_VERSIONED,
)

NAMESPACES = """
set -e
mount -t tmpfs lab /run && echo namespaces
ip link set lo up && ip netns add a && ip netns add b
ip link add v0 netns a type veth peer name v1 netns b && echo veth
ip netns exec a sh -ec 'cd /proc/sys/net
  set_and_read() { printf "%s" "$2" >"$1"; [ "$(tr "\\t" " " <"$1")" = "$2" ]; }
  set_and_read core/somaxconn 32768
  set_and_read ipv4/ip_local_port_range "1024 65000"
  set_and_read ipv4/tcp_max_syn_backlog 8192' && echo sysctls
ip netns exec a tc qdisc add dev v0 root tbf rate 1mbit burst 32kbit latency 400ms && echo tbf
"""
"""Everything the local target does to a kernel, in the order it does it; each line printed is one thing that worked."""
STEPS: Mapping[str, tuple[str, tuple[Need, ...], str, str]] = {
    "namespaces": ("namespaces", LOCAL, "user, pid, mount, network; /run covered", ""),
    "veth": ("network namespaces, veth", LOCAL, "made inside", f"modprobe veth; or {ROOT}"),
    "sysctls": ("sysctls of a namespace", LOCAL, "somaxconn, port range, SYN backlog", f"a newer kernel; or {ROOT}"),
    "tbf": ("slow link (tc tbf)", OPTIONAL, "works on a veth", "modprobe sch_tbf; only the sweep slow-link needs it"),
}
"""Line that NAMESPACES prints → check, needed by, what is found when it worked, and the remedy."""


def checks() -> list[Finding]:
    """Every check, tried side by side, in the order of the table. Changes nothing that outlives it."""
    every: list[Callable[[], Iterable[Finding]]] = [
        _machine,
        _steal,
        _namespaces,
        _nat,
        _cgroup,
        _disk,
        *(lambda tool=tool: [check_tool(tool)] for tool in TOOLS),
        _generators,
        _controllers,
        _docker,
        _contexts,
    ]
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(chain.from_iterable(pool.map(lambda check: check(), every)))


def _machine() -> list[Finding]:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = files == resource.RLIM_INFINITY or files >= OPEN_FILES
    python = ".".join(map(str, sys.version_info[:3]))
    linux = sys.platform == "linux"
    more = f"at least {OPEN_FILES}: raise nofile in /etc/security/limits.conf, then log in again"
    return [
        Finding("Linux", LOCAL, linux, f"{os.uname().sysname} {os.uname().release}", "use --target kind or remote"),
        Finding("Python", TARGETS, sys.version_info >= (3, 11), python, "Python 3.11 or newer"),
        Finding("CPUs", LOCAL, cpus >= 2, str(cpus), "two at least: one for the proxy, one for the load"),
        Finding("open files (hard limit)", LOCAL, enough, "unlimited" if files < 0 else str(files), more),
    ]


def _steal() -> list[Finding]:
    """What the hypervisor takes from this machine, over half a second of the other checks' own work."""
    try:
        start = cpu_times()
        time.sleep(0.5)  # a rate needs time to pass; nothing is being waited for
        seen = spans(start, cpu_times()).values()
    except OSError as error:
        return [Finding("hypervisor steal", OPTIONAL, False, str(error), "none: it stays unknown")]
    percent = 100 * sum(cpu.steal_s for cpu in seen) / (sum(cpu.total_s for cpu in seen) or 1.0)
    remedy = f"samples with {STEAL_PERCENT:.0f} % and more are invalid: a quieter hour, or a dedicated machine"
    return [Finding("hypervisor steal", OPTIONAL, percent < STEAL_PERCENT, f"{percent:.1f} %", remedy)]


def _namespaces() -> list[Finding]:
    """The steps follow each other: the first that fails has the complaint, the others were not reached."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    rest = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net"]
    output, status = _run(["unshare", *user, *rest, "sh", "-c", NAMESPACES])
    said = output.splitlines()
    complaint = _last_line(line for line in said if line not in STEPS) or f"exit status {status}"
    found: list[Finding] = []
    for step, (check, needed_by, good, remedy) in STEPS.items():
        if step in said:
            found.append(Finding(check, needed_by, True, good))
        elif all(before.ok for before in found):
            found.append(Finding(check, needed_by, False, complaint, remedy or _userns_remedy()))
        else:
            found.append(Finding(check, needed_by, False, "not tried", "the above first"))
    return found


def _userns_remedy() -> str:
    """Which of the kernel's ways to forbid user namespaces is in force, and how to lift it."""
    for setting, forbids, command in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    ):
        if readable(Path("/proc/sys", setting)).strip() == forbids:
            return f"sudo sysctl -w {command}; or {ROOT}"
    in_container = "in a container: start it with --privileged"
    return f"{in_container}, or use --target kind" if os.geteuid() == 0 else f"{in_container}; otherwise {ROOT}"


def _nat() -> list[Finding]:
    """Whether a Service's NAT can be had in a namespace, by loading one."""
    fault = services.nft_fault()
    found = "works" if fault is None else "nft is not on PATH" if fault == services.MISSING else fault
    remedy = "apt-get install nftables" if fault == services.MISSING else "modprobe nft_chain_nat nft_masq nft_numgen"
    remedy += "; only variants behind a Service of type LoadBalancer need it"
    return [Finding("service NAT (nftables)", OPTIONAL, fault is None, found, remedy)]


def _cgroup() -> list[Finding]:
    """Whether a process of ours can be limited, by limiting one."""
    ok, said = cgroups.trial()
    remedy = "variants with such limits are not measurable here: sudo on version 1; on 2 systemd-run --user --scope -p Delegate=yes"
    return [Finding("limits of CPU and memory (cgroup)", OPTIONAL, ok, said, remedy)]


def _disk() -> list[Finding]:
    """Free space where runs go; the nearest folder that exists decides, since the first run makes the rest."""
    runs = runs_folder()
    # not Path.exists, which raises below a folder that is closed to us
    there = next(folder for folder in (runs, *runs.parents) if os.access(folder, os.F_OK))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        said = f"{there} is no folder that we may write into"
        return [Finding("disk for data/runs", LOCAL, False, said, "set LAB_RUNS to a folder of yours")]
    free = shutil.disk_usage(there).free
    found = f"{free / 1024**3:.1f} GB free in {there}"
    remedy = f"free {FREE_BYTES // 1024**3} GB, or set LAB_RUNS to a folder with room"
    return [Finding("disk for data/runs", LOCAL, free >= FREE_BYTES, found, remedy)]


def check_tool(tool: Tool) -> Finding:
    def finding(ok: bool, found: str) -> Finding:
        return Finding(tool.name, tool.needed_by, ok, found, tool.remedy)

    path = shutil.which(tool.name)
    if path is None or not tool.minimum:
        return finding(path is not None, path or "not on PATH")
    output, _ = _run([path, *tool.version])
    version = re.search(r"\d+(\.\d+)+", output)
    if version is None:
        return finding(False, f"{path} tells no version: {_last_line([output])}")
    if tuple(map(int, version[0].split("."))) >= tool.minimum:
        return finding(True, version[0])
    at_least = ".".join(map(str, tool.minimum)) + (f" ({tool.why})" if tool.why else "")
    return finding(False, f"{version[0]}, at least {at_least} wanted")


def _generators() -> list[Finding]:
    """As the lab itself finds them. The default sweep is made by wrk and k6; the others widen the choice."""
    needs: Mapping[str, tuple[Need, ...]] = {"wrk": TARGETS, "k6": TARGETS}
    findings: list[Finding] = []
    for name, generator in sorted(generators.GENERATORS.items(), key=lambda item: item[0] not in needs):
        installed = generators.find(generator)
        found = installed.version if installed else f"no working {generator.binary} on PATH"
        findings.append(Finding(name, needs.get(name, OPTIONAL), installed is not None, found, generator.remedy))
    return findings


def _controllers() -> list[Finding]:
    """What the target apiserver runs; what is not there yet is made when it is first used, where that can be done."""
    makers = [name for name in ("go", "apt-get", "dpkg-deb") if shutil.which(name) is None]
    wanted: dict[str, Callable[[], str]] = {
        name: lambda name=name: programs.version(programs.server(name)) for name in programs.SERVERS
    }
    wanted |= {f"controller {name}": found.about for name, found in CONTROLLERS.items() if found.made}
    found: list[Finding] = []
    for name, look in wanted.items():
        try:
            found.append(Finding(name, APISERVER, True, look()))
        except UsageError as error:
            said = f"lacks {', '.join(makers)} to make it" if makers else "made when the target is first used"
            found.append(Finding(name, APISERVER, not makers, said, error.remedy))
    return found


def _docker() -> list[Finding]:
    try:
        engine = docker.engine()
    except UsageError as error:
        return [Finding("Docker", KIND, False, error.fault, error.remedy)]
    free = docker.free_bytes(engine)
    room = free is None or free >= docker.DISK_BYTES
    found = (
        f"{free / 2**30:.1f} GB free in {engine.root}" if free is not None else f"{engine.root} is not this machine's"
    )
    remedy = (
        f"a cluster takes up to {docker.DISK_BYTES >> 30} GB: `docker system prune` removes what Docker does not use"
    )
    return [
        Finding("Docker", KIND, True, f"engine {engine.version}"),
        Finding("disk for Docker", KIND, room, found, remedy),
    ]


def _contexts() -> list[Finding]:
    output, status = _run(["kubectl", "config", "get-contexts", "--output", "name"])
    names = output.split() if status == 0 else []
    found = ", ".join(names) or _last_line([output]) or "none in your kubeconfig"
    remedy = "a kubeconfig with a context for the cluster; KUBECONFIG names another file"
    return [Finding("kubectl contexts", REMOTE, bool(names), found, remedy)]


def _run(argv: Sequence[str], timeout_s: float = 10.0) -> tuple[str, int]:
    """Both outputs of a command and its exit status; a failure to run it reads like its own complaint."""
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        done = subprocess.run(
            argv, stdin=nothing, stdout=pipe, stderr=subprocess.STDOUT, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{argv[0]}: no answer in {timeout_s:.0f} s", 124
    except OSError as error:
        return f"{argv[0]}: {error.strerror}", 127
    return done.stdout.decode(errors="replace"), done.returncode


def _last_line(lines: Iterable[str]) -> str:
    """The last line that says something, where programs put what went wrong."""
    return next((line.strip() for line in reversed("\n".join(lines).splitlines()) if line.strip()), "")
