"""How long rows stay: for every table of the store, what ends its rows, or why they stay.

`[history] keep` has three spans. What the market showed ends with them; of everything else, what is settled ends with
`intervals`, and what no longer applies with `polls`. Launches, charges and the owner's decisions stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, Table, and_, func, or_, select

from gpuwatch.domain.history.market_history import COVERAGE_S
from gpuwatch.domain.setup.durations import DAY_S, HOUR_S
from gpuwatch.domain.setup.history_keep import HistoryKeep
from gpuwatch.storage.setup.schema.job_tables import JOB_IS_OPEN, JOBS_OVER, job, job_event, job_run
from gpuwatch.storage.setup.schema.launch_side_tables import approval, utilisation_sample
from gpuwatch.storage.setup.side_tables import (
    alert,
    chat_update,
    delivery,
    forecast,
    provider_hold,
    silence,
    skipped_scope,
    watch_decision,
)
from gpuwatch.storage.setup.stored_values import to_ms
from gpuwatch.storage.setup.tables import (
    IS_ALIVE,
    history_state,
    hook_run,
    hourly,
    launch,
    poll,
    poll_day,
    price_interval,
    series,
)

_MAX_KEY_WINDOW = timedelta(days=32)  # an exhausted budget is reported once a month


class _Dependent(msgspec.Struct):
    depends_on: tuple[str, ...] = ()


class Horizons(NamedTuple):
    """Until when rows may end. None: they stay."""

    now_ms: int
    polls_s: int | None = None
    intervals_s: int | None = None
    hourly_s: int | None = None
    settled_ms: int | None = None  # of what the daemon did: what was settled before then
    once_ms: int | None = None  # of keys that something is said once by
    awaited: frozenset[str] = frozenset()  # names of jobs and arrays that open jobs depend on


class TableEnd(NamedTuple):
    """What ends the rows of a table.

    Attributes:
        kept: a span of `[history] keep`, or a number of days.
        text: when they begin, in words, for documents.
        is_over: the condition; None: with these horizons, all rows stay.
        is_history: the recorder waits, and readers learn it: see `SqlPruner`.
    """

    table: Table
    kept: Literal["polls", "intervals", "hourly"] | int
    text: str
    is_over: Callable[[Horizons], ColumnElement[bool] | None]
    is_history: bool = False

    def span_s(self, keep: HistoryKeep) -> float:
        """For how long rows stay."""
        if isinstance(self.kept, int):
            return float(self.kept * DAY_S)
        span_s: float = getattr(keep, f"{self.kept}_s")
        return span_s

    @property
    def words(self) -> str:
        """When rows end."""
        if self.text.startswith("with"):
            return self.text
        return f"{self.kept} days {self.text}" if isinstance(self.kept, int) else f"`{self.kept}` {self.text}"


def horizons(connection: Connection, keep: HistoryKeep | None, now: datetime, verified_until_s: float) -> Horizons:
    """Return until when rows may end.

    Args:
        keep: None: until the owner has decided, only what no longer applies ends.
        verified_until_s: what the market showed is in the lake until then; infinity: there is no lake.
    """
    now_ms = to_ms(now)
    if keep is None:
        return Horizons(now_ms)
    next_hour, packed_to_day = connection.execute(
        select(history_state.c.next_hour, history_state.c.packed_to_day)
    ).one()
    # no roll-up needs what lies before it any more
    rolled_up_s = math.inf if next_hour is None else next_hour * HOUR_S - COVERAGE_S
    bound_ms = 1000 * min(rolled_up_s, verified_until_s)
    packed_ms = -math.inf if packed_to_day is None else 1000 * packed_to_day * DAY_S
    polls_ms = _whole(min(now_ms - 1000 * keep.polls_s, packed_ms))
    intervals_ms, hourly_ms = (
        _whole(min(now_ms - 1000 * span_s, bound_ms)) for span_s in (keep.intervals_s, keep.hourly_s)
    )
    settled_ms = _whole(now_ms - 1000 * keep.intervals_s)
    once_ms = _whole(now_ms - 1000 * max(keep.intervals_s, _MAX_KEY_WINDOW.total_seconds()))
    history_s = _seconds(polls_ms), _seconds(intervals_ms), _seconds(hourly_ms)
    return Horizons(now_ms, *history_s, settled_ms, once_ms, _awaited_jobs(connection))


def _awaited_jobs(connection: Connection) -> frozenset[str]:
    depends = job.c.definition.contains('"depends_on":["')
    definitions = connection.execute(select(job.c.definition).where(JOB_IS_OPEN, depends)).scalars()
    return frozenset(name for text in definitions for name in msgspec.json.decode(text, type=_Dependent).depends_on)


def is_kept_by_default(connection: Connection) -> bool:
    """Whether the store was new when `[history] keep` came, so that its default applies."""
    return bool(connection.execute(select(history_state.c.kept_by_default)).scalar_one())


def _whole(at: float) -> int | None:
    return None if at == -math.inf else int(at)


def _seconds(at_ms: int | None) -> int | None:
    return None if at_ms is None else at_ms // 1000


_IsOver = Callable[[Horizons], ColumnElement[bool] | None]


def _settled(at_ms: Column[int], condition: ColumnElement[bool]) -> _IsOver:
    return lambda until: None if until.settled_ms is None else and_(condition, at_ms < until.settled_ms)


def _lapsed(at_ms: Column[int], days: int) -> _IsOver:
    return lambda until: at_ms < until.now_ms - days * DAY_S * 1000


# --- what the market showed -------------------------------------------------------------------------------------------


def _interval_is_over(until: Horizons) -> ColumnElement[bool] | None:
    return None if until.intervals_s is None else price_interval.c.ended_s <= until.intervals_s


def _series_is_over(until: Horizons) -> ColumnElement[bool] | None:
    if until.intervals_s is None:
        return None
    return ~select(price_interval.c.series_id).where(price_interval.c.series_id == series.c.id).exists()


def _poll_is_over(until: Horizons) -> ColumnElement[bool] | None:
    return None if until.polls_s is None else poll.c.at_s < until.polls_s


def _poll_day_is_over(until: Horizons) -> ColumnElement[bool] | None:
    """Before the horizon, except the newest that covers: it defines what was on offer there."""
    if until.intervals_s is None:
        return None
    before, other = poll_day.c.day < until.intervals_s // DAY_S, poll_day.alias()
    is_same_scope = and_(*(other.c[name] == poll_day.c[name] for name in ("provider", "gpu", "spot")))
    covers = and_(other.c.covered_s.is_not(None), other.c.day < until.intervals_s // DAY_S)
    newest = select(func.max(other.c.day)).where(is_same_scope, covers).scalar_subquery()
    return and_(before, poll_day.c.day != func.coalesce(newest, -1))


def _hour_is_over(until: Horizons) -> ColumnElement[bool] | None:
    return None if until.hourly_s is None else hourly.c.hour < until.hourly_s // HOUR_S


# --- what the daemon did ----------------------------------------------------------------------------------------------


def _delivery_is_over(until: Horizons) -> ColumnElement[bool] | None:
    """Of an alert that has expired; a delivery without `sent_at_ms` must still be mentioned in a later message."""
    if until.settled_ms is None:
        return None
    is_reported = and_(delivery.c.state.in_(("expired", "refused")), delivery.c.sent_at_ms.is_not(None))
    has_expired = alert.c.expires_at_ms < until.settled_ms
    of_expired = select(alert.c.alert_id).where(alert.c.alert_id == delivery.c.alert_id, has_expired).exists()
    return and_(or_(delivery.c.state == "sent", is_reported), of_expired)


def _alert_is_over(until: Horizons) -> ColumnElement[bool] | None:
    """Every channel has settled it, and its `once_key` is not needed any more.

    A key is needed in its time window, and while its launch lives. An instance with gpuwatch's label may be listed as
    long as it lives, and a channel's address stays changed.
    """
    if until.settled_ms is None or until.once_ms is None:
        return None
    has_deliveries = select(delivery.c.alert_id).where(delivery.c.alert_id == alert.c.alert_id).exists()
    is_done = and_(alert.c.expires_at_ms < until.settled_ms, alert.c.routed_at_ms.is_not(None), ~has_deliveries)
    is_active = select(launch.c.launch_id).where(IS_ALIVE, alert.c.once_key.contains(launch.c.launch_id)).exists()
    is_lasting = or_(alert.c.once_key.startswith("orphan:"), alert.c.once_key.startswith("moved:"))
    is_key_over = and_(alert.c.expires_at_ms < until.once_ms, ~is_lasting, ~is_active)
    return and_(is_done, or_(alert.c.once_key.is_(None), is_key_over))


def _of_ended_job(number: Column[str]) -> _IsOver:
    def is_over(until: Horizons) -> ColumnElement[bool] | None:
        ended = _job_is_over(until)
        return None if ended is None else select(job.c.job_id).where(job.c.job_id == number, ended).exists()

    return is_over


def _job_is_over(until: Horizons) -> ColumnElement[bool] | None:
    """Nothing depends on it; arrays stay while anything depends on others."""
    if until.settled_ms is None:
        return None
    has_ended = and_(job.c.state.in_(JOBS_OVER), job.c.ended_at_ms < until.settled_ms)
    if not until.awaited:
        return has_ended
    return and_(has_ended, job.c.name.not_in(until.awaited), ~job.c.definition.contains('"group":"'))


def _job_row_is_over(until: Horizons) -> ColumnElement[bool] | None:
    ended = _job_is_over(until)
    return None if ended is None else and_(ended, ~_has_rows)


_has_rows = or_(
    select(job_event.c.job_id).where(job_event.c.job_id == job.c.job_id).exists(),
    select(job_run.c.job_id).where(job_run.c.job_id == job.c.job_id).exists(),
)


def _hook_is_over(until: Horizons) -> ColumnElement[bool] | None:
    if until.settled_ms is None:
        return None
    has_ended = and_(~IS_ALIVE, launch.c.ended_at_ms < until.settled_ms)
    of_ended = select(launch.c.launch_id).where(launch.c.launch_id == hook_run.c.launch_id, has_ended).exists()
    return and_(hook_run.c.state != "pending", of_ended)


def _decision_is_over(until: Horizons) -> ColumnElement[bool] | None:
    if until.settled_ms is None:
        return None
    later = watch_decision.alias()
    is_replaced = select(later.c.watch).where(
        later.c.watch == watch_decision.c.watch,
        later.c.at_ms > watch_decision.c.at_ms,
        later.c.at_ms < until.settled_ms,
    )
    return and_(watch_decision.c.at_ms < until.settled_ms, is_replaced.exists())


_is_answered = and_(
    approval.c.state.in_(("denied", "expired", "refused")),
    approval.c.launch_id.is_(None),
)

# rows that others refer to come after these others
TABLE_ENDS = (
    TableEnd(price_interval, "intervals", "after the price ended", _interval_is_over, is_history=True),
    TableEnd(series, "intervals", "with its last price", _series_is_over, is_history=True),
    TableEnd(poll, "polls", "after it, once its day is packed", _poll_is_over),
    TableEnd(poll_day, "intervals", "after it; the newest of each search stays", _poll_day_is_over, is_history=True),
    TableEnd(hourly, "hourly", "after the hour", _hour_is_over, is_history=True),
    TableEnd(
        delivery, "intervals", "with its alert, once it is sent, or reported as expired or refused", _delivery_is_over
    ),
    TableEnd(alert, "intervals", "after it expired; not while it stops a second one", _alert_is_over),
    TableEnd(job_event, "intervals", "with its job", _of_ended_job(job_event.c.job_id)),
    TableEnd(job_run, "intervals", "with its job", _of_ended_job(job_run.c.job_id)),
    TableEnd(job, "intervals", "after it ended; not while an open job depends on it", _job_row_is_over),
    TableEnd(hook_run, "intervals", "after its launch ended", _hook_is_over),
    TableEnd(
        approval,
        "intervals",
        "after its deadline, unless something was rented",
        _settled(approval.c.deadline_ms, _is_answered),
    ),
    TableEnd(
        forecast,
        "intervals",
        "after it was due, once it has a score",
        _settled(forecast.c.due_at_ms, forecast.c.score.is_not(None)),
    ),
    TableEnd(
        watch_decision, "intervals", "after it, once its watch decided something else before then", _decision_is_over
    ),
    TableEnd(utilisation_sample, 90, "after it", _lapsed(utilisation_sample.c.at_ms, 90)),
    TableEnd(chat_update, 9, "after it: no button is valid for longer", _lapsed(chat_update.c.received_at_ms, 9)),
    TableEnd(silence, 30, "after it ended", _lapsed(silence.c.until_ms, 30)),
    TableEnd(provider_hold, 30, "after it ended", _lapsed(provider_hold.c.until_ms, 30)),
    TableEnd(skipped_scope, 1, "after it ended", _lapsed(skipped_scope.c.until_ms, 1)),
)

WHY_ROWS_STAY: Mapping[str, str] = {
    "launch": "what was rented, for how long and at which price: the account of the owner's money",
    "launch_event": "the audit of a launch",
    "invoice_line": "the provider's charges",
    "segment": "a row per provider, GPU, count and rental type: hourly prices name it",
    "pruned_total": "a row per kind of alert, and one of jobs: counters do not fall when rows end",
    "poll_total": "a row per search: counts since the first one",
    "place": "a row per region of a provider",
    "history_state": "one row",
    "quota_day": "a row per provider and day: the rows that were ever returned are counted from it",
    "watch_state": "a row per watch",
    "auto_price": "a row per watch",
    "checklist_tick": "the owner's decision, a row per item",
    "pause": "the owner's decision, a row per watch",
    "machine_note": "the owner's decision, a row per machine",
    "foreign_instance": "the owner's decision, a row per instance",
    "foreign_installation": "the owner's decision, a row per installation",
    "unknown_instance": "until the owner has settled it: it may cost money",
    "installation": "one row",
    "provider_account": "a row per account: launches name it",
    "watch_identity": "a row per watch that ever was: launches name it",
    "chat_poller": "a row per bot",
    "provider_health": "a row per provider and lane",
    "seen_value": "a row per spelling: each is reported once",
    "job_changes": "one row",
    "job_series": "the owner's decision, a row per recurring job",
    "daemon_host": "a row per daemon, which goes with it, or after a day",
    "daemon_lease": "a row per role",
    "lake": "a row per lake",
    "lake_part": "a row per file of a lake",
}
