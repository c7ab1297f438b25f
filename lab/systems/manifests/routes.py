"""What leads to a Service: an Ingress's paths, with the few annotations that ingress-nginx's configuration here knows, and OpenShift's
Route, one host and where TLS ends. Pure; refuses every field that it would not honour.

Refuses x-forwarded-prefix without rewrite-target, too: the controller writes the header only beside a rewrite (buildProxyPass in
internal/ingress/controller/template/template.go), and says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from lab.base.errors import UsageError
from lab.model.endpoint import Tls
from lab.systems.ingress_nginx.configmap import KEYS, REALISED
from lab.systems.ingress_nginx.decoding import decoded
from lab.systems.manifests.fields import Fields, spec_of

OF_ONE = frozenset(
    {key.name for key in REALISED if key.where == "location"}
    | {"proxy-buffers-number", "proxy-next-upstream", "proxy-redirect-from", "proxy-redirect-to"}
)
"""Annotations that set for one Ingress what the ConfigMap's key of that name sets for all."""

PREFIX = "nginx.ingress.kubernetes.io/"
_REGEX, _REWRITE, _FORWARDED = f"{PREFIX}use-regex", f"{PREFIX}rewrite-target", f"{PREFIX}x-forwarded-prefix"

PathType = Literal["Prefix", "Exact", "ImplementationSpecific"]


@dataclass(frozen=True, slots=True)
class Route:
    """One path of one Ingress. `regex`: the path is a regular expression, which `rewrite` (empty = none) may refer to.

    `secret`: the certificate by which its host is served over TLS, too; empty = it is not.
    """

    namespace: str
    ingress: str
    host: str
    path: str
    path_type: PathType
    service: str
    port: int | str
    regex: bool = False
    rewrite: str = ""
    forwarded_prefix: str = ""
    secret: str = ""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """ConfigMap keys that its annotations set for it alone, decoded."""


def read_ingress(place: str, raw: Mapping[str, Any]) -> list[Route]:
    """UsageError for what the controller would not admit, or this target does not honour."""
    metadata = raw["metadata"]
    annotations = metadata.get("annotations") or {}
    regex, rewrite, forwarded = _annotations(place, annotations)
    settings = {
        name.removeprefix(PREFIX): _setting(f"{place}: metadata.annotations", name, text)
        for name, text in annotations.items()
        if name.removeprefix(PREFIX) in OF_ONE and name.startswith(PREFIX)
    }
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
                    service, port = _backend(path)
                    kind = _path_type(path, regex)
                    found.append(
                        Route(
                            metadata.get("namespace", "default"),
                            metadata["name"],
                            host,
                            path.need("path", ""),
                            kind,
                            service,
                            port,
                            regex,
                            rewrite,
                            forwarded,
                            secrets.get(host, ""),
                            settings,
                        )
                    )
    return found


def _backend(path: Fields) -> tuple[str, int | str]:
    with path.inner("backend") as backend, backend.inner("service") as service, service.inner("port") as port:
        number = port.any("number") or port.any("name")
        port.waive("name")
        return service.need("name", ""), number


def _path_type(path: Fields, regex: bool) -> PathType:
    kind = path.need("pathType", "")
    if kind not in ("Prefix", "Exact") and not (regex and kind == "ImplementationSpecific"):
        remedy = "ImplementationSpecific means nothing on its own: it takes the annotation use-regex"
        raise UsageError(path.at("pathType"), f"expected Prefix or Exact, got {kind!r}", remedy)
    return kind


def _annotations(place: str, annotations: Mapping[str, str]) -> tuple[bool, str, str]:
    where = f"{place}: metadata.annotations"
    for name in annotations:
        known = name in (_REGEX, _REWRITE, _FORWARDED) or name.removeprefix(PREFIX) in OF_ONE
        if name.startswith(PREFIX) and not known:
            raise UsageError(where, f"the local target does not honour {name}", "use --target kind, or remove it")
    rewrite, forwarded = annotations.get(_REWRITE, ""), annotations.get(_FORWARDED, "")
    if forwarded and not rewrite:
        fault = f"{_FORWARDED} alone does nothing: the controller writes the header only beside a rewrite"
        raise UsageError(where, fault, f"add {_REWRITE}, such as /$1 for the path /(.*)")
    return bool(rewrite) or annotations.get(_REGEX) == "true", rewrite, forwarded


def _setting(where: str, name: str, text: str) -> str:
    """UsageError for a number or truth that is none: the controller would take the ConfigMap's without a word."""
    key = KEYS[name.removeprefix(PREFIX)]
    decimal = key.kind != "int" or re.fullmatch(r"[+-]?[0-9]+", text)
    found = decoded(key.kind, text if key.kind != "int" else text.lstrip("+").lstrip("0") or "0", key.default)
    if found.kept or not decimal:
        raise UsageError(f"{where}.{name}", f"{text!r} is no {key.kind}, and is ignored", "correct it")
    return found.value


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
    with spec_of(place, raw, "status") as spec, spec.inner("to") as to, spec.inner("port") as port:
        if spec.any("wildcardPolicy") != "None":
            remedy = "write wildcardPolicy: None: without OpenShift's API server nothing fills it in"
            raise UsageError(spec.at("wildcardPolicy"), "expected None: the router does not admit it", remedy)
        to.choice("kind", ("Service",), "Service")
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
        termination = tls.choice("termination", TERMINATIONS)
        allowed = ("None", "Redirect") if termination == "passthrough" else ("None", "Allow", "Redirect")
        insecure = tls.choice("insecureEdgeTerminationPolicy", allowed, "None")
        return cast("Tls", termination), cast("Insecure", insecure)
