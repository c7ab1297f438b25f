"""Names that more than one package must agree on."""

from __future__ import annotations

DEFAULT_TARGET = "local"
"""Where `bench` measures unless told otherwise."""
