"""The security group that gpuwatch creates on request: it allows SSH, and is deleted after the last machine.

EC2 refuses to delete a group in use, so gpuwatch simply tries the deletion.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from gpuwatch.errors import OrderError, OrderRefused, OutcomeUnknown, ProviderError, RefusalKind
from gpuwatch.ports.settings import Option
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.aws.network import DEFAULT_GROUP, allows_port, network_options, ssh_group_name
from gpuwatch.providers.toolkit.validation import at, objects, word

log = logging.getLogger(__name__)

_TAG: Final = {"Key": "gpuwatch-made", "Value": "ssh"}
_TTL_S: Final = 300.0  # after a launch: its machine may not be listed yet
_RETRY_S: Final = 30.0
_SSH: Final = 22


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
        filters = [{"Name": "group-id", "Values": list(ids)}] if ids else [DEFAULT_GROUP]
        try:
            vpc = None if ids else self._vpc(region, zone)
            filters += [{"Name": "vpc-id", "Values": [vpc]}] if vpc else []
            rows = self._account.pages("ec2", region, "describe_security_groups", "SecurityGroups", Filters=filters)
        except ProviderError as error:
            raise OrderRefused(f"not sent: {error}", RefusalKind.NOT_SENT) from error
        if not any(allows_port(row, _SSH) for row in objects(rows)):
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
        ranges = [{"CidrIp": network_options(self._options).ssh_from}]
        if ":" in ranges[0]["CidrIp"]:
            ranges = [{"CidrIpv6": ranges[0]["CidrIp"]}]
        kind = "IpRanges" if "CidrIp" in ranges[0] else "Ipv6Ranges"
        rule = {"IpProtocol": "tcp", "FromPort": _SSH, "ToPort": _SSH, kind: ranges}
        self._account.order(
            "order", region, "authorize_security_group_ingress", ignored_code="InvalidPermission.Duplicate",
            GroupId=group, IpPermissions=[rule],
        )  # fmt: skip
