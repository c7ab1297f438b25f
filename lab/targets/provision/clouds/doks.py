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

from pydantic import BaseModel, ConfigDict, Field

from lab.base.errors import UsageError
from lab.targets.provision.clouds import prices
from lab.targets.provision.clouds.cli import Cli
from lab.targets.provision.clouds.definition import read
from lab.targets.provision.clouds.flow import Found, Say
from lab.targets.provision.clouds.prices import Nodes

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


class Pool(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    size: str
    count: Annotated[int, Field(ge=1, le=100)]
    labels: dict[str, str] = Field(default_factory=dict[str, str])
    taints: list[str] = Field(default_factory=list[str])

    def argument(self) -> str:
        """As `--node-pool` takes it."""
        parts = [f"name={self.name}", f"size={self.size}", f"count={self.count}"]
        parts += [f"label={key}={value}" for key, value in self.labels.items()]
        return ";".join([*parts, *(f"taint={taint}" for taint in self.taints)])


class Definition(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    region: str
    kubernetes: str = Field(pattern=r"^\d+\.\d+$")
    pools: list[Pool] = Field(min_length=1)


class Doks:
    """See `lab.targets.provision.clouds.flow.Cloud`."""

    name = "doks"

    def __init__(self, file: Path) -> None:
        self.file = file

    def cluster(self) -> str:
        definition = self._definition()
        return f"{definition.name} in {definition.region} (DigitalOcean)"

    def nodes(self) -> int:
        return sum(pool.count for pool in self._definition().pools)

    def find(self) -> Found | None:
        wanted = self._definition()
        for cluster in DOCTL.ask_json(["kubernetes", "cluster", "list", "--output", "json"]):
            if cluster["name"] == wanted.name:
                state = cluster["status"]["state"]
                ours = TAG in (cluster.get("tags") or [])
                return Found(cluster["id"], state, ours, state == "running", state in {"error", "deleted", "deleting"})
        return None

    def plan(self) -> list[str]:
        wanted = self._definition()
        pools = [Nodes(pool.name, pool.count, pool.size) for pool in wanted.pools]
        return [f"Kubernetes {self._version()} in {wanted.region}", *prices.lines("digitalocean", pools)]

    def create(self, say: Say) -> None:
        wanted = self._definition()
        argv = ["kubernetes", "cluster", "create", wanted.name, "--region", wanted.region]
        argv += ["--version", self._version(), "--tag", TAG, "--auto-upgrade=false", "--wait=true"]
        argv += ["--update-kubeconfig=false", "--set-current-context=false"]
        for pool in wanted.pools:
            argv += ["--node-pool", pool.argument()]
        DOCTL.do(argv, say, CREATE_S, "`just up doks` looks what is there now; `just down doks` removes it")

    def write_kubeconfig(self, path: Path) -> None:
        text = DOCTL.ask(["kubernetes", "cluster", "kubeconfig", "show", self._definition().name])
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)

    def removal(self, found: Found) -> list[str]:
        listed = DOCTL.ask_json(["kubernetes", "cluster", "node-pool", "list", found.id, "--output", "json"])
        lines = [f"pool {pool['name']}: {pool['count']} × {pool['size']}" for pool in listed]
        asked = DOCTL.ask_json(["kubernetes", "cluster", "list-associated-resources", found.id, "--output", "json"])
        more: dict[str, Any] = next(iter(asked), {}) if isinstance(asked, list) else asked
        for what in ("load_balancers", "volumes", "volume_snapshots"):
            names = [item.get("name") or item["id"] for item in more.get(what) or []]
            kind = what.replace("_", " ")
            lines += [f"not removed, and paid for on: {kind} {', '.join(names)} (none of the lab's)"] if names else []
        return lines

    def remove(self, found: Found, say: Say) -> None:
        argv = ["kubernetes", "cluster", "delete", found.id, "--force", "--update-kubeconfig=false"]
        DOCTL.do(argv, say, DELETE_S, "`just down doks` again, or cloud.digitalocean.com")

    def left(self, found: Found) -> list[str]:
        clusters = DOCTL.ask_json(["kubernetes", "cluster", "list", "--output", "json"])
        left = [cluster["name"] for cluster in clusters if cluster["id"] == found.id]
        droplets = DOCTL.ask_json(["compute", "droplet", "list", "--tag-name", f"k8s:{found.id}", "--output", "json"])
        return left + [droplet["name"] for droplet in droplets]

    def _version(self) -> str:
        """The newest that DigitalOcean offers of the minor release in the file, as it names it: `1.34.1-do.2`."""
        wanted = self._definition().kubernetes
        offered: list[dict[str, Any]] = DOCTL.ask_json(["kubernetes", "options", "versions", "--output", "json"])
        slugs = [str(version["slug"]) for version in offered]
        fitting = [slug for slug in slugs if slug.startswith(f"{wanted}.")]
        if not fitting:
            place, fault = os.path.relpath(self.file), f"kubernetes: DigitalOcean does not offer {wanted}"
            raise UsageError(place, fault, f"offered: {', '.join(slugs) or 'none'}")
        return max(fitting, key=lambda slug: [int(number) for number in re.findall(r"\d+", slug)])

    def _definition(self) -> Definition:
        return read(self.file, Definition, Pool)
