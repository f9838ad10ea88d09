"""The emulated AWS account's contents besides instances, and EC2's refusals without them: a layer over the market.

An empty account gets EC2's refusals: unknown image, subnet, key pair, group; no default subnet; vCPU quotas per region,
family and market; a dry run creates nothing.
source: AWS's API references of EC2, Service Quotas, IAM and Systems Manager; EC2's list of error codes; read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

# The default of tests: an account in which a first rent works.
KEY_PAIR: Final = "mine"
DEFAULT_GROUP, SSH_GROUP = "sg-00000000000000001", "sg-00000000000000022"
VPC: Final = "vpc-00000000000000001"
_QUOTAS: Final = {
    ("g", False): "L-DB2E81BA", ("p", False): "L-417A185B", ("g", True): "L-3819A6DF",
    ("p2-4", True): "L-7212CCBC", ("p5", True): "L-C4BD4855", ("standard", False): "L-1216C47A",
    ("standard", True): "L-34B43A08",
}  # fmt: skip
Refuse = Callable[[str, str], Exception]


@dataclass
class Ec2Account:
    """One account in all its regions. `strict` False: images, keys, groups and subnets are not checked."""

    strict: bool = True
    rights: set[str] = field(default_factory=set)  # actions that are denied
    key_pairs: set[str] = field(default_factory=lambda: {KEY_PAIR})
    disabled_regions: set[str] = field(default_factory=set)
    zones_without_subnet: set[str] = field(default_factory=set)
    private_zones: set[str] = field(default_factory=set)  # their subnets give no public address
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)  # id → as the wire has it, with `region`
    images: set[str] = field(default_factory=lambda: {"ami-0123456789abcdef0"})
    parameters_missing: bool = False
    quotas: dict[tuple[str, str], float] = field(default_factory=dict)  # (region, code) → vCPUs; default 1000
    has_spot_role: bool = True
    volumes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def groups_in(self, region: str) -> list[dict[str, Any]]:
        """The default group, which admits only itself, one that admits SSH, and created groups."""
        inside = {"ipProtocol": "-1", "groups": [{"groupId": DEFAULT_GROUP, "userId": "123456789012"}]}
        ssh = {"ipProtocol": "tcp", "fromPort": 22, "toPort": 22, "ipRanges": [{"cidrIp": "0.0.0.0/0"}]}
        standing = [
            {"groupId": DEFAULT_GROUP, "groupName": "default", "vpcId": VPC, "ipPermissions": [inside]},
            {"groupId": SSH_GROUP, "groupName": "ssh", "vpcId": VPC, "ipPermissions": [ssh]},
        ]
        made = [
            {name: value for name, value in group.items() if name != "region"}
            for group in self.groups.values()
            if group["region"] == region
        ]
        return standing + made

    def subnet_of(self, zone: str) -> dict[str, Any] | None:
        """Return the default subnet of a zone."""
        if zone in self.zones_without_subnet:
            return None
        return {
            "subnetId": f"subnet-{sum(zone.encode()):017x}", "availabilityZone": zone, "vpcId": VPC,
            "defaultForAz": True, "mapPublicIpOnLaunch": zone not in self.private_zones, "state": "available",
        }  # fmt: skip

    def quota(self, region: str, code: str) -> float:
        """Return the quota in vCPUs."""
        return self.quotas.get((region, code), 1000.0)

    def require_run(self, sent: Mapping[str, str], region: str, zone: str, refuse: Refuse) -> None:
        """Check what EC2 checks before capacity, also in a dry run. Raises what `refuse` creates."""
        if "RunInstances" in self.rights:
            raise refuse("UnauthorizedOperation", "You are not authorized to perform this operation.")
        if region in self.disabled_regions:
            raise refuse("OptInRequired", f"You are not subscribed to {region}")
        if not self.strict:
            return
        self._require_image(sent.get("ImageId", ""), refuse)
        key = sent.get("KeyName")
        if key is not None and key not in self.key_pairs:
            raise refuse("InvalidKeyPair.NotFound", f"The key pair '{key}' does not exist")
        prefix = "NetworkInterface.1."
        known = {one["groupId"] for one in self.groups_in(region)}
        for name, value in sent.items():
            if (
                re.fullmatch(r"(SecurityGroupId|NetworkInterface\.1\.SecurityGroupId)\.\d+", name)
                and value not in known
            ):
                raise refuse("InvalidGroup.NotFound", f"The security group '{value}' does not exist")
        subnet = sent.get("SubnetId") or sent.get(prefix + "SubnetId")
        here = self.subnet_of(zone)
        if subnet is not None and (here is None or here["subnetId"] != subnet):
            raise refuse("InvalidSubnetID.NotFound", f"The subnet ID '{subnet}' does not exist")
        if subnet is None and here is None:
            raise refuse("MissingInput", f"No default subnet for availability zone: '{zone}'.")
        if sent.get("InstanceMarketOptions.MarketType") == "spot" and not self.has_spot_role:
            code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
            raise refuse(code, "The provided credentials do not have permission to create the service-linked role")

    def require_quota(
        self, region: str, type_: str, vcpus: int, spot: bool, living: Sequence[tuple[str, int, bool]], refuse: Refuse
    ) -> None:
        """Check the vCPU quotas by family and market; a dry run ignores them."""
        code = quota_code(type_, spot)
        used = sum(one for name, one, is_spot in living if is_spot is spot and quota_code(name, spot) == code)
        limit = self.quota(region, code)
        if used + vcpus <= limit:
            return
        if spot:
            raise refuse("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        message = (
            f"You have requested more vCPU capacity than your current vCPU limit of {limit:.0f} allows for the "
            "instance bucket that the specified instance type belongs to."
        )
        raise refuse("VcpuLimitExceeded", message)

    def _require_image(self, image: str, refuse: Refuse) -> None:
        if image.startswith("resolve:ssm:"):
            if self.parameters_missing:
                raise refuse("InvalidParameterValue", f"Parameter {image.removeprefix('resolve:ssm:')} not found.")
        elif image not in self.images:
            raise refuse("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")


def quota_code(type_: str, spot: bool) -> str:
    """Return the quota that applies to a type."""
    family = "g" if re.match(r"(g|gr|vt)\d", type_) else "p" if re.match(r"p\d", type_) else "standard"
    if spot and family == "p":
        family = "p5" if type_.startswith("p5") else "p2-4"
    return _QUOTAS[family, spot]
