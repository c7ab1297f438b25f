"""A committed run in the form in which runs are measured, a folder per sample, for tests that change a file of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lab.records import packed
from lab.records.folders import FolderForm
from lab.records.renamed import rename_sample
from lab.records.store import RunStore
from lab.records.tables import KNEE, ROUNDTRIP, RUN, join_raw


def unpacked(source: Path, into: Path) -> Path:
    """`into`, which is not there yet; a run that is a folder per sample is copied as it is."""
    run = RunStore.open(f"{source.absolute()}")
    of_its_day = run.names.inverse
    if not run.packed:
        return Path(shutil.copytree(source, into))
    form = FolderForm(into, run.record.id)
    form.create({of_its_day.of(name): run.manifests(name) for name in run.record.variants})
    for name in (RUN, KNEE):
        if (source / name).is_file():
            shutil.copy(source / name, into)
    for kind, name, found in packed.parse_bring_ups(packed.read_lines(source / packed.BRINGUPS)):
        if (kind, name) == packed.NETWORK:
            (into / ROUNDTRIP).write_text(json.dumps(found))
        else:
            form.write_brought_up(kind, name, found)
    for sample in run.samples():
        named = {series: run.histogram(sample, series) for series in ("latency", "service")}
        histograms = {series: each for series, each in named.items() if each is not None}
        events = run.events(sample) if sample.point.disturbance is not None else None
        stored = rename_sample(sample, of_its_day)
        form.write_sample(stored, join_raw(*run.raw(sample)), histograms, run.usage(sample), events, {})
    return into
