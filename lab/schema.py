"""JSON schemas of everything that the lab reads and records, kept in `lab/schema/` so that others can rely on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.errors import UsageError
from lab.samples import Reason, Sample
from lab.store import USAGE_SCHEMA, RunRecord
from lab.sweeps import Sweep
from lab.variants import annotation_schema

FOLDER = Path(__file__).parent / "schema"


def schemas() -> dict[str, Any]:
    """File stem → schema: `annotations`, `sweep`, `sample`, `run`, `reasons`, `usage`."""
    reasons = {
        "enum": [reason.value for reason in Reason],
        "description": "in order: the first that applies is the sample's reason",
    }
    return {
        "annotations": annotation_schema(),
        "sweep": Sweep.model_json_schema(),
        "sample": Sample.model_json_schema(),
        "run": RunRecord.model_json_schema(),
        "reasons": {
            "title": "Reasons that make a sample invalid",
            "type": "string",
            **reasons,
        },
        "usage": {
            "title": "Columns of usage.parquet",
            "columns": {name: str(kind) for name, kind in USAGE_SCHEMA.items()},
        },
    }


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    for stem, text in _texts().items():
        try:
            (FOLDER / f"{stem}.json").write_text(text)
        except OSError as error:
            raise UsageError(str(FOLDER), f"cannot be written: {error.strerror}", "make it writable") from None


def stale() -> list[str]:
    """Schema files that are missing or differ from the models."""
    return [
        stem
        for stem, text in _texts().items()
        if not (path := FOLDER / f"{stem}.json").is_file() or path.read_text() != text
    ]


def _texts() -> dict[str, str]:
    return {stem: json.dumps(schema, indent=1) + "\n" for stem, schema in schemas().items()}
