"""Watches with `max_price = "auto"`: which limit is in force. Everything behind it sees a watch with that `max_price`.

The history is read every half hour; how much time is left is asked at every look, and whether a wait begins anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

import msgspec

from gpuwatch.analysis.auto_limit import Plan, deadline_of, limit_at, plan
from gpuwatch.errors import StoreError
from gpuwatch.ports.waits import Waits
from gpuwatch.watches.watch import AutoPrice, Watch

log = logging.getLogger(__name__)

RECKONED_EVERY = timedelta(minutes=30)
_ANEW = timedelta(minutes=1)  # a deadline that moved by more asks for limits of its own


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where the wait of a watch stands."""

    limit_usd_gpu_hour: Decimal
    deadline: datetime
    why_none: str | None  # why the history decides nothing, so that the cap is the limit


class _Reckoned(msgspec.Struct, frozen=True, kw_only=True):
    plan: Plan
    deadline: datetime
    at: datetime
    auto: AutoPrice


class AutoPrices:
    """The limits of one daemon's watches. Safe to be called from the hunts of several providers at once."""

    def __init__(self, waits: Waits, every: timedelta = RECKONED_EVERY) -> None:
        self._waits = waits
        self._every = every
        self._reckoned: dict[str, _Reckoned] = {}
        self._told: dict[str, tuple[Decimal, bool]] = {}  # watch → the limit that was told, and if the history says it
        self._forgot = False  # were the waits of watches that are no more ended?
        self._lock = threading.Lock()

    def in_force(self, watch: Watch, now: datetime) -> Watch:
        """The watch with the limit of this moment. The first look reads the history. Raises StoreError."""
        if watch.auto is None:
            return watch
        return msgspec.structs.replace(watch, max_price_usd_gpu_hour=self.standing(watch, now).limit_usd_gpu_hour)

    def standing(self, watch: Watch, now: datetime) -> Standing:
        """For a watch that has a limit of this kind. Raises StoreError."""
        auto = _auto(watch)
        found = self._known(watch, now)
        if found is None:
            with self._lock:  # the hunts of all providers come at once; the first of them reads
                found = self._known(watch, now) or self._reckon(watch, now)
        limit = limit_at(found.plan, auto, found.deadline, now)
        return Standing(limit_usd_gpu_hour=limit, deadline=found.deadline, why_none=found.plan.why_none)

    def beat(self, watches: Sequence[Watch], now: datetime) -> None:
        """Read the history anew where it is due; keep and log what changed. Raises StoreError: the old limits stay."""
        if not self._forgot:
            self._waits.forget_but([watch.name for watch in watches if watch.auto is not None])
            self._forgot = True
        for watch in watches:
            if watch.auto is not None:
                self.renew(watch, now)
                self._tell(watch, now)

    def renew(self, watch: Watch, now: datetime) -> Watch:
        """The watch with the limit of this moment, out of a history that was read lately. Raises StoreError."""
        found = self._reckoned.get(watch.name)
        is_due = found is None or not timedelta(0) <= now - found.at < self._every  # a clock that was put back, too
        if watch.auto is not None and is_due:
            with self._lock:
                self._reckon(watch, now)
        return self.in_force(watch, now)

    def _known(self, watch: Watch, now: datetime) -> _Reckoned | None:
        """What was reckoned and still holds. A launch that ended begins the wait anew, at this very look."""
        found = self._reckoned.get(watch.name)
        if found is None or found.auto != watch.auto:
            return None
        if found.auto.deadline_at is not None:
            return found
        try:
            deadline = deadline_of(found.auto, self._waits.began(watch, now))
        except StoreError:  # nothing can be begun now either
            return found
        return None if deadline - found.deadline > _ANEW else found

    def _reckon(self, watch: Watch, now: datetime) -> _Reckoned:
        auto = _auto(watch)
        deadline = deadline_of(auto, self._waits.began(watch, now))
        made = plan(self._waits.series(watch, now), auto, deadline, now)
        found = self._reckoned[watch.name] = _Reckoned(plan=made, deadline=deadline, at=now, auto=auto)
        return found

    def _tell(self, watch: Watch, now: datetime) -> None:
        """A limit is logged when it changes, and that the history is not enough once."""
        standing = self.standing(watch, now)
        limit, is_known = standing.limit_usd_gpu_hour, standing.why_none is None
        if self._told.get(watch.name) == (limit, is_known):
            return
        self._waits.keep_limit(watch, limit, now)
        self._told[watch.name] = (limit, is_known)
        if is_known:
            log.info(
                "watch %s: at or under $%s per GPU-hour now, until %s",
                watch.name,
                f"{limit:f}",
                f"{standing.deadline:%Y-%m-%d %H:%M} UTC",
                extra={"watch": watch.name},
            )
        else:
            log.warning(
                "watch %s: the history is not enough for max_price = auto (%s); until it is, the cap of $%s counts",
                watch.name,
                standing.why_none,
                f"{limit:f}",
                extra={"watch": watch.name},
            )


def _auto(watch: Watch) -> AutoPrice:
    if watch.auto is None:
        raise ValueError(f"watch {watch.name!r} has a price of its own")
    return watch.auto
