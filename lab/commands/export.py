"""The verb `export`: it writes a stored run for other tools, as tables, as OpenMetrics, or as a load generator's raw output."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

from rich.console import Console
from rich.markup import escape

from lab.base.errors import UsageError, refuse_first, refuse_if, refuse_unknown
from lab.base.files import as_option_error
from lab.commands import RUN_ARGUMENT, Options, Verb

if TYPE_CHECKING:
    from lab.model.samples import Sample
    from lab.records.store import RunStore

AnyFormat = Literal["csv", "json", "parquet", "openmetrics"]
FORMATS: tuple[AnyFormat, ...] = ("csv", "json", "parquet", "openmetrics")
TABLES = ("samples", "histograms", "requests", "events", "usage", "levels")
VERBATIM = ("raw", "k6", "k6-summary")
SUFFIXES: Mapping[str, AnyFormat] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".prom": "openmetrics",
    ".om": "openmetrics",
}
"""The format that the name of the --output file implies, by its suffix."""


def _run_export(options: Options, talk: Console) -> None:
    output = Path(options.output) if options.output else None
    form: AnyFormat = options.format or (SUFFIXES.get(output.suffix, "csv") if output else "csv")
    verbatim = options.what in VERBATIM
    refuse_first(
        (
            verbatim and options.format,
            "--format",
            f"--what {options.what} is printed as it is, in no format of the lab's",
            "leave it out",
        ),
        (
            verbatim and not options.sample,
            "--what",
            f"{options.what} is of one sample",
            "name it by --sample: `--what samples` lists them",
        ),
        (
            not verbatim and form == "openmetrics" and options.what != "samples",
            "--format",
            f"openmetrics has no {options.what}, only metrics of samples",
            "leave --what out (latency histograms are part of it), or choose csv, json or parquet",
        ),
        (
            not verbatim and form == "parquet" and output is None,
            "--format",
            "parquet is not for a terminal or a pipe",
            "name a file by --output",
        ),
    )

    from lab.records.store import RunStore
    from lab.report.export import openmetrics, tables

    run = RunStore.open(options.run)
    samples = run.samples()
    if options.sample is not None:
        by_id = {sample.id: sample for sample in samples}
        refuse_unknown(options.sample, by_id, "--sample", f"no sample '{options.sample}' in {run.record.id}")
        samples = [by_id[options.sample]]
    if verbatim:
        _export_verbatim(run, samples[0], options.what, output)
        return

    def write(out: IO[bytes]) -> None:
        if form == "openmetrics":
            out.write(openmetrics.render_openmetrics(run.record, samples, run.histogram))
        else:
            tables.write(tables.yield_tables(run, options.what, samples), form, out)

    _write(output, write)
    if output is not None:
        talk.print(f"{options.what}: {escape(str(output))}", highlight=False, soft_wrap=True)


def _export_verbatim(run: RunStore, sample: Sample, kind: str, output: Path | None) -> None:
    """Export a sample's raw output: that of its load generator, or a file that k6 wrote.

    Args:
        run: The run.
        sample: The sample.
        kind: "raw" for the generator's output: its stdout goes to `output`, its stderr to stderr. "k6" or "k6-summary"
            for a file of k6; it is decompressed unless the name of `output` ends in .gz.
        output: The file to write; None = stdout.

    """
    if kind == "raw":
        stdout, stderr = (text.encode("utf-8", "surrogateescape") for text in run.raw(sample))
        _write(output, lambda out: out.write(stdout))
        sys.stderr.buffer.write(stderr)
        sys.stderr.flush()
        return
    content, packed = _read_k6(run, sample, kind)
    keep = packed and output is not None and output.suffix == ".gz"
    if packed and not keep:
        try:  # as far as possible: the file of a k6 that was killed has no end
            content = zlib.decompressobj(wbits=31).decompress(content)
        except zlib.error as error:
            remedy = "restore it from a copy; `--what raw` prints what k6 said"
            raise UsageError("--what", f"k6's own output cannot be read: {error}", remedy) from None
    _write(output, lambda out: out.write(content))


def _read_k6(run: RunStore, sample: Sample, kind: str) -> tuple[bytes, bool]:
    """Return the content of a file that k6 wrote for a sample, and whether the content is gzip-compressed.

    Args:
        run: The run.
        sample: The sample.
        kind: "k6-summary" for the summary, "k6" for the file with every number.

    Raises:
        UsageError: The sample has no such file.

    """
    from lab.generators.k6 import OUTPUTS, SUMMARY

    names = [SUMMARY] if kind == "k6-summary" else [name for name, _ in OUTPUTS.values()]
    for name in names:
        if (content := run.left(sample, name)) is not None:
            return content, name.endswith(".gz")
    place, remedy = f"sample {sample.id}", f"`--what raw` prints the output of {sample.generator}"
    refuse_if(sample.generator != "k6", place, f"was made by {sample.generator}, not by k6", remedy)
    rows = run.left(sample, SUMMARY) is not None
    fault = "has k6's summary and no rows" if rows else "has none of k6's own output"
    remedy = "`--what raw` prints its output; `just bench … --k6-out csv` (or json, summary) keeps its own files with each sample"
    raise UsageError(place, fault, remedy)


def _write(output: Path | None, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that it appears complete or not at all.

    A pipe or a device such as /dev/stdout is written directly.

    Args:
        output: The file; None = stdout.
        write: A function that writes the content into an open file.

    Raises:
        UsageError: The file cannot be written.

    """
    if output is None:
        write(sys.stdout.buffer)
        sys.stdout.flush()
        return
    partial: Path | None = None
    try:
        with as_option_error("--output", output):
            if output.is_file() or not output.exists():
                partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
            with open(partial or output, "wb") as out:
                write(out)
            if partial:
                partial.replace(output)
    finally:
        if partial:
            with suppress(OSError):
                partial.unlink()


EXPORT = Verb(
    "write a run for other tools: as CSV, JSON lines, Parquet or OpenMetrics, or a load generator's own output",
    _run_export,
    {
        "run": RUN_ARGUMENT,
        "--format": {
            "choices": FORMATS,
            "help": "format of the output: csv, json (an object per line), parquet (needs --output) or openmetrics (text"
            " format 1.0, which Prometheus reads) (default: by the ending of --output's name, else csv)",
        },
        "--what": {
            "choices": (*TABLES, *VERBATIM),
            "default": "samples",
            "help": "what to write. samples: a row per sample, invalid ones with their reason; histograms: a row per latency"
            " bucket; requests, events: every request and event during a disruption; usage: a row per process and second;"
            " levels: the variance between repeats, worker generations and bring-ups, as in data/levels; raw: the load"
            " generator's output, byte for byte; k6, k6-summary: k6's own, of a run with `bench --k6-out` (default: samples)",
        },
        "--sample": {
            "metavar": "ID",
            "help": "write only this sample, by its id in the table of samples; raw, k6 and k6-summary require it",
        },
        "--output": {
            "metavar": "FILE",
            "help": "write to this file instead of standard output; an existing file is replaced when all is written",
        },
    },
    examples=(
        "just export data/reference/quick-keepalive",
        "just export data/reference/quick-keepalive --what usage --output usage.parquet",
    ),
)
