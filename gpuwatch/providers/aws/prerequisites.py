"""What an AWS account must have before it rents, checked for the current orders by requests that only read.

Requests use filters instead of ids: EC2 answers an unknown id with an error, and a filter without a match with an empty
list. Quotas are in vCPUs, per region, family and market.
source: AWS's API references of EC2, Service Quotas, IAM and Systems Manager, and its page of EC2 endpoints and quotas,
read 2026-11. The page does not say which quota applies to p6 as spot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderError, RefusalScope
from gpuwatch.ports import Order
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.ports.settings import Option
from gpuwatch.providers.aws.catalog import CatalogCache
from gpuwatch.providers.aws.client import AwsClient
from gpuwatch.providers.aws.create import SSM, image_of, image_problem
from gpuwatch.providers.aws.network import (
    NetworkOptions,
    allows_ssh,
    find_groups,
    find_subnets,
    network_options,
    ssh_group_name,
)
from gpuwatch.providers.aws.offers import OfferId, cpu_table, parse_offer_id
from gpuwatch.providers.toolkit.basic_launcher import not_sent
from gpuwatch.providers.toolkit.validation import at, number, objects

_G_ON_DEMAND, _P_ON_DEMAND = "L-DB2E81BA", "L-417A185B"
_G_SPOT, _P2_TO_P4_SPOT, _P5_SPOT = "L-3819A6DF", "L-7212CCBC", "L-C4BD4855"
_STANDARD_ON_DEMAND, _STANDARD_SPOT = "L-1216C47A", "L-34B43A08"  # of A, C, D, H, I, M, R, T and Z
_STANDARD: Final = r"(a|c|d|h|i|im|is|m|r|t|z)\d"
_COUNTED_STATES: Final = frozenset({"pending", "running"})


class VcpuQuota(NamedTuple):
    """One quota. `code` None: unknown."""

    title: str
    code: str | None
    families: str  # pattern of the instance types that it counts
    spot: bool


_QUOTAS: Final = (
    VcpuQuota("G and VT on demand", _G_ON_DEMAND, r"(g|gr|vt)\d", spot=False),
    VcpuQuota("P on demand", _P_ON_DEMAND, r"p\d", spot=False),
    VcpuQuota("G and VT as spot", _G_SPOT, r"(g|gr|vt)\d", spot=True),
    VcpuQuota("P2 to P4 as spot", _P2_TO_P4_SPOT, r"p[234]", spot=True),
    VcpuQuota("P5 as spot", _P5_SPOT, r"p5", spot=True),
    VcpuQuota("Standard on demand", _STANDARD_ON_DEMAND, _STANDARD, spot=False),
    VcpuQuota("Standard as spot", _STANDARD_SPOT, _STANDARD, spot=True),
)


def quota_of(offer: OfferId) -> VcpuQuota:
    """Return the quota that an offer counts against."""
    for one in _QUOTAS:
        if one.spot is offer.spot and re.match(one.families, offer.type):
            return one
    family = offer.type.partition(".")[0]
    return VcpuQuota(f"{family} {'as spot' if offer.spot else 'on demand'}", None, re.escape(family), offer.spot)


def vcpus_in_use(reservations: Iterable[object], quota: VcpuQuota) -> float:
    """Return the vCPUs of running instances that count against a quota, from `DescribeInstances`."""
    used = 0.0
    for one in objects(list(reservations)):
        for row in objects(one.get("Instances")):
            is_spot = row.get("InstanceLifecycle") == "spot"
            if at(row, "State", "Name") not in _COUNTED_STATES or is_spot is not quota.spot:
                continue
            if re.match(quota.families, str(row.get("InstanceType"))):
                cores = number(at(row, "CpuOptions", "CoreCount"), 1.0, 1e5) or 0.0
                used += cores * (number(at(row, "CpuOptions", "ThreadsPerCore"), 1.0, 8.0) or 1.0)
    return used


_SPOT_ROLE: Final = "/aws-service-role/spot.amazonaws.com/"
_IAM_REGION: Final = "us-east-1"
_RECHECK_S: Final = 60.0  # while something is missing, the daemon checks every minute


class RequestedOrder(NamedTuple):
    """One order and the parts of its offer id."""

    order: Order
    offer: OfferId


class _Subject(NamedTuple):
    """One prerequisite of some orders in one place; builds its result."""

    name: PrerequisiteName
    place: str
    requested: Sequence[RequestedOrder]

    def met(self, text: str) -> Prerequisite:
        return self._result(met=True, text=text)

    def missing(self, text: str, mend: str) -> Prerequisite:
        return self._result(met=False, text=text, mend=mend)

    def unknown(self, text: str, mend: str = "") -> Prerequisite:
        return self._result(met=None, text=text, mend=mend)

    def checked(self, check: Callable[[], Prerequisite], permission: str) -> Prerequisite:
        """Return the result of a check; an error of the provider makes it unknown."""
        try:
            return check()
        except KeyRejected as error:
            return self.unknown(str(error), f"allow {permission}, so that gpuwatch can check it")
        except ProviderError as error:
            return self.unknown(str(error))

    def _result(self, **fields: Any) -> Prerequisite:
        ids = tuple(one.order.offer_id for one in self.requested)
        return Prerequisite(name=self.name, place=self.place, offer_ids=ids, **fields)


class AwsPrerequisites:
    """Checks the prerequisites of one account."""

    def __init__(self, account: AwsClient, catalog: CatalogCache, options: Mapping[str, Option]) -> None:
        self._account = account
        self._catalog = catalog
        self._options = options
        self._network_by_place: dict[str, Prerequisite] = {}  # region or zone → the last result there

    @property
    def _network(self) -> NetworkOptions:
        return network_options(self._options)

    def check(self, orders: Sequence[Order]) -> list[Prerequisite]:
        """Return what is met and what is missing. Without orders: for the regions of the searches."""
        parsed = ((order, parse_offer_id(order.offer_id)) for order in orders)
        requested = [RequestedOrder(order, offer) for order, offer in parsed if offer is not None]
        by_region: dict[str, list[RequestedOrder]] = {} if requested else {name: [] for name in self._account.regions}
        for one in requested:
            by_region.setdefault(one.offer.region, []).append(one)
        found: list[Prerequisite] = []
        for region, in_region in by_region.items():
            enabled = self._region(region, in_region)
            found.append(enabled)
            if enabled.met is not False:
                found += self._in_region(region, in_region)
        if any(one.offer.spot for one in requested):
            found.append(self._spot_role([one for one in requested if one.offer.spot]))
        self._network_by_place |= {
            prerequisite.place: prerequisite
            for prerequisite in found
            if prerequisite.name is PrerequisiteName.NETWORK and prerequisite.met is not None
        }
        return found

    def require_network(self, offer: OfferId) -> None:
        """Refuse an order for a machine that nobody could reach, by the last check; EC2 would rent it. Unknown passes.

        Raises:
            OrderRefused: nothing was sent.
        """
        for place, scope in ((offer.region, RefusalScope.REGION_FAMILY), (offer.zone, RefusalScope.ZONE)):
            found = self._network_by_place.get(place)
            if found is not None and found.met is False:
                raise not_sent("aws", f"{place}: {found.text}: {found.mend}", scope, _RECHECK_S)

    def _in_region(self, region: str, requested: Sequence[RequestedOrder]) -> Iterator[Prerequisite]:
        yield self._key_pair(region, requested)
        yield self._security_group(region, requested)
        for zone in dict.fromkeys(order.offer.zone for order in requested):
            yield self._subnet(region, zone, [order for order in requested if order.offer.zone == zone])
        for type_ in dict.fromkeys(order.offer.type for order in requested):
            yield self._image(region, type_, [order for order in requested if order.offer.type == type_])
        quotas: dict[VcpuQuota, list[RequestedOrder]] = {}
        for order in requested:
            quotas.setdefault(quota_of(order.offer), []).append(order)
        for quota, counted in quotas.items():
            yield self._quota(region, quota, counted)

    # --- one check each -----------------------------------------------------------------------------------------------
    def _region(self, region: str, requested: Sequence[RequestedOrder]) -> Prerequisite:
        here = _Subject(PrerequisiteName.REGION, region, requested)

        def check() -> Prerequisite:
            filters = [{"Name": "region-name", "Values": [region]}]
            first = self._account.regions[0]
            answer = self._account.call("ec2", first, "describe_regions", AllRegions=True, Filters=filters)
            states = {row.get("RegionName"): row.get("OptInStatus") for row in objects(answer.get("Regions"))}
            if states.get(region) == "not-opted-in" or region not in states:
                mend = f"enable {region} in the account settings of AWS, or remove it from options.regions"
                return here.missing(f"{region} is not enabled for this account", mend)
            return here.met("enabled")

        return here.checked(check, "ec2:DescribeRegions")

    def _key_pair(self, region: str, requested: Sequence[RequestedOrder]) -> Prerequisite:
        here = _Subject(PrerequisiteName.KEY_PAIR, region, requested)
        key_name = self._options.get("key_name")

        def check() -> Prerequisite:
            filters = [{"Name": "key-name", "Values": [key_name]}]
            answer = self._account.call("ec2", region, "describe_key_pairs", Filters=filters)
            if objects(answer.get("KeyPairs")):
                return here.met(f"key pair {key_name!r}")
            mend = f"import it there (aws ec2 import-key-pair --region {region}), or set another options.key_name"
            return here.missing(f"there is no key pair {key_name!r} in {region}", mend)

        if key_name:
            return here.checked(check, "ec2:DescribeKeyPairs")
        if self._options.get("instance_profile"):
            return here.met("no key pair; login by Session Manager, if the profile allows it")
        if requested and all(order.order.onstart for order in requested):
            return here.met("no key pair: nobody can log in, and onstart must do the work")
        mend = "set options.key_name, or options.instance_profile for Session Manager (SSM)"
        return _Subject(PrerequisiteName.KEY_PAIR, "", ()).missing(
            "no key pair and no instance profile: nobody could log in", mend
        )

    def _security_group(self, region: str, requested: Sequence[RequestedOrder]) -> Prerequisite:
        here = _Subject(PrerequisiteName.NETWORK, region, requested)
        if not self._options.get("key_name"):
            return here.met("SSH is not used: no key pair is set")
        if self._network.ssh_from and region not in self._network.groups:
            text = f"gpuwatch creates the security group {ssh_group_name()} for the first launch and deletes it later"
            return here.met(text)
        ids = self._network.groups.get(region, ())

        def check() -> Prerequisite:
            groups = find_groups(self._account, region, ids)
            found_ids = {row.get("GroupId") for row in groups}
            missing_ids = [one for one in ids if one not in found_ids]
            if missing_ids:
                text, mend = f"there is no security group {missing_ids[0]} in {region}", "fix options.security_groups"
                return here.missing(text, mend)
            if any(allows_ssh(row) for row in groups):
                return here.met("a security group allows SSH")
            subject = "the security groups allow" if ids else "the default security group allows"
            mend = 'set options.ssh_from = "YOUR.ADDRESS/32" (gpuwatch creates a group), or options.security_groups'
            return here.missing(f"{subject} no SSH access (port 22)", mend)

        return here.checked(check, "ec2:DescribeSecurityGroups")

    def _subnet(self, region: str, zone: str, requested: Sequence[RequestedOrder]) -> Prerequisite:
        here = _Subject(PrerequisiteName.NETWORK, zone, requested)
        subnet = self._network.subnets.get(zone)
        public = self._network.public_ip

        def check() -> Prerequisite:
            rows = find_subnets(self._account, subnet, zone, region)
            if not rows and subnet:
                mend = "fix options.subnets"
                return here.missing(f"there is no subnet {subnet} in {zone}", mend)
            if not rows:
                setting = f'options.subnets = ["{zone}=subnet-…"]'
                mend = f"aws ec2 create-default-subnet --availability-zone {zone}, or {setting}"
                return here.missing(f"there is no default subnet in {zone}", mend)
            has_public_ip = public if public is not None else rows[0].get("MapPublicIpOnLaunch") is True
            if not has_public_ip and self._options.get("key_name"):
                mend = 'set options.public_ip = "yes", or use a subnet that gives public addresses'
                text = f"machines in {rows[0].get('SubnetId')} get no public address: SSH is not reachable from outside"
                return here.missing(text, mend)
            return here.met(f"subnet {rows[0].get('SubnetId')}")

        return here.checked(check, "ec2:DescribeSubnets")

    def _image(self, region: str, type_: str, requested: Sequence[RequestedOrder]) -> Prerequisite:
        image, family = image_of(self._options, type_), type_.partition(".")[0]
        here = _Subject(PrerequisiteName.IMAGE, f"{region} {family}", requested)
        problem = image_problem(self._options, type_)
        if problem is not None:
            return here.missing(*problem)

        def by_name() -> Prerequisite:
            name = image.removeprefix(SSM)
            answer = self._account.call("ssm", region, "get_parameters", Names=[name])
            if objects(answer.get("Parameters")):
                return here.met("the image parameter exists")
            return here.missing(f"{region} has no image parameter {name}", "fix options.image")

        def by_id() -> Prerequisite:
            filters = [{"Name": "image-id", "Values": [image]}]
            rows = objects(self._account.call("ec2", region, "describe_images", Filters=filters).get("Images"))
            if rows:
                return here.met(f"image {image}")
            mend = f'image ids differ by region: set options.images = ["{family}=ami-…"]'
            return here.missing(f"there is no image {image} in {region}", mend)

        if image.startswith(SSM):
            return here.checked(by_name, "ssm:GetParameters")
        return here.checked(by_id, "ec2:DescribeImages")

    def _quota(self, region: str, quota: VcpuQuota, requested: Sequence[RequestedOrder]) -> Prerequisite:
        here = _Subject(PrerequisiteName.QUOTA, f"{region} {quota.title}", requested)

        def check() -> Prerequisite:
            if quota.code is None:
                return here.unknown("AWS does not document which quota applies")
            answer = self._account.call(
                "service-quotas", region, "get_service_quota", ServiceCode="ec2", QuotaCode=quota.code
            )
            limit = number(at(answer, "Quota", "Value"), 0.0, 1e9)
            if limit is None:
                raise PayloadChanged(f"aws: {region}: the answer has no quota {quota.code}")
            needed_vcpus = self._vcpus(region, requested)
            used_vcpus = self._vcpus_in_use(region, quota) if limit > 0 else 0.0
            usage = f"{limit:.0f} vCPUs"
            if needed_vcpus:
                usage += f", {used_vcpus:.0f} in use, {needed_vcpus:.0f} needed"
            if limit == 0 or limit - used_vcpus < (needed_vcpus or 1.0):
                mend = f"request a higher EC2 quota {quota.code} in {region} (Service Quotas); it takes hours to days"
                return here.missing(f"the quota is too low: {usage}", mend)
            return here.met(usage)

        return here.checked(check, "servicequotas:GetServiceQuota")

    def _vcpus(self, region: str, requested: Sequence[RequestedOrder]) -> float:
        """Return the vCPUs of the smallest machine that is wanted; 0: unknown."""
        sorts = {order.offer.type in cpu_table() for order in requested}
        prices = {name: price for cpu in sorts for name, price in self._catalog.prices(region, cpu=cpu).types.items()}
        sizes = [size for order in requested if (price := prices.get(order.offer.type)) and (size := price.vcpu)]
        return min(sizes, default=0.0)

    def _vcpus_in_use(self, region: str, quota: VcpuQuota) -> float:
        rows = self._account.pages("ec2", region, "describe_instances", "Reservations", MaxResults=1000)
        return vcpus_in_use(rows, quota)

    def _spot_role(self, requested: Sequence[RequestedOrder]) -> Prerequisite:
        here = _Subject(PrerequisiteName.TERMS, "spot", requested)

        def check() -> Prerequisite:
            answer = self._account.call("iam", _IAM_REGION, "list_roles", PathPrefix=_SPOT_ROLE)
            if objects(answer.get("Roles")):
                return here.met("the service-linked role of spot exists")
            mend = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
            return here.missing("the account has no service-linked role for spot yet", mend)

        return here.checked(check, "iam:ListRoles")
