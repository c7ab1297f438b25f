"""AWS' Kubernetes by eksctl: the cluster of `lab/targets/provision/eks-a1.yaml`, eksctl's own file, with the lab's tag in it.

eksctl facts this file respects (from its documentation, never run): every step is a CloudFormation stack, and a failed one is left for `delete`; the flags
that the file answers (name, region) must not be given beside it; it would write into the user's kubeconfig unless told
not to; `get cluster` without a name lists, with one shows the tags; `delete` returns before all is gone unless it waits;
a kubeconfig of its making calls `aws` (or aws-iam-authenticator), which must be on PATH.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from lab.targets.provision.clouds import prices
from lab.targets.provision.clouds.cli import Cli
from lab.targets.provision.clouds.definition import read
from lab.targets.provision.clouds.flow import Found, Say
from lab.targets.provision.clouds.prices import Nodes

TAG = "ingress-lab"
CREATE_MINUTES = 45
DELETE_MINUTES = 45
SLACK_S = 120.0
"""eksctl's own deadline comes first, since it knows what it waited for."""
FILE = "lab/targets/provision/eks-a1.yaml"
EKSCTL = Cli(
    "eksctl",
    "https://docs.aws.amazon.com/eks/latest/eksctl/installation.html, and credentials (`aws configure`)",
    (
        (r"credential|ExpiredToken|InvalidClientTokenId|no EC2 IMDS role|SSO session", "log in: `aws configure`, `aws sso login` or AWS_PROFILE"),
        (r"AccessDenied|UnauthorizedOperation|not authorized", "an AWS user with eksctl's minimum IAM policies"),
        (r"UnsupportedAvailabilityZone|not supported in your requested Availability Zone|InsufficientInstanceCapacity", f"another zone in {FILE}: A1 is not in every one"),
        (r"LimitExceeded|quota", "ask AWS for more (Service Quotas), or smaller instanceTypes in the file"),
        (r"unsupported Kubernetes version|invalid version", f"another version in {FILE}, or a newer eksctl"),
        (r"AlreadyExists", f"a stack of an earlier try: `eksctl delete cluster -f {FILE} --wait`"),
        (r"dial tcp|no such host", "is the network there?"),
    ),
)  # fmt: skip


class Metadata(BaseModel):
    model_config = ConfigDict(strict=True, alias_generator=to_camel)

    name: str
    region: str
    version: str
    tags: dict[str, str] = Field(default_factory=dict[str, str])


class NodeGroup(BaseModel):
    model_config = ConfigDict(strict=True, alias_generator=to_camel)

    name: str
    instance_type: str
    desired_capacity: int = Field(ge=1, le=100)
    volume_size: int = 80


class ClusterConfig(BaseModel):
    """What of eksctl's file the lab reads; the rest is eksctl's to check."""

    model_config = ConfigDict(strict=True, alias_generator=to_camel)

    metadata: Metadata
    node_groups: list[NodeGroup] = Field(min_length=1)


class Eks:
    """See `lab.targets.provision.clouds.flow.Cloud`."""

    name = "eks-a1"

    def __init__(self, file: Path) -> None:
        self.file = file

    def cluster(self) -> str:
        metadata = self._config().metadata
        return f"{metadata.name} in {metadata.region} (AWS)"

    def nodes(self) -> int:
        return sum(group.desired_capacity for group in self._config().node_groups)

    def find(self) -> Found | None:
        metadata = self._config().metadata
        if metadata.name not in self._listed():
            return None
        asked = ["get", "cluster", "--name", metadata.name, "--region", metadata.region, "--output", "json"]
        cluster = EKSCTL.ask_json(asked)[0]
        state, tags = cluster["Status"], cluster.get("Tags") or {}
        broken = state in {"FAILED", "DELETING"}
        return Found(metadata.name, state, tags.get(TAG) == self.name, state == "ACTIVE", broken)

    def plan(self) -> list[str]:
        config = self._config()
        groups = [
            Nodes(one.name, one.desired_capacity, one.instance_type, one.volume_size) for one in config.node_groups
        ]
        network = "its own VPC, security groups and IAM roles (CloudFormation stacks of eksctl)"
        about = f"Kubernetes {config.metadata.version} in {config.metadata.region}"
        return [about, network, *prices.lines("aws", groups)]

    def create(self, say: Say) -> None:
        argv = ["create", "cluster", "-f", str(self.file), "--write-kubeconfig=false", f"--timeout={CREATE_MINUTES}m"]
        remedy = "what was made is kept and costs money: `just down eks-a1` removes it"
        EKSCTL.do(argv, say, CREATE_MINUTES * 60 + SLACK_S, remedy)

    def write_kubeconfig(self, path: Path) -> None:
        metadata = self._config().metadata
        place = ["--cluster", metadata.name, "--region", metadata.region]
        EKSCTL.ask(["utils", "write-kubeconfig", *place, "--kubeconfig", str(path)], {"KUBECONFIG": str(path)})

    def removal(self, found: Found) -> list[str]:
        metadata = self._config().metadata
        place = ["--cluster", metadata.name, "--region", metadata.region]
        groups = EKSCTL.ask_json(["get", "nodegroup", *place, "--output", "json"])
        lines = [f"node group {one['Name']}: {one['DesiredCapacity']} × {one['InstanceType']}" for one in groups]
        return [*lines, "control plane, VPC, security groups and IAM roles of eksctl's stacks"]

    def remove(self, found: Found, say: Say) -> None:
        argv = ["delete", "cluster", "-f", str(self.file), "--wait", "--disable-nodegroup-eviction"]
        argv.append(f"--timeout={DELETE_MINUTES}m")
        remedy = "`just down eks-a1` again, or CloudFormation's stacks eksctl-… in the AWS console"
        EKSCTL.do(argv, say, DELETE_MINUTES * 60 + SLACK_S, remedy)

    def left(self, found: Found) -> list[str]:
        return [found.id] if found.id in self._listed() else []

    def _listed(self) -> list[str]:
        region = self._config().metadata.region
        return [one["Name"] for one in EKSCTL.ask_json(["get", "cluster", "--region", region, "--output", "json"])]

    def _config(self) -> ClusterConfig:
        return read(self.file, ClusterConfig, Metadata, NodeGroup)
