"""A runner for a proxy's own checker (`nginx -t`, `haproxy -c`) on a configuration that runs nowhere yet.

The checker runs in private folders, with a private network and with user ids of a container. A configuration that the checker
refuses would also be refused when the proxy starts, and at a reload by its controller. The fault is reported in the proxy's
words, before anything is measured. The only right that the runner needs is to create namespaces.
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
from lab.systems.system import INITIAL_FOLDERS, PRIVATE_FOLDERS

TRY_S, _LATE = 60.0, "did not end within"
_STAMP = re.compile(
    r"^\S+ \S+ \[emerg\] \d+#\d+: "
    r"|^\[[^]]+\]\[\d+\]\[critical\]\[\w+\] \[[^]]+\] error initializing configuration '[^']*': "
    r"|^\[ALERT\] +\(\d+\) : config : (?:parsing (?=\[))?"
)
"""The beginning of a fatal error's line in nginx, Envoy and HAProxy: time, process and severity."""
_PLACE = re.compile(r" in (\S+):(\d+)$|^\[(\S+):(\d+)\] : ")


def find_refusal(
    command: Sequence[str],
    files: Mapping[str, str],
    folders: Mapping[str, Mapping[str, str]] | None = None,
    hosts: str = "",
    programs: Mapping[str, Path] | None = None,
) -> str:
    """Return why a checker refuses the configuration in some files, in the checker's words; empty if it accepts.

    If the checker does not end in time, the text reports that instead (`is_late`).

    Args:
        command: the checker's command.
        files: path → text, or `-> target` for a symbolic link.
        folders: further folders that cover the machine's own: path of the folder → name of a file → text.
        hosts: the text of /etc/hosts for the checker; empty = the machine's own.
        programs: path → program to mount there.

    Raises:
        UsageError: for a file or program that lies in no folder of `PRIVATE_FOLDERS` that this machine has.

    """
    overlays = tuple((path, tuple(sorted(texts.items()))) for path, texts in sorted((folders or {}).items()))
    return _run_checker(tuple(command), tuple(sorted(files.items())), overlays, hosts, tuple((programs or {}).items()))


def is_late(message: str) -> bool:
    """Return whether a text of `find_refusal` reports that the checker did not end in time, instead of a refusal."""
    return _LATE in message


@lru_cache(maxsize=1024)
def _run_checker(
    command: tuple[str, ...],
    files: tuple[tuple[str, str], ...],
    folders: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
    hosts: str,
    programs: tuple[tuple[str, Path], ...],
) -> str:
    with tempfile.TemporaryDirectory(prefix="lab-check-") as name:
        scratch = Path(name)
        scratch.chmod(0o755)
        private = {
            prefix: scratch / str(number) for number, prefix in enumerate(PRIVATE_FOLDERS) if Path(prefix).is_dir()
        }
        for folder in (*private.values(), *(_locate(path, private) for path in (*INITIAL_FOLDERS, *dict(folders)))):
            _make_folder(folder)
        overlay_files = [(f"{path}/{item}", text) for path, texts in folders for item, text in texts]
        for path, text in (*files, *overlay_files):
            file = _locate(path, private)
            _make_folder(file.parent)
            if text.startswith("-> "):
                file.symlink_to(text.removeprefix("-> "))
            else:
                file.write_text(text, errors="surrogateescape")
        mounts = [(program, _locate(path, private)) for path, program in programs]
        for _, place in mounts:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        (scratch / "hosts").write_text(hosts)
        if hosts and Path("/etc/hosts").exists():
            private["/etc/hosts"] = scratch / "hosts"
        return _clean_message(_run_in_namespaces(command, private, mounts, scratch), dict(files))


def _make_folder(folder: Path) -> None:
    """Make a folder into which every user may write, unless it exists."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)


def _locate(path: str, private: Mapping[str, Path]) -> Path:
    """Return where a container's path lies on the machine.

    Args:
        path: the path in the container.
        private: private folder of the container → the folder on the machine that covers it.

    Raises:
        UsageError: when the path is in no private folder.

    """
    prefix = next((prefix for prefix in private if path.startswith(f"{prefix}/")), None)
    if prefix is None:
        raise UsageError(path, "is not in a folder of the container's own", f"one of: {', '.join(PRIVATE_FOLDERS)}")
    return private[prefix] / path.removeprefix(f"{prefix}/")


def _clean_message(message: str, files: Mapping[str, str]) -> str:
    """Return a checker's message without time and process, with the text of the faulty line instead of its number.

    Args:
        message: the message.
        files: path → text of the checked files.

    """
    message = _STAMP.sub("", message)
    place = _PLACE.search(message)
    file, number = (place[1] or place[3], place[2] or place[4]) if place else ("", "")
    if place and file in files:
        lines = [*files[file].split("\n"), ""]
        line = lines[min(int(number), len(lines)) - 1].strip()
        message = message[: place.start()] + message[place.end() :] + (f" in `{line[:80]}`" if line.strip("}") else "")
    return message


def _run_in_namespaces(
    command: Sequence[str], private: Mapping[str, Path], programs: Sequence[tuple[Path, Path]], scratch: Path
) -> str:
    """Run the checker in new namespaces, and return the decisive line of its errors; empty when it succeeds.

    Args:
        command: the checker's command.
        private: path → folder or file on the machine that covers it.
        programs: (program, file on which it is mounted).
        scratch: the folder that holds the covering folders.

    """
    # The folder that holds the scratch folder is covered last.
    ordered = sorted(private.items(), key=lambda item: scratch.is_relative_to(item[0]))
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
    lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"{command[0]} ended with {done.returncode}"]
    return next((line for line in lines if _STAMP.match(line)), lines[0]).strip()
