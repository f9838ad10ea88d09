"""The launcher of Nebius: instances with their own system disk, which is deleted with the instance.

Also what must be in place before the first rental, checked only by reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

import msgspec

from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.errors import (
    OfferGone,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderError,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.ports import Created, Instance, InstanceState, Order
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.ports.settings import Option
from gpuwatch.providers.nebius.account import NebiusAccount, NebiusPrices
from gpuwatch.providers.nebius.client import (
    CREATE_INSTANCE,
    DELETE_INSTANCE,
    GET_INSTANCE,
    LIST_ADVICE,
    LIST_INSTANCES,
    LIST_PUBLIC_IMAGES,
    PROVIDER,
    START_INSTANCE,
    STOP_INSTANCE,
    NebiusClient,
    Rpc,
)
from gpuwatch.providers.nebius.create import PUBLIC_KEY, OfferParts, create_request, parse_offer_id
from gpuwatch.providers.nebius.market import gpu_of, parse_advice
from gpuwatch.providers.toolkit.basic_launcher import (
    BasicLauncher,
    created_instance,
    is_in_state,
    not_sent,
    public_key_prerequisite,
)
from gpuwatch.providers.toolkit.error_mapping import InstanceGone, InstanceNotFound
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.toolkit.validation import whole, word


class NebiusPrerequisites:
    """The checks, in addition to the list of instances, which every provider has."""

    def __init__(self, client: NebiusClient, account: NebiusAccount, options: Mapping[str, Option]) -> None:
        self._client = client
        self._account = account
        self._options = options

    def check(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Return what is met and what is missing; a failed check is unknown. Raises nothing."""
        mend = f'add ssh_key = "ssh-ed25519 …", your public key, to [providers.{PROVIDER}.options]'
        found = [public_key_prerequisite(self._options.get("ssh_key"), PUBLIC_KEY, mend)]
        regions: dict[str, list[tuple[str, OfferParts]]] = {}
        for order in orders:
            if wanted := parse_offer_id(order.offer_id):
                regions.setdefault(wanted.region, []).append((order.offer_id, wanted))
        for region, parts_in_region in regions.items():
            ids = tuple(offer_id for offer_id, _ in parts_in_region)
            found += [run_check(region, ids) for run_check in (self._place, self._image)]
        return found + (self._quota(regions) if regions else [])

    def _place(self, region: str, ids: tuple[str, ...]) -> Prerequisite:
        result = partial(Prerequisite, place=region, offer_ids=ids)
        try:
            project = self._account.project(region)
            if project is None:
                text = "no project to rent in: there is none, or there are several and none is named default-…"
                mend = f'add "{region}=project-…" to options.projects'
                return result(name=PrerequisiteName.REGION, met=False, text=text, mend=mend)
            subnet = self._account.subnet(region, project)
        except ProviderError as error:
            return result(name=PrerequisiteName.REGION, met=None, text=str(error))
        if subnet is None:
            text = f"cannot tell which subnet of {project} to use"
            mend = f'add "{region}=vpcsubnet-…" to options.subnets'
            return result(name=PrerequisiteName.NETWORK, met=False, text=text, mend=mend)
        return result(name=PrerequisiteName.NETWORK, met=True, text=f"{project}, {subnet}")

    def _image(self, region: str, ids: tuple[str, ...]) -> Prerequisite:
        family = str(self._options.get("image"))
        result = partial(Prerequisite, name=PrerequisiteName.IMAGE, place=region, offer_ids=ids)
        try:
            images = self._client.pages(LIST_PUBLIC_IMAGES, kind="images", region=region)
        except ProviderError as error:
            return result(met=None, text=str(error))
        if any(image.spec.image_family == family for image in images):
            return result(met=True, text=f"the image family {family[:60]} exists")
        mend = "set options.image to a family of `nebius compute image list-public`"
        return result(met=False, text=f"there is no image family {family[:60]!r}", mend=mend)

    def _quota(self, regions: Mapping[str, Sequence[tuple[str, OfferParts]]]) -> list[Prerequisite]:
        """Check the quota by capacity advice, which is limited to it."""
        try:
            rows = self._client.pages(LIST_ADVICE, parent_id=self._account.tenant())
        except ProviderError as error:
            return [Prerequisite(name=PrerequisiteName.QUOTA, met=None, text=str(error))]
        stock = {one.offer_id: one for one in parse_advice(rows, ParseResult())}
        found = []
        for region, wanted in regions.items():
            for offer_id, parts in wanted:
                one = stock.get(f"{parts.platform}/{parts.preset}/{region}")
                is_used_up = one is not None and parts.spot in one.at_limit and not one.machines.get(parts.spot)
                text = f"{parts.platform} {parts.preset}: " + (
                    "the quota is used up" if is_used_up else "within the quota"
                )
                mend = "request a higher quota in the Nebius console, under Limits" if is_used_up else ""
                found.append(
                    Prerequisite(
                        name=PrerequisiteName.QUOTA,
                        met=None if one is None else not is_used_up,
                        text=text if one is not None else f"{parts.platform} {parts.preset}: not in capacity advice",
                        mend=mend,
                        place=region,
                        offer_ids=(offer_id,),
                    )
                )
        return found


_ID: Final = re.compile(r"[a-z][a-z0-9-]{1,63}")
_ENDED: Final = InstanceState.ENDED
_PRESET: Final = re.compile(r"(\d{1,3})gpu-")
# source: InstanceStatus.InstanceState of the vendor's API (compute/v1/instance.proto), read 2026-11
STATUS_WORDS: Final = StatusWords({
    **dict.fromkeys(("CREATING", "STARTING"), InstanceState.STARTING),
    **dict.fromkeys(("RUNNING", "UPDATING"), InstanceState.RUNNING),
    **dict.fromkeys(("STOPPING", "STOPPED"), InstanceState.STOPPED),
    "ERROR": InstanceState.FAILED,
    "DELETING": InstanceState.ENDED,  # it cannot come back
    "UNSPECIFIED": InstanceState.UNKNOWN,
})  # fmt: skip


class NebiusLauncher(BasicLauncher):
    """Rents in the project of the offer's region. Requires a public SSH key in the settings."""

    name = PROVIDER

    def __init__(
        self, client: NebiusClient, account: NebiusAccount, prices: NebiusPrices, options: Mapping[str, Option]
    ) -> None:
        self._client = client
        self._account = account
        self._prices = prices
        self._options = options
        self._prerequisites = NebiusPrerequisites(client, account, options)

    def create(self, order: Order) -> Created:
        """Rent one instance, once: on demand, or preemptible at the current spot price. Raises OrderError."""
        parts = parse_offer_id(order.offer_id)
        if parts is None:
            raise not_sent(PROVIDER, "invalid offer id")
        try:
            self._client.require_key()
            project = self._account.project(parts.region)
            subnet = None if project is None else self._account.subnet(parts.region, project)
        except ProviderError as error:
            raise OrderRefused(f"not sent: {error}", RefusalKind.NOT_SENT) from error
        if project is None:
            reason = f"no default project in {parts.region}; set one in options.projects"
            raise not_sent(PROVIDER, reason, RefusalScope.REGION_FAMILY)
        if subnet is None:
            reason = f"no default subnet in {parts.region}; set one in options.subnets"
            raise not_sent(PROVIDER, reason, RefusalScope.REGION_FAMILY)
        request = create_request(order, parts, project, subnet, self._options, self._client.tools.now())
        # The vendor carries out requests with the same key only once.
        key = str(uuid5(NAMESPACE_URL, f"gpuwatch:{order.label}:{order.offer_id}"))
        operation = self._client.order(CREATE_INSTANCE, key=key, **request)
        created = created_instance(str(getattr(operation, "resource_id", "")), _ID, PROVIDER)
        has_failed = operation.done() and not operation.successful()
        return Created(instance_id=created.instance_id, starting=not has_failed)

    def check_order(self, order: Order) -> None:
        """Build the request. Raises OrderRefused."""
        if parts := parse_offer_id(order.offer_id):
            create_request(order, parts, "", "", self._options, self._client.tools.now())

    def list_instances(self) -> Sequence[Instance]:
        """Return every instance of every project of the tenant; preemptible ones with their current price.

        Raises:
            ProviderError: a project did not answer, or its answer is malformed.
        """
        self._client.require_key()
        found = []
        for region, projects in self._account.projects().items():
            for project, _ in projects:
                rows = self._client.pages(LIST_INSTANCES, kind="instances", parent_id=project)
                parsed = ((instance_of(row, region), row) for row in rows)
                found += [self._with_price(one, region, row) for one, row in parsed if one.state is not _ENDED]
        return found

    def get(self, instance_id: str) -> Instance | None:
        """Return one instance, ended or not; None: Nebius states that there is none. Raises ProviderError."""
        if not _ID.fullmatch(instance_id):
            raise PayloadChanged(f"{PROVIDER}: invalid instance id")
        self._client.require_key()
        try:
            row = self._client.call(GET_INSTANCE, kind="instances", id=instance_id)
        except InstanceNotFound:
            return None
        if row.metadata.id != instance_id:
            raise PayloadChanged(f"{PROVIDER}: asked for instance {instance_id}, but got another one")
        region = self._region_of(row.metadata.parent_id)
        one = instance_of(row, region)
        return one if one.state is _ENDED else self._with_price(one, region, row)

    def destroy(self, instance_id: str) -> None:
        """Delete an instance and its disk; does nothing if it is already gone.

        Raises:
            OrderError: not done, or outcome unknown.
        """
        if not _ID.fullmatch(instance_id):
            raise not_sent(PROVIDER, "invalid instance id")
        # A new key each time: a failed deletion must be repeated.
        key = f"gpuwatch-delete-{instance_id}-{self._client.tools.now().timestamp():.0f}"
        try:
            operation = self._client.order(DELETE_INSTANCE, key=str(uuid5(NAMESPACE_URL, key)), id=instance_id)
        except InstanceGone:
            return
        if operation.done() and not operation.successful():
            raise OutcomeUnknown(f"{PROVIDER}: the deletion failed", instance_id)

    def stop_instance(self, instance_id: str) -> None:
        """Stop an instance and keep its disk; does nothing if it is stopped. Raises OrderError."""
        self._change(STOP_INSTANCE, instance_id, frozenset({InstanceState.STOPPED}))

    def start_instance(self, instance_id: str) -> bool:
        """Start a stopped instance; False: Nebius has no resources for it now. Raises OrderError."""
        try:
            self._change(START_INSTANCE, instance_id, frozenset({InstanceState.STARTING, InstanceState.RUNNING}))
        except OfferGone:
            return False
        return True

    def _change(self, rpc: Rpc, instance_id: str, wanted: frozenset[InstanceState]) -> None:
        """Stop or start it; a refusal because it already is as wanted is no error."""
        if not _ID.fullmatch(instance_id):
            raise not_sent(PROVIDER, "invalid instance id")
        key = f"gpuwatch-{rpc.method}-{instance_id}-{self._client.tools.now().timestamp():.0f}"
        try:
            operation = self._client.order(rpc, key=str(uuid5(NAMESPACE_URL, key)), id=instance_id)
        except OrderRefused:
            if is_in_state(self, instance_id, wanted):
                return
            raise
        if str(getattr(operation, "resource_id", "")) != instance_id or (
            operation.done() and not operation.successful()
        ):
            raise OutcomeUnknown(f"{PROVIDER}: an unexpected answer to {rpc.method}", instance_id)

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check what the account has and lacks for these orders. Only reads; raises nothing."""
        return self._prerequisites.check(orders)

    def _region_of(self, project: str) -> str:
        for region, projects in self._account.projects().items():
            if any(project == one for one, _ in projects):
                return region
        return ""

    def _with_price(self, one: Instance, region: str, row: Any) -> Instance:
        """Add the current price, which changes for a preemptible instance. An instance without a price stays listed."""
        if not (one.spot and one.gpu_count and (one.label or "").startswith("gpuwatch")):
            return one
        try:
            per_gpu = self._prices.spot().get((region, row.spec.resources.platform))
            disk = self._prices.disk_usd_gb_month(row.metadata.parent_id)
        except ProviderError:
            return one
        if per_gpu is None or disk is None or one.disk_gb is None:
            return one
        disk_usd = disk * one.disk_gb / HOURS_A_MONTH
        return msgspec.structs.replace(
            one, listed_usd_hour=per_gpu * one.gpu_count + disk_usd, stopped_usd_hour=disk_usd
        )


def instance_of(row: Any, region: str) -> Instance:
    """Parse one instance; one that is being deleted has ended. Pure. Raises PayloadChanged: it has no id."""
    instance_id, status = row.metadata.id, str(getattr(row.status.state, "name", row.status.state))
    if not _ID.fullmatch(instance_id):
        raise PayloadChanged(f"{PROVIDER}: an instance id has an unexpected format")
    state, unknown_status = STATUS_WORDS.read(status)
    if state is InstanceState.STOPPED and row.status.reconciling and status == "STOPPED":
        state = InstanceState.STARTING  # the first state of every instance
    address = _public_address(row)
    if state is InstanceState.RUNNING and address is None:
        state = InstanceState.STARTING
    platform, preset = word(row.spec.resources.platform, 40), word(row.spec.resources.preset, 40)
    gpu = None if platform is None else gpu_of(platform)
    count = _PRESET.match(preset or "")
    return Instance(
        instance_id=instance_id,
        label=word(row.metadata.name),
        state=state,
        status=status,
        unknown_status=unknown_status,
        machine_id=f"{platform}/{preset}/{region}" if platform and preset and region else None,
        gpu=None if gpu is None else gpu.name,
        gpu_wire=platform,
        gpu_count=int(count[1]) if count and int(count[1]) else None,
        disk_gb=_disk_gb(row),
        spot=row.spec.check_presence("preemptible"),  # the SDK shows an empty message for a missing one
        ssh_host=address,
        ssh_port=22 if address else None,
        ssh_user="ubuntu",
        started_at=row.metadata.created_at,
    )


def _public_address(row: Any) -> str | None:
    for interface in row.status.network_interfaces:
        if address := word(interface.public_ip_address.address, 64):
            return address.partition("/")[0]
    return None


def _disk_gb(row: Any) -> float | None:
    managed = row.spec.boot_disk.managed_disk
    size = None if managed is None else whole(managed.spec.size_gibibytes, 1, 1_000_000)
    return None if size is None else float(size)
