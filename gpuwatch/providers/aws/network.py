"""The network of a new machine: subnet, public address, security groups.

gpuwatch creates a security group on request: it allows SSH, and is deleted after the last machine. EC2 refuses to
delete a group in use, so gpuwatch simply tries the deletion.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuwatch.errors import OrderError, OrderRefused, OutcomeUnknown, ProviderError, RefusalKind
from gpuwatch.ports.settings import Option
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.toolkit.validation import at, objects, word

log = logging.getLogger(__name__)

_TAG: Final = {"Key": "gpuwatch-made", "Value": "ssh"}
_TTL_S: Final = 300.0  # after a launch: its machine may not be listed yet
_RETRY_S: Final = 30.0
_SSH: Final = 22
_SSH_GROUP: Final = "gpuwatch-ssh"


class NetworkOptions(NamedTuple):
    """The network settings.

    Attributes:
        groups: region → security groups.
        subnets: zone → subnet.
        public_ip: None: as configured in the subnet.
        ssh_from: addresses that may log in (CIDR); gpuwatch then creates a group where none is set. Empty: it does not.
    """

    groups: Mapping[str, Sequence[str]]
    subnets: Mapping[str, str]
    public_ip: bool | None
    ssh_from: str


def network_options(options: Mapping[str, Option]) -> NetworkOptions:
    """Parse the network options. Raises ValueError: one has the wrong format."""
    groups: dict[str, list[str]] = {}
    for region, group in _pairs(options.get("security_groups")):
        groups.setdefault(region, []).append(group)
    subnets: dict[str, str] = {}
    for zone, subnet in _pairs(options.get("subnets")):
        subnets.setdefault(zone, subnet)
    public = options.get("public_ip")
    has_public_ip = {"yes": True, "no": False}.get(str(public)) if public is not None else None
    return NetworkOptions(groups, subnets, has_public_ip, str(options.get("ssh_from") or ""))


def ssh_group_name() -> str:
    """Return the name of the security group that gpuwatch creates."""
    return _SSH_GROUP


def network_request(network: NetworkOptions, region: str, zone: str, created_group: str | None) -> dict[str, Any]:
    """Return the network parameters of `RunInstances`.

    Args:
        created_group: the security group that gpuwatch created in the region; None: none.
    """
    groups, subnet = (
        list(network.groups.get(region, ())) or ([created_group] if created_group else []),
        network.subnets.get(zone),
    )
    placement = {} if subnet else {"Placement": {"AvailabilityZone": zone}}
    if network.public_ip is None:
        optional = {"SubnetId": subnet, "SecurityGroupIds": groups}
        return placement | {name: value for name, value in optional.items() if value}
    interface: dict[str, Any] = {"DeviceIndex": 0, "AssociatePublicIpAddress": network.public_ip}
    interface |= {name: value for name, value in {"SubnetId": subnet, "Groups": groups}.items() if value}
    return placement | {"NetworkInterfaces": [interface]}


def allows_ssh(group: Mapping[str, Any]) -> bool:
    """Return whether a security group allows outside addresses to connect to port 22."""
    for rule in objects(group.get("IpPermissions")):
        if str(rule.get("IpProtocol")) == "tcp":
            first, last = rule.get("FromPort"), rule.get("ToPort")
            if not (isinstance(first, int) and isinstance(last, int) and first <= _SSH <= last):
                continue
        elif str(rule.get("IpProtocol")) != "-1":
            continue
        if rule.get("IpRanges") or rule.get("Ipv6Ranges") or rule.get("PrefixListIds"):
            return True
    return False


def _pairs(values: Option) -> list[tuple[str, str]]:
    """Parse "place=value" settings. Raises ValueError."""
    found = [str(value).partition("=") for value in values] if isinstance(values, tuple | list) else []
    invalid = [place for place, _, value in found if not value]
    if invalid:
        raise ValueError(f"expected us-east-1=sg-… or us-east-1a=subnet-… in the options, not {invalid[0][:40]!r}")
    return [(place.strip(), value.strip()) for place, _, value in found]


def require_public_address(account: AwsClient, options: Mapping[str, Option], zone: str, region: str) -> None:
    """Refuse a job's machine without a public address: a job logs in from outside. Unknown is a refusal, too.

    Raises:
        OrderRefused: nothing was sent.
    """
    network = network_options(options)
    has_public_ip = network.public_ip
    if has_public_ip is None:
        try:
            rows = find_subnets(account, network.subnets.get(zone), zone, region)
        except ProviderError as error:
            raise OrderRefused(f"not sent: {error}", RefusalKind.NOT_SENT) from error
        has_public_ip = (
            not rows or rows[0].get("MapPublicIpOnLaunch") is True
        )  # EC2 itself refuses an order without a subnet
    if not has_public_ip:
        raise OrderRefused(
            f"aws: nothing was sent: a job logs in by SSH, but machines in {zone} get no public address; set"
            ' options.public_ip = "yes", or use a subnet with public addresses',
            RefusalKind.NOT_SENT,
        )


def find_subnets(account: AwsClient, subnet: str | None, zone: str, region: str) -> list[Mapping[str, Any]]:
    """Return the owner's subnet in a zone, else its default one. Raises ProviderError."""
    subnet_filter = (
        {"Name": "subnet-id", "Values": [subnet]} if subnet else {"Name": "default-for-az", "Values": ["true"]}
    )
    filters = [subnet_filter, {"Name": "availability-zone", "Values": [zone]}]
    return objects(account.pages("ec2", region, "describe_subnets", "Subnets", Filters=filters))


def find_groups(account: AwsClient, region: str, ids: Sequence[str], vpc: str | None = None) -> list[Mapping[str, Any]]:
    """Return the groups of the options; without ids the default one, which new machines then get. Raises ProviderError.

    Args:
        vpc: the network of the default group; None: the default one.
    """
    filters = [{"Name": "group-id", "Values": list(ids)}] if ids else [{"Name": "group-name", "Values": ["default"]}]
    filters += [{"Name": "vpc-id", "Values": [vpc]}] if vpc else []
    return objects(account.pages("ec2", region, "describe_security_groups", "SecurityGroups", Filters=filters))


class SshGroups:
    """One group per region and network; changes and deletes only groups with gpuwatch's own tag.

    Args:
        monotonic: seconds.
    """

    def __init__(self, account: AwsClient, options: Mapping[str, Option], monotonic: Callable[[], float]) -> None:
        self._account = account
        self._options = options
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._delete_at_s: dict[str, float] = {}  # region → not before

    def may_create(self, region: str) -> bool:
        """Whether gpuwatch may create a group in this region."""
        network = network_options(self._options)
        return bool(network.ssh_from) and region not in network.groups

    def ensure(self, region: str, zone: str, *, needs_ssh: bool = False) -> str | None:
        """Return the group for a machine in a zone, created if necessary; None: none is wanted. Raises OrderError.

        Args:
            needs_ssh: a job logs in by its own key: an unreachable machine would cost money for nothing.
        """
        if not self.may_create(region):
            if needs_ssh:
                self._require_ssh_access(region, zone)
            return None
        if not (needs_ssh or self._options.get("key_name")):
            return None
        with self._lock:
            self._delete_at_s[region] = self._monotonic() + _TTL_S
            try:
                vpc = self._vpc(region, zone)
                group_ids = self._find_groups(region, vpc)
            except ProviderError as error:
                raise OrderRefused(f"not sent: {error}", RefusalKind.NOT_SENT) from error
            group = group_ids[0] if group_ids else self._create_group(region, vpc)
            self._allow_ssh(region, group)
            return group

    def on_listed(self, region: str, has_instances: bool) -> None:
        """After a listing of the region: delete the group if no machine of gpuwatch is alive. Raises nothing."""
        if not self.may_create(region):
            return
        with self._lock:
            now_s = self._monotonic()
            due_s = self._delete_at_s.setdefault(region, now_s)  # after a start: one may be left over
            if has_instances or now_s < due_s:
                return
            try:
                for group in self._find_groups(region, None):
                    self._account.order(
                        "order", region, "delete_security_group", ignored_code="DependencyViolation", GroupId=group
                    )
                remaining = self._find_groups(region, None)
            except (OrderError, ProviderError) as error:
                log.info("cannot delete the security group yet: %s", error, extra={"provider": "aws"})
                remaining = [region]
            self._delete_at_s[region] = now_s + (_RETRY_S if remaining else float("inf"))

    def _require_ssh_access(self, region: str, zone: str) -> None:
        """Check that the groups of the options, or the default one, allow SSH. Raises OrderRefused, also if unsure."""
        ids = network_options(self._options).groups.get(region, ())
        try:
            rows = find_groups(self._account, region, ids, None if ids else self._vpc(region, zone))
        except ProviderError as error:
            raise OrderRefused(f"not sent: {error}", RefusalKind.NOT_SENT) from error
        if not any(map(allows_ssh, rows)):
            raise OrderRefused(
                f"aws: nothing was sent: a job logs in by SSH, and {', '.join(ids) or 'the default security group'} in"
                f' {region} allows no SSH access; set options.ssh_from = "YOUR.ADDRESS/32", or options.security_groups',
                RefusalKind.NOT_SENT,
            )

    def _vpc(self, region: str, zone: str) -> str | None:
        """Return the network of the owner's subnet; None: the default one."""
        subnet = network_options(self._options).subnets.get(zone)
        if subnet is None:
            return None
        filters = [{"Name": "subnet-id", "Values": [subnet]}]
        rows = objects(self._account.pages("ec2", region, "describe_subnets", "Subnets", Filters=filters))
        return word(rows[0].get("VpcId"), 40) if rows else None

    def _find_groups(self, region: str, vpc: str | None) -> list[str]:
        filters = [{"Name": "group-name", "Values": [ssh_group_name()]}]
        rows = objects(
            self._account.pages("ec2", region, "describe_security_groups", "SecurityGroups", Filters=filters)
        )
        own_groups = [row for row in rows if _TAG in objects(row.get("Tags"))]
        return [str(row.get("GroupId")) for row in own_groups if vpc is None or row.get("VpcId") == vpc]

    def _create_group(self, region: str, vpc: str | None) -> str:
        place = {} if vpc is None else {"VpcId": vpc}
        answer = self._account.order(
            "order", region, "create_security_group", GroupName=ssh_group_name(),
            Description="gpuwatch: SSH to machines that it rents",
            TagSpecifications=[{"ResourceType": "security-group", "Tags": [_TAG]}], **place,
        )  # fmt: skip
        group = at(answer, "GroupId")
        if not isinstance(group, str):
            raise OutcomeUnknown(f"aws: {region}: an unexpected answer to the creation of a security group")
        return group

    def _allow_ssh(self, region: str, group: str) -> None:
        ssh_from = network_options(self._options).ssh_from
        ranges = {"Ipv6Ranges": [{"CidrIpv6": ssh_from}]} if ":" in ssh_from else {"IpRanges": [{"CidrIp": ssh_from}]}
        rule = {"IpProtocol": "tcp", "FromPort": _SSH, "ToPort": _SSH, **ranges}
        self._account.order(
            "order", region, "authorize_security_group_ingress", ignored_code="InvalidPermission.Duplicate",
            GroupId=group, IpPermissions=[rule],
        )  # fmt: skip
