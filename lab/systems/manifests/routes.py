"""The readers of Ingresses and of OpenShift's Routes, which lead requests to a Service.

Of an Ingress, the paths and four annotations are read. They are rewrite-target, x-forwarded-prefix (which sets a request
header), and backend-protocol and nginx.org/grpc-services, by which ingress-nginx and F5's controller speak gRPC to a backend. A
Route has one host, and states where TLS ends. A field that the lab does not support raises an error. The module does no I/O.

An Ingress with x-forwarded-prefix but without rewrite-target is an error, too: the controller writes the header only together
with a rewrite (buildProxyPass in internal/ingress/controller/template/template.go), and would ignore the annotation silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from lab.base.errors import refuse_if
from lab.model.endpoint import Tls
from lab.systems.manifests.fields import Fields, open_spec

PREFIX = "nginx.ingress.kubernetes.io/"
_REWRITE, _FORWARDED = f"{PREFIX}rewrite-target", f"{PREFIX}x-forwarded-prefix"
_PROTOCOL, _GRPC_SERVICES = f"{PREFIX}backend-protocol", "nginx.org/grpc-services"

PathType = Literal["Prefix", "Exact"]


@dataclass(frozen=True, slots=True)
class IngressPath:
    """A path of an Ingress, with the Service to which it leads requests.

    Attributes:
        namespace: the Ingress's namespace.
        ingress: the Ingress's name.
        host: the host of the requests.
        path: the path. With a rewrite, the path is a regular expression, and the rewrite may refer to its groups.
        path_type: `Exact` if a request's path must be equal to `path`, `Prefix` if it must begin with `path`.
        service: the name of the Service.
        port: the Service's port, by number or name.
        rewrite: the path that replaces the request's path; empty = no rewrite.
        forwarded_prefix: the value that the request header X-Forwarded-Prefix gets; empty = the header is not set.
        secret: the name of the Secret with the certificate by which the host is also served over TLS; empty = no TLS.
        grpc_backend: whether ingress-nginx passes requests on by gRPC, as its annotation backend-protocol states.
        grpc_service: whether F5's controller passes requests on by gRPC, as its annotation nginx.org/grpc-services states.

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
    grpc_backend: bool = False
    grpc_service: bool = False


def read_ingress(place: str, raw: Mapping[str, Any]) -> list[IngressPath]:
    """Read the paths of an Ingress from its manifest.

    Args:
        place: the Ingress, for error messages.
        raw: the manifest.

    Raises:
        UsageError: for a value that the controller would refuse, or a field that this target does not support.

    """
    metadata = raw["metadata"]
    annotations = metadata.get("annotations") or {}
    rewrite, forwarded = _read_annotations(f"{place}: metadata.annotations", annotations)
    grpc_backend = annotations.get(_PROTOCOL) == "GRPC"
    grpc_services = [name.strip() for name in annotations.get(_GRPC_SERVICES, "").split(",")]
    routes: list[IngressPath] = []
    with open_spec(place, raw, "status") as spec:
        spec.waive("ingressClassName")  # compared by the module that knows the classes
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
                    route = IngressPath(
                        namespace=metadata.get("namespace", "default"),
                        ingress=metadata["name"],
                        host=host,
                        path=path.need("path", ""),
                        path_type=kind,
                        service=service,
                        port=port,
                        rewrite=rewrite,
                        forwarded_prefix=forwarded,
                        secret=secrets.get(host, ""),
                        grpc_backend=grpc_backend,
                        grpc_service=service in grpc_services,
                    )
                    routes.append(route)
    return routes


def _read_annotations(place: str, annotations: Mapping[str, str]) -> tuple[str, str]:
    """Return the values of an Ingress's annotations rewrite-target and x-forwarded-prefix, as a pair.

    The value of an annotation that is not set is empty.

    Args:
        place: the place of the annotations, for error messages.
        annotations: the annotations of the Ingress.

    Raises:
        UsageError: for another annotation of ingress-nginx, for a backend-protocol that is neither HTTP nor GRPC, and for
            x-forwarded-prefix without rewrite-target. The annotation backend-protocol itself is allowed.

    """
    for name in annotations:
        foreign = name.startswith(PREFIX) and name not in (_REWRITE, _FORWARDED, _PROTOCOL)
        refuse_if(foreign, place, f"the local target does not honour {name}", "use --target kind, or remove it")
    protocol = annotations.get(_PROTOCOL, "HTTP")
    fault = f"the local target does not honour {_PROTOCOL}: {protocol}"
    refuse_if(protocol not in ("HTTP", "GRPC"), place, fault, "name HTTP or GRPC, or use --target kind")
    rewrite, forwarded = annotations.get(_REWRITE, ""), annotations.get(_FORWARDED, "")
    fault = f"{_FORWARDED} alone does nothing: the controller writes the header only together with a rewrite"
    refuse_if(forwarded and not rewrite, place, fault, f"add {_REWRITE}, such as /$1 for the path /(.*)")
    return rewrite, forwarded


TERMINATIONS = ("edge", "passthrough", "reencrypt")
Insecure = Literal["None", "Allow", "Redirect"]


@dataclass(frozen=True, slots=True)
class HostRoute:
    """A Route of OpenShift, which leads the requests for one host to a Service.

    Attributes:
        host: the host of the requests.
        path: the prefix that a request's path must have; empty = any path.
        service: the name of the Service.
        port: the Service's port, by number or name.
        tls: where TLS ends: `edge` (at the router), `passthrough` (at the backend), `reencrypt` (at both, with a new
            connection), or `none` for a route without TLS.
        insecure: what happens to a request without TLS, if `tls` is not `none`: `None` (it is not served), `Allow` or
            `Redirect`.
        headers: name → value of the headers that are set on every request. HAProxy reads a value as a log format.

    """

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


def read_route(place: str, raw: Mapping[str, Any]) -> HostRoute:
    """Read a Route of OpenShift from its manifest.

    Args:
        place: the Route, for error messages.
        raw: the manifest.

    Raises:
        UsageError: for a value that OKD's router would refuse, or a field that this target does not support.

    """
    metadata = raw["metadata"]
    for annotation in metadata.get("annotations") or {}:
        fault, remedy = f"the local target does not honour {annotation}", "remove it, or use --target kind"
        refuse_if("router.openshift.io/" in annotation, f"{place}: metadata.annotations", fault, remedy)
    with open_spec(place, raw, "status") as spec, spec.inner("to") as to, spec.inner("port") as port:
        fault = "expected None: the router does not admit it"
        remedy = "write wildcardPolicy: None: without OpenShift's API server nothing fills it in"
        spec.refuse(spec.any("wildcardPolicy") != "None", "wildcardPolicy", fault, remedy)
        to.choice("kind", ("Service",), "Service")
        to.waive("weight")  # there is one Service
        target = port.any("targetPort")
        port.refuse(target is None, "", "'targetPort' is missing", "name the Service's port: http or https")
        tls, insecure = _read_tls(spec)
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
            headers=dict(_read_headers(spec)),
        )


def _read_headers(spec: Fields) -> Iterator[tuple[str, str]]:
    """Yield the request headers that an OpenShift Route sets, as pairs (name, value).

    Args:
        spec: the fields of the Route's `spec`.

    Raises:
        UsageError: for changes of response headers, and for actions on request headers other than `Set`. This target supports
            neither.

    """
    with spec.inner("httpHeaders") as headers, headers.inner("actions") as actions:
        responses = actions.take("response", list[Any]())
        actions.refuse(responses, "response", "the local target does not honour it", "use --target kind")
        for item in actions.each("request"):
            name = item.need("name", "")
            with item.inner("action") as action, action.inner("set") as settings:
                action.choice("type", ("Set",), remedy="use --target kind")
                yield name, settings.need("value", "")


def _read_tls(spec: Fields) -> tuple[Tls, Insecure]:
    if not spec.has("tls"):
        return "none", "None"
    with spec.inner("tls") as tls:
        termination = tls.choice("termination", TERMINATIONS)
        allowed = ("None", "Redirect") if termination == "passthrough" else ("None", "Allow", "Redirect")
        insecure = tls.choice("insecureEdgeTerminationPolicy", allowed, "None")
        return cast("Tls", termination), cast("Insecure", insecure)
