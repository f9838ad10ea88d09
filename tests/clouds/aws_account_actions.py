"""The account actions of the emulated AWS: keys, network, images, disks, quotas, roles."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from gpuwatch.emulator.answers import EmulatorReply
from gpuwatch.emulator.request import EmulatorRequest
from tests.clouds.aws_account import VPC, Ec2Account
from tests.clouds.aws_wire import json_reply, listed, refuse, xml_reply

ACCOUNT_ROUTES: Final = (
    ("POST", "/DescribeKeyPairs", "describe_key_pairs"),
    ("POST", "/DescribeSecurityGroups", "describe_groups"),
    ("POST", "/CreateSecurityGroup", "create_group"),
    ("POST", "/AuthorizeSecurityGroupIngress", "open_group"),
    ("POST", "/DeleteSecurityGroup", "delete_group"),
    ("POST", "/DescribeSubnets", "describe_subnets"),
    ("POST", "/DescribeImages", "describe_images"),
    ("POST", "/DescribeVolumes", "describe_volumes"),
    ("POST", "/DescribeSpotInstanceRequests", "describe_spot_requests"),
    ("POST", "/GetParameters", "get_parameters"),
    ("POST", "/GetServiceQuota", "get_service_quota"),
    ("POST", "/ListRoles", "list_roles"),
)


class _Server(Protocol):
    """What the actions need from the server."""

    account: Ec2Account
    instances: dict[str, dict[str, Any]]
    clock: Callable[[], float]

    def _region(self, request: EmulatorRequest) -> str: ...

    def _paged(self, request: EmulatorRequest, name: str, rows: list[Any]) -> EmulatorReply: ...

    def _lives(self, instance_id: str) -> bool: ...


class AccountActions:
    """Mixed into the server."""

    def mark(self: _Server, instance_id: str, code: str = "marked-for-termination", at_s: float | None = None) -> None:
        """Give a spot instance notice: the status of its request changes, and it still runs."""
        at = datetime.fromtimestamp(self.clock() if at_s is None else at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        self.instances[instance_id]["spot_status"] = {"code": code, "updateTime": at, "message": "It is marked."}

    def describe_key_pairs(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Return key pairs by a filter of names."""
        wanted = listed(request.params, "Filter.1.Value")
        return xml_reply(
            request, {"keySet": [{"keyName": pair} for pair in sorted(self.account.key_pairs) if pair in wanted]}
        )

    def describe_groups(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Return security groups by a filter of ids or names."""
        kind = {"group-id": "groupId", "group-name": "groupName"}[request.params["Filter.1.Name"]]
        wanted = listed(request.params, "Filter.1.Value")
        rows = [one for one in self.account.groups_in(self._region(request)) if one[kind] in wanted]
        return self._paged(request, "securityGroupInfo", rows)

    def create_group(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Create a group that admits nobody; names are unique within a region."""
        name, region = request.params.get("GroupName", ""), self._region(request)
        if any(one["groupName"] == name for one in self.account.groups_in(region)):
            raise refuse("InvalidGroup.Duplicate", f"The security group '{name}' already exists")
        group_id = f"sg-{len(self.account.groups) + 100:017x}"
        made = {"groupId": group_id, "groupName": name, "vpcId": request.params.get("VpcId", VPC), "ipPermissions": []}
        tag = "TagSpecification.1.Tag.1."
        if tag + "Key" in request.params:
            made["tagSet"] = [{"key": request.params[tag + "Key"], "value": request.params[tag + "Value"]}]
        self.account.groups[group_id] = made | {"region": region}
        return xml_reply(request, {"groupId": group_id, "return": True})

    def open_group(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Add one rule."""
        sent, rule = request.params, "IpPermissions.1."
        group = self.account.groups[sent["GroupId"]]
        opened = {
            "ipProtocol": sent[rule + "IpProtocol"], "fromPort": int(sent[rule + "FromPort"]),
            "toPort": int(sent[rule + "ToPort"]), "ipRanges": [{"cidrIp": sent[rule + "IpRanges.1.CidrIp"]}],
        }  # fmt: skip
        if opened in group["ipPermissions"]:
            raise refuse("InvalidPermission.Duplicate", "the specified rule already exists")
        group["ipPermissions"].append(opened)
        return xml_reply(request, {"return": True})

    def delete_group(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Delete a group, unless an instance uses it."""
        group_id = request.params.get("GroupId", "")
        if group_id not in self.account.groups:
            raise refuse("InvalidGroup.NotFound", f"The security group '{group_id}' does not exist")
        for instance in self.instances.values():
            if instance["state"] != "terminated" and group_id in instance["sent"].values():
                raise refuse("DependencyViolation", f"resource {group_id} has a dependent object")
        del self.account.groups[group_id]
        return xml_reply(request, {"return": True})

    def describe_subnets(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Return the default subnet of a zone, also by its id."""
        kind, wanted = request.params["Filter.1.Name"], listed(request.params, "Filter.1.Value")
        found = [self.account.subnet_of(zone) for zone in listed(request.params, "Filter.2.Value")]
        rows = [one for one in found if one and (kind == "default-for-az" or one["subnetId"] in wanted)]
        return self._paged(request, "subnetSet", rows)

    def describe_images(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Return images by a filter of ids."""
        wanted = listed(request.params, "Filter.1.Value")
        return xml_reply(
            request, {"imagesSet": [{"imageId": image} for image in sorted(self.account.images) if image in wanted]}
        )

    def describe_volumes(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Return disks; one that is deleted with its instance is gone after the end."""
        rows = [
            {
                "volumeId": name,
                "size": volume["size"],
                "status": "in-use" if self._lives(volume["instance"]) else "available",
            }
            for name, volume in self.account.volumes.items()
            if volume["region"] == self._region(request) and (self._lives(volume["instance"]) or not volume["goes"])
        ]
        return self._paged(request, "volumeSet", rows)

    def describe_spot_requests(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Return one per spot instance: a one-time request closes with its instance."""
        rows = [
            {
                "spotInstanceRequestId": f"sir-{instance_id[-8:]}", "instanceId": instance_id,
                "state": "active" if self._lives(instance_id) else "closed",
                "type": instance["sent"].get("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time"),
                "status": instance.get("spot_status") or {"code": "fulfilled"},
            }
            for instance_id, instance in self.instances.items()
            if instance["spot"] and instance["region"] == self._region(request)
            and instance_id in (listed(request.params, "Filter.1.Value") or self.instances)
        ]  # fmt: skip
        return self._paged(request, "spotInstanceRequestSet", rows)

    def get_parameters(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Systems Manager: names of images."""
        names = request.body().get("Names", [])
        known = [] if self.account.parameters_missing else names
        found = [{"Name": name, "Value": "ami-0123456789abcdef0", "Type": "String"} for name in known]
        return json_reply({"Parameters": found, "InvalidParameters": [name for name in names if name not in known]})

    def get_service_quota(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """Service Quotas."""
        code = request.body().get("QuotaCode", "")
        value = self.account.quota(self._region(request), code)
        return json_reply({"Quota": {"ServiceCode": "ec2", "QuotaCode": code, "Value": value, "Adjustable": True}})

    def list_roles(self: _Server, request: EmulatorRequest) -> EmulatorReply:
        """IAM: the roles under a path."""
        role = (
            "<member><Path>/aws-service-role/spot.amazonaws.com/</Path><RoleName>AWSServiceRoleForEC2Spot</RoleName>"
            "<RoleId>AROA0000000000000000</RoleId><Arn>arn:aws:iam::123456789012:role/AWSServiceRoleForEC2Spot</Arn>"
            "<CreateDate>2026-01-01T00:00:00Z</CreateDate></member>"
        )
        roles = role if self.account.has_spot_role else ""
        body = (
            '<ListRolesResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><ListRolesResult><Roles>'
            f"{roles}</Roles><IsTruncated>false</IsTruncated></ListRolesResult></ListRolesResponse>"
        )
        return EmulatorReply(200, body.encode(), content_type="text/xml;charset=UTF-8")

    def _lives(self: _Server, instance_id: str) -> bool:
        return self.instances[instance_id]["state"] in ("pending", "running")
