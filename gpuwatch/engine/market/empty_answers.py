"""Finds a provider whose answers became empty: complete, but without any row, against its own recent past.

Offers sell out one after the other, so a query counts only if its last answers had many rows, and the next had none. A
hunt may find nothing because every price rose above its limit: then a sweep, which has no limits, is due at once. Any
row from any query shows that the provider still lists offers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.alerts.market_texts import ANSWERS_EMPTY, OFFERS_AGAIN
from gpuwatch.domain.market.figure_text import count_text
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.engine.alerts.health_alerts import span_text
from gpuwatch.ports import SWEEP, UnitOfWorkFactory
from gpuwatch.ports.market import Hold, HoldStore

log = logging.getLogger(__name__)

EMPTY = "empty answers"  # the kind of its hold, by which commands and pages know it
_FILTERS = "filters"  # the kind of the hold that names the settings of its sweeps
PAST = timedelta(days=1)  # older rows are no recent past
_ANSWERS = 3  # the fewest rows of so many answers are what a query can be expected to return
_MIN_HUNT_ROWS, _MIN_SWEEP_ROWS = 10, 20  # fewer may sell out between two answers
_ABRUPT = timedelta(minutes=5)  # in a longer pause between two hunts, offers at a limit may sell out
_CONFIRM = timedelta(minutes=2)  # from the first empty answer to the alert
_KEPT_FOR = timedelta(days=365)
_QUERIES_KEPT = 500


class _Past(msgspec.Struct):
    """The last answers with rows of one query, and when the newest of them arrived."""

    rows: deque[int]
    at: datetime


class EmptyAnswers:
    """Watches the answers of one provider. Called from its hunt and its sweep.

    Args:
        sweeps: (GPU, spot, rows, time) of recent sweeps, oldest first, also by an earlier process.
        filters: the settings that decide what it lists, as a text: sweeps under other settings are not compared.
        found: kept up to date: contains the provider while its answers are empty.
    """

    def __init__(  # noqa: PLR0913 each is a collaborator, or read before the first answer
        self,
        provider: str,
        uow_factory: UnitOfWorkFactory,
        holds: HoldStore,
        new_id: Callable[[], str],
        sweeps: Iterable[tuple[str, bool, int, datetime]] = (),
        found: set[str] | None = None,
        *,
        filters: str = "",
    ) -> None:
        self._provider = provider
        self._uow_factory = uow_factory
        self._new_id = new_id
        self._past: dict[Hashable, _Past] = {}
        self._missing: dict[Hashable, int] = {}  # emptied sweep → its expected rows
        self._cut: dict[Hashable, int] = {}  # the same of hunts
        self._since: datetime | None = None  # the first of the empty answers
        self._is_swept = False  # a sweep since then was empty, too
        self._hold: Hold | None = None  # what was reported
        self._found = set() if found is None else found
        stored = holds.load(provider)
        self._filters = filters
        known = next((hold for hold in stored if hold.kind == _FILTERS), None)
        self._are_filters_saved = known is not None and known.reason == filters
        for gpu, spot, rows, at in sweeps:
            is_comparable = known is None or (known.reason == filters and at >= known.set_at)
            if rows and is_comparable:
                self._remember((SWEEP, gpu, spot), rows, at)
        for hold in stored:
            if hold.kind == EMPTY and hold.until > hold.set_at:
                self._hold = hold
                self._found.add(provider)

    @property
    def needs_sweep(self) -> bool:
        """Whether hunts became empty, and no sweep has been answered since."""
        return bool(self._cut) and not self._is_swept and self._hold is None

    def note(self, lane: str, query: Hashable, rows: int, now: datetime) -> None:
        """Note a complete answer, and report a change. Raises StoreError.

        Args:
            query: the query with all its filters, so that only equal ones are compared.
            rows: the number of rows as received.
        """
        if not self._are_filters_saved:
            self._save_filters(now)
        if rows:
            self._remember(query, rows, now)
            self._missing, self._cut, self._since, self._is_swept = {}, {}, None, False
            if self._hold is not None:
                self._filled(self._hold, now)
            return
        self._note_empty(lane, query, now)
        since = self._since = None if self._since is None else min(self._since, now)  # the clock may step back
        if self._hold is None and since is not None and now - since >= _CONFIRM and self._is_unlikely():
            self._emptied(since, now)

    def _save_filters(self, now: datetime) -> None:
        hold = Hold(provider=self._provider, kind=_FILTERS, set_at=now, until=now, reason=self._filters)
        with self._uow_factory.open() as uow:
            uow.save_hold(hold)
        self._are_filters_saved = True

    def _remember(self, query: Hashable, rows: int, at: datetime) -> None:
        past = self._past.pop(query, None) or _Past(deque(maxlen=_ANSWERS), at)
        past.rows.append(rows)
        past.at = at
        self._past[query] = past
        if len(self._past) > _QUERIES_KEPT:  # limits from the history change, and with them the queries
            del self._past[next(iter(self._past))]

    def _note_empty(self, lane: str, query: Hashable, now: datetime) -> None:
        past = self._past.pop(query, None)
        self._is_swept = self._is_swept or (lane == SWEEP and self._since is not None)
        if past is None or not timedelta(0) <= now - past.at <= (PAST if lane == SWEEP else _ABRUPT):
            return
        expected = min(past.rows)
        if lane == SWEEP:
            self._missing[query] = expected
        elif expected >= _MIN_HUNT_ROWS:
            self._cut[query] = expected
        self._since = self._since or now

    def _is_unlikely(self) -> bool:
        return (bool(self._cut) and self._is_swept) or sum(self._missing.values()) >= _MIN_SWEEP_ROWS

    @property
    def _expected(self) -> int:
        return max(sum(self._missing.values()), sum(self._cut.values()))

    def _emptied(self, since: datetime, now: datetime) -> None:
        reason = f"its answers have no rows, but had {self._expected} before"
        hold = Hold(provider=self._provider, kind=EMPTY, set_at=since, until=now + _KEPT_FOR, reason=reason)
        with self._uow_factory.open() as uow:
            stored = uow.hold(self._provider, EMPTY)
            if stored is not None and stored.until > stored.set_at:  # another process found it before
                self._hold = stored
                self._found.add(self._provider)
                return
            uow.enqueue(
                ANSWERS_EMPTY.outbox(
                    self._new_id(),
                    now,
                    subject=self._provider,
                    rows_before=count_text(self._expected, "row"),
                    rows=self._expected,
                    since=format_moment(since),
                )
            )
            uow.save_hold(hold)
        self._hold = hold
        self._found.add(self._provider)

    def _filled(self, hold: Hold, now: datetime) -> None:
        since, span = format_moment(hold.set_at), span_text(now - hold.set_at)
        with self._uow_factory.open() as uow:
            stored = uow.hold(self._provider, EMPTY)
            if stored is None or stored.until > stored.set_at:  # else another process reported it before
                uow.enqueue(
                    OFFERS_AGAIN.outbox(
                        self._new_id(), now, subject=self._provider, since=since, span=span, back=format_moment(now)
                    )
                )
                uow.save_hold(msgspec.structs.replace(hold, until=hold.set_at))
        self._hold = None
        self._found.discard(self._provider)


def emptied(holds: Iterable[Hold], now: datetime) -> Hold | None:
    """Return the finding of a daemon that the answers of a provider, with these holds, became empty, or None."""
    return next((hold for hold in holds if hold.kind == EMPTY and hold.until > max(now, hold.set_at)), None)


def emptied_text(hold: Hold) -> str:
    """Return the finding in one line, without the provider's name."""
    return f"{hold.reason}: no offers there proves nothing"
