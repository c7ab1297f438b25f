"""Read-back checks of the kind `nginx`: they test whether the running nginx has a directive with the expected arguments.

    name: gzip, context: http/server        the directive's arguments in the parsed `nginx -T`; `context` if several blocks have it
    name: access_log buffer                  one argument of the directive, by position (`access_log 1`) or key
    among: true                              one of several such directives is enough, as a controller has its own
    times: 2                                 the number of directives with these arguments; `context` can name a single block,
                                             `http/server[bench.lab.test]/location[/]`: a server by its names, any other block by its arguments

The check parses the configuration that nginx itself prints (`nginx -T` for the file with which the master was started). This
output shows the file, which nginx may not have loaded. So the check also requires that the workers are younger than the file.
If processes or a request can show the effect of a directive (such as the number of workers), the effect is checked, too.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import crossplane

from lab.model.endpoint import Response
from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems.reading import (
    ABSENT,
    CLOCK_S,
    ListedProcess,
    Reading,
    UnreadableError,
    compare_value,
    fail_reading,
    join_distinct,
    list_processes,
    read_soft_limit,
    read_start_times,
    require_key,
    run_in_container,
)

PAGE, TIMEOUT_S = "/8kB.txt", 5.0
_OUTPUT = ("off", "/var/log/nginx/access.log", "/dev/stdout")
_OWN_OUTPUT = "/proc/1/fd/1"
"""The output of the container's first process, which nginx inherits."""
_LOG_DELAY_S = 0.5
"""The seconds within which a log line appears.

nginx writes the line right after its response, and a busy machine may delay it.
"""


def find_effect_fault(system: System, check: Check, arguments: str) -> str:
    """Check by a request whether a directive of nginx has its effect, such as a compressed answer for `gzip on`.

    Only the directives gzip, proxy_cache and access_log are checked.

    Args:
        system: the running system.
        check: the read-back check of the directive.
        arguments: the directive's arguments in the running configuration.

    Returns:
        The fault in words; empty if the directive has its effect. Also empty for any other directive, and for a log that is not a
        regular file (such as a container's output in a cluster).

    """
    match (check.name or "").split()[0]:
        case "gzip":  # a compressible page arrives compressed at a client that accepts it
            encoding = _fetch(system, {"Accept-Encoding": "gzip"}).headers.get("content-encoding", "identity")
            expected = "gzip" if arguments == "on" else "identity"
            return "" if encoding == expected else f"{PAGE} came with encoding {encoding}, expected {expected}"
        case "proxy_cache" if arguments != "off":  # the second of two requests is a hit
            _fetch(system)
            status = _fetch(system).headers.get("x-cache-status", "none")
            return (
                "" if status == "HIT" else f"the second request for {PAGE} has the cache status {status}, expected HIT"
            )
        case "access_log":
            return _check_access_log(system, check, arguments)
        case _:
            return ""


def _check_access_log(system: System, check: Check, arguments: str) -> str:
    """Check by a request whether nginx writes its access log as the directive `access_log` demands.

    Normally the request must make the log longer. If the log is off or buffered, the log must keep its length. For a log that is
    off, the container's output is checked, because the lab's manifests send the log there.

    Args:
        system: the running system.
        check: the read-back check of the directive.
        arguments: the directive's arguments in the running configuration.

    Returns:
        The fault in words; empty if the log is written as demanded, or cannot be checked.

    """
    path, *options = arguments.split()
    if path.startswith("syslog:"):
        return ""
    file = _OWN_OUTPUT if path in _OUTPUT else path
    silent = path == "off" or any(option.startswith(("buffer=", "gzip")) for option in options)
    before = _size(system, check, file)
    _fetch(system)
    if before is None:
        return ""
    deadline = time.monotonic() + _LOG_DELAY_S
    while (after := _size(system, check, file)) == before and not silent and time.monotonic() < deadline:
        time.sleep(0.01)
    grown = after != before
    if grown and silent:
        return f"one request made {file} longer, though its log is {'off' if path == 'off' else 'buffered'}"
    return "" if grown or silent else f"a request left {file} as long as it was"


def _fetch(system: System, headers: Mapping[str, str] | None = None) -> Response:
    answer = system.fetch(system.entry(), PAGE, TIMEOUT_S, headers)
    if answer.status != 200:
        raise UnreadableError(f"{PAGE} was answered with status {answer.status}")
    return answer


def _size(system: System, check: Check, file: str) -> int | None:
    """Return the size in bytes of a file in the container; None if it is not a regular file.

    The result is also None for the container's output if the kernel denies access to it, as for programs with file capabilities.

    Args:
        system: the running system.
        check: the read-back check, whose role names the container.
        file: the path of the file in the container.

    """
    command = ["stat", "-L", "-c", "%F:%s", file]
    if file == _OWN_OUTPUT and "Permission denied" in system.exec(check.role, command).stderr:
        return None
    kind, _, size = run_in_container(system, check, command).strip().rpartition(":")
    return int(size) if kind in ("regular file", "regular empty file") else None


_HEADER = re.compile(r"^# configuration file (.+):$", re.MULTILINE)


def read(system: System, check: Check) -> Reading:
    """Perform a read-back check of kind `nginx`: whether the running nginx has a directive with the expected arguments.

    Where a request or the worker processes can show the directive's effect, the effect is checked, too.

    Raises:
        UnreadableError: when there is not exactly one nginx master with workers, or its configuration cannot be read.

    """
    name, _, part = require_key(check, "name").partition(" ")
    running = list_processes(system, check)
    masters = [process for process in running if process.title.startswith("nginx: master process")]
    workers = [process for process in running if process.title == "nginx: worker process"]
    if len(masters) != 1 or not workers:
        raise UnreadableError(
            f"expected one nginx master with workers, found {len(masters)} and {len(workers)} workers"
        )
    program = re.match(r"nginx: master process (\S*nginx)(?= |$)", masters[0].title)
    options = re.findall(r"(?:^| )-([cp]) (\S+)", masters[0].title)
    arguments = [text for option, value in options for text in (f"-{option}", value)]
    files = split_dump(run_in_container(system, check, [program[1] if program else "nginx", *arguments, "-T"]))
    main = next(iter(files))
    stated = [
        directive.arguments
        for directive in list_directives(files)
        if directive.name == name and check.context in (None, directive.context, directive.place)
    ]
    values = [_select_argument(args, part) for args in stated]
    if check.times is not None:
        detail = f"expected {check.value!r} {check.times} times, found it {values.count(check.value)} times"
        observed, ok = f"{values.count(check.value)} times", values.count(check.value) == check.times
        reading = Reading(check, observed, ok, "" if ok else detail)
    else:
        values = [check.value] if check.among and check.value in values else values
        reading = compare_value(check, join_distinct(values) if values else ABSENT)
    if len(set(values)) > 1 and check.context is None:
        detail = f"{name} stands in several places with several values: the check needs a context"
        reading = fail_reading(check, reading.observed, detail)
    if reading.ok:
        reading = _check_loaded(system, reading, main, workers)
    if reading.ok and stated and (message := find_effect_fault(system, check, " ".join(stated[0]))):
        return fail_reading(check, reading.observed, message)
    return reading


def _select_argument(args: Sequence[str], part: str) -> str:
    """Return one of a directive's arguments, or all of them.

    >>> _select_argument(["/dev/stdout", "main", "buffer=8k"], "buffer")
    '8k'

    Args:
        args: the arguments.
        part: the position of an argument (from 1), or NAME for the value of `NAME=value`. Empty: all arguments.

    Returns:
        The argument, the value, or all arguments joined by blanks; `absent` if there is no such argument.

    """
    if not part:
        return " ".join(args)
    if part.isdigit():
        return args[int(part) - 1] if int(part) <= len(args) else ABSENT
    return next((arg.removeprefix(f"{part}=") for arg in args if arg.startswith(f"{part}=")), ABSENT)


def _check_loaded(system: System, reading: Reading, main: str, workers: Sequence[ListedProcess]) -> Reading:
    """Check that nginx's workers really run the configuration in the files, and return the final result of the read-back check.

    A passed check becomes a failed check in these cases: the main file was written after the workers had started, nginx has
    logged an emergency, or the workers have another number or limit of open files than configured.

    Args:
        system: the running system.
        reading: the result of the check, which so far compares the configuration's text only.
        main: the path of nginx's main configuration file.
        workers: the running workers.

    """
    check = reading.check
    written = int(run_in_container(system, check, ["stat", "-c", "%Y", main]))
    oldest = min(read_start_times(system, check, [worker.pid for worker in workers]))
    if oldest + CLOCK_S < written:
        detail = f"{main} was written after the workers had started: it is not what they run"
        return fail_reading(check, reading.observed, detail)
    if emergency := next((line for line in system.log_tail().splitlines() if "[emerg]" in line), None):
        return fail_reading(check, reading.observed, f"nginx logged: {emergency.strip()}")
    if check.name == "worker_processes" and check.value.isdigit() and len(workers) != int(check.value):
        observed = f"{reading.observed}, and {len(workers)} running"
        return fail_reading(check, observed, f"asked for {check.value} workers, {len(workers)} run")
    if check.name == "worker_rlimit_nofile":
        limits = join_distinct([read_soft_limit(system, check, worker.pid, "Max open files") for worker in workers])
        if limits != check.value:
            detail = f"asked for {check.value} open files, the workers have {limits}: the hard limit is lower"
            return fail_reading(check, limits, detail)
    return reading


def split_dump(text: str) -> dict[str, str]:
    """Split the output of `nginx -T` into the configuration files: path → text, the main file first.

    Raises:
        UnreadableError: when the output contains no configuration file.

    """
    parts = _HEADER.split(text)
    files = dict(zip(parts[1::2], parts[2::2], strict=True))
    if not files:
        raise UnreadableError(f"nginx -T printed no configuration: {text.strip()[-200:]!r}")
    return files


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive in an nginx configuration.

    Attributes:
        context: the names of the blocks around the directive, such as `http/server`.
        place: the same blocks with their server names or arguments, such as `http/server[bench.lab.test]`.
        name: the name of the directive.
        arguments: the arguments of the directive.

    """

    context: str
    place: str
    name: str
    arguments: Sequence[str]


def list_directives(files: Mapping[str, str]) -> Iterator[Directive]:
    """Yield all directives of an nginx configuration in their order, including the directives of included files.

    Args:
        files: path → text of the configuration files, the main file first.

    Raises:
        UnreadableError: when a file cannot be parsed.

    """
    main = next(iter(files))
    parsed = {name: _parse(text) for name, text in files.items()}
    yield from _walk(parsed[main], "", "", parsed, posixpath.dirname(main))


@lru_cache(maxsize=32)
def _parse(text: str) -> Sequence[dict[str, Any]]:
    """Parse the text of one nginx configuration file into nested dicts, in the form of the library crossplane.

    The result is cached, because many checks parse the same text.

    Raises:
        UnreadableError: when the text cannot be parsed.

    """
    with tempfile.TemporaryDirectory(prefix="lab-nginx-") as folder:
        file = Path(folder) / "nginx.conf"
        file.write_text(text)
        answer: Any = crossplane.parse(str(file), single=True, strict=False, check_ctx=False, check_args=False)
    if answer["status"] != "ok":
        raise UnreadableError(f"nginx -T cannot be parsed: {answer['errors'][0]['error']}")
    return answer["config"][0]["parsed"]


def _walk(
    blocks: Sequence[Mapping[str, Any]],
    context: str,
    place: str,
    files: Mapping[str, Sequence[dict[str, Any]]],
    folder: str,
) -> Iterator[Directive]:
    for block in blocks:
        if block["directive"] == "include":
            pattern = posixpath.join(folder, block["args"][0])
            for name in sorted(fnmatch.filter(files, pattern)):
                yield from _walk(files[name], context, place, files, folder)
            continue
        yield Directive(context, place, block["directive"], block["args"])
        if "block" in block:
            inner, path = (f"{outer}/{block['directive']}".lstrip("/") for outer in (context, place))
            names = (item["args"] for item in block["block"] if item["directive"] == "server_name")
            label = " ".join(next(names, ()) if block["directive"] == "server" else block["args"])
            yield from _walk(block["block"], inner, f"{path}[{label}]" if label else path, files, folder)
