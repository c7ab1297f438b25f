"""Every file gives a plan, or is refused as bench refuses it; nothing in it is dropped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lab.analysis.migration.mapping import MigrationPlan
from lab.analysis.migration.table import list_successors
from lab.base.errors import UsageError
from lab.experiments.configmap import reading
from lab.experiments.configmap.split import refuse_f5
from lab.experiments.migration.plan import READER, plan_migration, sort_files
from lab.report.json.answers import MIGRATION
from lab.report.markdown import render_markdown
from lab.report.tables.migration import page
from lab.report.terminal import render_terminal
from lab.systems.ingress_nginx.configmap import KEYS
from lab.systems.manifests.routes import PREFIX

FIELD = [
    pytest.param(path, id=path.name, marks=pytest.mark.slow if number % 4 else [])
    for number, path in enumerate(sorted((Path(__file__).parent / "testdata").iterdir()))
]
INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: shop
  namespace: web
  annotations:
    nginx.ingress.kubernetes.io/rewrite-target: /$1
    nginx.ingress.kubernetes.io/proxy-body-size: 8m
    nginx.ingress.kubernetes.io/invented: "1"
    cert-manager.io/cluster-issuer: letsencrypt
    kubectl.kubernetes.io/last-applied-configuration: "{}"
spec: {}
---
kind: Service
metadata: {name: shop}
"""


def told(found: MigrationPlan) -> str:
    whole = page(found, {}, every_line=True)
    assert render_terminal(whole, 80)
    return "\n".join([render_markdown(whole), MIGRATION.dumps(found)])


def complete(found: MigrationPlan, names: Sequence[str]) -> None:
    """Each of these is a key that every successor has a line for, or is told as unknown."""
    for each in found.migrations:
        assert {line.key for line in each.settings} | {one.name for one in found.unknown} == set(names)
        assert {line.key for line in (*each.settings, *each.defaults)} == set(KEYS)
    text = told(found)
    assert [name for name in names if name not in text] == []


def refusal(content: bytes) -> str:
    try:
        refuse_f5("mine", reading.read_settings("mine", content, READER))
    except UsageError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("path", FIELD)
def test_files_from_the_field_give_a_plan_or_a_refusal(path: Path) -> None:
    content = path.read_bytes()
    if told := refusal(content):
        with pytest.raises(UsageError) as raised:
            plan_migration("mine", content)
        assert str(raised.value) == told
    else:
        complete(plan_migration("mine", content), list(reading.read_settings("mine", content, READER).data))


@settings(max_examples=8, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(sorted(KEYS)) | st.from_regex(r"[a-z][a-z-]{0,20}", fullmatch=True),
        st.sampled_from(["0", "1", "-1", "", "on", "off", "true", "false", "auto", "8k", "4 8k", "60s", "1h", "TLSv1.3", "[]", "é"])
        | st.text(max_size=12),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(list_successors()),
)  # fmt: skip
def test_drawn_files_give_a_plan_that_holds_all_of_them(data: dict[str, str], system: str) -> None:
    text = yaml.safe_dump({"kind": "ConfigMap", "data": data}, allow_unicode=False)
    assume(not refusal(text.encode()))
    complete(
        plan_migration("drawn", text.encode(), to=[system]),
        list(reading.read_settings("drawn", text.encode(), READER).data),
    )


def test_annotations_are_settings_and_what_is_passed_over_is_told() -> None:
    found = plan_migration("mine", b"keep-alive: 75\n", [("ingress.yaml", INGRESS.encode())], ["caddy"])
    keys = [line.key.rpartition("/")[2] for line in found.migrations[0].annotations]
    assert keys == ["rewrite-target", "proxy-body-size", "invented"]
    notes = "\n".join(found.notes)
    assert "Service shop is no Ingress" in notes
    assert "cert-manager.io/cluster-issuer" in notes
    assert "last-applied" not in notes


BESIDE = """
kind: ConfigMap
metadata: {name: mine}
data: {keep-alive: '75', add-headers: a/b}
---
kind: ConfigMap
metadata: {name: tcp-services}
data: {"9000": default/example:9000}
---
kind: ConfigMap
metadata: {name: b}
data: {X-Team: one}
---
kind: Deployment
spec: {template: {spec: {containers: [{args: [/nginx-ingress-controller, --enable-ssl-passthrough]}]}}}
---"""
CHART = """
ingress-nginx:
  tcp: {5432: default/db:5432}
  controller: {config: {keep-alive: 75}, extraArgs: {default-ssl-certificate: a/b}}
"""


def test_what_else_stands_in_the_configmaps_file_or_its_charts_values_is_not_dropped() -> None:
    found = plan_migration("mine", f"{BESIDE}{INGRESS}".encode(), to=["caddy"])
    keys = [line.key.rpartition("/")[2] for line in found.migrations[0].annotations]
    assert keys == ["rewrite-target", "proxy-body-size", "invented"]
    notes = "\n".join(found.notes)
    assert "tcp-services: TCP or UDP services on 9000" in notes
    assert "enable-ssl-passthrough: arguments of ingress-nginx's controller" in notes
    headers = next(line for line in found.migrations[0].settings if line.key == "add-headers")
    assert "it holds X-Team: one" in headers.note
    notes = "\n".join(plan_migration("mine", CHART.encode(), to=["caddy"]).notes)
    assert "tcp: services on 5432" in notes and "default-ssl-certificate: arguments" in notes


def test_an_annotation_that_is_no_text_is_told_and_a_list_of_them_refused() -> None:
    text = f"kind: Ingress\nmetadata:\n  name: a\n  annotations:\n    {PREFIX}canary: {{{{ .Values.x }}}}\n"
    found = plan_migration("mine", b"keep-alive: 75\n", [("chart.yaml", text.encode())], ["caddy"])
    assert "canary is no text" in "\n".join(found.notes)
    with pytest.raises(UsageError, match="annotations is a list"):
        plan_migration(
            "mine", b"keep-alive: 75\n", [("i", b"kind: Ingress\nmetadata: {annotations: [a]}\n")], ["caddy"]
        )


def test_a_file_of_which_nothing_is_left_is_refused_with_what_became_of_it() -> None:
    with pytest.raises(UsageError, match="nothing to migrate\n  keep-alive: has no value, and is left out"):
        plan_migration("mine.yaml", b"controller: {config: {keep-alive: null}}")


SETTINGS = b"kind: ConfigMap\ndata: {keep-alive: '75'}\n"


def test_of_several_files_each_is_recognized_by_its_objects() -> None:
    ingress, both = ("i.yaml", INGRESS.encode()), ("both.yaml", SETTINGS + b"---\n" + INGRESS.encode())
    configmap, listed = ("c.yaml", SETTINGS), ("list.yaml", b"kind: IngressList\nitems: [{metadata: {name: a}}]\n")
    assert sort_files([ingress, configmap, listed]) == (configmap, [ingress, listed])
    assert sort_files([both]) == (both, []) and sort_files([]) == (None, [])
    assert sort_files([ingress], [configmap]) == (configmap, [ingress])
    assert sort_files([("keys.yaml", b"keep-alive: 75\n"), listed])[1] == [listed]
    with pytest.raises(UsageError, match="c.yaml has settings of the controller, too"):
        sort_files([configmap, both])


def test_ingresses_alone_are_enough_and_without_a_file_the_defaults_are_compared() -> None:
    found = plan_migration("", None, [("i.yaml", INGRESS.encode())])
    assert (found.place, found.given, found.ingresses) == ("", {}, ("web/shop",))
    assert all(len({line.key for line in each.annotations}) == 3 for each in found.migrations)
    nothing = plan_migration("", None)
    assert [each.traps for each in nothing.migrations] == [each.traps for each in plan_migration("", None).migrations]
    assert all(each.traps and not each.settings for each in nothing.migrations) and told(nothing)
