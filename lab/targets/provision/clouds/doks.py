"""DigitalOcean's Kubernetes by doctl: the cluster of `lab/targets/provision/doks.yaml`, with the lab's tag on it.

doctl facts this file respects (read in the source of doctl 1.146.0, never run): `create` only warns when the cluster does not come up, so it is asked
afterwards; it would write into the user's kubeconfig and switch its context unless told not to; `kubeconfig show` prints
one with a token that ends after a week (another `just up doks` fetches a new one); droplets of a cluster carry the tag
`k8s:<its id>`, and outlive its entry in the list by a minute or two.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from lab.base.errors import UsageError
from lab.base.validation import Record, faults
from lab.model.variants.kustomize import read_yaml
from lab.targets.provision.clouds import prices
from lab.targets.provision.clouds.cli import Cli
from lab.targets.provision.clouds.flow import Found, Say
from lab.targets.provision.clouds.prices import Nodes

FILE = Path(__file__).parents[1] / "doks.yaml"
POOL = re.compile(r"^name=([a-z][a-z0-9-]*);size=([^;]+);count=([1-9]\d?)(;(label|taint)=[^;]+)*$")
TAG = "ingress-lab"
CREATE_S = 1800.0
DELETE_S = 600.0
HOW = "https://docs.digitalocean.com/reference/doctl/how-to/install, then `doctl auth init`"
DOCTL = Cli(
    "doctl",
    HOW,
    (
        (r"access token is required|unable to authenticate|\b401\b", "log in: `doctl auth init`"),
        (
            r"droplet limit|exceed.*limit|quota|not enough capacity",
            "ask DigitalOcean for more, or lower `count` in lab/targets/provision/doks.yaml",
        ),
        (
            r"\b403\b|not authorized|forbidden",
            "a token that may create and delete Kubernetes clusters: `doctl auth init`",
        ),
        (
            r"\b422\b|invalid size|invalid region|not available in",
            "another size, region or version in lab/targets/provision/doks.yaml",
        ),
        (r"dial tcp|no such host|timeout", "is the network there?"),
    ),
)


class Definition(Record, strict=True):
    """`pools`: each as doctl's `--node-pool` takes it."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    region: str
    kubernetes: str = Field(pattern=r"^\d+\.\d+$")
    pools: list[Annotated[str, Field(pattern=POOL.pattern)]] = Field(min_length=1)


class Doks:
    """See `lab.targets.provision.clouds.flow.Cloud`. UsageError for a file that names every wrong key."""

    name, file = "doks", FILE

    def __init__(self) -> None:
        place = os.path.relpath(FILE)
        try:
            self._wanted = Definition.model_validate(read_yaml(FILE, place))
        except ValidationError as error:
            remedy = "see its comments, or git diff"
            raise UsageError(place, "; ".join(faults(error, Definition)), remedy) from None
        self.cluster = f"{self._wanted.name} in {self._wanted.region} (DigitalOcean)"

    def find(self) -> Found | None:
        for cluster in DOCTL.ask_json(["kubernetes", "cluster", "list"]):
            if cluster["name"] == self._wanted.name:
                state, ours = cluster["status"]["state"], TAG in (cluster.get("tags") or [])
                return Found(cluster["id"], state, ours, state == "running")
        return None

    def plan(self) -> list[str]:
        found = (POOL.fullmatch(pool) for pool in self._wanted.pools)
        pools = [Nodes(pool[1], int(pool[3]), pool[2]) for pool in found if pool]
        return [f"Kubernetes {self._version()} in {self._wanted.region}", *prices.lines("digitalocean", pools)]

    def create(self, say: Say) -> None:
        argv = ["kubernetes", "cluster", "create", self._wanted.name, "--region", self._wanted.region]
        argv += ["--version", self._version(), "--tag", TAG, "--auto-upgrade=false", "--wait=true"]
        argv += ["--update-kubeconfig=false", "--set-current-context=false"]
        for pool in self._wanted.pools:
            argv += ["--node-pool", pool]
        DOCTL.do(argv, say, CREATE_S, "`just up doks` looks what is there now; `just down doks` removes it")

    def kubeconfig(self, path: Path) -> None:
        text = DOCTL.ask(["kubernetes", "cluster", "kubeconfig", "show", self._wanted.name])
        path.touch(0o600)
        path.write_text(text)

    def removal(self, found: Found) -> list[str]:
        listed = DOCTL.ask_json(["kubernetes", "cluster", "node-pool", "list", found.id])
        lines = [f"pool {pool['name']}: {pool['count']} × {pool['size']}" for pool in listed]
        asked = DOCTL.ask_json(["kubernetes", "cluster", "list-associated-resources", found.id])
        more: dict[str, Any] = next(iter(asked), {}) if isinstance(asked, list) else asked
        for what in ("load_balancers", "volumes", "volume_snapshots"):
            if names := [item.get("name") or item["id"] for item in more.get(what) or []]:
                kind = what.replace("_", " ")
                lines.append(f"not removed, and paid for on: {kind} {', '.join(names)} (none of the lab's)")
        return lines

    def remove(self, found: Found, say: Say) -> None:
        argv = ["kubernetes", "cluster", "delete", found.id, "--force", "--update-kubeconfig=false"]
        DOCTL.do(argv, say, DELETE_S, "`just down doks` again, or cloud.digitalocean.com")

    def left(self, found: Found) -> list[str]:
        clusters = DOCTL.ask_json(["kubernetes", "cluster", "list"])
        droplets = DOCTL.ask_json(["compute", "droplet", "list", "--tag-name", f"k8s:{found.id}"])
        return [each["name"] for each in (*(c for c in clusters if c["id"] == found.id), *droplets)]

    def _version(self) -> str:
        """The newest that DigitalOcean offers of the minor release in the file, as it names it: `1.34.1-do.2`."""
        wanted = self._wanted.kubernetes
        slugs = [str(version["slug"]) for version in DOCTL.ask_json(["kubernetes", "options", "versions"])]
        fitting = [slug for slug in slugs if slug.startswith(f"{wanted}.")]
        if not fitting:
            fault = f"kubernetes: DigitalOcean does not offer {wanted}"
            raise UsageError(os.path.relpath(FILE), fault, f"offered: {', '.join(slugs) or 'none'}")
        return max(fitting, key=lambda slug: [int(number) for number in re.findall(r"\d+", slug)])
