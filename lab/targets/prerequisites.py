"""The checks of everything that the targets need on this machine, such as programs and features of the kernel.

A feature is tried rather than deduced from a version: for example, namespaces are made, and a process is limited by a
cgroup. A failed check comes with a remedy. The module only returns findings; `just doctor` judges them.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

from lab import generators
from lab.base.errors import UsageError
from lab.base.files import read_text_if_readable, runs_folder
from lab.systems.table import CONTROLLERS, SYSTEMS
from lab.targets.apiserver import programs
from lab.targets.cluster import docker
from lab.targets.common.sampler import cpu_times, subtract_cpu_times
from lab.targets.local import target as local
from lab.targets.local.control_plane import services
from lab.targets.local.sandbox import cgroups

Need = Literal["local", "apiserver", "kind", "remote", "optional"]
APISERVER: tuple[Need, ...] = ("apiserver",)
LOCAL: tuple[Need, ...] = ("local", "apiserver")
"""The two targets that run the same processes."""
KIND: tuple[Need, ...] = ("kind",)
REMOTE: tuple[Need, ...] = ("remote",)
OPTIONAL: tuple[Need, ...] = ("optional",)
TARGETS: tuple[Need, ...] = ("local", "apiserver", "kind", "remote")
SHELL_REMEDY = "start it by scripts/shell, which brings it"
BROUGHT_REMEDY = "it is brought when it is first needed: scripts/bring {}"
ROOT_REMEDY = "run the lab as root (sudo -E scripts/shell …), or use --target kind"
FREE_BYTES = 2 * 1024**3
OPEN_FILES = 4096
STEAL_PERCENT = 1.0


@dataclass(frozen=True, slots=True)
class PrerequisiteFinding:
    """The result of checking one prerequisite of the targets, such as a program or a feature of the kernel.

    Attributes:
        check: The name of the prerequisite.
        needed_by: The targets that cannot do without the prerequisite. It is (`optional`,) if no target needs it.
        ok: Whether the prerequisite is met.
        found: What the check found, in words: a version, a state, or the fault.
        remedy: How to meet the prerequisite.

    """

    check: str
    needed_by: tuple[Need, ...]
    ok: bool
    found: str
    remedy: str = ""

    @property
    def status(self) -> Literal["ok", "missing", "optional"]:
        """The status of a checked prerequisite: `ok`, `missing` or `optional`.

        `ok` means that the check succeeded. A failed check is `missing` if a target needs the prerequisite. It is
        `optional` if the prerequisite only limits what can be measured.
        """
        if self.ok:
            return "ok"
        return "optional" if self.needed_by == OPTIONAL else "missing"


@dataclass(frozen=True, slots=True)
class RequiredTool:
    """A program that targets need on PATH, with the oldest version that works.

    Attributes:
        name: The name of the program.
        version: The arguments with which the program prints its version.
        minimum: The oldest version that works, such as (1, 19, 10); empty means any version.
        needed_by: The targets that cannot do without the program. It is (`optional`,) if no target needs it.
        why: What the program or its minimum version is needed for; may be empty.
        remedy: How to get the program.

    """

    name: str
    version: Sequence[str]
    minimum: tuple[int, ...]
    needed_by: tuple[Need, ...]
    why: str = ""
    remedy: str = SHELL_REMEDY


_VERSIONED = (
    RequiredTool(
        "nginx", ["-v"], (1, 19, 10), LOCAL, "upstream keepalive_time", "apt-get install nginx, or scripts/shell"
    ),
    RequiredTool("kustomize", ["version"], (5, 0), TARGETS, "components"),
    RequiredTool("ip", ["-V"], (5, 0), LOCAL, "network namespaces", "apt-get install iproute2"),
    RequiredTool("ss", ["-V"], (5, 0), LOCAL, "reads the accept queues back", "apt-get install iproute2"),
    RequiredTool("unshare", ["--version"], (2, 36), LOCAL, "--map-user", "apt-get install util-linux"),
    RequiredTool("setpriv", ["--version"], (2, 33), LOCAL, "--pdeathsig", "apt-get install util-linux"),
    RequiredTool("git", ["--version"], (2, 20), LOCAL, "the commit that a run records", "apt-get install git"),
    RequiredTool("kubectl", ["version", "--client"], (1, 28), ("kind", "remote"), "", BROUGHT_REMEDY.format("kubectl")),
    RequiredTool("kind", ["version"], (0, 27), KIND, "", BROUGHT_REMEDY.format("kind")),
    *(
        RequiredTool(tool.name, tool.argv, tool.least, OPTIONAL, tool.why, tool.remedy)
        for system in SYSTEMS
        for tool in system.tools
    ),
    RequiredTool("tc", ["-V"], (5, 0), OPTIONAL, "slow links", "apt-get install iproute2"),
    RequiredTool("lsattr", ["-V"], (1, 40), OPTIONAL, "access logs on a slow disk", "apt-get install e2fsprogs"),
    RequiredTool(
        "sockperf", ["--version"], (3, 6), OPTIONAL, "the bare network's round trip", "apt-get install sockperf"
    ),
)
TOOLS = (
    *(
        RequiredTool(name, [], (), LOCAL, remedy=local.PACKAGES)
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
ip -n a tuntap add delayed mode tap && tc -n a qdisc add dev v0 ingress &&
  tc -n a filter add dev v0 parent ffff: protocol ip u32 match u32 0 0 action mirred egress redirect dev delayed && echo delay
"""
"""The shell script that tries all features of the kernel that the local target uses, in the same order.

The script prints the name of each step that has worked, one per line.
"""
STEPS: Mapping[str, tuple[str, tuple[Need, ...], str, str]] = {
    "namespaces": ("namespaces", LOCAL, "user, pid, mount, network; /run covered", ""),
    "veth": ("network namespaces, veth", LOCAL, "made inside", f"modprobe veth; or {ROOT_REMEDY}"),
    "sysctls": (
        "sysctls of a namespace",
        LOCAL,
        "somaxconn, port range, SYN backlog",
        f"a newer kernel; or {ROOT_REMEDY}",
    ),
    "tbf": ("slow link (tc tbf)", OPTIONAL, "works on a veth", "modprobe sch_tbf; only the sweep slow-link needs it"),
    "delay": (
        "delayed link (tap device, tc mirred)",
        OPTIONAL,
        "works on a veth",
        "modprobe tun sch_ingress cls_u32 act_mirred, and /dev/net/tun open to you; only http2-download and http2-upload need it",
    ),
}
"""Step that the script NAMESPACES prints → (name of the check, targets that need it, text if it works, remedy)."""


def make_checks() -> list[PrerequisiteFinding]:
    """Check all prerequisites, four at a time, and return the findings in a fixed order.

    The checks undo their changes, with one exception: if systemd has delegated the lab's cgroup, the cgroup stays
    prepared for limits (see `cgroups.try_limits`).
    """
    every: list[Callable[[], Iterable[PrerequisiteFinding]]] = [
        _check_machine,
        _check_steal,
        _check_namespaces,
        _check_nat,
        _check_cgroup,
        _check_disk,
        *(lambda tool=tool: [check_tool(tool)] for tool in TOOLS),
        _check_generators,
        _check_controllers,
        _check_docker,
        _check_contexts,
    ]
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(chain.from_iterable(pool.map(lambda check: list(check()), every)))


def _check_machine() -> list[PrerequisiteFinding]:
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = files == resource.RLIM_INFINITY or files >= OPEN_FILES
    python = ".".join(map(str, sys.version_info[:3]))
    linux = sys.platform == "linux"
    files_remedy = f"at least {OPEN_FILES}: raise nofile in /etc/security/limits.conf, then log in again"
    return [
        PrerequisiteFinding(
            "Linux", LOCAL, linux, f"{os.uname().sysname} {os.uname().release}", "use --target kind or remote"
        ),
        PrerequisiteFinding("Python", TARGETS, sys.version_info >= (3, 11), python, "Python 3.11 or newer"),
        PrerequisiteFinding("CPUs", LOCAL, cpus >= 2, str(cpus), "two at least: one for the proxy, one for the load"),
        PrerequisiteFinding(
            "open files (hard limit)", LOCAL, enough, "unlimited" if files < 0 else str(files), files_remedy
        ),
    ]


def _check_steal() -> list[PrerequisiteFinding]:
    """Measure for half a second which share of CPU time the hypervisor takes from this machine (steal time).

    The other checks run in other threads at the same time.
    """
    try:
        start = cpu_times()
        time.sleep(0.5)  # a rate needs time to pass; nothing is being waited for
        cpus = subtract_cpu_times(start, cpu_times()).values()
    except OSError as error:
        return [PrerequisiteFinding("hypervisor steal", OPTIONAL, False, str(error), "none: it stays unknown")]
    percent = 100 * sum(cpu.steal_s for cpu in cpus) / (sum(cpu.total_s for cpu in cpus) or 1.0)
    remedy = f"samples with {STEAL_PERCENT:.0f} % and more are invalid: a quieter hour, or a dedicated machine"
    return [PrerequisiteFinding("hypervisor steal", OPTIONAL, percent < STEAL_PERCENT, f"{percent:.1f} %", remedy)]


def _check_namespaces() -> Iterator[PrerequisiteFinding]:
    """Try the kernel features that the lab's namespaces need, by running the script NAMESPACES; yield a finding for each.

    The script prints the name of every step of STEPS that has worked. The finding for the first failed step contains
    the last error message of the script. Of the later steps, those that have worked are reported as met, and the others
    as not tried.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    options = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--net"]
    output, status = _run(["unshare", *user, *options, "sh", "-c", NAMESPACES])
    lines = output.splitlines()
    complaint = docker.find_last_line("\n".join(line for line in lines if line not in STEPS)) or f"exit status {status}"
    failed = next((step for step in STEPS if step not in lines), "")
    for step, (check, needed_by, good, remedy) in STEPS.items():
        if step in lines:
            yield PrerequisiteFinding(check, needed_by, True, good)
        elif step == failed:
            yield PrerequisiteFinding(check, needed_by, False, complaint, remedy or _userns_remedy())
        else:
            yield PrerequisiteFinding(check, needed_by, False, "not tried", "the above first")


def _userns_remedy() -> str:
    """Return the remedy for a machine on which the lab's namespaces cannot be made.

    If a kernel setting forbids user namespaces, the remedy is the `sysctl` command that changes it, or to run the lab
    as root. Otherwise it is another way to run the lab.
    """
    for setting, forbids, command in (
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=15000"),
    ):
        if read_text_if_readable(Path("/proc/sys", setting)).strip() == forbids:
            return f"sudo sysctl -w {command}; or {ROOT_REMEDY}"
    in_container = "in a container: start it with --privileged"
    return f"{in_container}, or use --target kind" if os.geteuid() == 0 else f"{in_container}; otherwise {ROOT_REMEDY}"


def _check_nat() -> list[PrerequisiteFinding]:
    """Check whether the NAT of a Kubernetes Service works in a network namespace, by loading its nftables rules."""
    fault = services.find_nft_fault()
    result = "works" if fault is None else "nft is not on PATH" if fault == services.MISSING else fault
    remedy = "apt-get install nftables" if fault == services.MISSING else "modprobe nft_chain_nat nft_masq nft_numgen"
    remedy += "; only variants behind a Service of type LoadBalancer need it"
    return [PrerequisiteFinding("service NAT (nftables)", OPTIONAL, fault is None, result, remedy)]


def _check_cgroup() -> list[PrerequisiteFinding]:
    """Check whether the lab can limit CPU and memory by a cgroup: a process is limited for a moment as a test."""
    ok, result = cgroups.try_limits()
    remedy = "variants with such limits are not measurable here: sudo on version 1; on 2 systemd-run --user --scope -p Delegate=yes"
    return [PrerequisiteFinding("limits of CPU and memory (cgroup)", OPTIONAL, ok, result, remedy)]


def _check_disk() -> list[PrerequisiteFinding]:
    """Check that the folder for runs can be written to, and that its disk has enough free space.

    If the folder does not exist yet, its nearest parent that exists is checked.
    """
    runs = runs_folder()
    # not Path.exists, which raises below a folder that is closed to us
    nearest = next(folder for folder in (runs, *runs.parents) if os.access(folder, os.F_OK))
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        fault = f"{nearest} is no folder that we may write into"
        return [PrerequisiteFinding("disk for data/runs", LOCAL, False, fault, "set LAB_RUNS to a folder of yours")]
    free = shutil.disk_usage(nearest).free
    needed = f"{FREE_BYTES // 1024**3} GB needed for runs, and about as much for the tools in .cache"
    result = f"{free / 1024**3:.1f} GB free in {nearest}, {needed}"
    remedy = f"free {FREE_BYTES // 1024**3} GB, or set LAB_RUNS to a folder with room"
    return [PrerequisiteFinding("disk for data/runs", LOCAL, free >= FREE_BYTES, result, remedy)]


def check_tool(tool: RequiredTool) -> PrerequisiteFinding:
    """Check that a program is on PATH and not older than its minimum version, and return the finding.

    A program with a minimum version that prints no version counts as a failed check.
    """

    def finding(ok: bool, result: str) -> PrerequisiteFinding:
        return PrerequisiteFinding(tool.name, tool.needed_by, ok, result, tool.remedy)

    path = shutil.which(tool.name)
    if path is None or not tool.minimum:
        return finding(path is not None, path or "not on PATH")
    output, _ = _run([path, *tool.version])
    version = re.search(r"\d+(\.\d+)+", output)
    if version is None:
        return finding(False, f"{path} prints no version: {docker.find_last_line(output)}")
    if tuple(map(int, version[0].split("."))) >= tool.minimum:
        return finding(True, version[0])
    at_least = ".".join(map(str, tool.minimum)) + (f" ({tool.why})" if tool.why else "")
    return finding(False, f"{version[0]}, at least {at_least} wanted")


def _check_generators() -> Iterator[PrerequisiteFinding]:
    """Look for every load generator on this machine, and yield a finding for each.

    All targets need wrk and k6, because the default sweep (the default list of loads) uses them. The other generators
    are optional.
    """
    needs: Mapping[str, tuple[Need, ...]] = {"wrk": TARGETS, "k6": TARGETS}
    for name, generator in sorted(generators.GENERATORS.items(), key=lambda item: item[0] not in needs):
        installed = generators.find(generator)
        result = installed.version if installed else f"no working {generator.binary} on PATH"
        yield PrerequisiteFinding(name, needs.get(name, OPTIONAL), installed is not None, result, generator.remedy)


def _check_controllers() -> Iterator[PrerequisiteFinding]:
    """Look for the servers and controllers that the target apiserver runs, and yield a finding for each.

    A program that is missing counts as ok if the lab can build it when it is first used. For this, go, apt-get and
    dpkg-deb must be on PATH.
    """
    makers = [name for name in ("go", "apt-get", "dpkg-deb") if shutil.which(name) is None]
    lookups: dict[str, Callable[[], str]] = {
        name: lambda name=name: programs.version(programs.server(name)) for name in programs.SERVERS
    }
    lookups |= {f"controller {name}": controller.about for name, controller in CONTROLLERS.items() if controller.made}
    for name, look in lookups.items():
        try:
            yield PrerequisiteFinding(name, APISERVER, True, look())
        except UsageError as error:
            result = f"lacks {', '.join(makers)} to make it" if makers else "made when the target is first used"
            yield PrerequisiteFinding(name, APISERVER, not makers, result, error.remedy)


def _check_docker() -> list[PrerequisiteFinding]:
    try:
        engine = docker.find_engine()
    except UsageError as error:
        return [PrerequisiteFinding("Docker", KIND, False, error.fault, error.remedy)]
    free = docker.free_bytes(engine)
    room = free is None or free >= docker.DISK_BYTES
    result = (
        f"{free / 2**30:.1f} GB free in {engine.root}, up to {docker.DISK_BYTES >> 30} GB needed"
        if free is not None
        else f"{engine.root} is not this machine's"
    )
    remedy = (
        f"a cluster takes up to {docker.DISK_BYTES >> 30} GB: `docker system prune` removes what Docker does not use"
    )
    return [
        PrerequisiteFinding("Docker", KIND, True, f"engine {engine.version}"),
        PrerequisiteFinding("disk for Docker", KIND, room, result, remedy),
    ]


def _check_contexts() -> list[PrerequisiteFinding]:
    output, status = _run(["kubectl", "config", "get-contexts", "--output", "name"])
    names = output.split() if status == 0 else []
    result = ", ".join(names) or docker.find_last_line(output) or "none in your kubeconfig"
    remedy = "a kubeconfig with a context for the cluster; KUBECONFIG names another file"
    return [PrerequisiteFinding("kubectl contexts", REMOTE, bool(names), result, remedy)]


def _run(argv: Sequence[str], timeout_s: float = 10.0) -> tuple[str, int]:
    """Run a command, and return its output and its exit status.

    The output is stdout and stderr together. If the command cannot be run, the status is 127; if it takes longer than
    `timeout_s` seconds, 124. The output is then an error message.
    """
    devnull, pipe = subprocess.DEVNULL, subprocess.PIPE
    try:
        done = subprocess.run(
            argv, stdin=devnull, stdout=pipe, stderr=subprocess.STDOUT, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{argv[0]}: no answer in {timeout_s:.0f} s", 124
    except OSError as error:
        return f"{argv[0]}: {error.strerror}", 127
    return done.stdout.decode(errors="replace"), done.returncode
