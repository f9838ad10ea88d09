"""The current offers, in memory: every open interval by identity.

Only open prices are kept in memory: a machine that comes back is looked up in the database, so that memory depends on
the size of the market, not on the length of the history.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gpuwatch.domain.market.offer import Verification
from gpuwatch.storage.executor import Executor, Row

Key = tuple[str | None, int]  # machine, GPUs
NEVER = -1
VERIFICATIONS = {1: Verification.VERIFIED, 0: Verification.UNVERIFIED, 2: Verification.DEVERIFIED}  # stored values


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
    quoted_usd_hour: float = float("nan")  # unknown: equals nothing
    disk_usd_gb_month: float | None = None
    quoted_disk_gb: float = 0.0
    mark: int = 0  # the last poll that saw it
    facts: int = 0  # a hash of the facts in `series`; 0: unknown


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


def load_ids(executor: Executor, prices: OpenPrices) -> None:
    """Load segments, places and the next free id of a series."""
    for segment_id, provider, gpu, count, spot in executor.rows(
        "SELECT id, provider, gpu, gpu_count, spot FROM segment"
    ):
        prices.segments[(provider, gpu, count, spot)] = segment_id
    for place_id, region, country in executor.rows("SELECT id, region, country FROM place"):
        prices.places[(region, country)] = place_id
    prices.next_series_id = 1 + (executor.rows("SELECT max(id) FROM series")[0][0] or 0)


def load_covers(executor: Executor, prices: OpenPrices) -> None:
    """Load when each GPU was last covered."""
    for provider, gpu, spot, at_s in executor.rows(
        "SELECT provider, gpu, spot, max(at_s) FROM poll WHERE covers = 1 GROUP BY provider, gpu, spot"
    ):
        prices.prices_of(provider, spot).covered_s[gpu] = at_s


OPEN_COLUMNS = """s.segment_id, s.machine_id, s.id, s.verification, p.seen_from_s, p.machine_microusd_hour,
 p.disk_microusd_gb_month"""
OPEN_ROWS = f"""SELECT {OPEN_COLUMNS} FROM series s JOIN price_interval p ON p.series_id = s.id
 AND p.seen_from_s = (SELECT max(n.seen_from_s) FROM price_interval n WHERE n.series_id = s.id)
 WHERE s.on_offer = 1"""  # noqa: S608 constants


def load_open(rows: Iterable[Row], prices: OpenPrices) -> None:
    """Add rows of `OPEN_ROWS`; the segments must be loaded."""
    places: dict[int, tuple[ProviderPrices, str, int]] = {}
    for (provider, gpu, count, spot), number in prices.segments.items():
        places[number] = (prices.prices_of(provider, spot), gpu, count)
    for segment_id, machine, series_id, verification, from_s, price, disk in rows:
        provider_prices, gpu, count = places[segment_id]
        verification_value = None if verification is None else VERIFICATIONS.get(verification)
        provider_prices.add(
            OpenPrice(series_id, segment_id, gpu, (machine, count), from_s, price, disk, verification_value)
        )
        if from_s > provider_prices.changed_s.get(gpu, NEVER):
            provider_prices.changed_s[gpu] = from_s
