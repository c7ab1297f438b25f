"""What this target runs: the two servers, etcd and kube-apiserver, and the controllers' files. Where they lie, what they are, and how they come
here when they are first used: outside the lab's namespaces, in which there is no network.

The servers come from the folder that KUBEBUILDER_ASSETS names, else from PATH (nix, Debian, or `scripts/controllers`, which builds them from
pinned Go modules). A controller's files are those of its image: the one that LAB_IMAGES names, else the pinned one where its registry answers.
Where neither can be had, `scripts/controllers` makes a root of its Go module, once. Refuses to say nothing: what is fetched or made is told on
stderr, and what was run is a fact of the run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache

from lab.base.errors import UsageError
from lab.systems.programs import MADE, ROOT, ROOTS, SCRIPTS
from lab.systems.table import CONTROLLERS
from lab.targets.apiserver import unpacking
from lab.targets.cluster import images as references

ASSETS = "KUBEBUILDER_ASSETS"
SERVERS = ("etcd", "kube-apiserver")
SCRIPT = SCRIPTS / "controllers"
UNPACKED = MADE / "images"
SERVERS_ALONE = "servers"


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


def provide() -> None:
    """UsageError when something can be neither had nor made."""
    roots, made = chosen(), list[str]()
    written = references.written()
    for controller in CONTROLLERS.values():
        if controller.short in roots or not controller.made:
            continue
        if (MADE / controller.system / "root").is_dir():
            made.append(controller.system)  # again where its pins are others now
            continue
        reference = written.named(controller.short)
        if not unpacking.there(reference, UNPACKED):
            _say(f"for --target apiserver, once: {reference} …")
        try:
            roots[controller.short] = (reference, str(unpacking.unpacked(reference, UNPACKED)))
        except UsageError as error:
            _say(f"  ✗ {error.fault}: {controller.system} is made from its Go module")
            made.append(controller.system)
    if subprocess.run([SCRIPT, *(made or [SERVERS_ALONE])], check=False).returncode:
        remedy = f"{SCRIPT.relative_to(ROOT)} --help says what it needs"
        raise UsageError("--target apiserver", "what it runs could not be made (see above)", remedy)
    os.environ[ROOTS] = json.dumps(roots)


def chosen() -> dict[str, tuple[str, str]]:
    """Short name → (reference, folder) of the images that LAB_IMAGES names. UsageError for one that cannot be had."""
    given = references.written().chosen
    wanted = [controller.short for controller in CONTROLLERS.values() if controller.short in given]
    return {short: (given[short], str(unpacking.unpacked(given[short], UNPACKED))) for short in wanted}


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
