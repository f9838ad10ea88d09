"""Reads Google Cloud's prices from one of two sources.

With an API key they are computed from Google's own price list. Without one they are read from the weekly pricing.yml of
a public project, which computes prices of whole machines from the same list. A program writes the file, always in the
same form: two spaces per level, one key per line. Only that form is read, by no YAML parser: anchors, tags and other
features of an untrusted file have no effect here.
source: github.com/Cyclenerd/google-cloud-pricing-cost-calculator (Apache-2.0), its file of 2025-03-06, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Final, NamedTuple

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderError
from gpuwatch.ports import ProviderSettings, Query
from gpuwatch.ports.declarations import Tools
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.gcp import INFO
from gpuwatch.providers.gcp.parts import MACHINES, GcpMachine, PartPrices, machine_price, read_skus, regions_of
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.error_mapping import ErrorBody, reading_error
from gpuwatch.providers.toolkit.list_prices import TOO_FEW_ROWS, RowCountGuard, is_plausible, without_placeholders
from gpuwatch.providers.toolkit.machine_type import MachineType
from gpuwatch.providers.toolkit.post_processing import BasicMarket, ParseResult
from gpuwatch.providers.toolkit.validation import at, number, time_from_unix, usd_hour, word

_LINE: Final = re.compile(r"( *)([A-Za-z0-9_.-]{1,60}):(?: (.{1,100}))?$")
_PRICES: Final = {"hour": False, "hour_spot": True}
_MAX_UNIX_S: Final = 4_102_444_800.0  # 2100


class WeeklyPrices(NamedTuple):
    """When the prices were computed, and the prices by machine type, region and spot."""

    computed_at: datetime | None
    prices: dict[tuple[str, str, bool], str]


def read_weekly(body: bytes) -> WeeklyPrices:
    """Parse the machines of a pricing.yml. Raises PayloadChanged: there are none."""
    path: list[str] = []
    computed_at, prices = None, {}
    for raw in body.decode("utf-8", "replace").splitlines():
        line = _LINE.match(raw)
        if line is None:
            continue
        depth = len(line[1]) // 2
        if depth > len(path):
            continue
        path[depth:] = [line[2]]
        if line[3] is None:
            continue
        if path == ["about", "timestamp"]:
            computed_at = time_from_unix(number(line[3], 1.0, _MAX_UNIX_S))
        elif path[:2] == ["compute", "instance"] and len(path) == 6 and path[3] == "cost" and path[5] in _PRICES:
            prices[path[2], path[4], _PRICES[path[5]]] = line[3]
    if not prices:
        raise PayloadChanged("gcp: pricing.yml has no machine prices")
    return WeeklyPrices(computed_at, prices)


WEEKLY_URL: Final = (
    "https://raw.githubusercontent.com/Cyclenerd/google-cloud-pricing-cost-calculator/master/pricing.yml"
)
_SKUS: Final = "/v1/services/6F81-5844-456A/skus"  # Compute Engine
_PAGE: Final = {"pageSize": "5000", "currencyCode": "USD"}
_PARTIAL_TTL_S: Final = 60.0
_PAGES_MAX: Final = 40  # there are eight
_STALE_AFTER: Final = timedelta(days=30)  # the file is created every week
_MIN_SHARE_OF_MEDIAN: Final = (
    0.3  # of the median of the same GPU: only a host. source: such a week of a public feed, 2024
)
_ASSEMBLED: Final = "assembled from Google's price list, which is up to 12 hours old; disks and addresses come on top"


class MachinePrice(NamedTuple):
    """The price of a machine in a region, from either source."""

    machine: GcpMachine
    region: str
    spot: bool
    usd_hour: object


class GoogleMarket(BasicMarket):
    """Prices of one source: the price list with a key, the weekly file without. Fetched at most twice a poll."""

    listable = frozenset(machine.gpu for machine in MACHINES.values())

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools)
        key = settings.api_key
        self._client = ApiClient(
            settings, tools, headers={"X-Goog-Api-Key": key} if key else {}, reading=_map_read_error
        )
        below = WEEKLY_URL if settings.base_url == INFO.base_url else f"{settings.base_url.rstrip('/')}/pricing.yml"
        self._weekly_url = str(settings.options.get("pricing_url") or below)
        self._cache: TtlCache[ParseResult] = TtlCache(settings.poll_every_s / 2, tools.monotonic)
        self._partial_cache: TtlCache[ParseResult] = TtlCache(_PARTIAL_TTL_S, tools.monotonic)  # partial results
        self._row_count_guard = RowCountGuard()

    def _read(self, query: Query, now: datetime) -> ParseResult:
        result = self._partial_cache.get(
            lambda: self._cache.get(self._fetch_price_list if self._client.has_key else self._fetch_weekly)
        )
        if result.partial:
            self._cache.invalidate()
        return result

    def _fetch_price_list(self) -> ParseResult:
        """With a key: fetch all pages of the price list, and compute the machines from their parts."""
        result, token, tokens = ParseResult(searches=0), "", set[str]()
        parts: PartPrices = {}
        while token not in tokens and len(tokens) < _PAGES_MAX:
            tokens.add(token)
            try:
                page = self._client.get(_SKUS, {**_PAGE, "pageToken": token} if token else _PAGE)
                token = _next_token(page)
            except ProviderError as error:
                if not result.searches:
                    raise
                result.note_missing(f"page {result.searches + 1}: {error}")
                break
            result.searches += 1
            read_skus(page, parts, result, self._tools.now())
            if not token:
                break
        else:
            result.note_missing("its pages do not end")
        return self._finish(result, parse_parts(parts, result, self._tools.now()))

    def _fetch_weekly(self) -> ParseResult:
        """Without a key: fetch the weekly file."""
        weekly = read_weekly(self._client.request("GET", self._weekly_url, headers={"Accept": "*/*"}).body)
        result = ParseResult(rows=len(weekly.prices))
        return self._finish(result, parse_weekly(weekly, result, self._tools.now()))

    def _finish(self, result: ParseResult, offers: list[Offer]) -> ParseResult:
        result.offers = offers
        if not offers:
            message = f"{self.name}: the price list has no machine with GPUs"
            raise result.no_usable_row(message) if result.rows else PayloadChanged(message)
        if self._row_count_guard.is_too_few("offers", len(offers)):
            result.note_missing(TOO_FEW_ROWS)
        return result


def parse_parts(parts: PartPrices, result: ParseResult, observed_at: datetime) -> list[Offer]:
    """Compute the machines from the parts of a price list, in every region that has all parts."""
    machine_prices = [
        MachinePrice(machine, region, spot, price)
        for machine in MACHINES.values()
        for region in regions_of(parts)
        for spot in (False, True)
        if (price := machine_price(machine, region, spot, parts)) is not None
    ]
    return _offers(machine_prices, _ASSEMBLED, OfferKind.LISTED, result, observed_at)


def parse_weekly(weekly: WeeklyPrices, result: ParseResult, observed_at: datetime) -> list[Offer]:
    """Return the machines of a weekly file. Prices older than a month are historical."""
    is_old = weekly.computed_at is not None and observed_at - weekly.computed_at > _STALE_AFTER
    if is_old:  # no watch matches a historical price
        result.note_missing(f"pricing.yml is older than {_STALE_AFTER.days} days: its prices count as history")
    # word-check: allow - a value of the JSON
    computed_on = "at a time that is not told" if weekly.computed_at is None else f"on {weekly.computed_at.date()}"
    # word-check: allow - a value of the JSON
    note = f"reckoned {computed_on} from Google's price list by a public project; disks and addresses come on top"
    machine_prices = [
        MachinePrice(MACHINES[name], region, spot, text)
        for (name, region, spot), text in weekly.prices.items()
        if name in MACHINES
    ]
    return _offers(machine_prices, note, OfferKind.HISTORY if is_old else OfferKind.LISTED, result, observed_at)


def _offers(
    machine_prices: Iterable[MachinePrice], note: str, kind: OfferKind, result: ParseResult, observed_at: datetime
) -> list[Offer]:
    found = []
    for one in machine_prices:
        if not one.spot and not one.machine.on_demand:
            continue  # computed, but not for sale
        price, region = usd_hour(one.usd_hour), word(one.region, 40)
        if price is None or region is None or not is_plausible(price, one.machine.gpus):
            result.skip("a price that nobody would ask")
            continue
        found.append(_offer(one._replace(region=region), price, note, kind, observed_at))
    return _drop_without_gpu_price(without_placeholders(found, result), result)


def _offer(one: MachinePrice, price: float, note: str, kind: OfferKind, observed_at: datetime) -> Offer:
    machine = one.machine
    return _hardware(machine).offer(
        provider="gcp",
        offer_id=f"{machine.name}/{one.region}/{'spot' if one.spot else 'on-demand'}",
        machine_id=f"{machine.name}/{one.region}",
        usd_hour=price,
        terms=_terms(machine.name, min(machine.gpus, 1.0), note),
        observed_at=observed_at,
        spot=one.spot,
        region=one.region,
        datacenter=None,
        kind=kind,
    )


@cache
def _hardware(machine: GcpMachine) -> MachineType:
    return MachineType(
        gpu=catalog().resolve(machine.gpu),
        gpu_wire=machine.accelerator,
        gpu_count=max(int(machine.gpus), 1),
        gpu_memory_gib=machine.memory_gib,
        vcpu=float(machine.vcpus),
        ram_gib=machine.ram_gib,
    )


@lru_cache(maxsize=256)
def _terms(instance_type: str, fraction: float, note: str) -> OfferTerms:
    return OfferTerms(instance_type=instance_type, gpu_fraction=fraction, tax_included=False, note=note)


def _drop_without_gpu_price(offers: list[Offer], result: ParseResult) -> list[Offer]:
    """Drop machines that are so cheap compared to others with the same GPU that the GPU's price must be missing."""
    usd_gpu_hour = {id(offer): offer.quoted_usd_hour / (offer.gpu_count * offer.terms.gpu_fraction) for offer in offers}
    groups: dict[tuple[str, bool], list[float]] = {}
    for offer in offers:
        groups.setdefault((offer.gpu, offer.spot), []).append(usd_gpu_hour[id(offer)])
    floors = {group: sorted(prices)[len(prices) // 2] * _MIN_SHARE_OF_MEDIAN for group, prices in groups.items()}
    plausible = [offer for offer in offers if usd_gpu_hour[id(offer)] >= floors[offer.gpu, offer.spot]]
    for _ in range(len(offers) - len(plausible)):
        result.skip("a machine that is priced as if without its GPUs")
    return plausible


def _next_token(page: object) -> str:
    """Return the token of the next page; empty: there is none. Raises PayloadChanged: it is not a page."""
    if not isinstance(at(page, "skus"), list):
        raise PayloadChanged("gcp: the answer has no list of SKUs")
    token = at(page, "nextPageToken") or ""
    if not isinstance(token, str):
        raise PayloadChanged("gcp: the token of the next page is not a text")
    return token[:4000]


def _map_read_error(name: str, body: ErrorBody, reply: HttpReply, now: datetime) -> ProviderError:
    """Map the error: an invalid key gets a 400."""
    if reply.status == 400 and body.has("api key", "api_key_invalid"):
        return KeyRejected(f"{name}: {body.summary}")
    return reading_error(name, body, reply, now)
