"""The watches with their limits of now: of `max_price = "auto"`, of past prices, and of your own launch records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.bootstrap import open_store, open_store_read_only, real_now
from gpuwatch.errors import StoreError

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.engine.forecasts.auto_limits import AutoPriceLimit
    from gpuwatch.settings import Settings

_MINUTE = timedelta(minutes=1)  # the clocks of two hosts may differ by as much


class CurrentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The watches with their current limits."""

    watches: Sequence[Watch]
    limits_by_watch: dict[str, AutoPriceLimit]  # automatic limits only
    fault: str | None = None  # why the store could not be read, so that the caps apply


def current_limits(
    settings: Settings, watches: Sequence[Watch], keep: bool, *, from_daemon: bool = False
) -> CurrentLimits:
    """The watches as the daemon would hunt them now: with automatic limits, past prices, and your launch records.

    Opens the store only if one of the watches needs it.

    Args:
        keep: record when a watch was first polled; False: write nothing.
        from_daemon: take the automatic limits that a daemon follows now, and compute only the others.
    """
    limits = limits_in_force(settings, watches) if from_daemon else _with_auto_limits(settings, watches, keep)
    return _with_records(settings, _with_past_limits(settings, limits))


def limits_in_force(settings: Settings, watches: Sequence[Watch]) -> CurrentLimits:
    """The watches with the automatic limits that a daemon follows now; the others are computed. Writes nothing."""
    if all(watch.auto is None for watch in watches):
        return CurrentLimits(watches=watches, limits_by_watch={})
    from gpuwatch.engine.forecasts.auto_limits import LIMIT_APPLIES
    from gpuwatch.storage.forecasts.forecast_rows import SqlAutoPriceWaits

    try:
        with open_store_read_only(settings) as store:
            now = real_now()
            saved = SqlAutoPriceWaits(store, {}, may_write=False).saved_limits(now - LIMIT_APPLIES, now + _MINUTE)
    except StoreError as error:
        return CurrentLimits(watches=watches, limits_by_watch={}, fault=str(error))
    others = [watch for watch in watches if watch.auto is not None and watch.name not in saved]
    computed = {watch.name: watch for watch in _with_auto_limits(settings, others, keep=False).watches}
    limited = [computed.get(watch.name) or _with_saved(watch, saved) for watch in watches]
    return CurrentLimits(watches=limited, limits_by_watch={})


def known_limits(settings: Settings, now: datetime) -> list[Watch]:
    """The watches whose limit is known without computing it: automatic ones are those that a daemon follows now.

    Raises:
        StoreError: the store cannot be read.
    """
    saved: Mapping[str, Decimal] = {}
    if any(watch.auto is not None for watch in settings.watches):
        from gpuwatch.engine.forecasts.auto_limits import LIMIT_APPLIES
        from gpuwatch.storage.forecasts.forecast_rows import SqlAutoPriceWaits

        with open_store_read_only(settings) as store:
            waits = SqlAutoPriceWaits(store, {}, may_write=False)
            saved = waits.saved_limits(now - LIMIT_APPLIES, now + _MINUTE)
    known = (watch for watch in settings.watches if watch.auto is None or watch.name in saved)
    return [_with_saved(watch, saved) for watch in known]


def _with_saved(watch: Watch, saved: Mapping[str, Decimal]) -> Watch:
    if watch.auto is None:
        return watch
    limit = min(saved[watch.name], watch.auto.cap_usd_gpu_hour)
    return msgspec.structs.replace(watch, max_price_usd_gpu_hour=limit)


def _with_auto_limits(settings: Settings, watches: Sequence[Watch], keep: bool) -> CurrentLimits:
    if all(watch.auto is None for watch in watches):
        return CurrentLimits(watches=watches, limits_by_watch={})
    from gpuwatch.bootstrap.rules import commissions_of
    from gpuwatch.engine.forecasts.auto_limits import AutoPrices
    from gpuwatch.engine.forecasts.forecast_ledger import ForecastLedger
    from gpuwatch.storage.forecasts.forecast_rows import SqlAutoPriceWaits, SqlForecasts

    now = real_now()
    try:
        with open_store(settings) if keep else open_store_read_only(settings) as store:
            ledger = ForecastLedger(SqlForecasts(store, {}))  # only its record: a check makes no forecasts
            waits = SqlAutoPriceWaits(store, commissions_of(settings), may_write=keep)
            for watch in watches if keep else ():
                if watch.auto is not None:
                    waits.begin_wait(watch, now)
            prices = AutoPrices(waits, ledger=ledger)
            limits_by_watch = {watch.name: prices.standing(watch, now) for watch in watches if watch.auto is not None}
            limited = [prices.with_current_limit(watch, now) for watch in watches]
            return CurrentLimits(watches=limited, limits_by_watch=limits_by_watch)
    except StoreError as error:
        return CurrentLimits(watches=watches, limits_by_watch={}, fault=str(error))


def _with_records(settings: Settings, limits: CurrentLimits) -> CurrentLimits:
    """The launch records; without a readable store there are none."""
    if not any(watch.min_reputation is not None for watch in limits.watches):
        return limits
    from gpuwatch.engine.watches.current_limits import MachineReputations
    from gpuwatch.storage.launches.renting_blocks import SqlMachineNoteRepository

    now = real_now()
    try:
        with open_store_read_only(settings) as store:
            reputations = MachineReputations(SqlMachineNoteRepository(store).records)
            watches = [reputations.with_records(watch, now) for watch in limits.watches]
    except StoreError:
        return limits
    return msgspec.structs.replace(limits, watches=watches)


def _with_past_limits(settings: Settings, limits: CurrentLimits) -> CurrentLimits:
    """The past prices; without a readable store none are known, and a watch that compares with them matches nothing."""
    if not any(watch.compares_with_past for watch in limits.watches):
        return limits
    from gpuwatch.bootstrap.rules import all_commissions
    from gpuwatch.domain.market.money import REFERENCE_DISK_GB
    from gpuwatch.engine.watches.current_limits import NoPastPrices, PastLimits
    from gpuwatch.storage.forecasts.fitting_prices import SqlFittingPrices

    now = real_now()
    try:
        with open_store_read_only(settings) as store:
            past = PastLimits(SqlFittingPrices(store, all_commissions(settings)), REFERENCE_DISK_GB, logs=False)
            watches = [past.with_past(watch, now) for watch in limits.watches]
    except StoreError:
        past = PastLimits(NoPastPrices(), REFERENCE_DISK_GB, logs=False)
        watches = [past.with_past(watch, now) for watch in limits.watches]
    return msgspec.structs.replace(limits, watches=watches)
