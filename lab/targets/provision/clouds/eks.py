"""AWS' Kubernetes by eksctl: the cluster of `lab/targets/provision/eks-a1.yaml`, eksctl's own file, with the lab's tag in it.

eksctl facts this file respects (from its documentation, never run): every step is a CloudFormation stack, and a failed one is left for `delete`; the flags
that the file answers (name, region) must not be given beside it; it would write into the user's kubeconfig unless told
not to; `get cluster` without a name lists, with one shows the tags; `delete` returns before all is gone unless it waits;
a kubeconfig of its making calls `aws` (or aws-iam-authenticator), which must be on PATH.
"""

from __future__ import annotations

import os
from pathlib import Path

from lab.base.errors import UsageError
from lab.model.variants.kustomize import read_yaml
from lab.targets.provision.clouds import prices
from lab.targets.provision.clouds.cli import Cli
from lab.targets.provision.clouds.flow import Found, Say
from lab.targets.provision.clouds.prices import Nodes

TAG = "ingress-lab"
MINUTES, DEADLINE_S = 45, 45 * 60 + 120.0
"""To create, and to delete. eksctl's own deadline comes first, since it knows what it waited for."""
FILE = Path(__file__).parents[1] / "eks-a1.yaml"
EKSCTL = Cli(
    "eksctl",
    "https://docs.aws.amazon.com/eks/latest/eksctl/installation.html, and credentials (`aws configure`)",
    (
        (r"credential|ExpiredToken|InvalidClientTokenId|no EC2 IMDS role|SSO session", "log in: `aws configure`, `aws sso login` or AWS_PROFILE"),
        (r"AccessDenied|UnauthorizedOperation|not authorized", "an AWS user with eksctl's minimum IAM policies"),
        (r"UnsupportedAvailabilityZone|not supported in your requested Availability Zone|InsufficientInstanceCapacity", "another zone in lab/targets/provision/eks-a1.yaml: A1 is not in every one"),
        (r"LimitExceeded|quota", "ask AWS for more (Service Quotas), or smaller instanceTypes in the file"),
        (r"unsupported Kubernetes version|invalid version", "another version in lab/targets/provision/eks-a1.yaml, or a newer eksctl"),
        (r"AlreadyExists", "a stack of an earlier try: `eksctl delete cluster -f lab/targets/provision/eks-a1.yaml --wait`"),
        (r"dial tcp|no such host", "is the network there?"),
    ),
)  # fmt: skip


class Eks:
    """See `lab.targets.provision.clouds.flow.Cloud`. Of eksctl's file the lab reads what it names here; the rest is eksctl's to check."""

    name, file = "eks-a1", FILE

    def __init__(self) -> None:
        place = os.path.relpath(FILE)
        config = read_yaml(FILE, place)
        try:
            metadata = config["metadata"]
            self._name, self._region, self._version = (metadata[key] for key in ("name", "region", "version"))
            self._groups = [
                Nodes(one["name"], one["desiredCapacity"], one["instanceType"], one.get("volumeSize", 80))
                for one in config["nodeGroups"]
            ]
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(place, f"no ClusterConfig: {error}", "see its comments, or git diff") from None
        self.cluster = f"{self._name} in {self._region} (AWS)"

    def find(self) -> Found | None:
        if self._name not in self._listed():
            return None
        (cluster,) = EKSCTL.ask_json(["get", "cluster", "--name", self._name, "--region", self._region])
        state, ours = cluster["Status"], (cluster.get("Tags") or {}).get(TAG) == self.name
        return Found(self._name, state, ours, state == "ACTIVE")

    def plan(self) -> list[str]:
        network = "its own VPC, security groups and IAM roles (CloudFormation stacks of eksctl)"
        return [f"Kubernetes {self._version} in {self._region}", network, *prices.lines("aws", self._groups)]

    def create(self, say: Say) -> None:
        argv = ["create", "cluster", "-f", str(FILE), "--write-kubeconfig=false", f"--timeout={MINUTES}m"]
        EKSCTL.do(argv, say, DEADLINE_S, "what was made is kept and costs money: `just down eks-a1` removes it")

    def kubeconfig(self, path: Path) -> None:
        place = ["--cluster", self._name, "--region", self._region]
        EKSCTL.ask(["utils", "write-kubeconfig", *place, "--kubeconfig", str(path)])

    def removal(self, found: Found) -> list[str]:
        groups = EKSCTL.ask_json(["get", "nodegroup", "--cluster", self._name, "--region", self._region])
        lines = [f"node group {one['Name']}: {one['DesiredCapacity']} × {one['InstanceType']}" for one in groups]
        return [*lines, "control plane, VPC, security groups and IAM roles of eksctl's stacks"]

    def remove(self, found: Found, say: Say) -> None:
        argv = ["delete", "cluster", "-f", str(FILE), "--wait", "--disable-nodegroup-eviction", f"--timeout={MINUTES}m"]
        remedy = "`just down eks-a1` again, or CloudFormation's stacks eksctl-… in the AWS console"
        EKSCTL.do(argv, say, DEADLINE_S, remedy)

    def left(self, found: Found) -> list[str]:
        return [found.id] if found.id in self._listed() else []

    def _listed(self) -> list[str]:
        return [one["Name"] for one in EKSCTL.ask_json(["get", "cluster", "--region", self._region])]
