"""The address at which clients reach the pods of a role (such as `proxy`) on a cluster, and TCP connections to that address.

The address depends on the pods and on their Service:

    hostNetwork                        the node's address and the container's port: nothing in between
    type LoadBalancer, type NodePort   a node's address and the node port: kube-proxy's NAT there, and no load balancer before it
    any other Service                  its cluster IP (kube-proxy's NAT on the client's node); a headless one: the pod's address
    pods that may change               the cluster IP in any case, because a node's address is valid only as long as its pod

A node without a pod of the role is never chosen. Under externalTrafficPolicy Local such a node would not answer. Under Cluster
it would forward to another node, which is one hop further.

A connection starts in the generator's pod. It is tunnelled from this process by the API server's port-forward to the pod's
SOCKS server, which resolves the host's name and connects. Each connection has a separate websocket. A thread copies bytes
between the websocket and a socket pair, so that the caller gets a real socket, which TLS needs. The port-forward of the
kubernetes library (35.0) is not used: it connects without a timeout, changes its API client meanwhile, and transfers 12 MB/s
instead of 96. The end of a connection arrives a second late, so an answer should state its length.
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

from lab.base.errors import MeasuringError, UsageError, refuse_if
from lab.model.endpoint import Role
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import CLIENT_NAMESPACE, CLIENT_POD, Api
from lab.targets.cluster.objects import find_role, pod_labels, pod_spec
from lab.targets.cluster.pods import ready

DATA = 0
"""The number of the channel with a forwarded port's bytes; another channel has the port's errors.

Every frame begins with the number of its channel.
"""
CLOSING = 8
"""The opcode of a frame that ends a websocket (RFC 6455)."""
STUCK_S = 60.0
"""The seconds after which a connection is given up, if a frame stays incomplete or the other side does not read."""
_REFUSALS = {
    1: errno.EHOSTUNREACH, 2: errno.EPERM, 3: errno.ENETUNREACH, 4: errno.EHOSTUNREACH,
    5: errno.ECONNREFUSED, 6: errno.ETIMEDOUT, 7: errno.EOPNOTSUPP, 8: errno.EAFNOSUPPORT,
}  # fmt: skip
"""The error number of this machine for each reply of SOCKS5 (RFC 1928)."""
Object = Mapping[str, Any]


def connect(api: Api, address: tuple[str, int], timeout_s: float) -> socket.socket:
    """Open a TCP connection from the generator's pod to a host and port, and return a local socket for it.

    The bytes are tunnelled through the API server (port-forward) and the pod's SOCKS server.

    Args:
        api: The cluster.
        address: The host name or IP address, and the port.
        timeout_s: The timeout of the connecting, and of the socket afterwards, in seconds.

    Raises:
        OSError: The port-forward, or the connection behind it, cannot be made.

    """
    try:
        websocket = _open_websocket(api, timeout_s)
    except OSError:
        raise
    except Exception as error:  # websocket-client's own kinds, for a handshake that was refused
        message = " ".join(str(error).split())[:300]
        raise OSError(f"port-forward to pod {CLIENT_NAMESPACE}/{CLIENT_POD}: {message}") from error
    caller_end, thread_end = socket.socketpair()
    caller_end.settimeout(timeout_s)
    thread_end.settimeout(STUCK_S)
    websocket.settimeout(STUCK_S)
    threading.Thread(target=_pump, args=(websocket, thread_end), name="tunnel", daemon=True).start()
    try:
        _ask_socks(caller_end, *address)
    except BaseException:
        caller_end.close()
        raise
    return caller_end


def _open_websocket(api: Api, timeout_s: float) -> Any:
    """Open a port-forward to the SOCKS port of the generator's pod through the API server, and return its websocket.

    The credentials and the HTTP proxy are those of the API's client. The port-forward of the kubernetes library is not
    used, because it has no timeout.
    """
    import certifi
    import websocket
    from kubernetes.stream import ws_client  # takes a second: see lab.targets.cluster.connection

    client = api.client
    configuration = client.configuration
    headers: dict[str, str] = {}
    client.update_params_for_auth(headers, [], ["BearerToken"])
    tls_options: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE}
    if configuration.verify_ssl:
        tls_options = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": configuration.ssl_ca_cert or certifi.where()}
    identity = {
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "server_hostname": configuration.tls_server_name,
    }
    tls_options |= {name: value for name, value in identity.items() if value}
    path = f"{configuration.host}/api/v1/namespaces/{CLIENT_NAMESPACE}/pods/{CLIENT_POD}/portforward"
    url = str(ws_client.get_websocket_url(path, [("ports", 1080)]))
    options: dict[str, Any] = {"header": [f"{name}: {value}" for name, value in headers.items()]}
    if configuration.proxy:
        options = ws_client.websocket_proxycare(options, configuration, url, headers)
    return websocket.create_connection(
        url,
        timeout=timeout_s,
        sslopt=tls_options,
        subprotocols=["v4.channel.k8s.io"],
        enable_multithread=False,
        **options,
    )


def _pump(websocket: Any, local: socket.socket) -> None:
    """Copy bytes between a websocket and a local socket in both directions, until one of them ends; then close the other."""
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
                        break  # the connection has ended or broken, or could not be made
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
    """Request from the SOCKS server at the other end of a connection to connect to a host and port, and wait for its reply.

    The form of the request is that of RFC 1928, without a password. The server resolves the host's name.

    Raises:
        OSError: The server cannot connect, or the connection to the server has ended.

    """
    name = host.encode("idna")
    _exchange(connection, b"\x05\x01\x00", 2)
    reply = _exchange(connection, b"\x05\x01\x00\x03" + bytes((len(name),)) + name + struct.pack("!H", port), 5)
    # The address and port that the server is bound to: of no use, but they come before the data.
    _exchange(connection, b"", {1: 4 + 2 - 1, 3: reply[4] + 2, 4: 16 + 2 - 1}[reply[3]])
    if reply[1]:
        number = _REFUSALS.get(reply[1], errno.EIO)
        message = "no such name, or no way to it" if reply[1] == 1 else os.strerror(number)
        raise OSError(number, f"{host}:{port} from the generator's pod: {message}")


def _exchange(connection: socket.socket, request: bytes, size: int) -> bytes:
    """Send a request over a socket, then read and return exactly `size` bytes.

    If the request is empty, nothing is sent.
    """
    if request:
        connection.sendall(request)  # to send nothing would still check whether the other end exists
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "the port-forward to the generator's pod ended")
        received += part
    return received


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """The address at which clients reach a role's pods on a cluster.

    Attributes:
        host: The IP address of a node, of a Service or of a pod.
        port: The port at that address.
        words: A description of what lies between clients and pods, such as a Service's NAT; never empty.

    """

    host: str
    port: int
    words: str


def find_entrypoint(
    api: Api, objects: Sequence[Object], role: Role, port: str = "http", lasting: bool = False, by: str | None = None
) -> Entrypoint:
    """Return the address at which clients reach the pods of a role, by the Service that selects the pods.

    Args:
        api: The cluster.
        objects: The variant's objects, which contain the Service.
        role: The role of the pods, such as `proxy`.
        port: The name of the Service's port; if no port has this name, the first port is used.
        lasting: Whether the address must stay valid when pods end. Then it is the Service's cluster IP, not the
            address of a node or pod. The Service must have one (`ClusterTarget.check_variant` checks it).
        by: The name of the Deployment, if several Deployments make pods of the role; None means any.

    Raises:
        UsageError: No Service selects the role's pods.
        MeasuringError: The Service, its node port or a ready pod is missing on the cluster.

    """
    workload, service, service_port = _find_service(objects, role, port, by)
    spec = pod_spec(workload)
    if spec.get("hostNetwork") and not lasting:
        node = _first_pod(api, workload, role, by)["status"]["hostIP"]
        return Entrypoint(
            node, _find_container_port(workload, service_port), f"to node {node}, whose own ports the pod's are"
        )
    live = api.get("v1", "Service", service["metadata"]["name"], workload["metadata"]["namespace"])
    if live is None:
        raise MeasuringError(_format_place(service), "is not there", "somebody removed it; start again")
    if live["spec"].get("type") in ("LoadBalancer", "NodePort") and not lasting:
        node = _first_pod(api, workload, role, by)["status"]["hostIP"]
        number = next(
            (item.get("nodePort") for item in live["spec"]["ports"] if item["port"] == service_port["port"]), None
        )
        if not number:
            remedy = "leave out allocateLoadBalancerNodePorts: false: the node port is the way in"
            raise MeasuringError(_format_place(service), f"port {service_port['port']} has no node port", remedy)
        source = "the client's address kept" if live["spec"].get("externalTrafficPolicy") == "Local" else "masquerade"
        balancer = ", no balancer in front" if live["spec"]["type"] == "LoadBalancer" else ""
        description = (
            f"through node {node} port {number} (NAT of a Service of type {live['spec']['type']}{balancer}, {source})"
        )
        return Entrypoint(node, int(number), description)
    address = live["spec"].get("clusterIP")
    if address in (None, "", "None"):
        pod_ip = _first_pod(api, workload, role, by)["status"]["podIP"]
        return Entrypoint(
            pod_ip, _find_container_port(workload, service_port), "to the pod itself (a headless Service)"
        )
    description = "through the Service's cluster IP (kube-proxy's NAT on the client's node)"
    if lasting and (spec.get("hostNetwork") or any(item.get("hostPort") for item in _list_ports(spec))):
        description += ", not by the host port that its pods have"
    return Entrypoint(address, service_port["port"], description)


def list_pod_addresses(
    api: Api, objects: Sequence[Object], role: Role, port: str = "http", by: str | None = None
) -> list[tuple[str, int]]:
    """Return the (IP address, port) of every ready pod of a role, to connect to a pod without the Service in between.

    They are the pods behind the address that `find_entrypoint` returns for the same arguments.

    Args:
        api: The cluster.
        objects: The variant's objects, which contain the Service.
        role: The role of the pods, such as `proxy`.
        port: The name of the Service's port; if no port has this name, the first port is used.
        by: The name of the Deployment, if several Deployments make pods of the role; None means any.

    Raises:
        UsageError: No Service selects the role's pods.

    """
    workload, _, service_port = _find_service(objects, role, port, by)
    number = _find_container_port(workload, service_port)
    return [(pod["status"]["podIP"], number) for pod in _list_ready_pods(api, workload, role, by)]


def _find_service(objects: Sequence[Object], role: Role, port: str, by: str | None) -> tuple[Object, Object, Object]:
    """Return the object that makes a role's pods, the Service that selects these pods, and one port of the Service.

    If several Services select the pods, one that clients outside the cluster can reach is preferred.

    Args:
        objects: The variant's objects.
        role: The role of the pods, such as `proxy`.
        port: The name of the Service's port; if no port has this name, the first port is returned.
        by: The name of the object that makes the pods; None means the first one of the role.

    Raises:
        UsageError: No object makes pods of the role, or no Service selects them.

    """
    workloads = [obj for obj in objects if find_role(obj) == role and by in (None, obj["metadata"]["name"])]
    refuse_if(not workloads, f"role {role}", "this variant has no such pod", "name the other role")
    labels, namespace = pod_labels(workloads[0]), workloads[0]["metadata"]["namespace"]
    selecting = [
        obj
        for obj in objects
        if obj["kind"] == "Service"
        and obj["metadata"].get("namespace") == namespace
        and obj["spec"].get("selector")
        and obj["spec"]["selector"].items() <= labels.items()
    ]
    fault = f"no Service selects the pods of the role {role}"
    refuse_if(not selecting, _format_place(workloads[0]), fault, "add one, as in manifests/base")
    service = min(selecting, key=lambda obj: obj["spec"].get("type", "ClusterIP") == "ClusterIP")
    ports = service["spec"]["ports"]
    return workloads[0], service, next((item for item in ports if item.get("name") == port), ports[0])


def _list_ports(spec: Object) -> list[Object]:
    return [port for container in spec["containers"] for port in container.get("ports") or ()]


def _find_container_port(workload: Object, service_port: Object) -> int:
    """Return the number of the container port to which a Service's port sends connections.

    Args:
        workload: The object that makes the pods.
        service_port: The Service's port; its targetPort is a number or the name of a container port.

    Raises:
        UsageError: No container has a port of that name.

    """
    target = service_port.get("targetPort", service_port["port"])
    numbers = {item.get("name"): item["containerPort"] for item in reversed(_list_ports(pod_spec(workload)))}
    number = numbers.get(target, target)
    if not isinstance(number, int):
        raise UsageError(
            _format_place(workload), f"no container has a port '{target}'", "a Service's targetPort names it"
        )
    return number


def _list_ready_pods(api: Api, workload: Object, role: Role, by: str | None) -> list[Object]:
    """Return the ready pods of a role.

    Args:
        api: The cluster.
        workload: The object that makes the pods.
        role: The role, such as `proxy`.
        by: The name of a Deployment, if only pods with the labels of `workload` are meant; None means all pods of the
            role.

    """
    labels = {ROLE_LABEL: role} | dict(pod_labels(workload) if by is not None else {})
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    return [pod for pod in api.list("v1", "Pod", workload["metadata"]["namespace"], selector) if ready(pod)]


def _first_pod(api: Api, workload: Object, role: Role, by: str | None) -> Object:
    """Return the ready pod of a role whose name comes first in the alphabet, so that every call returns the same pod.

    The arguments are those of `_list_ready_pods`.

    Raises:
        MeasuringError: No pod is ready.

    """
    pods = _list_ready_pods(api, workload, role, by)
    if not pods:
        fault = f"no pod is ready in {workload['metadata']['namespace']}"
        raise MeasuringError(f"role {role}", fault, "`kubectl describe pod` there says why")
    return min(pods, key=lambda pod: pod["metadata"]["name"])


def _format_place(obj: Object) -> str:
    return f"{obj['kind']}/{obj['metadata']['name']}"
