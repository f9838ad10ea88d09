"""The network of a new machine: subnet, public address, security groups. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.validation import objects

DEFAULT_GROUP: Final = {
    "Name": "group-name",
    "Values": ["default"],
}  # a filter; new machines get the default group if none is set
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


def allows_port(group: Mapping[str, Any], port: int) -> bool:
    """Return whether a security group allows outside addresses to connect to a TCP port."""
    for rule in objects(group.get("IpPermissions")):
        if str(rule.get("IpProtocol")) == "tcp":
            first, last = rule.get("FromPort"), rule.get("ToPort")
            if not (isinstance(first, int) and isinstance(last, int) and first <= port <= last):
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
