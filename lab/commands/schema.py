"""JSON schemas of everything that the lab reads and records, kept in `lab/schema/` so that others can rely on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args, get_type_hints

from lab.analysis.calibration.records import CalibrationRecord
from lab.analysis.claims import Rule
from lab.analysis.claims.publications import OwnRule
from lab.analysis.claims.studies import StudyFile
from lab.analysis.effects import Effect
from lab.analysis.knee.report import KneeReport
from lab.analysis.selfbench import Report as SelfbenchReport
from lab.analysis.verdicts import Verdict
from lab.base.errors import UsageError
from lab.experiments.selfbench.injected import InjectedReport
from lab.experiments.selfbench.neighbour import NeighbourReport
from lab.model.events import EVENTS_SCHEMA
from lab.model.metrics import DIFFERENCES, QUANTILES, WINDOWED
from lab.model.plan import Arm
from lab.model.run import NotMeasured, RoundTrip, RunRecord
from lab.model.samples import Reason, Sample
from lab.model.sweeps import Sweep
from lab.model.usage import USAGE_SCHEMA
from lab.model.variants.knobs import Check
from lab.model.variants.variants import annotation_schema
from lab.records.tables import HISTOGRAM_SCHEMA
from lab.report.json.ablation import AblationJson
from lab.report.json.calibration import CalibratedJson
from lab.report.json.capacity import EitherJson
from lab.report.json.comparison import ComparisonJson
from lab.report.json.gate import GateJson
from lab.report.json.noise import AaJson
from lab.report.json.usage import UsagesJson
from lab.stats.histogram import HALF, LINEAR

FOLDER = Path(__file__).parents[1] / "schema"
DIALECT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}

TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
COUNT = {"type": "integer", "minimum": 0}
TEXTS = {"type": "array", "items": TEXT}


def schemas() -> dict[str, Any]:
    """File stem → schema of what is read (`annotations`, `sweep`), recorded (`run`, `sample`, …) or printed (`result`)."""
    return {
        "annotations": annotation_schema(),
        "sweep": Sweep.model_json_schema(),
        "study": StudyFile.model_json_schema(),
        "claim": Rule.model_json_schema(),
        "claim-published": OwnRule.model_json_schema(),
        "sample": Sample.model_json_schema(),
        "run": RunRecord.model_json_schema(),
        "roundtrip": RoundTrip.model_json_schema(),
        "knee": KneeReport.model_json_schema(),
        "reasons": _reasons(),
        "readback": _readback(),
        "deployed": _deployed(),
        "result": _result(),
        "comparison": DIALECT | ComparisonJson.model_json_schema(),
        "gate": DIALECT | GateJson.model_json_schema(),
        "capacity": DIALECT | EitherJson.model_json_schema(),
        "aa": DIALECT | AaJson.model_json_schema(),
        "ablation": DIALECT | AblationJson.model_json_schema(),
        "used": DIALECT | UsagesJson.model_json_schema(),
        "selfbench": SelfbenchReport.model_json_schema(),
        "selfbench-neighbour": NeighbourReport.model_json_schema(),
        "selfbench-effects": InjectedReport.model_json_schema(),
        "calibration": CalibrationRecord.model_json_schema(),
        "calibrated": DIALECT | CalibratedJson.model_json_schema(),
        "histogram": {
            "title": "Columns of hist.parquet",
            "description": "one row per bucket that is not empty; series: latency (from when a request was due, where the"
            " generator knows that) or service (from when it was sent); bucket: n below"
            f" {LINEAR} holds n µs; above, with s = (n - {LINEAR}) // {HALF} + 1, it holds 2^s µs from"
            f" ((n - {LINEAR}) % {HALF} + {HALF}) * 2^s on",
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


def _reasons() -> dict[str, Any]:
    return {
        **DIALECT,
        "title": "Reasons that make a sample invalid",
        "description": "in order: the first that applies is the sample's reason; environmental ones are measured again",
        "oneOf": [{"const": reason.value, "description": reason.meaning} for reason in Reason],
        "environmental": [reason.value for reason in Reason if reason.environmental],
    }


def _readback() -> dict[str, Any]:
    """As `Reading.as_json` writes it: a check's keys are left out, never null."""
    check = Check.model_json_schema()
    keys = {name: _not_null(schema) for name, schema in check["properties"].items()}
    found = {
        "observed": TEXT | {"description": "what the running system has; or `absent`, `unreadable`"},
        "ok": FLAG,
        "detail": TEXT | {"description": "why it is not ok, in words"},
    }
    reading = _object(keys | found, optional=("name", "context", "port", "process", "among"))
    title = "readback/bBB-ARM.json: what was found after one bring-up, one entry per check"
    return {**DIALECT, "title": title, "type": "array", "items": reading | {"description": check["description"]}}


def _deployed() -> dict[str, Any]:
    """As `lab.targets.cluster.facts.pods_record` makes it."""
    image = _object({"image": TEXT | {"description": "as asked for"}, "image_id": _or_null(TEXT)})
    pod = {
        "role": _or_null(TEXT),
        "name": TEXT,
        "node": _or_null(TEXT),
        "ready": FLAG,
        "restarts": COUNT,
        "qos": _or_null(TEXT),
        "images": {"type": "object", "additionalProperties": image, "description": "by container"},
    }
    title = "deployed/bBB-ARM.json: the pods that came up, one entry per pod; only of clusters"
    return {**DIALECT, "title": title, "type": "array", "items": _object(pod)}


def _result() -> dict[str, Any]:
    """As `tables.as_json` makes it, with what a whole run has beside its rows."""
    ratio = _or_null(NUMBER | {"exclusiveMinimum": 0})
    counts = {"type": "object", "additionalProperties": COUNT}
    effect = {
        "metric": TEXT,
        "against": TEXT | {"description": "the baseline's arm"},
        "primary": FLAG | {"description": "only the primary metric may claim"},
        "judgement": _enum(Effect, "judgement"),
        "blocks": COUNT,
        "ratio": ratio | {"description": "arm / baseline"},
        **dict.fromkeys(("ratio_low", "ratio_high"), ratio | {"description": "95 % interval; null below six blocks"}),
        **dict.fromkeys(("p_value", "holm_p_value"), _or_null(NUMBER | {"minimum": 0, "maximum": 1})),
        "floor_ratio": ratio | {"description": "what A/A leaves open; null below six blocks"},
        **dict.fromkeys(("hodges_lehmann_ratio", "hodges_lehmann_low", "hodges_lehmann_high"), ratio),
        "notes": TEXTS,
    }
    row = {
        **dict.fromkeys(("arm", "variant"), TEXT),
        "role": _enum(Arm, "role"),
        "baseline": _or_null(TEXT),
        "point": TEXT,
        "connections": COUNT,
        **dict.fromkeys(("generator", "stand_in_for"), _or_null(TEXT)),
        "offered_rps": _or_null(NUMBER) | {"description": "null = closed loop"},
        "achieved_rps": _or_null(NUMBER),
        "latency_s": _object(dict.fromkeys((*QUANTILES, "max"), _or_null(NUMBER)))
        | {"description": "null = fewer than ten requests beyond it"},
        "histogram": _or_null({"enum": ["exact", "quantiles"]}),
        "requests": COUNT,
        "errors": counts | {"description": "by kind, over the valid samples"},
        "errors_invalid": counts | {"description": "by kind, over the invalid samples"},
        "cpu_per_request_s": _or_null(NUMBER),
        "cpu_of": _or_null(TEXT) | {"description": "whose CPU that is"},
        "memory_bytes": _or_null(NUMBER) | {"description": "of the same: resident at most, the blocks' median"},
        "gauges": {"type": "object", "additionalProperties": NUMBER}
        | {"description": "what the system said of itself before the load, by role/name: medians"},
        "bring_up_s": _or_null(NUMBER) | {"description": "median; not part of any measured time"},
        **dict.fromkeys(("valid_blocks", "planned_blocks"), COUNT),
        "invalid": counts
        | {"propertyNames": {"enum": [reason.value for reason in Reason]}, "description": "samples by reason"},
        "generator_limited": FLAG,
        "notes": TEXTS,
        "effects": {"type": "array", "items": _object(effect)},
    }
    verdict = dict.fromkeys(("arm", "text", "snippet"), TEXT) | {"kind": _enum(Verdict, "kind")}
    result = {
        "schema_version": {"const": 1},
        "target": _or_null(TEXT),
        "blocks": COUNT,
        "seed": {"type": "integer"},
        "complete": FLAG,
        "floor": TEXT,
        "not_measurable": {"type": "array", "items": NotMeasured.model_json_schema()}
        | {"description": "what was asked for and cannot be shown here; counts against nothing"},
        "study": {"type": "object", "description": "of a study's run: its tables, see study_tables.as_json"},
        "roundtrip": _or_null(RoundTrip.model_json_schema())
        | {"description": "of the bare network; null = not tried yet"},
        "notes": TEXTS,
        "verdicts": {"type": "array", "items": _object(verdict)},
        "rows": {"type": "array", "items": _object(row)},
        "outcomes": _outcomes(verdict),
    }
    title = "What `bench --json` and `table --json` print; seconds, requests per second, ratios; null = not known"
    return {**DIALECT, "title": title, **_object(result, optional=("study", "roundtrip", "outcomes"))}


def _outcomes(verdict: dict[str, Any]) -> dict[str, Any]:
    """As `outcome_tables.as_json` makes it."""
    number, share = _or_null(NUMBER), _or_null(NUMBER | {"minimum": 0, "maximum": 1})
    metric = {"enum": list(DIFFERENCES)}
    effect = {
        "metric": metric,
        "against": TEXT | {"description": "the baseline's arm"},
        "primary": FLAG | {"description": "only the primary metric may claim"},
        "judgement": _enum(Effect, "judgement"),
        "blocks": COUNT,
        "difference": number | {"description": "arm - baseline, the blocks' mean, in the metric's own unit"},
        **dict.fromkeys(("low", "high"), number | {"description": "95 % interval; null below six blocks"}),
        **dict.fromkeys(("p_value", "holm_p_value"), share),
        "floor": number | {"description": "what A/A and the load's resolution leave open; null below six blocks"},
        **dict.fromkeys(("hodges_lehmann", "hodges_lehmann_low", "hodges_lehmann_high"), number),
        "notes": TEXTS,
    }
    by_metric = {"type": "object", "propertyNames": metric}
    median = _object({"value": NUMBER, "low": number, "high": number, "blocks": COUNT})
    row = {
        **dict.fromkeys(("arm", "variant"), TEXT),
        "role": _enum(Arm, "role"),
        "baseline": _or_null(TEXT),
        "point": TEXT,
        "control": FLAG | {"description": "the same load with nothing done"},
        "disturbance": {"type": "object", "description": "kind and keys, as in the sweep"},
        **dict.fromkeys(("generator", "stand_in_for"), _or_null(TEXT)),
        **dict.fromkeys(("valid_blocks", "planned_blocks"), COUNT),
        "invalid": {"type": "object", "additionalProperties": COUNT, "description": "samples by reason"},
        "clock_error_s": NUMBER,
        "notes": TEXTS,
        "values": by_metric
        | {"additionalProperties": {"type": "object", "additionalProperties": number}}
        | {"description": "metric, block: value; null = it could not be told"},
        "medians": by_metric | {"additionalProperties": median},
        "slowdowns": {
            "type": "object",
            "propertyNames": {"enum": list(reversed(WINDOWED))},
            "additionalProperties": _object({"ratio": NUMBER, "low": number, "high": number, "blocks": COUNT}),
            "description": "latency during against before, of each block's own two; interval from six blocks on",
        },
        "effects": {"type": "array", "items": _object(effect)},
    }
    about = _object({"title": TEXT, "better": {"enum": ["less", "more", "neither"]}})
    properties = {
        "complete": FLAG,
        "floor": TEXT,
        "notes": TEXTS,
        "verdicts": {"type": "array", "items": _object(verdict)},
        "metrics": by_metric | {"additionalProperties": about},
        "rows": {"type": "array", "items": _object(row)},
    }
    return _object(properties) | {"description": "of loads beside a disturbance; seconds, bytes, counts"}


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """pydantic's schema of an optional field, without the null."""
    kept = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return kept | next((part for part in schema.get("anyOf", []) if part != {"type": "null"}), {})


def _enum(owner: type, field: str) -> dict[str, Any]:
    """The words that a field may hold, from its `Literal`."""
    return {"enum": list(get_args(get_type_hints(owner)[field]))}


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
