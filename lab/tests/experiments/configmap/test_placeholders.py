"""What is to be decrypted or filled in before the controller sees it, and what is nginx's own."""

from __future__ import annotations

import json

import pytest

from lab.base.errors import UsageError
from lab.base.handing import again
from lab.experiments.configmap.reading import Given, read
from lab.experiments.configmap.split import split

INTO = again("a-verb")
SOPS = "ENC[AES256_GCM,data:x,iv:y,tag:z,type:int]"
BY_SHELL = f"filled in before it is applied: fill it in first: envsubst < FILE | {INTO}"


def given(text: str) -> Given:
    return read("mine.yaml", text.encode(), INTO)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("keep-alive", SOPS, f"encrypted by SOPS: decrypt it first: sops -d FILE | {INTO}"),
        ("http-snippet", SOPS, "encrypted by SOPS"),
        ("no-such-key", SOPS, "encrypted by SOPS"),
        ("keep-alive", "ENC[PKCS7,xyz]", "eyaml decrypt -f FILE"),
        ("keep-alive", "$ANSIBLE_VAULT;1.1;AES256\n66", "write what `ansible-vault decrypt` makes of it"),
        ("keep-alive", "ref+vault://secret/x#/y", "vals eval -f FILE"),
        ("keep-alive", "<path:secret/data/x#y>", "argocd-vault-plugin generate FILE"),
        ("keep-alive", "${KEEP_ALIVE}", BY_SHELL),
        ("keep-alive", "${keep_alive}", BY_SHELL),
        ("keep-alive", "$KEEP_ALIVE", BY_SHELL),
        ("keep-alive", "${KEEP_ALIVE:=75}", BY_SHELL),
        ("use-gzip", "${USE_GZIP:-true}", BY_SHELL),
        ("proxy-body-size", "${SIZE}m", BY_SHELL),
        ("whitelist-source-range", "10.0.0.0/8,${office}", BY_SHELL),
        ("proxy-buffer-size", "${SIZE}k", BY_SHELL),
        ("gzip-types", "${types:-text/css}", BY_SHELL),
        ("keep-alive", "$(KEEP_ALIVE)", "filled in before it is applied: give what comes of it"),
        ("keep-alive", "#{KeepAlive}#", "give what comes of it"),
        ("keep-alive", "@KEEP_ALIVE@", "give what comes of it"),
        ("keep-alive", "__KEEP_ALIVE__", "give what comes of it"),
        ("keep-alive", "<KEEP_ALIVE>", "give what comes of it"),
        ("keep-alive", "{{ keep_alive }}", "give what comes of it"),
        ("keep-alive", "${{ vars.KEEP }}", "give what comes of it"),
    ],
)
def test_a_placeholder_is_no_value(key: str, value: str, told: str) -> None:
    """Nor is it the controller's decision that it is none."""
    found = given(json.dumps({"kind": "ConfigMap", "data": {key: value, "use-http2": "false"}}))
    assert found.data == {"use-http2": "false"}
    assert any(note.startswith(f"{key}: ") and told in note for note in found.notes), found.notes


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("http-snippet", 'map $host $x { default "${host}"; }'),
        ("server-snippet", "set $X ${HOST};"),
        ("location-snippet", "$host"),
        ("log-format-upstream", "${remote_addr} - $status"),
        ("log-format-upstream", "${X}"),
        ("limit-conn-zone-variable", "${binary_remote_addr}"),
        ("global-auth-cache-key", "$remote_user$http_authorization"),
        ("global-auth-signin", "https://${host}/start?rd=$escaped_request_uri"),
        ("upstream-hash-by", "$request_uri"),
        ("proxy-redirect-from", "http://$host/"),
        ("skip-access-log-urls", "~^/metrics$,/healthz"),
        ("ssl-ciphers", "ECDHE-RSA-AES128-SHA:!aNULL:@STRENGTH"),
        ("gzip-types", "*"),
    ],
)
def test_nginxs_own_variables_stay(key: str, value: str) -> None:
    found = given(json.dumps({"kind": "ConfigMap", "data": {key: value}}))
    assert found.data == {key: value} and not found.notes


def test_what_an_openshift_template_declares_is_filled_in_by_oc_process() -> None:
    found = given(
        "kind: Template\nparameters: [{name: ka}, {name: Z}]\nobjects:\n- kind: ConfigMap\n  data:\n"
        "    {keep-alive: '${ka}', use-gzip: '${{Z}}', http-snippet: 'set $x ${Z};', server-snippet: 'set $x ${host};'}\n"
    )
    assert found.data == {"server-snippet": "set $x ${host};"}
    command = f"oc process -f FILE -o yaml | {INTO}"
    assert found.notes == (
        f"keep-alive, use-gzip, http-snippet: filled in before it is applied: fill it in first: {command}",
    )


def test_what_sops_keeps_of_its_own_is_no_fault_of_the_file() -> None:
    sops = {"mac": "ENC[AES256_GCM,data:x]", "version": "3.9.0"}
    for whole in (
        {"kind": "ConfigMap", "data": {"keep-alive": SOPS, "use-http2": "false"}, "sops": sops},
        {"keep-alive": SOPS, "use-http2": "false", "sops": sops},
    ):
        found = given(json.dumps(whole))
        assert found.data == {"use-http2": "false"}
        assert found.notes == (f"keep-alive: encrypted by SOPS: decrypt it first: sops -d FILE | {INTO}",)
    assert "'sops' stands beside data" in " ".join(given("kind: ConfigMap\ndata: {keep-alive: '5'}\nsops: x\n").notes)


def test_a_tag_of_another_tools_is_told() -> None:
    found = given("controller: {config: {keep-alive: !vault 'x', use-gzip: !!str true, use-http2: ! x}}")
    assert found.data == {"use-gzip": "true", "use-http2": "x"}
    assert "keep-alive: written as !vault, which another tool reads" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("$ANSIBLE_VAULT;1.1;AES256\n6638\n", "ansible-vault view"),
        ("-----BEGIN AGE ENCRYPTED FILE-----\nabc\n", "age -d"),
        ("-----BEGIN PGP MESSAGE-----\nabc\n", "gpg -d"),
    ],
)
def test_a_file_that_is_encrypted_whole_is_refused_with_what_opens_it(text: str, command: str) -> None:
    with pytest.raises(UsageError, match="is encrypted") as raised:
        given(text)
    assert raised.value.remedy == f"decrypt it first: {command} FILE | {INTO}"


def test_where_all_are_placeholders_the_refusal_says_so_and_nothing_else() -> None:
    with pytest.raises(UsageError) as raised:
        split("mine.yaml", given("kind: ConfigMap\ndata: {keep-alive: '${KA}', hsts: '${HSTS}'}"))
    assert str(raised.value) == f"mine.yaml: nothing to measure\n  keep-alive, hsts: {BY_SHELL}"
