"""A proxy's admin interface, which listens on its pod's own loopback: asked from within that network."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lab.model.endpoint import Endpoint
from lab.targets.common import fetching
from lab.targets.local import network
from lab.targets.local.network import Place

TIMEOUT_S = 2.0

Ask = Callable[[int, str], str]
"""(port, path with its query) → what is answered. Raises OSError."""


def asking(place: Place, timeout_s: float = TIMEOUT_S) -> Ask:
    """Of what listens on a pod's loopback; a connection for each question."""

    def ask(port: int, path: str) -> str:
        page = Endpoint(f"http://127.0.0.1:{port}", "localhost")
        connection = network.connect(place, fetching.place(page), timeout_s)
        return fetching.fetch(connection, page, path, None, timeout_s).body.decode(errors="replace")

    return ask


def asked_json(ask: Ask, port: int, path: str) -> Any:
    """Raises OSError, ValueError."""
    return json.loads(ask(port, path))
