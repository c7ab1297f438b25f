"""What people have → the keys and values that the controller gets."""

from __future__ import annotations

import base64
import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.base.handing import piped_command
from lab.experiments.configmap.reading import read_settings

MAP = "kind: ConfigMap\nmetadata: {name: x, namespace: y}\ndata:\n  keep-alive-requests: '5000'\n  use-gzip: 'true'\n"
BOTH = {"keep-alive-requests": "5000", "use-gzip": "true"}
CONFIG = "config: {keep-alive-requests: 5000, use-gzip: true}"
INTO = piped_command("a-verb")
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
PAGE = "# Tuning\n\n```bash\nkubectl edit cm x\n```\n\nUse this:\n\n```yaml\ncontroller:\n  {CONFIG}\n```\n".replace(
    "{CONFIG}", CONFIG
)
STATE = {
    "values": ["controller: {config: {keep-alive-requests: 1}}"],
    "set": [{"name": "controller.config.keep-alive-requests", "value": "5000"}],
    "set_sensitive": [{"name": "controller.config.use-gzip", "value": "true"}],
    "metadata": [{"values": json.dumps({"controller": {"config": BOTH}})}],
}
"""A helm_release's attributes in what `terraform show -json` prints."""


def data(text: str | bytes) -> dict[str, str]:
    return dict(read_settings("mine.yaml", text if isinstance(text, bytes) else text.encode(), INTO).data)


def notes(text: str) -> str:
    return _of_the_verb("\n".join(read_settings("mine.yaml", text.encode(), INTO).notes))


def refused(text: str | bytes) -> str:
    with pytest.raises(UsageError) as raised:
        data(text)
    return _of_the_verb(str(raised.value))


def _of_the_verb(told: str) -> str:
    """Held against the verb that was called: a remedy names no other."""
    assert told.count("just ") == told.count(INTO), told
    return told


@pytest.mark.parametrize(
    "text",
    [
        "keep-alive-requests: 5000\nuse-gzip: true\n",
        "- keep-alive-requests: 5000\n- use-gzip: true\n",
        "kind: ConfigMap\ndata:\n- keep-alive-requests: '5000'\n- use-gzip: 'true'\n",
        "controller:\n  config:\n  - keep-alive-requests: 5000\n  - use-gzip: true\n",
        MAP,
        MAP.replace("\n", "\r\n"),
        f"---\n{MAP}---\n",
        f"---\n{MAP}...\n---\n{SERVICE}...\n",
        f"{SERVICE}---\n{MAP}---\n{SERVICE}",
        "kind: List\nitems:\n- kind: Service\n- " + MAP.replace("\n", "\n  "),
        json.dumps({"kind": "ConfigMap", "data": BOTH}, indent="\t"),
        json.dumps({"kind": "ConfigMapList", "items": [{"metadata": {}, "data": BOTH}]}),
        json.dumps({"kind": "Service"}) + "\n" + json.dumps({"kind": "ConfigMap", "data": BOTH}, indent=1),
        f"controller: {{replicaCount: 2, {CONFIG}}}",
        f"global: {{a: 1}}\ningress-nginx:\n  enabled: true\n  controller: {{{CONFIG}}}",
        f"kind: HelmRelease\nspec: {{values: {{controller: {{{CONFIG}}}}}}}",
        f"kind: Application\nspec: {{source: {{helm: {{valuesObject: {{controller: {{{CONFIG}}}}}}}}}}}",
        f"kind: Application\nspec:\n  sources:\n  - helm:\n      values: |\n        controller: {{{CONFIG}}}\n",
        f"kind: HelmChartConfig\nspec:\n  valuesContent: |-\n    controller:\n      {CONFIG}\n",
        f"kind: NginxIngressController\nspec: {{controller: {{{CONFIG}}}}}",
        f"kind: ConfigMap\ndata:\n  values.yaml: |\n    controller:\n      {CONFIG}\n",
        "x: &a {keep-alive-requests: 5000}\ncontroller: {config: {<<: *a, use-gzip: true}}",
        "x: &a {keep-alive-requests: 5000, use-gzip: 1}\ncontroller: {config: {<<: [*a], use-gzip: true}}",
        "kind: List\nitems: [&a {kind: ConfigMap, data: {keep-alive-requests: '5000', use-gzip: 'true'}}, *a]",
        "kind: Application\nspec:\n  source:\n    helm:\n      parameters:\n      - {name: controller.config.keep-alive-requests, value: '5000'}\n      - {name: controller.config.use-gzip, value: 'true'}\n",
        "kind: HelmChart\nspec: {set: {controller.config.keep-alive-requests: 5000, controller.config.use-gzip: true}}",
        "kind: Application\nspec:\n  source:\n    helm:\n      parameters: [{name: a.controller.config.use-gzip, value: 'true'}]\n      values: |\n        a: {controller: {config: {keep-alive-requests: 5000}}}\n",
        "releases:\n- values:\n  - controller: {config: {keep-alive-requests: 1}}\n  - controller: {config: {keep-alive-requests: 5000}}\n  set: [{name: controller.config.use-gzip, value: true}]\n",
        json.dumps({"values": {"root_module": {"resources": [{"type": "helm_release", "values": STATE}]}}}),
        json.dumps({"values": {"root_module": {"resources": [{"values": {"data": BOTH}}]}}}),
        f"```yaml\n{MAP}```\n",
        PAGE,
        f"1. Then\n\n   ~~~yml title=x\n   controller:\n     {CONFIG}\n   ~~~\n",
        f"$ kubectl get cm x -o yaml\n{MAP}",
        "ingress: {provider: nginx, options: {keep-alive-requests: '5000', use-gzip: 'true'}}",
    ],
)  # fmt: skip
def test_every_form_is_read_alike(text: str) -> None:
    assert data(text) == BOTH


def test_helm_prints_what_yaml_makes_of_a_bare_word() -> None:
    """As sigs.k8s.io/yaml reads it: YAML 1.1, Go's numbers."""
    words = {"on": "true", "No": "false", "oN": "oN", "1e2": "100", "0o74": "60", "0x3C": "60", "1_000": "1000", "-1": "-1", "0.5": "0.5", "'on'": "on", "!!str 5": "5", "4 16k": "4 16k"}  # fmt: skip
    for word, printed in words.items():
        assert data(f"controller: {{config: {{a: {word}}}}}") == {"a": printed}
    assert "proxy-buffering: YAML makes true of on" in notes("controller: {config: {proxy-buffering: on}}")


@pytest.mark.parametrize(
    ("key", "words", "written"),
    [
        ("gzip-types", ["text/plain", "text/css"], '"text/plain text/css"'),
        ("large-client-header-buffers", ["4", "16k"], '"4 16k"'),
        ("ssl-ciphers", ["AES128-SHA", "AES256-SHA"], '"AES128-SHA:AES256-SHA"'),
        ("custom-http-errors", ["404", "503"], '"404,503"'),
        ("http-snippet", ["etag off;", "max_ranges 1;"], "the lines after `http-snippet: |`"),
    ],
)
def test_a_list_is_told_with_what_separates_the_keys_own_words(key: str, words: list[str], written: str) -> None:
    configmap = notes(json.dumps({"kind": "ConfigMap", "data": {"keep-alive": "5", key: words}}))
    assert configmap == f"{key}: a list is no value of a ConfigMap (the API server refuses it): write {written}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: Secret\ndata: {}\n", "expected ConfigMap, got 'Secret'"),
        ("data:\n  keep-alive:\u00a0'1'\n  use-gzip: 'true'\n", "is text copied from a page"),
        ("releases: [{values: [./a.yaml]}]", "holds no settings\n  expected a ConfigMap"),
        ("", "holds no settings"),
        ("kind: ConfigMap\ndata: null\n", "holds no settings"),
        ("kind: ConfigMap\ndata:\nkeep-alive: '1'\n", "keep-alive at the level of data: indent"),
        ("a: b: c\n", "not YAML: line 1: mapping values are not allowed"),
        ("kind: ConfigMap\ndata:\n\tkeep-alive: '75'\n", "not YAML: line 3: "),
        ("kind: ConfigMap\ndata:\n\tkeep-alive: '75'\n", "replace the tab"),
        ("data: {a: 1}\nkind: ConfigMap\ndata: {b: 1}\n", "'data' stands at line 1 and at line 3"),
        ("kind: ConfigMap\ndata:\n  a: '1'\n  b: '1'\n  a: '2'\n  b: '2'\n", "line 3 and at line 5; 'b' stands at line 4 and at line 6"),
        (b"a: \xff\n", "is no UTF-8 at byte 3"),
        (b"a\0b", "save it as UTF-8"),
        (b"\x1f\x8b\x08", "is packed with gzip"),
        (b"\0GITCRYPT\0\x8b", "git-crypt unlock"),
        ("[" * 100 + "]" * 100, "nested more than"),
        ("x: 'controller:x'\nkind: A\n", "expected ConfigMap, got 'A'"),
        (PAGE.replace("  config", "\tconfig"), "not YAML: line 11: "),
        (f"kind: ConfigMap\ndata: {{http-snippet: '{'#' * 1_048_577}'}}", "the API server takes 1048576"),
    ],
)  # fmt: skip
def test_what_holds_no_settings_is_refused_with_place_and_remedy(text: str | bytes, told: str) -> None:
    assert told in refused(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{MAP}keep-alive: '300'\n", "'keep-alive' is at the level of data"),
        (f"{MAP}binaryData: {{keep-alive: MzAw}}\n", "'binaryData' is at the level of data"),
        ("config: {use-gzip: true}", "read from config"),
        (f"kind: HelmRelease\nspec: {{values: {{controller: {{{CONFIG}}}}}, valuesFrom: [{{kind: Secret, name: s}}]}}", "valuesFrom: settings outside this map are not read: helm"),
        (f"spec: {{source: {{helm: {{valuesObject: {{controller: {{{CONFIG}}}}}, valueFiles: [$v/a.yaml]}}}}}}", "valueFiles: settings"),
        ("spec: {source: {helm: {parameters: [{name: controller.config.use-gzip, value: x}], fileParameters: [{name: controller.config.hsts, path: a}]}}}", "fileParameters: settings"),
        (f"controller: {{{CONFIG}, addHeaders: {{X-A: b}}}}", "addHeaders: settings outside this map are not read"),
        (f"{PAGE}\n```yaml\na: b: c\n```\n", "a block of the page is passed over: not YAML: line 15"),
    ],
)  # fmt: skip
def test_nothing_of_a_file_is_left_out_silently(text: str, told: str) -> None:
    assert told in notes(text)


def test_objects_that_keys_may_name_are_read_with_it() -> None:
    secret = (
        f"kind: Secret\nmetadata: {{name: dh}}\ndata: {{dhparam.pem: {base64.b64encode(b'-----').decode()}, a: '?'}}"
    )
    given = read_settings("m.yaml", f"{MAP}---\n{secret}\n".encode(), INTO)
    assert given.named_objects["Secret", "dh"] == {"dhparam.pem": "-----"}


TOKENS = ["{", "}", "[", ":", "- ", "\n", "\t", "&a ", "*a", "<<: ", "'", '"', "---\n", "|", "{{ x }}", "? ", "controller:", "kind: ConfigMap\n", "```\n", "```yaml\n", "<<EOF", "${X}", "!x ", "values", "set: ", "\x00", "~", "items:"]  # fmt: skip


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_whatever_a_file_is_it_is_read_or_refused(data: st.DataObject) -> None:
    """Never an exception of another kind: a form of ours with something else in it."""
    forms = [MAP, f"a:\n  controller: {{{CONFIG}}}\n", json.dumps({"data": BOTH}), "x: 'y'\n", PAGE, json.dumps(STATE)]
    text = data.draw(st.sampled_from(forms))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = at + data.draw(st.sampled_from([0, 1, 9]))
        text = text[:at] + data.draw(st.sampled_from(TOKENS)) + text[until:]
    with suppress(UsageError):
        read_settings("mine.yaml", text.encode(), INTO)


def test_of_two_that_may_be_meant_commands_extract_each() -> None:
    told = refused(f"{MAP}---\na-b:\n  controller: {{{CONFIG}}}\n")
    assert "holds 2 maps of settings: ConfigMap y/x; a-b.controller.config" in told
    assert "kubectl -n y get configmap x -o yaml | scripts/shell just a-verb --config -" in told
    assert 'yq \'select(di == 1) | explode(.) | .["a-b"]["controller"]["config"]\' FILE' in told
