"""What has another form than settings: each row of the table names it, with the command that renders it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.base.handing import piped_command
from lab.experiments.configmap.reading import FileSettings, read_settings
from lab.experiments.configmap.split import split

INTO = piped_command("a-verb")
SOPS = "ENC[AES256_GCM,data:x,iv:y,tag:z,type:int]"
BY_SHELL = f"filled in before it is applied: give what comes of it: envsubst < FILE | {INTO}"
MAP = "kind: ConfigMap\ndata:\n  keep-alive: '5'\n"


def given(text: str) -> FileSettings:
    return read_settings("mine.yaml", text.encode(), INTO)


def refused(text: str) -> str:
    with pytest.raises(UsageError) as raised:
        given(text)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "name", "command"),
    [
        ("$ANSIBLE_VAULT;1.1;AES256\n6638\n", "encrypted by Ansible Vault", "ansible-vault view FILE"),
        ("-----BEGIN AGE ENCRYPTED FILE-----\nabc\n", "encrypted by age", "age -d FILE"),
        ("-----BEGIN PGP MESSAGE-----\nabc\n", "encrypted by GnuPG", "gpg -d FILE"),
        (f'{{"data": "{SOPS}", "sops": {{"mac": "x"}}}}', "encrypted by SOPS", "sops -d FILE"),
        ("data:\n<<<<<<< HEAD\n  keep-alive: '1'\n=======\n", "conflict markers", "git show :2:./FILE"),
        (f"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-  keep-alive: '1'\n{MAP}", "git diff", "git show HEAD:"),
        (f"--- a/x.yaml\n+++ b/x.yaml\n{MAP}", "a difference between two files", "git show"),
        ('Error from server (NotFound): configmaps "x" not found\n', "the error of a command", "kubectl -n"),
        ("NAME: x\nLAST DEPLOYED: x\nUSER-SUPPLIED VALUES:\n", "a whole release", "helm -n ingress-nginx get values"),
        ("USER-SUPPLIED VALUES:\na: 1\nCOMPUTED VALUES:\na: 1\n", "what helm prints of a whole release", "helm"),
        ("Name:         x\nNamespace:    y\n\nData\n====\nuse-gzip:\n----\ntrue\n", "prints for people", "kubectl -n"),
        ("<!DOCTYPE html>\n<p>\n", "a web page", "kubectl -n"),
        ("import * as k8s from '@pulumi/kubernetes';\nconst x = {\n", "a program (Pulumi", "helm -n"),
        ("new Release('i', {\n});\nimport pulumi\n", "a program (Pulumi", "helm -n"),
        ("local a = import 'b';\na.c(values={})\n", "jsonnet", "jsonnet FILE"),
        ("package x\ncontroller: config: \"keep-alive\": \"5\"\n", "CUE", "cue export FILE"),
        ("#@ load('@ytt:data', 'data')\ncontroller: {config: {keep-alive: #@ data\n", "a ytt template", "ytt -f FILE"),
        ("{ pkgs, ... }:\n{ services.x = {}; }\n", "Nix", "nix eval"),
        ('resource "helm_release" "x" {\n  values = [<<-EOT\n    controller: {}\n  EOT\n  ]\n}\n', "Terraform", "terraform show -json"),
        ('config = {\n  "keep-alive" = "5"\n}\n', "Terraform", "terraform show -json"),
        ("  set {\n    name = \"controller.config.keep-alive\"\n", "Terraform", "terraform show -json"),
        ("helm upgrade x y \\\n  --set controller.config.keep-alive=5\n", "a command line of helm", "helm -n"),
        ("$ sudo helm install x y -f a.yaml\n", "a command line of helm", "helm -n"),
        ("kubectl patch cm x -p '{\"data\": {\"keep-alive\": \"5\"}}'\n", "a patch by kubectl in a script", "kubectl -n"),
        ("#!/bin/sh\nfor i in 1; do\n  kubectl annotate x\ndone\n", "a script", "kubectl -n"),
        (f"cat <<EOF | kubectl apply -f -\n{MAP}EOF\n", "a script", "kubectl -n"),
        ("| Key | Type | Default |\n|--|--|--|\n", "a table of a chart's values", "helm show values CHART"),
        ("kind: Kustomization\nconfigMapGenerator: [{name: x, literals: [use-gzip=true]}]\n", "a Kustomization", "kubectl kustomize"),
        ("- op: add\n  path: /data/keep-alive\n  value: '5'\n", "a JSON patch", "kubectl -n"),
        ('[{"op": "add", "path": "/data/keep-alive", "value": "5"}]', "a JSON patch", "kubectl -n"),
        ("kind: Template\nobjects: [{kind: ConfigMap, data: {keep-alive: '${KA}'}}]\n", "an OpenShift template", "oc process"),
        ("# mine\nkeep-alive=300\nuse-gzip=true\n", "lines of KEY=VALUE", "kubectl create configmap x --from-env-file=FILE"),
        ("releases:\n{{ range .Values.a }}\n- values: [a: b: c]\n", "a helmfile template", "helmfile template"),
        ("data:\n  keep-alive: {{ keep_alive | default(75) }}s\n", "a template of Ansible's", "kubectl -n"),
        ("data:\n{{- range .x }}\n  {{ . }}: 1\n{{ end }}\n", "a Helm template", "helm template RELEASE CHART"),
        ("kind: HelmRelease\nspec: {valuesFrom: []}\n", "a release whose values are elsewhere", "helm -n"),
        ("kind: SealedSecret\nspec: {}\n", "a secret that a controller opens", "kubectl -n"),
        ("kind: ConfigMap\ndata:\n\u00a0\u00a0keep-alive: '1'\n", "text copied from a page", "sed"),
    ],
)  # fmt: skip
def test_another_form_is_named_with_the_command_that_renders_it(text: str, name: str, command: str) -> None:
    told = refused(text)
    assert told.startswith("mine.yaml: is ") and name in told.splitlines()[0], told
    assert f"\n  give what comes of it: {command}" in told and told.endswith(f" | {INTO}"), told


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("keep-alive", SOPS, f"encrypted by SOPS: give what comes of it: sops -d FILE | {INTO}"),
        ("no-such-key", SOPS, "encrypted by SOPS"),
        ("keep-alive", "ENC[PKCS7,xyz]", "eyaml decrypt -f FILE"),
        ("keep-alive", "$ANSIBLE_VAULT;1.1;AES256\n66", "encrypted by Ansible Vault"),
        ("keep-alive", "ref+vault://secret/x#/y", "vals eval -f FILE"),
        ("keep-alive", "<path:secret/data/x#y>", "argocd-vault-plugin generate FILE"),
        ("keep-alive", "{{ .Values.x }}", "filled in by Helm: give what comes of it: helm template"),
        ("keep-alive", "${KEEP_ALIVE}", BY_SHELL),
        ("keep-alive", "${keep_alive}", BY_SHELL),
        ("keep-alive", "$KEEP_ALIVE", BY_SHELL),
        ("use-gzip", "${USE_GZIP:-true}", BY_SHELL),
        ("proxy-body-size", "${SIZE}m", BY_SHELL),
        ("gzip-types", "${types:-text/css}", BY_SHELL),
        ("keep-alive", "$(KEEP_ALIVE)", "filled in before it is applied"),
        ("keep-alive", "#{KeepAlive}#", "filled in before it is applied"),
        ("keep-alive", "<KEEP_ALIVE>", "filled in before it is applied"),
        ("keep-alive", "{{ keep_alive }}", "filled in before it is applied"),
    ],
)
def test_a_placeholder_is_no_value(key: str, value: str, told: str) -> None:
    found = given(json.dumps({"kind": "ConfigMap", "data": {key: value, "use-http2": "false"}}))
    assert found.data == {"use-http2": "false"}
    assert any(note.startswith(f"{key}: ") and told in note for note in found.notes), found.notes


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("http-snippet", 'map $host $x { default "${host}"; }'),
        ("location-snippet", "$host"),
        ("log-format-upstream", "${remote_addr} - $status"),
        ("log-format-upstream", '{"a": {"b": "${X}"}}'),
        ("limit-conn-zone-variable", "${binary_remote_addr}"),
        ("global-auth-signin", "https://${host}/start?rd=$escaped_request_uri"),
        ("proxy-redirect-from", "http://$host/"),
        ("skip-access-log-urls", "~^/metrics$,/healthz"),
        ("ssl-ciphers", "ECDHE-RSA-AES128-SHA:!aNULL:@STRENGTH"),
    ],
)
def test_nginxs_own_variables_stay(key: str, value: str) -> None:
    found = given(json.dumps({"kind": "ConfigMap", "data": {key: value}}))
    assert found.data == {key: value} and not found.notes


def test_a_tag_of_another_tools_and_a_template_without_quotes_are_told() -> None:
    found = given("controller: {config: {keep-alive: !vault 'x', use-gzip: !!str true, hsts: {{ .Values.x }}}}")
    assert found.data == {"use-gzip": "true"}
    assert [note.partition(": give")[0] for note in found.notes] == [
        "keep-alive: written with a tag of another tool's",
        "hsts: filled in before it is applied",
    ]


FIELD = Path(__file__).parents[1] / "migration" / "testdata"
"""ConfigMaps as people wrote them."""
REFUSED = {
    "17-empty-data.yaml": "holds no settings",
    "23-duplicate-keys.yaml": "stands at line 3 and at line 5",
    "24-tabs.yaml": "line 3",
    "33-f5-configmap.yaml": "F5's NGINX Ingress Controller",
    "34-sealed-nulldata.yaml": "the controller reads 0",
}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=[] if path.name in REFUSED else pytest.mark.slow)
        for path in sorted(FIELD.iterdir())
    ],
)
def test_files_from_the_field_are_planned_or_refused_with_what_is_wrong(path: Path) -> None:
    if told := REFUSED.get(path.name):
        with pytest.raises(UsageError, match=re.escape(told)):
            split(path.name, read_settings(path.name, path.read_bytes(), INTO))
    else:
        found = split(path.name, read_settings(path.name, path.read_bytes(), INTO))
        assert found.kept and found.singles
