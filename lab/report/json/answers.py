"""The JSON that commands print about plans, ablations, migrations, capacity and the usage of processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from lab.analysis import pidstat
from lab.analysis.capacity.answer import Answer, ProxySize, RequestCost, Wanted
from lab.analysis.judge.effects import Effect
from lab.analysis.migration.mapping import Line, Migration, MigrationPlan, Trap, Unknown
from lab.model.design import PlannedFor, Promise
from lab.model.metrics import DIFFERENCES
from lab.model.run import NotMeasured, RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.model.usage import USAGE_SCHEMA
from lab.records.ablation import AblationRecord
from lab.report.json.runs import DIFFERENCE, RATIO, VERSION_3
from lab.report.json.shape import JsonKey, JsonShape, Printed, list_type, optional_type
from lab.report.tables.ablation import Ranked

VERSION_1 = JsonKey("schema_version", lambda _: 1, Literal[1])
VERSION_2 = JsonKey("schema_version", lambda _: 2, Literal[2])

# -- plans ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """A load point of a planned run, with its load generator, and the reason if it cannot be measured with two variants at once.

    Attributes:
        point: The load point.
        generator: The generator's `name` and `version`, and the generator that it replaces (`stand_in_for`).
        why_alone: The reason; empty if pairs are measured at the point.

    """

    point: LoadPoint
    generator: dict[str, str | None]
    why_alone: str


def _list_loads(record: RunRecord) -> list[PlannedLoad]:
    names = ("name", "version", "stand_in_for")
    loads = [(point, record.generators[point.name]) for point in record.points]
    return [
        PlannedLoad(point, {name: generator[name] for name in names}, point.why_alone if record.pairs else "")
        for point, generator in loads
    ]


RUN_PLAN = JsonShape(
    "RunPlan",
    RunRecord,
    "run=id target sweep",
    JsonKey(
        "cpus",
        lambda run: {key.removeprefix("cpus_"): cpus for key, cpus in run.facts.items() if key.startswith("cpus_")},
        dict[str, str],
    ),
    "arms",
    JsonKey("loads", _list_loads, tuple[PlannedLoad, ...]),
    JsonKey("unpaired", lambda run: {v.name: v.unpaired for v in run.variants.values() if v.unpaired}, dict[str, str]),
    "not_measurable at_knee knee traffic blocks seed",
    JsonKey("pairs", "pairs", int, len),
    JsonKey("alone", lambda run: len(run.slots) - len(run.pairs), int),
    JsonKey("done", None, int),
    JsonKey("planned_for", None, PlannedFor | None),
    "margin",
    JsonKey("promised", None, tuple[Promise, ...]),
    JsonKey("promised_by", None, str),
    JsonKey("fresh_bring_ups", None, int),
    JsonKey("duration_s", None, float),
    parts=[JsonShape("Load", PlannedLoad)],
)
PLAN = JsonShape(
    "Plan",
    None,
    VERSION_2,
    JsonKey("ablation", None, AblationRecord | None),
    JsonKey("runs", None, tuple[RunRecord, ...]),
    JsonKey("left_out", None, tuple[NotMeasured, ...]),
    JsonKey("questions", None, tuple[dict[Literal["question", "command"], str], ...]),
    JsonKey("duration_s", None, float),
    parts=[JsonShape("AblationPlan", AblationRecord, "id subject steps notes"), RUN_PLAN],
    title="What `--plan --json` prints; seconds, bytes, requests per second, shares",
)


def plan_run(record: RunRecord, done: int = 0) -> dict[str, Any]:
    """Return the JSON data about one run of a plan.

    Args:
        record: The planned run.
        done: The number of its planned measurements (single samples and pairs of variants) that are done already.

    """
    slots, design = len(record.slots), record.designed
    designed = {
        "done": done,
        "planned_for": design.planned_for,
        "promised": design.promised,
        "promised_by": design.promised_by,
        "fresh_bring_ups": design.fresh.count,
        "duration_s": design.duration_s * (1 - done / slots if slots else 1),
    }
    return RUN_PLAN.read(record, designed)


# -- ablations, migrations, capacity -----------------------------------------------------------------------------


def _convert_effect(effect: Effect) -> Printed:
    """Return an effect for JSON: a difference if its metric is an outcome of a disruption, and otherwise a ratio."""
    return (DIFFERENCE if effect.metric in DIFFERENCES else RATIO).model.model_validate(effect)


KNOB = JsonShape(
    "Knob",
    Ranked,
    "knob=step.knob title=step.title sweep=step.sweep metric=step.metric root=step.root against=step.against",
    "alone=step.alone cumulative=step.cumulative why=step.why point",
    JsonKey("one_at_a_time", "alone", optional_type(RATIO, DIFFERENCE), _convert_effect),
    JsonKey("cumulatively", "cumulative", optional_type(RATIO, DIFFERENCE), _convert_effect),
    "verdict snippet notes",
)
ABLATION = JsonShape(
    "Ablation",
    AblationRecord,
    VERSION_1,
    "id subject target",
    JsonKey("complete", None, bool),
    "runs notes",
    JsonKey("knobs", None, tuple[Ranked, ...]),
    parts=[KNOB],
    title="What `ablate --json` prints; effects of steady loads are ratios, of disturbed ones differences",
)
LINE = JsonShape(
    "Line",
    Line,
    "key ingress text value standing how setting to default there weight what differs warning note source unverified",
    "claims=row.claims",
)
SYSTEM = JsonShape(
    "System",
    Migration,
    "system program=about.setting version=about.value checked=about.default",
    "standings settings annotations traps all_keys=defaults",
    parts=[LINE, JsonShape("Trap", Trap, "weight keys in_file line", parts=[LINE])],
)
MIGRATION = JsonShape(
    "Migration",
    MigrationPlan,
    VERSION_2,
    "configmap=place given unknown ingresses notes systems=migrations",
    parts=[JsonShape("Unknown", Unknown), SYSTEM],
    title="What `migrate --json` prints",
)
CAPACITY = JsonShape(
    "Capacity",
    Answer,
    VERSION_3,
    "wanted runs variant=cost.loads.0.arm.variant cost cores cores_interval sizes",
    JsonKey("advised", lambda answer: answer, Answer),
    "assumptions",
    parts=[
        JsonShape("Wanted", Wanted, "rate_rps tls keepalive page_bytes utilisation"),
        JsonShape(
            "Cost",
            RequestCost,
            "cpu_per_request_s=value_s interval_s blocks",
            JsonKey("how", lambda _: "measured", Literal["measured"]),
            "bound basis",
        ),
        JsonShape("Size", ProxySize, "cores serves_rps serves_interval_rps proxies proxies_interval advised"),
        JsonShape("Advised", Answer, "cores=advised.cores proxies=advised.advised snippet"),
    ],
    title="What `capacity --json` prints; seconds, requests per second, fractions",
)

# -- usage ----------------------------------------------------------------------------------------------------


def list_usage(sample: Sample, usage: pl.DataFrame, memory_bytes: int | None) -> dict[str, Any]:
    """Return the JSON data that `usage --json` prints about one sample: what each process used, second by second and on average.

    Args:
        sample: The sample.
        usage: The usage table of the sample.
        memory_bytes: The memory of the machine; None: not known.

    """
    tables = _make_usage_tables(usage, memory_bytes)
    return USAGE.read(sample, {name: table.to_dicts() for name, table in tables.items()})


def _make_usage_tables(usage: pl.DataFrame, memory_bytes: int | None) -> dict[str, pl.DataFrame]:
    return {
        "cpu": pidstat.build_cpu_table(usage),
        "memory": pidstat.memory_table(usage, memory_bytes),
        "average": pidstat.summary(usage, memory_bytes),
    }


def _make_row_shape(name: str, table: pl.DataFrame) -> JsonShape:
    """Return the JSON shape of a usage table's rows: its columns become the keys, and any value may be null."""
    kinds = table.schema.to_python()
    return JsonShape(name.title(), None, *(JsonKey(column, None, kind | None) for column, kind in kinds.items()))


USAGE = JsonShape(
    "Usage",
    Sample,
    "sample=id arm point=point.name block",
    *(
        JsonKey(name, None, list_type(_make_row_shape(name, table)))
        for name, table in _make_usage_tables(pl.DataFrame(schema=USAGE_SCHEMA), None).items()
    ),
)
