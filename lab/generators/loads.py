"""A point and where it goes → the load that a generator is asked for."""

from __future__ import annotations

from dataclasses import replace

from lab.model.endpoint import Endpoint
from lab.model.load import Load
from lab.model.sweeps import Point


def load_of(point: Point, endpoint: Endpoint, timed: bool = True) -> Load:
    """What the generator is told at this point on this system; `timed`: whether its latencies are wanted."""
    return Load(
        url=f"{endpoint.base_url}/{point.page}",
        host=endpoint.host,
        connections=point.connections,
        duration_s=point.duration_s,
        rate_rps=point.rate_rps,
        threads=point.threads,
        requests=point.requests,
        keepalive=point.keepalive,
        hosts=endpoint.hosts,
        sni_per_host=endpoint.tls == "passthrough" and len(endpoint.hosts) > 1,
        shards=tuple(replace(shard, url=f"{shard.url}/{point.page}") for shard in endpoint.shards),
        gzip=point.accept_encoding == "gzip",
        brotli=point.accept_encoding == "br",
        answers=point.answers,
        forwarded=point.forwarded,
        resumption=point.resumption,
        generators=point.generators,
        timeout_s=point.timeout_s,
        logged=point.disturbance is not None,
        timed=timed,
        protocol=point.protocol,
        streams=point.streams,
    )
