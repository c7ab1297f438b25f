"""What ingress-nginx tells a backend of a request that came as from two proxies: a model of the directives, held against what one echoes.

    use-forwarded-headers: "true"  →  X-Forwarded-For: 203.0.113.7      the first of the two hops, as every address is trusted
    false                          →  X-Forwarded-For: client           whoever opened the connection

Written after ngx_http_realip_module and the controller's template. Says nothing of what it cannot know. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence

from lab.model.load import FORWARDED
from lab.targets.local.decoding import items

BALANCER, CLIENT = "balancer", "client"
"""In the place of an address: the load balancer's, and that of any other who opened the connection."""
LAB = ipaddress.IPv4Network("10.64.0.0/14")
_HOPS, _HOST, _ADDRESS = FORWARDED["X-Forwarded-For"], FORWARDED["X-Forwarded-Host"], FORWARDED["X-Real-IP"]
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def sent(values: Mapping[str, str]) -> str:
    """`Name: value`, a line each, of what such a request has beside `FORWARDED`: the address and the host under the names that are asked for."""
    named = {values["forwarded-for-header"]: _ADDRESS, values["forwarded-host-header"]: _HOST}
    return "\n".join(f"{name}: {value}" for name, value in named.items() if name not in FORWARDED)


def told(values: Mapping[str, str], headers: Mapping[str, str], behind: bool) -> Mapping[str, str]:
    """Header → value, empty for one that it leaves out. `headers`: of proxy-set-headers; `behind` a load balancer."""
    if any(items(values[key]) for key in ("whitelist-source-range", "denylist-source-range", "block-cidrs")):
        return {}  # such a request may be refused
    trusts, proxied = values["use-forwarded-headers"] == "true", values["use-proxy-protocol"] == "true"
    hops = _HOPS if values["forwarded-for-header"] == "X-Forwarded-For" else _ADDRESS
    peer = BALANCER if behind else CLIENT
    opened = CLIENT if proxied else peer
    found = {
        "X-Original-Forwarded-For": hops,
        "X-Original-Forwarded-Host": _HOST,
        "X-Original-URI": "/echo/x-original-uri" if values["proxy-add-original-uri-header"] == "true" else "",
        **(
            {"X-Forwarded-Host": _HOST, "Host": _HOST, "X-Forwarded-Proto": "https", "X-Forwarded-Port": "443"}
            if trusts
            else {}
        ),
        **{name: value for name, value in headers.items() if "$" not in value and _NAME.fullmatch(name)},
    }
    networks = items(values["proxy-real-ip-cidr"])
    listed = hops.split(", ")
    if trusts and proxied:
        listed = listed if _trusted(opened, networks) else [opened]
    elif proxied:
        listed = [opened]
    elif not trusts and values["enable-real-ip"] != "true":
        listed = []
    address = _walked(peer, listed, networks)
    if address is not None:
        full = trusts and values["compute-full-forwarded-for"] == "true"
        found |= {"X-Real-IP": address, "X-Forwarded-For": f"{_HOPS}, {opened}" if full else address}
    return found


def _walked(peer: str, listed: Sequence[str], networks: Sequence[str]) -> str | None:
    """From whom a request is said to be: back through the hops for as long as they are trusted. None where that cannot be told."""
    here = peer
    for hop in reversed(listed):
        trusted = _trusted(here, networks)
        if trusted is None:
            return None
        if not trusted:
            break
        here = hop
    return here


def _trusted(who: str, networks: Sequence[str]) -> bool | None:
    """Of one of the lab's own addresses it can be told where all of them are, or none is."""
    whose = LAB if who in (BALANCER, CLIENT) else ipaddress.IPv4Network(who)
    known = [network for text in networks if isinstance(network := _network(text), ipaddress.IPv4Network)]
    if any(whose.subnet_of(network) for network in known):
        return True
    return None if any(whose.overlaps(network) for network in known) else False


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def is_among(network: str, everybody: bool = False) -> bool:
    """Whether the lab's clients (`everybody`: all there are) are in what nginx's `allow` and `deny` take."""
    found = _network(network)
    who = ipaddress.IPv4Network("0.0.0.0/0") if everybody else LAB
    return network == "all" or (isinstance(found, ipaddress.IPv4Network) and who.subnet_of(found))
