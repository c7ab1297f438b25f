"""Has what this target runs brought here when it is first used: outside the lab's namespaces, in which there is no network.

A controller's files are those of its image: the one that LAB_IMAGES names, else the pinned one where its registry answers. Where neither can be
had, `scripts/controllers` makes a root of its Go module, once; it makes the two servers, too. Refuses to say nothing: what is fetched or
made is told on stderr, and what was run is a fact of the run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from lab.base.errors import UsageError
from lab.targets.apiserver import programs, unpacking
from lab.targets.apiserver.images import table as images
from lab.targets.cluster import images as references

SCRIPT = programs.ROOT / "scripts" / "controllers"
UNPACKED = programs.MADE / "images"
SERVERS_ALONE = "servers"


def provide() -> None:
    """UsageError when something can be neither had nor made."""
    roots, made = chosen(), list[str]()
    written = references.written()
    for image in images.IMAGES.values():
        if image.SHORT in roots or not image.MADE:
            continue
        if (programs.MADE / image.SYSTEM / "root").is_dir():
            made.append(image.SYSTEM)  # again where its pins are others now
            continue
        reference = written.named(image.SHORT)
        if not unpacking.there(reference, UNPACKED):
            _say(f"for --target apiserver, once: {reference} …")
        try:
            roots[image.SHORT] = (reference, str(unpacking.unpacked(reference, UNPACKED)))
        except UsageError as error:
            _say(f"  ✗ {error.fault}: {image.SYSTEM} is made from its Go module")
            made.append(image.SYSTEM)
    if subprocess.run([SCRIPT, *(made or [SERVERS_ALONE])], check=False).returncode:
        remedy = f"{SCRIPT.relative_to(programs.ROOT)} --help says what it needs"
        raise UsageError("--target apiserver", "what it runs could not be made (see above)", remedy)
    os.environ[programs.ROOTS] = json.dumps(roots)


def chosen() -> dict[str, tuple[str, str]]:
    """Short name → (reference, folder) of the images that LAB_IMAGES names. UsageError for one that cannot be had."""
    given = references.written().chosen
    wanted = [image.SHORT for image in images.IMAGES.values() if image.SHORT in given]
    return {short: (given[short], str(unpacking.unpacked(given[short], UNPACKED))) for short in wanted}


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
