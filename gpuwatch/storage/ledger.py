"""The launches as rows: reserved under limits and budget in one transaction, moved on by who holds the newest version.

Two daemons on one PostgreSQL: a reservation takes a lock of its transaction, so that budgets are counted by one at a
time; what must be unique (a slot of a watch, an offer) is a unique row besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, and_, bindparam, func, insert, or_, select, text, update
from sqlalchemy.exc import IntegrityError

from gpuwatch.launches.admission import AVOID_FOR, admit, bad_machines, cooling, free_slot
from gpuwatch.launches.launch import (
    Condition,
    Intent,
    Launch,
    LaunchMoved,
    LaunchState,
    Promise,
    Refusal,
    RefusalReason,
    Span,
    may_move,
    new_launch,
    offer_facts,
)
from gpuwatch.ports import News
from gpuwatch.storage import outbox
from gpuwatch.storage.database import Database
from gpuwatch.storage.memory import from_ms, to_ms
from gpuwatch.storage.tables import OVER_STATES, launch_event
from gpuwatch.storage.tables import launch as launches
from gpuwatch.watches.decide import Match
from gpuwatch.watches.watch import Budget, LaunchSpec, Watch

_RESERVING = 0x67707577  # the key of PostgreSQL's lock: "gpuw"
_MOMENTS = ("intended_at", "requested_at", "running_at", "ended_at", "condition_since")
_SPANS = msgspec.json.Decoder(list[tuple[int, int, int]])
_PROMISES = msgspec.json.Decoder(Promise)
_CAUSE_LENGTH = 200
_WORDS_LENGTH = 500
# Built once: these stand between an offer and its rent.
_RELEVANT = select(launches).where(
    or_(launches.c.state.not_in(OVER_STATES), launches.c.ended_at_ms >= bindparam("since")),
    launches.c.dry_run.is_(False),
)
_TOTAL = select(func.count()).where(
    launches.c.watch == bindparam("of_watch"),
    launches.c.dry_run.is_(False),
    launches.c.state != LaunchState.FAILED.value,
)


def reserve(connection: Connection, intent: Intent, budget: Budget, now: datetime) -> Launch | Refusal:
    """Take a free slot of the watch, an offer that nobody has, and the money for it: or say why not.

    The launch is written as `requested` at once: from here on it may have been sent, whatever dies.
    """
    _wait_for_turn(connection)
    spec = intent.watch.launch or LaunchSpec()
    known = _relevant(connection, now)
    alive = [launch for launch in known if not launch.is_over]
    failed = [launch for launch in known if launch.state is LaunchState.FAILED]
    mine = [launch for launch in alive if launch.watch == intent.watch.name]
    slot = free_slot(spec, intent.watch.name, mine, _total(connection, intent.watch.name))
    if isinstance(slot, Refusal):
        return slot
    match = _first_free(intent, alive, failed, now)
    if isinstance(match, Refusal):
        return match
    rest = cooling(failed, intent.watch.name, match.offer.provider, now)
    if rest is not None:
        return rest
    launch = new_launch(msgspec.structs.replace(intent, match=match), slot, now)
    ended = [known_one for known_one in known if known_one.is_over]
    return admit(launch, alive, ended, budget, now) or _written(connection, launch, now)


def _wait_for_turn(connection: Connection) -> None:
    """Money is counted by one at a time. SQLite's writing transactions are alone anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _RESERVING})


def _first_free(intent: Intent, alive: Sequence[Launch], failed: Sequence[Launch], now: datetime) -> Match | Refusal:
    taken = {(launch.provider, launch.offer_id) for launch in alive}
    bad = bad_machines(failed, now)
    reason = Refusal(RefusalReason.OFFER_TAKEN, "another launch of yours has every offer that fits")
    for match in (intent.match, *intent.others):
        offer = match.offer
        if (offer.provider, offer.offer_id) in taken:
            continue
        if offer.machine_id is not None and (offer.provider, offer.machine_id) in bad:
            text_ = f"a launch failed on machine {offer.machine_id} within a day; it is avoided"
            reason = Refusal(RefusalReason.MACHINE_FAILED, text_)
            continue
        return match
    return reason


def _not_pointed(pointed: Launch, others: Sequence[Launch], budget: Budget, now: datetime) -> Refusal | None:
    alive = [one for one in others if not one.is_over]
    over = [one for one in others if one.is_over]
    if (pointed.provider, pointed.machine_id) in bad_machines(over, now):
        text_ = f"a launch failed on machine {pointed.machine_id} within a day; it is avoided"
        return Refusal(RefusalReason.MACHINE_FAILED, text_)
    return admit(pointed, alive, over, budget, now)


def _written(connection: Connection, launch: Launch, now: datetime) -> Launch | Refusal:
    # PostgreSQL gives up the whole transaction at a failed statement; SQLite undoes that statement alone
    undone_alone = nullcontext() if connection.dialect.name == "sqlite" else connection.begin_nested()
    try:
        with undone_alone:
            connection.execute(insert(launches), _row(launch))  # as parameters: values() looks at each for 2 ms
            connection.execute(insert(launch_event), _event(launch, None, "intent", now))
    except IntegrityError:
        return Refusal(RefusalReason.OFFER_TAKEN, "another launch took the slot or the offer at this moment")
    return launch


class Ledger:
    """All launches. Every step is one transaction: the row, its event, and what the owner is told of it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, launch_id: str) -> Launch | None:
        """One launch. Raises StoreError."""
        found = self._read(select(launches).where(launches.c.launch_id == launch_id))
        return found[0] if found else None

    def alive(self, provider: str | None = None) -> list[Launch]:
        """Those that are not over, oldest first. Raises StoreError."""
        query = select(launches).where(launches.c.state.not_in(OVER_STATES)).order_by(launches.c.intended_at_ms)
        return self._read(query if provider is None else query.where(launches.c.provider == provider))

    def all(self, watch: str | None = None) -> list[Launch]:
        """Every launch, newest first. Raises StoreError."""
        query = select(launches).order_by(launches.c.intended_at_ms.desc(), launches.c.launch_id)
        return self._read(query if watch is None else query.where(launches.c.watch == watch))

    def move(
        self, launch: Launch, to_state: LaunchState, cause: str, now: datetime, news: News | None = None, **changes: Any
    ) -> Launch:
        """One step, if nobody took another meanwhile.

        Args:
            changes: fields of `Launch` that change with it.
            news: what the owner is told of it, in the same transaction.

        Raises:
            LaunchMoved: somebody did; read it again.
            StoreError: it was not written; nothing may be done on the strength of it.
        """
        if not may_move(launch.state, to_state):
            raise LaunchMoved(f"launch {launch.launch_id} cannot go from {launch.state} to {to_state}")
        moved = msgspec.structs.replace(launch, state=to_state, version=launch.version + 1, **changes)
        with self._database.write() as connection:
            self._step(connection, launch, moved, cause, now)
            if news is not None:
                outbox.put(connection, news.alert, news.channels, news.expires_at, news.once_key)
        return moved

    def _step(self, connection: Connection, launch: Launch, moved: Launch, cause: str, now: datetime) -> None:
        as_read = and_(
            launches.c.launch_id == launch.launch_id,
            launches.c.state == launch.state.value,
            launches.c.version == launch.version,
        )
        if connection.execute(update(launches).where(as_read), _row(moved)).rowcount != 1:
            raise LaunchMoved(f"launch {launch.launch_id} was changed by somebody else")
        event = _event(moved, launch.state, cause, now)
        connection.execute(insert(launch_event), event)

    def point_at(self, launch: Launch, match: Match, watch: Watch, budget: Budget, now: datetime) -> Launch | Refusal:
        """Ask for another offer instead: the same rules as for the first, but for the slot, which it has.

        Raises:
            LaunchMoved: somebody changed the launch meanwhile.
            StoreError: it was not written; the offer must not be asked for.
        """
        pointed = msgspec.structs.replace(
            launch, state=LaunchState.REQUESTED, version=launch.version + 1, **offer_facts(match, watch)
        )
        try:
            with self._database.write() as connection:
                _wait_for_turn(connection)
                known = _relevant(connection, now)
                others = [one for one in known if one.launch_id != launch.launch_id]
                refusal = _not_pointed(pointed, others, budget, now)
                if refusal is None:
                    self._step(connection, launch, pointed, f"offer {pointed.offer_id}", now)
        except IntegrityError:
            return Refusal(RefusalReason.OFFER_TAKEN, f"another launch of yours has offer {pointed.offer_id}")
        return refusal or pointed

    def tell(self, news: News) -> bool:
        """Put an alert into the outbox; False: `once_key` was told already. Raises StoreError."""
        with self._database.write() as connection:
            return outbox.put(connection, news.alert, news.channels, news.expires_at, news.once_key)

    def _read(self, query: Select[Any]) -> list[Launch]:
        with self._database.read() as connection:
            return [_launch(row) for row in connection.execute(query)]


def _relevant(connection: Connection, now: datetime) -> list[Launch]:
    """What limits and budget depend on: all that is alive, and what ended this month or lately."""
    since = min(now.replace(day=1, hour=0, minute=0, second=0, microsecond=0), now - AVOID_FOR - timedelta(hours=1))
    return [_launch(row) for row in connection.execute(_RELEVANT, {"since": to_ms(since)})]


def _total(connection: Connection, watch: str) -> int:
    return int(connection.execute(_TOTAL, {"of_watch": watch}).scalar_one())


def _row(launch: Launch) -> dict[str, Any]:
    row = msgspec.structs.asdict(launch)
    for name in _MOMENTS:
        row[f"{name}_ms"] = to_ms(row.pop(name))
    spans = [[to_ms(s.since), s.listed_microusd_hour, s.price_microusd_hour] for s in launch.spans]
    return row | {
        "state": launch.state.value,
        "spot": int(launch.spot),
        "condition": None if launch.condition is None else launch.condition.value,
        "spans": msgspec.json.encode(spans).decode() if spans else None,
        "promised": msgspec.json.encode(launch.promised).decode(),
    }


def _launch(row: Row[Any]) -> Launch:
    values = dict(row._mapping)
    for name in _MOMENTS:
        values[name] = from_ms(values.pop(f"{name}_ms"))
    condition = values["condition"]
    return Launch(
        **values
        | {
            "state": LaunchState(values["state"]),
            "spot": bool(values["spot"]),
            "condition": None if condition is None else Condition(condition),
            "spans": _spans(values["spans"]),
            "promised": Promise() if values["promised"] is None else _PROMISES.decode(values["promised"]),
        }
    )


def _spans(text_: str | None) -> tuple[Span, ...]:
    rows = _SPANS.decode(text_ or "[]")
    return tuple(Span(since, listed, price) for ms, listed, price in rows if (since := from_ms(ms)) is not None)


def _event(moved: Launch, from_: LaunchState | None, cause: str, now: datetime) -> dict[str, Any]:
    return {
        "launch_id": moved.launch_id,
        "at_ms": to_ms(now),
        "from_state": None if from_ is None else from_.value,
        "to_state": moved.state.value,
        "cause": cause[:_CAUSE_LENGTH],
        "provider_words": cause[:_WORDS_LENGTH] if len(cause) > _CAUSE_LENGTH else None,
        "listed_microusd_hour": moved.listed_microusd_hour,
        "price_microusd_hour": moved.price_microusd_hour,
    }
