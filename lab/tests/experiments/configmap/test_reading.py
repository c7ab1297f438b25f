"""What people have → the keys and values that the controller gets."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.base.errors import UsageError
from lab.base.handing import again
from lab.experiments.configmap.reading import read

MAP = "kind: ConfigMap\nmetadata: {name: x, namespace: y}\ndata:\n  keep-alive-requests: '5000'\n  use-gzip: 'true'\n"
BOTH = {"keep-alive-requests": "5000", "use-gzip": "true"}
CONFIG = "config: {keep-alive-requests: 5000, use-gzip: true}"
INTO = again("a-verb")
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"


RELEASE = 'resource "helm_release" "x" {'
HEREDOC = "<<-EOT\n  controller:\n    config:\n      use-gzip: true\n  EOT\n"
BOTH_IN_HEREDOC = HEREDOC.replace("use-gzip", "keep-alive-requests: 5000\n      use-gzip")
FILLED = HEREDOC.replace("true", "${var.x}")
STATE = {
    "values": ["controller: {config: {keep-alive-requests: 1}}"],
    "set": [{"name": "controller.config.keep-alive-requests", "value": "5000"}],
    "set_sensitive": [{"name": "controller.config.use-gzip", "value": "true"}],
    "metadata": [{"values": json.dumps({"controller": {"config": BOTH}})}],
}
"""A helm_release's attributes in what `terraform show -json` prints."""


def data(text: str | bytes) -> dict[str, str]:
    return dict(read("mine.yaml", text if isinstance(text, bytes) else text.encode(), INTO).data)


def notes(text: str) -> str:
    return _of_the_verb("\n".join(read("mine.yaml", text.encode(), INTO).notes))


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
        MAP,
        MAP.replace("\n", "\r\n"),
        f"---\n{MAP}---\n",
        f"{SERVICE}---\n{MAP}---\n{SERVICE}",
        f"---\n# nothing\n---\n{MAP}",
        "kind: List\nitems:\n- kind: Service\n- " + MAP.replace("\n", "\n  "),
        json.dumps({"kind": "ConfigMap", "data": BOTH}, indent="\t"),
        json.dumps({"kind": "ConfigMapList", "items": [{"kind": "ConfigMap", "data": BOTH}]}),
        f"controller: {{replicaCount: 2, {CONFIG}}}",
        f"USER-SUPPLIED VALUES:\ncontroller: {{{CONFIG}}}",
        f"global: {{a: 1}}\ningress-nginx:\n  enabled: true\n  controller: {{{CONFIG}}}",
        f"kind: HelmRelease\nspec: {{values: {{controller: {{{CONFIG}}}}}}}",
        f"kind: Application\nspec: {{source: {{helm: {{valuesObject: {{controller: {{{CONFIG}}}}}}}}}}}",
        f"kind: HelmChartConfig\nspec:\n  valuesContent: |-\n    controller:\n      {CONFIG}\n",
        f"kind: ConfigMap\ndata:\n  values.yaml: |\n    controller:\n      {CONFIG}\n",
        "kind: Kustomization\nconfigMapGenerator:\n- name: x\n  literals: [keep-alive-requests=5000, 'use-gzip=true']\n",
        "x: &a {keep-alive-requests: 5000}\ncontroller: {config: {<<: *a, use-gzip: true}}",
        "kind: Kustomization\npatches:\n- patch: |\n    kind: ConfigMap\n    data: {keep-alive-requests: '5000', use-gzip: 'true'}\n",
        "- {op: add, path: /data/keep-alive-requests, value: '5000'}\n- {op: replace, path: /data/use-gzip, value: 'true'}\n",
        "kind: Application\nspec:\n  source:\n    helm:\n      parameters:\n      - {name: controller.config.keep-alive-requests, value: '5000'}\n      - {name: controller.config.use-gzip, value: 'true'}\n",
        "kind: HelmChart\nspec: {set: {controller.config.keep-alive-requests: 5000, controller.config.use-gzip: true}}",
        json.dumps({"kind": "ConfigMapList", "items": [{"metadata": {}, "data": BOTH}]}),
        json.dumps({"kind": "Service"}) + "\n" + json.dumps({"kind": "ConfigMap", "data": BOTH}, indent=1),
        "keep-alive-requests=5000\n# a comment\nuse-gzip=true\n",
        'resource "helm_release" "x" {\n  values = [<<-EOT\n    controller:\n      config:\n        keep-alive-requests: 5000\n        use-gzip: true\n  EOT\n  ]\n}\n',
        f"```yaml\n{MAP}```\n",
        f"$ kubectl get cm x -o yaml\n{MAP}",
        "ingress: {provider: nginx, options: {keep-alive-requests: '5000', use-gzip: 'true'}}",
        "helm upgrade x ingress-nginx/ingress-nginx \\\n  --set controller.config.keep-alive-requests=5000 \\\n  --set-string=controller.config.use-gzip=true,controller.replicaCount=2\n",
        "$ kubectl create configmap x --from-literal=keep-alive-requests=5000 --from-literal use-gzip=true\n",
        """kubectl patch cm x --type merge -p '{"data": {"keep-alive-requests": "5000", "use-gzip": "true"}}'\n""",
        f"cat <<'EOF' | kubectl apply -f -\n{MAP}EOF\n",
        'kind: Kustomization\npatches:\n- patch: \'[{"op":"add","path":"/data","value":{"keep-alive-requests":"5000","use-gzip":"true"}}]\'\n',
        "kind: Application\nspec:\n  source:\n    helm:\n      parameters: [{name: controller.config.use-gzip, value: 'true'}]\n      values: |\n        controller: {config: {keep-alive-requests: 5000}}\n",
        "kind: HelmChart\nspec:\n  valuesContent: |\n    controller: {config: {keep-alive-requests: 5000}}\n  set: {controller.config.use-gzip: 'true'}\n",
        "releases:\n- values:\n  - controller: {config: {keep-alive-requests: 1}}\n  - controller: {config: {keep-alive-requests: 5000}}\n  set: [{name: controller.config.use-gzip, value: true}]\n",
        f'{RELEASE}\n  # set {{ name = "controller.config.hsts" }}\n  version = var.version\n  values = [{BOTH_IN_HEREDOC}]\n}}\n',
        json.dumps({"values": {"root_module": {"resources": [{"type": "helm_release", "values": STATE}]}}}),
        json.dumps({"values": {"root_module": {"resources": [{"values": {"data": BOTH}}]}}}),
        json.dumps({"kind": "HelmRelease", "metadata": {"annotations": {"last-applied": json.dumps({"controller": {"config": BOTH}})}}, "spec": {"values": {"controller": {"config": BOTH}}}}),
        "spec: {source: {helm: {parameters: [{name: ingress-nginx.controller.config.keep-alive-requests, value: '5000'}, {name: ingress-nginx.controller.config.use-gzip, value: 'true'}]}}}",
        "spec: {source: {helm: {values: 'a: {controller: {config: {keep-alive-requests: 5000}}}', parameters: [{name: a.controller.config.use-gzip, value: 'true'}]}}}",
        "spec: {set: {ingress-nginx.controller.config.keep-alive-requests: 5000, ingress-nginx.controller.config.use-gzip: true}}",
        "helm upgrade x y --set ingress-nginx.controller.config.keep-alive-requests=5000,ingress-nginx.controller.config.use-gzip=true",
        """helm upgrade x y --set-json 'controller.config={"keep-alive-requests": 5000, "use-gzip": "true"}'""",
        """helm upgrade x y --set-json='controller.config.use-gzip=true,controller.config.keep-alive-requests="5000"'""",
        """helm upgrade x y --set controller.config.use-gzip=true --set-json '{"controller": {"config": {"keep-alive-requests": 5000, "use-gzip": false}}}'""",
        "helm upgrade x y --set-string controller.config.use-gzip=true --set controller.config.use-gzip=false,controller.config.keep-alive-requests=5000",
        "helm upgrade x y -f - --set controller.config.use-gzip=true <<EOF\ncontroller: {config: {keep-alive-requests: 5000}}\nEOF\n",
        "cat <<EOF | helm upgrade x y -f - --set controller.config.use-gzip=true\ncontroller: {config: {keep-alive-requests: 5000}}\nEOF\n",
        "$ helm upgrade x y -f - <<EOF --set controller.config.use-gzip=true\ncontroller: {config: {keep-alive-requests: 5000}}\nEOF\n",
        f"kubectl create ns x\nkubectl apply -f - <<EOF\n{MAP}EOF\n",
        "kind: List\nitems: [&a {kind: ConfigMap, data: {keep-alive-requests: '5000', use-gzip: 'true'}}, *a]",
    ],
)  # fmt: skip
def test_every_form_is_read_alike(text: str) -> None:
    assert data(text) == BOTH


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_says_how_it_is_written(encoding: str) -> None:
    assert data(MAP.encode(encoding)) == BOTH


def test_helm_prints_what_yaml_makes_of_a_bare_word() -> None:
    """As sigs.k8s.io/yaml reads it: YAML 1.1, Go's numbers."""
    words = {"on": "true", "No": "false", "oN": "oN", "1e2": "100", "0o74": "60", "0x3C": "60", "1_000": "1000", "-1": "-1", "0.5": "0.5", "'on'": "on", "!!str 5": "5", "4 16k": "4 16k"}  # fmt: skip
    for word, printed in words.items():
        assert data(f"controller: {{config: {{a: {word}}}}}") == {"a": printed}
    assert "proxy-buffering: YAML makes true of on" in notes("controller: {config: {proxy-buffering: on}}")


@pytest.mark.parametrize(
    ("written", "printed"), [("1048576", "1.048576e+06"), ("1000000", "1e+06"), ("100000", ""), ('"1048576"', "")]
)
def test_large_numbers_that_some_helms_print_as_floats_are_told(written: str, printed: str) -> None:
    told = notes(f"controller: {{config: {{max-worker-open-files: {written}}}}}")
    assert (f"as {printed}, which the controller" in told) if printed else not told


def test_what_a_patch_removes_and_what_stands_over_what_is_told() -> None:
    patch = "- {op: remove, path: /data/use-gzip}\n- {op: add, path: /data/keep-alive, value: '5'}\n"
    assert data(patch) == {"keep-alive": "5"}
    assert "use-gzip: the patch removes it" in notes(patch)
    release = (
        "spec: {values: {controller: {config: {keep-alive: 5}}}, set: [{name: controller.config.keep-alive, value: 6}]}"
    )
    assert data(release) == {"keep-alive": "6"}
    assert "keep-alive: spec.set.controller.config is taken over what stands before it" in notes(release)


def test_in_a_configmap_a_bare_word_stays_and_is_told() -> None:
    text = "kind: ConfigMap\ndata: {keep-alive: 75, use-gzip: on}"
    assert data(text) == {"keep-alive": "75", "use-gzip": "on"}
    assert 'keep-alive: kubectl refuses it without quotes: write "75"' in notes(text)


def test_what_no_configmap_can_hold_is_told_and_the_rest_is_read() -> None:
    text = "controller: {config: {use-gzip: 'true', a: [404, 503], b: {c: d}, d: , '': x, 'x/y': z}}"
    assert data(text) == {"use-gzip": "true"}
    told = notes(text)
    assert 'a: a list is no value of a ConfigMap (Helm prints this one as [404 503]): write "404,503"' in told
    assert (
        "b: a mapping is no value" in told
        and "d: has no value" in told
        and "'' is no key" in told
        and "'x/y' is no key" in told
    )


@pytest.mark.parametrize(
    ("key", "words", "written"),
    [
        ("gzip-types", ["text/plain", "text/css"], '"text/plain text/css"'),
        ("brotli-types", ["text/plain", "text/css"], '"text/plain text/css"'),
        ("ssl-protocols", ["TLSv1.2", "TLSv1.3"], '"TLSv1.2 TLSv1.3"'),
        ("proxy-next-upstream", ["error", "http_502"], '"error http_502"'),
        ("large-client-header-buffers", ["4", "16k"], '"4 16k"'),
        ("ssl-ciphers", ["AES128-SHA", "AES256-SHA"], '"AES128-SHA:AES256-SHA"'),
        ("ssl-ecdh-curve", ["X25519", "P-256"], '"X25519:P-256"'),
        ("hide-headers", ["Server", "X-A"], '"Server,X-A"'),
        ("custom-http-errors", ["404", "503"], '"404,503"'),
        ("debug-connections", ["10.0.0.1", "10.1.0.0/16"], '"10.0.0.1,10.1.0.0/16"'),
        ("whitelist-source-range", ["10.0.0.0/8", "10.1.0.0/16"], '"10.0.0.0/8,10.1.0.0/16"'),
        ("no-auth-locations", ["/a", "/b"], '"/a,/b"'),
        ("http-snippet", ["etag off;", "max_ranges 1;"], "the lines after `http-snippet: |`"),
    ],
)
def test_a_list_is_told_with_what_separates_the_keys_own_words(key: str, words: list[str], written: str) -> None:
    """Of two types with a comma between them nginx makes one that there is not."""
    configmap = notes(json.dumps({"kind": "ConfigMap", "data": {"keep-alive": "5", key: words}}))
    assert configmap == f"{key}: a list is no value of a ConfigMap (the API server refuses it): write {written}"
    helm = notes(json.dumps({"controller": {"config": {"keep-alive": "5", key: words}}}))
    assert f"Helm prints this one as [{' '.join(words)}]): write {written}" in helm


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: Secret\ndata: {}\n", "expected ConfigMap, got 'Secret'"),
        ("data:\n<<<<<<< HEAD\n  keep-alive: '1'\n=======\n", "line 2: a merge that was not finished"),
        (
            "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-  keep-alive: '1'\n",
            "is a difference between two files",
        ),
        ("data:\n  keep-alive:\u00a0'1'\n  use-gzip: 'true'\n", "line 2 has a no-break space (U+00A0)"),
        (
            "spec: {values: {a: {controller: {config: {keep-alive: 1}}}, b: {controller: {config: {keep-alive: 2}}}}}",
            "holds 2 maps of settings",
        ),
        (
            "kind: ConfigMap\ndata:\n\u00a0\u00a0keep-alive: '1'\n",
            "line 3: the key 'keep-alive' has a no-break space (U+00A0) beside it",
        ),
        (
            "kind: ConfigMap\ndata:\n  use-gzip: 'true'\n\u00a0 keep-alive: '1'\n",
            "line 4: the key 'keep-alive' has a no-break space",
        ),
        ("keep-alive\u200b: '1'\n", "has a zero width space (U+200B) beside it"),
        ("releases: [{values: [./a.yaml]}]", "holds no settings\n  expected a ConfigMap"),
        ("- a\n", "holds no settings"),
        ("", "holds no settings"),
        ("kind: ConfigMap\ndata: null\n", "holds no settings"),
        ("controller: {}\n", "holds no settings"),
        ("a: b: c\n", "not YAML: line 1: mapping values are not allowed"),
        ("kind: ConfigMap\ndata:\n\tkeep-alive: '75'\n", "not YAML: line 3: "),
        ("kind: ConfigMap\ndata:\n\tkeep-alive: '75'\n", "replace the tab"),
        ("data: {a: 1}\nkind: ConfigMap\ndata: {b: 1}\n", "'data' stands at line 1 and at line 3"),
        (b"a: \xff\n", "is no UTF-8 at byte 3"),
        (b"a\0b", "save it as UTF-8"),
        ("[" * 100 + "]" * 100, "nested more than"),
        ("Name:         x\nNamespace:    y\n\nData\n====\nuse-gzip:\n----\ntrue\n", "what kubectl prints for people"),
        ("NAMESPACE   NAME   DATA   AGE\ny   x      3      5d\n", "what kubectl prints for people"),
        ("LAST DEPLOYED: x\nUSER-SUPPLIED VALUES:\n", "helm -n ingress-nginx get values"),
        ("USER-SUPPLIED VALUES:\na: 1\nCOMPUTED VALUES:\na: 1\n", "what helm prints of a whole release"),
        ("USER-SUPPLIED VALUES:\nnull\n", "holds no settings"),
        (
            "events { worker_connections 9; }\nkeepalive_timeout 5;\n",
            "worker_connections → max-worker-connections; keepalive_timeout → keep-alive",
        ),
        ('resource "kubernetes_config_map" "x" {\n}\n', "is Terraform's language"),
        (
            f'{RELEASE}\n  set {{\n    name = "controller.config.use-gzip"\n',
            'line 3: `name = "controller.config.use-gzip"`',
        ),
        (f'{RELEASE}\n  set = [{{ name = "controller.config.use-gzip" }}]', "line 2: `set = [{ name ="),
        (f"{RELEASE}\n  values = [yamlencode({{", "terraform show -json | scripts/shell just a-verb --configmap -"),
        (f'{RELEASE}\n  values = [{HEREDOC}, file("more.yaml")]\n}}', 'line 7: `, file("more.yaml")]`'),
        (f"{RELEASE}\n  values = concat([{HEREDOC}], var.more)\n}}", "line 7: `], var.more)`"),
        (f'{RELEASE}\n  values = [{HEREDOC}]\n  set {{\n    name = "controller.config.hsts"', "line 9: "),
        (f"{RELEASE}\n  values = [{FILLED}]\n}}", "line 5: ${ … } is filled in by Terraform"),
        ('resource "kubernetes_config_map" "x" {\n  data = { "use-gzip" = "true" }', 'line 2: `data = { "use-gzip"'),
        ("kind: Kustomization\nconfigMapGenerator: [{name: x, envs: [a]}]\n", "kubectl kustomize FOLDER"),
        ("kind: HelmRelease\nspec: {valuesFrom: []}\n", "its values are elsewhere: helm"),
        ("kind: ConfigMap\nstringData: {keep-alive: '5'}\n", "stringData is not read by the controller"),
        ("kind: ConfigMap\ndata: [a]\n", "data is a list"),
        (
            "kind: Ingress\nmetadata: {annotations: {nginx.ingress.kubernetes.io/proxy-body-size: 8m}}\n",
            "proxy-body-size → proxy-body-size",
        ),
        ("data:\n{{- range .x }}\n  {{ . }}: 1\n", "its templates ({{ … }}) are filled in"),
        (b"\x1f\x8b\x08", "is packed with gzip"),
        ("x: 'controller:x'\nkind: A\n", "expected ConfigMap, got 'A'"),
        ("NAME   DATA   AGE\nx      3      5d\n", "kubectl -n ingress-nginx get configmap"),
    ],
)
def test_what_holds_no_settings_is_refused_with_place_and_remedy(text: str | bytes, told: str) -> None:
    assert told in refused(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{MAP}keep-alive: '300'\n", "'keep-alive' stands beside data"),
        (f"{MAP}binaryData: {{keep-alive: MzAw}}\n", "binaryData: keep-alive: the controller reads data alone"),
        ("controller: {config: {use-gzip: true, keep-alive: '{{ .Values.a }}'}}", "is a template that Helm fills in"),
        ("controller: {config: {use-gzip: true, keep-alive: {{ .Values.a }}}}", "{{ … }} is a template"),
        ("config: {use-gzip: true}", "read from config"),
        ("? [a, b]\n: c\nuse-gzip: true\n", "a key is a mapping or a list"),
        ("kind: Kustomization\nconfigMapGenerator: [{literals: [use-gzip=true], files: [a]}]\n", "files: what these files hold"),
        ("kind: Kustomization\nconfigMapGenerator: [{literals: [use-gzip=true], behavior: merge}]\n", "behavior: merge: what it is merged into"),
        (f"kind: HelmRelease\nspec: {{values: {{controller: {{{CONFIG}}}}}, valuesFrom: [{{kind: Secret, name: s}}, {{kind: ConfigMap, name: c}}]}}", "valuesFrom (Secret s, ConfigMap c): what it holds is not in this file: helm"),
        (f"kind: HelmRelease\nspec: {{values: {{controller: {{{CONFIG}}}}}, chart: {{spec: {{valuesFiles: [a.yaml]}}}}}}", "valuesFiles (a.yaml)"),
        (f"spec: {{source: {{helm: {{valuesObject: {{controller: {{{CONFIG}}}}}, valueFiles: [$v/a.yaml]}}}}}}", "valueFiles ($v/a.yaml)"),
        ("spec: {source: {helm: {parameters: [{name: controller.config.use-gzip, value: x}], fileParameters: [{name: controller.config.hsts, path: a}]}}}", "fileParameters (controller.config.hsts)"),
        (f"releases:\n- values:\n  - controller: {{{CONFIG}}}\n  - ./extra.yaml\n", "values (./extra.yaml)"),
        (f"releases:\n- values:\n  - controller: {{{CONFIG}}}\n  secrets: [s.yaml]\n", "secrets (s.yaml)"),
        (f"releases:\n- values:\n  - controller: {{{CONFIG}}}\n  set: [{{name: controller.config.http-snippet, file: x.conf}}]\n", "set (controller.config.http-snippet of x.conf)"),
        (f"kind: HelmChartConfig\nspec:\n  valuesSecrets: [{{name: s}}]\n  valuesContent: |-\n    controller: {{{CONFIG}}}\n", "valuesSecrets (s)"),
        (f"kind: Kustomization\nhelmCharts: [{{valuesInline: {{controller: {{{CONFIG}}}}}, additionalValuesFiles: [b.yaml]}}]", "additionalValuesFiles (b.yaml)"),
        ("helm upgrade x y -f values.yaml --set controller.config.use-gzip=true", "-f values.yaml: what it holds is not in the command: helm -n ingress-nginx get values"),
        ("helm upgrade x y --values=v.yaml --set controller.config.use-gzip=true", "--values v.yaml"),
        ("helm upgrade x y --set-file controller.config.http-snippet=a.conf --set controller.config.use-gzip=true", "--set-file controller.config.http-snippet=a.conf"),
        ("helm upgrade x y --reuse-values --set controller.config.use-gzip=true", "--reuse-values: what it holds"),
        ("kubectl create cm x --from-file=http-snippet=./x.conf --from-literal=use-gzip=true", "--from-file http-snippet=./x.conf: what it holds is not in the command: the command itself with --dry-run=client"),
        ("kubectl create cm x --from-env-file a.env --from-literal=use-gzip=true", "--from-env-file a.env"),
        ("helm upgrade x y -f a.yaml -f - <<EOF\ncontroller: {config: {use-gzip: true}}\nEOF\n", "-f a.yaml: what"),
    ],
)  # fmt: skip
def test_nothing_of_a_file_is_left_out_silently(text: str, told: str) -> None:
    assert told in notes(text)


@pytest.mark.parametrize(
    "text",
    [
        "helm upgrade x y -f - --set controller.config.use-gzip=true <<EOF\ncontroller: {config: {keep-alive: 5}}\nEOF\n",
        f"spec: {{values: {{controller: {{{CONFIG}}}}}, valuesFrom: []}}",
        f"releases:\n- values:\n  - 'controller: {{config: {{use-gzip: true}}}}'\n  - controller: {{{CONFIG}}}\n",
    ],
)
def test_nothing_is_told_as_left_out_that_is_not(text: str) -> None:
    assert "what it holds" not in notes(text)


def test_settings_that_are_elsewhere_alone_are_asked_for_there() -> None:
    assert "  -f values.yaml: what it holds is not in the command: helm" in refused("helm upgrade x y -f values.yaml")
    assert "--from-file http-snippet=a: what" in refused("kubectl create cm x --from-file=http-snippet=a")
    beside = "kubectl apply -f - <<EOF\nkind: Service\nEOF\nkubectl patch cm x -p 'data: {hsts: a}'\n"
    assert data(beside) == {"hsts": "a"}
    assert "a --set-json is no JSON: " in refused("helm upgrade x y --set-json 'controller.config={a'")


def test_a_list_in_a_command_is_a_list() -> None:
    told = notes("helm upgrade x y --set 'controller.config.gzip-types={text/css,text/plain},controller.config.hsts=a'")
    assert 'write "text/css text/plain"' in told
    literal = "helm upgrade x y --set-literal controller.config.hide-headers=a,b"
    assert data(literal) == {"hide-headers": "a,b"}


def test_parameters_of_several_charts_are_several_maps_that_commands_extract() -> None:
    told = refused(
        "spec: {parameters: [{name: a.controller.config.use-gzip, value: x}, {name: b.controller.config.hsts, value: x}]}"
    )
    assert "holds 2 maps of settings: spec.parameters.a.controller.config; spec.parameters.b.controller.config" in told
    assert """yq 'explode(.) | .spec.parameters | map(select(.name | test("^a[.]controller[.]")))' FILE | """ in told


def test_an_annotation_written_as_a_key_is_told_once_and_not_as_ignored() -> None:
    """The API server refuses the whole map for it: the controller has nothing to ignore."""
    given = read("m.yaml", f"{MAP}  nginx.ingress.kubernetes.io/limit-rps: '5'\n".encode(), INTO)
    assert given.data == BOTH
    name = "'nginx.ingress.kubernetes.io/limit-rps'"
    assert given.notes == (
        f"{name} is no key of a ConfigMap: the API server refuses it: an annotation, which has no key",
    )


def test_headers_of_the_charts_own_values_are_the_keys_that_it_makes_of_them() -> None:
    given = read("v.yaml", b"controller: {config: {}, addHeaders: {X-A: b}, proxySetHeaders: {X-C: d}}", INTO)
    assert given.data == {
        "add-headers": "ingress-nginx/custom-add-headers",
        "proxy-set-headers": "ingress-nginx/custom-proxy-set-headers",
    }
    assert given.beside[("ConfigMap", "custom-add-headers")] == {"X-A": "b"}


@pytest.mark.parametrize("config", ["config: {keep-alive: 5}", "kind: DaemonSet"])
def test_what_the_chart_makes_of_dhparam_and_of_snippets_allowed_is_read(config: str) -> None:
    text = (
        f"dhParam: {base64.b64encode(b'-----BEGIN').decode()}\ncontroller: {{{config}, allowSnippetAnnotations: true}}"
    )
    given = read("v.yaml", text.encode(), INTO)
    assert given.data["ssl-dh-param"] == "ingress-nginx/ingress-nginx-controller"
    assert given.data["allow-snippet-annotations"] == "true"
    assert given.beside["Secret", "ingress-nginx-controller"] == {"dhparam.pem": "-----BEGIN"}
    told = data("helm upgrade x y --set controller.config.keep-alive=5 --set dhParam=LS0=")
    assert told["ssl-dh-param"] and told["keep-alive"] == "5"


def test_what_is_too_large_for_a_configmap_is_refused() -> None:
    assert "the API server takes 1048576" in refused(f"kind: ConfigMap\ndata: {{http-snippet: '{'#' * 1_048_577}'}}")


def test_an_anchor_that_stands_a_million_times_is_read_once() -> None:
    rows = [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in pairwise("abcdefghij")]
    bomb = "\n".join(["a: &a [x]", *rows, MAP.replace("kind: ConfigMap\n", "").replace("metadata", "meta")])
    assert data(bomb) == BOTH


TOKENS = ["{", "}", "[", ":", "- ", "\n", "\t", "&a ", "*a", "<<: ", "'", '"', "---\n", "|", "{{ x }}", "? ", "controller:", "kind: ConfigMap\n", "helm x --set a=", "--set-json=", "<<EOF", "\nEOF\n", "${X}", "!x ", "values", "set: ", "\x00", "~", "items:"]  # fmt: skip


@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_whatever_a_file_is_it_is_read_or_refused(data: st.DataObject) -> None:
    """Never an exception of another kind: a form of ours with something else in it."""
    text = data.draw(
        st.sampled_from(
            [
                MAP,
                f"a:\n  controller: {{{CONFIG}}}\n",
                json.dumps({"data": BOTH}),
                "x: 'y'\n",
                "helm upgrade x y -f - --set a.controller.config.x={a,b} <<EOF\ncontroller: {config: {}}\nEOF\n",
                "spec: {set: [{name: controller.config.x, value: 1}, {name: a, value: {}}], values: [a.yaml]}",
            ]
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        until = at + data.draw(st.sampled_from([0, 1, 9]))
        text = text[:at] + data.draw(st.sampled_from(TOKENS)) + text[until:]
    with suppress(UsageError):
        read("mine.yaml", text.encode(), INTO)


def test_what_terraform_would_fill_in_is_unescaped() -> None:
    body = HEREDOC.replace("use-gzip: true", "http-snippet: $${x}%%{y}")
    assert data(f"{RELEASE}\n  values = [{body}]\n}}\n") == {"http-snippet": "${x}%{y}"}


def test_all_keys_that_stand_twice_are_named_with_both_lines() -> None:
    told = refused("kind: ConfigMap\ndata:\n  a: '1'\n  b: '1'\n  a: '2'\n  b: '2'\n")
    assert "'a' stands at line 3 and at line 5; 'b' stands at line 4 and at line 6" in told


def test_of_several_maps_the_one_with_known_keys_is_meant() -> None:
    other = "kind: ConfigMap\nmetadata: {name: tcp-services}\ndata: {'9000': a/b:80}\n"
    assert data(f"{other}---\n{MAP}") == BOTH


def test_of_two_that_may_be_meant_commands_extract_each() -> None:
    told = refused(f"{MAP}---\na-b:\n  controller: {{{CONFIG}}}\n")
    assert "holds 2 maps of settings: ConfigMap y/x; a-b.controller.config" in told
    assert "kubectl -n y get configmap x -o yaml | scripts/shell just a-verb --configmap -" in told
    assert "yq 'select(di == 1) | explode(.) | .[\"a-b\"].controller.config' FILE" in told


NGINX_CONF = """user nginx;
http {
    log_format main '$remote_addr [$time_local] "$request" '
                    '{"status": $status}';
    access_log /var/log/nginx/access.log main;
    #tcp_nopush on;
    server { listen [::]:80; keepalive_timeout 65; location ~ \\.php$ { gzip on; } }
} # end
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "kind: ConfigMap\ndata:\nkeep-alive: '1'\nuse-gzip: 'true'\n",
            "keep-alive, use-gzip stand beside data: indent",
        ),
        ("kind: ConfigMap\ndata:\n  keep-alive:\u00a0'300'\n", "line 3 has a no-break space (U+00A0)"),
        (
            'Error from server (NotFound): configmaps "x" not found\n',
            "is the error of a command that failed: Error from",
        ),
        ("Error: release: not found\n", "is the error of a command that failed"),
        (NGINX_CONF, "is nginx's own configuration"),
        (NGINX_CONF, "keepalive_timeout → keep-alive; gzip → use-gzip"),
    ],
)
def test_what_stands_there_instead_is_told(text: str, said: str) -> None:
    assert said in refused(text)


def test_the_quotes_of_a_text_program_are_told() -> None:
    """They stay, as YAML has others, and the controller takes such a number for none."""
    text = "kind: ConfigMap\ndata:\n  keep-alive: \u201c300\u201d\n"
    assert data(text) == {"keep-alive": "\u201c300\u201d"}
    assert 'keep-alive: the quotes of \u201c300\u201d are none of YAML\'s, and stay: write "300"' in notes(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: ConfigMap\nData:\n  keep-alive: '1'\n", "'Data' is no field of it: keys and values stand under data"),
        ("kind: ConfigMap\nspec: {data: {keep-alive: '1'}}\n", "'spec' is no field of it"),
        ("controller:\n  replicaCount: 2\n", "holds no settings\n"),
        ('new Release("i", {values: {controller: {}}});\n', "not YAML"),
        (
            '{"data": {"keep-alive": "1"}}\n{"data": {"use-gzip": "true"}}\n',
            "yq 'select(di == 1) | explode(.) | .' FILE",
        ),
    ],
)
def test_what_is_no_configmap_is_told_as_what_it_is(text: str, said: str) -> None:
    assert said in refused(text)


def test_a_script_is_read_for_its_commands_and_a_page_for_its_blocks() -> None:
    script = "#!/bin/sh\nset -e\nhelm repo update\nhelm upgrade i c --set controller.config.use-gzip=true\n"
    assert data(script) == {"use-gzip": "true"}
    page = f"# Tuning\n\nUse this: it helps.\n\n```yaml\ncontroller:\n  {CONFIG}\n```\n\nThen restart.\n"
    assert data(page) == BOTH
    assert "line 7" in refused(page.replace("  config", "\tconfig"))
