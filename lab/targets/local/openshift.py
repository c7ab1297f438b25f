"""OpenShift's Route: one host, one Service, and where TLS ends. Pure; refuses every field it would not honour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from lab.base.errors import UsageError
from lab.model.endpoint import Tls
from lab.targets.local.fields import Fields

GROUP = "route.openshift.io/v1"
TERMINATIONS = ("edge", "passthrough", "reencrypt")
Insecure = Literal["None", "Allow", "Redirect"]


@dataclass(frozen=True, slots=True)
class HeaderAction:
    """What is done to a header of every request. `value` as HAProxy reads it (a log format); None = it is deleted."""

    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class HostRoute:
    """One Route. `insecure` says what happens to a request without TLS where `tls` is not none."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    host: str
    path: str
    service: str
    port: int | str
    tls: Tls
    insecure: Insecure = "None"
    headers: tuple[HeaderAction, ...] = ()


def read_route(place: str, raw: Mapping[str, Any]) -> HostRoute:
    """UsageError for what the router does not admit, or this target does not honour."""
    metadata = raw["metadata"]
    for annotation in metadata.get("annotations") or {}:
        if "router.openshift.io/" in annotation:
            fault = f"the local target does not honour {annotation}"
            raise UsageError(f"{place}: metadata.annotations", fault, "remove it, or use --target kind")
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata", "status")
        with fields.inner("spec") as spec, spec.inner("to") as to, spec.inner("port") as port:
            if spec.any("wildcardPolicy") != "None":
                remedy = "write wildcardPolicy: None: without OpenShift's API server nothing fills it in"
                raise UsageError(spec.at("wildcardPolicy"), "expected None: the router does not admit it", remedy)
            if (kind := to.take("kind", "Service")) != "Service":
                raise UsageError(to.at("kind"), f"expected Service, got {kind!r}", "correct it")
            to.waive("weight")  # there is one Service
            target = port.any("targetPort")
            if target is None:
                raise UsageError(port.place, "'targetPort' is missing", "name the Service's port: http or https")
            tls, insecure = _tls(spec)
            return HostRoute(
                namespace=metadata.get("namespace", "default"),
                name=metadata["name"],
                labels=metadata.get("labels") or {},
                host=spec.need("host", ""),
                path=spec.take("path", ""),
                service=to.need("name", ""),
                port=target,
                tls=tls,
                insecure=insecure,
                headers=tuple(_headers(spec)),
            )


def _headers(spec: Fields) -> Iterator[HeaderAction]:
    """Of requests; actions on responses are not honoured here."""
    with spec.inner("httpHeaders") as headers, headers.inner("actions") as actions:
        if actions.take("response", list[Any]()):
            raise UsageError(actions.at("response"), "the local target does not honour it", "use --target kind")
        for item in actions.each("request"):
            name = item.need("name", "")
            with item.inner("action") as action, action.inner("set") as settings:
                kind, value = action.need("type", ""), settings.take("value", "")
                if kind not in ("Set", "Delete") or (kind == "Set") != bool(value):
                    fault = f"expected Set with set.value, or Delete without, got {kind!r}"
                    raise UsageError(action.at("type"), fault, "correct it")
                yield HeaderAction(name, value or None)


def _tls(spec: Fields) -> tuple[Tls, Insecure]:
    if not spec.has("tls"):
        return "none", "None"
    with spec.inner("tls") as tls:
        termination, insecure = tls.need("termination", ""), tls.take("insecureEdgeTerminationPolicy", "None")
        if termination not in TERMINATIONS:
            raise UsageError(
                tls.at("termination"), f"expected {' or '.join(TERMINATIONS)}, got {termination!r}", "correct it"
            )
        allowed = ("None", "Redirect") if termination == "passthrough" else ("None", "Allow", "Redirect")
        if insecure not in allowed:
            fault = f"expected {' or '.join(allowed)}, got {insecure!r}"
            raise UsageError(tls.at("insecureEdgeTerminationPolicy"), fault, "correct it")
        return cast("Tls", termination), cast("Insecure", insecure)
