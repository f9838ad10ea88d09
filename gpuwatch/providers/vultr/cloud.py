"""The account at Vultr: what is in stock where, and the machines that are rented.

A row of an instance may contain its first password: never read.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

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
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import Prerequisite, PrerequisiteName
from gpuwatch.providers.toolkit.api_client import TtlCache
from gpuwatch.providers.toolkit.basic_launcher import host_name, machine_fields
from gpuwatch.providers.toolkit.catalogue import query_all
from gpuwatch.providers.toolkit.error_mapping import ErrorBody
from gpuwatch.providers.toolkit.first_boot import first_boot_script
from gpuwatch.providers.toolkit.instance_status import ReadStatus, StatusWords
from gpuwatch.providers.toolkit.machine_cloud import ListPage, MachineCloud
from gpuwatch.providers.toolkit.machine_type import fields_of_instance
from gpuwatch.providers.toolkit.post_processing import ParseResult
from gpuwatch.providers.toolkit.validation import at, number, parse_utc, whole, word
from gpuwatch.providers.vultr import INFO, PROVIDER
from gpuwatch.providers.vultr.plans import (
    OFFER_ID,
    Stock,
    VultrPlan,
    countries_of,
    offers_of,
    parse_plans,
    stock_queries,
)

_UBUNTU_22_04: Final = 1743  # includes docker and the card's driver on a plan with GPUs. source: dstack's backend
_RENT_PERMISSION: Final = "provisioning"  # source: the tests of the vendor's Go client
_POWER_WORDS: Final = StatusWords({"running": InstanceState.RUNNING, "stopped": InstanceState.STOPPED}, "power_status")
_SERVER_WORDS: Final = StatusWords({
    **dict.fromkeys(("none", "locked", "installingbooting", "isomounting"), InstanceState.STARTING),
    "ok": InstanceState.RUNNING,
}, "server_status")  # fmt: skip


class VultrCloud(MachineCloud):
    """An account at Vultr. Renting requires the id of an SSH key in the settings."""

    info = INFO
    offer_id = OFFER_ID
    lists_cpu_apart = True  # a place's stock is a request, and most places sell no GPUs
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
        """Return Vultr's plans with GPUs wherever they are in stock. Raises ProviderError."""
        return self._fetch(cpu=False)

    def fetch_cpu(self) -> tuple[ParseResult, datetime]:
        """Return Vultr's plans without GPUs wherever they are in stock. Raises ProviderError."""
        return self._fetch(cpu=True)

    def _fetch(self, *, cpu: bool) -> tuple[ParseResult, datetime]:
        rows = self.all_pages("plans", {"type": "all"})
        result, plans = parse_plans(rows, self.client.tools.now(), cpu=cpu)
        regions = self._regions.get(lambda: self.all_pages("regions", kind="places"))
        self._plans = {plan.name: plan for plan in plans}
        wanted = [plan for plan in plans if plan.is_cpu is cpu]
        stock = self._stock(stock_queries(wanted, regions), result)
        now, countries = self.client.tools.now(), countries_of(regions)
        for plan in wanted:
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
        value = self.client.get(f"/regions/{place}/availability", {"type": kind} if kind else {}, kind="stock")
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
