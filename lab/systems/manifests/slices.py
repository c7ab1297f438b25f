"""An EndpointSlice written by hand, for a Service without a selector: addresses that no pod's readiness decides. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lab.base.errors import UsageError
from lab.systems.manifests.fields import Fields

SERVICE_LABEL = "kubernetes.io/service-name"


@dataclass(frozen=True, slots=True)
class Slice:
    """`ports`: name → number; the name is that of the Service's port. `addresses`: the ready ones only."""

    name: str
    service: str
    ports: Mapping[str, int]
    addresses: tuple[str, ...]


def read_slice(place: str, raw: Mapping[str, Any]) -> Slice:
    """UsageError for what is no slice of a Service, or is not honoured here."""
    metadata = raw["metadata"]
    service = (metadata.get("labels") or {}).get(SERVICE_LABEL)
    if not service:
        raise UsageError(f"{place}: metadata.labels", f"{SERVICE_LABEL} is missing", "name the Service there")
    ports: dict[str, int] = {}
    addresses: list[str] = []
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata")
        fields.choice("addressType", ("IPv4",), remedy="pods have no other here")
        for port in fields.each("ports"):
            port.waive("protocol", "appProtocol")
            ports[port.take("name", "")] = port.need("port", 0)
        for endpoint in fields.each("endpoints", "addresses"):
            endpoint.waive("nodeName", "zone", "hints", "targetRef", "hostname")  # whose it is changes no way here
            with endpoint.inner("conditions") as conditions:
                conditions.waive("serving", "terminating")  # of an endpoint that is not ready
                ready = conditions.take("ready", True)
            found = endpoint.need("addresses", list[str]())
            addresses += found[:1] if ready else []  # the others mean nothing, says the API
    return Slice(metadata["name"], str(service), ports, tuple(addresses))
