"""Keys and annotations → settings and traps."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from lab.analysis.migration.mapping import Annotation, Line, Migration, Trap, migrate, read_keys
from lab.analysis.migration.table import WEIGHTS, list_successors, load_subjects, load_table
from lab.systems.manifests.routes import PREFIX


def moved(system: str, data: dict[str, str], *annotations: Annotation) -> Migration:
    keys, _ = read_keys(data)
    return migrate(load_table(system), load_subjects(), keys, [name for name in data if name in keys], annotations)


def line(system: str, key: str, text: str, **others: str) -> Line:
    return next(each for each in moved(system, {key: text, **others}).settings if each.key == key)


def trap(system: str, key: str, data: dict[str, str] | None = None) -> Trap:
    return next(each for each in moved(system, data or {}).traps if key in each.keys)


def test_what_the_file_does_not_say_is_a_trap_where_the_defaults_differ() -> None:
    for system, key, default in (
        ("traefik-ingress-nginx", "upstream-keepalive-connections", "2 per service"),
        ("nginx-f5", "proxy-buffering", "true"),
        ("envoy", "proxy-read-timeout", "15s"),
        ("haproxy", "proxy-body-size", "no limit"),
    ):
        found = trap(system, key)
        assert (found.line.default, found.in_file) == (default, False)


OWN, BACKENDS = "server-tokens", "allow-backend-server-header"


@pytest.mark.parametrize(
    ("system", "sends", "keys"),
    [
        ("envoy", "Server: envoy", [OWN]),
        ("contour", "overwrite", [OWN, BACKENDS]),
        ("envoy-gateway", "the backend's Server header passes", [BACKENDS]),
        ("caddy", "Via: 1.1 Caddy; Server: Caddy in its own answers", [OWN, BACKENDS]),
    ],
)
def test_a_server_header_that_ingress_nginx_leaves_out_is_a_trap(system: str, sends: str, keys: list[str]) -> None:
    told = [each for each in moved(system, {}).traps if {OWN, BACKENDS} & set(each.keys)]
    assert sorted({key for each in told for key in each.keys} & {OWN, BACKENDS}, reverse=True) == keys
    assert sends in {each.line.default for each in told} and {each.weight for each in told} == {"answers"}


def test_a_server_header_that_a_file_asks_for_is_none() -> None:
    for system, key, tos in (("envoy", OWN, []), ("nginx-ngf", OWN, ['"on"']), ("contour", BACKENDS, ["pass_through"])):
        lines = [each for each in moved(system, {OWN: "true", BACKENDS: "true"}).settings if each.key == key]
        assert [each.to for each in lines if each.standing != "same"] == tos


def test_the_heaviest_trap_is_first_and_of_one_weight_the_files_own() -> None:
    traps = moved("traefik", {"keep-alive": "300", "proxy-connect-timeout": "45"}).traps
    order = [(WEIGHTS.index(each.weight), not each.in_file) for each in traps]
    assert order == sorted(order)
    assert traps[0].keys == ("proxy-connect-timeout",)


with Path(__file__).with_name("mapping.tsv").open(encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['system']} {row['key']} {row['value']}")
def test_what_a_value_comes_to_depends_on_it(row: dict[str, str]) -> None:
    found = line(row["system"], row["key"], row["value"])
    assert (found.standing, found.to) == (row["standing"], row["to"])


def test_of_two_keys_with_one_setting_the_larger_is_set_and_the_other_told() -> None:
    found = moved("haproxy", {"proxy-read-timeout": "3600", "proxy-send-timeout": "90"}).settings
    told = {each.key: each for each in found}
    assert (told["proxy-read-timeout"].standing, told["proxy-read-timeout"].to) == ("set", "3600s")
    assert told["proxy-send-timeout"].standing == "hand"
    assert "the same setting as proxy-read-timeout, which asks for 3600s" in told["proxy-send-timeout"].note


def test_of_an_annotation_that_traefik_reads_the_values_that_it_passes_over_are_told() -> None:
    lost = {
        "load-balance": "ewma",
        "auth-tls-verify-depth": "2",
        "proxy-http-version": "1.0",
        "affinity-mode": "balanced",
    }
    for name, value, standing in (
        *((name, value, "lost") for name, value in lost.items()),
        ("affinity-mode", "persistent", "same"),
        ("backend-protocol", "GRPC", "same"),
        ("backend-protocol", "FCGI", "lost"),
    ):
        (found,) = moved("traefik-ingress-nginx", {}, Annotation("a/b", name, value)).annotations
        assert (name, found.standing) == (name, standing)


def test_an_annotation_has_its_keys_counterpart_for_one_ingress_and_one_that_nobody_knows_is_told_by_name() -> None:
    (found,) = moved("traefik", {}, Annotation("web/shop", "proxy-read-timeout", "600")).annotations
    assert (found.ingress, found.standing, found.to) == ("web/shop", "hand", "600s")
    assert "this Ingress alone" in found.note
    for system in list_successors():
        (found,) = moved(system, {}, Annotation("web/shop", "invented-yesterday", "1")).annotations
        assert (found.key, found.standing) == (f"{PREFIX}invented-yesterday", "off")
        assert "ignores it today: delete it" in found.note


def test_a_key_of_the_file_decides_a_setting_that_it_shares_with_one_that_is_not_in_it() -> None:
    found = moved("traefik", {"disable-access-log": "true"})
    assert [line.key for line in found.defaults if line.is_trap and line.setting == "--accessLog="] == []
    assert "disable-access-log" in trap("traefik", "disable-access-log").keys


def test_what_a_value_comes_to_depends_on_other_keys_too() -> None:
    assert line("traefik", "gzip-level", "9", **{"use-gzip": "true"}).standing == "lost"
    assert line("contour", "hide-headers", "X-A", **{BACKENDS: "true"}).to == "[X-A, ]"
    found = line("traefik", "proxy-real-ip-cidr", "10.0.0.0/8,fe80::/10", **{"enable-real-ip": "true"})
    assert found.to == "10.0.0.0/8,fe80::/10", "addresses of IPv6 are kept whole"


def test_why_a_value_is_another_or_done_by_hand_is_told() -> None:
    assert "keeps no idle connections" in line("caddy", "upstream-keepalive-connections", "0").note
    refused = line("envoy", "keep-alive", "5m")
    assert refused.value == "75" and refused.note, "the controller does not take it"
    keys, _ = read_keys({"add-headers": "ingress-nginx/mine"}, {("ConfigMap", "mine"): {"X-A": "1"}})
    assert keys["add-headers"].remark == "it holds X-A: 1"
    _, unknown = read_keys({"client-max-body-size": "10m"})
    assert "proxy-body-size" in unknown[0].hint


@pytest.mark.parametrize("system", ["envoy", "envoy-gateway", "contour"])
def test_what_has_no_key_is_the_successors_own(system: str) -> None:
    found = [each for each in moved(system, {}).traps if "ircuit" in each.line.setting]
    assert {(each.line.default, each.line.to, each.weight) for each in found} == {("1024", "65536", "fails")}
    assert "set X-Forwarded-Proto expr=%{REQUEST_SCHEME}" in {each.to for each in moved("httpd", {}).extras}
