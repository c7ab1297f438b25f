"""What a realisation of a proxy may know, without anything that runs: its own container and everything around it on a made-up network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.model.variants.variants import load_variant
from lab.systems.manifests import objects
from lab.systems.manifests.objects import Objects
from lab.systems.system import Context


def context_of(
    wanted: Objects | str, cpus: int = 1, somaxconn: int = 4096, open_files: int = 20_000, **changes: Any
) -> Context:
    """Of a variant, or of its objects; `changes`: of the container. Its pods have the addresses 192.0.2.1, 192.0.2.2, …"""
    found = objects.read_objects(load_variant(wanted).manifests) if isinstance(wanted, str) else wanted
    pod = found.role("proxy")[0]
    addresses = {each.name: f"192.0.2.{number}" for number, each in enumerate(found.pods, 1)}
    return Context(replace(pod.containers[0], **changes), pod, found, addresses, cpus, somaxconn, open_files)
