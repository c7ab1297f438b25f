"""A place that load goes to, and what an answer, a command and a clock there look like; what the rest of a system is asked by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from lab.model.load import Shard

Role = Literal["proxy", "backend", "balancer", "generator", "lab", "node"]
"""`balancer`: a load balancer in front of the proxy. `node`: no pod and no process of ours; the machine under the proxy's pod, where `System.exec` can look at it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the load goes: a URL without path, and the Host header the routes expect.

    `hosts`: every host of a load that is spread over several routes, `host` first. `tls`: where TLS ends; unless it is
    `none` the URL is https and names the host, which resolves in the client's place. `way`: what lies between client and
    proxy that a sample must say, in words; empty = the way is straight. `shards`: where several proxies share the routes,
    each one's URL without path and hosts; `base_url` is the first one's then.
    """

    base_url: str
    host: str
    hosts: tuple[str, ...] = ()
    tls: Tls = "none"
    way: str = ""
    shards: tuple[Shard, ...] = ()

    def at(self, host: str) -> Endpoint:
        """The same for one of its hosts alone, or one that no route has: by its own way in, where there are several."""
        url = next((shard.url for shard in self.shards if host in shard.hosts), self.base_url)
        return replace(self, base_url=url, host=host, hosts=(host,), shards=())


@dataclass(frozen=True, slots=True)
class Response:
    """`tls` of a TLS connection: `version`, `cipher`, `group` (of the key exchange, where there is one), `key` (type and size), `subject` (the certificate's common name)."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    tls: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Ran:
    """What many generators said, one after the other, and the worst of their exit statuses."""

    stdout: str
    stderr: str
    exit_status: int
    hung: bool


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """What the clock of the generator's place is ahead of the lab's, and by how much that may be wrong (seconds)."""

    offset_s: float
    error_s: float


HowToEnd = Literal["delete", "evict", "crash"]
"""As `kubectl delete pod`; through the eviction API, as `kubectl drain`; SIGKILL to its first container."""

Tls = Literal["none", "edge", "passthrough", "reencrypt"]
