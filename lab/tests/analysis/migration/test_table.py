"""The tables say something of every key, and nothing that is not known."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from lab.analysis.migration.table import FILES, FOLDER, LEAVING, WEIGHTS, load, subjects, systems
from lab.analysis.migration.values import LeaveError, UntranslatableError, translated
from lab.base.errors import UsageError
from lab.model.variants.knobs import MANIFESTS
from lab.systems.ingress_nginx.configmap import KEYS


def edited(tmp_path: Path, old: str, new: str, system: str = "traefik") -> Path:
    """The tables with one text replaced in one of them."""
    for name in (*FILES.values(), LEAVING):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FOLDER / name, tmp_path / name)
    found = tmp_path / FILES[system]
    text = found.read_text()
    assert old in text
    found.write_text(text.replace(old, new, 1))
    return tmp_path


@pytest.mark.parametrize("system", systems())
def test_every_key_of_ingress_nginx_has_a_row_for_every_successor(system: str) -> None:
    rows = load(system).rows
    assert all(rows[key] for key in KEYS)
    assert all(row.default or row.how in ("arg", "key", "field", "hand") for key in KEYS for row in rows[key])


@pytest.mark.parametrize("system", systems())
def test_every_row_that_is_not_for_all_names_its_source(system: str) -> None:
    own = [row for rows in load(system).rows.values() for row in rows if row.setting or row.weight]
    assert [row.keys for row in own if not row.source] == []


@pytest.mark.parametrize("system", systems())
def test_every_known_annotation_has_a_row_or_a_key_that_does_the_same(system: str) -> None:
    rows = load(system).rows
    named = {name for name in subjects() if name.startswith("@")}
    assert [name for name in named if name not in rows and name.removeprefix("@") not in rows] == []


@pytest.mark.parametrize("system", systems())
def test_the_shipped_value_of_every_key_is_translated_left_or_told(system: str) -> None:
    shipped = {key.name: key.default for key in KEYS.values()}
    for key in KEYS.values():
        for row in load(system).rows[key.name]:
            with suppress(LeaveError, UntranslatableError):
                assert translated(row.value, key.default, shipped) or not key.default or row.how in ("none", "read")


@pytest.mark.parametrize("system", systems())
def test_every_field_that_is_written_is_one_of_its_kind(system: str) -> None:
    """As far as its schema is here: an API server that keeps what it does not know would take any, and nobody would read it."""
    table = load(system)
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


def test_every_key_has_a_weight_and_says_what_it_does() -> None:
    assert {subject.weight for subject in subjects().values()} <= set(WEIGHTS)
    assert [name for name, subject in subjects().items() if not subject.what] == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("upstream-keepalive-time\t", "upstream-keepalive-tim\t", "'upstream-keepalive-tim' is no key"),
        ("gzip-min-length\t", "gzip-level gzip-min-length\t", "'gzip-level' has a row already"),
        ("keep-alive\targ ", "keep-alive\tarrg ", "'arrg' is no way of setting"),
        ("{seconds}", "{secnds}", "there is no conversion 'secnds'"),
        ("\tguards\t", "\tgards\t", "'gards' is none"),
    ],
)
def test_a_fault_is_told_with_its_place(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load("traefik", edited(tmp_path, old, new))


def test_a_check_that_is_none_a_key_without_a_row_and_a_system_that_there_is_not_are_told(tmp_path: Path) -> None:
    manifests = edited(tmp_path, "kind: envoy, name: route", "kind: envoi, name: route", "contour")
    with pytest.raises(UsageError, match=r"contour/migrate\.tsv:\d+: readback: .*kind"):
        load("contour", manifests)
    with pytest.raises(UsageError, match="says nothing of keep-alive"):
        load("traefik", edited(tmp_path, "keep-alive\targ", "app-root\targ"))
    with pytest.raises(UsageError, match="did you mean 'traefik'"):
        load("trafik")
