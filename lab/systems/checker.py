"""A proxy's own checker (`nginx -t`, `haproxy -c`) on a configuration that runs nowhere yet, in folders, network and user ids of its own.

What it refuses, the proxy would refuse when it starts, and its controller when it reloads: it is told in the proxy's words,
before anything is measured. Needs no more than the right to make namespaces.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from lab.base.errors import UsageError
from lab.systems.system import PRIVATE, WRITABLE

TRY_S, _LATE = 60.0, "did not end within"
_STAMP = re.compile(
    r"^\S+ \S+ \[emerg\] \d+#\d+: "
    r"|^\[[^]]+\]\[\d+\]\[critical\]\[\w+\] \[[^]]+\] error initializing configuration '[^']*': "
    r"|^\[ALERT\] +\(\d+\) : config : (?:parsing (?=\[))?"
)
"""What nginx, Envoy and HAProxy begin with: time, process, and that it is serious."""
_PLACE = re.compile(r" in (\S+):(\d+)$|^\[(\S+):(\d+)\] : ")


def refusal(
    command: Sequence[str],
    files: Mapping[str, str],
    folders: Mapping[str, Mapping[str, str]] | None = None,
    hosts: str = "",
    programs: Mapping[str, Path] | None = None,
) -> str:
    """Why `command` refuses the configuration in these files (path → text or `-> target`), in its own words; empty = it does not.

    `folders`: further folders (path → file → text), laid over the machine's; `hosts`: its /etc/hosts; `programs`: path → program. UsageError for a file that lies in no folder of `PRIVATE`.
    """
    laid = tuple((path, tuple(sorted(texts.items()))) for path, texts in sorted((folders or {}).items()))
    return _refusal(tuple(command), tuple(sorted(files.items())), laid, hosts, tuple((programs or {}).items()))


def is_late(told: str) -> bool:
    """Whether it was no refusal: the checker was still at it when its time was over."""
    return _LATE in told


@lru_cache(maxsize=1024)
def _refusal(
    command: tuple[str, ...],
    files: tuple[tuple[str, str], ...],
    folders: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
    hosts: str,
    programs: tuple[tuple[str, Path], ...],
) -> str:
    with tempfile.TemporaryDirectory(prefix="lab-check-") as name:
        scratch = Path(name)
        scratch.chmod(0o755)
        own = {prefix: scratch / str(number) for number, prefix in enumerate(PRIVATE) if Path(prefix).is_dir()}
        for folder in (*own.values(), *(_inside(path, own) for path in (*WRITABLE, *dict(folders)))):
            _open(folder)
        laid = [(f"{path}/{item}", text) for path, texts in folders for item, text in texts]
        for path, text in (*files, *laid):
            file = _inside(path, own)
            _open(file.parent)
            if text.startswith("-> "):
                file.symlink_to(text.removeprefix("-> "))
            else:
                file.write_text(text, errors="surrogateescape")
        brought = [(program, _inside(path, own)) for path, program in programs]
        for _, place in brought:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        (scratch / "hosts").write_text(hosts)
        if hosts and Path("/etc/hosts").exists():
            own["/etc/hosts"] = scratch / "hosts"
        return _told(_run(command, own, brought, scratch), dict(files))


def _open(folder: Path) -> None:
    """Make a folder, where it is not there, into which anybody may write."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)


def _inside(path: str, own: Mapping[str, Path]) -> Path:
    prefix = next((prefix for prefix in own if path.startswith(f"{prefix}/")), None)
    if prefix is None:
        raise UsageError(path, "is not in a folder of the container's own", f"one of: {', '.join(PRIVATE)}")
    return own[prefix] / path.removeprefix(f"{prefix}/")


def _told(said: str, files: Mapping[str, str]) -> str:
    """Without time and process, and with the line that is meant instead of its number."""
    said = _STAMP.sub("", said)
    place = _PLACE.search(said)
    file, number = (place[1] or place[3], place[2] or place[4]) if place else ("", "")
    if place and file in files:
        lines = [*files[file].split("\n"), ""]
        line = lines[min(int(number), len(lines)) - 1].strip()
        said = said[: place.start()] + said[place.end() :] + (f" in `{line[:80]}`" if line.strip("}") else "")
    return said


def _run(command: Sequence[str], own: Mapping[str, Path], programs: Sequence[tuple[Path, Path]], scratch: Path) -> str:
    # The folder that holds all these is covered last.
    ordered = sorted(own.items(), key=lambda item: scratch.is_relative_to(item[0]))
    binds = [*programs, *((source, target) for target, source in ordered)]
    script = [f"mount --rbind {shlex.quote(str(source))} {shlex.quote(str(target))}" for source, target in binds]
    script.append("ip link set lo up")
    script.append("echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start")
    user = ["unshare", "--user", "--map-user=101", "--map-group=82", "--"]
    script.append(f"cd / && exec {shlex.join([*user, *command])}")
    root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    try:
        done = subprocess.run(
            ["unshare", *root, "--mount", "--net", "--", "sh", "-euc", "\n".join(script)],
            capture_output=True,
            timeout=TRY_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", os.defpath)},
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} {_LATE} {TRY_S:g} s"
    if not done.returncode:
        return ""
    said = done.stderr.decode(errors="replace").strip().splitlines() or [f"{command[0]} ended with {done.returncode}"]
    return next((line for line in said if _STAMP.match(line)), said[0]).strip()
