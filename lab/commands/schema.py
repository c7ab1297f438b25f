"""The JSON schemas of everything that the lab reads, records and prints; they are stored in `lab/schema/` for other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter

from lab.analysis.knee.report import KneeReport
from lab.base.errors import UsageError
from lab.experiments.verification.verify import VerifiedPair
from lab.model.events import EVENTS_SCHEMA
from lab.model.run import RoundTrip, RunRecord
from lab.model.samples import Reason, Sample
from lab.model.sweeps import Sweep
from lab.model.usage import USAGE_SCHEMA
from lab.model.variants.variants import annotation_schema
from lab.records.calibration import CalibrationRecord
from lab.records.tables import HISTOGRAM_SCHEMA
from lab.report.json import answers, runs
from lab.report.json.shape import DIALECT
from lab.report.json.verification import make_verification_shape
from lab.stats.histogram import BUCKETS_PER_DOUBLING, LINEAR_BUCKETS
from lab.studies.claims import ClaimRule
from lab.studies.claims.publications import OwnRule
from lab.studies.results import RESULT
from lab.studies.study_files import StudyFile
from lab.systems.reading import ReadingRecord
from lab.targets.cluster.facts import PodRecord

FOLDER = Path(__file__).parents[1] / "schema"


def schemas() -> dict[str, Any]:
    """Return all JSON schemas of the lab, as name of the schema's file without its ending (`run`, `sample`, …) → schema.

    They describe what the lab reads (`annotations`, `sweep`), records (`run`, `sample`, …) and prints (`result`).
    `histogram`, `usage` and `events` are no JSON schemas: they list the columns of Parquet files instead.
    """
    return {
        "annotations": annotation_schema(),
        "sweep": Sweep.model_json_schema(),
        "study": StudyFile.model_json_schema(),
        "claim": ClaimRule.model_json_schema(),
        "claim-published": OwnRule.model_json_schema(),
        "sample": Sample.model_json_schema(),
        "run": RunRecord.model_json_schema(),
        "roundtrip": RoundTrip.model_json_schema(),
        "knee": KneeReport.model_json_schema(),
        "reasons": _build_reasons(),
        "readback": _build_list_schema(
            ReadingRecord,
            "readback/bBB-ARM.json: what was found after one bring-up, one entry per check;"
            " a check's empty keys are left out",
        ),
        "deployed": _build_list_schema(
            PodRecord, "deployed/bBB-ARM.json: the pods that came up, one entry per pod; only of clusters"
        ),
        "result": RESULT.schema(),
        "comparison": runs.COMPARISON.schema(),
        "gate": runs.GATE.schema(),
        "capacity": answers.CAPACITY.schema(),
        "aa": runs.AA.schema(),
        "ablation": answers.ABLATION.schema(),
        "migration": answers.MIGRATION.schema(),
        "verification": make_verification_shape(VerifiedPair).schema(),
        "plan": answers.PLAN.schema(),
        "used": _build_list_schema(
            answers.USAGE.model,
            "What `table --usage --json` prints, one entry per sample; %, per second, KiB; null = not known",
        ),
        "calibration": CalibrationRecord.model_json_schema(),
        "histogram": {
            "title": "Columns of hist.parquet",
            "description": "one row per bucket that is not empty; series: latency (from when a request was due, where the"
            " generator knows that) or service (from when it was sent); bucket: n below"
            f" {LINEAR_BUCKETS} holds n µs; above, with s = (n - {LINEAR_BUCKETS}) // {BUCKETS_PER_DOUBLING} + 1, it holds 2^s µs from"
            f" ((n - {LINEAR_BUCKETS}) % {BUCKETS_PER_DOUBLING} + {BUCKETS_PER_DOUBLING}) * 2^s on",
            "columns": {name: str(kind) for name, kind in HISTOGRAM_SCHEMA.items()},
        },
        "usage": {
            "title": "Columns of usage.parquet",
            "columns": {name: str(kind) for name, kind in USAGE_SCHEMA.items()},
        },
        "events": {
            "title": "Columns of events.parquet",
            "description": "what happened to the system while a load was logged, in the order of time; at_s: seconds since the"
            " epoch by the lab's clock; source: who said it; lab/model/events.py has the kinds",
            "columns": {name: str(kind) for name, kind in EVENTS_SCHEMA.items()},
        },
    }


def _build_reasons() -> dict[str, Any]:
    return {
        **DIALECT,
        "title": "Reasons that make a sample invalid",
        "description": "in order: the first that applies is the sample's reason; environmental ones are measured again",
        "oneOf": [{"const": reason.value, "description": reason.meaning} for reason in Reason],
        "environmental": [reason.value for reason in Reason if reason.environmental],
    }


def _build_list_schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    return {**DIALECT, **TypeAdapter(list[model]).json_schema(), "title": title}


def write() -> None:
    """Write all JSON schemas of the lab into their files in `lab/schema`.

    Raises:
        UsageError: A file cannot be written.

    """
    FOLDER.mkdir(exist_ok=True)
    for stem, text in texts().items():
        try:
            (FOLDER / f"{stem}.json").write_text(text)
        except OSError as error:
            raise UsageError(str(FOLDER), f"cannot be written: {error.strerror}", "make it writable") from None


def texts() -> dict[str, str]:
    """Return the content of every JSON schema file of the lab, as name of the file without its ending → text."""
    return {stem: json.dumps(schema, indent=1) + "\n" for stem, schema in schemas().items()}
