"""The JSON that the other verbs print: plans, ablations, migrations, capacity and usage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from lab.analysis import pidstat
from lab.analysis.capacity.answer import Answer, Cost, Size, Wanted
from lab.analysis.judge.effects import Effect
from lab.analysis.migration.mapping import Line, Migration, Trap, Unknown
from lab.model.design import PlannedFor, Promise
from lab.model.metrics import DIFFERENCES
from lab.model.run import NotMeasured, RunRecord
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.model.usage import USAGE_SCHEMA
from lab.records.ablation import AblationRecord
from lab.report.json.runs import DIFFERENCE, RATIO, VERSION_2
from lab.report.json.shape import Key, Printed, Shape, each, either
from lab.report.tables.ablation import Ranked

VERSION_1 = Key("schema_version", lambda _: 1, Literal[1])

# -- plans ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlannedLoad:
    """One load of a plan, its generator, and the reason why it does not support pairing."""

    point: Point
    generator: dict[str, str | None]
    why_alone: str


def _list_loads(record: RunRecord) -> list[PlannedLoad]:
    names = ("name", "version", "stand_in_for")
    loads = [(point, record.generators[point.name]) for point in record.points]
    return [
        PlannedLoad(point, {name: generator[name] for name in names}, point.why_alone if record.pairs else "")
        for point, generator in loads
    ]


RUN_PLAN = Shape(
    "RunPlan",
    RunRecord,
    "run=id target sweep",
    Key(
        "cpus",
        lambda run: {key.removeprefix("cpus_"): cpus for key, cpus in run.facts.items() if key.startswith("cpus_")},
        dict[str, str],
    ),
    "arms",
    Key("loads", _list_loads, tuple[PlannedLoad, ...]),
    Key("unpaired", lambda run: {v.name: v.unpaired for v in run.variants.values() if v.unpaired}, dict[str, str]),
    "not_measurable at_knee knee blocks seed",
    Key("pairs", "pairs", int, len),
    Key("alone", lambda run: len(run.slots) - len(run.pairs), int),
    Key("done", None, int),
    Key("planned_for", None, PlannedFor | None),
    "worth",
    Key("promised", None, tuple[Promise, ...]),
    Key("promised_by", None, str),
    Key("fresh_bring_ups", None, int),
    Key("duration_s", None, float),
    parts=[Shape("Load", PlannedLoad)],
)
PLAN = Shape(
    "Plan",
    None,
    VERSION_1,
    Key("ablation", None, AblationRecord | None),
    Key("runs", None, tuple[RunRecord, ...]),
    Key("left_out", None, tuple[NotMeasured, ...]),
    Key("beside", None, tuple[dict[Literal["question", "command"], str], ...]),
    Key("duration_s", None, float),
    parts=[Shape("AblationPlan", AblationRecord, "id subject steps notes"), RUN_PLAN],
    title="What `--plan --json` prints; seconds, bytes, requests per second, shares",
)


def plan_run(record: RunRecord, done: int = 0) -> dict[str, Any]:
    """Return one run of a plan as JSON data.

    Args:
        record: The planned run.
        done: How many of its pairs and samples need no further measurement.

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
    """Return an effect as a difference, where its metric is an outcome of a disruption, else as a ratio."""
    return (DIFFERENCE if effect.metric in DIFFERENCES else RATIO).model.model_validate(effect)


KNOB = Shape(
    "Knob",
    Ranked,
    "knob=step.knob title=step.title sweep=step.sweep metric=step.metric root=step.root against=step.against",
    "alone=step.alone cumulative=step.cumulative why=step.why point",
    Key("one_at_a_time", "alone", either(RATIO, DIFFERENCE), _convert_effect),
    Key("cumulatively", "cumulative", either(RATIO, DIFFERENCE), _convert_effect),
    "verdict snippet notes",
)
ABLATION = Shape(
    "Ablation",
    AblationRecord,
    VERSION_1,
    "id subject target",
    Key("complete", None, bool),
    "runs notes",
    Key("knobs", None, tuple[Ranked, ...]),
    parts=[KNOB],
    title="What `ablate --json` prints; effects of steady loads are ratios, of disturbed ones differences",
)
LINE = Shape("Line", Line, "key ingress text value standing how setting to default weight what note source")
SYSTEM = Shape(
    "System",
    Migration,
    "system standings settings annotations traps all_keys=defaults",
    parts=[LINE, Shape("Trap", Trap, parts=[LINE])],
)
MIGRATION = Shape(
    "Migration",
    None,
    VERSION_1,
    Key("configmap", "place", str),
    Key("given", "given", dict[str, str]),
    Key("unknown", "unknown", tuple[Unknown, ...]),
    Key("notes", "notes", tuple[str, ...]),
    Key("systems", "migrations", tuple[Migration, ...]),
    parts=[Shape("Unknown", Unknown), SYSTEM],
    title="What `migrate --plan --json` prints",
)
"""The shape of a migration's plan; its source type is in `lab.experiments`, which this package must not import."""
CAPACITY = Shape(
    "Capacity",
    Answer,
    VERSION_2,
    "wanted runs variant=cost.loads.0.arm.variant cost cores cores_interval sizes",
    Key("advised", lambda answer: answer, Answer),
    "assumptions",
    parts=[
        Shape("Wanted", Wanted, "rate_rps tls keepalive page_bytes utilisation"),
        Shape(
            "Cost",
            Cost,
            "cpu_per_request_s=value_s interval_s blocks",
            Key("how", lambda _: "measured", Literal["measured"]),
            "bound basis",
        ),
        Shape("Size", Size, "cores serves_rps serves_interval_rps proxies proxies_interval advised"),
        Shape("Advised", Answer, "cores=advised.cores proxies=advised.advised snippet"),
    ],
    title="What `capacity --json` prints; seconds, requests per second, fractions",
)

# -- usage ----------------------------------------------------------------------------------------------------


def list_usage(sample: Sample, usage: pl.DataFrame, memory_bytes: int | None) -> dict[str, Any]:
    """Return the JSON data that `usage --json` prints of one sample.

    Args:
        sample: The sample.
        usage: The usage table of the sample.
        memory_bytes: The memory of the machine; None: not known.

    """
    tables = _make_usage_tables(usage, memory_bytes)
    return USAGE.read(sample, {name: table.to_dicts() for name, table in tables.items()})


def _make_usage_tables(usage: pl.DataFrame, memory_bytes: int | None) -> dict[str, pl.DataFrame]:
    return {
        "cpu": pidstat.cpu_table(usage),
        "memory": pidstat.memory_table(usage, memory_bytes),
        "average": pidstat.summary(usage, memory_bytes),
    }


def _make_row_shape(name: str, table: pl.DataFrame) -> Shape:
    """Return the shape of the rows of a usage table, where any value may be unknown."""
    kinds = table.schema.to_python()
    return Shape(name.title(), None, *(Key(column, None, kind | None) for column, kind in kinds.items()))


USAGE = Shape(
    "Usage",
    Sample,
    "sample=id arm point=point.name block",
    *(
        Key(name, None, each(_make_row_shape(name, table)))
        for name, table in _make_usage_tables(pl.DataFrame(schema=USAGE_SCHEMA), None).items()
    ),
)
