"""The limits of a watch at a given moment. The settings say how they are computed; hunts and jobs need the result.

`WatchLimits` joins three sources:

- the automatic limit of `max_price = "auto"` (`engine/forecasts/auto_limits`);
- `PastLimits`, for `new_low`, `drop_by` and `percentile`, from the stored prices. The whole span is read every half
  hour. For `new_low` every round also reads what was stored since then, up to the watch's last poll: a price that has
  already gone again is still the lowest, and one that a sweep or another watch's search stored first is new until the
  watch has seen it;
- `MachineReputations`, for `min_reputation`: the results of your own launches, read once a minute.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.history.past_lows import drop_limit, new_low_limit, percentile_limit
from gpuwatch.domain.history.price_series import PriceSeries, with_newer
from gpuwatch.domain.setup.durations import is_recent
from gpuwatch.domain.watches.past_limits import DROP_BY, NEW_LOW, PERCENTILE, MachineRecords, PastComparison, PastLimit
from gpuwatch.domain.watches.watch import SpotPolicy, Watch
from gpuwatch.domain.watches.watch_fields import MOST_GPUS
from gpuwatch.engine.forecasts.auto_limits import AutoPrices
from gpuwatch.engine.market.watch_search import RENTAL_TYPES
from gpuwatch.errors import StoreError
from gpuwatch.ports.store import PastPriceReader

log = logging.getLogger(__name__)

LIMITS_READ_EVERY = timedelta(minutes=30)
REPUTATIONS_READ_EVERY = timedelta(minutes=1)
_OVERLAP = timedelta(hours=4)  # a poll's prices apply for hours after it, and are stored slightly later
_Part = tuple[str, str, str, bool]  # watch, clause, GPU, spot


class WatchLimits:
    """Computes the current limits of watches. Thread-safe: the hunts of several providers call it."""

    def __init__(self, auto_prices: AutoPrices, past_limits: PastLimits, reputations: MachineReputations) -> None:
        self._auto_prices = auto_prices
        self._past_limits = past_limits
        self._reputations = reputations

    def of(
        self, watch: Watch, now: datetime, polled_at: Mapping[bool, datetime] | None = None, *, provider: str = ""
    ) -> Watch:
        """Return the watch with its current limits. Raises StoreError.

        Args:
            polled_at: by spot, when its last answered poll at the provider was sent; None: now.
        """
        limited = self._auto_prices.with_current_limit(watch, now)
        limited = self._past_limits.with_past(limited, now, polled_at, provider=provider)
        return self._reputations.with_records(limited, now)

    def deadline(self, watch: Watch, now: datetime) -> datetime | None:
        """Return the deadline of an automatic limit; None: the watch has none. Raises StoreError."""
        return self._auto_prices.standing(watch, now).deadline if watch.auto is not None else None


class _Read(msgspec.Struct, frozen=True):
    """A series of a whole span: when it was read, and up to when."""

    series: PriceSeries
    at: datetime
    until: datetime


class PastLimits:
    """The limits of one daemon's watches. Thread-safe.

    Args:
        disk_gb: the disk that the history's prices include if a watch requests none.
        logs: False: the caller reports the basis of each limit itself.
    """

    def __init__(self, prices: PastPriceReader, disk_gb: float, *, logs: bool = True) -> None:
        self._prices = prices
        self._logs = logs
        self._disk_gb = disk_gb
        self._read: dict[tuple[str, _Part], _Read] = {}  # by provider, which polls at its own times
        self._logged: dict[_Part, bool] = {}  # whether there was anything to compare with
        self._lock = threading.Lock()

    def with_past(
        self, watch: Watch, now: datetime, polled_at: Mapping[bool, datetime] | None = None, *, provider: str = ""
    ) -> Watch:
        """Return the watch with its current limits, or unchanged if it has no such clause.

        Args:
            polled_at: by spot, when the watch's last answered poll at the provider was sent: `new_low` compares with
                prices stored before; None: now.

        Raises:
            StoreError: the prices cannot be read.
        """
        if not watch.compares_with_past:
            return watch
        with self._lock:  # the hunts of all providers arrive at once
            limits = tuple(
                limit
                for gpu in watch.gpu_names
                for spot in RENTAL_TYPES[watch.spot]
                for limit in self._limits(watch, gpu, spot, now, _stored_until(polled_at, spot, now), provider)
            )
        for limit in limits if self._logs else ():
            self._log_limit(watch, limit)
        past = PastComparison(limits=limits, disk_gb=self._disk_gb if watch.disk_gb is None else watch.disk_gb)
        return msgspec.structs.replace(watch, past=past)

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget all other watches."""
        with self._lock:
            self._read = {key: read for key, read in self._read.items() if key[1][0] in watches}
            self._logged = {part: has_any for part, has_any in self._logged.items() if part[0] in watches}

    def _limits(
        self, watch: Watch, gpu: str, spot: bool, now: datetime, until: datetime, provider: str
    ) -> list[PastLimit]:
        found = []
        if watch.new_low_s is not None:
            part = provider, (watch.name, NEW_LOW, gpu, spot)
            series = self._series(part, _any_offer_of(watch, gpu, spot), watch.new_low_s, now, until)
            found.append(new_low_limit(gpu, spot, series, watch.new_low_s, now))
        if watch.drop_by is not None:
            part = "", (watch.name, DROP_BY, gpu, spot)
            series = self._series(part, _what_fits(watch, gpu, spot), watch.drop_over_s, now, now)
            found.append(drop_limit(gpu, spot, series, watch.drop_by, watch.drop_over_s, now))
        if watch.percentile is not None:
            part = "", (watch.name, PERCENTILE, gpu, spot)
            series = self._series(part, _what_fits(watch, gpu, spot), watch.percentile_over_s, now, now)
            found.append(percentile_limit(gpu, spot, series, watch.percentile, watch.percentile_over_s, now))
        return found

    def _series(
        self, key: tuple[str, _Part], wanted: Watch, span_s: float, now: datetime, until: datetime
    ) -> PriceSeries:
        """Return the series of the span up to `until`; for a median or percentile it may be half an hour old."""
        known = self._read.get(key)
        is_recent = known is not None and timedelta(0) <= now - known.at < LIMITS_READ_EVERY  # no clock stepped back
        if known is None or not is_recent or until < known.until:
            known = _Read(self._prices.series(wanted, now - timedelta(seconds=span_s), until), now, until)
            self._read[key] = known
        elif key[1][1] == NEW_LOW:
            return with_newer(known.series, self._prices.series(wanted, known.until - _OVERLAP, until))
        return known.series

    def _log_limit(self, watch: Watch, limit: PastLimit) -> None:
        """Log, once and at each change, whether there are prices to compare with: without them it does not fire."""
        key, is_known = (watch.name, limit.clause, limit.gpu, limit.spot), limit.microusd_gpu_hour is not None
        if self._logged.get(key, True) == is_known:
            return
        self._logged[key] = is_known
        say = log.info if is_known else log.warning
        text = "watch %s: %s for %s compares with %s" if is_known else "watch %s: %s for %s does not fire: %s"
        say(text, watch.name, limit.clause, limit.of, limit.basis, extra={"watch": watch.name})


def _stored_until(polled_at: Mapping[bool, datetime] | None, spot: bool, now: datetime) -> datetime:
    """Return up to when a stored price was known to the watch: a price of its poll's second may have come later."""
    if polled_at is None or spot not in polled_at:
        return now
    return min(now, polled_at[spot].replace(microsecond=0) - timedelta(seconds=1))


def _any_offer_of(watch: Watch, gpu: str, spot: bool) -> Watch:
    """Return a watch for all stored prices of a GPU and rental type: any count and place, with its disk; of all hosts,
    or of verified ones alone."""
    return Watch(
        name="",
        gpu=(gpu,),
        gpu_names=(gpu,),
        max_price_usd_gpu_hour=watch.max_price_usd_gpu_hour,
        gpu_count_max=MOST_GPUS,
        spot=SpotPolicy.ONLY if spot else SpotPolicy.NO,
        listed=False,
        disk_gb=watch.disk_gb,
        verified=watch.verified,
    )


def _what_fits(watch: Watch, gpu: str, spot: bool) -> Watch:
    """Return the watch itself, for one GPU and rental type; the stored prices compared with contain no traffic."""
    return msgspec.structs.replace(
        watch,
        download_gb=0.0,
        upload_gb=0.0,
        gpu=(gpu,),
        gpu_names=(gpu,),
        spot=SpotPolicy.ONLY if spot else SpotPolicy.NO,
        listed=False,
        past=None,
    )


class NoPastPrices:
    """Implements `ports.store.PastPriceReader` without a store."""

    def series(self, watch: Watch, since: datetime, now: datetime) -> PriceSeries:
        """Return an empty series."""
        return PriceSeries(first_hour=0, lows=(), polled=(), source="no store")


class MachineReputations:
    """Safe to call from the hunts of several providers at once.

    Args:
        read: returns the results of recent launches, by machine; raises StoreError.
    """

    def __init__(self, read: Callable[[datetime], MachineRecords]) -> None:
        self._read = read
        self._records: MachineRecords = {}
        self._read_at: datetime | None = None
        self._lock = threading.Lock()

    def with_records(self, watch: Watch, now: datetime) -> Watch:
        """Return the watch with its reputations, or unchanged if it needs none. If reading fails, the old ones stay."""
        if watch.min_reputation is None:
            return watch
        with self._lock:
            if self._read_at is None or not is_recent(self._read_at, now, REPUTATIONS_READ_EVERY):
                try:
                    self._records = self._read(now)
                except StoreError as error:
                    log.warning("min_reputation: %s", error)
                self._read_at = now
        return msgspec.structs.replace(watch, records=self._records)
