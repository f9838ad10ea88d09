"""Prime Intellect: one list over two dozen clouds. It sells the stock of other sellers, at their prices.

An order contains the vendor's own price guard (`maxPrice`). gpuwatch never reads the `jupyterPassword` of a pod's row.

source: the vendor's OpenAPI 0.1.0 and documents, its command line, and SkyPilot 0.14.1, read 2026-11.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import ROUND_UP, Decimal
from typing import Any, Final

from gpuwatch.domain.market.gpu_cards import gpu_fraction
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import HOURS_A_MONTH
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.domain.market.resold import known_as
from gpuwatch.errors import KeyRejected, OfferGone, OrderError, OrderRefused, PayloadChanged, ProviderError, RefusalKind
from gpuwatch.ports import Instance, InstanceState, Order, ProviderSettings
from gpuwatch.ports.declarations import Billing, OptionSpec, ProviderInfo, Tools, web_address
from gpuwatch.ports.http import HttpReply
from gpuwatch.ports.prerequisites import declared
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.api_client import rebase_url
from gpuwatch.providers.toolkit.basic_launcher import machine_fields, refuse
from gpuwatch.providers.toolkit.currency import ExchangeRate, ExchangeRates
from gpuwatch.providers.toolkit.error_mapping import ErrorBody
from gpuwatch.providers.toolkit.instance_status import ReadStatus, StatusWords
from gpuwatch.providers.toolkit.machine_cloud import COUNTRY, ListPage, MachineCloud
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped, short_id, stated
from gpuwatch.providers.toolkit.validation import at, matched, number, usd_hour, whole, word

PROVIDER: Final = "primeintellect"
INFO = ProviderInfo(
    name=PROVIDER,
    title="Prime Intellect",
    base_url="https://api.primeintellect.ai",
    key_names=("PRIME_API_KEY",),
    kinds=(OfferKind.LIVE, OfferKind.LISTED),
    spots=(False, True),
    launches=True,
    no_kept_disk="its API can only delete a machine",
    runs_images=False,
    runs_onstart=False,
    billing=Billing(prepaid=True),
    poll_every_s=60.0,
    search_interval_s=1.0,  # between two pages; no limit is published
    console_url="https://app.primeintellect.ai",
    options=(
        OptionSpec(
            name="rate_url",
            kind="text",
            about="Source of the exchange rates, for prices that are not in dollars.",
            default="https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml",
            check=web_address,
        ),
        OptionSpec(name="ssh_key", kind="text", about="Id of an SSH key at Prime Intellect; default: the account's."),
        OptionSpec(
            name="image", kind="text", default="ubuntu_22_cuda_12", about="System image, as in the offers' `images`."
        ),
    ),
    prerequisites=declared("launching.md#before-the-first-rent", credentials="a key that lists instances"),
)
_PODS: Final = "/api/v1/pods/"  # as specified; FastAPI redirects other spellings, and no order follows a redirect
_PAGE_ROWS: Final = 100  # the maximum page size
_SSH: Final = re.compile(r"(?:ssh )?([A-Za-z0-9_-]{1,32})@([A-Za-z0-9.:-]{1,100})(?: -p (\d{1,5}))?")
_NO_STOCK: Final = ("no capacity", "out of stock", "not available", "unavailable", "insufficient capacity")
_INSTALLATION_WORDS: Final = StatusWords({
    **dict.fromkeys(("PENDING", "ACTIVE"), InstanceState.STARTING),
    "FINISHED": InstanceState.RUNNING,
    **dict.fromkeys(("ERROR", "TERMINATED"), InstanceState.FAILED),
}, "installationStatus")  # fmt: skip
_IN_STOCK: Final = frozenset({"available", "low", "medium", "high"})
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_KNOWN_FIELDS: Final = frozenset({
    "cloudId", "gpuType", "socket", "provider", "region", "dataCenter", "country", "gpuCount", "gpuMemory", "disk",
    "sharedDisk", "vcpu", "memory", "internetSpeed", "interconnect", "interconnectType", "provisioningTime",
    "stockStatus", "security", "prices", "images", "isSpot", "prepaidTime",
})  # fmt: skip
_REQUIRED_FIELDS: Final = frozenset({"cloudId", "gpuType", "provider", "gpuCount", "prices"})
Rates = Callable[[str], ExchangeRate | None]  # dollars for one unit of a currency
ListedRows = dict[str, tuple[Mapping[str, Any], Offer]]  # offer id → its row and the parsed offer


class PrimeCloud(MachineCloud):
    """An account at Prime Intellect. The machines belong to other sellers."""

    info, create_path = INFO, _PODS
    instance_id, instance_path = re.compile(r"[A-Za-z0-9_-]{1,64}"), f"{_PODS}{{}}"
    # source: the vendor's OpenAPI specification (status and installationStatus of a pod), read 2026-11
    status_words = StatusWords({
        **dict.fromkeys(("PROVISIONING", "PENDING"), InstanceState.STARTING),
        "ACTIVE": InstanceState.RUNNING,
        "STOPPED": InstanceState.STOPPED,
        "ERROR": InstanceState.FAILED,
        "DELETING": InstanceState.ENDING,
        "TERMINATED": InstanceState.ENDED,
        "UNKNOWN": InstanceState.UNKNOWN,
    })  # fmt: skip

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools)
        base_url = settings.base_url.rstrip("/")
        rate_url = str(settings.options.get("rate_url") or "")
        stand_in = None if base_url == INFO.base_url else base_url
        self._exchange = ExchangeRates(tools, rebase_url(rate_url, "rates", stand_in))
        self._listed: ListedRows = {}  # of the last search

    def fetch(self) -> tuple[ParseResult, datetime]:
        """Return the whole list; if a later page fails, the result is partial. Raises ProviderError."""
        rows: list[Any] = []
        pages: list[list[Any]] = []

        def read_page(value: Any, received: int) -> ListPage:
            found, total = page_of(value)
            pages.append(found)
            received += len(found)
            if found in pages[:-1] or (not found and received < (total or 0)):  # it has no pages, or ends early
                raise self.incomplete("offers", received)
            is_last = received >= total if total is not None else len(found) < _PAGE_ROWS
            return ListPage(found, None if is_last or not found else {"page": str(len(pages) + 1)})

        params, missing = {"page": "1", "page_size": str(_PAGE_ROWS)}, ""
        try:
            rows.extend(self.each_row("/api/v1/availability/gpus", read_page, params, "search"))
        except ProviderError:
            if not pages:
                raise
            missing = f"its list ends early, after page {len(pages)}"
        now, listed = self.client.tools.now(), ListedRows()
        result = parse_rows(rows, self._exchange.rate, now, listed)
        self._listed, result.searches = listed, len(pages)
        if missing:
            result.note_missing(missing)
        return result, now

    def check_order(self, order: Order) -> None:
        """Refuse what Prime Intellect does not support. Raises OrderRefused: BAD_ORDER."""
        reasons = {"Prime Intellect does not support start commands": order.onstart is not None}
        self.refuse_unsupported(order, reasons, takes_templates=True)

    def create_body(self, order: Order) -> dict[str, Any]:
        """Build the create request; `maxPrice` is the price of the search, with the disk. Raises OrderError."""
        row, offer = self._row_of(order.offer_id)
        # without a price of its own, the disk is the pod's included one
        disk_gb = math.ceil(max(order.disk_gb, offer.quoted_disk_gb)) if offer.disk_usd_gb_month else None
        max_gb = offer.disk_free_gb
        refuse(PROVIDER, {
            "the offer is spot, which the API cannot order": offer.spot,
            "it charges hours in advance": offer.terms.prepaid,
            "its price is in another currency, which the price guard may not support": offer.terms.currency != "USD",
            "its price does not prove stock": offer.kind is not OfferKind.LIVE,
            "the disk is larger than the offer's": disk_gb is not None and max_gb is not None and disk_gb > max_gb,
        })  # fmt: skip
        extra_gb = max(0.0 if disk_gb is None else disk_gb - offer.quoted_disk_gb, 0.0)
        price = offer.quoted_usd_hour + extra_gb * (offer.disk_usd_gb_month or 0.0) / HOURS_A_MONTH
        pod = {
            "name": order.label,
            "cloudId": row.get("cloudId"),
            "gpuType": row.get("gpuType"),
            "socket": row.get("socket"),
            "gpuCount": row.get("gpuCount"),
            "diskSize": disk_gb,
            "vcpus": whole(at(row, "vcpu", "defaultCount"), 1),
            "memory": whole(at(row, "memory", "defaultCount"), 1),
            "maxPrice": float(Decimal(repr(price)).quantize(Decimal("0.0001"), ROUND_UP)),
            "image": "custom_template" if order.template else self.options.get("image"),
            "customTemplateId": order.template,
            "dataCenterId": row.get("dataCenter"),
            "country": row.get("country"),
            "security": row.get("security"),
            "sshKeyId": self.options.get("ssh_key"),
            "envVars": [{"key": key, "value": value} for key, value in order.env.items()] or None,
            "autoRestart": False,
        }
        return {
            "pod": {key: value for key, value in pod.items() if value is not None},
            "provider": {"type": row.get("provider")},
        }

    def _row_of(self, offer_id: str) -> tuple[Mapping[str, Any], Offer]:
        """Return the row of an offer from the last search, or a fresh one if it was not in it. Raises OrderError."""
        if offer_id not in self._listed:
            try:
                self.fetch()
            except ProviderError as error:
                kind = RefusalKind.KEY if isinstance(error, KeyRejected) else RefusalKind.NOT_SENT
                raise OrderRefused(f"{PROVIDER}: not sent: {error}", kind) from error
        found = self._listed.get(offer_id)
        if found is None:
            raise OfferGone(f"{PROVIDER}: the offer is no longer listed")
        return found

    def instance_rows(self) -> list[Any]:
        """Return the rows of all pods."""
        return list(self._pods(_PODS))

    def _pods(self, path: str) -> Iterator[Any]:
        def read_page(value: Any, received: int) -> ListPage:
            rows, total = at(value, "data"), at(value, "total_count")
            return self.counted_page("pods", rows, total, received, lambda offset: {"offset": str(offset)})

        return self.each_row(path, read_page, {"offset": "0", "limit": str(_PAGE_ROWS)})

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance of a row."""
        user, host, port = _ssh(row.get("sshConnection"))
        fields = machine_fields(row, self.status_words, PROVIDER, ip=host, user=user) | {"ssh_port": port}
        installation = word(row.get("installationStatus"), 30)
        installed = _INSTALLATION_WORDS.read(installation) if installation else ReadStatus(InstanceState.RUNNING)
        if fields["state"] is InstanceState.RUNNING and installed.state is not InstanceState.RUNNING:
            fields["state"] = InstanceState.STARTING
        if installed.state is InstanceState.FAILED and fields["state"] is not InstanceState.ENDED:
            fields["state"] = InstanceState.FAILED
        if installation is not None:
            fields["status"] += f": {installation}"
        fields["unknown_status"] = fields["unknown_status"] or installed.unknown
        wire = word(row.get("gpuName"), 80)
        gpu = None if wire is None else catalog().resolve(wire, None, word(row.get("socket"), 20))
        return Instance(
            **fields,
            label=word(row.get("name")),
            gpu=gpu.name if gpu is not None and gpu.certain else None,
            gpu_wire=wire,
            gpu_count=whole(row.get("gpuCount"), 1, 1000),
            spot=row.get("isSpot") is True,
            listed_usd_hour=usd_hour(row.get("priceHr")),
            stopped_usd_hour=usd_hour(row.get("stoppedPriceHr")),
        )

    def is_not_found(self, body: ErrorBody) -> bool:
        """Whether it is a 404 about a pod."""
        return body.status == 404 and isinstance(body.value, dict)

    def is_proof(self, instance_id: str) -> bool:
        """Whether the history of pods shows its end, as a time or a status: a 404 is not documented as "gone"."""
        row = next((row for row in self._pods(f"{_PODS}history") if at(row, "id") == instance_id), None)
        return bool(at(row, "terminatedAt")) or self.status_words.is_ended(at(row, "status"))

    def refusal(self, line: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError | None:
        """Map the error of an order; SkyPilot's experience shows which words mean no stock."""
        is_other = reply.status in (401, 402, 403, 408, 429) or self.is_not_found(body)
        return OfferGone(line) if 400 <= reply.status < 500 and not is_other and body.has(*_NO_STOCK) else None


def _ssh(value: object) -> tuple[str | None, str | None, int | None]:
    """Return user, host and port of "root@1.2.3.4 -p 22", alone or first in a list; all None before there is one."""
    text = next((one for one in value if isinstance(one, str)), None) if isinstance(value, list) else value
    found = _SSH.fullmatch(text.strip()) if isinstance(text, str) else None
    return (None, None, None) if found is None else (found[1], found[2], whole(found[3] or "22", 1, 65_535))


def page_of(value: Any) -> tuple[list[Any], int | None]:
    """Return the rows of one page, and their number on all; also of the older format, a list per GPU.

    Raises:
        PayloadChanged: it is neither.
    """
    items = at(value, "items")
    if isinstance(items, list):
        return items, whole(at(value, "totalCount"))
    if isinstance(value, dict) and value and all(isinstance(one, list) for one in value.values()):
        rows = [row for one in value.values() for row in one]
        return rows, len(rows)
    raise PayloadChanged(f"{PROVIDER}: the answer has no list of offers")


def parse_rows(rows: list[Any], rate: Rates, observed_at: datetime, listed: ListedRows | None = None) -> ParseResult:
    """Parse the offers of all pages.

    Args:
        listed: receives the row of each offer by its id; for a duplicate id, the cheaper one.
    """
    result, listed = ParseResult(rows=len(rows)), {} if listed is None else listed
    for row in rows:
        with result.counting_skips():
            if not isinstance(row, dict):
                raise RowSkipped("a row that is no object")
            result.check_drift(row, _KNOWN_FIELDS, _REQUIRED_FIELDS)
            if (offer := _offer(row, rate, observed_at)) is None:
                continue
            result.offers.append(offer)
            same = listed.get(offer.offer_id)
            if same is None or offer.quoted_usd_hour < same[1].quoted_usd_hour:
                listed[offer.offer_id] = (row, offer)
    return result


def _offer(row: Mapping[str, Any], rates: Rates, observed_at: datetime) -> Offer | None:
    """Return the offer of a row; None: it is sold out or has no GPU. Raises RowSkipped."""
    stock = (word(row.get("stockStatus"), 40) or "available").casefold()
    wire = word(row.get("gpuType"), 80)
    if stock == "unavailable" or wire == "CPU_NODE" or is_ending(row, observed_at):
        return None
    seller, cloud_id = word(row.get("provider"), 40), word(row.get("cloudId"), 120)
    count = stated(whole(row.get("gpuCount"), 1, 1000), "a number of GPUs that is none")
    if wire is None or seller is None or cloud_id is None:
        raise RowSkipped("a row without its GPU, its seller or its id")
    currency = matched(at(row, "prices", "currency") or "USD", _CURRENCY)
    rate = stated(rates(currency) if currency else None, "a price in a currency without a rate")
    found, price = _machine(row, wire, count), _price(row, rate.usd)
    spot = row.get("isSpot")
    if spot is not None and not isinstance(spot, bool):
        raise RowSkipped("a rental type that is not known")  # the price may be of either
    place, security = word(row.get("dataCenter"), 80), word(row.get("security"), 40) or "secure_cloud"
    identity = (seller, cloud_id, place or "", security)
    return found.offer(
        provider=PROVIDER,
        offer_id=short_id(*identity, str(count), "spot" if spot else "on-demand"),
        machine_id=short_id(*identity),
        **price,
        observed_at=observed_at,
        spot=bool(spot),
        region=place or word(row.get("region"), 80),
        country=matched(str(row.get("country")).upper(), COUNTRY),
        datacenter={"secure_cloud": True, "community_cloud": False}.get(security),
        download_mbps=number(row.get("internetSpeed"), 0, 1e7) or None,
        kind=OfferKind.LIVE if stock in _IN_STOCK else OfferKind.LISTED,
        terms=_terms(row, found, cloud_id, seller, stock, rate),
    )


def _terms(
    row: Mapping[str, Any], found: MachineType, cloud_id: str, seller: str, stock: str, rate: ExchangeRate
) -> OfferTerms:
    hours = number(row.get("prepaidTime"), 0.0, 1e6)
    notes = [
        f"{hours:g} hours are charged at once" if hours else "",
        "the price may change" if at(row, "prices", "isVariable") is True else "",
        "little stock" if stock == "low" else "",
        "its stock is stated in an unknown word" if stock not in _IN_STOCK else "",
        "" if found.gpu.certain else found.gpu.reason,
        rate.note,
    ]
    return found.terms(
        cloud_id,
        seller=known_as(seller) or seller,
        fungible=False,
        tax_included=None,
        gpu_fraction=min(gpu_fraction(cloud_id), gpu_fraction(found.gpu_wire)),
        network_gbps=number(row.get("interconnect"), 0, 1e6) or None,
        prepaid=True if hours else None,
        min_billing_s=hours * 3600 if hours else None,
        currency=rate.currency,
        usd_rate=None if rate.on is None else rate.usd,
        usd_rate_on=rate.on,
        note="; ".join(filter(None, notes)) or None,
    )


def _machine(row: Mapping[str, Any], wire: str, count: int) -> MachineType:
    """Return the hardware; the stated memory of a GPU counts unless it is clearly not its HBM (`GH200_480GB`)."""
    memory = number(row.get("gpuMemory"), 0.5, 9_000.0)
    gpu = catalog().resolve(wire, memory, word(row.get("socket"), 20))
    card = catalog().get(gpu.name) if gpu.known else None
    if card is not None and memory is not None and card.memory_distance(memory) > card.memory_gib * 0.5:
        memory = card.memory_gib
    return MachineType.of(
        wire,
        count,
        memory,
        gpu=gpu,
        vcpu=number(at(row, "vcpu", "defaultCount"), 0),
        ram_gib=number(at(row, "memory", "defaultCount"), 0),
        interconnect=word(row.get("interconnectType"), 40),
    )


def _price(row: Mapping[str, Any], usd: float) -> dict[str, Any]:
    """Return the price of the whole configuration, with its disk, as fields of an offer; `usd`: of its currency."""
    prices = row.get("prices")
    order = ("onDemand", "communityPrice")
    if row.get("security") == "community_cloud":
        order = ("communityPrice", "onDemand")
    value = next((at(prices, key) for key in order if at(prices, key) is not None), None)
    base = stated(number(value, 0.0) or None, "a row without its price")
    for part in ("disk", "vcpu", "memory"):  # each may have a price of its own
        if at(row, part, "defaultIncludedInPrice") is False:
            reason = f"{part} costs more, and nobody says how much"
            units = stated(number(at(row, part, "defaultCount"), 0.0, 1e7), reason)
            base += units * stated(number(at(row, part, "pricePerUnit"), 0.0, 1000.0), reason)
    unit_price = number(at(row, "disk", "pricePerUnit"), 0.0, 100.0)
    included_gb = number(at(row, "disk", "defaultCount"), 0.0, 1e7)
    max_gb = number(at(row, "disk", "maxCount"), 0.0, 1e7)
    if max_gb is None and at(row, "disk", "pricePerUnit") is None:
        max_gb = included_gb  # none can be added
    return {
        "usd_hour": stated(usd_hour(base * usd), "a price that nobody would ask"),
        "quoted_disk_gb": included_gb or 0.0,
        "disk_usd_gb_month": unit_price * HOURS_A_MONTH * usd if unit_price else None,
        "disk_free_gb": max_gb,
    }


build = PrimeCloud.build
