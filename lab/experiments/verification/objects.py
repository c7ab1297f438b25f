"""The manifests of a verification: a system of the lab with the user's Ingresses and ConfigMap, in front of the recording backend.

Every Service that an Ingress names becomes a port of one backend (`echo`), so that a record shows which Service a request reached. All
namespaces become the lab's, and every Secret is made anew with the lab's certificates and passwords. Whatever of an Ingress cannot be
realised is left out and named: by `read_ingresses` for every system, and by `SystemManifests` for one.

    Ingress shop/web: host shop.example, path /api → Service api:80
      →  ingress-nginx, Traefik, Contour on apiserver: the Ingress itself, as shop-web
      →  systems that read Ingresses on local: the same without ingress-nginx's annotations
      →  Gateway API: HTTPRoute shop-web-0, hostnames [shop.example], PathPrefix /api
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

from lab.analysis.verification.requests import (
    CATALOGUE_HOST,
    PASSWORD,
    TLS_HOST,
    USER,
    RoutedPath,
    annotations_of,
)
from lab.systems.manifests import certificates
from lab.systems.manifests.routes import PREFIX

NAMESPACE = "ingress-lab"
CONTROL_PORT, CATALOGUE_PORT, FIRST_PORT = 8079, 8080, 9001
"""The backend's ports: of the lab, of the catalogue's route, and of the first Service of the user."""
SECRET = "verify-certificate"
"""The Secret with the certificate of all hosts, for systems that take one only."""
ECHO = Path(__file__).with_name("echo.py")
_LIMITS = ("limit-rps", "limit-rpm", "limit-connections", "limit-rate", "limit-rate-after", "global-rate-limit")
_REMOVED: Mapping[str, str] = {
    **dict.fromkeys(_LIMITS, "removed: the requests of a verification would exceed it"),
    "mirror-target": "removed: copies arrive at any time",
    "auth-proxy-set-headers": "removed: it names a ConfigMap of the cluster",
    "fastcgi-params-configmap": "removed: it names a ConfigMap of the cluster",
    "proxy-ssl-secret": "removed: the backend of the lab has another authority",
}
"""Annotations that are realised on no system → what happens to them; a name also stands for longer ones."""
_PROTOCOLS = ("HTTP", "HTTPS", "")
_HERE = "BACKEND"
"""The text in an annotation that the backend's address replaces."""
_PATH_KINDS = ("Exact", "Prefix", "ImplementationSpecific")
_NAME = re.compile(r"[^a-z0-9-]+")
_CONFIG_MAPS = ("add-headers", "proxy-set-headers")
_REMOVED_KEYS: Mapping[str, str] = {
    "use-proxy-protocol": "removed: the client of a verification speaks HTTP without it",
    "ssl-dh-param": "removed: it names a Secret of the cluster",
}


ServicePorts = dict[int | str, tuple[int, int, bool]]


@dataclass(slots=True)
class UserIngresses:
    """The Ingresses of a user's files, as every system of a verification gets them.

    Attributes:
        ingresses: The Ingresses, in the lab's namespace and with its Services and Secrets.
        extras: The Secrets and ConfigMaps that they need.
        paths: The paths of the Ingresses.
        services: The Service of each port of the backend, as `name:port`; those of a canary by weight share a name.
        ports: The ports of each Service by number or name → its number, the port of the backend, and whether that speaks TLS.
        notes: What is not realised on any system.

    """

    ingresses: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    extras: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    paths: list[RoutedPath] = field(default_factory=list[RoutedPath])
    services: dict[int, str] = field(default_factory=lambda: {CATALOGUE_PORT: "lab:8080"})
    ports: dict[str, ServicePorts] = field(default_factory=dict[str, "ServicePorts"])
    notes: list[str] = field(default_factory=list[str])

    @property
    def tls_hosts(self) -> list[str]:
        """The hosts with a certificate, the catalogue's first."""
        return list(dict.fromkeys([TLS_HOST, *(path.host for path in self.paths if path.tls and path.host)]))


def read_ingresses(texts: Sequence[tuple[str, str]]) -> UserIngresses:
    """Return the Ingresses of these texts (place, YAML) for a verification; a text that is no YAML has none."""
    user = UserIngresses()
    taken = set[str]()
    for place, text in texts:
        try:
            documents = list(yaml.load_all(text, Loader=yaml.CSafeLoader))
        except yaml.YAMLError:
            continue  # a ConfigMap in another form, such as a page of Markdown, which the plan has read
        for raw in (item for document in documents for item in _flatten(document)):
            if raw.get("kind") == "Ingress":
                _add_ingress(user, place, _modernise(raw), taken)
    secrets = {secret for obj in user.ingresses for secret in _list_secrets(obj)}
    user.extras += [_make_tls_secret(name, user.tls_hosts) for name in sorted(secrets)]
    return user


def _flatten(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        items = document.get("items")
        if isinstance(items, list):
            for item in items:
                kind = str(document.get("kind", "")).removesuffix("List")
                yield from _flatten({"kind": kind, **item} if isinstance(item, dict) else None)
        else:
            yield document


def _modernise(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an Ingress in the form of networking.k8s.io/v1; that of v1beta1 names its backend by serviceName."""
    obj = deepcopy(dict(raw))
    spec = obj.setdefault("spec", {}) or {}
    obj["spec"] = spec
    if "backend" in spec:
        spec["defaultBackend"] = spec.pop("backend")
    holders = [spec["defaultBackend"]] if spec.get("defaultBackend") else []
    for path in _list_paths(spec):
        path.setdefault("pathType", "ImplementationSpecific")
        path.setdefault("path", "/")
        holders.append(path.get("backend") or {})
    for backend in holders:
        if "serviceName" in backend:
            port = backend.pop("servicePort", 80)
            ref = {"number": int(port)} if str(port).isdigit() else {"name": port}
            backend["service"] = {"name": backend.pop("serviceName"), "port": ref}
    return obj


def _list_paths(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [path for rule in spec.get("rules") or [] for path in (rule.get("http") or {}).get("paths") or []]


def _name(*parts: str) -> str:
    """Return the name of an object of the lab for one of the user's; a long one ends in a hash."""
    text = _NAME.sub("-", "-".join(filter(None, parts)).lower()).strip("-") or "x"
    return text if len(text) <= 50 else f"{text[:40].strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _add_ingress(user: UserIngresses, place: str, raw: dict[str, Any], taken: set[str]) -> None:
    """Add an Ingress in the lab's namespace, or a note why it is left out."""
    metadata, spec = raw.get("metadata") or {}, raw["spec"]
    space = str(metadata.get("namespace") or "")
    shown = "/".join(filter(None, (space, str(metadata.get("name", "")))))
    where = f"{place}: Ingress {shown}"
    notes = annotations_of(raw)
    protocol = notes.get("backend-protocol", "HTTP").upper()
    fault = f"backend-protocol {protocol}: the backend of a verification speaks HTTP" * (protocol not in _PROTOCOLS)
    for path in _list_paths(spec):
        backend, kind = path.get("backend") or {}, path["pathType"]
        named = (backend.get("service") or {}).get("port") or {}
        if not (backend.get("service") or {}).get("name") or not (named.get("number") or named.get("name")):
            fault = f"{path['path']}: its backend is no port of a Service"
        elif kind not in _PATH_KINDS or not str(path["path"]).startswith("/"):
            fault = f"{path['path']}: the API server refuses a path of type {kind} like this"
    if fault or not (_list_paths(spec) or spec.get("defaultBackend")):
        user.notes.append(f"{where}: left out: {fault or 'it has no path'}")
        return
    name = _name(space, str(metadata.get("name", "")))
    name = next(text for text in (name, *(f"{name}-{number}" for number in range(2, 10_000))) if text not in taken)
    taken.add(name)
    for annotation in [item for item in notes if item.startswith(tuple(_REMOVED))]:
        reason = next(reason for begin, reason in _REMOVED.items() if annotation.startswith(begin))
        user.notes.append(f"{where}: {annotation}: {reason}")
        notes.pop(annotation)
    _realise_authentication(user, name, notes)
    weight = notes.get("canary-weight", "0")
    random = notes.get("canary") == "true" and weight.isdigit() and 0 < int(weight) < int(notes.get("canary-weight-total", "100"))
    if random:
        user.notes.append(f"{where}: canary-weight {weight}: which of its Services answers is random, and not compared")
    if notes.get("default-backend"):
        notes["default-backend"] = _add_service(user, _name(space, notes["default-backend"]), 80, False)
    for backend in filter(None, [spec.get("defaultBackend"), *(path["backend"] for path in _list_paths(spec))]):
        service = backend.get("service")
        if not service:
            continue
        port = service["port"].get("number") or service["port"].get("name")
        service["name"] = _add_service(user, _name(space, service["name"]), port, protocol == "HTTPS", random)
    tls = [{**entry, "secretName": _name(space, entry.get("secretName") or f"{name}-tls")} for entry in spec.get("tls") or []]
    body = {key: spec[key] for key in ("defaultBackend", "rules") if spec.get(key)}
    annotations = {f"{PREFIX}{key}": value for key, value in notes.items()}
    user.ingresses.append(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"ingressClassName": NAMESPACE, **body, **({"tls": tls} if tls else {})},
        }
    )
    covered = {host for entry in tls for host in entry.get("hosts") or []}
    for rule in spec.get("rules") or []:
        host = str(rule.get("host") or "")
        secured = host in covered or any(item.startswith("*.") and host.partition(".")[2] == item[2:] for item in covered)
        for path in (rule.get("http") or {}).get("paths") or []:
            user.paths.append(RoutedPath(shown, host, str(path["path"]), path["pathType"], secured, notes))


def _realise_authentication(user: UserIngresses, name: str, notes: dict[str, str]) -> None:
    """Put the lab's Secrets and authentication service in the place of those that an Ingress names."""
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


def _add_service(user: UserIngresses, service: str, port: int | str, tls: bool, random: bool = False) -> str:
    """Give a Service's port a port of the backend, and return the Service's name."""
    ports = user.ports.setdefault(service, {})
    if port not in ports:
        number = FIRST_PORT + len(user.services) - 1
        ports[port] = (port if isinstance(port, int) else number, number, tls)
        user.services[number] = f"{service}:{port}"
    if random:
        user.services = {number: "a Service or its canary" for number in user.services}
    return service


def _list_secrets(ingress: Mapping[str, Any]) -> list[str]:
    return [entry["secretName"] for entry in ingress["spec"].get("tls") or []]


def _make_object(version: str, kind: str, name: str, **body: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def _make_tls_secret(name: str, hosts: Sequence[str]) -> dict[str, Any]:
    """Return a Secret with the certificate of all hosts, which is the same in every Secret."""
    secret = _make_object("v1", "Secret", name, type="kubernetes.io/tls", data={"tls.crt": "", "tls.key": ""})
    secret["metadata"]["annotations"] = {certificates.NAMES: ",".join(hosts), certificates.KEY: certificates.DEFAULT_KEY}
    files = certificates.issue(certificates.CertificateRequest(tuple(hosts), certificates.DEFAULT_KEY))
    secret["data"] = {key: base64.b64encode(files[key].encode()).decode() for key in ("tls.crt", "tls.key", "ca.crt")}
    return secret


def realise_configmap(
    given: Mapping[str, str], objects: Mapping[tuple[str, str], Mapping[str, str]]
) -> tuple[dict[str, str], list[dict[str, Any]], list[str]]:
    """Return the ConfigMap of ingress-nginx for a verification, the ConfigMaps that it names, and notes on what is left out.

    Args:
        given: The keys and values of the user's ConfigMap.
        objects: The content of the other objects in the user's file, by kind and name.

    """
    data, extras, notes = dict[str, str](), list[dict[str, Any]](), list[str]()
    for key, text in given.items():
        if key in _REMOVED_KEYS:
            notes.append(f"{key}: {_REMOVED_KEYS[key]}")
        elif key not in _CONFIG_MAPS or not text:
            data[key] = text
        elif (content := objects.get(("ConfigMap", text.rpartition("/")[2]))) is None:
            notes.append(f"{key}: removed: the file does not have the ConfigMap {text}")
        else:
            data[key] = f"{NAMESPACE}/verify-{key}"
            extras.append(_make_object("v1", "ConfigMap", f"verify-{key}", data=dict(content)))
    return data, extras, notes


# -- the manifests of one system -----------------------------------------------------------------------------------


@dataclass(slots=True)
class SystemManifests:
    """The manifests of one system with the user's routes.

    Attributes:
        manifests: The manifests.
        notes: What of the user's Ingresses the system does not get.

    """

    manifests: list[dict[str, Any]]
    notes: list[str]


def make_manifests(
    rendered: Sequence[Mapping[str, Any]],
    user: UserIngresses,
    reads_all: bool,
    backend: str,
    config: Mapping[str, str] | None = None,
    extras: Sequence[dict[str, Any]] = (),
) -> SystemManifests:
    """Return a system's manifests with the recording backend and the user's routes in place of the lab's.

    Args:
        rendered: The manifests of the system, with the lab's backend and route.
        user: The user's Ingresses.
        reads_all: Whether a real controller reads the Ingresses as they are, with annotations and any path type.
        backend: The address of the backend, which is also the authentication service.
        config: The data of ingress-nginx's ConfigMap; None for another system.
        extras: Further objects.

    """
    objects = [deepcopy(dict(obj)) for obj in rendered if obj["kind"] not in ("Ingress", "HTTPRoute")]
    notes = list[str]()
    gateway = any(obj["kind"] == "Gateway" for obj in objects)
    ingresses = [_make_ingress("bench", CATALOGUE_HOST), _make_ingress("bench-tls", TLS_HOST, SECRET)]
    for item in deepcopy(user.ingresses):
        given = item["metadata"]["annotations"]
        given |= {key: text.replace(_HERE, backend) for key, text in given.items()}
        ingresses.append(item if reads_all else _reduce(item, notes, gateway))
    routes = [route for item in ingresses for route in _make_routes(item, user.ports)] if gateway else ingresses
    for obj in objects:
        match obj["kind"], obj["metadata"]["name"]:
            case "Deployment", "backend":
                _record(obj, user)
            case "ConfigMap", "backend":
                obj["data"] = {"echo.py": ECHO.read_text(), **_make_backend_pair(user)}
            case "ConfigMap", "ingress-nginx-controller" if config is not None:
                obj["data"] = {**(obj.get("data") or {}), **config}
            case "Gateway", _:
                obj["spec"]["listeners"] = [
                    {"name": "http", "port": 80, "protocol": "HTTP"},
                    {"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": SECRET}]}},
                ]
            case "Service", "proxy":
                _open_https(obj["spec"]["ports"], {"name": "https", "port": 443, "targetPort": "https"})
            case "Deployment", "proxy":
                container = obj["spec"]["template"]["spec"]["containers"][0]
                _open_https(container["ports"], {"name": "https", "containerPort": 443})
                _serve_tls(container)
            case _:
                pass
    secrets = [] if gateway else user.extras
    return SystemManifests(
        [*objects, *_make_services(user), _make_tls_secret(SECRET, user.tls_hosts), *secrets, *extras, *routes], notes
    )


def _open_https(ports: list[dict[str, Any]], port: dict[str, Any]) -> None:
    if all(item.get("name") != "https" for item in ports):
        ports.append(port)


def _serve_tls(container: dict[str, Any]) -> None:
    """Give Traefik an entry point with TLS; as a controller of Ingresses it is to serve every route there, too."""
    arguments: list[str] = container.get("args") or []
    if "--entrypoints.web.address=:80" not in arguments or any("websecure.address" in text for text in arguments):
        return
    arguments.append("--entrypoints.websecure.address=:443")
    if "--entrypoints.web.asdefault=true" in arguments:
        arguments += ["--entrypoints.websecure.asdefault=true", "--entrypoints.websecure.http.tls=true"]


def _record(deployment: dict[str, Any], user: UserIngresses) -> None:
    """Let the backend's pod run the recording program instead of nginx."""
    spec = deployment["spec"]["template"]["spec"]
    spec.pop("initContainers", None)
    container = spec["containers"][0]
    secured = {target for ports in user.ports.values() for _, target, tls in ports.values() if tls}
    ports = [f"{number}{'s' if number in secured else ''}" for number in user.services]
    container["image"] = "docker.io/library/python:3.13"
    container["command"] = ["python3", "-I", "/srv/conf/echo.py", str(CONTROL_PORT), *ports]
    container["readinessProbe"]["httpGet"] = {"path": "/healthz", "port": CONTROL_PORT}


def _make_backend_pair(user: UserIngresses) -> dict[str, str]:
    """Return the certificate of the recording backend, where a Service speaks TLS."""
    if not any(tls for ports in user.ports.values() for _, _, tls in ports.values()):
        return {}
    pair = certificates.issue(certificates.CertificateRequest(("backend.lab.test",), certificates.DEFAULT_KEY))
    return {name: pair[name] for name in ("tls.crt", "tls.key")}


def _make_services(user: UserIngresses) -> Iterator[dict[str, Any]]:
    for name, ports in user.ports.items():
        listed = [
            {"name": port if isinstance(port, str) else f"p{port}", "port": number, "targetPort": target}
            for port, (number, target, _) in ports.items()
        ]
        yield _make_object("v1", "Service", name, spec={"selector": {"lab/role": "backend"}, "ports": listed})


def _make_ingress(name: str, host: str, secret: str = "") -> dict[str, Any]:
    """Return the Ingress of a host of the catalogue."""
    backend = {"service": {"name": "backend", "port": {"number": CATALOGUE_PORT}}}
    rule = {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    tls = {"tls": [{"hosts": [host], "secretName": secret}]} if secret else {}
    spec = {"ingressClassName": NAMESPACE, "rules": [rule], **tls}
    return _make_object("networking.k8s.io/v1", "Ingress", name, spec=spec)


def _reduce(ingress: dict[str, Any], notes: list[str], gateway: bool) -> dict[str, Any]:
    """Return an Ingress as systems without a controller read it, and add notes on what is left out.

    These are ingress-nginx's annotations, paths of type ImplementationSpecific, which become prefixes, rules without a host, and the
    default backend.
    """
    name, spec = ingress["metadata"]["name"], ingress["spec"]
    annotations = ingress["metadata"].pop("annotations", {})
    dropped = [key.removeprefix(PREFIX) for key in annotations]
    if dropped:
        notes.append(f"Ingress {name}: {', '.join(dropped)}: not in its routes; the migration table names counterparts")
    if spec.pop("defaultBackend", None):
        notes.append(f"Ingress {name}: its default backend is left out")
    rules = [rule for rule in spec.get("rules") or [] if gateway or rule.get("host")]
    if len(rules) < len(spec.get("rules") or []):
        notes.append(f"Ingress {name}: its rule for every host is left out")
    pattern = bool({"use-regex", "rewrite-target"} & {*dropped})
    for rule in rules:
        paths = (rule.get("http") or {}).get("paths") or []
        for path in [*paths]:
            if pattern and re.search(r"[][(){}|*+?^$\\]", path["path"]):
                notes.append(f"Ingress {name}: {path['path']} is left out: a regular expression")
                paths.remove(path)
            elif path["pathType"] == "ImplementationSpecific":
                path["pathType"] = "Prefix"
    spec["rules"] = [rule for rule in rules if (rule.get("http") or {}).get("paths")]
    return ingress


def _make_routes(ingress: Mapping[str, Any], ports: Mapping[str, ServicePorts]) -> Iterator[dict[str, Any]]:
    """Yield the HTTPRoute of each rule of an Ingress, whose Services have these ports."""

    def refer(service: Mapping[str, Any]) -> dict[str, Any]:
        port = service["port"].get("number") or service["port"]["name"]
        return {"name": service["name"], "port": ports[service["name"]][port][0] if service["name"] in ports else port}

    kinds = {"Exact": "Exact", "Prefix": "PathPrefix"}
    for number, rule in enumerate(ingress["spec"]["rules"]):
        rules = [
            {
                "matches": [{"path": {"type": kinds[path["pathType"]], "value": path["path"]}}],
                "backendRefs": [refer(path["backend"]["service"])],
            }
            for path in rule["http"]["paths"]
        ]
        hosts = {"hostnames": [rule["host"]]} if rule.get("host") else {}
        spec = {"parentRefs": [{"name": "proxy"}], **hosts, "rules": rules}
        name = ingress["metadata"]["name"] + (f"-{number}" if number else "")
        yield _make_object("gateway.networking.k8s.io/v1", "HTTPRoute", name, spec=spec)
