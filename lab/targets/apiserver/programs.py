"""The two servers of this target, etcd and kube-apiserver: where they lie, and what they are.

They come from the folder that KUBEBUILDER_ASSETS names, else from PATH (nix, Debian, or `scripts/controllers`, which builds them from
pinned Go modules). Apart from `servers`, which imports half of a cluster's client: `just doctor` and a run's facts ask only for these.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache

from lab.base.errors import UsageError

ASSETS = "KUBEBUILDER_ASSETS"
SERVERS = ("etcd", "kube-apiserver")


def server(name: str) -> str:
    """The path of etcd or kube-apiserver. UsageError."""
    folder = os.environ.get(ASSETS)
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        remedy = f"scripts/controllers builds it, or {ASSETS} names a folder that has it"
        raise UsageError("--target apiserver", f"{name} is not {f'in {folder}' if folder else 'there'}", remedy)
    return found


@cache
def version(program: str) -> str:
    """`v1.34.4`, as etcd or kube-apiserver prints it."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+\.\d+\.\d+\S*", said)
    return f"v{found[0]}" if found else "unknown"
