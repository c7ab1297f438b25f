#!/usr/bin/env python3
"""Write what the lab prints of every committed run to a folder, so that a change of the code shows what it changes.

    scripts/shell scripts/maintain/dump_published.py FOLDER                   this checkout's code on this checkout's data
    scripts/shell scripts/maintain/dump_published.py FOLDER --code CHECKOUT   another checkout's code on this checkout's data
    scripts/maintain/dump_published.py --diff A B                             what differs between two dumps

Each command line of `LINES` runs for each run of data/reference, further boots included, and each of `LINES_OF_ALL` runs once. A command
line has its own file with its exit status, stderr and stdout; the files that it writes lie next to that file. SHA256SUMS covers all files.
The verbs run in this script's worker processes, one for each core. So the lab is imported once per process, not once per command line.

With --code, `lab/`, `manifests/`, `notebooks/`, `data/published` and `data/settings.json` are those of the other checkout. The runs of
data/reference, and the folders that are found through it (data/levels, data/trials), are those of this checkout. The exit status is 0; that
of --diff is 1 where something differs; 2 stands for wrong usage.
"""

from __future__ import annotations

import argparse
import base64
import difflib
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = "export RUN --format json"
LINES = f"""
{SAMPLES}
table RUN
table RUN --all
table RUN --json
table RUN --markdown
table RUN --from-raw --json
compare RUN
compare RUN --json
compare RUN --markdown
compare RUN OTHER
compare RUN OTHER --json
usage RUN
usage RUN --json
usage RUN --arm ARM --point POINT
report --run RUN --output OUT
export RUN
export RUN --format openmetrics
export RUN --output OUT/samples.parquet
export RUN --what histograms
export RUN --what histograms --format json
export RUN --what histograms --output OUT/histograms.parquet
export RUN --what requests
export RUN --what requests --format json
export RUN --what requests --output OUT/requests.parquet
export RUN --what events
export RUN --what events --format json
export RUN --what events --output OUT/events.parquet
export RUN --what usage
export RUN --what usage --format json
export RUN --what usage --output OUT/usage.parquet
export RUN --what levels
export RUN --what levels --format json
export RUN --what levels --output OUT/levels.parquet
export RUN --what raw --sample SAMPLE
export RUN --what k6-summary --sample SAMPLE
export RUN --what k6 --sample SAMPLE
"""
"""The command lines that run for each run.

OTHER is the run's next boot, or else the next run of the same sweep on the same target. SAMPLE, ARM and POINT are those of the run's first
valid sample. A line with a placeholder that has no value for a run is left out.
"""
LINES_OF_ALL = """
ledger
ledger --rules
ledger --boots
ledger --boots --json
ledger --boots --markdown
ledger --json
ledger --markdown
ledger aws-a1
ledger digitalocean
ledger nds
ledger okd
ledger qinng
ledger successors
"""
REPORT = "report --output OUT"
"""The command line that runs last, because it starts a process for each core."""
SETTINGS = {"COLUMNS": "120", "LINES": "50", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC0"}
"""The environment variables that make a dump independent of the terminal."""
NOT_SET = ("FORCE_COLOR", "CLICOLOR_FORCE", "LAB_DEBUG", "LAB_INSIDE")
VALUE = re.compile(r"\b(?:OUT|RUN|OTHER|ARM|POINT|SAMPLE)\b")
MOST_BYTES = 1_000_000
"""The most bytes that are kept of what one command line prints.

A longer output (rows of requests, buckets of histograms) also gets a digest of the whole.
"""
MOST_LINES_SHOWN = 40
"""The most lines that are shown of one file's difference."""
PACKED = re.compile(rb"H4sI[A-Za-z0-9+/]{80,}={0,2}")
"""The pattern of gzip data in base64, as the report holds its script.

It is written unpacked, so that differences can be read.
"""


# -- one command line -----------------------------------------------------------------------------------


def mask_places(content: bytes, code: Path, scratch: str) -> bytes:
    """Replace the paths of this machine's folders in an output by placeholders, such as CHECKOUT.

    So dumps of different checkouts can be compared. The folder .cache of any checkout is replaced, too, because samples
    record where their generators were.

    Args:
        content: The output of a command line, or a file that it wrote.
        code: The folder of the checkout whose code ran; it becomes CHECKOUT.
        scratch: The temporary folder of the command line's files; it becomes OUT.

    """
    placeholders = {scratch: "OUT", os.environ["LAB_RUNS"]: "RUNS", str(code): "CHECKOUT", str(ROOT): "CHECKOUT"}
    for place, name in sorted(placeholders.items(), key=lambda item: -len(item[0])):
        content = content.replace(place.encode(), name.encode())
    return re.sub(rb"/[\w/.-]*/\.cache/", b"CHECKOUT/.cache/", content)


def dump_line(template: str, values: Mapping[str, str], folder: Path, code: Path) -> str:
    """Run one command line in this process, write its output into files of a dump, and return its stdout.

    Args:
        template: The command line without `lab`, with placeholders such as RUN and OUT.
        values: The value of each placeholder except OUT, which is a new temporary folder.
        folder: The folder of the dump to write to.
        code: The folder of the checkout whose code runs.

    """
    with TemporaryDirectory(prefix="dump-") as scratch:
        all_values = {**values, "OUT": scratch}
        arguments = [VALUE.sub(lambda match: all_values[match[0]], argument) for argument in template.split()]
        status, stdout, stderr = run_verb(arguments)
        name = re.sub(r"\W+", "_", re.sub(r"\b(RUN|OUT)\b", "", template)).strip("_")
        head = f"$ lab {shlex.join(arguments)}\nexit status {status}\n--- stderr\n".encode()
        folder.mkdir(parents=True, exist_ok=True)
        printed = mask_places(b"".join([head, stderr, b"--- stdout\n", stdout]), code, scratch)
        if len(printed) > MOST_BYTES:
            digest, beginning = hashlib.sha256(printed).hexdigest(), printed[:MOST_BYTES].rpartition(b"\n")[0]
            printed = beginning + f"\n--- {len(printed)} bytes in all, SHA-256 {digest}\n".encode()
        (folder / f"{name}.txt").write_bytes(printed)
        for path in sorted(Path(scratch).iterdir()):
            content = path.read_bytes()
            if path.suffix == ".html":
                unpacked = PACKED.sub(lambda match: gzip.decompress(base64.b64decode(match[0])), content)
                content = mask_places(unpacked, code, scratch)
            (folder / f"{name}.{path.name}").write_bytes(content)
    return stdout.decode(errors="replace")


def run_verb(arguments: Sequence[str]) -> tuple[int | str | None, bytes, bytes]:
    """Run `python -m lab ARGUMENTS` in this process, with stdout and stderr redirected to files.

    Args:
        arguments: The arguments. A former name of a verb is replaced by the present one.

    Returns:
        The exit status, the content of stdout, and the content of stderr.

    """
    from lab.__main__ import main

    with suppress(ImportError):  # a verb with a new name keeps the name of its file
        from lab.commands.verbs import OLD_SPELLINGS

        arguments = [*OLD_SPELLINGS.get(arguments[0], arguments[0]).split(), *arguments[1:]]
    streams = [io.TextIOWrapper(TemporaryFile(), encoding="utf-8") for _ in range(2)]  # noqa: SIM115  closed below
    sys.stdout, sys.stderr = streams
    status: int | str | None
    try:
        status = main(arguments)
    except SystemExit as error:
        status = error.code
    finally:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    printed: list[bytes] = []
    for stream in streams:
        stream.seek(0)
        printed.append(stream.buffer.read())
        stream.close()
    return status, printed[0], printed[1]


# -- a process's work -----------------------------------------------------------------------------------


def begin_worker(code: str) -> None:
    """Import the lab in a worker process, and check that it comes from the expected checkout.

    Args:
        code: The folder of the checkout.

    Raises:
        ImportError: The lab was imported from another folder.

    """
    warnings.simplefilter("ignore")  # a warning is printed once per process, so the output would depend on the order
    import lab.__main__

    if not Path(lab.__main__.__file__).is_relative_to(code):
        raise ImportError(f"lab was imported from {lab.__main__.__file__}, not from {code}")


def dump_run(run: str, partner: str | None, folder: Path, code: Path) -> None:
    """Run each command line of `LINES` for one committed run, and write the outputs into a folder.

    Args:
        run: The folder of the run, relative to the checkout.
        partner: The folder of the run to compare it with (placeholder OTHER); None = there is none.
        folder: The folder to write to.
        code: The folder of the checkout whose code runs.

    """
    values = {"RUN": run} | ({"OTHER": partner} if partner else {})
    for template in LINES.strip().split("\n"):
        if {*values, "OUT"} >= set(VALUE.findall(template)):
            stdout = dump_line(template, values, folder, code)
            if template == SAMPLES:
                rows = (json.loads(line) for line in stdout.splitlines())
                valid = next((row for row in rows if row["valid"]), None)
                values |= {name.upper(): valid[name] for name in ("sample", "arm", "point")} if valid else {}


def dump_all(lines: Sequence[str], folder: Path, code: Path) -> None:
    """Run some command lines that are not about a single run, and write the outputs into a folder.

    Args:
        lines: The command lines without `lab`.
        folder: The folder to write to.
        code: The folder of the checkout whose code runs.

    """
    for template in lines:
        dump_line(template, {}, folder, code)


# -- the whole --------------------------------------------------------------------------------------------


def list_runs(only: Sequence[str]) -> dict[str, str | None]:
    """Return the committed runs, each with the run that it is compared with, the largest run first.

    A reference is a committed run in `data/reference`. Its subfolders `boot-*` have further runs of its design,
    measured on other boots of the machine.

    Args:
        only: The names of the references to list; each is listed with its further runs. Empty = all references.

    Returns:
        The folder of a run → the folder of the run to compare it with, both relative to the checkout. A reference is
        compared with the first of its further runs, or else with the next reference that has an equal sweep and target.
        None = there is no such run.

    """
    references = [path for path in sorted((ROOT / "data/reference").iterdir()) if path.is_dir()]
    if unknown := set(only) - {path.name for path in references}:
        fail(f"--only {' '.join(sorted(unknown))}: not in data/reference")
    kinds = {path: kind_of(path) for path in references}
    partners: dict[Path, Path | None] = {}
    for index, path in enumerate(references):
        boots = sorted(path.glob("boot-*"))
        same_kind = (later for later in references[index + 1 :] if kinds[path] and kinds[later] == kinds[path])
        if not only or path.name in only:
            partners |= {path: next(iter(boots), None) or next(same_kind, None), **dict.fromkeys(boots)}
    sizes = {
        path: sum(file.stat().st_size for file in path.glob("*") if file.name != "hist.parquet") for path in partners
    }
    return {
        relative_path(path): partners[path] and relative_path(partners[path])
        for path in sorted(partners, key=lambda path: -sizes[path])
    }


def kind_of(folder: Path) -> tuple[str, str] | None:
    """Return the sweep (list of loads) and the target of a committed run; None if the folder has no run.json.

    Only runs for which both are equal are compared.
    """
    if not (folder / "run.json").is_file():
        return None
    record = json.loads((folder / "run.json").read_text())
    return record["sweep"], record["target"]


def relative_path(path: Path | None) -> str:
    """Return a path relative to the checkout as text; the text is empty for None."""
    return str(path.relative_to(ROOT)) if path else ""


def dump(folder: Path, code: Path, only: Sequence[str]) -> None:
    """Write what the lab prints about the committed runs into a folder, so that two versions of the code can be compared.

    Args:
        folder: The empty folder to write to.
        code: The folder of the checkout whose code runs.
        only: The names of the references to include. Empty = all of them, and also the commands that are about all
            runs.

    """
    runs = list_runs(only)
    prepare_environment(code)
    with TemporaryDirectory(prefix="dump-runs-") as no_runs:
        os.environ["LAB_RUNS"] = no_runs  # the user's own runs are not published
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), begin_worker, (str(code),)) as pool:
            jobs: dict[Future[None], str] = {}
            if not only:
                jobs[pool.submit(dump_all, LINES_OF_ALL.strip().split("\n"), folder / "all", code)] = "the ledger"
            for run, partner in runs.items():
                run_folder = folder / Path(run).relative_to("data/reference")
                jobs[pool.submit(dump_run, run, partner, run_folder, code)] = run
            for number, job in enumerate(as_completed(jobs), start=1):
                job.result()
                print(f"{number} of {len(jobs)}: {jobs[job]}", file=sys.stderr)
            if not only:
                pool.submit(dump_all, [REPORT], folder / "all", code).result()
    write_sums(folder)


def prepare_environment(code: Path) -> None:
    """Prepare the environment that worker processes inherit: which code they import, which data they read, and the terminal.

    Args:
        code: The folder of the checkout whose code they import. The workers read data/reference, data/levels and the trials from this
            checkout, and data/published and data/settings.json from `code`.

    """
    os.chdir(ROOT)
    for name in NOT_SET:
        os.environ.pop(name, None)
    os.environ |= {**SETTINGS, "PYTHONPATH": str(code), "LAB_REFERENCE": str(ROOT / "data/reference")}
    sys.path[:] = [str(code), *(entry for entry in sys.path if not (Path(entry) / "lab").is_dir())]


def write_sums(folder: Path) -> None:
    """Write the file SHA256SUMS with the digests of all files in a folder, for `sha256sum --check`.

    The digest of SHA256SUMS itself and the number of files are printed.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in paths]
    text = "".join(sums)
    (folder / "SHA256SUMS").write_text(text)
    print(f"{hashlib.sha256(text.encode()).hexdigest()}  {folder / 'SHA256SUMS'} of {len(paths)} files")


# -- two dumps --------------------------------------------------------------------------------------------


def print_differences(before: Path, after: Path) -> int:
    """Print the differences between the files of two dumps, and return the number of files that differ.

    Args:
        before: The folder of the first dump.
        after: The folder of the second dump.

    """
    files = [
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS"}
        for folder in (before, after)
    ]
    differing = 0
    for path in sorted(files[0] | files[1]):
        if missing := [folder for folder, paths in zip((before, after), files, strict=True) if path not in paths]:
            print(f"{path}: not in {missing[0]}")
        else:
            old, new = (before / path).read_bytes(), (after / path).read_bytes()
            if old == new:
                continue
            lines = [f"{len(old)} bytes → {len(new)} bytes, not text"]
            if b"\0" not in old[:1000]:
                old_lines, new_lines = (content.decode(errors="replace").splitlines() for content in (old, new))
                lines = list(difflib.unified_diff(old_lines, new_lines, lineterm="", n=0))[2:]
            remainder = [f"… {len(lines) - MOST_LINES_SHOWN} more lines"] if len(lines) > MOST_LINES_SHOWN else []
            print(f"{path}:", *lines[:MOST_LINES_SHOWN], *remainder, sep="\n")
        differing += 1
    print(f"{differing} of {len(files[0] | files[1])} files differ")
    return differing


def fail(message: str) -> None:
    """Print a message to stderr and exit with status 2."""
    print(f"dump_published: {message}", file=sys.stderr)
    sys.exit(2)


def main() -> int:
    """Run the program with the arguments of the command line.

    Returns:
        The exit status: 1 if `--diff` is given and the dumps differ, else 0. Wrong usage ends the program with status 2.

    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="an empty or new folder outside of the checkout")
    parser.add_argument(
        "--code", metavar="CHECKOUT", default=str(ROOT), help="whose code runs (default: this checkout)"
    )
    parser.add_argument(
        "--only", metavar="NAME", nargs="+", default=[], help="these references only, and not what is of all"
    )
    parser.add_argument("--diff", metavar=("A", "B"), nargs=2, help="print what differs between two dumps")
    options = parser.parse_args()
    if options.diff:
        before, after = map(Path, options.diff)
        for folder in (before, after):
            if not (folder / "SHA256SUMS").is_file():
                fail(f"{folder}: holds no whole dump (SHA256SUMS is missing)")
        return 1 if print_differences(before, after) else 0
    if not options.folder:
        fail("name the folder to write to")
    folder, code = Path(options.folder).resolve(), Path(options.code).resolve()
    if folder.is_relative_to(ROOT) or (folder.exists() and any(folder.iterdir())):
        fail(f"{folder}: lies in the checkout or is not empty; name a new folder outside of it")
    if not (code / "lab/__main__.py").is_file():
        fail(f"--code {code}: holds no lab/__main__.py; name a checkout")
    shutil.rmtree(folder, ignore_errors=True)
    dump(folder, code, options.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
