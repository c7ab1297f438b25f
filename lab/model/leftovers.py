"""What an earlier load can leave behind in a system, as it is measured before, at the start of, and after a load."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.base.validation import Record

Moment = Literal["before", "start", "end"]
"""Before the warm-up, when the load starts, and when it has ended."""


class Leftovers(Record):
    """One system at one moment. A place is a network namespace or pod, named by its role ("proxy", "proxy-2", "backend")."""

    time_wait: dict[str, dict[str, int]] = Field(
        default_factory=dict[str, dict[str, int]],
        description="place → destination (address:port) → TIME_WAIT sockets whose local port is ephemeral; destination `any`:"
        " they are fewer than 100 and were not told apart, ports of servers included",
    )
    port_range: dict[str, int] = Field(
        default_factory=dict[str, int], description="place → how many local ports its connections can use"
    )
    open_connections: dict[str, int] = Field(
        default_factory=dict[str, int], description="place → TCP connections that are not closed yet"
    )
    accept_queue: dict[str, int] = Field(
        default_factory=dict[str, int], description="place → connections that wait to be accepted, over all listeners"
    )
    old_workers: int | None = Field(
        default=None, description="processes of the proxy beyond those it runs in its ordinary state; null = unknown"
    )
    memory_bytes: dict[str, int] = Field(
        default_factory=dict[str, int], description="role → resident memory; recorded, not bounded"
    )
    unseen: dict[str, str] = Field(
        default_factory=dict[str, str], description="place → why it could not be looked at; nothing is known of it"
    )
