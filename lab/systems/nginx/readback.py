"""Check kind `nginx`: a directive of the configuration that nginx was started with, and that its workers run.

    name: gzip, context: http/server        its arguments in the parsed `nginx -T`; `context` if it stands in several blocks
    name: access_log buffer                  the argument that is meant, by place (`access_log 1`) or key
    among: true                              of several such directives with other arguments one is enough, as a controller has some of its own
    times: 2                                 how often it stands there with just these; there is one block where `context` says which:
                                             `http/server[bench.lab.test]/location[/]`, of a server its names, of any other block its arguments

Read from what nginx itself prints (`nginx -T` of the file that its master was started with), parsed, never searched for
as text; since that is the file and not what is loaded, the workers must be younger than the file, and where a directive
has an effect that can be seen in the processes (open files, number of workers), that is compared too.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import crossplane

from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems.nginx import effects
from lab.systems.reading import (
    ABSENT,
    CLOCK_S,
    Process,
    Reading,
    UnreadableError,
    compared,
    given,
    joined,
    processes,
    run,
    soft_limit,
    started,
    wrong,
)

_HEADER = re.compile(r"^# configuration file (.+):$", re.MULTILINE)


def read(system: System, check: Check) -> Reading:
    """Read a check of kind `nginx` back."""
    name, _, part = given(check, "name").partition(" ")
    running = processes(system, check)
    masters = [process for process in running if process.title.startswith("nginx: master process")]
    workers = [process for process in running if process.title == "nginx: worker process"]
    if len(masters) != 1 or not workers:
        raise UnreadableError(
            f"expected one nginx master with workers, found {len(masters)} and {len(workers)} workers"
        )
    program = re.match(r"nginx: master process (\S*nginx)(?= |$)", masters[0].title)
    options = re.findall(r"(?:^| )-([cp]) (\S+)", masters[0].title)
    words = [word for option, value in options for word in (f"-{option}", value)]
    files = dump(run(system, check, [program[1] if program else "nginx", *words, "-T"]))
    main = next(iter(files))
    stated = [
        each.arguments
        for each in directives(files)
        if each.name == name and check.context in (None, each.context, each.place)
    ]
    found = [_argument(args, part) for args in stated]
    if check.times is not None:
        reading = _counted(check, found)
    else:
        found = [check.value] if check.among and check.value in found else found
        reading = compared(check, joined(found) if found else ABSENT)
    if len(set(found)) > 1 and check.context is None:
        detail = f"{name} stands in several places with several values: the check needs a context"
        reading = wrong(check, reading.observed, detail)
    if reading.ok:
        reading = _loaded(system, reading, main, workers)
    if reading.ok and stated and (fault := effects.fault(system, check, " ".join(stated[0]))):
        return wrong(check, reading.observed, fault)
    return reading


def _counted(check: Check, found: Sequence[str]) -> Reading:
    there = found.count(check.value)
    if there == check.times:
        return Reading(check, f"{there} times", ok=True)
    return wrong(check, f"{there} times", f"expected {check.value!r} {check.times} times, found it {there} times")


def _argument(args: Sequence[str], part: str) -> str:
    """All arguments, or the one at a place (`1`), or the value of one that is written `part=value`.

    >>> _argument(["/dev/stdout", "main", "buffer=8k"], "buffer")
    '8k'
    """
    if not part:
        return " ".join(args)
    if part.isdigit():
        return args[int(part) - 1] if int(part) <= len(args) else ABSENT
    return next((arg.removeprefix(f"{part}=") for arg in args if arg.startswith(f"{part}=")), ABSENT)


def _loaded(system: System, reading: Reading, main: str, workers: Sequence[Process]) -> Reading:
    """The same reading, if what nginx runs is what its file says."""
    check = reading.check
    written = int(run(system, check, ["stat", "-c", "%Y", main]))
    oldest = min(started(system, check, [worker.pid for worker in workers]))
    if oldest + CLOCK_S < written:
        detail = f"{main} was written after the workers had started: it is not what they run"
        return wrong(check, reading.observed, detail)
    if emergency := next((line for line in system.log_tail().splitlines() if "[emerg]" in line), None):
        return wrong(check, reading.observed, f"nginx logged: {emergency.strip()}")
    if check.name == "worker_processes" and check.value.isdigit() and len(workers) != int(check.value):
        observed = f"{reading.observed}, and {len(workers)} running"
        return wrong(check, observed, f"asked for {check.value} workers, {len(workers)} run")
    if check.name == "worker_rlimit_nofile":
        limits = joined([soft_limit(system, check, worker.pid, "Max open files") for worker in workers])
        if limits != check.value:
            detail = f"asked for {check.value} open files, the workers have {limits}: the hard limit is lower"
            return wrong(check, limits, detail)
    return reading


def dump(text: str) -> dict[str, str]:
    """`nginx -T` → file → text, the main file first. UnreadableError when there is none."""
    parts = _HEADER.split(text)
    files = dict(zip(parts[1::2], parts[2::2], strict=True))
    if not files:
        raise UnreadableError(f"nginx -T printed no configuration: {text.strip()[-200:]!r}")
    return files


@dataclass(frozen=True, slots=True)
class Directive:
    """One that stands in a configuration. `context`: the names of the blocks around it, such as `http/server`; `place`: which blocks these are, `http/server[bench.lab.test]`."""

    context: str
    place: str
    name: str
    arguments: Sequence[str]


def directives(files: Mapping[str, str]) -> Iterator[Directive]:
    """All of them in order, includes followed."""
    main = next(iter(files))
    parsed = {name: _parsed(text) for name, text in files.items()}
    yield from _walk(parsed[main], "", "", parsed, posixpath.dirname(main))


@lru_cache(maxsize=32)
def _parsed(text: str) -> Sequence[dict[str, Any]]:
    """Of one file. The same from check to check and block to block, and a fifteenth of a second each time."""
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
            inner, here = (f"{outer}/{block['directive']}".lstrip("/") for outer in (context, place))
            which = _which(block)
            yield from _walk(block["block"], inner, f"{here}[{which}]" if which else here, files, folder)


def _which(block: Mapping[str, Any]) -> str:
    """What tells a block from others of its kind."""
    names = (inner["args"] for inner in block["block"] if inner["directive"] == "server_name")
    return " ".join(next(names, ()) if block["directive"] == "server" else block["args"])
