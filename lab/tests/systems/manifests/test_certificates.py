"""Certificates: made for what a Secret asks, each once, and told by what a connection shows."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509

from lab.base.errors import UsageError
from lab.systems.manifests import certificates
from lab.systems.manifests.certificates import Request, described, issue, requested, subject


@pytest.mark.parametrize(("key", "shown"), [("rsa-2048", "RSA 2048"), ("ecdsa-256", "ECDSA 256")])
def test_a_client_that_trusts_the_authority_believes_the_certificate(key: str, shown: str, tmp_path: Path) -> None:
    """A real handshake, with verification of name and issuer; what it shows is what was asked for."""
    made = issue(Request(("*.apps.lab.test", "other.lab.test"), key))
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    for host, good in (("a.apps.lab.test", True), ("other.lab.test", True), ("else.lab.test", False)):
        ends = socket.socketpair()
        thread = threading.Thread(target=lambda end=ends[0]: _accept(server, end), daemon=True)
        thread.start()
        try:
            with client.wrap_socket(ends[1], server_hostname=host) as connection:
                der = connection.getpeercert(binary_form=True)
                assert good and der is not None and described(der) == {"key": shown, "subject": "*.apps.lab.test"}
        except ssl.SSLCertVerificationError:
            assert not good
        thread.join(5)
    assert subject(made["tls.crt"]) == "*.apps.lab.test"


def _accept(context: ssl.SSLContext, end: socket.socket) -> None:
    try:
        with context.wrap_socket(end, server_side=True) as connection:
            connection.recv(1)
    except OSError:
        end.close()


def test_the_same_request_has_the_same_certificate_and_one_authority_signs_all() -> None:
    first, second = Request(("a",), "ecdsa-256"), Request(("b",), "ecdsa-256")
    assert issue(first) is issue(first)
    assert issue(first)["tls.key"] != issue(second)["tls.key"] and issue(first)["ca.crt"] == issue(second)["ca.crt"]
    authority = x509.load_pem_x509_certificate(issue(first)["ca.crt"].encode())
    assert authority.subject.rfc4514_string() == "CN=ingress tuning lab"


def test_a_request_is_read_from_annotations_and_one_that_cannot_be_met_says_so() -> None:
    assert requested("Secret/a", {}) is None
    assert requested("Secret/a", {certificates.NAMES: "*.a, b"}) == Request(("*.a", "b"), "rsa-2048")
    for asked, said in (
        ({"lab/certificate": " , "}, "lab/certificate: is empty"),
        ({"lab/certificate": "a", "lab/key": "rsa-512"}, "lab/key: expected rsa-2048.*got 'rsa-512'"),
        ({"lab/certificate": "a", "lab/key": "ed25519"}, "lab/key: .*got 'ed25519'"),
    ):
        with pytest.raises(UsageError, match=f"Secret/a: metadata.annotations: {said}"):
            requested("Secret/a", asked)
