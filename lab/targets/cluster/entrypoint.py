"""Where clients reach a role's pods: the address, the port, and in words what lies in between; and a TCP connection to it as from the
generator's pod.

    hostNetwork                        the node's address, the container's port: nothing in between
    type LoadBalancer, type NodePort   a node's address, the node port: kube-proxy's NAT there, and no balancer in front of it
    any other Service                  its cluster IP (kube-proxy's NAT on the client's node); a headless one: the pod itself
    where pods may change              the cluster IP in any case: a node's address ends with its pod

Refuses to choose a node without such a pod: under externalTrafficPolicy Local it would answer nothing, under Cluster another node would be one hop
more. Connections go by the API server's port-forward to the pod's SOCKS server, which connects and resolves, all in this process. One websocket
carries one connection, moved between it and a socket pair by a thread: the caller gets a real socket, which TLS needs. (The library's own
port-forward (35.0) connects without a timeout, changes its API client meanwhile, and carries 12 MB/s where this carries 96.) The end of a
connection is told a second late, so an answer should say how long it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.base.errors import MeasuringError, UsageError
from lab.model.endpoint import Role
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import CLIENT_NAMESPACE, CLIENT_POD, Api
from lab.targets.cluster.objects import pod_labels, pod_spec
from lab.targets.cluster.objects import role as role_of
from lab.targets.cluster.pods import ready

DATA = 0
"""Channel of a forwarded port's bytes, beside that of its errors: the first byte of every frame."""
CLOSING = 8
"""Opcode of a frame that ends a websocket (RFC 6455)."""
STUCK_S = 60.0
"""A frame that is only partly there, or that the other side does not take, for so long: the connection is given up."""
_REFUSALS = {
    1: errno.EHOSTUNREACH, 2: errno.EPERM, 3: errno.ENETUNREACH, 4: errno.EHOSTUNREACH,
    5: errno.ECONNREFUSED, 6: errno.ETIMEDOUT, 7: errno.EOPNOTSUPP, 8: errno.EAFNOSUPPORT,
}  # fmt: skip
"""SOCKS5's replies (RFC 1928) as this machine's own errors."""
Object = Mapping[str, Any]


def connect(api: Api, address: tuple[str, int], timeout_s: float) -> socket.socket:
    """A connection to (host or address, port) from the generator's pod, with this timeout. Raises OSError."""
    try:
        websocket = _open(api, timeout_s)
    except OSError:
        raise
    except Exception as error:  # websocket-client's own kinds, for a handshake that was refused
        words = " ".join(str(error).split())[:300]
        raise OSError(f"port-forward to pod {CLIENT_NAMESPACE}/{CLIENT_POD}: {words}") from error
    ours, theirs = socket.socketpair()
    ours.settimeout(timeout_s)
    theirs.settimeout(STUCK_S)
    websocket.settimeout(STUCK_S)
    threading.Thread(target=_pump, args=(websocket, theirs), name="tunnel", daemon=True).start()
    try:
        _ask_socks(ours, *address)
    except BaseException:
        ours.close()
        raise
    return ours


def _open(api: Api, timeout_s: float) -> Any:
    """The websocket, by the credentials and through the proxy of the API's own client; the library's way has no timeout."""
    import certifi
    import websocket
    from kubernetes.stream import ws_client  # takes a second: see lab.targets.cluster.connection

    client = api.client
    known = client.configuration
    headers: dict[str, str] = {}
    client.update_params_for_auth(headers, [], ["BearerToken"])
    trust: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE}
    if known.verify_ssl:
        trust = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": known.ssl_ca_cert or certifi.where()}
    named = {"certfile": known.cert_file, "keyfile": known.key_file, "server_hostname": known.tls_server_name}
    trust |= {name: value for name, value in named.items() if value}
    path = f"{known.host}/api/v1/namespaces/{CLIENT_NAMESPACE}/pods/{CLIENT_POD}/portforward"
    url = str(ws_client.get_websocket_url(path, [("ports", 1080)]))
    options: dict[str, Any] = {"header": [f"{name}: {value}" for name, value in headers.items()]}
    if known.proxy:
        options = ws_client.websocket_proxycare(options, known, url, headers)
    return websocket.create_connection(
        url, timeout=timeout_s, sslopt=trust, subprotocols=["v4.channel.k8s.io"], enable_multithread=False, **options
    )


def _pump(websocket: Any, local: socket.socket) -> None:
    """Move bytes until one side ends, then end the other."""
    opened: set[int] = set()
    remote = websocket.sock
    with local, contextlib.suppress(Exception):  # whatever ends it, the caller sees the end of its socket
        try:
            while True:
                buffered = isinstance(remote, ssl.SSLSocket) and remote.pending() > 0
                readable = [remote] if buffered else select.select([remote, local], [], [])[0]
                if remote in readable:
                    _, frame = websocket.recv_data_frame(control_frame=True)
                    channel = frame.data[0] if frame.data else DATA
                    if frame.opcode == CLOSING or (channel != DATA and channel in opened):
                        break  # its end, or that the connection could not be made, or broke
                    if frame.data and channel in opened:
                        local.sendall(frame.data[1:])
                    elif frame.data:  # the first frame of a channel names the port
                        opened.add(channel)
                if local in readable:
                    content = local.recv(1 << 16)
                    if not content:
                        break
                    websocket.send_binary(bytes((DATA,)) + content)
        finally:
            websocket.shutdown()


def _ask_socks(connection: socket.socket, host: str, port: int) -> None:
    """RFC 1928, without a password; the server resolves the name."""
    name = host.encode("idna")
    _exactly(connection, b"\x05\x01\x00", 2)
    reply = _exactly(connection, b"\x05\x01\x00\x03" + bytes((len(name),)) + name + struct.pack("!H", port), 5)
    # What it is bound to, and the port: of no use, but in the way.
    _exactly(connection, b"", {1: 4 + 2 - 1, 3: reply[4] + 2, 4: 16 + 2 - 1}[reply[3]])
    if reply[1]:
        number = _REFUSALS.get(reply[1], errno.EIO)
        words = "no such name, or no way to it" if reply[1] == 1 else os.strerror(number)
        raise OSError(number, f"{host}:{port} from the generator's pod: {words}")


def _exactly(connection: socket.socket, said: bytes, size: int) -> bytes:
    """Send, if there is something to say, then read so many bytes."""
    if said:
        connection.sendall(said)  # of nothing, too, it would ask whether the other end is there
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "the port-forward to the generator's pod ended")
        got += part
    return got


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """`words` is never empty: on a cluster something is said of every way in."""

    host: str
    port: int
    words: str


def entrypoint(
    api: Api, objects: Sequence[Object], role: Role, port: str = "http", lasting: bool = False, by: str | None = None
) -> Entrypoint:
    """The Service's port of that name, or its first if it has none so called. `lasting`: by an address that no pod's end changes.
    `by`: the Deployment that is meant, where the role has several.

    UsageError when no Service selects the role's pods; MeasuringError when the cluster does not show what it should.
    """
    workload, service, wanted = _served(objects, role, port, by)
    spec = pod_spec(workload)
    if spec.get("hostNetwork") and not lasting:
        node = _first(api, workload, role, by)["status"]["hostIP"]
        return Entrypoint(node, _container_port(workload, wanted), f"to node {node}, whose own ports the pod's are")
    live = api.get("v1", "Service", service["metadata"]["name"], workload["metadata"]["namespace"])
    if live is None:
        raise MeasuringError(_place(service), "is not there", "somebody removed it; start again")
    if live["spec"].get("type") in ("LoadBalancer", "NodePort") and not lasting:
        node = _first(api, workload, role, by)["status"]["hostIP"]
        number = next((item.get("nodePort") for item in live["spec"]["ports"] if item["port"] == wanted["port"]), None)
        if not number:
            remedy = "leave out allocateLoadBalancerNodePorts: false: the node port is the way in"
            raise MeasuringError(_place(service), f"port {wanted['port']} has no node port", remedy)
        source = "the client's address kept" if live["spec"].get("externalTrafficPolicy") == "Local" else "masquerade"
        balancer = ", no balancer in front" if live["spec"]["type"] == "LoadBalancer" else ""
        words = (
            f"through node {node} port {number} (NAT of a Service of type {live['spec']['type']}{balancer}, {source})"
        )
        return Entrypoint(node, int(number), words)
    address = live["spec"].get("clusterIP")
    if address in (None, "", "None"):
        if lasting:
            fault = "is headless: it has no address that stays when its pods change"
            raise UsageError(_place(service), fault, "a Service with a cluster IP")
        pod_ip = _first(api, workload, role, by)["status"]["podIP"]
        return Entrypoint(pod_ip, _container_port(workload, wanted), "to the pod itself (a headless Service)")
    words = "through the Service's cluster IP (kube-proxy's NAT on the client's node)"
    if lasting and (spec.get("hostNetwork") or any(item.get("hostPort") for item in _ports(spec))):
        words += ", not by the host port that its pods have"
    return Entrypoint(address, wanted["port"], words)


def each_pod(
    api: Api, objects: Sequence[Object], role: Role, port: str = "http", by: str | None = None
) -> list[tuple[str, int]]:
    """(address, port) of every ready pod that `entrypoint` may lead to, for a client that passes by the Service. UsageError as there."""
    workload, _, wanted = _served(objects, role, port, by)
    number = _container_port(workload, wanted)
    return [(pod["status"]["podIP"], number) for pod in _ready(api, workload, role, by)]


def _served(objects: Sequence[Object], role: Role, port: str, by: str | None) -> tuple[Object, Object, Object]:
    """The one object whose pods have the role (of several that of the name `by`), their Service, one that clients outside can reach before
    one that they cannot, and its port of that name or its first.
    """
    found = [obj for obj in objects if role_of(obj) == role and by in (None, obj["metadata"]["name"])]
    if not found:
        raise UsageError(f"role {role}", "this variant has no such pod", "name the other role")
    labels, namespace = pod_labels(found[0]), found[0]["metadata"]["namespace"]
    selecting = [
        obj
        for obj in objects
        if obj["kind"] == "Service"
        and obj["metadata"].get("namespace") == namespace
        and obj["spec"].get("selector")
        and obj["spec"]["selector"].items() <= labels.items()
    ]
    if not selecting:
        fault = f"no Service selects the pods of the role {role}"
        raise UsageError(_place(found[0]), fault, "add one, as in manifests/base")
    service = min(selecting, key=lambda obj: obj["spec"].get("type", "ClusterIP") == "ClusterIP")
    ports = service["spec"]["ports"]
    return found[0], service, next((item for item in ports if item.get("name") == port), ports[0])


def _ports(spec: Object) -> list[Object]:
    return [port for container in spec["containers"] for port in container.get("ports") or ()]


def _container_port(workload: Object, wanted: Object) -> int:
    """The number behind a Service's targetPort, which may be a name."""
    target = wanted.get("targetPort", wanted["port"])
    named = {item.get("name"): item["containerPort"] for item in reversed(_ports(pod_spec(workload)))}
    number = named.get(target, target)
    if not isinstance(number, int):
        raise UsageError(_place(workload), f"no container has a port '{target}'", "a Service's targetPort names it")
    return number


def _ready(api: Api, workload: Object, role: Role, by: str | None) -> list[Object]:
    """The ready pods that stand for a workload: those of the role, or, where it is one of several, of its own labels."""
    labels = {ROLE_LABEL: role} | dict(pod_labels(workload) if by is not None else {})
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    return [pod for pod in api.list("v1", "Pod", workload["metadata"]["namespace"], selector) if ready(pod)]


def _first(api: Api, workload: Object, role: Role, by: str | None) -> Object:
    """Always the same one of several. MeasuringError without any."""
    pods = _ready(api, workload, role, by)
    if not pods:
        fault = f"no pod is ready in {workload['metadata']['namespace']}"
        raise MeasuringError(f"role {role}", fault, "`kubectl describe pod` there says why")
    return min(pods, key=lambda pod: pod["metadata"]["name"])


def _place(obj: Object) -> str:
    return f"{obj['kind']}/{obj['metadata']['name']}"
