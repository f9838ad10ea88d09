"""The launcher of AWS: one request creates at most one machine; one unreadable instance makes the list unreadable.

An instance that is ending has ended: it cannot come back and is not billed. Exception: a spot machine that AWS
reclaims is shown as failed while it shuts down, so that the reason is reported.
source: AWS's EC2 API reference (instance states, state reasons), 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from gpuwatch.domain.launches.interruption import InterruptionKind, InterruptionNotice
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.errors import (
    OfferGone,
    OrderError,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderError,
    RefusalKind,
)
from gpuwatch.ports import Created, Instance, InstanceState, Order, ProviderSettings
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.providers.aws.catalog import CatalogCache, PriceList, prices_or_none
from gpuwatch.providers.aws.client import NO_INSTANCE, AwsClient
from gpuwatch.providers.aws.create import (
    INSTANCE_ID,
    PROVIDER,
    TAG_BID,
    TAG_DISK,
    TAG_LABEL,
    parse_created,
    parse_instance_id,
    run_request,
)
from gpuwatch.providers.aws.network import SshGroups, require_public_address
from gpuwatch.providers.aws.offers import SpotKey, SpotPrice, known_type, machine_id, parse_offer_id
from gpuwatch.providers.aws.prerequisites import AwsPrerequisites
from gpuwatch.providers.aws.spot_notices import SpotNotices
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.basic_launcher import BasicLauncher, not_sent
from gpuwatch.providers.toolkit.error_mapping import InstanceNotFound, display_sentence
from gpuwatch.providers.toolkit.instance_status import ReadStatus, StatusWords
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.toolkit.validation import at, number, objects, usd_hour, word

# source: InstanceStateName of botocore's EC2 model, 2026-11
STATUS_WORDS: Final = StatusWords({
    "pending": InstanceState.STARTING,
    "running": InstanceState.RUNNING,
    **dict.fromkeys(("stopping", "stopped"), InstanceState.STOPPED),
    **dict.fromkeys(("shutting-down", "terminated"), InstanceState.ENDED),
})  # fmt: skip
_NO_CAPACITY: Final = "Server.InsufficientInstanceCapacity"
_INTERRUPTION_CODES: Final = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
_MAX_TEXT_LENGTH: Final = 160


def parse_instances(reservations: Sequence[object], region: str, ssh_user: str | None = None) -> list[Instance]:
    """Return every instance that is or may be billed, in the order of the answer. Raises PayloadChanged."""
    return [one for one in parse_all(reservations, region, ssh_user) if one.state is not InstanceState.ENDED]


def parse_all(reservations: Sequence[object], region: str, ssh_user: str | None = None) -> list[Instance]:
    """Return every instance of the answer, ended or not.

    Raises:
        PayloadChanged: an instance is unreadable.
    """
    found = []
    for reservation in reservations:
        rows = at(reservation, "Instances")
        if not isinstance(rows, list) or len(objects(rows)) != len(rows):
            raise PayloadChanged(f"aws: {region}: a reservation has no instances")
        found += [_instance(row, region, ssh_user) for row in objects(rows)]
    return found


def _read_status(row: Mapping[str, Any], region: str) -> ReadStatus:
    """Return its state. Raises PayloadChanged: the row has no id or no state."""
    state, instance_id = at(row, "State", "Name"), row.get("InstanceId")
    if not isinstance(state, str) or not state or not INSTANCE_ID.fullmatch(str(instance_id)):
        raise PayloadChanged(f"aws: {region}: an instance has no id or no state")
    if state == "shutting-down" and _is_taken(row):
        return ReadStatus(InstanceState.FAILED)
    return STATUS_WORDS.read(state)


def _is_taken(row: Mapping[str, Any]) -> bool:
    return at(row, "StateReason", "Code") in _INTERRUPTION_CODES


def _instance(row: Mapping[str, Any], region: str, ssh_user: str | None) -> Instance:
    (state, unknown_status), name = _read_status(row, region), word(row.get("InstanceType"), 40)
    tags = {tag.get("Key"): tag.get("Value") for tag in objects(row.get("Tags"))}
    machine = known_type(name or "")
    host = word(row.get("PublicIpAddress"), 60)
    return Instance(
        instance_id=f"{region}/{row['InstanceId']}",
        label=word(tags.get(TAG_LABEL)) or word(tags.get("Name")),
        state=state,
        status=_status(row),
        unknown_status=word(unknown_status, 40),
        is_placed=at(row, "StateReason", "Code") != _NO_CAPACITY,
        machine_id=_machine_id(row, name),
        gpu=None if machine is None else machine.gpu.name,
        gpu_wire=None if machine is None else machine.gpu_wire,
        gpu_count=None if machine is None else machine.count,
        gpu_memory_gib=None if machine is None else machine.sold_memory_gib,
        disk_gb=number(tags.get(TAG_DISK), 0.0, 1e6),
        spot=row.get("InstanceLifecycle") == "spot",
        bid_usd_hour=usd_hour(tags.get(TAG_BID)),
        ssh_host=host,
        ssh_port=None if host is None else 22,
        ssh_user=ssh_user,
        started_at=_to_utc(row.get("LaunchTime")),
        interruption=InterruptionNotice(kind=InterruptionKind.TERMINATE) if _is_taken(row) else None,
    )


def _to_utc(value: object) -> datetime | None:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else None


def _machine_id(row: Mapping[str, Any], name: str | None) -> str | None:
    zone, zone_id = (word(at(row, "Placement", key), 40) for key in ("AvailabilityZone", "AvailabilityZoneId"))
    return None if zone is None or name is None else machine_id({zone: zone_id or zone}, zone, name)


def _status(row: Mapping[str, Any]) -> str:
    """Return AWS's own words: the state, and its reason."""
    reason = at(row, "StateReason", "Message") or at(row, "StateReason", "Code")
    parts = [row["State"]["Name"], reason if isinstance(reason, str) else ""]
    return display_sentence(": ".join(filter(None, parts)))


_SPOT_S: Final = 60.0  # the price of a running machine is refreshed after this time
_DRY_RUN_CODE: Final = "DryRunOperation"
_FIXES: Final = {RefusalKind.KEY: "allow ec2:RunInstances and ec2:CreateTags; the policy to copy is in the docs"}
_STS_REGION: Final = "us-east-1"
_ACCOUNT: Final = re.compile(r"[0-9]{12}")


class AwsLauncher(BasicLauncher):
    """Rents whole machines, on demand and spot, in the account of the credentials."""

    name = PROVIDER

    def __init__(self, account: AwsClient, catalog: CatalogCache, settings: ProviderSettings) -> None:
        self._account = account
        self._catalog = catalog
        self._options = settings.options
        self._prerequisites = AwsPrerequisites(account, catalog, settings.options)
        self._ssh_groups = SshGroups(account, settings.options, account.tools.monotonic)
        self._notices = SpotNotices(account)
        self._spot: TtlCache[dict[SpotKey, SpotPrice]] = TtlCache(_SPOT_S, account.tools.monotonic)

    def create(self, order: Order) -> Created:
        """Rent once: on demand, or as spot with the order's bid as the maximum price. Raises OrderError."""
        offer = parse_offer_id(order.offer_id)
        if offer is None:
            raise not_sent(PROVIDER, "invalid AWS offer id")
        run_request(order, offer, self._options, self._account.tools.now())  # an invalid order must not create a group
        if order.needs_ssh:
            require_public_address(self._account, self._options, offer.zone, offer.region)
        else:
            self._prerequisites.require_network(offer)
        try:
            group = self._ssh_groups.ensure(offer.region, offer.zone, needs_ssh=order.needs_ssh)
        except OutcomeUnknown as error:  # a group costs nothing, and the next order finds it
            raise OrderRefused(f"not sent: {error}", RefusalKind.NOT_SENT) from error
        request = run_request(order, offer, self._options, self._account.tools.now(), group)
        answer = self._account.order("create", offer.region, "run_instances", **request)
        return parse_created(answer or {}, offer.region)

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check what the account has and lacks for these orders. Only reads; raises nothing."""
        return self._prerequisites.check(orders)

    def validate(self, order: Order) -> Prerequisite:
        """Let EC2 validate the whole request (`DryRun`): permissions, image, subnet, groups; not capacity."""
        prerequisite = partial(
            Prerequisite, name=PrerequisiteName.ORDER, place=order.offer_id, offer_ids=(order.offer_id,)
        )
        offer = parse_offer_id(order.offer_id)
        if offer is None:
            return prerequisite(met=None, text="invalid AWS offer id")
        try:
            request = run_request(order, offer, self._options, self._account.tools.now())
            answer = self._account.order(
                "create", offer.region, "run_instances", ignored_code=_DRY_RUN_CODE, DryRun=True, **request
            )
            if answer is None:
                return prerequisite(met=True, text="EC2 would accept the order (DryRun)")
            return prerequisite(met=None, text=self._end_unexpected(answer, offer.region))
        except OrderRefused as error:
            if error.kind is RefusalKind.NOT_SENT:
                return prerequisite(met=None, text=str(error))
            return prerequisite(met=False, text=str(error), mend=_FIXES.get(error.kind, "fix what EC2 reports"))
        except OrderError as error:
            return prerequisite(met=None, text=str(error))

    def _end_unexpected(self, answer: Mapping[str, object], region: str) -> str:
        """End the machine of a server that does not support `DryRun` and therefore rented. Raises OrderError."""
        created = parse_created(answer, region)
        self.destroy(created.instance_id)
        return f"the server ignores DryRun and created {created.instance_id}; gpuwatch ended it. Check base_url"

    def list_instances(self) -> Sequence[Instance]:
        """Return every instance of the account, in all its regions; gpuwatch's own with their current price.

        Raises:
            ProviderError: a region did not answer, or its answer is malformed: a partial list is an error.
        """
        found: dict[str, Instance] = {}
        for answer in self._account.in_all_regions(self._catalog.regions(), self._list_region).values():
            if isinstance(answer, ProviderError):
                raise answer
            found |= {instance.instance_id: instance for instance in answer}
        return list(found.values())

    def get(self, instance_id: str) -> Instance | None:
        """Return one instance, ended or not; None: EC2's error code states that it does not exist.

        Raises:
            ProviderError: no usable answer, or one about another instance.
        """
        try:
            region, ec2_id = parse_instance_id(instance_id)
        except OrderRefused as error:
            raise PayloadChanged(str(error)) from error
        try:
            rows = self._account.pages("ec2", region, "describe_instances", "Reservations", InstanceIds=[ec2_id])
        except InstanceNotFound:
            return None
        returned_ids = [row.get("InstanceId") for one in objects(rows) for row in objects(one.get("Instances"))]
        if returned_ids != [ec2_id]:
            raise PayloadChanged(f"aws: {region}: asked for {ec2_id}, but the answer does not contain it alone")
        return next(iter(self._parse(rows, region)), None)

    def destroy(self, instance_id: str) -> None:
        """Terminate an instance, unless it is already gone. Raises OrderError: not done, or outcome unknown."""
        region, ec2_id = parse_instance_id(instance_id)
        answer = self._account.order(
            "destroy", region, "terminate_instances", ignored_code=NO_INSTANCE, InstanceIds=[ec2_id]
        )
        if answer is None:
            return
        states = [at(row, "CurrentState", "Name") for row in objects(answer.get("TerminatingInstances"))]
        if not states or any(state not in {"shutting-down", "terminated"} for state in states):
            raise OutcomeUnknown(f"aws: {region}: an unexpected answer", instance_id)

    def stop_instance(self, instance_id: str) -> None:
        """Stop an on-demand machine and keep its root disk. Raises OrderError: not stopped, or outcome unknown."""
        region, ec2_id = parse_instance_id(instance_id)
        self._change_state("stop", region, ec2_id, frozenset({"stopping", "stopped"}))

    def start_instance(self, instance_id: str) -> bool:
        """Start a stopped machine; False: AWS has no capacity for it now. Raises OrderError."""
        region, ec2_id = parse_instance_id(instance_id)
        try:
            self._change_state("start", region, ec2_id, frozenset({"pending", "running"}))
        except OfferGone:
            return False
        return True

    def _change_state(self, verb: str, region: str, ec2_id: str, accepted: frozenset[str]) -> None:
        """Stop or start it. While it is still moving, EC2 refuses; that is no reason to alarm anybody."""
        answer = self._account.order(
            verb, region, f"{verb}_instances", ignored_code="IncorrectInstanceState", InstanceIds=[ec2_id]
        )
        if answer is None:
            raise OutcomeUnknown(f"aws: {region}: it cannot {verb} in its present state", ec2_id)
        key = {"stop": "StoppingInstances", "start": "StartingInstances"}[verb]
        states = [at(row, "CurrentState", "Name") for row in objects(answer.get(key))]
        if not states or any(state not in accepted for state in states):
            raise OutcomeUnknown(f"aws: {region}: an unexpected answer", ec2_id)

    def account_id(self) -> str | None:
        """Return the account number of the credentials: STS answers regardless of their permissions.

        Raises:
            ProviderError: no usable answer.
        """
        number = self._account.call("sts", _STS_REGION, "get_caller_identity").get("Account")
        if not isinstance(number, str) or not _ACCOUNT.fullmatch(number):
            raise PayloadChanged("aws: the account answer has an unexpected format")
        return number

    def change_bid(self, instance_id: str, bid_usd_hour: float) -> None:
        """AWS accepts no new bid for a one-time request. Raises OrderRefused."""
        raise OrderRefused("aws: the bid of a spot request cannot be changed", RefusalKind.BAD_ORDER)

    def _list_region(self, region: str) -> list[Instance]:
        rows = self._account.pages("ec2", region, "describe_instances", "Reservations", MaxResults=1000)
        found = [one for one in self._parse(rows, region) if one.state is not InstanceState.ENDED]
        if region in self._account.regions:
            self._ssh_groups.on_listed(region, has_instances=any(one.label for one in found))
        return found

    def _parse(self, rows: list[object], region: str) -> list[Instance]:
        user = self._options.get("ssh_user")
        found = parse_all(rows, region, str(user) if user else None)
        if not any(_needs_price(instance) for instance in found):
            return found
        return self._notices.added(self._with_prices(found, rows, region), region)

    def _with_prices(self, found: list[Instance], rows: list[object], region: str) -> list[Instance]:
        """Add prices as far as they are known: a list without prices is still a list."""
        sorts = {instance.gpu_count == 0 for instance in found if _needs_price(instance)}
        prices = {cpu: prices_or_none(partial(self._catalog.prices, region, cpu=cpu)) for cpu in sorts}
        places = _spot_keys(rows, region)
        spot = self._spot_prices(region, found, places)
        return [_with_price(instance, places.get(instance.instance_id), prices, spot) for instance in found]

    def _spot_prices(self, region: str, found: list[Instance], places: dict[str, SpotKey]) -> dict[SpotKey, SpotPrice]:
        keys = (places.get(instance.instance_id) for instance in found if instance.spot and _needs_price(instance))
        types = tuple(sorted({key.type for key in keys if key is not None}))
        if not types:
            return {}
        try:
            return self._spot.get(lambda: self._catalog.spot_prices(region, types, ParseResult()), (region, types))
        except ProviderError:
            return {}


def _needs_price(instance: Instance) -> bool:
    """Whether its label is gpuwatch's; for other instances no prices are requested."""
    return instance.gpu is not None and instance.disk_gb is not None


def _spot_keys(rows: list[object], region: str) -> dict[str, SpotKey]:
    """Return instance id → its type and zone."""
    found = {}
    for reservation in objects(rows):
        for row in objects(reservation.get("Instances")):
            name, zone = at(row, "InstanceType"), at(row, "Placement", "AvailabilityZone")
            if isinstance(name, str) and isinstance(zone, str):
                found[f"{region}/{row.get('InstanceId')}"] = SpotKey(name, zone)
    return found


def _with_price(
    instance: Instance, place: SpotKey | None, lists: Mapping[bool, PriceList], spot: dict[SpotKey, SpotPrice]
) -> Instance:
    """Return its price per hour, including the disk; None: unknown. `lists`: without GPUs (True), and with them."""
    if place is None or not _needs_price(instance):
        return instance
    prices = lists[instance.gpu_count == 0]
    rate = spot.get(place) if instance.spot else prices.types.get(place.type)
    disk_usd_hour = (prices.disk_usd_gb_month or 0.0) * (instance.disk_gb or 0.0) / HOURS_A_MONTH
    return msgspec.structs.replace(
        instance,
        listed_usd_hour=None if rate is None else rate.usd_hour + disk_usd_hour,
        stopped_usd_hour=None if prices.disk_usd_gb_month is None else disk_usd_hour,
        min_bid_usd_hour=rate.usd_hour if rate is not None and instance.spot else None,
    )
