"""The way into the proxy: straight to its pod, or, behind a Service of type LoadBalancer, through a node that does the NAT.

client ── node ── proxy pods. The client sends to the Service's own address; the node (a network namespace of its own, so
that probes do not pass it) does what kube-proxy's nftables mode does there: a connection's first packet is given to one
of the endpoints at random, connection tracking does the same for the rest, and under externalTrafficPolicy Cluster the source
becomes the node's address with a random port; under Local the pod sees the client's. kube-proxy's two connection-tracking
timeouts are set. Not modelled: a balancer in front of the node, a second node, session affinity, source ranges, node ports,
kube-proxy's own size of the conntrack table (it is the machine's, see the facts). A pod with hostNetwork is reached straight,
and so is one behind any other Service.

While pods come and go (`changing`) every Service of the proxy's has such a node in front, a ClusterIP's keeping the client's
address, and so has a hostPort, always: the NAT of a CNI's portmap. `follow` gives new connections to the endpoints that are
there now; what is established stays with its pod, as kube-proxy leaves it. The rules change at once, where a cluster takes some
0.1 to 1 s. Without any endpoint a connection is refused.

Under Cluster all clients share one address: with a connection per request a port is soon used again for another client,
whose SYN meets the proxy's TIME-WAIT with other timestamps (TcpExtPAWSTimewait) and is sent again after 1 s. It is so in a
cluster too, and why the rate of a long run in close mode falls.

The kernel does this work in softirq on the CPU of whoever sends: requests on the generator's, responses on the proxy's.
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
from lab.base.files import readable
from lab.systems.manifests.objects import Objects, Service
from lab.systems.manifests.pods import Pod
from lab.targets.common.sampler import network_counters
from lab.targets.local.sandbox.network import CLIENT, End, Network, Place, batch, call_in, write_sysctls

NODE = "node"
ADDRESS = "10.65.0.1"
"""Of the Service, the first where several routers have one each (`address_of`). It need not belong to an interface: the client's route leads to the node, whose NAT is the first to look."""

MISSING = "missing"
CONNTRACK_MAX = Path("/proc/sys/net/netfilter/nf_conntrack_max")
_NODE_SYSCTLS = {"net.ipv4.ip_forward": "1"}
_CONNTRACK = {  # kube-proxy's defaults (KubeProxyConntrackConfiguration)
    "net.netfilter.nf_conntrack_tcp_timeout_established": "86400",
    "net.netfilter.nf_conntrack_tcp_timeout_close_wait": "3600",
}
_MARK = "0x4000"  # kube-proxy's masquerade bit


def in_front(objects: Objects, changing: bool) -> Objects:
    """The objects with a node's NAT in front of the proxy where the way needs one and its Service is no LoadBalancer."""
    pods = objects.role("proxy")
    needed = changing or len(pods) > 1 or any(pod.host_ports for pod in pods)
    if not pods or not needed or objects.role("balancer") or _balanced(objects, pods[0]) is not None:
        return objects
    if pods[0].host_network and not changing:
        return objects
    found = {
        name: replace(service, balanced=True, masquerade=False)
        for name, service in objects.services.items()
        if any(map(service.selects, pods))
    }
    return replace(objects, services={**objects.services, **found})


def balancers(objects: Objects) -> list[Service]:
    """The LoadBalancer Services in front of the proxies: several where these share the routes; none where the way is straight."""
    pods = objects.role("proxy")
    if not pods or objects.role("balancer") or pods[0].host_network or _balanced(objects, pods[0]) is None:
        return []
    found = (_balanced(objects, pod) for pod in pods)
    return list({service.name: service for service in found if service is not None}.values())


def address_of(objects: Objects, service: Service) -> str:
    """A Service's own."""
    first, _, last = ADDRESS.rpartition(".")
    return f"{first}.{int(last) + [other.name for other in balancers(objects)].index(service.name)}"


def on_the_node(net: Network, objects: Objects, pod: Pod) -> bool:
    """Whether the pod's ports are the node's own: a LoadBalancer Service selects it, and the way in passes no NAT."""
    return _balanced(objects, pod) is not None and all(place.name != NODE for place in net.places)


def address(objects: Objects, net: Network, role: str, port: str = "http", by: str | None = None) -> tuple[str, int]:
    """Where clients reach a role: (IP, port) of the Service's port of that name, or its first if it has none so called.

    `by`: the Deployment whose pods are meant, where proxies have several. UsageError when no Service selects the role's pods.
    """
    pod = next(pod for pod in objects.role(role) if by in (None, pod.deployment))
    balanced = _balanced(objects, pod) if role == "proxy" and balancers(objects) else None
    selecting = (item for item in objects.services.values() if item.selects(pod))
    service = balanced or next(selecting, None)
    if service is None:
        raise UsageError(pod.place, "no Service selects these pods", "add one, as in manifests/base")
    name = port if port in service.ports else next(iter(service.ports))
    if balanced is None:
        return net[pod.name].address, objects.target_port(service.name, name)
    target = service.ports[name]
    number = next(number for number in _numbers(service) if number == name or service.ports[number] == target)
    return address_of(objects, service), pod.host_ports.get(pod.port(target), number)


def way(objects: Objects) -> str:
    """In words, for the samples' notes; empty where it is straight."""
    if objects.role("balancer"):
        return "through a load balancer's TCP proxy"
    found = balancers(objects)
    if not found:
        return ""
    count = sum(len(objects.endpoints(service.name)) for service in found)
    what = f"{len(found)} Services, " if len(found) > 1 else ""
    source = "masquerade" if found[0].masquerade else "the client's address kept"
    return f"through a node's Service NAT (nftables, {what}{count} endpoint{'s' * (count > 1)}, {source})"


def install(net: Network, objects: Objects) -> None:
    """Make the node forward and translate, and the routes lead through it. Raises CalledProcessError, OSError."""
    wanted = balancers(objects)
    if not wanted:
        return
    node, client = net[NODE], net[CLIENT]
    write_sysctls(node, _NODE_SYSCTLS)
    nft(rules(net, objects), node)
    write_sysctls(node, _CONNTRACK)
    for each in wanted:
        way = f"via {node.address} dev {net.device(NODE)} onlink src {client.address}"
        batch(["-n", client.namespace], [f"route add {address_of(objects, each)}/32 {way}"])
        for pod in objects.endpoints(each.name):
            join(net, pod)


def join(net: Network, pod: Pod) -> None:
    """A proxy's way back to the client, through the node. Raises CalledProcessError."""
    way = f"via {net[NODE].address} dev {net.device(NODE)} onlink"
    batch(["-n", net[pod.name].namespace], [f"route add {net[CLIENT].address}/32 {way}"])


def answer_without_endpoints(net: Network, objects: Objects) -> None:
    """Connections to a Service are refused when it has no endpoint: its address is the node's own, where nobody listens."""
    for service in balancers(objects):
        batch(["-n", net[NODE].namespace], [f"address add {address_of(objects, service)}/32 dev lo"])


def follow(net: Network, objects: Objects, pods: Sequence[Pod]) -> None:
    """From now on new connections go to these pods, each by its own Service, established ones where they went. Raises CalledProcessError, OSError."""
    added = "".join(f"add rule ip lab prerouting {line}\n" for line in _dnat(net, objects, pods))
    nft(f"flush chain ip lab prerouting\n{added}", net[NODE])


def client_links(net: Network, objects: Objects) -> list[tuple[End, End]]:
    """(client's end, far end) of every pair between the client and where its requests go in."""
    far = [NODE] if balancers(objects) else [pod.name for pod in objects.entry]
    return [((net[CLIENT], net.device(name)), (net[name], net.device(CLIENT))) for name in far]


def counters(net: Network, objects: Objects) -> Mapping[str, int]:
    """What the node's network namespace counts, such as `node/conntrack_drop`; cumulative, empty without a node."""
    if not balancers(objects):
        return {}
    found = call_in(net[NODE], lambda: network_counters("thread-self"))
    return {f"{NODE}/{name}": value for name, value in found.items()}


def conntrack_max() -> str:
    """Size of the machine's connection tracking table; `unknown` before anything used it."""
    return readable(CONNTRACK_MAX).strip() or "unknown"


def rules(net: Network, objects: Objects) -> str:
    """The node's ruleset, as `nft -f` reads it."""
    return _RULES.format(dnat="\n".join(_dnat(net, objects, objects.role("proxy"))), mark=_MARK)


def _dnat(net: Network, objects: Objects, proxies: Sequence[Pod]) -> list[str]:
    """A rule for each port of each Service; none for one without a pod."""
    lines: list[str] = []
    for service in balancers(objects):
        pods = [pod for pod in proxies if service.selects(pod)]
        for number in _numbers(service) if pods else ():
            target = pods[0].port(service.ports[number])
            endpoints = ", ".join(f"{index} : {net[pod.name].address} . {target}" for index, pod in enumerate(pods))
            mark = f"meta mark set meta mark or {_MARK} " if service.masquerade else ""
            chosen = f"dnat ip addr . port to numgen random mod {len(pods)} map {{ {endpoints} }}"
            outer = pods[0].host_ports.get(target, number)
            lines.append(f"ip daddr {address_of(objects, service)} tcp dport {outer} {mark}{chosen}")
    return lines


def nft(text: str, place: Place | None = None) -> None:
    """Load a ruleset in a place (default: a fresh namespace that goes at once). Raises CalledProcessError, OSError."""
    fresh = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net", "--"]
    enter: Sequence[str] = place.enter if place else fresh
    subprocess.run([*enter, "nft", "-f", "-"], input=text, text=True, check=True, capture_output=True)


@functools.cache
def nft_fault() -> str | None:
    """Why the NAT cannot be had here, found by trying it; None if it can, MISSING if there is no nft at all."""
    if shutil.which("nft") is None:
        return MISSING
    try:
        nft(_RULES.format(dnat="ip daddr 10.65.0.1 tcp dport 80 dnat ip addr . port to"
                          " numgen random mod 1 map { 0 : 192.0.2.1 . 80 }", mark=_MARK))  # fmt: skip
    except subprocess.CalledProcessError as error:
        said = str(error.stderr).strip().splitlines()
        return said[0] if said else f"nft exited {error.returncode}"
    except OSError as error:
        return str(error)
    return None


def vet(objects: Objects) -> None:
    """UsageError when the manifests need the NAT and this machine does not have it; several proxies need it.

    NotMeasurableError for hostNetwork where there is no NAT that it could leave out.
    """
    straight = "no Service of type LoadBalancer is in front: the way is straight without hostNetwork, too"
    for pod in objects.pods:
        useless = pod.host_network and _balanced(objects, pod) is None
        remedy = "measure it on such a baseline (okd)"
        refuse_if(useless, f"{pod.place}: hostNetwork", straight, remedy, what="host network")
    found, proxies = balancers(objects), objects.role("proxy")
    if len(proxies) > 1:
        refuse_if(
            not found,
            proxies[0].place,
            "several proxies, and no Service of type LoadBalancer in front: nothing balances over them here",
            "set replicas: 1, give the proxy such a Service (without hostNetwork), choose a sweep with a disturbance (its"
            " Services are all a node's NAT), or use --target kind",
        )
        fault = "several pods with ports of the node's own: all but one would stay Pending on the one node here"
        remedy = "set replicas: 1, or use --target kind with several nodes"
        refuse_if(proxies[0].host_ports, proxies[0].place, fault, remedy)
    if found and (fault := nft_fault()) is not None:
        place = f"Service/{found[0].name}: spec.type LoadBalancer"
        refuse_if(fault == MISSING, place, "the program 'nft' is not on this machine", "apt-get install nftables")
        remedy = "a kernel with nf_tables and its NAT (modprobe nft_chain_nat nft_masq), or --target kind"
        raise NotMeasurableError("service NAT", place, f"nft does not work here: {fault}", remedy)


def _balanced(objects: Objects, pod: Pod) -> Service | None:
    return next((item for item in objects.services.values() if item.balanced and item.selects(pod)), None)


def _numbers(service: Service) -> list[int]:
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
