"""A Secret → its files: what it holds, or the certificate that its annotations ask for. Pure until `files` is called."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.base.errors import UsageError
from lab.systems.manifests import certificates
from lab.systems.manifests.fields import Fields

_TLS, _PAIR = "kubernetes.io/tls", ("tls.crt", "tls.key")


@dataclass(frozen=True, slots=True)
class Secret:
    """`keys` are known before anything is made; `files` makes a certificate the first time."""

    data: Mapping[str, str]
    certificate: certificates.Request | None

    @property
    def keys(self) -> frozenset[str]:
        made = {"tls.crt", "tls.key", "ca.crt"} if self.certificate else set[str]()
        return frozenset(self.data) | made

    def files(self) -> Mapping[str, str]:
        return {**self.data, **(certificates.issue(self.certificate) if self.certificate else {})}


def read_secret(place: str, raw: Mapping[str, Any]) -> Secret:
    """UsageError for data that is no base64 of a text, for a pair of TLS that is none, or a certificate that cannot be made."""
    annotations = raw["metadata"].get("annotations") or {}
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata", "type", "immutable")
        data = dict(fields.take("stringData", dict[str, Any]()))
        for key, value in fields.take("data", dict[str, Any]()).items():
            try:
                data[key] = base64.b64decode(value or "", validate=True).decode()
            except (TypeError, binascii.Error, UnicodeDecodeError):
                raise UsageError(
                    f"{place}: data.{key}", "is no base64 of a text", "or write it to stringData"
                ) from None
    if raw.get("type") == _TLS and (missing := [name for name in _PAIR if name not in data]):
        raise UsageError(
            f"{place}: data", f"{missing[0]!r} is missing", f"a Secret of type {_TLS} has {' and '.join(_PAIR)}"
        )
    return Secret(data, certificates.requested(place, annotations))
