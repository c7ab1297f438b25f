"""Functions that run load generators: they start them on the client's side, wait with a deadline, and collect output."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from lab.base.files import as_store_error, writing
from lab.generators import Generator, build_command
from lab.model.load import GeneratorLoad
from lab.model.variants.variants import Variant
from lab.targets.base import System, Target

GRACE_S = 15.0
"""The seconds that a generator may take beyond its planned time before it counts as hung."""
POLL_S = 0.02
"""The seconds between two looks at the running generators."""
NOT_STARTED = 127
"""The exit status of a generator that could not be started; a shell reports the same number."""
OUTPUT_LIMIT_BYTES = 128 * 2**20
"""The maximum number of bytes that a generator may write to stdout, and likewise to stderr.

The longest proper outputs are hey's million latencies (10 MB) and oha's rows. A row is 75 bytes per request, so the
limit allows 60 s at 28,000 requests per second. This is more than oha reaches on the machines that the lab is for.
The limit is not higher, because the local target holds the output in memory (tmpfs).
"""
CUT_OUTPUT_BYTES = 64 * 2**10
"""The number of bytes that are read of an output beyond the limit: enough to see what the output was."""


def make_environment(home: Path | str = "/nonexistent") -> Mapping[str, str]:
    """Return the environment variables of every process that is started in a measurement.

    They are PATH, a home folder, a folder for scratch files, and a neutral locale and time zone. All other variables
    of the user are left out: a company's proxy (`http_proxy`), settings of a runtime (`GOMAXPROCS`, `LD_PRELOAD`) or
    options of a generator (`K6_…`) would change the measurement without being recorded. Containers do not get this
    environment, but that of their manifests.

    Args:
        home: The home folder of the process; the default is a folder without anybody's settings.

    """
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(home), "TMPDIR": os.environ.get("TMPDIR") or "/tmp", "LC_ALL": "C", "TZ": "UTC0"}


@dataclass(frozen=True, slots=True)
class GeneratorOutcome:
    """The outcome of one run of a load generator: its output, exit status and resource use.

    The process has ended, was killed, or could not be started.

    Attributes:
        stdout: The output of the process.
        stderr: The error output of the process.
        exit_status: The exit status; −n if signal n ended the process.
        cpu_s: The CPU seconds of the process and its children on this machine; 0 if several generators made the load
            together. A generator that runs in a pod is not included: its CPU time is in the field `generator_cpu_s`
            of the `Observation` of the load.
        rss_bytes: The largest resident memory of the process, in bytes; 0 if several generators made the load.
        hung: Whether the process was killed because it did not end in time.

    """

    stdout: str
    stderr: str
    exit_status: int
    cpu_s: float
    rss_bytes: int
    hung: bool


@dataclass(frozen=True, slots=True)
class GeneratorJob:
    """A load generator that is to be run, with everything that its start needs.

    Attributes:
        system: The system that the load goes to.
        generator: The generator.
        path: The path of the generator's program, which replaces its name in the command.
        load: The load to generate.
        scratch: A folder for the generator's files.
        before: A command line that is put in front of the generator's command and runs it; empty = none.
        files: Name → text of files that the command line in `before` needs.

    """

    system: System
    generator: Generator
    path: str
    load: GeneratorLoad
    scratch: Path
    before: Sequence[str] = ()
    files: Mapping[str, str] = field(default_factory=dict[str, str])


def run_generators(
    jobs: Sequence[GeneratorJob], started: Callable[[], object] = lambda: None
) -> list[GeneratorOutcome]:
    """Run load generators at once, each on the client's side of its system; return the outcomes in the order of `jobs`.

    A generator is killed if it still runs a grace period after its planned time. If a generator cannot be started,
    crashes, hangs or writes too much, its outcome shows this and no error is raised. Only faults of the lab itself
    raise errors.

    Args:
        jobs: The generators.
        started: A function that is called once, when every generator has been started.

    """
    with ExitStack() as lasting:
        return prepare_generators(jobs, lasting)(started)


def prepare_generators(jobs: Sequence[GeneratorJob], lasting: ExitStack) -> Callable[..., list[GeneratorOutcome]]:
    """Prepare load generators, and return the function that starts them all and waits until they have ended.

    Everything that a start needs, such as files and connections, is prepared now. So the generators begin within a
    short time of each other. The returned function takes the optional argument `started` of `run_generators`, and
    returns the outcomes in the order of `jobs`.

    Args:
        jobs: The generators.
        lasting: A stack of contexts; when the caller closes it, generators that still run are ended.

    """
    waiting = [_prepare(job, lasting) for job in jobs]

    def run(started: Callable[[], object] = lambda: None) -> list[GeneratorOutcome]:
        running = [begin() for begin in waiting]
        started()
        while True:
            outcomes = [item if isinstance(item, GeneratorOutcome) else item.outcome() for item in running]
            if None not in outcomes:
                return [outcome for outcome in outcomes if outcome is not None]
            time.sleep(POLL_S)

    return run


def _prepare(job: GeneratorJob, lasting: ExitStack) -> Callable[[], _Running | GeneratorOutcome]:
    """Prepare a load generator, and return the function that starts it.

    The function returns the running process, or an outcome if the generator cannot be started. If several generators
    make the load together, the function runs all of them to their end and returns one outcome for all.
    """
    load = job.load
    # If the system is disturbed, the last answers may be as late as the timeout allows.
    takes_s = load.duration_s + (load.timeout_s if load.logged else 0.0) + GRACE_S
    with writing(job.scratch, "TMPDIR"):
        stdout = lasting.enter_context(open(job.scratch / "stdout", "w+b"))  # noqa: SIM115 - it closes it
        stderr = lasting.enter_context(open(job.scratch / "stderr", "w+b"))  # noqa: SIM115

    def run_many() -> GeneratorOutcome:
        ran = job.system.generate(load, job.generator.files(load))
        return GeneratorOutcome(ran.stdout, ran.stderr, ran.exit_status, 0.0, 0, ran.hung)

    def refuse(error: OSError) -> GeneratorOutcome:
        return GeneratorOutcome("", f"{job.path} cannot be started: {error}", NOT_STARTED, 0.0, 0, False)

    if load.generators > 1:
        return run_many
    argv = [*job.before, *build_command(job.generator, job.path, load)]
    try:
        with as_store_error(job.path):
            scripts = {**job.generator.files(load), **job.files}
            start = lasting.enter_context(job.system.held(argv, job.scratch, stdout, stderr, scripts))
    except OSError as error:
        return partial(refuse, error)

    def begin() -> _Running | GeneratorOutcome:
        try:
            with as_store_error(job.path), _limit_files():
                process = start()
        except OSError as error:
            return refuse(error)
        running = _Running(process, (stdout, stderr), time.monotonic() + takes_s)
        lasting.callback(running.end)
        return running

    return begin


@contextmanager
def _limit_files() -> Iterator[None]:
    """Limit how many bytes a process that is started in the `with` block can write to a file, such as its output.

    The process and its children inherit the limit. The kernel ends a process that writes more (signal SIGXFSZ). The
    limit is set before the start, because afterwards it could be too late on a busy machine. The lab itself ignores
    that signal, as Python does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = OUTPUT_LIMIT_BYTES if hard == resource.RLIM_INFINITY else min(OUTPUT_LIMIT_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@dataclass(slots=True)
class _Running:
    """The process of a load generator that was started.

    Attributes:
        process: The process.
        streams: The open files with the process's output and error output.
        deadline: The time by time.monotonic() after which the process is killed as hung.

    """

    process: subprocess.Popen[bytes]
    streams: tuple[IO[bytes], IO[bytes]]
    deadline: float
    _outcome: GeneratorOutcome | None = None
    _hung: bool = False

    def outcome(self) -> GeneratorOutcome | None:
        """Return the generator's outcome, or None while its process runs; kill a process that runs beyond its deadline.

        The process is queried with wait4, because Popen.poll does not report the resource use of this child.
        """
        if self._outcome is not None:
            return self._outcome
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid:
            self.process.returncode = os.waitstatus_to_exitcode(status)
            kill_group(self.process)  # children that it left behind would go on writing
            cpu_s = usage.ru_utime + usage.ru_stime
            output = _read_output(*self.streams, self.process.returncode)
            self._outcome = GeneratorOutcome(*output, cpu_s, usage.ru_maxrss * 1024, self._hung)
        elif time.monotonic() > self.deadline and not self._hung:
            self._hung = True
            kill_group(self.process)
        return self._outcome

    def end(self) -> None:
        if self.process.returncode is None:
            end_group(self.process)


def take_files(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Read the files that a generator left in its scratch folder, and remove them.

    Args:
        folder: The scratch folder.
        names: The names of the files that the generator may have left.

    Returns:
        File name → content, for those files that exist. The content is incomplete if the generator was ended while
        writing.

    """
    contents: dict[str, bytes] = {}
    with writing(folder, "TMPDIR"):
        for path in (folder / name for name in names):
            if path.is_file():
                contents[path.name] = path.read_bytes()
                path.unlink()
    return contents


def _read_output(stdout: IO[bytes], stderr: IO[bytes], status: int) -> tuple[str, str, int]:
    """Read what a generator wrote, and return (output, error output, exit status).

    If the generator has reached the size limit of a file, only the beginnings of both outputs are returned. The error
    output then starts with a note, and the returned status is never 0.

    Args:
        stdout: The open file with the output.
        stderr: The open file with the error output.
        status: The exit status of the generator.

    """
    descriptors = {"stdout": stdout.fileno(), "stderr": stderr.fileno()}
    cut = [name for name, file in descriptors.items() if os.fstat(file).st_size >= OUTPUT_LIMIT_BYTES]
    size = CUT_OUTPUT_BYTES if cut else OUTPUT_LIMIT_BYTES
    output, errors = (os.pread(file, size, 0).decode("utf-8", "surrogateescape") for file in descriptors.values())
    if not cut:
        return output, errors, status
    note = f"the lab allows {OUTPUT_LIMIT_BYTES / 2**20:g} MiB of {' and '.join(cut)}: more was cut off\n"
    return output, note + errors, status or -signal.SIGXFSZ


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a process group, with all processes of the group, and wait for its end."""
    kill_group(process)
    process.wait()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to all processes of the group that a process leads; a group that has ended is no error."""
    with suppress(ProcessLookupError):  # it may have ended in the meantime
        os.killpg(process.pid, signal.SIGKILL)


def run_with_variant(target: Target, variant: Variant, argv: Sequence[str]) -> int:
    """Start a variant, run the user's command as a client of it, and return the command's exit status.

    The command gets the system's URL and host name in the environment variables LAB_URL and LAB_HOST.

    Args:
        target: The target where the variant is started.
        variant: The variant.
        argv: The user's command.

    """
    target.check()
    target.check_variant(variant, [])
    with target.up(variant) as system:
        entry = system.entry()
        # The user's own command gets the user's home and terminal.
        personal = [f"{name}={value}" for name in ("HOME", "TERM") if (value := os.environ.get(name))]
        arguments = ["env", *personal, f"LAB_URL={entry.base_url}", f"LAB_HOST={entry.host}", *argv]
        process = system.popen(arguments, Path.cwd(), sys.stdout.buffer, sys.stderr.buffer)
        try:
            return process.wait()
        except BaseException:
            end_group(process)
            raise
