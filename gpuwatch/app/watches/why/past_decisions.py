"""Why a watch did or did not act at a time in the past: from its stored decisions, the polls, and the price history."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from gpuwatch.app.reader_text import as_datetime, clock_text
from gpuwatch.app.watches.matching_prices import matching_day
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.bootstrap.provider_access import providers_polled_for
from gpuwatch.domain.launches.launch import RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason
from gpuwatch.domain.launches.past_decision import RENTED
from gpuwatch.domain.market.json_view import JsonView, Moment, usd_number
from gpuwatch.domain.watches.decide import FIRING_REASONS, DecisionReason
from gpuwatch.domain.watches.watch import Action
from gpuwatch.errors import UsageError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_composed
from gpuwatch.storage.history.recording.recorded_polls import complete_poll_after, complete_poll_before, known_scopes
from gpuwatch.storage.watches.watch_decisions import decisions_since, next_decision_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuwatch.domain.launches.past_decision import PastDecision
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_MINUTE = timedelta(seconds=60) - timedelta(milliseconds=1)
_WITH_SECONDS = re.compile(r"\d\d:\d\d:\d\d")
_UNPOLLED = timedelta(minutes=30)  # longer between two polls: what was decided before says nothing
_FIRST_YEAR = 2000
_AROUND = timedelta(hours=12)
_BLOCKS: Mapping[str, str] = {
    DecisionReason.OUTSIDE_WINDOW: BlockReason.OUTSIDE_ACTIVE,
    DecisionReason.HOLDING: BlockReason.HOLD_FOR,
    DecisionReason.IN_STOCK: BlockReason.IN_STOCK,
}
_BLOCK_NAMES = frozenset({*map(str, BlockReason), *map(str, RefusalReason)})


class PastWhy(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch decided at a moment, or within a minute, and what was known then.

    Attributes:
        at: the moment, or the minute's beginning.
        during: what was in force at that moment, or at some time of that minute; oldest first.
        until: when it decided something else afterwards; None: it has not.
        polled_at: the last complete poll of its market up to its end, and the next one.
        low_microusd_gpu_hour: the lowest matching price, at any price, by the history; None: unknown, or none matched.
    """

    watch: Watch
    at: datetime
    during: Sequence[PastDecision]
    until: datetime | None
    polled_at: datetime | None
    next_polled_at: datetime | None
    low_microusd_gpu_hour: int | None
    changes: Sequence[PastDecision]

    @property
    def decision(self) -> PastDecision | None:
        """The last one; None: nothing is stored of this time."""
        return self.during[-1] if self.during else None

    @property
    def is_known(self) -> bool:
        """Whether the market was polled around then: otherwise no daemon worked, or nothing answered."""
        return self.polled_at is not None and self.at - self.polled_at <= _UNPOLLED

    @property
    def sentence(self) -> str:
        """The answer in one sentence, in the reader's language and zone."""
        if not self.is_known:
            if self.polled_at is None:
                return _("At {time} gpuwatch did not poll this market.").format(time=clock_text(self.at))
            return _("At {time} gpuwatch did not poll this market: the last complete poll was at {polled}.").format(
                time=clock_text(self.at), polled=clock_text(self.polled_at)
            )
        if self.decision is None:
            return _("Of {time} no decision is stored.").format(time=clock_text(self.at))
        first, *later = self.during
        text = _("At {time}: {why}").format(time=clock_text(self.at), why=decision_words(self.watch, first))
        changes = [
            _("from {time} on: {why}").format(
                time=f"{as_datetime(one.at):%H:%M:%S}", why=decision_words(self.watch, one)
            )
            for one in later
        ]
        return f"{'; '.join((text, *changes))}."


def why_at(settings: Settings, watch: Watch, at: datetime, end: datetime) -> PastWhy:
    """Why a watch did or did not act from a moment to another (of `past_span`). Sends no request. Raises StoreError."""
    with open_store_read_only(settings) as store:
        found = decisions_since(store, watch.name, at, end)
        polled_at, next_polled_at = _polls_around(settings, store, watch, end)
        until = next_decision_at(store, watch.name, end)
        changes = decisions_since(store, watch.name, at - _AROUND, at + _AROUND)
    prices = matching_day(settings, watch, at)
    return PastWhy(
        watch=watch,
        at=at,
        during=found,
        until=until,
        polled_at=polled_at,
        next_polled_at=next_polled_at,
        low_microusd_gpu_hour=prices.lows[-1] if prices.lows else None,
        changes=changes,
    )


def recent_decisions(settings: Settings, watch: Watch, now: datetime) -> Sequence[PastDecision]:
    """The decisions of the last hours, newest first. Raises StoreError."""
    with open_store_read_only(settings) as store:
        return decisions_since(store, watch.name, now - 2 * _AROUND, now)[::-1]


def past_moment(text: str, now: datetime, timezone: str) -> datetime:
    """A moment of the past as people write it: "03:12", the last time it was that, or a day with a time.

    Raises:
        UsageError: it is none, or not over yet.
    """
    zone = ZoneInfo(timezone)
    text = text.strip()
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(f'expected a time such as 03:12 or "2026-11-28 03:12", got {text!r}') from None
        at = at.replace(tzinfo=zone) if at.tzinfo is None else at
    else:
        zone_of_clock = clock.tzinfo or zone
        today = now.astimezone(zone_of_clock).date()
        at = datetime.combine(today, clock.replace(tzinfo=None), zone_of_clock)
        if at > now:
            at = datetime.combine(today - timedelta(days=1), clock.replace(tzinfo=None), zone_of_clock)
    if at.year < _FIRST_YEAR:
        raise UsageError(f"expected a time since {_FIRST_YEAR}, got {text!r}")
    if at > now:
        raise UsageError(f"{text} is not over yet")
    return at.astimezone(UTC)


def past_span(text: str, now: datetime, timezone: str) -> tuple[datetime, datetime]:
    """The begin and the end of a time of the past: without seconds, a whole minute. As `past_moment`."""
    at = past_moment(text, now, timezone)
    return at, at if _WITH_SECONDS.search(text) else min(at + _MINUTE, now)


def _polls_around(
    settings: Settings, store: Database, watch: Watch, at: datetime
) -> tuple[datetime | None, datetime | None]:
    """The last complete poll of the watch's market up to a moment, and the next one."""
    at_s, providers, gpus = int(at.timestamp()), providers_polled_for(watch, settings.providers), {"", *watch.gpu_names}
    with store.read() as connection:
        scopes = [scope for scope in known_scopes(connection) if scope[0] in providers and scope[1] in gpus]
        around = complete_poll_before(connection, scopes, at_s + 1), complete_poll_after(connection, scopes, at_s)
    before, after = (None if one is None else datetime.fromtimestamp(one, UTC) for one in around)
    return before, after


# --- in words ---------------------------------------------------------------------------------------------------------


def decision_words(watch: Watch, decision: PastDecision) -> str:
    """What was decided, as the rest of a sentence."""
    if decision.text and decision.reason != BlockReason.APPROVAL:
        return _("it did not act, because {what}").format(what=translate_composed(decision.text.rstrip(". ")))
    known: dict[str, str] = {
        DecisionReason.NO_DATA: _("its providers had not answered completely, so that it could not tell"),
        DecisionReason.NO_OFFER: _("no offer matched at or under its limit"),
        DecisionReason.OUTSIDE_WINDOW: _("it did not act, because it was outside its hours"),
        DecisionReason.HOLDING: _("it did not act, because the price was not under its limit for long enough"),
        DecisionReason.WAITS_FOR_SPOT: _("it waited for a spot offer"),
        DecisionReason.IN_STOCK: _("it did not act, because its offers had not been sold out before"),
        DecisionReason.NOTHING_NEW: _("it had already reported the offer that matched"),
        DecisionReason.CHEAPER: _("it reported a cheaper offer"),
        DecisionReason.REPEAT_DUE: _("it reported the offer again"),
        BlockReason.APPROVAL: _("it asked you"),
        BlockReason.DENIED: _("it did not act, because you had denied these offers"),
        RENTED: _("it rented"),
    }
    if decision.reason == DecisionReason.NOTHING_NEW and watch.action is Action.ASK:
        return _("it had already asked you about the offer that matched")
    return known.get(decision.reason) or _("it reported the offer that matched")


def blocked_by(decision: PastDecision) -> str | None:
    """Why it did not act although offers matched, as in `blocked_by`; None: it acted, or nothing matched."""
    name = _BLOCKS.get(decision.reason, decision.reason)
    return name if name in _BLOCK_NAMES else None


def has_acted(decision: PastDecision) -> bool:
    """Whether it rented, asked or alerted."""
    return decision.reason in {RENTED, BlockReason.APPROVAL, *FIRING_REASONS}


class PastDecisionView(JsonView, frozen=True, kw_only=True):
    """What a watch decided, from this time until its next decision."""

    at: Moment
    reason: str
    acted: Annotated[bool, Meta(description="It alerted, asked or rented.")]
    blocked_by: Annotated[str | None, Meta(description="Why it did not act although offers matched.")]
    text: Annotated[str, Meta(description="In words.")]
    limit_usd_gpu_hour: Annotated[float | None, Meta(description="The limit in force; null: it was not a price.")]


class PastWhyView(JsonView, frozen=True, kw_only=True):
    """Why a watch did or did not act at a moment: `gpuwatch watches NAME --why TIME`."""

    watch: str
    at: Moment
    known: Annotated[bool, Meta(description="False: the market was not polled around then.")]
    sentence: str
    decision: Annotated[PastDecisionView | None, Meta(description="The last one. Null: none is stored of this time.")]
    during: Annotated[list[PastDecisionView], Meta(description="All of this minute, oldest first.")]
    until: Annotated[Moment | None, Meta(description="When it decided something else.")]
    polled_at: Annotated[Moment | None, Meta(description="The last complete poll of its market before.")]
    next_polled_at: Moment | None
    best_usd_gpu_hour: Annotated[float | None, Meta(description="The lowest matching price, at any price.")]
    changes: Annotated[list[PastDecisionView], Meta(description="Twelve hours before and after; oldest first.")]


def past_why_view(found: PastWhy) -> PastWhyView:
    """The answer as other programs see it."""
    watch, decision = found.watch, found.decision
    return PastWhyView.of(
        found,
        watch=watch.name,
        known=found.is_known,
        decision=None if decision is None else _decision_view(watch, decision),
        during=[_decision_view(watch, one) for one in found.during],
        best_usd_gpu_hour=usd_number(found.low_microusd_gpu_hour),
        changes=[_decision_view(watch, one) for one in found.changes],
    )


def _decision_view(watch: Watch, decision: PastDecision) -> PastDecisionView:
    return PastDecisionView.of(
        decision, acted=has_acted(decision), blocked_by=blocked_by(decision), text=decision_words(watch, decision)
    )
