"""A generator's process: started in the client's place, waited for with a deadline, and what it said and used."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from lab.base.files import own_faults, writing
from lab.generators import Generator, command
from lab.model.load import Load
from lab.model.variants.variants import Variant
from lab.targets.base import System, Target

GRACE_S = 15.0  # what a generator may take beyond its planned time before it counts as hung
POLL_S = 0.02
NOT_STARTED = 127  # as a shell reports it
OUTPUT_LIMIT_BYTES = 128 * 2**20
"""Of each of stdout and stderr. The longest honest outputs are hey's million latencies (10 MB) and oha's rows: 75 bytes
for each request, so 60 s at 28,000 requests per second, beyond what oha gives on the machines this is for. The local
target holds it in memory (tmpfs), hence no more."""
KEPT_BYTES = 64 * 2**10  # of output beyond the limit: enough to see what it was


def composed(home: Path | str = "/nonexistent") -> Mapping[str, str]:
    """The environment of what is started in a measurement: where programs are, a home without anybody's settings (`home`), where scratch files
    may lie, and a neutral locale and time zone. Nothing else of the user's gets in: a proxy that a company prescribes (`http_proxy`),
    what a runtime is told (`GOMAXPROCS`, `LD_PRELOAD`), options of a generator (`K6_…`) would each be measured, and told by nobody.
    Containers have their own, as their manifests say.
    """
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(home), "TMPDIR": os.environ.get("TMPDIR") or "/tmp", "LC_ALL": "C", "TZ": "UTC0"}


@dataclass(frozen=True, slots=True)
class Ended:
    """A generator process that has ended (or was killed)."""

    stdout: str
    stderr: str
    exit_status: int
    cpu_s: float
    """Of the process here, and what it started: in a pod, and of many generators, a watch sees what was used."""
    rss_bytes: int
    hung: bool


@dataclass(frozen=True, slots=True)
class Job:
    """One generator to be run, as in `run_generator`; `before` is put before its command, with `files` of its own."""

    system: System
    generator: Generator
    path: str
    load: Load
    scratch: Path
    before: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict[str, str])


def run_generator(system: System, generator: Generator, path: str, load: Load, scratch: Path) -> Ended:
    """Start it in the client's place, wait for its planned time and a grace, collect what it said and used.

    `path` takes the place of its name. One that cannot be started, crashes, hangs or says too much is an `Ended` like
    any other; only the lab's own faults are raised.
    """
    (ended,) = run_generators([Job(system, generator, path, load, scratch)])
    return ended


def run_generators(jobs: Sequence[Job], started: Callable[[], object] = lambda: None) -> list[Ended]:
    """All at once, as `run_generator`; `started` is called when each has been started."""
    with ExitStack() as lasting:
        return held(jobs, lasting)(started)


def held(jobs: Sequence[Job], lasting: ExitStack) -> Callable[..., list[Ended]]:
    """`run_generators`, once it is called: what starting them takes that can be done before is done now. They end at the latest with `lasting`."""
    waiting = [_held(job, lasting) for job in jobs]

    def run(started: Callable[[], object] = lambda: None) -> list[Ended]:
        running = [begin() for begin in waiting]
        started()
        while True:
            found = [each if isinstance(each, Ended) else each.outcome() for each in running]
            if None not in found:
                return [each for each in found if each is not None]
            time.sleep(POLL_S)

    return run


def _held(job: Job, lasting: ExitStack) -> Callable[[], _Running | Ended]:
    load = job.load
    # Where the system is disturbed, the last answers may be as late as they may be at all.
    takes_s = load.duration_s + (load.timeout_s if load.logged else 0.0) + GRACE_S
    with writing(job.scratch, "TMPDIR"):
        stdout = lasting.enter_context(open(job.scratch / "stdout", "w+b"))  # noqa: SIM115 - it closes it
        stderr = lasting.enter_context(open(job.scratch / "stderr", "w+b"))  # noqa: SIM115

    def many() -> Ended:
        ran = job.system.generate(load, job.generator.files(load))
        return Ended(ran.stdout, ran.stderr, ran.exit_status, 0.0, 0, ran.hung)

    def refused(error: OSError) -> Ended:
        return Ended("", f"{job.path} cannot be started: {error}", NOT_STARTED, 0.0, 0, False)

    if load.generators > 1:
        return many
    argv = [*job.before, *command(job.generator, job.path, load)]
    try:
        with own_faults(job.path):
            scripts = {**job.generator.files(load), **job.files}
            start = lasting.enter_context(job.system.held(argv, job.scratch, stdout, stderr, scripts))
    except OSError as error:
        return partial(refused, error)

    def begin() -> _Running | Ended:
        try:
            with own_faults(job.path):
                process = start()
        except OSError as error:
            return refused(error)
        running = _Running(process, (stdout, stderr), time.monotonic() + takes_s)
        lasting.callback(running.end)
        # No file that it or its children write grows beyond the limit: the kernel ends who tries (SIGXFSZ).
        with suppress(ProcessLookupError):  # it may have ended already
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (OUTPUT_LIMIT_BYTES, OUTPUT_LIMIT_BYTES))
        return running

    return begin


@dataclass(slots=True)
class _Running:
    """One generator's process."""

    process: subprocess.Popen[bytes]
    streams: tuple[IO[bytes], IO[bytes]]
    deadline: float
    _outcome: Ended | None = None
    _hung: bool = False

    def outcome(self) -> Ended | None:
        """None while it runs. By wait4 rather than Popen.poll, because only that tells what this child used."""
        if self._outcome is not None:
            return self._outcome
        pid, status, used = os.wait4(self.process.pid, os.WNOHANG)
        if pid:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            _signal(self.process)  # what it left behind would go on writing
            cpu_s = used.ru_utime + used.ru_stime
            said = _output(*self.streams, self.process.returncode)
            self._outcome = Ended(*said, cpu_s, used.ru_maxrss * 1024, self._hung)
        elif time.monotonic() > self.deadline and not self._hung:
            self._hung = True
            _signal(self.process)
        return self._outcome

    def end(self) -> None:
        if self.process.returncode is None:
            _kill(self.process)


def taken(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """File name → content of those that a generator left in its scratch folder, which they leave; also cut or empty ones."""
    found: dict[str, bytes] = {}
    with writing(folder, "TMPDIR"):
        for path in (folder / name for name in names):
            if path.is_file():
                found[path.name] = path.read_bytes()
                path.unlink()
    return found


def _output(stdout: IO[bytes], stderr: IO[bytes], status: int) -> tuple[str, str, int]:
    """(stdout, stderr, exit status). Of output that was cut only the beginning is kept, and the status is never 0."""
    both = {"stdout": stdout.fileno(), "stderr": stderr.fileno()}
    cut = [name for name, file in both.items() if os.fstat(file).st_size >= OUTPUT_LIMIT_BYTES]
    size = KEPT_BYTES if cut else OUTPUT_LIMIT_BYTES
    said, complained = (os.pread(file, size, 0).decode("utf-8", "surrogateescape") for file in both.values())
    if not cut:
        return said, complained, status
    note = f"the lab allows {OUTPUT_LIMIT_BYTES / 2**20:g} MiB of {' and '.join(cut)}: more was cut off\n"
    return said, note + complained, status or -signal.SIGXFSZ


def _kill(process: subprocess.Popen[bytes]) -> None:
    _signal(process)
    process.wait()


def _signal(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):  # it may have ended by itself in the meantime
        os.killpg(process.pid, signal.SIGKILL)


def run_beside(target: Target, variant: Variant, argv: Sequence[str]) -> int:
    """Bring a variant up, run a command in the client's place with LAB_URL and LAB_HOST set; its exit status."""
    target.check()
    target.check_variant(variant, [])
    with target.up(variant) as system:
        entry = system.entry()
        # It is the user's command.
        own = [f"{name}={value}" for name in ("HOME", "TERM") if (value := os.environ.get(name))]
        named = ["env", *own, f"LAB_URL={entry.base_url}", f"LAB_HOST={entry.host}", *argv]
        process = system.popen(named, Path.cwd(), sys.stdout.buffer, sys.stderr.buffer)
        try:
            return process.wait()
        except BaseException:
            _kill(process)
            raise
