"""Records what watches decide when it changes: in the log, and in the store, in the transaction of the decision.

A decision that says the same as the last one writes nothing, so that a steady watch costs nothing. One that changes all
the time writes at most `MAX_AN_HOUR` rows an hour; what it decides then is written once there is room again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from gpuwatch.domain.launches.past_decision import PastDecision, limit_of
from gpuwatch.domain.market.money import per_unit_hour
from gpuwatch.domain.watches.decide import Decision, DecisionReason
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.ports import UnitOfWork

log = logging.getLogger(__name__)

MAX_AN_HOUR = 30
_HOUR = timedelta(hours=1)


class DecisionLog:
    """Knows the last decision of each watch; the evaluator calls it under its lock.

    Args:
        newest: what is stored, by watch.
    """

    def __init__(self, newest: Mapping[str, PastDecision]) -> None:
        self._newest = dict(newest)
        self._written: dict[str, deque[datetime]] = {}
        self._pending: dict[str, PastDecision] = {}
        self._logged: dict[str, DecisionReason] = {}

    def is_news(self, watch: Watch, decision: Decision) -> bool:
        """Whether a decision from which nothing follows is to be stored, too."""
        return self._is_news(watch, _plain(watch, decision))

    def begin(self, watch: Watch, decision: Decision) -> None:
        """Note a decision; `because` may give another reason before it is stored."""
        self._pending[watch.name] = _plain(watch, decision)

    def because(self, watch: str, reason: str, text: str) -> None:
        """Note what came of the decision that was begun."""
        begun = self._pending[watch]
        self._pending[watch] = PastDecision(
            at=begun.at, reason=reason, text=text, limit_microusd_gpu_hour=begun.limit_microusd_gpu_hour
        )

    def store(self, uow: UnitOfWork, watch: Watch) -> None:
        """Store it in this transaction if it is news."""
        pending = self._pending[watch.name]
        if self._is_news(watch, pending):
            uow.record_decision(watch.name, pending)

    def committed(self, watches: Sequence[Watch]) -> None:
        """Note that the transaction is durable."""
        for watch in watches:
            pending = self._pending.pop(watch.name, None)
            if pending is not None and self._is_news(watch, pending):
                self._newest[watch.name] = pending
                self._written.setdefault(watch.name, deque(maxlen=MAX_AN_HOUR)).append(pending.at)

    def log_changes(self, decided: Sequence[tuple[Watch, Decision]]) -> None:
        """Log changes only: a new reason, and every alert."""
        for watch, decision in decided:
            if decision.fires or self._logged.get(watch.name) is not decision.reason:
                best = decision.best
                price = ""
                if best is not None:
                    gpu_count = best.offer.gpu_count
                    price = f", best {per_unit_hour(best.price.gpu_price_usd_hour(gpu_count), gpu_count)}"
                log.info("watch %s: %s%s", watch.name, decision.reason.value, price, extra={"watch": watch.name})
            self._logged[watch.name] = decision.reason

    def forget_except(self, names: Collection[str]) -> None:
        """Forget all other watches: jobs that are over."""
        for known in (self._newest, self._written, self._pending, self._logged):
            for name in known.keys() - set(names):
                del known[name]

    def _is_news(self, watch: Watch, decision: PastDecision) -> bool:
        """A job's watch is not recorded: the job has events of its own."""
        if watch.purpose.job is not None or decision.is_as(self._newest.get(watch.name)):
            return False
        written = self._written.get(watch.name)
        return written is None or len(written) < MAX_AN_HOUR or not timedelta(0) <= decision.at - written[0] < _HOUR


def _plain(watch: Watch, decision: Decision) -> PastDecision:
    return PastDecision(at=decision.decided_at, reason=decision.reason.value, limit_microusd_gpu_hour=limit_of(watch))
