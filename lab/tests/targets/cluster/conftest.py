"""`import kubernetes` takes a second or more: no test's, though one is the first to open a context."""

from __future__ import annotations

from importlib import import_module

import_module("kubernetes")
