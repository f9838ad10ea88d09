"""Shadeform: one API over many clouds. It sells the stock of other sellers, at their prices.

Its offers are instance types × the regions and rental types that each is available in now. An order sets a limit of
time and money that Shadeform itself enforces. Answers contain the start script (`launch_configuration`), and the answer
about one instance its variables (`envs`): gpuwatch never reads them.

source: the vendor's OpenAPI 1.0.0 and guides, and public clients, read 2026-11.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_UP, Decimal
from typing import Any, ClassVar, Final

from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.json_view import rfc3339
from gpuwatch.domain.market.offer import Offer, OfferKind
from gpuwatch.domain.market.spellings import socket_of
from gpuwatch.errors import OfferGone, OrderError, OrderRefused, OutcomeUnknown, PayloadChanged, RefusalKind
from gpuwatch.ports import Instance, InstanceState, Order
from gpuwatch.ports.declarations import Billing, OptionSpec, ProviderInfo, SelfDestruct
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import declared
from gpuwatch.ports.settings import Option
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.basic_launcher import label_among, machine_fields, match_offer_id, not_sent, refuse
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, InstanceGone
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.machine_cloud import MachineCloud
from gpuwatch.providers.toolkit.machine_type import MachineType, fields_of_instance
from gpuwatch.providers.toolkit.post_processing import (
    ID_LENGTH,
    ParseResult,
    RowSkipped,
    if_readable,
    stated,
    unknown_name,
)
from gpuwatch.providers.toolkit.validation import at, matched, number, parse_utc, usd_hour, whole, word

PROVIDER: Final = "shadeform"
INFO = ProviderInfo(
    name=PROVIDER,
    title="Shadeform",
    base_url="https://api.shadeform.ai/v1",
    key_names=("SHADEFORM_API_KEY",),
    searches_without_key=True,
    launches=True,
    no_kept_disk="its API can only restart or delete a machine",
    self_destruct=SelfDestruct(how="Shadeform deletes it at its own deadline", is_movable=True),
    runs_images=False,
    kinds=(OfferKind.LIVE, OfferKind.LISTED),
    spots=(False, True),
    image_runtype="args",
    billing=Billing(prepaid=True),
    options=(
        OptionSpec(name="ssh_key", kind="text", about="Id of an SSH key at Shadeform; default: the account's key."),
        OptionSpec(name="os", kind="text", about="Operating system, spelled as in the type's `os_options`."),
        OptionSpec(
            name="shade_cloud",
            kind="switch",
            default=True,
            about="false: rent in your own account at the cloud, if it is linked to Shadeform.",
        ),
        OptionSpec(
            name="longest_hours",
            kind="number",
            default=24.0,
            least=0.1,
            about="Hours after which Shadeform deletes an instance without a deadline.",
        ),
    ),
    console_url="https://platform.shadeform.ai",
    prerequisites=declared("launching.md#before-the-first-rent", credentials="a key that lists instances"),
)
_DEADLINE_MARGIN: Final = timedelta(minutes=30)  # Shadeform's own deadline is later than gpuwatch's
_SPENDING_FACTOR: Final = Decimal("1.1")
_MIN_LIMIT_USD: Final = Decimal("0.50")
_OWN_ENTRYPOINT: Final = "args"  # the runtype of an image with its own entrypoint
_PORT: Final = re.compile(r"(?:([0-9]{1,5}):)?([0-9]{1,5})(?:/tcp)?")
_LAST_PORT: Final = 65_535
_FIRST_YEAR: Final = 2020  # an earlier time means "not yet"
_NOT_FOUND: Final = ("not found", "does not exist")
_NO_STOCK: Final = ("out_of_stock", "out of stock", "not available in the region")
_NO_CREDIT: Final = ("insufficient fund", "insufficient balance", "insufficient credit", "wallet")
_MAX_GB: Final = 1_000_000.0
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_REGION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,39}")
_COUNT: Final = re.compile(r"x(\d{1,3})$")
_COUNTRY: Final = re.compile(r"([A-Z]{2}),")
_ISO: Final = {"UK": "GB"}
_SELLERS: Final = {"lambdalabs": "lambda"}  # sellers that gpuwatch knows by another name
_INTERCONNECTS: Final = {"sxm": "NVLink", "pcie": "PCIe"}
_RENTAL_TYPES: Final = {"on_demand": False, "spot": True, None: False}  # an entry without one is on demand
_NOT_BY_THE_HOUR: Final = frozenset({"reserved", "reservation", "committed", "cluster"})
_SPOT_NOTE: Final = "gpuwatch cannot order spot at Shadeform: its API documents no way"
_OWN_PRICE_SHARES: Final = (0.06, 5.0)  # of the type's price: anything else is a price in another unit
_KNOWN_FIELDS: Final = frozenset({
    "cloud", "region", "shade_instance_type", "cloud_instance_type", "configuration", "hourly_price",
    "deployment_type", "availability", "boot_time", "memory_in_gb", "storage_in_gb", "vcpus", "num_gpus", "gpu_type",
    "interconnect", "nvlink",
})  # fmt: skip
_REQUIRED_FIELDS: Final = frozenset({"cloud", "shade_instance_type", "configuration", "hourly_price", "availability"})


class ShadeformCloud(MachineCloud):
    """An account at Shadeform. Renting requires money in its wallet. A 404 is not documented, and proves nothing."""

    info, key_header = INFO, "X-API-KEY"
    types_path, types_at = "/instances/types", ("instance_types",)
    types_params: ClassVar = {"sort": "price"}  # without `sort` the order is random
    offer_id = re.compile(rf"({_NAME.pattern})/({_NAME.pattern})/([A-Za-z0-9_. -]{{1,40}})/(\d{{1,8}}(?:\.\d{{1,8}})?)")
    create_path = "/instances/create"
    instance_id = re.compile(r"[A-Za-z0-9_-]{1,64}")
    instances_at, instance_path = ("instances",), "/instances/{}/info"
    # source: the vendor's API reference (instances), read 2026-11
    status_words = StatusWords({
        "creating": InstanceState.STARTING,
        "pending_provider": InstanceState.STARTING,  # may hang, or fail
        "pending": InstanceState.STARTING,
        "active": InstanceState.RUNNING,
        "error": InstanceState.FAILED,
        "deleting": InstanceState.ENDING,  # no longer billed
        "deleted": InstanceState.ENDED,
    })  # fmt: skip
    ends_once = True

    def read_type(self, row: Any, result: ParseResult, observed_at: datetime) -> None:
        """Add an offer of a type for each region and rental type in which it is available. Raises RowSkipped."""
        cloud, name = matched(at(row, "cloud"), _NAME), matched(at(row, "shade_instance_type"), _NAME)
        if cloud is None or name is None:
            raise RowSkipped("no cloud or type")
        price = stated(usd_hour((number(row.get("hourly_price")) or 0.0) / 100), "no usable price")
        found = hardware_of(row.get("configuration"), [name, row.get("cloud_instance_type")])
        count_in_name = _COUNT.search(name)
        if count_in_name is not None and int(count_in_name[1]) != found.gpu_count:
            raise RowSkipped("its name and its configuration tell different numbers of GPUs")
        if not isinstance(regions := row.get("availability"), list):
            raise RowSkipped("no list of regions")
        result.check_drift(row, _KNOWN_FIELDS, _REQUIRED_FIELDS)
        for region in regions:
            with result.counting_skips():
                place = stated(matched(at(region, "region"), _REGION), "no name of a region")
                # only a plain `true` means yes
                if region.get("available") is True and not is_ending(region, observed_at):
                    result.offers += _offers(f"{cloud}/{name}/{place}", row, region, found, price, observed_at)

    def create_body(self, order: Order) -> dict[str, Any]:
        """Build the create request, with `auto_delete`: Shadeform itself ends the instance, whatever happens here.

        The label is its name and a tag.
        """
        parts, now = match_offer_id(order, self.offer_id, PROVIDER), self.client.tools.now()
        _refuse_unsupported(order)
        body: dict[str, Any] = {
            "cloud": parts[1],
            "shade_instance_type": parts[2],
            "region": parts[3],
            "shade_cloud": self.options.get("shade_cloud") is not False,
            "name": order.label,
            "tags": [order.label],
            "auto_delete": auto_delete(order, Decimal(parts[4]) / 100, self.options, now),
        }
        optional = {
            "ssh_key_id": self.options.get("ssh_key"),
            "os": self.options.get("os"),
            "template_id": order.template,
            "envs": _variables(order),
            "launch_configuration": _launch_configuration(order),
        }
        return body | {key: value for key, value in optional.items() if value}

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance of a row."""
        cents, details, tags = number(row.get("hourly_price")), word(row.get("status_details"), 90), row.get("tags")
        place = [word(row.get(key), 40) for key in ("cloud", "shade_instance_type", "region")]
        fields = machine_fields(row, self.status_words, PROVIDER, ip=word(row.get("ip"), 100), user="")
        return Instance(
            **fields
            | {
                "label": label_among(tags if isinstance(tags, list) else (), row.get("name")),
                "status": f"{fields['status']}: {details}" if details else fields["status"],
                "machine_id": "/".join(filter(None, place))[:ID_LENGTH] if all(place) else None,
                "spot": False,
                "listed_usd_hour": None if cents is None else usd_hour(cents / 100),
                "ssh_port": whole(row.get("ssh_port"), 1, _LAST_PORT),
                "ssh_user": word(row.get("ssh_user"), 32),
                "started_at": _time(row.get("active_at")),
                "ends_at": _time(at(row, "auto_delete", "date_threshold")),  # missing in the list
            }
            | fields_of_instance(if_readable(hardware_of, row.get("configuration")))
        )

    def end(self, instance_id: str) -> None:
        """Delete it. Raises OrderError: some clouds cannot delete an instance before it is active."""
        try:
            self.client.order("POST", f"/instances/{instance_id}/delete", kind="delete")
        except InstanceGone:
            raise
        except OfferGone as error:  # a 404 of a server without that path, or a message about stock
            raise OutcomeUnknown(str(error), instance_id) from error

    def move_end(self, instance_id: str, at: datetime) -> None:
        """Move Shadeform's deadline to half an hour after `at`, and its limit of money with it."""
        found = self.get(instance_id)
        if found is None or found.listed_usd_hour is None:
            raise PayloadChanged(f"{PROVIDER}: instance {instance_id} has no price, so its end was not moved")
        since = found.started_at or self.client.tools.now()
        limits = _limits(at + _DEADLINE_MARGIN, since, Decimal(str(found.listed_usd_hour)))
        self.client.order("POST", f"/instances/{instance_id}/update", {"auto_delete": limits}, kind="update")

    def refusal(self, line: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError | None:
        """Map the error of an order. Only 409 OUT_OF_STOCK is on record; else the status decides."""
        code = (word(at(body.value, "error_code")) or "").casefold()
        if reply.status == 404 and isinstance(body.value, dict) and body.has("instance") and body.has(*_NOT_FOUND):
            return InstanceGone(line)
        if not 400 <= reply.status < 500 or reply.status in (401, 403, 408, 429):
            return None
        if reply.status in (404, 410) or code in _NO_STOCK or body.has(*_NO_STOCK):
            return OfferGone(line)
        return OrderRefused(line, RefusalKind.NO_CREDIT) if body.has(*_NO_CREDIT) else None


def hardware_of(configuration: object, names: Sequence[object] = ()) -> MachineType:
    """Parse the hardware of a configuration. Ignores the same fields at the top level of older answers.

    Args:
        names: of the type, at Shadeform and at the cloud. Some types are marked as PCIe although a name says SXM: the
            card then stays open.

    Raises:
        RowSkipped: it has no GPU, or no GPU count.
    """
    wire = stated(word(at(configuration, "gpu_type"), 80), "no GPU")
    count = stated(whole(at(configuration, "num_gpus"), 1, 1_000), "no number of GPUs")
    memory_gib = number(at(configuration, "vram_per_gpu_in_gb"), 1, 5_000)
    socket = word(at(configuration, "interconnect"), 20)
    in_names = (socket_of(_COUNT.sub("", name)) for name in (wire, *names) if isinstance(name, str))
    sockets = list(dict.fromkeys(one for one in in_names if one is not None))  # "A100_80G_sxm4x8" is "sxm"
    link = _INTERCONNECTS.get(socket_of(socket) or "") if set(sockets) <= {socket_of(socket), "nvl"} else None
    spelling = wire if not sockets or socket_of(wire) else f"{wire} {sockets[0]}"
    return MachineType.of(
        wire,
        count,
        memory_gib,
        gpu=catalog().resolve(spelling, memory_gib, sockets[1] if len(sockets) > 1 else socket),
        interconnect="NVLink" if at(configuration, "nvlink") is True else link,
        vcpu=number(at(configuration, "vcpus"), 1, _MAX_GB),
        ram_gib=number(at(configuration, "memory_in_gb"), 1, _MAX_GB),
        disk_gb=number(at(configuration, "storage_in_gb"), 1, _MAX_GB),
    )


def _offers(
    place: str, row: Mapping[str, Any], region: Mapping[str, Any], found: MachineType, usd: float, observed_at: datetime
) -> list[Offer]:
    """Return the offer of one entry of `availability`; none if it is not for sale by the hour. Raises RowSkipped.

    Spot needs a price of its own: the type's price is on demand. On demand, a region's own price counts before the
    type's.
    """
    rental_type = region.get("rental_type")
    if not isinstance(rental_type, str | None):
        raise unknown_name("a rental type that is not known", rental_type)
    if rental_type in _NOT_BY_THE_HOUR:
        return []
    if (spot := _RENTAL_TYPES.get(rental_type)) is None:
        raise unknown_name("a rental type that is not known", rental_type)
    if (own := region.get("hourly_price")) is not None or spot:
        reason = "spot without a price of its own" if spot else "a region's price that is not understood"
        usd = stated(_own_price(own, usd), reason)
    offer_id = f"{place}/spot" if spot else f"{place}/{usd * 100:.10g}"  # the price limits the order
    if len(offer_id) > ID_LENGTH:
        raise RowSkipped("a longer id than can be kept")
    instance_type, is_container = word(row.get("cloud_instance_type"), 60), row.get("deployment_type") == "container"
    notes = [found.gpu.reason, "a container, not a machine" if is_container else None, _SPOT_NOTE if spot else None]
    terms = found.terms(
        instance_type,
        seller=_SELLERS.get(row["cloud"], row["cloud"]),
        gpu_fraction=min(gpu_fraction(instance_type or ""), gpu_fraction(found.gpu_wire)),
        tax_included=None,
        note="; ".join(filter(None, notes)) or None,
    )
    country = _COUNTRY.match(word(region.get("display_name")) or "")  # "US, Kansas City, KS"; no other form is guessed
    offer = found.offer(
        provider=PROVIDER,
        offer_id=offer_id,
        machine_id=place,
        usd_hour=usd,
        terms=terms,
        observed_at=observed_at,
        spot=spot,
        kind=OfferKind.LISTED if spot else OfferKind.LIVE,
        region=region["region"],
        country=None if country is None else _ISO.get(country[1], country[1]),
    )
    return [offer]


def _own_price(value: object, type_usd_hour: float) -> float | None:
    """Return a region's own price in dollars; None: unusable.

    Its unit is not documented: cents like the type's, or dollars as in public answers. Whichever is near the price of
    the type is meant; both never are, because they differ by a factor of 100.
    """
    found, (low, high) = number(value, 0.0), _OWN_PRICE_SHARES
    prices = [] if found is None else [usd_hour(found / 100), usd_hour(found)]
    return next((one for one in prices if one is not None and low <= one / type_usd_hour <= high), None)


def auto_delete(order: Order, usd_hour: Decimal, options: Mapping[str, Option], now: datetime) -> dict[str, str]:
    """Return Shadeform's limits: its deadline, and the cost until then plus ten per cent."""
    hours = number(options.get("longest_hours"), 0.1, 100_000) or 24.0
    ends_at = (
        order.self_destruct_at or (order.deadline and order.deadline + _DEADLINE_MARGIN) or now + timedelta(hours=hours)
    )
    return _limits(ends_at, now, usd_hour)


def _limits(ends_at: datetime, since: datetime, usd_hour: Decimal) -> dict[str, str]:
    seconds = Decimal(max((ends_at - since).total_seconds(), 0.0))
    limit = max(usd_hour * seconds / 3600 * _SPENDING_FACTOR, _MIN_LIMIT_USD)
    return {
        "date_threshold": rfc3339(ends_at),
        "spend_threshold": str(limit.quantize(Decimal("0.01"), ROUND_UP)),
    }


def _launch_configuration(order: Order) -> dict[str, Any] | None:
    """Return what runs once the machine is active: an image with its arguments, or a script on the machine."""
    if order.runtype == _OWN_ENTRYPOINT:
        credentials = order.registry and {"username": order.registry.username, "password": order.registry.password}
        optional = {
            "args": order.onstart,
            "envs": _variables(order),
            "port_mappings": [_port_mapping(port) for port in order.ports],
            "registry_credentials": credentials,
        }
        set_options = {key: value for key, value in optional.items() if value}
        return {"type": "docker", "docker_configuration": {"image": order.image} | set_options}
    if order.onstart is None:
        return None
    text = order.onstart if order.onstart.startswith("#!") else f"#!/bin/bash\n{order.onstart}"
    return {"type": "script", "script_configuration": {"base64_script": b64encode(text.encode()).decode()}}


def _variables(order: Order) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in order.env.items()]


def _port_mapping(port: str) -> dict[str, int]:
    match = _PORT.fullmatch(port)
    if match is None or not all(0 < int(group) <= _LAST_PORT for group in match.groups() if group):
        raise not_sent(PROVIDER, f"port {port[:20]!r}: Shadeform maps TCP ports only, such as 8000 or 8080:8000")
    return {"host_port": int(match[1] or match[2]), "container_port": int(match[2])}


def _refuse_unsupported(order: Order) -> None:
    is_image, prefix = order.runtype == _OWN_ENTRYPOINT, "Shadeform does not support "
    is_known = order.runtype in ("", "ssh", "ssh_direct", _OWN_ENTRYPOINT)
    refuse(PROVIDER, {
        f"{prefix}bids": order.bid_usd_hour is not None,
        f"{prefix}volumes": order.volume is not None,
        f'registry and ports require an image: set runtype = "{_OWN_ENTRYPOINT}"': not is_image
        and bool(order.registry or order.ports),
        f'runtype = "{_OWN_ENTRYPOINT}" runs an image: set image, and no template': is_image
        and (not order.image or order.template is not None),
        f"{prefix}onstart with a template": order.template is not None and order.onstart is not None,
        f'{prefix}runtype = "{order.runtype}" (machines are reached by ssh)': not is_known,
        "the label is longer than 64 characters": len(order.label) > 64,
    })  # fmt: skip


def _time(text: object) -> datetime | None:
    """Parse a time: before the instance runs, the answer has the year 1."""
    timestamp = parse_utc(text)
    return timestamp if timestamp is not None and timestamp.year >= _FIRST_YEAR else None


build = ShadeformCloud.build
