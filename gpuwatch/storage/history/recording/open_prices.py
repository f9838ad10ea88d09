"""The current offers, in memory: every open interval by identity, and how a writer of the history loads them.

Only open prices are kept in memory: a machine that comes back is looked up in the database, so that memory depends on
the size of the market, not on the length of the history.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from sqlalchemy import Connection, func, select

from gpuwatch.domain.market.offer import Offer, Verification
from gpuwatch.storage.history.recording.recorded_polls import newest_covers
from gpuwatch.storage.setup.machine_facts import NO_SIZE, Size, size_of, traffic_rate, verification_from
from gpuwatch.storage.setup.tables import history_state, place, price_interval, segment, series

Key = tuple[str | None, int]  # machine, GPUs
NEVER = -1

_VERSION = select(history_state.c.version).with_for_update()  # SQLite's writing transactions are exclusive anyway
_STATE = select(history_state.c.version, history_state.c.next_hour, history_state.c.packed_to_day)
_SEGMENTS = select(segment.c.id, segment.c.provider, segment.c.gpu, segment.c.gpu_count, segment.c.spot)
_PLACES = select(place.c.id, place.c.region, place.c.country)
# The sum keeps a planner from reading all prices first and looking up the series of each.
BY_SERIES = price_interval.c.series_id == series.c.id + 0
_newer = price_interval.alias()
NEWEST_S = select(func.max(_newer.c.seen_from_s)).where(_newer.c.series_id == series.c.id).scalar_subquery()
_OPEN_PRICES = (
    select(
        series.c.segment_id,
        series.c.machine_id,
        series.c.id,
        series.c.verification,
        series.c.download_microusd_gb,
        series.c.upload_microusd_gb,
        series.c.vcpu_milli,
        series.c.ram_mib,
        price_interval.c.seen_from_s,
        price_interval.c.machine_microusd_hour,
        price_interval.c.disk_microusd_gb_month,
    )
    .join(price_interval, price_interval.c.series_id == series.c.id)
    .where(series.c.on_offer == 1, price_interval.c.seen_from_s == NEWEST_S)
)


class OpenPrice(msgspec.Struct, gc=False):
    """An identity on offer: its newest interval, and the last quote, to recognise an equal one quickly."""

    series_id: int
    segment_id: int
    gpu: str
    key: Key
    seen_from_s: int
    machine_microusd: int
    disk_microusd: int | None
    verification: Verification | None = None
    download_usd_gb: float | None = None
    upload_usd_gb: float | None = None
    size: Size = NO_SIZE
    quoted_usd_hour: float = float("nan")  # unknown: equals nothing
    disk_usd_gb_month: float | None = None
    quoted_disk_gb: float = 0.0
    mark: int = 0  # the last poll that saw it
    facts: int = 0  # a hash of the facts in `series`; 0: unknown

    def has_facts_of(self, offer: Offer) -> bool:
        """Whether the facts that are written although the price stays are those of the offer."""
        return (
            self.verification is offer.verification
            and self.download_usd_gb == offer.download_usd_gb
            and self.upload_usd_gb == offer.upload_usd_gb
            and self.size == size_of(offer)
        )

    def keep_facts_of(self, offer: Offer) -> None:
        """Keep those of the offer."""
        self.verification = offer.verification
        self.download_usd_gb, self.upload_usd_gb = offer.download_usd_gb, offer.upload_usd_gb
        self.size = size_of(offer)


class ProviderPrices:
    """The open prices of one provider and rental type."""

    def __init__(self) -> None:
        self.models: dict[str, dict[Key, OpenPrice]] = {}
        self.covered_s: dict[str, int] = {}  # GPU ("" = all) → newest poll that covers it
        self.changed_s: dict[str, int] = {}  # GPU → newest moment of any change to it

    def newest_cover(self, gpu: str) -> int:
        """Return when a poll last covered this GPU; NEVER if none did."""
        return max(self.covered_s.get("", NEVER), self.covered_s.get(gpu, NEVER))

    def newest_change(self, gpu: str) -> int:
        """Return when anything was last written about this GPU ("": any GPU)."""
        if not gpu:
            return max((*self.changed_s.values(), *self.covered_s.values()), default=NEVER)
        return max(self.changed_s.get(gpu, NEVER), self.changed_s.get("", NEVER), self.newest_cover(gpu))

    def mark_changed(self, gpu: str, at_s: int) -> None:
        """Note a change to a GPU."""
        self.changed_s[gpu] = max(at_s, self.changed_s.get(gpu, NEVER))

    def add(self, price: OpenPrice) -> None:
        """Add an offer."""
        model = self.models.setdefault(price.gpu, {})
        model.pop(price.key, None)  # else the dict keeps the old key object, and the machine's name a second time
        model[price.key] = price

    def remove(self, price: OpenPrice) -> None:
        """Remove an offer."""
        model = self.models.get(price.gpu, {})
        model.pop(price.key, None)
        if not model:
            self.models.pop(price.gpu, None)

    def offers_of_gpu(self, gpu: str) -> Iterable[dict[Key, OpenPrice]]:
        """Return the offers of one GPU, or of all ("")."""
        return self.models.values() if not gpu else (self.models.get(gpu, {}),)


class OpenPrices:
    """The open prices of all providers, the known ids, and the version of the database that they match."""

    def __init__(self) -> None:
        self.version = NEVER  # nothing is loaded yet
        self.next_hour: int | None = None
        self.packed_to: int | None = None  # the first day whose polls are rows only
        self.by_provider: dict[tuple[str, int], ProviderPrices] = {}
        self.segments: dict[tuple[str, str, int, int], int] = {}
        self.places: dict[tuple[str, str], int] = {}
        self.next_series_id = 1
        self.polls = 0

    def prices_of(self, provider: str, spot: int) -> ProviderPrices:
        """Return one provider's prices for a rental type, created if missing."""
        provider_prices = self.by_provider.get((provider, spot))
        if provider_prices is None:
            provider_prices = self.by_provider[(provider, spot)] = ProviderPrices()
        return provider_prices

    def newest_change_s(self, provider: str) -> int:
        """Return the newest moment of any change to a provider."""
        own_prices = (prices for (name, _), prices in self.by_provider.items() if name == provider)
        return max((prices.newest_change("") for prices in own_prices), default=NEVER)


def lock_history(connection: Connection) -> int:
    """Serialise recorders, imports and prunes of all processes; return the version of the history."""
    return int(connection.execute(_VERSION).scalar_one())


def load_open_prices(connection: Connection) -> OpenPrices:
    """Load everything that is on offer from the database."""
    prices = OpenPrices()
    prices.version, prices.next_hour, prices.packed_to = connection.execute(_STATE).one()
    load_ids(connection, prices)
    for (provider, gpu, spot), at_s in newest_covers(connection).items():
        prices.prices_of(provider, spot).covered_s[gpu] = at_s
    _load_open(connection, prices)
    return prices


def load_ids(connection: Connection, prices: OpenPrices) -> None:
    """Load segments, places and the next free id of a series."""
    for segment_id, provider, gpu, count, spot in connection.execute(_SEGMENTS):
        prices.segments[(provider, gpu, count, spot)] = segment_id
    for place_id, region, country in connection.execute(_PLACES):
        prices.places[(region, country)] = place_id
    prices.next_series_id = 1 + (connection.execute(select(func.max(series.c.id))).scalar() or 0)


def _load_open(connection: Connection, prices: OpenPrices) -> None:
    """Load the open prices; the segments must be loaded."""
    scopes = {
        number: (prices.prices_of(provider, spot), gpu, count)
        for (provider, gpu, count, spot), number in prices.segments.items()
    }
    for row in connection.execute(_OPEN_PRICES):
        segment_id, machine, series_id, verification, down, up, vcpu, ram, from_s, price, disk = row
        provider_prices, gpu, count = scopes[segment_id]
        size = NO_SIZE if vcpu is None and ram is None else (vcpu, ram)
        facts = verification_from(verification), traffic_rate(down), traffic_rate(up), size
        provider_prices.add(OpenPrice(series_id, segment_id, gpu, (machine, count), from_s, price, disk, *facts))
        if from_s > provider_prices.changed_s.get(gpu, NEVER):
            provider_prices.changed_s[gpu] = from_s
