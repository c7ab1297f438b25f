"""A runner for a proxy's own configuration checker (such as `nginx -t`), which is used before the proxy is started.

The checker runs in private folders, with a private network and with the user id of a container. A configuration that the
checker refuses would also be refused when the proxy starts, and at a reload by its controller. So a fault is reported in the
proxy's words before anything is measured. The runner needs only the right to create namespaces.
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
    """Check a proxy's configuration with the proxy's own checker, such as `nginx -t`, before the proxy runs.

    Args:
        command: the checker's command line.
        files: path → text of the configuration's files, or `-> target` for a symbolic link.
        folders: further folders that the checker sees in place of the machine's own: path → file name → text.
        hosts: the text of /etc/hosts that the checker sees; empty = the machine's own.
        programs: path under which the checker finds a program → file of the program on this machine.

    Returns:
        The reason why the checker refuses the configuration, in the checker's words; empty if it accepts. If the checker does not
        end within 60 s (`TRY_S`), the text reports that (see `is_late`).

    Raises:
        UsageError: for a path that is not inside any folder of `PRIVATE_FOLDERS`, such as /tmp.

    """
    overlays = tuple((path, tuple(sorted(texts.items()))) for path, texts in sorted((folders or {}).items()))
    return _run_checker(tuple(command), tuple(sorted(files.items())), overlays, hosts, tuple((programs or {}).items()))


def is_late(message: str) -> bool:
    """Return whether a text from `find_refusal` reports that the checker took too long, instead of the reason of a refusal."""
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
    """Create a folder, if it does not exist, and let every user write into it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)


def _locate(path: str, private: Mapping[str, Path]) -> Path:
    """Return the path on the machine for a path that the checker sees.

    Args:
        path: the path that the checker sees.
        private: folder that the checker sees → folder on the machine that is mounted there.

    Raises:
        UsageError: when the path is in none of these folders.

    """
    prefix = next((prefix for prefix in private if path.startswith(f"{prefix}/")), None)
    if prefix is None:
        raise UsageError(path, "is not in a folder of the container's own", f"one of: {', '.join(PRIVATE_FOLDERS)}")
    return private[prefix] / path.removeprefix(f"{prefix}/")


def _clean_message(message: str, files: Mapping[str, str]) -> str:
    """Remove the time and the process id from a checker's message, so that equal faults have equal messages.

    The file and number of the faulty line are replaced by the text of that line, if the file is among `files`.

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
    """Run the checker in new Linux namespaces, and return the error line that names the reason of a refusal.

    The result is empty if the checker accepts the configuration. If the checker takes longer than `TRY_S`, the result is
    `nginx did not end within 60 s`, for example.

    Args:
        command: the checker's command line.
        private: path that the checker sees → folder or file on the machine that is mounted there.
        programs: pairs (program's file, file on which it is mounted).
        scratch: the folder that contains the mounted folders.

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
