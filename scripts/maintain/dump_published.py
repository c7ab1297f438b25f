#!/usr/bin/env python3
"""Write what the lab prints of every committed run to a folder, so that a change of the code shows what it changes.

    scripts/shell scripts/maintain/dump_published.py FOLDER                   this checkout's code on this checkout's data
    scripts/shell scripts/maintain/dump_published.py FOLDER --code CHECKOUT   another checkout's code on this checkout's data
    scripts/maintain/dump_published.py --diff A B                             what differs between two dumps

Each command line of `LINES` is run for each run of data/reference, further boots included, and each of `LINES_OF_ALL` once. A command
line has a file of its own with its exit status, stderr and stdout; files that it writes lie beside it. SHA256SUMS is of all of them.
The verbs run in this script's own processes, one a core, so the many command lines import the lab once each process.

With --code, what lies in `lab/`, `manifests/`, `notebooks/` and `data/published` is the other checkout's; data/reference and the other
folders of data/ are this one's. Exit status: 0; of --diff 1 where something differs; 2 for wrong usage.
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
table RUN --notes
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
"""Of each run. OTHER is its next boot, or else the next run of the same sweep on the same target; SAMPLE, ARM and POINT are those of its first valid
sample. A line with a word that has no value for a run is left out."""
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
"""Run when all else is done: it starts a process of its own for each core."""
SETTINGS = {"COLUMNS": "120", "LINES": "50", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC0"}
"""Of the environment, so that a dump does not depend on the terminal."""
NOT_SET = ("FORCE_COLOR", "CLICOLOR_FORCE", "LAB_DEBUG", "LAB_INSIDE")
VALUE = re.compile(r"\b(?:OUT|RUN|OTHER|ARM|POINT|SAMPLE)\b")
MOST_BYTES = 1_000_000
"""Of what one command line prints; of a longer one (rows of requests, buckets of histograms) the rest is kept as a digest."""
MOST_LINES_SHOWN = 40
"""Of a file's difference."""
PACKED = re.compile(rb"H4sI[A-Za-z0-9+/]{80,}={0,2}")
"""gzip in base64, as the report holds its script: written unpacked, so that differences can be read."""


# -- one command line -----------------------------------------------------------------------------------


def mask_places(content: bytes, code: Path, scratch: str) -> bytes:
    """Return what was printed with a word for each place: the only change that a dump makes. It holds no time of its own.

    Samples hold where their generators lay, in the .cache of some checkout.
    """
    places = {scratch: "OUT", os.environ["LAB_RUNS"]: "RUNS", str(code): "CHECKOUT", str(ROOT): "CHECKOUT"}
    for place, name in sorted(places.items(), key=lambda item: -len(item[0])):
        content = content.replace(place.encode(), name.encode())
    return re.sub(rb"/[\w/.-]*/\.cache/", b"CHECKOUT/.cache/", content)


def dump_line(template: str, values: Mapping[str, str], folder: Path, code: Path) -> str:
    """Run one command line in this process, write its file into `folder`, and return what it printed on stdout."""
    with TemporaryDirectory(prefix="dump-") as scratch:
        known = {**values, "OUT": scratch}
        words = [VALUE.sub(lambda name: known[name[0]], each) for each in template.split()]
        status, stdout, stderr = run_verb(words)
        name = re.sub(r"\W+", "_", re.sub(r"\b(RUN|OUT)\b", "", template)).strip("_")
        head = f"$ lab {shlex.join(words)}\nexit status {status}\n--- stderr\n".encode()
        folder.mkdir(parents=True, exist_ok=True)
        said = mask_places(b"".join([head, stderr, b"--- stdout\n", stdout]), code, scratch)
        if len(said) > MOST_BYTES:
            digest, begun = hashlib.sha256(said).hexdigest(), said[:MOST_BYTES].rpartition(b"\n")[0]
            said = begun + f"\n--- {len(said)} bytes in all, SHA-256 {digest}\n".encode()
        (folder / f"{name}.txt").write_bytes(said)
        for path in sorted(Path(scratch).iterdir()):
            content = path.read_bytes()
            if path.suffix == ".html":
                unpacked = PACKED.sub(lambda found: gzip.decompress(base64.b64decode(found[0])), content)
                content = mask_places(unpacked, code, scratch)
            (folder / f"{name}.{path.name}").write_bytes(content)
    return stdout.decode(errors="replace")


def run_verb(words: Sequence[str]) -> tuple[int | str | None, bytes, bytes]:
    """Return (exit status, stdout, stderr) of `python -m lab WORDS`, both streams as a file gets them."""
    from lab.__main__ import main

    with suppress(ImportError):  # what was called otherwise before keeps its file's name
        from lab.commands.verbs import OLD_SPELLINGS

        words = [*OLD_SPELLINGS.get(words[0], words[0]).split(), *words[1:]]
    streams = [io.TextIOWrapper(TemporaryFile(), encoding="utf-8") for _ in range(2)]  # noqa: SIM115  closed below
    sys.stdout, sys.stderr = streams
    status: int | str | None
    try:
        status = main(words)
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
    """Import the lab of the checkout whose code is asked for, and no other."""
    warnings.simplefilter("ignore")  # each is printed once a process, so by whichever line comes first
    import lab.__main__

    if not Path(lab.__main__.__file__).is_relative_to(code):
        raise ImportError(f"lab was imported from {lab.__main__.__file__}, not from {code}")


def dump_run(run: str, other: str | None, folder: Path, code: Path) -> None:
    """Write all of `LINES` of a run. `run`, `other`: folders as seen from the checkout."""
    values = {"RUN": run} | ({"OTHER": other} if other else {})
    for template in LINES.strip().split("\n"):
        if {*values, "OUT"} >= set(VALUE.findall(template)):
            stdout = dump_line(template, values, folder, code)
            if template == SAMPLES:
                rows = (json.loads(line) for line in stdout.splitlines())
                valid = next((row for row in rows if row["valid"]), None)
                values |= {name.upper(): valid[name] for name in ("sample", "arm", "point")} if valid else {}


def dump_all(lines: Sequence[str], folder: Path, code: Path) -> None:
    for template in lines:
        dump_line(template, {}, folder, code)


# -- the whole --------------------------------------------------------------------------------------------


def list_runs(only: Sequence[str]) -> dict[str, str | None]:
    """Return each committed run with the run that it is compared with, both as folders seen from the checkout, the largest first."""
    references = [path for path in sorted((ROOT / "data/reference").iterdir()) if path.is_dir()]
    if unknown := set(only) - {path.name for path in references}:
        fail(f"--only {' '.join(sorted(unknown))}: not in data/reference")
    kinds = {path: kind_of(path) for path in references}
    found: dict[Path, Path | None] = {}
    for at, path in enumerate(references):
        boots = sorted(path.glob("boot-*"))
        alike = (each for each in references[at + 1 :] if kinds[path] and kinds[each] == kinds[path])
        if not only or path.name in only:
            found |= {path: next(iter(boots), None) or next(alike, None), **dict.fromkeys(boots)}
    sizes = {path: sum(file.stat().st_size for file in path.glob("*") if file.name != "hist.parquet") for path in found}
    return {place(path): found[path] and place(found[path]) for path in sorted(found, key=lambda path: -sizes[path])}


def kind_of(folder: Path) -> tuple[str, str] | None:
    """Return the sweep and the target of a committed run, which must be alike to be compared; None for what is no run."""
    if not (folder / "run.json").is_file():
        return None
    record = json.loads((folder / "run.json").read_text())
    return record["sweep"], record["target"]


def place(path: Path | None) -> str:
    return str(path.relative_to(ROOT)) if path else ""


def dump(folder: Path, code: Path, only: Sequence[str]) -> None:
    """Write a whole dump, or with `only` that of some references."""
    runs = list_runs(only)
    prepare_environment(code)
    with TemporaryDirectory(prefix="dump-runs-") as none:
        os.environ["LAB_RUNS"] = none  # the user's own runs are no part of what is published
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), begin_worker, (str(code),)) as pool:
            begun: dict[Future[None], str] = {}
            if not only:
                begun[pool.submit(dump_all, LINES_OF_ALL.strip().split("\n"), folder / "all", code)] = "the ledger"
            for run, other in runs.items():
                into = folder / Path(run).relative_to("data/reference")
                begun[pool.submit(dump_run, run, other, into, code)] = run
            for number, each in enumerate(as_completed(begun), start=1):
                each.result()
                print(f"{number} of {len(begun)}: {begun[each]}", file=sys.stderr)
            if not only:
                pool.submit(dump_all, [REPORT], folder / "all", code).result()
    write_sums(folder)


def prepare_environment(code: Path) -> None:
    """Set what the processes inherit: one checkout's code, this checkout's data, and a terminal that is always the same."""
    os.chdir(ROOT)
    for name in NOT_SET:
        os.environ.pop(name, None)
    os.environ |= {**SETTINGS, "PYTHONPATH": str(code), "LAB_REFERENCE": str(ROOT / "data/reference")}
    sys.path[:] = [str(code), *(each for each in sys.path if not (Path(each) / "lab").is_dir())]


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads, and print the sum of it and of how many files it is."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n" for path in paths]
    text = "".join(sums)
    (folder / "SHA256SUMS").write_text(text)
    print(f"{hashlib.sha256(text.encode()).hexdigest()}  {folder / 'SHA256SUMS'} of {len(paths)} files")


# -- two dumps --------------------------------------------------------------------------------------------


def print_differences(before: Path, after: Path) -> int:
    """Print what differs between two dumps; return how many files do."""
    files = [
        {path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS"}
        for folder in (before, after)
    ]
    differing = 0
    for path in sorted(files[0] | files[1]):
        if missing := [folder for folder, known in zip((before, after), files, strict=True) if path not in known]:
            print(f"{path}: not in {missing[0]}")
        else:
            old, new = (before / path).read_bytes(), (after / path).read_bytes()
            if old == new:
                continue
            lines = [f"{len(old)} bytes → {len(new)} bytes, not text"]
            if b"\0" not in old[:1000]:
                was, now = (each.decode(errors="replace").splitlines() for each in (old, new))
                lines = list(difflib.unified_diff(was, now, lineterm="", n=0))[2:]
            more = [f"… {len(lines) - MOST_LINES_SHOWN} more lines"] if len(lines) > MOST_LINES_SHOWN else []
            print(f"{path}:", *lines[:MOST_LINES_SHOWN], *more, sep="\n")
        differing += 1
    print(f"{differing} of {len(files[0] | files[1])} files differ")
    return differing


def fail(message: str) -> None:
    print(f"dump_published: {message}", file=sys.stderr)
    sys.exit(2)


def main() -> int:
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
