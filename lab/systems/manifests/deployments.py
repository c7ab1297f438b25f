"""The reader of a Deployment's manifest: it returns the Deployment's pods, and the way in which they are replaced.

Each field of the manifest is used, or explicitly ignored, or raises an error. The module does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from lab.base.errors import UsageError, refuse_if, refuse_unknown
from lab.base.quantities import parse_quantity
from lab.systems.manifests.fields import Fields, open_spec
from lab.systems.manifests.pods import Container, Pod, Probe, ProbeKind, Volume, VolumeMount
from lab.systems.manifests.replicas import Strategy, read_strategy

DEFAULT_ID = 101
"""The user and group id where `runAsUser` or `runAsGroup` is not given: that of the nginx images."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """A Deployment among a variant's manifests, with the template of its pods.

    Attributes:
        name: the name of the Deployment.
        template: a pod without a name. In its containers, references to the pod's own name and namespace are not resolved yet.
        replicas: the number of pods.
        strategy: the way in which the Deployment replaces its pods.

    """

    name: str
    template: Pod
    replicas: int
    strategy: Strategy

    def pod(self, number: int) -> Pod:
        """Return the Deployment's pod with a certain number (from 0), named `DEPLOYMENT-NUMBER`.

        Environment variables that refer to the pod's name or namespace get these values. In commands and arguments,
        `$(NAME)` is replaced by the value of the environment variable NAME.
        """
        name = f"{self.name}-{number}"
        references = {f"{_REF}metadata.name": name, f"{_REF}metadata.namespace": self.template.namespace}

        def fill(container: Container) -> Container:
            env = {key: references.get(value, value) for key, value in container.env.items()}
            command, args = (tuple(_expand(item, env) for item in part) for part in (container.command, container.args))
            return replace(container, env=env, args=args, command=command)

        init, containers = (tuple(map(fill, part)) for part in (self.template.init, self.template.containers))
        return replace(self.template, name=name, init=init, containers=containers)

    def pods(self) -> list[Pod]:
        """Return the pods of the Deployment, one for each replica, numbered from 0."""
        return [self.pod(number) for number in range(self.replicas)]


def read_deployment(place: str, raw: Mapping[str, Any], role_label: str) -> Deployment:
    """Read a Deployment from its manifest.

    Args:
        place: the Deployment, for error messages.
        raw: the manifest.
        role_label: the name of the pod label whose value is the role: `proxy`, `backend` or `balancer`.

    Raises:
        UsageError: for a field that the local target does not support, or a value that Kubernetes would not accept.

    """
    metadata = raw["metadata"]
    with open_spec(place, raw) as spec:
        spec.waive("revisionHistoryLimit", "progressDeadlineSeconds")
        replicas = spec.take("replicas", 1)
        with spec.inner("selector") as selector:
            selected = selector.take("matchLabels", dict[str, str]())
        strategy = read_strategy(spec)
        with spec.inner("template") as template, template.inner("metadata") as header, template.inner("spec") as body:
            header.waive("name", "creationTimestamp")
            annotations = header.take("annotations", dict[str, str]())
            labels = header.take("labels", dict[str, str]())
            if unlike := next((name for name, value in selected.items() if labels.get(name) != value), None):
                fault = f"selects pods with {unlike}={selected[unlike]}, and its own have {labels.get(unlike, 'none')}"
                raise UsageError(f"{place}: spec.selector.matchLabels", fault, "make selector and template agree")
            pod = _read_pod(place, str(metadata.get("namespace", "default")), labels, role_label, body)
            pod = replace(pod, shares_cpus=annotations.get(SHARES_CPUS) == "true")
    refuse_if(not 0 <= replicas <= 200, f"{place}: spec.replicas", f"expected 0 to 200, got {replicas}", "lower it")
    return Deployment(str(metadata["name"]), pod, replicas, strategy)


SHARES_CPUS = "lab/workers-share-cpus"
"""The annotation that allows a pod (`true`) more workers than CPUs, for variants that measure the cost of these workers."""
NODE = {"kubernetes.io/os": "linux"}
"""The labels of the single node."""
RESOURCES = ("cpu", "memory", "ephemeral-storage")
"""The resources that a container can have a limit of, besides huge pages and those with a domain in the name."""
_REF = "\0fieldRef:"


def _expand(text: str, env: Mapping[str, str]) -> str:
    for name, value in env.items():
        text = text.replace(f"$({name})", value)
    return text


def _read_pod(place: str, namespace: str, labels: Mapping[str, str], role_label: str, body: Fields) -> Pod:
    role = labels.get(role_label, "")
    fault = f"the pod template's label {role_label} is {role!r}"
    refuse_if(role not in ("proxy", "backend", "balancer"), place, fault, "expected proxy, backend or balancer")
    # scheduling, identity and API access: there is one node and no API server
    body.waive(
        "serviceAccountName", "automountServiceAccountToken", "dnsPolicy", "priorityClassName", "enableServiceLinks"
    )
    body.waive("affinity", "tolerations", "topologySpreadConstraints")
    for name, value in body.take("nodeSelector", dict[str, str]()).items():
        remedy = f"leave it out, or ask for {' or '.join(map('='.join, NODE.items()))}"
        body.refuse(NODE.get(name) != value, "nodeSelector", f"no node here has the label {name}={value}", remedy)
    with body.inner("securityContext") as security:
        security.waive("fsGroup", "runAsNonRoot")
        _waive_seccomp(security)
        sysctls: dict[str, str] = {}
        for item in security.each("sysctls"):
            name, remedy = item.need("name", ""), "only net.* can be set in a pod here"
            fits = re.fullmatch(r"net(\.[A-Za-z0-9_-]+)+", name)
            item.refuse(not fits, "name", f"{name!r} is the node's, not a pod's", remedy)
            sysctls[name] = item.need("value", "")
        uid, gid = security.take("runAsUser", DEFAULT_ID), security.take("runAsGroup", DEFAULT_ID)
    policy = body.take("restartPolicy", "Always")
    body.refuse(policy != "Always", "restartPolicy", f"a Deployment's pods restart always, got {policy!r}", "remove it")
    volumes = {volume.name: volume for volume in map(_read_volume, body.each("volumes"))}
    init, containers = (
        tuple(_read_container(item, uid, gid, volumes) for item in body.each(kind))
        for kind in ("initContainers", "containers")
    )
    body.refuse(not containers, "", "'containers' is empty", "name at least one")
    host_network = body.take("hostNetwork", False)
    if host_network:
        for name in sysctls:
            fault = f"a kubelet refuses pod sysctls ({name}) with hostNetwork: they would be the node's"
            body.refuse(name, "hostNetwork", fault, "leave one of the two out")
        for item in init + containers:
            fault = f"the privileged container {item.name} would write to the node's own network"
            body.refuse(item.privileged, "hostNetwork", fault, "leave one of the two out")
    names = [item.name for item in init + containers]
    for name in names:
        body.refuse(names.count(name) > 1, "", f"two containers are called {name!r}", "rename one")
    return Pod(
        "",
        namespace,
        place,
        role,
        labels,
        sysctls,
        body.take("terminationGracePeriodSeconds", 30),
        volumes,
        init,
        containers,
        host_network,
    )


def _read_volume(fields: Fields) -> Volume:
    name = fields.need("name", "")
    kinds: tuple[tuple[str, Literal["ConfigMap", "Secret"], str], ...]
    kinds = (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName"))
    for field, kind, name_field in kinds:
        if fields.has(field):
            with fields.inner(field) as source:
                source.waive("defaultMode")
                items = {item.need("key", ""): item.need("path", "") for item in source.each("items", "key")}
                return Volume(name, (kind, source.need(name_field, "")), items)
    with fields.inner("emptyDir") as empty:
        medium, size = empty.take("medium", ""), empty.take("sizeLimit", "")
        fault = f"expected Memory or nothing, got {medium!r}"
        empty.refuse(medium not in ("", "Memory"), "medium", fault, "correct it")
        fault = "the local target limits volumes in memory only"
        empty.refuse(size and not medium, "sizeLimit", fault, "leave it out, or ask for medium: Memory")
        try:
            parse_quantity(size or "0")
        except ValueError as error:
            raise UsageError(empty.at("sizeLimit"), str(error), "such as 260Mi") from None
        return Volume(name, size=size, memory=medium == "Memory")


def _read_container(fields: Fields, uid: int, gid: int, volumes: Mapping[str, Volume]) -> Container:
    with (
        fields.inner("securityContext") as security,
        fields.inner("resources") as resources,
        fields.inner("lifecycle") as life,
    ):
        fields.waive("imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy")
        # every container here runs without capabilities and cannot gain any, unless it is privileged
        security.waive("allowPrivilegeEscalation", "capabilities", "runAsNonRoot", "readOnlyRootFilesystem")
        _waive_seccomp(security)
        _read_resources(resources, "requests")  # there is one node, which reserves nothing
        ports: dict[str, int] = {}
        host_ports: dict[int, int] = {}
        for item in fields.each("ports"):
            item.waive("protocol")
            number = item.need("containerPort", 0)
            ports[item.take("name", str(number))] = number
            if host_port := item.take("hostPort", 0):
                host_ports[number] = host_port
        with life.inner("preStop") as hook, hook.inner("exec") as action:
            pre_stop = _read_texts(action, "command")
        return Container(
            name=fields.need("name", ""),
            place=fields.place,
            image=fields.need("image", ""),
            command=_read_texts(fields, "command"),
            args=_read_texts(fields, "args"),
            env=dict(_read_variable(item) for item in fields.each("env")),
            mounts=tuple(_read_mount(item, volumes) for item in fields.each("volumeMounts")),
            ports=ports,
            host_ports=host_ports,
            limits=_read_resources(resources, "limits"),
            privileged=security.take("privileged", False),
            uid=security.take("runAsUser", uid),
            gid=security.take("runAsGroup", gid),
            pre_stop=pre_stop,
            startup=_read_probe(fields, "startupProbe", ports),
            readiness=_read_probe(fields, "readinessProbe", ports),
            liveness=_read_probe(fields, "livenessProbe", ports),
        )


def _read_resources(resources: Fields, kind: str) -> dict[str, str]:
    """Read the requests or limits of a container: resource (such as `cpu`) → amount.

    Args:
        resources: the fields of the container's `resources`.
        kind: `requests` or `limits`.

    Raises:
        UsageError: for a resource that Kubernetes does not define; names with a domain (`example.com/gpu`) are always allowed.

    """
    amounts = {str(name): str(value) for name, value in resources.take(kind, dict[str, Any]()).items()}
    for name in amounts:
        if "/" not in name and not name.startswith("hugepages-"):
            refuse_unknown(name, RESOURCES, f"{resources.place}.{kind}", f"there is no resource {name!r}")
    return amounts


def _waive_seccomp(security: Fields) -> None:
    """Accept a container's or pod's seccomp profile without applying it, since the lab's processes run without such a profile.

    Args:
        security: the fields of the `securityContext`.

    Raises:
        UsageError: for a type of profile that Kubernetes does not define.

    """
    if security.has("seccompProfile"):
        with security.inner("seccompProfile") as profile:
            profile.choice("type", ("RuntimeDefault", "Unconfined", "Localhost"))
            profile.waive("localhostProfile")


def _read_mount(fields: Fields, volumes: Mapping[str, Volume]) -> VolumeMount:
    name = fields.need("name", "")
    refuse_unknown(name, volumes, fields.place, f"there is no volume {name!r}")
    path = fields.need("mountPath", "").rstrip("/")
    wrong = not path.startswith("/") or "/.." in path
    fields.refuse(wrong, "mountPath", f"expected an absolute path, got {path!r}", "such as /srv/conf")
    return VolumeMount(name, path, fields.take("subPath", ""), fields.take("readOnly", False))


def _read_variable(fields: Fields) -> tuple[str, str]:
    name = fields.need("name", "")
    if not fields.has("valueFrom"):
        return name, fields.take("value", "")
    with fields.inner("valueFrom") as source, source.inner("fieldRef") as reference:
        reference.waive("apiVersion")
        paths = ("metadata.name", "metadata.namespace")
        return name, _REF + reference.choice("fieldPath", paths, remedy="give the value itself")


def _read_texts(fields: Fields, name: str) -> tuple[str, ...]:
    return tuple(map(str, fields.take(name, list[Any]())))


def _read_probe(fields: Fields, name: str, ports: Mapping[str, int]) -> Probe | None:
    if not fields.has(name):
        return None
    with fields.inner(name) as probe:
        kinds: list[ProbeKind] = [kind for kind in _KINDS if probe.has(kind)]
        fault = f"expected one of {', '.join(_KINDS)}, got {kinds or 'none'}"
        probe.refuse(len(kinds) != 1, "", fault, "keep one")
        (kind,) = kinds
        with probe.inner(kind) as handler:
            port, path, headers, command = (
                0,
                "",
                dict[str, str](),
                _read_texts(handler, "command") if kind == "exec" else (),
            )
            if kind != "exec":
                port_text = str(handler.any("port"))
                if not port_text.isdigit():
                    refuse_unknown(port_text, ports, handler.at("port"), f"no container port is called {port_text!r}")
                port = int(port_text) if port_text.isdigit() else ports[port_text]
            if kind == "httpGet":
                path, scheme = handler.take("path", "/"), handler.take("scheme", "HTTP")
                fault = f"the local target probes HTTP only, got {scheme!r}"
                handler.refuse(scheme != "HTTP", "scheme", fault, "use HTTP")
                headers = {item.need("name", ""): item.need("value", "") for item in handler.each("httpHeaders")}
        numbers = {key: probe.take(key, default) for key, default in _DEFAULTS.items()}
        for key, value in numbers.items():
            low = value < (0 if key == "initialDelaySeconds" else 1)
            probe.refuse(low, key, f"expected a positive integer, got {value}", "correct it")
        grace = probe.take("terminationGracePeriodSeconds", -1)
    return Probe(kind, port, path, headers, command, *numbers.values(), grace_s=None if grace < 0 else grace)


_KINDS: tuple[ProbeKind, ...] = ("httpGet", "tcpSocket", "exec")
_DEFAULTS = {
    "initialDelaySeconds": 0,
    "periodSeconds": 10,
    "timeoutSeconds": 1,
    "successThreshold": 1,
    "failureThreshold": 3,
}
"""The defaults of Kubernetes for the numbers of a probe."""
