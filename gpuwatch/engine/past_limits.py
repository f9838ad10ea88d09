"""Watches with `new_low`, `drop_by` or `percentile`: what an offer must cost at this moment, out of the stored prices.

The whole span is read every half hour. What was stored since is read at every round for `new_low`: a price that was
seen and is gone again is still the lowest.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.analysis.past_prices import drop_limit, new_low_limit, percentile_limit
from gpuwatch.domain.analysis.price_series import PriceSeries, with_newer
from gpuwatch.domain.watches.past_limits import DROP_BY, NEW_LOW, PERCENTILE, PastComparison, PastLimit
from gpuwatch.domain.watches.watch import MOST_GPUS, SpotPolicy, Watch
from gpuwatch.ports.store import PastPriceReader

log = logging.getLogger(__name__)

READ_EVERY = timedelta(minutes=30)
_OVERLAP = timedelta(hours=4)  # what an earlier poll saw counts for hours after it, and is stored a little later
_Part = tuple[str, str, str, bool]  # watch, clause, GPU, spot
_TYPES = {SpotPolicy.NO: (False,), SpotPolicy.ONLY: (True,), SpotPolicy.ANY: (False, True)}


class NoPastPrices:
    """Implements `ports.store.PastPriceReader` where there is no store."""

    def series(self, watch: Watch, since: datetime, now: datetime) -> PriceSeries:
        """Nothing."""
        return PriceSeries(first_hour=0, lows=(), polled=(), source="no store")


class PastLimits:
    """The limits of one daemon's watches. Safe to call from the hunts of several providers at once.

    Args:
        disk_gb: the disk that the history's prices include where a watch asks for none.
        logs: False: the caller says itself what each limit rests on.
    """

    def __init__(self, prices: PastPriceReader, disk_gb: float, *, logs: bool = True) -> None:
        self._prices = prices
        self._logs = logs
        self._disk_gb = disk_gb
        self._read: dict[_Part, tuple[PriceSeries, datetime]] = {}  # what was read, and when
        self._logged: dict[_Part, bool] = {}  # has it something to compare with?
        self._lock = threading.Lock()

    def with_past(self, watch: Watch, now: datetime) -> Watch:
        """The watch with its limits of this moment; a watch without such clauses as it is. Raises StoreError."""
        if not watch.compares_with_past:
            return watch
        with self._lock:  # the hunts of all providers come at once; the first one reads
            parts = [(gpu, spot) for gpu in watch.gpu_names for spot in _TYPES[watch.spot]]
            limits = tuple(limit for gpu, spot in parts for limit in self._limits(watch, gpu, spot, now))
        for limit in limits if self._logs else ():
            self._tell(watch, limit)
        past = PastComparison(limits=limits, disk_gb=self._disk_gb if watch.disk_gb is None else watch.disk_gb)
        return msgspec.structs.replace(watch, past=past)

    def _limits(self, watch: Watch, gpu: str, spot: bool, now: datetime) -> list[PastLimit]:
        found = []
        if watch.new_low_s is not None:
            part = (watch.name, NEW_LOW, gpu, spot)
            series = self._series(part, _everything(watch, gpu, spot), watch.new_low_s, now)
            found.append(new_low_limit(gpu, spot, series, watch.new_low_s, now))
        if watch.drop_by is not None:
            part = (watch.name, DROP_BY, gpu, spot)
            series = self._series(part, _what_fits(watch, gpu, spot), watch.drop_over_s, now)
            found.append(drop_limit(gpu, spot, series, watch.drop_by, watch.drop_over_s, now))
        if watch.percentile is not None:
            part = (watch.name, PERCENTILE, gpu, spot)
            series = self._series(part, _what_fits(watch, gpu, spot), watch.percentile_over_s, now)
            found.append(percentile_limit(gpu, spot, series, watch.percentile, watch.percentile_over_s, now))
        return found

    def _series(self, part: _Part, wanted: Watch, span_s: float, now: datetime) -> PriceSeries:
        """Of the span up to now; a median or percentile does without the last half hour."""
        known = self._read.get(part)
        if known is None or not timedelta(0) <= now - known[1] < READ_EVERY:  # a clock that was put back, too
            known = self._prices.series(wanted, now - timedelta(seconds=span_s), now), now
            self._read[part] = known
        elif part[1] == NEW_LOW:
            return with_newer(known[0], self._prices.series(wanted, known[1] - _OVERLAP, now))
        return known[0]

    def _tell(self, watch: Watch, limit: PastLimit) -> None:
        """Once, and again when it changes: there is nothing to compare with, so it does not fire."""
        key, is_known = (watch.name, limit.clause, limit.gpu, limit.spot), limit.microusd_gpu_hour is not None
        if self._logged.get(key, True) == is_known:
            return
        self._logged[key] = is_known
        say = log.info if is_known else log.warning
        text = "watch %s: %s for %s compares with %s" if is_known else "watch %s: %s for %s does not fire: %s"
        say(text, watch.name, limit.clause, limit.of, limit.basis, extra={"watch": watch.name})


def _everything(watch: Watch, gpu: str, spot: bool) -> Watch:
    """All that is stored of a GPU and rental type: any number, host and place, with the watch's disk."""
    return Watch(
        name="",
        gpu=(gpu,),
        gpu_names=(gpu,),
        max_price_usd_gpu_hour=watch.max_price_usd_gpu_hour,
        gpu_count_max=MOST_GPUS,
        spot=SpotPolicy.ONLY if spot else SpotPolicy.NO,
        listed=False,
        disk_gb=watch.disk_gb,
    )


def _what_fits(watch: Watch, gpu: str, spot: bool) -> Watch:
    """The watch itself, for one GPU and rental type."""
    return msgspec.structs.replace(
        watch,
        gpu=(gpu,),
        gpu_names=(gpu,),
        spot=SpotPolicy.ONLY if spot else SpotPolicy.NO,
        listed=False,
        past=None,
    )
