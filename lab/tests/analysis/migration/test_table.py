"""The tables say something of every key, and nothing that is not known."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import get_args

import pytest
import yaml

from lab.analysis.migration.table import FOLDER, LEAVING, WEIGHTS, How, list_successors, load_subjects, load_table
from lab.analysis.migration.values import CONVERSIONS, LeaveDefaultError, UntranslatableError, list_names, translate
from lab.base.errors import UsageError
from lab.base.files import read_tsv
from lab.model.variants.knobs import MANIFESTS, Check
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.table import refuse_checks


@pytest.mark.parametrize("system", list_successors())
def test_every_key_and_annotation_has_a_row_for_every_successor_and_what_is_not_for_all_a_source(system: str) -> None:
    rows = load_table(system).rows
    assert all(rows[key] for key in KEYS)
    assert all(row.default or row.how in ("arg", "key", "field", "hand") for key in KEYS for row in rows[key])
    named = {name for name in load_subjects() if name.startswith("@")}
    assert [name for name in named if name not in rows and name.removeprefix("@") not in rows] == []
    own = [row for each in rows.values() for row in each if row.setting or row.weight]
    assert [row.keys for row in own if not row.source] == []


@pytest.mark.parametrize("system", list_successors())
def test_a_table_says_nothing_that_is_not_known_and_nothing_twice(system: str) -> None:
    """And the shipped value of every key is translated, left or told."""
    table, shipped = load_table(system), {key.name: key.default for key in KEYS.values()}
    for key, rows in table.rows.items():
        assert key in load_subjects() or key.removeprefix("@") in KEYS, key
        assert len({row.keys for row in rows}) == 1 and len({row.setting for row in rows}) == len(rows), key
    for row in (*(row for rows in table.rows.values() for row in rows), *table.extras):
        assert row.how in get_args(How) and row.weight in (None, *WEIGHTS), row
        assert list_names(row.value) <= CONVERSIONS.keys() | KEYS.keys(), row
        if row.readback:
            refuse_checks(system, [Check.model_validate(yaml.safe_load(row.readback))])
    for name, default in shipped.items():
        for row in table.rows[name]:
            with suppress(LeaveDefaultError, UntranslatableError):
                assert translate(row.value, default, shipped) or not default or row.how in ("none", "read")


@pytest.mark.parametrize("system", list_successors())
def test_every_field_that_is_written_is_one_of_its_kind(system: str) -> None:
    """As far as its schema is here: an API server that keeps what it does not know would take any, and nobody would read it."""
    table = load_table(system)
    written = {row.setting for rows in (*table.rows.values(), table.extras) for row in rows if row.how == "field"}
    assert known("ContourConfiguration", "spec.envoy.timeouts.connectTimeout")
    assert not known("ContourConfiguration", "spec.envoy.timeouts.conectTimeout")
    assert [each for each in sorted(written) if not known(*each.split(" ", 1))] == []


def known(kind: str, path: str) -> bool:
    """Whether its schema has this path; a list's places and what nobody describes are not judged."""
    files = list((MANIFESTS / "schemas").glob(f"{kind.lower()}-*.json"))
    node = json.loads(files[0].read_text()) if files and path.startswith("spec.") else {}
    for step in path.split("."):
        if "properties" not in node:
            return True
        if step not in node["properties"]:
            return False
        node = node["properties"][step]
    return True


def test_every_key_has_a_weight_and_says_what_it_does_and_a_system_that_there_is_not_is_told() -> None:
    named = [key for cells in read_tsv(FOLDER / LEAVING) for key in cells["keys"].split()]
    assert len(named) == len(set(named)) and KEYS.keys() <= set(named)
    assert all(key.startswith("@") or key in KEYS for key in named)
    assert {weight for subject in load_subjects().values() for weight, _ in subject.sides.values()} <= set(WEIGHTS)
    assert [name for name, subject in load_subjects().items() if not subject.what] == []
    with pytest.raises(UsageError, match="did you mean 'traefik'"):
        load_table("trafik")
