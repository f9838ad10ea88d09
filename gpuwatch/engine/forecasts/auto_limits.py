"""The current limit of watches with `max_price = "auto"`; the rest of the engine sees an ordinary `max_price`.

- `AutoPrices`: the limits of a daemon. The history is read every half hour; every poll checks the time left, and
  whether a wait starts again.
- `BacktestWaits`: the data of such a watch at each moment of a recorded market, for `gpuwatch forecasts backtest`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from math import inf

import msgspec

from gpuwatch.domain.forecasts.auto_limit import LimitSchedule, deadline_of, limit_at, limit_schedule, whole_hours_left
from gpuwatch.domain.forecasts.price_forecasts import (
    RULE_TEXTS,
    ForecastSource,
    PriceForecast,
    scope_of,
)
from gpuwatch.domain.history.price_series import (
    PriceSeries,
)
from gpuwatch.domain.setup.durations import HOUR_S, format_moment
from gpuwatch.domain.watches.watch import AutoPrice, Watch
from gpuwatch.engine.forecasts.forecast_ledger import ForecastLedger
from gpuwatch.errors import StoreError
from gpuwatch.ports.store import AutoPriceRepository

log = logging.getLogger(__name__)

RECOMPUTE_EVERY = timedelta(minutes=30)
BACKTEST_RECOMPUTE_EVERY = timedelta(hours=6)  # in the time of the history
LIMIT_APPLIES = 2 * RECOMPUTE_EVERY  # a limit that a daemon stored this recently is the one it follows
_ANEW = timedelta(minutes=1)  # if the deadline moves by more, the limits are computed again


class AutoPriceLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The current limit of a watch."""

    limit_usd_gpu_hour: Decimal
    deadline: datetime
    why_none: str | None  # why the history gives no limit, so that the cap applies
    rule: str = ""  # name of the rule that is followed
    reason: str = ""  # the rule, and why it is followed


class _ComputedPlan(msgspec.Struct, frozen=True, kw_only=True):
    plan: LimitSchedule
    deadline: datetime
    at: datetime
    auto: AutoPrice


class AutoPrices:
    """The limits of one daemon's watches. Safe to call from the hunts of several providers at once.

    Args:
        every: how often the history is read.
        ledger: stores the forecasts, and decides whether optimal stopping can be trusted; None: nothing is stored.
        new_id: returns the id of a forecast.
    """

    def __init__(
        self,
        waits: AutoPriceRepository,
        every: timedelta = RECOMPUTE_EVERY,
        ledger: ForecastLedger | None = None,
        new_id: Callable[[], str] = str,
    ) -> None:
        self._waits = waits
        self._every = every
        self._ledger = ledger
        self._new_id = new_id
        self._computed: dict[str, _ComputedPlan] = {}
        self._logged: dict[str, tuple[Decimal, str]] = {}  # watch → limit logged last, and the reason for it
        self._saved_at: dict[str, datetime] = {}
        self._has_pruned = False  # whether the waits of removed watches were ended
        self._lock = threading.Lock()

    def with_current_limit(self, watch: Watch, now: datetime) -> Watch:
        """Return the watch with its current limit. The first call reads the history. Raises StoreError."""
        if watch.auto is None:
            return watch
        return msgspec.structs.replace(watch, max_price_usd_gpu_hour=self.standing(watch, now).limit_usd_gpu_hour)

    def standing(self, watch: Watch, now: datetime) -> AutoPriceLimit:
        """Return the current limit of a watch with `max_price = "auto"`. Raises StoreError."""
        auto = _auto(watch)
        found = self._known(watch, now)
        if found is None:
            with self._lock:  # the hunts of all providers arrive at once; the first one reads
                found = self._known(watch, now) or self._compute(watch, self._waits.wait_started_at(watch, now), now)
        limit = limit_at(found.plan, auto, found.deadline, now)
        return AutoPriceLimit(
            limit_usd_gpu_hour=limit,
            deadline=found.deadline,
            why_none=found.plan.why_none,
            rule=found.plan.rule,
            reason=_reason(found.plan),
        )

    def update(self, watches: Sequence[Watch], now: datetime) -> None:
        """Read the history again if it is due; store and log changes. After a StoreError the old limits stay valid."""
        if not self._has_pruned:
            self._waits.delete_except([watch.name for watch in watches if watch.auto is not None])
            self._has_pruned = True
        for watch in watches:
            if watch.auto is not None:
                self.renew(watch, now)
                self._log_limit(watch, now)
                self._state(watch, now)
        if self._ledger is not None:
            self._ledger.score_if_due(now)

    def renew(self, watch: Watch, now: datetime) -> Watch:
        """Return the watch with its current limit, from a recently read history. Raises StoreError."""
        found = self._computed.get(watch.name)
        is_due = found is None or not timedelta(0) <= now - found.at < self._every  # also after a clock stepped back
        if watch.auto is not None and is_due:
            with self._lock:
                self._compute(watch, self._waits.begin_wait(watch, now), now)
        return self.with_current_limit(watch, now)

    def renew_until(self, watch: Watch, now: datetime) -> tuple[Watch, float]:
        """Return the same, and the time (seconds since 1970) before which it stays so, unless a wait starts again."""
        renewed = self.renew(watch, now)
        found = None if watch.auto is None else self._computed[watch.name]
        if found is None or now >= found.deadline:
            return renewed, inf
        next_hour = found.deadline - timedelta(hours=whole_hours_left(found.deadline, now))
        return renewed, min(found.at + self._every, next_hour).timestamp()

    def forget_except(self, watches: Collection[str]) -> None:
        """Forget all other watches."""
        with self._lock:
            self._computed = {name: found for name, found in self._computed.items() if name in watches}
            self._logged = {name: found for name, found in self._logged.items() if name in watches}
            self._saved_at = {name: at for name, at in self._saved_at.items() if name in watches}
        self._waits.forget_except(watches)
        if self._ledger is not None:
            self._ledger.forget_except(watches)

    def _known(self, watch: Watch, now: datetime) -> _ComputedPlan | None:
        """Return the computed plan if it is still valid. The end of a launch starts the wait again, at this poll."""
        found = self._computed.get(watch.name)
        if found is None or found.auto != watch.auto:
            return None
        if found.auto.deadline_at is not None:
            return found
        try:
            deadline = deadline_of(found.auto, self._waits.wait_started_at(watch, now) or now)
        except StoreError:  # a new wait cannot begin now either
            return found
        return None if deadline - found.deadline > _ANEW else found

    def _compute(self, watch: Watch, started_at: datetime | None, now: datetime) -> _ComputedPlan:
        auto = _auto(watch)
        deadline = deadline_of(auto, started_at or now)
        is_simple = self._ledger is not None and not self._ledger.trusts_optimal_stopping
        made = limit_schedule(self._waits.series(watch, now), auto, deadline, now, is_simple=is_simple)
        found = self._computed[watch.name] = _ComputedPlan(plan=made, deadline=deadline, at=now, auto=auto)
        return found

    def _state(self, watch: Watch, now: datetime) -> None:
        """Store the limits as a forecast, to be compared with later prices."""
        found = self._computed.get(watch.name)
        if self._ledger is None or found is None or not found.plan.limits_usd or found.deadline <= now:
            return
        limits, hours = found.plan.limits_usd, whole_hours_left(found.deadline, now)
        self._ledger.state(
            PriceForecast(
                forecast_id=self._new_id(),
                source=ForecastSource.AUTO,
                made_at=now,
                due_at=now + timedelta(hours=hours),
                scope=scope_of(watch),
                watch=watch.name,
                rule=found.plan.rule,
                verdict=None,
                now_usd=None,
                limits_usd=tuple(limits[min(left, len(limits) - 1)] for left in range(hours + 1)),
                median_usd=found.plan.median_usd,
                cap_usd=float(found.auto.cap_usd_gpu_hour),
            )
        )

    def _log_limit(self, watch: Watch, now: datetime) -> None:
        """Log a limit when it changes, and a lack of history once; others see in the store that it still applies."""
        standing = self.standing(watch, now)
        limit = standing.limit_usd_gpu_hour
        is_logged = self._logged.get(watch.name) == (limit, standing.reason)
        saved_at = self._saved_at.get(watch.name)
        if is_logged and saved_at is not None and timedelta(0) <= now - saved_at < self._every:
            return
        self._waits.save_limit(watch, limit, now)
        self._saved_at[watch.name] = now
        if is_logged:
            return
        self._logged[watch.name] = (limit, standing.reason)
        if standing.why_none is None:
            log.info(
                "watch %s: limit $%s per GPU-hour until %s; %s",
                watch.name,
                f"{limit:f}",
                format_moment(standing.deadline),
                standing.reason,
                extra={"watch": watch.name},
            )
        else:
            log.warning(
                "watch %s: too little history for max_price = auto (%s); the cap of $%s applies",
                watch.name,
                standing.why_none,
                f"{limit:f}",
                extra={"watch": watch.name},
            )


def _auto(watch: Watch) -> AutoPrice:
    if watch.auto is None:
        raise ValueError(f"watch {watch.name!r} has a price of its own")
    return watch.auto


def _reason(plan: LimitSchedule) -> str:
    if plan.why_none is not None:
        return ""
    by_record = "; optimal stopping is not used, based on the record of earlier forecasts" if plan.is_simple else ""
    return RULE_TEXTS[plan.rule] + by_record


class BacktestWaits:
    """Implements `ports.store.AutoPriceRepository` over a recorded market. An hour is visible once it is over.

    Args:
        series: the hours of the whole market, by watch (`fitting_series`).
    """

    def __init__(self, series: Mapping[str, PriceSeries]) -> None:
        self._series = series
        self._first_polls: dict[str, datetime] = {}

    def wait_started_at(self, watch: Watch, now: datetime) -> datetime | None:
        """Return the time of the first poll; None: there was none."""
        return self._first_polls.get(watch.name)

    def begin_wait(self, watch: Watch, now: datetime) -> datetime:
        """Note and return the time of the first poll."""
        return self._first_polls.setdefault(watch.name, now)

    def save_limit(self, watch: Watch, limit_usd_gpu_hour: Decimal, now: datetime) -> None:
        """Do nothing: nothing reads it."""

    def delete_except(self, watches: Collection[str]) -> None:
        """Do nothing: there is nothing to forget."""

    def forget_except(self, watches: Collection[str]) -> None:
        """Do nothing: a backtest has one watch."""

    def series(self, watch: Watch, now: datetime) -> PriceSeries:
        """Return the hours that were over; none after the deadline, when the cap applies whatever they were."""
        complete = self._series[watch.name]
        is_over = now >= deadline_of(_auto(watch), self._first_polls.get(watch.name, now))
        known = 0 if is_over else max(0, int(now.timestamp()) // HOUR_S - complete.first_hour)
        return msgspec.structs.replace(complete, lows=complete.lows[:known], polled=complete.polled[:known])
