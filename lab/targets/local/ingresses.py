"""An Ingress → its paths, with the few annotations that ingress-nginx's configuration here knows. Pure.

Refuses every other annotation of the controller's, and x-forwarded-prefix without rewrite-target: the controller writes
the header only beside a rewrite (buildProxyPass in internal/ingress/controller/template/template.go), and says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lab.base.errors import UsageError
from lab.targets.local.fields import Fields

PREFIX = "nginx.ingress.kubernetes.io/"
_REGEX, _REWRITE, _FORWARDED = f"{PREFIX}use-regex", f"{PREFIX}rewrite-target", f"{PREFIX}x-forwarded-prefix"

PathType = Literal["Prefix", "Exact", "ImplementationSpecific"]


@dataclass(frozen=True, slots=True)
class Route:
    """One path of one Ingress. `regex`: the path is a regular expression, which `rewrite` (empty = none) may refer to."""

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


def read_ingress(place: str, raw: Mapping[str, Any]) -> list[Route]:
    """UsageError for what the controller would not admit, or this target does not honour."""
    metadata = raw["metadata"]
    regex, rewrite, forwarded = _annotations(place, metadata.get("annotations") or {})
    found: list[Route] = []
    with Fields(place, raw) as fields:
        fields.waive("apiVersion", "kind", "metadata", "status")
        with fields.inner("spec") as spec:
            spec.waive("ingressClassName")  # compared by whoever knows the classes
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
        if name.startswith(PREFIX) and name not in (_REGEX, _REWRITE, _FORWARDED):
            fault = f"the local target does not honour {name}"
            raise UsageError(where, fault, "set the ConfigMap's key of that name, or use --target kind")
    rewrite, forwarded = annotations.get(_REWRITE, ""), annotations.get(_FORWARDED, "")
    if forwarded and not rewrite:
        fault = f"{_FORWARDED} alone does nothing: the controller writes the header only beside a rewrite"
        raise UsageError(where, fault, f"add {_REWRITE}, such as /$1 for the path /(.*)")
    return bool(rewrite) or annotations.get(_REGEX) == "true", rewrite, forwarded
