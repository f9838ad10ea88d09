"""Verda, formerly DataCrunch: virtual machines in a few places of its own, on demand and as spot.

Its offers are instance types × the places with stock, including the system disk. The disk is a volume with a price of
its own: a spot instance deletes it itself; gpuwatch deletes it with any other. Start scripts are stored at Verda.

source: the vendor's Python client 1.25.0 and its tests, its OpenAPI as published in public, gpuhunt 0.1.34, dstack's
backend and an issue of the vendor's command line, read 2026-11. No request has been sent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import NO_GPU
from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderError,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    ProviderError,
    RefusalKind,
)
from gpuwatch.ports import Created, Instance, InstanceState, Order, ProviderSettings
from gpuwatch.ports.declarations import Billing, OptionSpec, ProviderInfo, Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import declared
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.basic_launcher import created_instance, host_name, machine_fields
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, InstanceGone
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.machine_cloud import UUID, MachineCloud
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, if_readable, stated
from gpuwatch.providers.toolkit.validation import (
    at,
    matched,
    number,
    objects,
    parse_utc,
    usd_hour,
    whole,
    word,
)

PROVIDER: Final = "verda"
INFO = ProviderInfo(
    name=PROVIDER,
    title="Verda",
    base_url="https://api.verda.com/v1",
    key_names=("VERDA_CLIENT_SECRET", "DATACRUNCH_CLIENT_SECRET"),
    launches=True,
    sells_cpu_machines=True,
    no_kept_disk="a machine that is shut down costs its full price, and the price of a hibernated one is not published",
    runs_images=False,
    spots=(False, True),
    billing=Billing(prepaid=True),
    options=(
        OptionSpec(
            name="client_id", kind="text", about="Id of the API credentials (required); the key is their secret."
        ),
        OptionSpec(name="ssh_key", kind="text", about="Id of an SSH key registered at Verda; required for renting."),
        OptionSpec(name="image", kind="text", about="System image, by name or id; default: Ubuntu with CUDA."),
    ),
    default_disk_gb=50.0,
    label_length=60,  # of hostname and description. source: dstack's backend
    search_interval_s=1.0,  # no limit is published
    console_url="https://console.verda.com",
    prerequisites=declared(
        "launching.md#before-the-first-rent",
        credentials="a key that lists instances",
        balance="money on the account",
        key_pair="the SSH key of options.ssh_key",
    ),
)
MIN_DISK_GB: Final = 50.0  # the minimum of dstack's backend. assumed: the vendor states none
_DISK_TYPE: Final = "NVMe"  # of a system disk
_TYPE: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_PLACE: Final = re.compile(r"[A-Z0-9-]{1,16}")
_COUNT_FIRST: Final = re.compile(r"^(\d{1,3})\s?x\s+")
_COUNTRIES: Final = {"FIN": "FI", "ICE": "IS"}  # source: the places that the vendor's client names
_IMAGE: Final = "ubuntu-24.04-cuda-12.8-open-docker"  # source: the vendor's client
_LEGACY_IMAGE: Final = "2088da25-bb0d-41cc-a191-dccae45d96fd"  # Ubuntu 22.04, CUDA 12.0. source: dstack's backend
_CPU_IMAGE: Final = "ubuntu-24.04"  # and `CPU.`. source: the vendor's command line and release notes, read 2026-11
_LEGACY_TYPES: Final = re.compile(r"\d+(V100|A6000)\.")  # newer images do not support them. source: the same
_NO_CAPACITY: Final = "no_capacity"
_NOT_FOUND_MESSAGES: Final = ("invalid instance id", "can't discontinue a discontinued instance")
_TOKEN: Final = re.compile(r"[!-~]{1,8192}")
_KNOWN_FIELDS: Final = frozenset(
    {
        "id", "instance_type", "price_per_hour", "spot_price", "spot_price_per_hour", "description", "cpu", "gpu",
        "memory", "gpu_memory", "storage", "best_for", "model", "name", "p2p", "currency", "manufacturer",
        "display_name", "supported_os", "deploy_warning", "serverless_price", "serverless_spot_price",
        "dynamic_price", "max_dynamic_price",
    }
)  # fmt: skip
_REQUIRED_FIELDS: Final = frozenset({"instance_type", "price_per_hour", "gpu", "gpu_memory"})
Stock = Mapping[bool, Mapping[str, list[str]]]  # by rental type (True is spot): place → types in stock there


class VerdaCloud(MachineCloud):
    """An account at Verda. Renting requires a balance, and the id of an SSH key in the settings."""

    info, logs_in = INFO, True
    offer_id = re.compile(rf"({_TYPE.pattern})/({_PLACE.pattern})(/spot)?")
    # source: the vendor's Go SDK (instances_types.go) and Python SDK (constants.py), read 2026-11
    status_words = StatusWords({
        **dict.fromkeys(
            ("new", "ordered", "validating", "pending", "provisioning", "restoring"), InstanceState.STARTING
        ),
        "running": InstanceState.RUNNING,
        **dict.fromkeys(("offline", "starting_hibernation", "hibernating"), InstanceState.STOPPED),
        **dict.fromkeys(("error", _NO_CAPACITY, "notfound"), InstanceState.FAILED),
        "deleting": InstanceState.ENDING,
        **dict.fromkeys(("discontinued", "deleted"), InstanceState.ENDED),
        "unknown": InstanceState.UNKNOWN,
    })  # fmt: skip
    ssh_keys_path = "/sshkeys"
    prerequisites = MachineCloud.check_ssh_key

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools)
        self._client_secret = settings.api_key or ""
        self._disk_prices: TtlCache[float] = TtlCache(3600.0, tools.monotonic)
        self._volumes: dict[str, str] = {}  # instance → its system disk, from the newest answers
        self._labels: dict[str, str] = {}  # instance → its label, the name of its start script

    def log_in(self, client: ApiClient) -> tuple[str, float]:
        """Get a token for an id and a secret; it authenticates every other request for an hour."""
        client.require_key()
        client_id = str(self.options.get("client_id") or "")
        if not client_id:
            where = f"[providers.{PROVIDER}.options]"
            raise KeyRejected(f'{PROVIDER}: the key is the secret only; add client_id = "…" to {where}')
        body = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": self._client_secret}
        value = client.request_token("/oauth2/token", body)
        token = matched(at(value, "access_token"), _TOKEN)
        if token is None:
            raise PayloadChanged(f"{PROVIDER}: the login answer has no token")
        return token, number(at(value, "expires_in"), 1.0, 1e7) or 0.0

    def fetch(self) -> tuple[ParseResult, datetime]:
        """Return Verda's types wherever they are in stock. Raises ProviderError."""
        disk_usd = self._disk_prices.get(lambda: disk_usd_gb_month(self.client.get("/volume-types")))
        types, skipped_rows = self.client.get("/instance-types", {"currency": "usd"}), ParseResult(searches=0)
        stock = {
            spot: parse_stock(self.client.get("/instance-availability", {"isSpot": str(spot).lower()}), skipped_rows)
            for spot in (False, True)
        }
        now = self.client.tools.now()
        result = self.parse_offers(types, stock, disk_usd, now)
        result.add(skipped_rows)
        result.searches = 1 + len(stock)
        return result, now

    def parse_offers(self, value: object, stock: Stock, disk_usd: float, observed_at: datetime) -> ParseResult:
        """Parse the offers of `GET /instance-types`: one per type, place and rental type in stock.

        If no place is listed for either rental type, the answer is partial: a place without stock has an empty list.

        Raises:
            PayloadChanged: it is not a list of types, or none of them is usable.
        """
        read = partial(_read_type, stock=stock, disk_usd=disk_usd, observed_at=observed_at)
        result = self.read_rows(value, read, observed_at)
        if not any(stock.values()):
            result.note_missing("no place is listed with its stock")
        return result

    def create(self, order: Order) -> Created:
        """Rent once. Stores the start script first, and removes it if nothing was created. Raises OrderError."""
        body, script = self.create_body(order), first_boot_script(order.onstart, order.env)
        self.client.require_key_to_order()
        if script is not None:
            body["startup_script_id"] = self._store_script(order.label, script)
        try:
            created = self.send_create(body)
        except OutcomeUnknown:
            raise
        except OrderError:
            self._delete_script(body.get("startup_script_id"))
            raise
        self._labels[created.instance_id] = order.label
        return created

    def create_body(self, order: Order) -> dict[str, Any]:
        """Build the create request, without a start script. The label is its description, and in the host name."""
        spot = order.bid_usd_hour is not None
        is_other_type = spot is not order.offer_id.endswith("/spot")
        reasons = {"a spot offer requires a bid, and other offers accept none": is_other_type}
        parts = self.parts_of(order, reasons, takes_bids=True)
        name = host_name(order.label)
        return {
            "instance_type": parts[1],
            "image": self.options.get("image") or _image_of(parts[1]),
            "ssh_key_ids": [self.required_ssh_key()],
            "hostname": name or "gpuwatch",
            "description": order.label,
            "location_code": parts[2],
            "is_spot": spot,
            "contract": "SPOT" if spot else "PAY_AS_YOU_GO",
            "pricing": "FIXED_PRICE",
            "os_volume": {
                "name": f"{name}-disk",
                "size": math.ceil(max(order.disk_gb, MIN_DISK_GB)),
                **({"on_spot_discontinue": "delete_permanently"} if spot else {}),
            },
        }

    def parse_created(self, reply: HttpReply) -> Created:
        """Return the id in a create's 2xx: its body, bare or in quotes. Raises OutcomeUnknown for anything else."""
        return created_instance(reply.body[:100].decode("ascii", "replace").strip().strip('"'), UUID, PROVIDER)

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance of a row; remembers its disk and its label."""
        ip, count = word(row.get("ip"), 64), whole(at(row, "gpu", "number_of_gpus"), 0, 1_000)
        wire, memory = if_readable(partial(_hardware, count=count), row) or (None, None)
        kind, place = word(row.get("instance_type"), 40), word(row.get("location") or row.get("location_code"), 16)
        price = usd_hour(row.get("price_per_hour"))
        fields = machine_fields(row, self.status_words, PROVIDER, ip=ip, user="root")
        label, volume = word(row.get("description")), matched(row.get("os_volume_id"), UUID)
        if label is not None:
            self._labels[fields["instance_id"]] = label
        if volume is not None:
            self._volumes[fields["instance_id"]] = volume
        return Instance(
            **fields,
            label=label,
            is_placed=fields["status"] != _NO_CAPACITY,
            machine_id=f"{kind}/{place}" if kind and place else None,
            gpu=None if wire is None else catalog().resolve(wire, memory).name,
            gpu_wire=wire,
            gpu_count=count,
            gpu_memory_gib=memory,
            spot=row.get("is_spot") is True,
            listed_usd_hour=price,
            stopped_usd_hour=price,  # still billed when shut down
            started_at=parse_utc(row.get("created_at")),
        )

    def end(self, instance_id: str) -> None:
        """Delete an instance, its system disk and its start script. Raises OrderError."""
        if instance_id not in self._volumes:
            with suppress(ProviderError):  # the disk is unknown then, and the instance must still end
                found = self.get(instance_id)  # remembers its disk
                if found is None or found.state is InstanceState.ENDED:
                    return
        volume = self._volumes.get(instance_id)
        volume_ids = [volume] if volume else None
        body = {"id": [instance_id], "action": "delete", "volume_ids": volume_ids, "delete_permanently": True}
        try:
            self.client.order("PUT", "/instances", body, kind="delete")
        except InstanceGone:  # an earlier request ended it, but its answer was lost
            self._delete_script_of(instance_id)
            raise
        self._delete_script_of(instance_id)

    def credit_usd(self) -> float | None:
        """Return the balance; None: it is in another currency. Raises ProviderError."""
        return self.read_credit("/balance", "amount", currency_key="currency")

    def _store_script(self, label: str, script: str) -> str:
        """Store a start script; return its id. Raises OrderRefused: not stored, so nothing is rented."""
        try:
            reply = self.client.order("POST", "/scripts", {"name": label, "script": script}, kind="scripts")
            return self.parse_created(reply).instance_id
        except OutcomeUnknown as error:
            raise OrderRefused(f"{PROVIDER}: nothing was rented: {error}", RefusalKind.OTHER) from error

    def _delete_script(self, script_id: object) -> None:
        """Remove a start script, if possible: one that stays costs nothing."""
        if isinstance(script_id, str):
            with suppress(OrderError):
                self.client.order("DELETE", f"/scripts/{script_id}", kind="scripts")

    def _delete_script_of(self, instance_id: str) -> None:
        """Remove the start script of an instance that was just ended: it may contain secrets."""
        label = self._labels.pop(instance_id, None)
        if label is not None:
            with suppress(ProviderError):
                for one in objects(self.client.get("/scripts", kind="scripts")):
                    if one.get("name") == label:
                        self._delete_script(matched(one.get("id"), UUID))

    def is_not_found(self, body: ErrorBody) -> bool:
        """Whether it is a sentence of Verda about an instance that is gone."""
        return body.status in (400, 404, 410) and isinstance(body.value, dict) and body.has(*_NOT_FOUND_MESSAGES)

    def refusal(self, line: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError | None:
        """Map the error of an order. A 503 means "no stock" only if its sentence says so."""
        if reply.status in (400, 409, 503) and body.has("not enough resources"):
            return OfferGone(line)
        if 400 <= reply.status < 500 and body.code == "insufficient_funds":
            return OrderRefused(line, RefusalKind.NO_CREDIT)
        return None


def disk_usd_gb_month(value: object) -> float:
    """Return the price of a GB of system disk for 720 hours. Raises PayloadChanged: it is not in dollars."""
    for row in objects(value):
        price = at(row, "price", "price_per_month_per_gb")
        if row.get("type") == _DISK_TYPE and (found := number(price, 0.0, 100.0)) is not None:
            if str(at(row, "price", "currency")).casefold() != "usd":
                break
            return found
    raise PayloadChanged(f"{PROVIDER}: no price of an {_DISK_TYPE} disk in US dollars")


def parse_stock(value: object, result: ParseResult) -> dict[str, list[str]]:
    """Parse place → types in stock there; a malformed row makes the answer partial.

    Raises:
        PayloadChanged: it is not a list of places, or none of them is usable.
    """
    if not isinstance(value, list):
        raise PayloadChanged(f"{PROVIDER}: the answer has no stock by location")
    found: dict[str, list[str]] = {}
    for row in value:
        place, names = matched(at(row, "location_code"), _PLACE), at(row, "availabilities")
        if place and isinstance(names, list) and all(isinstance(one, str) for one in names):
            found.setdefault(place, []).extend(names)
        else:
            result.note_missing("the stock of a place cannot be read")
    if value and not found:
        raise PayloadChanged(f"{PROVIDER}: the stock of no place can be read")
    return found


def _read_type(row: Any, result: ParseResult, stock: Stock, disk_usd: float, observed_at: datetime) -> bool:
    """Add the offers of a type; False: it has no GPU. Raises RowSkipped: not a type, or malformed numbers."""
    if not isinstance(row, dict):
        raise RowSkipped("no instance type")
    result.check_drift(row, _KNOWN_FIELDS, _REQUIRED_FIELDS)
    count = stated(whole(at(row, "gpu", "number_of_gpus"), 0, 1_000), "no number of GPUs")
    name = stated(matched(row.get("instance_type"), _TYPE), "no name")
    if str(row.get("currency") or "usd").casefold() != "usd":
        raise RowSkipped("a price that is not in dollars")
    usd_hours = {False: stated(usd_hour(row.get("price_per_hour")), "no usable price")}
    if spot_price := usd_hour(row.get("spot_price", row.get("spot_price_per_hour"))):
        usd_hours[True] = spot_price
    in_text = _COUNT_FIRST.match(word(at(row, "gpu", "description"), 80) or "")
    if in_text and int(in_text[1]) != count:
        raise RowSkipped("two different numbers of its GPUs")
    wire, memory = _hardware(row, count)
    kind = MachineType.of(
        wire,
        count,
        memory,
        interconnect="NVLink" if "SXM" in wire.upper() and count > 1 else None,
        vcpu=number(at(row, "cpu", "number_of_cores"), 1, 10_000),
        ram_gib=number(at(row, "memory", "size_in_gigabytes"), 1, 100_000),
    )
    terms = kind.terms(name, least_disk_gb=MIN_DISK_GB)
    for spot, price in usd_hours.items():
        for place in [place for place, types in stock.get(spot, {}).items() if name in types]:
            offer = kind.offer(
                provider=PROVIDER,
                offer_id=f"{name}/{place}/spot" if spot else f"{name}/{place}",
                machine_id=f"{name}/{place}",
                usd_hour=price + disk_usd * MIN_DISK_GB / HOURS_A_MONTH,
                quoted_disk_gb=MIN_DISK_GB,
                disk_usd_gb_month=disk_usd,
                terms=terms,
                observed_at=observed_at,
                spot=spot,
                region=place,
                country=_COUNTRIES.get(place.partition("-")[0]),
            )
            result.offers.append(offer)
    return count > 0


def _image_of(kind: str) -> str:
    """Return the system image of a machine type, with the driver of its GPUs."""
    if kind.startswith("CPU."):
        return _CPU_IMAGE
    return _LEGACY_IMAGE if _LEGACY_TYPES.match(kind) else _IMAGE


def _hardware(row: Mapping[str, Any], count: int | None) -> tuple[str, float | None]:
    """Return the GPU's spelling without its number, and the GB of one GPU. Raises RowSkipped: none is stated."""
    if count == 0:
        return NO_GPU, None
    text = word(at(row, "gpu", "description"), 80) or word(row.get("model"), 80)
    total = number(at(row, "gpu_memory", "size_in_gigabytes"), 1, 100_000)
    spelling = _COUNT_FIRST.sub("", stated(text, "no name of its GPU"))
    return spelling, None if total is None or count is None else round(total / count, 1)


build = VerdaCloud.build
