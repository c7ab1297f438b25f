"""The issuer of TLS certificates for Secrets that request one, and a reader of certificates that a TLS server presents.

A Secret requests a certificate by two annotations:

    metadata.annotations:
      lab/certificate: "*.apps.lab.test"     the names it is issued for, separated by commas; the first is its common name
      lab/key: rsa-2048                      or ecdsa-256, ecdsa-384

Each process of the lab has one authority that issues all certificates. Each certificate is issued only once, because making an
RSA key takes tenths of a second. Nothing is stored on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from lab.base.errors import refuse_if

NAMES, KEY = "lab/certificate", "lab/key"
DEFAULT_KEY = "rsa-2048"
"""The kind of key that OKD's operator makes for a router's default certificate, and its service CA for a Service."""

LIFETIME = timedelta(days=7)
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
_KEYS: Mapping[str, Callable[[], Private]] = {
    **{f"rsa-{size}": partial(rsa.generate_private_key, 65537, size) for size in (2048, 3072, 4096)},
    "ecdsa-256": partial(ec.generate_private_key, ec.SECP256R1()),
    "ecdsa-384": partial(ec.generate_private_key, ec.SECP384R1()),
}


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """The certificate that the annotations of a Secret request from the lab.

    Attributes:
        names: the host names or IP addresses that the certificate is for; the first one is its common name.
        key: the type of the certificate's key, such as `rsa-2048`.

    """

    names: tuple[str, ...]
    key: str


def read_request(place: str, annotations: Mapping[str, str]) -> CertificateRequest | None:
    """Read from a Secret's annotations which certificate the lab has to issue for the Secret; None if none is requested.

    Args:
        place: the Secret, for error messages.
        annotations: the annotations of the Secret.

    Raises:
        UsageError: when no host name is given, or the lab cannot make a key of the requested type.

    """
    if NAMES not in annotations:
        return None
    names = tuple(name for part in annotations[NAMES].split(",") if (name := part.strip()))
    refuse_if(not names, f"{place}: metadata.annotations: {NAMES}", "is empty", "name a host")
    key = annotations.get(KEY, DEFAULT_KEY)
    fault = f"expected {' or '.join(_KEYS)}, got {key!r}"
    refuse_if(key not in _KEYS, f"{place}: metadata.annotations: {KEY}", fault, "correct it")
    return CertificateRequest(names, key)


@cache
def issue(request: CertificateRequest) -> Mapping[str, str]:
    """Issue a certificate, and return its files: `tls.crt`, `tls.key` and `ca.crt` → PEM text.

    Within one process, equal requests get the same certificate.
    """
    authority, authority_key = _make_authority()
    key = _KEYS[request.key]()
    names = x509.SubjectAlternativeName([_to_alternative_name(name) for name in request.names])
    signed = _build_certificate(request.names[0], key, authority.subject).add_extension(names, critical=False)
    return {
        "tls.crt": _to_pem(signed.sign(authority_key, hashes.SHA256())),
        "tls.key": key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
        "ca.crt": _to_pem(authority),
    }


def describe_certificate(der: bytes) -> dict[str, str]:
    """Return the key type and the common name of a certificate that a TLS server has presented.

    Args:
        der: the certificate in DER form.

    Returns:
        `key` → the type of the certificate's key (such as `RSA 2048`), `subject` → the certificate's common name.

    Raises:
        ValueError: when the bytes are no certificate.

    """
    certificate = x509.load_der_x509_certificate(der)
    match certificate.public_key():
        case rsa.RSAPublicKey() as public:
            key = f"RSA {public.key_size}"
        case ec.EllipticCurvePublicKey() as public:
            key = f"ECDSA {public.key_size}"
        case unknown:
            key = type(unknown).__name__
    return {"key": key, "subject": subject(certificate)}


def subject(certificate: x509.Certificate | str) -> str:
    """Return the common name of a certificate; empty if the certificate has no common name.

    Args:
        certificate: the certificate, or a text in PEM form, whose first certificate is used.

    Raises:
        ValueError: when the text contains no certificate.

    """
    if isinstance(certificate, str):
        certificate = x509.load_pem_x509_certificate(certificate.encode())
    return "".join(str(name.value) for name in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[:1])


@cache
def _make_authority() -> tuple[x509.Certificate, Private]:
    key = _KEYS["ecdsa-256"]()
    name = "ingress tuning lab"
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    builder = _build_certificate(name, key, _to_name(name)).add_extension(constraints, critical=True)
    return builder.sign(key, hashes.SHA256()), key


def _build_certificate(name: str, key: Private, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_to_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks differ
        .not_valid_after(now + LIFETIME)
    )


def _to_name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _to_alternative_name(name: str) -> x509.GeneralName:
    """Convert a host name or an IP address to a subject alternative name for a certificate."""
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _to_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
