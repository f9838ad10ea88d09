"""Vultr: virtual machines with whole GPUs (Cloud GPU), on demand, at one price per plan and place.

Its offers are plans × the places that have them in stock. A row of an instance may contain its first password: never
read. Bare metal uses other requests and is not supported.

source: the vendor's Go client 3.32.0 and its tests, its generated Python client, its page about billing, its Terraform
provider, dstack's backend, gpuhunt, and answers that users quote in public repositories, read 2026-11. No request has
been sent.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import (
    OfferGone,
    OrderError,
    OrderRefused,
    PayloadChanged,
    ProviderError,
    RefusalKind,
    RefusalScope,
)
from gpuwatch.ports import Instance, InstanceState, Order, ProviderSettings
from gpuwatch.ports.declarations import Billing, OptionSpec, ProviderInfo, Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName, declared
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.basic_launcher import host_name, machine_fields
from gpuwatch.providers.toolkit.catalogue import query_all, read_types
from gpuwatch.providers.toolkit.error_mapping import ErrorBody
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.instance_status import ReadStatus, StatusWords
from gpuwatch.providers.toolkit.machine_cloud import COUNTRY, ListPage, MachineCloud
from gpuwatch.providers.toolkit.machine_type import MachineType, fields_of_instance
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, stated, unknown_name
from gpuwatch.providers.toolkit.validation import at, matched, number, objects, parse_utc, usd_hour, whole, word

PROVIDER: Final = "vultr"
INFO = ProviderInfo(
    name=PROVIDER,
    title="Vultr",
    base_url="https://api.vultr.com/v2",
    key_names=("VULTR_API_KEY",),
    launches=True,
    no_kept_disk="a stopped machine costs its full price",
    runs_images=False,
    billing=Billing(minimum_s=3600.0, step_s=3600.0),  # source: "How am I billed for my servers", 2025-09-15
    options=(
        OptionSpec(name="ssh_key", kind="text", about="Id of an SSH key registered at Vultr; required for renting."),
        OptionSpec(name="image", kind="id", about="System image: id of an operating system; default: Ubuntu 22.04."),
    ),
    label_length=64,  # the maximum of dstack's backend. assumed: the vendor states none
    poll_every_s=60.0,  # a poll queries every place that sells GPUs
    search_interval_s=1.0,
    console_url="https://my.vultr.com",
    prerequisites=declared(
        "providers/vultr.md#before-the-first-rent",
        credentials="a key that lists instances, used from an allowed address",
        key_pair="the SSH key of options.ssh_key",
    ),
)
_CLOUD, _DEDICATED = "vcg", "vdm"  # Cloud GPU: parts and whole GPUs; Dedicated Metal: whole GPUs
_PLAN: Final = re.compile(r"vcg-[a-z0-9-]{1,40}")
_PLACE: Final = re.compile(r"[a-z]{3,8}")
_MEMORY_GB: Final = {"A100": 80.0}  # source: gpuhunt; the name alone is ambiguous
_MEMORY_TOLERANCE: Final = 0.1  # of a card's memory: 80 GB may be stated as 79
_UBUNTU_22_04: Final = 1743  # includes docker and the card's driver on a plan with GPUs. source: dstack's backend
_RENT_PERMISSION: Final = "provisioning"  # source: the tests of the vendor's Go client
_POWER_WORDS: Final = StatusWords({"running": InstanceState.RUNNING, "stopped": InstanceState.STOPPED}, "power_status")
_SERVER_WORDS: Final = StatusWords({
    **dict.fromkeys(("none", "locked", "installingbooting", "isomounting"), InstanceState.STARTING),
    "ok": InstanceState.RUNNING,
}, "server_status")  # fmt: skip
# The model, number and GB of one GPU of the plans of type `vdm`, which state no GPU. The memory in a name is that of
# all GPUs, but does not prove their number: `vcg-mi325x-252c-2872g-1536vram` has 8 GPUs according to one public reader
# and 6 according to another, so it is not here.
# source: two public readers of the list (gpuhunt, sc-crawler), read 2026-11; they agree on every plan here
DEDICATED_PLANS: Final[Mapping[str, tuple[str, int, float]]] = {
    "vcg-a16-6c-64g-16vram": ("A16", 1, 16.0),
    "vcg-a16-96c-878g-256vram": ("A16", 16, 16.0),
    "vcg-a16-96c-960g-256vram": ("A16", 16, 16.0),
    "vcg-a40-24c-120g-48vram": ("A40", 1, 48.0),
    "vcg-a40-96c-480g-192vram": ("A40", 4, 48.0),
    "vcg-a100-12c-120g-80vram": ("A100", 1, 80.0),
    "vcg-a100-96c-896g-320vram": ("A100", 4, 80.0),
    "vcg-a100-96c-960g-640vram": ("A100", 8, 80.0),
    "vcg-h100-216c-1914gb-640vram": ("H100", 8, 80.0),
    "vcg-b200-248c-2826g-1536vram": ("B200", 8, 192.0),
    "vcg-mi355x-252c-2872g-2304vram": ("MI355X", 8, 288.0),
}
Stock = Mapping[tuple[str, str], frozenset[str]]  # (type, place) → plans that can be ordered there


class VultrPlan(MachineType, frozen=True, kw_only=True):
    """One parsed plan. Prices are of the whole machine, including its disk; `usd_hours`: places with another price."""

    name: str
    type: str
    usd_hour: float
    usd_hours: Mapping[str, float]
    places: tuple[str, ...]

    def price_at(self, place: str) -> float:
        """Return USD an hour in one place."""
        return self.usd_hours.get(place, self.usd_hour)


class VultrCloud(MachineCloud):
    """An account at Vultr. Renting requires the id of an SSH key in the settings."""

    info = INFO
    offer_id = re.compile(rf"({_PLAN.pattern})/({_PLACE.pattern})")
    created_at, instance_at = ("instance", "id"), ("instance",)
    # source: the vendor's API v2 reference (instance); "failed" by dstack's backend, "closed" by API v1; read 2026-11
    status_words = StatusWords({
        "pending": InstanceState.STARTING,
        "active": InstanceState.RUNNING,
        "suspended": InstanceState.OFFLINE,
        "resizing": InstanceState.UNKNOWN,  # it runs before and after
        "failed": InstanceState.FAILED,
        "closed": InstanceState.ENDING,
    })  # fmt: skip

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools)
        self._regions: TtlCache[list[Any]] = TtlCache(3600.0, tools.monotonic)
        self._plans: dict[str, VultrPlan] = {}  # as last read, for the prices of instances

    def all_pages(self, name: str, params: Mapping[str, str] | None = None, kind: str = "search") -> list[Any]:
        """Return the rows of a list from all its pages, by a cursor. Raises ProviderError: never a part of it."""

        def read_page(value: Any, received: int) -> ListPage:
            rows, cursor = at(value, name.replace("-", "_")), at(value, "meta", "links", "next")
            if not isinstance(rows, list) or not isinstance(cursor, str):
                raise PayloadChanged(f"{PROVIDER}: the answer is not a list of {name}, with its next page")
            if not cursor and (whole(at(value, "meta", "total")) or 0) > received + len(rows):
                raise self.incomplete(name, received + len(rows))
            return ListPage(rows, {"cursor": cursor} if cursor else None)

        return list(self.each_row(f"/{name}", read_page, {**(params or {}), "per_page": "500"}, kind))

    def fetch(self) -> tuple[ParseResult, datetime]:
        """Return Vultr's plans wherever they are in stock. Raises ProviderError."""
        rows = self.all_pages("plans", {"type": "all"})
        result, plans = parse_plans(rows, self.client.tools.now())
        regions = self._regions.get(lambda: self.all_pages("regions", kind="places"))
        self._plans = {plan.name: plan for plan in plans}
        stock = self._stock(_stock_queries(plans, regions), result)
        now, countries = self.client.tools.now(), _countries(regions)
        for plan in plans:
            result.offers += offers_of(plan, stock, countries, now)
        return result, now

    def _stock(self, places: list[tuple[str, str]], result: ParseResult) -> Stock:
        """Return the plans in stock by type and place; a place without an answer makes the result partial."""
        queries = {f"{kind} {place}": partial(self._free_plans, kind, place) for kind, place in places}
        answers = dict(zip(places, query_all(queries, self.client.tools.stop), strict=True))
        errors = {key: answer for key, answer in answers.items() if isinstance(answer, ProviderError)}
        for (_, place), error in errors.items():
            result.note_missing(f"the stock of {place}: {error}")
        if errors and len(errors) == len(answers):
            raise next(iter(errors.values()))
        result.searches = 1 + len(places)
        return {key: answer for key, answer in answers.items() if not isinstance(answer, ProviderError)}

    def _free_plans(self, kind: str, place: str) -> frozenset[str]:
        value = self.client.get(f"/regions/{place}/availability", {"type": kind}, kind="stock")
        names = at(value, "available_plans")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise PayloadChanged(f"{PROVIDER}: the answer has no available plans")
        return frozenset(names)

    def create_body(self, order: Order) -> dict[str, Any]:
        """Build the create request. Switches off backups, which cost, and the mail about the machine."""
        image = str(self.options.get("image") or _UBUNTU_22_04)
        is_number = image.isascii() and image.isdigit()
        parts = self.parts_of(order, {"options.image is not the number of an operating system": not is_number})
        script = first_boot_script(order.onstart, order.env)
        return {
            "region": parts[2],
            "plan": parts[1],
            "label": order.label,
            "hostname": host_name(order.label) or "gpuwatch",
            "os_id": int(image),
            "sshkey_id": [self.required_ssh_key()],
            "backups": "disabled",
            "enable_ipv6": False,
            "activation_email": False,
            **({} if script is None else {"user_data": b64encode(script.encode()).decode()}),
        }

    def instance_rows(self) -> list[Any]:
        """Return the rows of all virtual machines."""
        return self.all_pages("instances", kind="instances")

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance of a row, with the price of its plan."""
        kind, place, ip = word(row.get("plan"), 44), word(row.get("region"), 8), word(row.get("main_ip"), 64)
        plan = None if kind is None else self._plans.get(kind)
        price = None if plan is None or place is None else plan.price_at(place)
        host = None if ip == "0.0.0.0" else ip  # noqa: S104 - shown by a pending instance
        fields = machine_fields(row, self.status_words, PROVIDER, ip=host, user="root")
        if fields["state"] is InstanceState.RUNNING:
            fields["state"], fields["unknown_status"] = _machine_status(row)
        return Instance(
            **fields,
            label=word(row.get("label")),
            machine_id=f"{kind}/{place}" if kind and place else None,
            spot=False,
            listed_usd_hour=price,
            stopped_usd_hour=price,  # still billed when stopped
            started_at=parse_utc(row.get("date_created")),
            **fields_of_instance(plan) | {"disk_gb": number(row.get("disk"), 0, 1e7)},
        )

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check that the key may rent, and that the account has the SSH key of the settings. Raises nothing."""
        return [self._rent_permission(), *self.check_ssh_key(orders)]

    def ssh_key_rows(self) -> list[Any]:
        """Return the rows of the account's SSH keys."""
        return self.all_pages("ssh-keys", kind="instances")

    def _rent_permission(self) -> Prerequisite:
        name, what = PrerequisiteName.CREDENTIALS, f"the permission {_RENT_PERMISSION}"
        try:
            self.client.require_key()
            permissions = at(self.client.get("/account", kind="instances"), "account", "acls")
        except ProviderError as error:
            return Prerequisite(name=name, met=None, text=str(error))
        if not isinstance(permissions, list) or not permissions:
            return Prerequisite(name=name, met=None, text="Vultr does not state the permissions of the key")
        met = _RENT_PERMISSION in permissions
        text, mend = f"the key {'has' if met else 'lacks'} {what}", "" if met else f"grant its user {what}"
        # not blocking: the permission comes from a vendor's example, and a refused order costs nothing
        return Prerequisite(name=name, met=met, text=text, mend=mend, is_blocking=met)

    def is_not_found(self, body: ErrorBody) -> bool:
        """Whether it is the sentence that the vendor's Terraform provider knows."""
        return body.status in (400, 404) and isinstance(body.value, dict) and body.has("invalid instance id")

    def refusal(self, line: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError | None:
        """Map the error of an order. Vultr has no codes: its sentences are quoted in public."""
        if 400 <= reply.status < 500 and body.has("plan is not available in the selected region"):
            return OfferGone(line)
        if 400 <= reply.status < 500 and body.has("support request for access to this product"):
            return OrderRefused(line, RefusalKind.OTHER, RefusalScope.ACCOUNT)
        return None


def _machine_status(row: Mapping[str, Any]) -> ReadStatus:
    """Return the state of an active contract: `power_status` is the machine's, `server_status` the system's."""
    server, power = (word(row.get(field), 40) for field in ("server_status", "power_status"))
    system = _SERVER_WORDS.read(server) if server else ReadStatus(InstanceState.RUNNING)
    if system.state is InstanceState.STARTING:
        return system
    machine = _POWER_WORDS.read(power) if power else ReadStatus(InstanceState.UNKNOWN)
    return ReadStatus(machine.state, machine.unknown or system.unknown)


def _stock_queries(plans: list[VultrPlan], regions: list[Any]) -> list[tuple[str, str]]:
    """Return the pairs of type and place to request. A dedicated plan names no places, so all are requested."""
    every_place = [row["id"] for row in objects(regions) if isinstance(row.get("id"), str)]
    found = set[tuple[str, str]]()
    for plan in plans:
        places = [*plan.places, *every_place] if plan.type == _DEDICATED else plan.places
        found.update((plan.type, place) for place in places if _PLACE.fullmatch(place))
    return sorted(found)


def _countries(rows: list[Any]) -> dict[str, str]:
    """Return place → country, as far as it is stated."""
    return {str(row.get("id")): found for row in objects(rows) if (found := matched(row.get("country"), COUNTRY))}


def parse_plans(rows: list[Any], now: datetime | None = None) -> tuple[ParseResult, list[VultrPlan]]:
    """Parse the plans with whole GPUs that are not announced to end by `now`, and count what was skipped.

    Raises:
        PayloadChanged: none of them is readable, or the list is empty: it contains sold-out plans, too.
    """
    plans: list[VultrPlan] = []

    def read(row: Any, _result: ParseResult) -> bool:
        plan = parse_plan(row)
        plans.extend([plan] if plan else [])
        return plan is not None

    return read_types(rows, PROVIDER, read, now), plans


def parse_plan(row: object) -> VultrPlan | None:
    """Parse one plan; None: no whole GPU, or not orderable on demand. Raises RowSkipped: unreadable."""
    if not isinstance(row, dict):
        raise RowSkipped("no plan")
    if row.get("deploy_ondemand") is False or not _has_gpus(row):
        return None  # without on demand, `hourly_cost` is no price that anybody can get
    name = stated(matched(row.get("id"), _PLAN), "no name")
    if not isinstance(places := row.get("locations"), list):
        raise RowSkipped("no list of places")
    if (hardware := _hardware(row, name)) is None:
        return None
    ram_mib = number(row.get("ram"), 1, 1e9)
    return VultrPlan(
        name=name,
        type=str(row.get("type")),
        **hardware,
        usd_hour=stated(usd_hour(row.get("hourly_cost")), "no usable price"),
        usd_hours=_prices_by_place(row.get("location_cost")),
        places=tuple(place for place in places if matched(place, _PLACE)),
        vcpu=number(row.get("vcpu_count"), 1, 10_000),
        ram_gib=None if ram_mib is None else round(ram_mib / 1024, 1),
        disk_gb=number(row.get("disk"), 1, 1e7),
    )


def _has_gpus(row: Mapping[str, Any]) -> bool:
    """Whether the type is one with GPUs. Raises RowSkipped: it is a new one, and the plan has GPUs."""
    kind = stated(row.get("type"), "no type of the plan")
    if kind in (_CLOUD, _DEDICATED):
        return True
    if word(row.get("gpu_type")) is None and str(row.get("gpu_brand") or "").casefold() in ("none", ""):
        return False
    raise unknown_name("a plan with GPUs of a type that is not known", kind)


def _hardware(row: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return the GPUs of a plan as fields of its type; None: a part of one. Raises RowSkipped.

    A plan that states its GPUs is read from its fields, a dedicated one by its name: it has no such fields.
    """
    wire = word(row.get("gpu_type"), 60)
    if wire is not None:
        return _stated_hardware(row, wire)
    if row.get("type") != _DEDICATED:
        raise RowSkipped("no name of its GPU")
    if name not in DEDICATED_PLANS:
        raise unknown_name("a dedicated plan of an unknown configuration", name)
    gpu, count, memory_gb = DEDICATED_PLANS[name]
    return _gpus(gpu, gpu, count, memory_gb)


def _gpus(model: str, wire: str, count: int, memory_gb: float) -> dict[str, Any]:
    gpu = catalog().resolve(model, memory_gb)
    return {"gpu": gpu, "gpu_wire": wire, "gpu_count": count, "gpu_memory_gib": memory_gb}


def _stated_hardware(row: Mapping[str, Any], wire: str) -> dict[str, Any] | None:
    model = wire.partition("_")[2] or wire
    total_gb = stated(number(row.get("gpu_vram_gb"), 1, 100_000), "no memory of its GPUs")
    card = catalog().get(catalog().resolve(model, _MEMORY_GB.get(model)).name)
    gpu_count = row.get("gpu_count")
    if isinstance(gpu_count, str) and "/" in gpu_count:  # "1/4": seen in public
        return None
    count = whole(gpu_count, 1, 1_000)
    if count is None:
        if card is None:
            raise RowSkipped("a GPU that nobody knows, and no number of them")
        if total_gb < card.memory_gib * (1 - _MEMORY_TOLERANCE):
            return None
        count = round(total_gb / card.memory_gib)
    if card is not None and abs(total_gb / count - card.memory_gib) > card.memory_gib * _MEMORY_TOLERANCE:
        raise RowSkipped("memory and number of its GPUs do not fit")
    return _gpus(model, wire, count, round(total_gb / count, 1))


def _prices_by_place(value: object) -> dict[str, float]:
    """Return place → price, for places with a special price; `[]`: none has one. Raises RowSkipped: unreadable."""
    if value in (None, []):
        return {}
    if not isinstance(value, dict):
        raise RowSkipped("places' own prices that cannot be read")
    reason = "a place's own price that cannot be read"
    return {str(place): stated(usd_hour(at(cost, "hourly_cost")), reason) for place, cost in value.items()}


def offers_of(plan: VultrPlan, stock: Stock, countries: Mapping[str, str], observed_at: datetime) -> Iterator[Offer]:
    """Yield one offer per place of a plan with stock."""
    for kind, place in sorted(stock):
        if kind == plan.type and plan.name in stock[kind, place]:
            yield plan.offer(
                provider=PROVIDER,
                offer_id=f"{plan.name}/{place}",
                usd_hour=plan.price_at(place),
                terms=plan.terms(plan.name),
                observed_at=observed_at,
                region=place,
                country=countries.get(place),
            )


build = VultrCloud.build
