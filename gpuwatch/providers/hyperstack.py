"""Hyperstack (NexGen Cloud): virtual machines in regions of its own, on demand, at a price per GPU.

Its offers are flavors in stock in a region, at the price per GPU of the price book.

source: the vendor's Python SDK of 2026-04 and its pages about billing and states, SkyPilot's provisioner and catalogue,
and public programs that quote its answers, read 2026-11. No request has been sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any, Final

from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import Created, Instance, InstanceState, Order
from gpuwatch.ports.declarations import Billing, OptionSpec, ProviderInfo
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName, declared
from gpuwatch.providers.toolkit.basic_launcher import created_instance, decoded_order, machine_fields
from gpuwatch.providers.toolkit.error_mapping import ErrorBody
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.instance_status import StatusWords
from gpuwatch.providers.toolkit.machine_cloud import ListPage, MachineCloud
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, stated
from gpuwatch.providers.toolkit.validation import at, matched, number, objects, parse_utc, usd_hour, whole, word

PROVIDER: Final = "hyperstack"
INFO = ProviderInfo(
    name=PROVIDER,
    title="Hyperstack",
    base_url="https://infrahub-api.nexgencloud.com/v1",
    key_names=("HYPERSTACK_API_KEY",),
    launches=True,
    no_kept_disk="a stopped machine costs its full price, and what a hibernated one costs cannot be read",
    runs_images=False,
    billing=Billing(step_s=60.0, prepaid=True),  # source: the vendor's pages about prices and billing, 2026-08
    options=(
        OptionSpec(name="ssh_key", kind="text", about="Name of a key pair at Hyperstack; required for renting."),
        OptionSpec(
            name="environment",
            kind="text",
            about="Environment to rent in; {region} is replaced.",
            default="default-{region}",
        ),
        OptionSpec(
            name="image", kind="text", about="System image, by name.", default="Ubuntu Server 22.04 LTS R535 CUDA 12.2"
        ),
    ),
    label_length=50,  # source: the vendor's page about creating a machine
    search_interval_s=1.0,  # the vendor allows 500 requests a minute
    console_url="https://console.hyperstack.cloud",
    prerequisites=declared(
        "providers/hyperstack.md#before-the-first-rent",
        credentials="a key that lists virtual machines",
        balance="credit on the account",
        key_pair="the key pair of options.ssh_key, in the environment of the region",
    ),
)
_ID: Final = re.compile(r"\d{1,18}")
_FLAVOR: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_REGION: Final = re.compile(r"[A-Z0-9-]{1,20}")
_MEMORY: Final = re.compile(r"-(\d{2,3})G\b")
_COUNTRIES: Final = {"CANADA": "CA", "NORWAY": "NO", "US": "US"}  # source: a public reader of the API, 2026-08
_NOT_ON_DEMAND: Final = re.compile(r"(?i)[-_ ](?:spot|preemptible|reserved|reservation)\b")
_STARTING: Final = ("BUILD", "CREATING", "STARTING", "REBOOTING", "HARD_REBOOT", "RESTORING")
_SSH_RULE: Final = {
    "direction": "ingress", "protocol": "tcp", "ethertype": "IPv4", "remote_ip_prefix": "0.0.0.0/0",
    "port_range_min": 22, "port_range_max": 22,
}  # fmt: skip


class HyperstackCloud(MachineCloud):
    """An account at Hyperstack. Renting requires the name of a key pair in the settings; a machine's name is its label.

    The answer for no stock is not documented: the status decides.
    """

    info, key_header = INFO, "api_key"
    offer_id = re.compile(rf"({_FLAVOR.pattern})/({_REGION.pattern})")
    create_path = instances_path = "/core/virtual-machines"
    instance_id, has_numeric_ids = _ID, True
    instance_path, instance_at = "/core/virtual-machines/{}", ("instance",)
    # source: "VM API states and statuses" of the vendor's reference, and SkyPilot's provisioner; read 2026-11
    status_words = StatusWords({
        **dict.fromkeys(_STARTING, InstanceState.STARTING),
        "ACTIVE": InstanceState.RUNNING,
        **dict.fromkeys(("STOPPING", "SHUTOFF"), InstanceState.STOPPED),  # billed like a running machine
        **dict.fromkeys(("HIBERNATING", "HIBERNATED"), InstanceState.STOPPED),
        "ERROR": InstanceState.FAILED,
        "DELETING": InstanceState.ENDING,
    })  # fmt: skip
    ssh_key_what, ssh_key_field = "a key pair", "name"

    def fetch(self) -> tuple[ParseResult, datetime]:
        """Return all flavors in stock, at the prices of the book. Raises ProviderError."""
        book = self.client.get("/pricebook", kind="prices")  # not paced as a search: it belongs to one
        prices = parse_prices(book, self.client.tools.now())
        value, now = self.client.get("/core/flavors"), self.client.tools.now()
        result = self.parse_flavors(value, prices, now)
        result.searches = 2
        return result, now

    def parse_flavors(self, value: object, prices: Mapping[str, float], observed_at: datetime) -> ParseResult:
        """Parse the offers of `GET /core/flavors`: one per flavor and region in stock. Raises PayloadChanged."""
        read = partial(read_flavor, prices=prices, observed_at=observed_at)
        return self.read_rows(self.type_rows(value), read, observed_at)

    def type_rows(self, value: object) -> object:
        """Return the flavors of all groups; a group that cannot be read counts as a row."""
        groups = at(value, "data")
        if at(value, "status") is not True or not isinstance(groups, list):
            return None
        flavors = [at(group, "flavors") for group in groups]
        return [row for rows in flavors for row in (rows if isinstance(rows, list) else [None])]

    def all_pages(self, path: str, name: str) -> list[Any]:
        """Return the rows of a list from all pages. Raises ProviderError: never a part of it."""
        numbers = count(2)

        def read_page(value: Any, received: int) -> ListPage:
            rows = at(value, name) if at(value, "status") is True else None
            return self.counted_page(name, rows, at(value, "count"), received, lambda _: {"page": str(next(numbers))})

        return list(self.each_row(path, read_page, {"page": "1", "pageSize": "100"}))

    def create_body(self, order: Order) -> dict[str, Any]:
        """Build the create request: one machine with a public address; its SSH port stays 22. Raises OrderRefused."""
        parts, script = self.parts_of(order, ports="only SSH is open"), first_boot_script(order.onstart, order.env)
        return {
            "name": order.label,
            "environment_name": self.environment(parts[2]),
            "image_name": self.options.get("image"),
            "flavor_name": parts[1],
            "key_name": self.required_ssh_key(),
            "count": 1,
            "assign_floating_ip": True,
            "enable_port_randomization": False,
            "security_rules": [_SSH_RULE],
            "labels": ["gpuwatch"],
            **({} if script is None else {"user_data": script}),
        }

    def environment(self, region: str) -> str:
        """Return the environment in which to rent."""
        return str(self.options.get("environment") or "default-{region}").replace("{region}", region)

    def parse_created(self, reply: HttpReply) -> Created:
        """Return the one machine of a create's answer. Raises OutcomeUnknown."""
        machines = objects(at(decoded_order(reply, PROVIDER), "instances"))
        return created_instance(str(machines[0].get("id")) if len(machines) == 1 else None, _ID, PROVIDER)

    def instance_rows(self) -> list[Any]:
        """Return the rows of all machines."""
        return self.all_pages(self.instances_path, "instances")

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance of a row; a machine that has ended has no row."""
        ip, flavor, region = word(row.get("floating_ip"), 64), at(row, "flavor"), at(row, "environment", "region")
        name, place, wire = word(at(flavor, "name"), 40), word(region, 20), word(at(flavor, "gpu"), 60)
        gpu, memory_gib = (None, None) if wire is None else gpu_of(wire)
        fields = machine_fields(row, self.status_words, PROVIDER, ip=ip, user="ubuntu", waits_for_ip=True)
        if not _ID.fullmatch(fields["instance_id"]):
            raise PayloadChanged(f"{PROVIDER}: an instance id has an unexpected format")
        return Instance(
            **fields,
            label=word(row.get("name")),
            machine_id=f"{name}/{place}" if name and place else None,
            gpu=None if gpu is None else gpu.name,
            gpu_wire=wire,
            gpu_count=whole(at(flavor, "gpu_count"), 1, 1_000),
            gpu_memory_gib=memory_gib,
            spot=False,
        )

    def credit_usd(self) -> float | None:
        """Return the credit. Raises ProviderError."""
        return self.read_credit("/billing/user-credit/credit", "data", "credit")

    def prerequisites(self, orders: Sequence[Order]) -> Sequence[Prerequisite]:
        """Check that the key pair exists in the environment of each region. Only reads; raises nothing."""
        name, pair = PrerequisiteName.KEY_PAIR, str(self.options.get("ssh_key") or "")
        if not pair:
            mend = f'add ssh_key = "NAME", a key pair at Hyperstack, to [providers.{PROVIDER}.options]'
            return [Prerequisite(name=name, met=False, text="options.ssh_key is not set", mend=mend)]
        try:
            self.client.require_key()
            pairs = objects(self.all_pages("/core/keypairs", "keypairs"))
        except ProviderError as error:
            return [Prerequisite(name=name, met=None, text=str(error))]
        environments = {at(one, "environment", "name") for one in pairs if one.get("name") == pair}
        needed: dict[str, list[str]] = {}
        for order in orders:
            if parts := self.offer_id.fullmatch(order.offer_id):
                needed.setdefault(self.environment(parts[2]), []).append(order.offer_id)
        if not needed:
            return [_key_pair(pair, "", bool(environments), ())]
        return [_key_pair(pair, place, place in environments, ids) for place, ids in needed.items()]

    def is_not_found(self, body: ErrorBody) -> bool:
        """Whether it is "VM 123 does not exists."; a missing flavor or key is named differently."""
        is_machine = body.sentence.lower().startswith("vm ")
        return body.status == 404 and at(body.value, "error_reason") == "not_found" and is_machine


def parse_prices(value: object, now: datetime | None = None) -> dict[str, float]:
    """Parse GPU → dollars an hour for one, from `GET /pricebook`.

    Only prices in force count. A GPU with two different ones has none.

    Args:
        now: when the book arrived; None: all its prices count.

    Raises:
        PayloadChanged: it is not a list of prices.
    """
    found: dict[str, set[float | None]] = {}
    for row in objects(value):
        if isinstance(name := row.get("name"), str) and _is_in_force(row, now):
            found.setdefault(name, set()).add(usd_hour(row.get("value")))
    if not any(prices - {None} for prices in found.values()):
        raise PayloadChanged(f"{PROVIDER}: the answer is not a price book")
    return {name: price for name, prices in found.items() if len(prices) == 1 for price in prices if price is not None}


def _is_in_force(row: Mapping[str, Any], now: datetime | None) -> bool:
    start, end = (_book_time(row.get(key)) for key in ("start_time", "end_time"))
    return now is None or ((start is None or start <= now) and (end is None or now < end))


def _book_time(value: object) -> datetime | None:
    """Return a time of the price book, which states no zone: UTC."""
    return parse_utc(value) or (parse_utc(f"{value}+00:00") if isinstance(value, str) else None)


def read_flavor(row: Any, result: ParseResult, prices: Mapping[str, float], observed_at: datetime) -> bool:
    """Add the offer of a flavor in stock; False: it has no GPU, or is spot. Raises RowSkipped."""
    if not isinstance(row, dict):
        raise RowSkipped("no flavor")
    if not (gpus := stated(whole(row.get("gpu_count"), 0, 1_000), "no number of GPUs")):
        return False
    wire = stated(word(row.get("gpu"), 60), "no name of its GPU")
    names = (wire, row.get("name"))  # may mark another rental type, whose price the book lists under the same suffix
    if row.get("is_spot") is True or any(isinstance(n, str) and _NOT_ON_DEMAND.search(n[:100]) for n in names):
        return False
    name = stated(matched(row.get("name"), _FLAVOR), "no name")
    region = stated(matched(row.get("region_name"), _REGION), "no name of its region")
    if not isinstance(is_in_stock := row.get("stock_available"), bool):
        raise RowSkipped("nothing about its stock")
    price = stated(prices.get(wire), "a GPU without one clear price")
    gpu, memory_gib = gpu_of(wire)
    flavor = MachineType.of(
        wire,
        gpus,
        memory_gib,
        gpu=gpu,
        vcpu=number(row.get("cpu"), 1, 10_000),
        ram_gib=number(row.get("ram"), 1, 100_000),
        interconnect="NVLink" if gpus > 1 and "NVLink" in wire else None,
        disk_gb=sum(number(row.get(key), 0, 1e7) or 0.0 for key in ("disk", "ephemeral")),
    )
    if is_in_stock:
        offer = flavor.offer(
            provider=PROVIDER,
            offer_id=f"{name}/{region}",
            usd_hour=price * gpus,
            observed_at=observed_at,
            region=region,
            country=_COUNTRIES.get(region.partition("-")[0]),
            terms=flavor.terms(name),
        )
        result.offers.append(offer)
    return True


def gpu_of(wire: str) -> tuple[GpuName, float | None]:
    """Return the GPU of a spelling, and the memory of one: from the spelling, else from the catalogue."""
    memory = _MEMORY.search(wire)
    gpu = catalog().resolve(wire, number(memory[1]) if memory else None)
    card = catalog().get(gpu.name)
    return gpu, float(memory[1]) if memory else (card.memory_gib if card else None)


def _key_pair(pair: str, place: str, met: bool, offer_ids: Sequence[str]) -> Prerequisite:
    where = f" in the environment {place}" if place else ""
    return Prerequisite(
        name=PrerequisiteName.KEY_PAIR,
        met=met,
        text=f"the key pair {pair[:40]!r} exists{where}" if met else f"there is no key pair {pair[:40]!r}{where}",
        mend="" if met else "import it there, or fix options.ssh_key and options.environment",
        place=place,
        offer_ids=tuple(offer_ids),
    )


build = HyperstackCloud.build
