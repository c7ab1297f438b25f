"""The manifests of a verification: a proxy with the user's Ingresses and ConfigMap, in front of a backend that records requests.

Every Service that an Ingress names becomes a port of one backend (`echo`), so that a record shows which Service a
request reached. All namespaces become that of the lab, and every Secret is made anew with certificates and passwords of
the lab. Parts of an Ingress that no system can serve are left out by `read_ingresses`, and parts that one system cannot
serve by `make_manifests`; a note names each of them.

    Ingress shop/web: host shop.example, path /api → Service api:80
      →  ingress-nginx, Traefik, Contour on apiserver: the Ingress itself, as shop-web
      →  systems that read Ingresses on local: the same without ingress-nginx's annotations
      →  Gateway API: HTTPRoute shop-web, hostnames [shop.example], PathPrefix /api
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab.analysis.verification.requests import CATALOGUE_HOST, PASSWORD, TLS_HOST, USER, RoutedPath
from lab.systems.manifests import certificates
from lab.systems.manifests.routes import PREFIX

NAMESPACE = "ingress-lab"
CONTROL_PORT, CATALOGUE_PORT, FIRST_PORT = 8079, 8080, 9001
"""The backend's ports: of the lab, of the catalogue's route, and of the first Service of the user."""
SECRET = "verify-certificate"
OWN = ("verify-lab-plain", "verify-lab-tls")
"""The names of the routes of the catalogue."""
ECHO = Path(__file__).with_name("echo.py")
_REMOVED: Mapping[str, str] = {
    **dict.fromkeys(("limit-", "global-rate-limit"), "removed: the requests of a verification would exceed it"),
    "mirror-": "removed: copies arrive at any time",
    **dict.fromkeys(
        ("auth-proxy-set-headers", "fastcgi-params-configmap"), "removed: it names a ConfigMap of the cluster"
    ),
    "proxy-ssl-": "removed: the backend of the lab has another authority",
}
"""The beginnings of annotations that are realised on no system → what happens to them."""
_REMOVED_KEYS: Mapping[str, str] = {
    "use-proxy-protocol": "removed: the client of a verification speaks HTTP without it",
    "ssl-dh-param": "removed: it names a Secret of the cluster",
    "bind-address": "removed: it is an address of the cluster",
    **dict.fromkeys(
        ("global-auth-url", "whitelist-source-range", "denylist-source-range", "block-cidrs"),
        "removed: it would refuse the lab's own probes, too",
    ),
}
_CONFIG_MAPS = ("add-headers", "proxy-set-headers")
_HERE = "BACKEND"
"""The text in an annotation that the backend's address replaces."""
_KINDS = {"Exact": "Exact", "Prefix": "PathPrefix", "ImplementationSpecific": "PathPrefix"}
"""The type of a path in an Ingress → in an HTTPRoute."""
_PATTERN = re.compile(r"[][(){}|*+?^$\\]")
_NO_PATH = re.compile(r"//|/\.{1,2}(/|$)|%2[fF]|%5[cC]")
_HOST = re.compile(r"(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""What the API server refuses in an exact path or a prefix, and what a host has to be."""
Object = dict[str, Any]


@dataclass(slots=True)
class UserIngresses:
    """The Ingresses of a user's files, adapted to the lab for a verification of the systems that serve them.

    A verification compares how systems answer the same requests. One backend of the lab takes the place of all the user's Services.

    Attributes:
        ingresses: The Ingresses, in the lab's namespace and with its Services and Secrets.
        extras: The Secrets that the Ingresses need.
        paths: The paths of the Ingresses.
        services: Port of the backend → the Service whose requests arrive there, as `name:port`. If an Ingress is a canary by weight (it
            gets a random share of another Ingress's requests), all Services so far have one text, since which of them answers is random.
        ports: Service → its port by number or name → (number of the Service's port, port of the backend).
        secured: The ports of the backend that speak TLS.
        notes: The parts of the user's files that no system gets, in words.

    """

    ingresses: list[Object] = field(default_factory=list[Object])
    extras: list[Object] = field(default_factory=list[Object])
    paths: list[RoutedPath] = field(default_factory=list[RoutedPath])
    services: dict[int, str] = field(default_factory=lambda: {CATALOGUE_PORT: "lab"})
    ports: dict[str, dict[int | str, tuple[int, int]]] = field(
        default_factory=dict[str, "dict[int | str, tuple[int, int]]"]
    )
    secured: set[int] = field(default_factory=set[int])
    notes: list[str] = field(default_factory=list[str])

    @property
    def tls_hosts(self) -> list[str]:
        """The hosts for which the TLS certificate is made: those of the lab first, then those of the user's paths with TLS."""
        return list(
            dict.fromkeys([TLS_HOST, CATALOGUE_HOST, *(path.host for path in self.paths if path.tls and path.host)])
        )


def read_ingresses(texts: Sequence[tuple[str, str]]) -> UserIngresses:
    """Read the Ingresses in a user's files, and adapt them to the lab for a verification.

    Args:
        texts: (name of a file, its text) for each file. A text that is no YAML is ignored.

    """
    user = UserIngresses()
    for place, text in texts:
        try:
            documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
        except yaml.YAMLError:
            continue  # a ConfigMap in another form, such as a page of Markdown, which the plan has read
        for raw in (item for document in documents for item in _flatten(document)):
            if raw.get("kind") == "Ingress":
                _add_ingress(user, place, raw)
    secrets = {entry["secretName"] for obj in user.ingresses for entry in obj["spec"].get("tls", [])}
    user.extras += [_make_tls_secret(name, user.tls_hosts) for name in sorted(secrets)]
    return user


def _flatten(document: Any, kind: str = "") -> Iterator[Object]:
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _flatten(item, str(document.get("kind", "")).removesuffix("List"))
    elif isinstance(document, dict):
        yield {"kind": kind, **document}


def _list_paths(spec: Mapping[str, Any]) -> list[Object]:
    return [path for rule in spec.get("rules") or [] for path in (rule.get("http") or {}).get("paths") or []]


def _make_name(*parts: str) -> str:
    """Return a valid Kubernetes name made of several parts: `('shop', 'web') → shop-web`. A long name is shortened and ends in a hash."""
    text = re.sub(r"[^a-z0-9-]+", "-", "-".join(filter(None, parts)).lower()).strip("-") or "x"
    return text if len(text) <= 50 else f"{text[:40].strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _modernise(spec: Object) -> list[Object]:
    """Convert an Ingress of version v1beta1 to networking.k8s.io/v1 in place, and return all its backends.

    Args:
        spec: The `spec` of the Ingress, which is changed.

    """
    if "backend" in spec:
        spec["defaultBackend"] = spec.pop("backend")
    paths = _list_paths(spec)
    for path in paths:
        path.update({"pathType": path.get("pathType", "ImplementationSpecific"), "path": str(path.get("path", "/"))})
    backends = [*filter(None, [spec.get("defaultBackend")]), *(path.setdefault("backend", {}) for path in paths)]
    for backend in backends:
        if name := backend.pop("serviceName", ""):
            port = str(backend.pop("servicePort", 80))
            backend["service"] = {"name": name, "port": {"number": int(port)} if port.isdigit() else {"name": port}}
    return backends


def _add_ingress(user: UserIngresses, place: str, raw: Mapping[str, Any]) -> None:
    """Adapt one Ingress to the lab and add it to `user.ingresses`; if no system can serve it, add a note instead.

    Args:
        user: The user's Ingresses so far.
        place: The name of the file.
        raw: The Ingress as it is written in the file.

    """
    metadata, spec = raw.get("metadata") or {}, deepcopy(raw.get("spec") or {})
    space, own_name = str(metadata.get("namespace") or "user"), str(metadata.get("name") or "")
    shown = f"{metadata.get('namespace') or ''}/{own_name}".strip("/")
    given: Mapping[str, Any] = metadata.get("annotations") or {}
    notes = {name.removeprefix(PREFIX): str(value) for name, value in given.items() if name.startswith(PREFIX)}
    backends, protocol = _modernise(spec), notes.get("backend-protocol", "HTTP").upper()
    if fault := _find_fault(spec, backends, protocol):
        user.notes.append(f"{place}: Ingress {shown} is left out: {fault}")
        return
    taken = {obj["metadata"]["name"] for obj in user.ingresses}
    name = _make_name(space, own_name)
    name = f"{name}-{len(taken)}" if name in taken else name
    for annotation in [item for item in notes if item.startswith(tuple(_REMOVED))]:
        reason = next(reason for begin, reason in _REMOVED.items() if annotation.startswith(begin))
        user.notes.append(f"{place}: Ingress {shown}: {annotation}: {reason}")
        notes.pop(annotation)
    _realise_authentication(user, name, notes)
    if notes.get("default-backend"):
        notes["default-backend"] = _make_name(space, notes["default-backend"])
        _add_service(user, notes["default-backend"], 80)
    for service in (backend["service"] for backend in backends):
        service["name"] = _make_name(space, service["name"])
        target = _add_service(user, service["name"], service["port"].get("number") or service["port"]["name"])
        user.secured |= {target} if protocol == "HTTPS" else set()
    if notes.get("canary") == "true" and notes.get("canary-weight", "0") not in (
        "0",
        notes.get("canary-weight-total", "100"),
    ):
        user.notes.append(
            f"{place}: Ingress {shown}: canary-weight: which of its Services answers is random, and not compared"
        )
        user.services |= dict.fromkeys(list(user.services)[1:], "a Service or its canary")
    tls = [
        {**entry, "secretName": _make_name(space, entry.get("secretName") or name)} for entry in spec.get("tls") or []
    ]
    body = {"rules": spec.get("rules"), "defaultBackend": spec.get("defaultBackend"), "tls": tls}
    ingress = _make_object("networking.k8s.io/v1", "Ingress", name)
    ingress["metadata"]["annotations"] = {f"{PREFIX}{key}": value for key, value in notes.items()}
    ingress["spec"] = {"ingressClassName": NAMESPACE, **{key: value for key, value in body.items() if value}}
    user.ingresses.append(ingress)
    covered = [host for entry in tls for host in entry.get("hosts") or []]
    for rule in spec.get("rules") or []:
        host = str(rule.get("host") or "")
        secured = host in covered or f"*.{host.partition('.')[2]}" in covered
        for path in _list_paths({"rules": [rule]}):
            user.paths.append(RoutedPath(host, path["path"], path["pathType"], secured, notes))


def _find_fault(spec: Mapping[str, Any], backends: Sequence[Mapping[str, Any]], protocol: str) -> str:
    """Return the reason why an Ingress cannot be part of a verification, such as `it has no path`; empty if it can.

    Args:
        spec: The `spec` of the Ingress.
        backends: The backends of the Ingress.
        protocol: The protocol of its backends, by ingress-nginx's annotation: `HTTP`, `HTTPS`, `GRPC` …

    """
    if protocol not in ("HTTP", "HTTPS", "AUTO_HTTP"):
        return f"backend-protocol {protocol}: the backend of a verification speaks HTTP"
    ports = [(backend.get("service") or {}).get("port") or {} for backend in backends]
    if not backends or not all(port.get("number") or port.get("name") for port in ports):
        return "a backend is no port of a Service" if backends else "it has no path"
    for path in _list_paths(spec):
        strict = path["pathType"] != "ImplementationSpecific"
        if path["pathType"] not in _KINDS or path["path"][:1] != "/" or (strict and _NO_PATH.search(path["path"])):
            return f"the API server refuses {path['path']} of type {path['pathType']}"
    hosts = (str(rule.get("host") or "a") for rule in spec.get("rules") or [])
    return next((f"the API server refuses the host {host}" for host in hosts if not _HOST.fullmatch(host)), "")


def _realise_authentication(user: UserIngresses, name: str, notes: dict[str, str]) -> None:
    """Change an Ingress's annotations about authentication, so that they name Secrets and a service of the lab.

    The user's Secrets and authentication service are not available in the lab.

    Args:
        user: The user's Ingresses; the new Secrets are added to `user.extras`.
        name: The name of the Ingress in the lab.
        notes: Name of an annotation without its prefix → its value; the values are changed.

    """
    if "auth-secret" in notes:
        digest = base64.b64encode(hashlib.sha1(PASSWORD.encode(), usedforsecurity=False).digest()).decode()
        by_file = notes.get("auth-secret-type", "auth-file") == "auth-file"
        data = {"auth": f"{USER}:{{SHA}}{digest}\n"} if by_file else {USER: f"{{SHA}}{digest}"}
        notes["auth-secret"] = f"{name}-auth"
        user.extras.append(_make_object("v1", "Secret", f"{name}-auth", type="Opaque", stringData=data))
    if "auth-url" in notes:
        notes["auth-url"] = f"http://{_HERE}:{CATALOGUE_PORT}/lab-auth"
    if "auth-tls-secret" in notes:
        notes["auth-tls-secret"] = f"{NAMESPACE}/{name}-authority"
        user.extras.append(_make_tls_secret(f"{name}-authority", [TLS_HOST]))


def _add_service(user: UserIngresses, service: str, port: int | str) -> int:
    """Return the port of the lab's backend that takes the place of a Service's port.

    The first call for a Service's port chooses a new backend port. Later calls return the same one.

    Args:
        user: The user's Ingresses; a new port is added to `user.ports` and `user.services`.
        service: The name of the Service.
        port: The number or name of the Service's port.

    """
    target = FIRST_PORT + len(user.services) - 1
    _, target = user.ports.setdefault(service, {}).setdefault(port, (port if isinstance(port, int) else target, target))
    user.services.setdefault(target, f"{service}:{port}")
    return target


def _make_object(version: str, kind: str, name: str, **body: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **body}


def _make_tls_secret(name: str, hosts: Sequence[str]) -> Object:
    """Return a Secret with a TLS certificate for several hosts. Equal hosts get an equal certificate."""
    files = certificates.issue(certificates.CertificateRequest(tuple(hosts), certificates.DEFAULT_KEY))
    data = {key: base64.b64encode(text.encode()).decode() for key, text in files.items()}
    return _make_object("v1", "Secret", name, type="kubernetes.io/tls", data=data)


def realise_configmap(
    given: Mapping[str, str], objects: Mapping[tuple[str, str], Mapping[str, str]]
) -> tuple[dict[str, str], list[Object], list[str]]:
    """Adapt the user's ConfigMap of ingress-nginx to the lab for a verification.

    Some keys are removed: those that name objects outside the file, and those with which the lab's own requests would be refused.

    Args:
        given: The keys and values of the user's ConfigMap.
        objects: (kind, name) → content of each other object in the user's file.

    Returns:
        (key → value, the ConfigMaps that the values name, notes about removed keys).

    """
    data, extras, notes = dict(given), list[Object](), list[str]()
    for key in [key for key in (*_REMOVED_KEYS, *_CONFIG_MAPS) if given.get(key)]:
        name = data.pop(key).rpartition("/")[2]
        content = objects.get(("ConfigMap", name)) if key in _CONFIG_MAPS else None
        if content is None:
            notes.append(
                f"{key}: {_REMOVED_KEYS.get(key) or f'removed: the file does not have the ConfigMap {given[key]}'}"
            )
        else:
            data[key] = f"{NAMESPACE}/verify-{key}"
            extras.append(_make_object("v1", "ConfigMap", f"verify-{key}", data=dict(content)))
    return data, extras, notes


# -- the manifests of one system -----------------------------------------------------------------------------------


def make_manifests(
    rendered: Sequence[Mapping[str, Any]],
    user: UserIngresses,
    reads_all: bool,
    backend: str,
    config: Mapping[str, str] | None = None,
    extras: Sequence[Object] = (),
) -> tuple[list[Object], list[str]]:
    """Return a system's manifests with the user's routes, and with a backend that records requests in place of the usual one.

    Args:
        rendered: The manifests of the system, with the lab's usual backend and routes.
        user: The user's Ingresses.
        reads_all: Whether a real controller reads the Ingresses as they are, with annotations and any type of path.
        backend: The IP address of the backend, which is also the authentication service.
        config: The data for ingress-nginx's ConfigMap; None for another system.
        extras: Further objects to add.

    Returns:
        (manifests, notes about parts of the Ingresses that this system does not get).

    """
    objects = [deepcopy(dict(obj)) for obj in rendered if obj["kind"] not in ("Ingress", "HTTPRoute")]
    notes, served = list[str](), set[tuple[str, ...]]()
    gateway = any(obj["kind"] == "Gateway" for obj in objects)
    ingresses = [_make_ingress(OWN[0], CATALOGUE_HOST), _make_ingress(OWN[1], TLS_HOST, SECRET)]
    for item in deepcopy(user.ingresses):
        given = item["metadata"]["annotations"]
        given |= {key: text.replace(_HERE, backend) for key, text in given.items()}
        reduced = item if reads_all else _reduce(item, notes, gateway, served)
        ingresses += [reduced] if reads_all or reduced["spec"]["rules"] else []
    for obj in objects:
        match obj["kind"], obj["metadata"]["name"]:
            case "Deployment", "backend":
                _record(obj["spec"]["template"]["spec"], user)
            case "ConfigMap", "backend":
                pair = _make_tls_secret("", ["backend.lab.test"])["data"] if user.secured else {}
                files = {key: base64.b64decode(text).decode() for key, text in pair.items()}
                obj["data"] = {"echo.py": ECHO.read_text(), **files}
            case "ConfigMap", "ingress-nginx-controller" if config is not None:
                obj["data"] = {**(obj.get("data") or {}), **config}
            case "Gateway", _:
                https = {
                    "name": "https",
                    "port": 443,
                    "protocol": "HTTPS",
                    "tls": {"certificateRefs": [{"name": SECRET}]},
                }
                obj["spec"]["listeners"] = [{"name": "http", "port": 80, "protocol": "HTTP"}, https]
            case "Service", "proxy":
                _open_https(obj["spec"]["ports"], {"port": 443, "targetPort": "https"})
            case "Deployment", "proxy":
                container = obj["spec"]["template"]["spec"]["containers"][0]
                _open_https(container["ports"], {"containerPort": 443})
                _serve_tls(container.get("args") or [])
            case _:
                pass
    routes = [route for item in ingresses for route in (_make_routes(item, user) if gateway else [item])]
    rules = [rule for route in routes if gateway for rule in route["spec"]["rules"]]
    used = dict.fromkeys(ref["name"] for rule in rules for ref in rule["backendRefs"] if ref["name"] in user.ports)
    for refs in (obj["spec"]["targetRefs"] for obj in objects if "targetRefs" in obj.get("spec", {})):
        # A policy for backends is for all that are served.
        refs.extend([{**refs[0], "name": name} for name in used if refs[0]["kind"] == "Service"])
    secrets = [_make_tls_secret(SECRET, user.tls_hosts), *([] if gateway else user.extras)]
    return [*objects, *_make_services(user), *secrets, *extras, *routes], notes


def _open_https(ports: list[Object], port: Object) -> None:
    if all(item.get("name") != "https" for item in ports):
        ports.append({"name": "https", **port})


def _serve_tls(arguments: list[str]) -> None:
    """Add an entry point for TLS to Traefik's arguments, if they have only one for plain HTTP.

    If the plain entry point serves every route by default, so does the one for TLS.

    Args:
        arguments: The arguments of the container, which are changed; those of another proxy stay as they are.

    """
    if "--entrypoints.web.address=:80" in arguments and not any("websecure.address" in text for text in arguments):
        arguments.append("--entrypoints.websecure.address=:443")
        if "--entrypoints.web.asdefault=true" in arguments:
            arguments += ["--entrypoints.websecure.asdefault=true", "--entrypoints.websecure.http.tls=true"]


def _record(spec: Object, user: UserIngresses) -> None:
    """Change the backend's pod so that it runs the program that records requests, instead of nginx.

    Args:
        spec: The `spec` of the pod, which is changed.
        user: The user's Ingresses, which determine the ports.

    """
    spec.pop("initContainers", None)
    (container,) = spec["containers"]
    ports = [f"{number}{'s' if number in user.secured else ''}" for number in user.services]
    container["image"] = "docker.io/library/python:3.13"
    container["command"] = ["python3", "-I", "/srv/conf/echo.py", str(CONTROL_PORT), *ports]
    container["readinessProbe"]["httpGet"] = {"path": "/healthz", "port": CONTROL_PORT}


def _make_services(user: UserIngresses) -> Iterator[Object]:
    for name, ports in user.ports.items():
        listed = [
            {"name": port if isinstance(port, str) else f"p{port}", "port": number, "targetPort": target}
            for port, (number, target) in ports.items()
        ]
        yield _make_object("v1", "Service", name, spec={"selector": {"lab/role": "backend"}, "ports": listed})


def _make_ingress(name: str, host: str, secret: str = "") -> Object:
    """Return an Ingress that routes all paths of one host of the lab to the backend.

    Args:
        name: The name of the Ingress.
        host: The host.
        secret: The name of the Secret with the host's certificate; empty: no TLS.

    """
    backend = {"service": {"name": "backend", "port": {"number": CATALOGUE_PORT}}}
    rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    tls = {"tls": [{"hosts": [host], "secretName": secret}]} if secret else {}
    spec = {"ingressClassName": NAMESPACE, "rules": [rule], **tls}
    return _make_object("networking.k8s.io/v1", "Ingress", name, spec=spec)


def _reduce(ingress: Object, notes: list[str], gateway: bool, served: set[tuple[str, ...]]) -> Object:
    """Remove from an Ingress everything that a system without a controller for Ingresses cannot read, and return the Ingress.

    The removed parts are annotations, paths that are regular expressions, canaries, the default backend, and paths that an
    earlier Ingress has, too. Rules without a host are also removed, except for Gateway API. Paths of type
    ImplementationSpecific become prefixes.

    Args:
        ingress: The Ingress, which is changed.
        notes: Receives a note for each part that is removed.
        gateway: Whether the Ingress will be converted to routes of Gateway API.
        served: (host, path, type) of each path of earlier Ingresses; the paths of this Ingress are added.

    """
    place, spec = f"Ingress {ingress['metadata']['name']}", ingress["spec"]
    dropped = [key.removeprefix(PREFIX) for key in ingress["metadata"].pop("annotations")]
    if dropped:
        notes.append(f"{place}: {', '.join(dropped)}: not in its routes; the migration table names counterparts")
    if spec.pop("defaultBackend", None):
        notes.append(f"{place}: its default backend is left out")
    for entry in spec.get("tls", []):
        entry["secretName"] = SECRET  # some of them take one certificate only
    for rule in spec.get("rules", []):
        if not gateway and not rule.get("host"):
            notes.append(f"{place}: its rule for every host is left out")
            rule.pop("http", None)
        for path in _list_paths({"rules": [rule]}):
            path["pathType"] = "Exact" if path["pathType"] == "Exact" else "Prefix"
            address = (str(rule.get("host")), path["path"], path["pathType"])
            pattern = bool({"use-regex", "rewrite-target"} & {*dropped} and _PATTERN.search(path["path"]))
            canary = "canary" in dropped
            if pattern or canary or address in served:
                why = "a regular expression" if pattern else "a canary" if canary else "another Ingress has it"
                notes.append(f"{place}: {path['path']} is left out: {why}")
                rule["http"]["paths"].remove(path)
            else:
                served.add(address)
    spec["rules"] = [rule for rule in spec.get("rules", []) if _list_paths({"rules": [rule]})]
    return ingress


def _make_routes(ingress: Mapping[str, Any], user: UserIngresses) -> Iterator[Object]:
    """Convert an Ingress to Gateway API: yield one HTTPRoute for each of its rules."""

    def refer(name: str, port: Mapping[str, Any]) -> Object:
        named = port.get("number") or port["name"]
        return {"name": name, "port": user.ports[name][named][0] if name in user.ports else named}

    for number, rule in enumerate(ingress["spec"]["rules"]):
        rules = [
            {
                "matches": [{"path": {"type": _KINDS[path["pathType"]], "value": path["path"]}}],
                "backendRefs": [refer(**path["backend"]["service"])],
            }
            for path in rule["http"]["paths"]
        ]
        spec = {
            "parentRefs": [{"name": "proxy"}],
            "hostnames": [rule["host"]] if rule.get("host") else [],
            "rules": rules,
        }
        name = ingress["metadata"]["name"] + (f"-{number}" if number else "")
        yield _make_object("gateway.networking.k8s.io/v1", "HTTPRoute", name, spec=spec)
