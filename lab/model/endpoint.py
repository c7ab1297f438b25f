"""The address of a load, and small values that describe a system: an answer, a command's result, a clock's offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from lab.model.load import Shard

Role = Literal["proxy", "backend", "balancer", "generator", "lab", "node"]
"""The part that a process or pod plays in a system.

`balancer` is a load balancer in front of the proxy. `node` is the machine under the proxy's pod, where `System.exec` can look at it; it is
no pod and no process of the lab.
"""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address that a load is sent to: a URL without path, and the Host header that the proxy's routes expect.

    Attributes:
        base_url: The URL without path. With TLS it begins with https and has a host name that resolves on the client's
            side. With `shards` it is the URL of the first one.
        host: The Host header.
        hosts: All hosts of a load that is spread over several routes; `host` is the first.
        tls: Where TLS ends: `edge` = in the proxy, `passthrough` = in the backend, `reencrypt` = in both; `none` = no
            TLS.
        way: A note for samples about what lies between client and proxy; empty = nothing.
        shards: Where several proxies share the routes: the URL without path and the hosts of each proxy.

    """

    base_url: str
    host: str
    hosts: tuple[str, ...] = ()
    tls: Tls = "none"
    way: str = ""
    shards: tuple[Shard, ...] = ()

    def at(self, host: str) -> Endpoint:
        """Return a copy of the endpoint that addresses a single host.

        If several proxies share the routes, the URL is that of the proxy which serves the host. The host may also be
        unknown to all routes; then the URL stays unchanged.
        """
        url = next((shard.url for shard in self.shards if host in shard.hosts), self.base_url)
        return replace(self, base_url=url, host=host, hosts=(host,), shards=())


@dataclass(frozen=True, slots=True)
class Response:
    """An answer to one HTTP request.

    Attributes:
        status: The status code.
        body: The body.
        headers: The headers by name.
        tls: What is known of the TLS connection, by name; empty without TLS. The names are `version`, `cipher`, `group`
            (of the key exchange, where there is one), `key` (its type and size) and `subject` (the certificate's common
            name).

    """

    status: int
    body: bytes
    headers: Mapping[str, str]
    tls: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class GeneratorsOutput:
    """The output of several load generators that ran at once.

    Attributes:
        stdout: The outputs of all generators, one after the other.
        stderr: Their error outputs, one after the other.
        exit_status: The worst of their exit statuses.
        hung: Whether a generator was killed because it did not end in time.

    """

    stdout: str
    stderr: str
    exit_status: int
    hung: bool


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The offset between the generator's clock and the lab's, in seconds.

    Attributes:
        offset_s: The seconds by which the generator's clock is ahead.
        error_s: The largest error of `offset_s`.

    """

    offset_s: float
    error_s: float


HowToEnd = Literal["delete", "evict", "crash"]
"""The ways to end a pod: `kubectl delete pod`, eviction (as `kubectl drain`), SIGKILL to its first container."""

Tls = Literal["none", "edge", "passthrough", "reencrypt"]
