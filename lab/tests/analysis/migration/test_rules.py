"""The rules of a migration, each held for the tables of all successors: directions, annotations, entry points, to-dos, trust, equal values, evidence."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import chain, product

import pytest
import yaml

from lab.analysis.migration.mapping import Annotation, Line, Migration, migrate, read_keys
from lab.analysis.migration.table import (
    ANNOTATIONS,
    EXTRA,
    README,
    WEIGHTS,
    CounterpartRow,
    list_successors,
    load_subjects,
    load_table,
    read_seen,
)
from lab.analysis.migration.values import TRUTH, compare_amounts
from lab.base.files import reference_folder
from lab.model.variants.knobs import MANIFESTS
from lab.model.variants.variants import load_variant
from lab.records.store import RunStore
from lab.systems.ingress_nginx.configmap import KEYS

EACH = pytest.mark.parametrize("system", list_successors())
TIMEOUTS = (
    "proxy-connect-timeout", "proxy-send-timeout", "proxy-read-timeout", "client-body-timeout", "worker-shutdown-timeout",
    "max-worker-connections", "proxy-buffer-size", "large-client-header-buffers",
)  # fmt: skip
"""Keys of which more than ingress-nginx has breaks no request."""
OPENING = {
    "use-forwarded-headers": True,
    "enable-real-ip": True,
    "hsts": False,
    "ssl-redirect": False,
    "force-ssl-redirect": False,
}
"""Key → the value that protects less; a successor with the other one is stricter."""
VALUES = {
    "proxy-connect-timeout": "1", "proxy-send-timeout": "1", "proxy-read-timeout": "1", "client-body-timeout": "1",
    "worker-shutdown-timeout": "1s", "max-worker-connections": "1", "proxy-buffer-size": "1k", "large-client-header-buffers": "1 1k",
}  # fmt: skip


def moved(system: str, data: dict[str, str], *annotations: Annotation) -> Migration:
    keys, _ = read_keys(data)
    return migrate(load_table(system), load_subjects(), keys, [name for name in data if name in keys], annotations)


def every_row(system: str) -> Iterator[CounterpartRow]:
    table = load_table(system)
    return chain(chain.from_iterable(table.rows.values()), table.extras)


def every_line(migration: Migration) -> Iterator[Line]:
    return chain(migration.settings, migration.annotations, migration.defaults, migration.extras)


# -- the direction counts ------------------------------------------------------------------------------------


@EACH
def test_where_a_successor_allows_more_no_request_breaks(system: str) -> None:
    """For its defaults against ingress-nginx's, and against a value that is less than any default."""
    for line in (*moved(system, {}).defaults, *moved(system, VALUES).settings):
        more = compare_amounts(line.to or line.value, line.default) == 1
        if line.key in TIMEOUTS and more and line.is_trap:
            assert line.weight != "fails" and "longer than" not in line.differs, line


@EACH
def test_a_stricter_successor_weakens_no_protection(system: str) -> None:
    for (key, opens), value in product(OPENING.items(), ("true", "false")):
        found = moved(
            system, {key: value, "enable-real-ip": "true"} if key != "enable-real-ip" else {key: value}
        ).settings
        for line in (line for line in found if line.key == key and line.is_trap):
            if TRUTH.get(line.there) == (not opens):
                assert line.weight != "guards", line
    found = moved(system, {"proxy-body-size": "900m", "client-header-timeout": "7200"}).settings
    assert [
        line
        for line in found
        if line.is_trap and line.weight == "guards" and compare_amounts(line.to, line.default) == -1
    ] == []


def test_a_difference_weighs_by_its_direction() -> None:
    for system, data, key, weight in (
        ("nginx-f5", {}, "proxy-connect-timeout", "costs"),
        ("traefik", {"proxy-connect-timeout": "45"}, "proxy-connect-timeout", "fails"),
        ("caddy", {}, "proxy-read-timeout", "costs"),
        ("traefik", {"use-forwarded-headers": "true"}, "use-forwarded-headers", "answers"),
        ("envoy", {}, "use-forwarded-headers", "guards"),
        ("nginx-f5", {"proxy-body-size": "8m"}, "proxy-body-size", "fails"),
        ("haproxy", {}, "proxy-body-size", "guards"),
        ("nginx-ngf", {"enable-underscores-in-headers": "true"}, "enable-underscores-in-headers", "fails"),
        ("traefik", {"ssl-protocols": "TLSv1.1 TLSv1.2 TLSv1.3"}, "ssl-protocols", "fails"),
        ("haproxy-ingress", {"client-header-timeout": "60"}, "client-header-timeout", "fails"),
    ):
        found = [line for line in every_line(moved(system, data)) if line.key == key and line.is_trap]
        assert weight in {line.weight for line in found}, (system, key, found)
    ours = [line for line in moved("traefik", {}).defaults if line.key == "keep-alive"]
    assert [line.is_trap for line in ours] == [False, False], "180 s instead of 75 s"


def test_every_side_has_a_weight_and_sentences_name_what_there_is() -> None:
    for name, subject in load_subjects().items():
        for direction, (weight, text) in subject.sides.items():
            assert weight in WEIGHTS and direction in (-1, 0, 1), name
            assert set(re.findall(r"{([^}]*)}", text)) <= {"there", "yours", *KEYS}, (name, text)
            assert text or weight in ("nothing", "costs") or direction == 0, name


@EACH
def test_no_sentence_has_a_gap(system: str) -> None:
    lines = [line for line in every_line(moved(system, {})) if line.is_trap]
    assert [line for line in lines if not line.differs or re.search(r"{|}|\(you: \)|: \(|not set", line.differs)] == []


# -- annotations ---------------------------------------------------------------------------------------------


@EACH
def test_an_annotation_that_ingress_nginx_does_not_have_is_ignored_today(system: str) -> None:
    """Also one that is a key of the ConfigMap alone."""
    invented = ("proxy-buffers", "keepalive-timeout", "proxy-connection-header", "session-cookie-partitioned")
    names = (*invented, *sorted(KEYS.keys() - ANNOTATIONS))
    found = moved(system, {}, *(Annotation("web/shop", name, "1") for name in names))
    assert {(line.standing, line.is_trap) for line in found.annotations} == {("off", False)}
    assert [line.key.rpartition("/")[2] for line in found.annotations] == [*names]
    assert all("ignores it today: delete it" in line.note for line in found.annotations)
    assert found.traps == moved(system, {}).traps


@EACH
def test_an_annotation_that_ingress_nginx_has_is_known(system: str) -> None:
    found = moved(system, {}, *(Annotation("web/shop", name, "true") for name in sorted(ANNOTATIONS))).annotations
    assert {line.key.rpartition("/")[2] for line in found} == ANNOTATIONS
    assert [line for line in found if "ignores it" in line.note] == []


def test_the_annotations_are_those_of_the_source_and_the_tables_name_no_other() -> None:
    named = {name.removeprefix("@") for name in load_subjects() if name.startswith("@")}
    assert named - ANNOTATIONS == set()
    assert ANNOTATIONS - named - KEYS.keys() == set()
    assert len(ANNOTATIONS) == 138 and "limit-whitelist" in ANNOTATIONS


def test_no_guard_falls_where_the_external_authentication_only_costs_more() -> None:
    names = ("auth-cache-key", "auth-cache-duration", "auth-keepalive", "auth-keepalive-requests")
    for system in list_successors():
        found = moved(system, {}, *(Annotation("web/shop", name, "1") for name in names)).annotations
        assert [line.weight for line in found] == ["costs"] * len(names), system


# -- entry points, to-dos, trust, equal values ---------------------------------------------------------------


@EACH
def test_a_setting_of_an_entry_point_names_every_one_that_serves(system: str) -> None:
    data = {"keep-alive": "20", "use-forwarded-headers": "true", "enable-real-ip": "true", "use-proxy-protocol": "true"}
    lines = [line for line in every_line(moved(system, data)) if line.standing == "set"]
    named = [re.sub(r"(?i)entrypoints\.\w+\.", "*", line.setting) for line in lines if "entryPoints" in line.setting]
    for setting in set(named):
        assert named.count(setting) == 2 * len(
            {line.key for line in lines if setting in re.sub(r"(?i)entrypoints\.\w+\.", "*", line.setting)}
        )
    assert bool(named) == system.startswith("traefik")


IMPERATIVE = re.compile(r"\b(raise|set|use|turn|enable|disable|add|write|need|takes?|instead|by hand)\b|-snippet|--\w")


@EACH
def test_no_row_is_without_a_setting_where_its_note_has_a_to_do(system: str) -> None:
    """Neither in words that tell what to do, nor by the name of a setting of the same table."""
    rows = list(every_row(system))
    names = {row.setting.rpartition(".")[2].strip("=- ") for row in rows if row.how in ("arg", "key", "field")}
    names = {name for name in names if len(name) > 5 and not name.islower()}
    for row in rows:
        if row.how == "none" and row.source and row.weight != "nothing":
            assert not IMPERATIVE.search(row.note), row
            assert not [name for name in names if re.search(rf"\b{re.escape(name)}\b", row.note)], row


@EACH
def test_what_is_to_be_done_by_hand_says_what(system: str) -> None:
    assert [row for row in every_row(system) if row.how in ("arg", "key", "field", "hand") and not row.setting] == []


@EACH
@pytest.mark.parametrize("key", ["use-forwarded-headers", "enable-real-ip", "proxy-real-ip-cidr", "use-proxy-protocol"])
def test_a_setting_that_trusts_everybody_carries_a_warning(system: str, key: str) -> None:
    data = {"use-forwarded-headers": "true", key: "0.0.0.0/0" if key == "proxy-real-ip-cidr" else "true"}
    found = [line for line in moved(system, data).settings if line.key == key and line.standing in ("set", "hand")]
    assert [line for line in found if "trusts everybody" not in line.warning] == []
    data["proxy-real-ip-cidr"] = "10.0.0.0/8"
    found = [line for line in moved(system, data).settings if line.key == key and "insecure" not in line.setting]
    assert [line for line in found if line.warning] == []


@EACH
def test_a_value_that_is_equal_on_both_sides_is_no_difference(system: str) -> None:
    for line in every_line(moved(system, {})):
        if line.is_trap and line.key and "unverified" not in line.source:
            assert line.there != line.value, line
            assert compare_amounts(line.to, line.default) != 0, line
            assert TRUTH.get(line.there.lower(), "") != TRUTH.get(line.value.lower(), "other"), line


def test_amounts_are_compared_whatever_their_unit() -> None:
    for first, second, result in (
        ("60s", "1m", 0), ("10m", "10485760", 0), ("8k", "10 MiB of response headers", 1), ("320", "2 per service", -1), ("60", "no limit", 1),
        ("0", "1m", -1), ("75s", "180s", 1), ("1440m", "60s", -1), ("60", "0s", 1), ("error timeout", "60", None), ("60", "round robin", None),
    ):  # fmt: skip
        assert compare_amounts(first, second) == result, (first, second)


@EACH
def test_a_setting_that_does_nothing_without_another_is_named_with_it(system: str) -> None:
    for row in every_row(system):
        assert {name for name, _ in row.when} <= KEYS.keys()
    if system == "traefik-ingress-nginx":
        (line,) = moved(system, {"proxy-buffer-size": "128k"}).settings
        assert (line.standing, line.is_trap) == ("same", False)
        line = moved(system, {"proxy-buffer-size": "128k", "proxy-buffering": "on"}).settings[0]
        assert line.row and (line.standing, line.row.when) == ("set", (("proxy-buffering", "on"),))


# -- what was seen, reported, and of which program -----------------------------------------------------------


@EACH
def test_what_was_seen_names_a_committed_run_and_no_number_is_typed_beside_it(system: str) -> None:
    """What the ledger and runs say is a generated part of the README; see test_readmes for whether it is of today."""
    for row in every_row(system):
        assert "seen" not in f"{row.note} {row.differs} {row.default}", row
        if row.seen:
            run, point, _, *other = row.seen.split()
            record = RunStore.open(str(reference_folder() / run)).record
            assert point in {each.name for each in record.points} and {system, *other} <= {
                arm.variant for arm in record.arms
            }
        if row.seen or row.claims:
            seen = read_seen()[system, row.setting if row.keys[0] == EXTRA else row.keys[0]]
            assert bool(seen[0]) == bool(row.seen) and all(name in seen[1] for name in row.claims)
            assert not row.seen or row.seen.split()[0] in seen[0]


def test_every_claim_that_a_table_cites_is_in_the_ledger_and_what_the_ledger_knows_of_a_successor_is_cited() -> None:
    with (reference_folder().parent / "published" / "claims.csv").open(encoding="utf-8") as file:
        known = {row["claim_id"] for row in csv.DictReader(file)}
    cited = {
        claim: {system for system in list_successors() for row in every_row(system) if claim in row.claims}
        for claim in known
    }
    assert {"TF-05", "HW-02", "HW-03"} <= known
    assert cited["TF-05"] == {"traefik-ingress-nginx"} and "envoy-gateway" in cited["HW-02"] & cited["HW-03"]
    assert {claim for system in list_successors() for row in every_row(system) for claim in row.claims} <= known
    assert "<!-- generated: seen -->" in README.read_text()


@EACH
def test_a_table_says_of_which_program_and_version_it_is_and_when_it_was_checked(system: str) -> None:
    """The version is that of the image which the lab runs, as far as the image's tag has one."""
    about = load_table(system).about
    assert about.value in about.setting and re.fullmatch(r"20\d\d-\d\d-\d\d", about.default) and about.note
    images = [each["imageTag"] for each in yaml.safe_load_all((MANIFESTS / "images" / "images.yaml").read_text())]
    pods = [each["spec"]["template"]["spec"] for each in load_variant(system).manifests if each["kind"] == "Deployment"]
    run = [each["image"] for pod in pods for each in pod["containers"]]
    versions = {str(each["newTag"]) for each in images if any(image.startswith(f"{each['newName']}:") for image in run)}
    assert any(about.value in tag for tag in versions) or "edge" in versions, (about, versions)


def test_the_unit_of_a_default_is_told() -> None:
    told = {line.key: line.differs for line in moved("envoy-gateway", {"proxy-buffer-size": "128k"}).settings}
    assert told["proxy-buffer-size"] == "Responses whose headers are longer than 80 KiB fail (you: 128k)"
    told = {line.key: line.differs for line in moved("traefik", {}).defaults if line.is_trap}
    assert "(you: max-age=31536000)" in told["hsts"] and "no limit (you: 60s)" in told["proxy-read-timeout"]


def test_a_sentence_of_every_successor_is_a_sentence() -> None:
    for system in list_successors():
        for line in (line for line in every_line(moved(system, {})) if line.is_trap and line.weight != "costs"):
            assert line.differs[:1].isupper() or line.differs.startswith(("/", "X-", f"{line.key}:")), (
                system,
                line.differs,
            )
