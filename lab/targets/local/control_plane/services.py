"""The network path from clients to the proxy: directly to its pod, or through a node's NAT, as a Service needs it.

If a Service of type LoadBalancer selects the proxy, the path is client ── node ── proxy pods. The client sends packets
to the Service's address. The node is a separate network namespace with the NAT rules of kube-proxy's nftables mode;
probes do not pass through it. The first packet of a connection goes to a random endpoint, and connection tracking sends
the later packets there, too. With externalTrafficPolicy Cluster, the source becomes the node's address with a random
port. With Local, the pod sees the client's address. kube-proxy's two connection-tracking timeouts are set. A pod with
hostNetwork is reached directly, and so is a pod behind any other kind of Service.

Not modelled are a balancer in front of the node, a second node, session affinity, source ranges, node ports, and
kube-proxy's size of the conntrack table (the machine's size applies, see the facts).

If pods may come and go (`changing`), every Service of the proxy has such a node in front, and with a ClusterIP the pod
sees the client's address. A proxy with a hostPort always has such a node, like the NAT of the CNI plugin portmap.
`follow` sends new connections to the current endpoints; established connections stay with their pod, as with
kube-proxy. The rules change at once; a cluster needs some 0.1 to 1 s. A Service without any endpoint refuses
connections.

With externalTrafficPolicy Cluster all clients share one address. If each request has its own connection, a port is soon
used again for another client. If the proxy still has the earlier connection in TIME-WAIT with other timestamps, it
drops the new SYN (TcpExtPAWSTimewait), which is sent again after 1 s. A cluster behaves in the same way. For this
reason the rate of a long run without keep-alive falls.

The kernel does this work in softirq on the CPU of the sender: for requests on the generator's, for responses on the
proxy's.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab.base.errors import NotMeasurableError, UsageError, refuse_if
from lab.systems.manifests.objects import Objects, Service
from lab.systems.manifests.pods import Pod
from lab.targets.common.sampler import network_counters
from lab.targets.local.sandbox.network import CLIENT, End, Network, NetworkPlace, call_in, run_ip, write_sysctls

NODE = "node"
"""The name of the node's place (network namespace)."""
ADDRESS = "10.65.0.1"
"""The address of the Service, or of the first one if several routers have a Service each (`address_of`).

It need not belong to an interface: the client's route leads to the node, whose NAT looks at packets first.
"""

MISSING = "missing"
"""The result of `find_nft_fault` if there is no nft."""
CONNTRACK_MAX = Path("/proc/sys/net/netfilter/nf_conntrack_max")
"""The file with the size of the connection-tracking table."""
_NODE_SYSCTLS = {"net.ipv4.ip_forward": "1"}
_CONNTRACK = {
    "net.netfilter.nf_conntrack_tcp_timeout_established": "86400",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait": "3600",
}
"""The connection-tracking timeouts of kube-proxy (defaults of KubeProxyConntrackConfiguration)."""
_MARK = "0x4000"
"""The packet mark of kube-proxy's masquerading."""


def add_node_nat(objects: Objects, changing: bool) -> Objects:
    """Add a node's NAT in front of the proxy to the objects, if a NAT is needed and missing, and return the objects.

    Such a NAT does what kube-proxy does on a node. It is needed if pods may come and go, if there are several proxy
    pods, or if a proxy pod has a hostPort. There are two exceptions: a proxy on the host network needs it only if pods
    may come and go, and a Service of type LoadBalancer has a NAT already.

    Args:
        objects: The objects of the manifests.
        changing: Whether pods may come and go.

    """
    pods = objects.role("proxy")
    needed = changing or len(pods) > 1 or any(pod.host_ports for pod in pods)
    if not pods or not needed or objects.role("balancer") or _find_balanced_service(objects, pods[0]) is not None:
        return objects
    if pods[0].host_network and not changing:
        return objects
    balanced = {
        name: replace(service, balanced=True, masquerade=False)
        for name, service in objects.services.items()
        if any(map(service.selects, pods))
    }
    return replace(objects, services={**objects.services, **balanced})


def list_balancers(objects: Objects) -> list[Service]:
    """Return the Services through which clients reach the proxies, if a node's NAT translates the Services' addresses.

    There are several Services if the routes are divided among several proxies. The list is empty if clients reach the
    proxy without such a NAT: directly, or through the pod of a load balancer.
    """
    pods = objects.role("proxy")
    if not pods or objects.role("balancer") or pods[0].host_network or _find_balanced_service(objects, pods[0]) is None:
        return []
    services = (_find_balanced_service(objects, pod) for pod in pods)
    return list({service.name: service for service in services if service is not None}.values())


def address_of(objects: Objects, service: Service) -> str:
    """Return the IP address at which clients reach a Service; the Service must be one of `list_balancers`."""
    first, _, last = ADDRESS.rpartition(".")
    return f"{first}.{int(last) + [balancer.name for balancer in list_balancers(objects)].index(service.name)}"


def on_the_node(net: Network, objects: Objects, pod: Pod) -> bool:
    """Return whether a pod uses the node's own ports, as with hostNetwork.

    This is so if a LoadBalancer Service selects the pod and the network has no node with a NAT.
    """
    return _find_balanced_service(objects, pod) is not None and all(place.name != NODE for place in net.places)


def address(objects: Objects, net: Network, role: str, port: str = "http", by: str | None = None) -> tuple[str, int]:
    """Return the IP address and port at which clients reach the pods of a role.

    Args:
        objects: The objects.
        net: The network.
        role: The role, such as `proxy`.
        port: The name of the Service's port; if no port has this name, the first port is used.
        by: The name of the Deployment, if the routes are divided among proxies of several Deployments. None means the
            first pod of the role.

    Raises:
        UsageError: No Service selects the role's pods.

    """
    pod = next(pod for pod in objects.role(role) if by in (None, pod.deployment))
    balanced = _find_balanced_service(objects, pod) if role == "proxy" and list_balancers(objects) else None
    selecting = (item for item in objects.services.values() if item.selects(pod))
    service = balanced or next(selecting, None)
    if service is None:
        raise UsageError(pod.place, "no Service selects these pods", "add one, as in manifests/base")
    name = port if port in service.ports else next(iter(service.ports))
    if balanced is None:
        return net[pod.name].address, objects.target_port(service.name, name)
    target = service.ports[name]
    number = next(number for number in _list_numbers(service) if number == name or service.ports[number] == target)
    return address_of(objects, service), pod.host_ports.get(pod.port(target), number)


def describe_way(objects: Objects) -> str:
    """Return a description of what lies between clients and the proxy, for the remarks that are stored with samples.

    An example is `through a node's Service NAT (nftables, 2 endpoints, masquerade)`. The text is empty if clients
    reach the proxy directly.
    """
    if objects.role("balancer"):
        return "through a load balancer's TCP proxy"
    services = list_balancers(objects)
    if not services:
        return ""
    count = sum(len(objects.endpoints(service.name)) for service in services)
    prefix = f"{len(services)} Services, " if len(services) > 1 else ""
    source = "masquerade" if services[0].masquerade else "the client's address kept"
    return f"through a node's Service NAT (nftables, {prefix}{count} endpoint{'s' * (count > 1)}, {source})"


def install(net: Network, objects: Objects) -> None:
    """Set up the NAT on the node, and route all packets between the client and the proxies through the node.

    If clients reach the proxy directly, nothing is done.

    Raises:
        CalledProcessError: `nft` or `ip` fails.
        OSError: A sysctl cannot be written, or a program cannot be started.

    """
    services = list_balancers(objects)
    if not services:
        return
    node, client = net[NODE], net[CLIENT]
    write_sysctls(node, _NODE_SYSCTLS)
    nft(rules(net, objects), node)
    write_sysctls(node, _CONNTRACK)
    for service in services:
        way = f"via {node.address} dev {net.device(NODE)} onlink src {client.address}"
        run_ip(["-n", client.namespace], [f"route add {address_of(objects, service)}/32 {way}"])
        for pod in objects.endpoints(service.name):
            join(net, pod)


def join(net: Network, pod: Pod) -> None:
    """Route the packets that a new proxy pod sends to the client through the node, where the NAT is.

    Raises:
        CalledProcessError: `ip` fails.

    """
    way = f"via {net[NODE].address} dev {net.device(NODE)} onlink"
    run_ip(["-n", net[pod.name].namespace], [f"route add {net[CLIENT].address}/32 {way}"])


def answer_without_endpoints(net: Network, objects: Objects) -> None:
    """Make the node refuse connections to a Service that has no endpoint.

    For this, the Service's address becomes an address of the node itself, where nothing listens. As long as the
    Service has endpoints, the NAT translates the address before this matters.

    Raises:
        CalledProcessError: `ip` fails.

    """
    for service in list_balancers(objects):
        run_ip(["-n", net[NODE].namespace], [f"address add {address_of(objects, service)}/32 dev lo"])


def follow(net: Network, objects: Objects, pods: Sequence[Pod]) -> None:
    """Make the node's NAT send new connections only to the given pods; established connections stay with their pod.

    A Service sends connections only to those of the given pods that it selects.

    Raises:
        CalledProcessError: `nft` fails.
        OSError: `nft` cannot be started.

    """
    added = "".join(f"add rule ip lab prerouting {line}\n" for line in _make_dnat_rules(net, objects, pods))
    nft(f"flush chain ip lab prerouting\n{added}", net[NODE])


def client_links(net: Network, objects: Objects) -> list[tuple[End, End]]:
    """Return the links (veth pairs) over which the client sends its requests.

    Each link is a tuple (client's end, other end). Each end is a tuple (network namespace, name of the interface in
    it).
    """
    far = [NODE] if list_balancers(objects) else [pod.name for pod in objects.entry]
    return [((net[CLIENT], net.device(name)), (net[name], net.device(CLIENT))) for name in far]


def counters(net: Network, objects: Objects) -> Mapping[str, int]:
    """Return the cumulative TCP and connection-tracking counters of the node, such as `node/conntrack_drop`.

    The result is empty if clients reach the proxy without a node in between.
    """
    if not list_balancers(objects):
        return {}
    values = call_in(net[NODE], lambda: network_counters("thread-self"))
    return {f"{NODE}/{name}": value for name, value in values.items()}


def rules(net: Network, objects: Objects) -> str:
    """Return the nftables rules of the node's NAT, in the form that `nft -f` reads."""
    return _RULES.format(dnat="\n".join(_make_dnat_rules(net, objects, objects.role("proxy"))), mark=_MARK)


def _make_dnat_rules(net: Network, objects: Objects, proxies: Sequence[Pod]) -> list[str]:
    """Return one nftables rule for each port of each Service, which sends connections to a random proxy pod.

    Args:
        net: The network, which has the pods' addresses.
        objects: The objects.
        proxies: The proxy pods to send connections to; a Service without any of them gets no rule.

    """
    lines: list[str] = []
    for service in list_balancers(objects):
        pods = [pod for pod in proxies if service.selects(pod)]
        for number in _list_numbers(service) if pods else ():
            target = pods[0].port(service.ports[number])
            endpoints = ", ".join(f"{index} : {net[pod.name].address} . {target}" for index, pod in enumerate(pods))
            mark = f"meta mark set meta mark or {_MARK} " if service.masquerade else ""
            chosen = f"dnat ip addr . port to numgen random mod {len(pods)} map {{ {endpoints} }}"
            outer = pods[0].host_ports.get(target, number)
            lines.append(f"ip daddr {address_of(objects, service)} tcp dport {outer} {mark}{chosen}")
    return lines


def nft(text: str, place: NetworkPlace | None = None) -> None:
    """Load nftables rules into a network namespace, with the program `nft`.

    Args:
        text: The rules, as `nft -f` reads them.
        place: The network namespace. None means a new one that disappears at once, as a test of the rules.

    Raises:
        CalledProcessError: `nft` refuses the rules.
        OSError: `nft` cannot be started.

    """
    fresh = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net", "--"]
    enter: Sequence[str] = place.enter if place else fresh
    subprocess.run([*enter, "nft", "-f", "-"], input=text, text=True, check=True, capture_output=True)


@functools.cache
def find_nft_fault() -> str | None:
    """Load nftables rules as a test, and return the reason why the NAT of Services does not work on this machine.

    The test is made only by the first call; later calls return the same result.

    Returns:
        The reason; MISSING if the program `nft` is missing; None if the NAT works.

    """
    if shutil.which("nft") is None:
        return MISSING
    try:
        nft(_RULES.format(dnat="ip daddr 10.65.0.1 tcp dport 80 dnat ip addr . port to"
                          " numgen random mod 1 map { 0 : 192.0.2.1 . 80 }", mark=_MARK))  # fmt: skip
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr).strip().splitlines()
        return lines[0] if lines else f"nft exited {error.returncode}"
    except OSError as error:
        return str(error)
    return None


def check_way(objects: Objects) -> None:
    """Check that this target can connect clients to the proxies as the objects require, such as through a Service's NAT.

    Raises:
        UsageError: There are several proxy pods, and they have no NAT in front or use host ports. Or the program `nft`
            is missing.
        NotMeasurableError: nftables rules do not work on this machine. Or a pod has hostNetwork, which would have no
            effect here, because there is no NAT that it could avoid.

    """
    direct = "no Service of type LoadBalancer is in front: the way is straight without hostNetwork, too"
    for pod in objects.pods:
        useless = pod.host_network and _find_balanced_service(objects, pod) is None
        remedy = "measure it on such a baseline (okd)"
        refuse_if(useless, f"{pod.place}: hostNetwork", direct, remedy, what="host network")
    services, proxies = list_balancers(objects), objects.role("proxy")
    if len(proxies) > 1:
        refuse_if(
            not services,
            proxies[0].place,
            "several proxies, and no Service of type LoadBalancer in front: nothing balances over them here",
            "set replicas: 1, give the proxy such a Service (without hostNetwork), choose a sweep with a disturbance (its"
            " Services are all a node's NAT), or use --target kind",
        )
        fault = "several pods with ports of the node's own: all but one would stay Pending on the one node here"
        remedy = "set replicas: 1, or use --target kind with several nodes"
        refuse_if(proxies[0].host_ports, proxies[0].place, fault, remedy)
    if services and (fault := find_nft_fault()) is not None:
        place = f"Service/{services[0].name}: spec.type LoadBalancer"
        refuse_if(fault == MISSING, place, "the program 'nft' is not on this machine", "apt-get install nftables")
        remedy = "a kernel with nf_tables and its NAT (modprobe nft_chain_nat nft_masq), or --target kind"
        raise NotMeasurableError("service NAT", place, f"nft does not work here: {fault}", remedy)


def _find_balanced_service(objects: Objects, pod: Pod) -> Service | None:
    return next((item for item in objects.services.values() if item.balanced and item.selects(pod)), None)


def _list_numbers(service: Service) -> list[int]:
    """Return the port numbers of a Service.

    The keys of its mapping `ports` are both numbers and names, so the names are left out.
    """
    return [number for number in service.ports if isinstance(number, int)]


_RULES = """
table ip lab {{
  chain prerouting {{
    type nat hook prerouting priority dstnat
    {dnat}
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat
    meta mark and {mark} == {mark} masquerade fully-random
  }}
}}
"""
