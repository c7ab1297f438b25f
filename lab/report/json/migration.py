"""What `migrate --plan --json` prints: of every successor every setting and every trap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from lab.analysis.migration.mapping import Migration, Standing, Trap, Unknown
from lab.analysis.migration.table import How, Weight
from lab.report.json.printed import Count, Printed


class UnknownJson(Printed):
    """A name that ingress-nginx 1.15.1 does not have, and ignores."""

    name: str
    text: str
    hint: str = Field(description="what may be meant")


class LineJson(Printed):
    """A key, or an annotation of one Ingress, on this successor."""

    key: Annotated[str, Field(description="empty: ingress-nginx has no such setting")]
    ingress: Annotated[str, Field(description="namespace/name of an annotation's; empty for the ConfigMap")]
    text: Annotated[str, Field(description="as the file has it; empty where it does not")]
    value: Annotated[str, Field(description="as ingress-nginx takes it")]
    standing: Annotated[
        Standing,
        Field(
            description="same: by itself; set: can be written; hand: must be made by hand; lost: no counterpart; off: without effect in this file"
        ),
    ]
    how: How
    setting: str
    to: Annotated[str, Field(description="the value there")]
    default: Annotated[str, Field(description="the successor's own; of how=none what happens instead")]
    weight: Weight
    what: str
    note: str
    source: str


class TrapJson(Printed):
    """What is otherwise after the move."""

    weight: Weight
    keys: tuple[str, ...]
    in_file: Annotated[bool, Field(description="set there; else the defaults differ")]
    line: LineJson


class SystemJson(Printed):
    """One successor."""

    system: str
    standings: Annotated[dict[Standing, Count], Field(description="of the file's own keys and annotations")]
    settings: tuple[LineJson, ...]
    annotations: tuple[LineJson, ...]
    traps: Annotated[tuple[TrapJson, ...], Field(description="the heaviest first")]
    all_keys: Annotated[
        tuple[LineJson, ...], Field(description="every other key that ingress-nginx has, with its default")
    ]


class MigrationJson(Printed):
    """Of all successors that were asked for."""

    model_config = ConfigDict(title="What `migrate --plan --json` prints")

    schema_version: Literal[1]
    configmap: str
    given: dict[str, str]
    unknown: tuple[UnknownJson, ...]
    notes: tuple[str, ...]
    systems: tuple[SystemJson, ...]


def printed(
    place: str,
    given: Mapping[str, str],
    unknown: Iterable[Unknown],
    notes: Iterable[str],
    migrations: Iterable[Migration],
) -> MigrationJson:
    return MigrationJson(
        schema_version=1,
        configmap=place,
        given=dict(given),
        unknown=tuple(map(UnknownJson.model_validate, unknown)),
        notes=tuple(notes),
        systems=tuple(map(_system, migrations)),
    )


def _system(found: Migration) -> SystemJson:
    return SystemJson(
        system=found.system,
        standings=found.standings,
        settings=tuple(map(LineJson.model_validate, found.settings)),
        annotations=tuple(map(LineJson.model_validate, found.annotations)),
        traps=tuple(map(_trap, found.traps)),
        all_keys=tuple(map(LineJson.model_validate, found.defaults)),
    )


def _trap(trap: Trap) -> TrapJson:
    return TrapJson(weight=trap.weight, keys=trap.keys, in_file=trap.in_file, line=LineJson.model_validate(trap.line))
