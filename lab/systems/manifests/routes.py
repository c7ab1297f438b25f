"""What leads to a Service: an Ingress's paths, with the two annotations that set a header of requests, and OpenShift's Route, one host and where
TLS ends. Pure; refuses every field that it would not honour.

Refuses x-forwarded-prefix without rewrite-target, too: the controller writes the header only beside a rewrite (buildProxyPass in
internal/ingress/controller/template/template.go), and says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from lab.base.errors import refuse_if
from lab.model.endpoint import Tls
from lab.systems.manifests.fields import Fields, spec_of

PREFIX = "nginx.ingress.kubernetes.io/"
_REWRITE, _FORWARDED = f"{PREFIX}rewrite-target", f"{PREFIX}x-forwarded-prefix"

PathType = Literal["Prefix", "Exact"]


@dataclass(frozen=True, slots=True)
class Route:
    """One path of one Ingress. `rewrite`: empty = none; with one, the path is a regular expression, to which it may refer.

    `secret`: the certificate by which its host is served over TLS, too; empty = it is not.
    """

    namespace: str
    ingress: str
    host: str
    path: str
    path_type: PathType
    service: str
    port: int | str
    rewrite: str = ""
    forwarded_prefix: str = ""
    secret: str = ""


def read_ingress(place: str, raw: Mapping[str, Any]) -> list[Route]:
    """UsageError for what the controller would not admit, or this target does not honour."""
    metadata = raw["metadata"]
    rewrite, forwarded = _annotations(f"{place}: metadata.annotations", metadata.get("annotations") or {})
    found: list[Route] = []
    with spec_of(place, raw, "status") as spec:
        spec.waive("ingressClassName")  # compared by whoever knows the classes
        secrets: dict[str, str] = {}
        for entry in spec.each("tls", "secretName"):
            secrets |= dict.fromkeys(entry.take("hosts", list[str]()), entry.need("secretName", ""))
        for rule in spec.each("rules", "host"):
            with rule.inner("http") as http:
                host = rule.need("host", "")
                for path in http.each("paths", "path"):
                    with path.inner("backend") as backend, backend.inner("service") as to, to.inner("port") as ref:
                        service, port = to.need("name", ""), ref.any("number") or ref.any("name")
                        ref.waive("name")
                    kind = cast("PathType", path.choice("pathType", ("Prefix", "Exact")))
                    at = (host, path.need("path", ""), kind, service, port, rewrite, forwarded, secrets.get(host, ""))
                    found.append(Route(metadata.get("namespace", "default"), metadata["name"], *at))
    return found


def _annotations(where: str, annotations: Mapping[str, str]) -> tuple[str, str]:
    """(rewrite, forwarded prefix). UsageError for another of ingress-nginx's."""
    for name in annotations:
        foreign = name.startswith(PREFIX) and name not in (_REWRITE, _FORWARDED)
        refuse_if(foreign, where, f"the local target does not honour {name}", "use --target kind, or remove it")
    rewrite, forwarded = annotations.get(_REWRITE, ""), annotations.get(_FORWARDED, "")
    fault = f"{_FORWARDED} alone does nothing: the controller writes the header only beside a rewrite"
    refuse_if(forwarded and not rewrite, where, fault, f"add {_REWRITE}, such as /$1 for the path /(.*)")
    return rewrite, forwarded


TERMINATIONS = ("edge", "passthrough", "reencrypt")
Insecure = Literal["None", "Allow", "Redirect"]


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
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is set on every request; a value as HAProxy reads it, a log format."""


def read_route(place: str, raw: Mapping[str, Any]) -> HostRoute:
    """UsageError for what the router does not admit, or this target does not honour."""
    metadata = raw["metadata"]
    for annotation in metadata.get("annotations") or {}:
        fault, remedy = f"the local target does not honour {annotation}", "remove it, or use --target kind"
        refuse_if("router.openshift.io/" in annotation, f"{place}: metadata.annotations", fault, remedy)
    with spec_of(place, raw, "status") as spec, spec.inner("to") as to, spec.inner("port") as port:
        fault = "expected None: the router does not admit it"
        remedy = "write wildcardPolicy: None: without OpenShift's API server nothing fills it in"
        spec.refuse(spec.any("wildcardPolicy") != "None", "wildcardPolicy", fault, remedy)
        to.choice("kind", ("Service",), "Service")
        to.waive("weight")  # there is one Service
        target = port.any("targetPort")
        port.refuse(target is None, "", "'targetPort' is missing", "name the Service's port: http or https")
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
            headers=dict(_headers(spec)),
        )


def _headers(spec: Fields) -> Iterator[tuple[str, str]]:
    """Of requests; actions on responses are not honoured here."""
    with spec.inner("httpHeaders") as headers, headers.inner("actions") as actions:
        given = actions.take("response", list[Any]())
        actions.refuse(given, "response", "the local target does not honour it", "use --target kind")
        for item in actions.each("request"):
            name = item.need("name", "")
            with item.inner("action") as action, action.inner("set") as settings:
                action.choice("type", ("Set",), remedy="use --target kind")
                yield name, settings.need("value", "")


def _tls(spec: Fields) -> tuple[Tls, Insecure]:
    if not spec.has("tls"):
        return "none", "None"
    with spec.inner("tls") as tls:
        termination = tls.choice("termination", TERMINATIONS)
        allowed = ("None", "Redirect") if termination == "passthrough" else ("None", "Allow", "Redirect")
        insecure = tls.choice("insecureEdgeTerminationPolicy", allowed, "None")
        return cast("Tls", termination), cast("Insecure", insecure)
