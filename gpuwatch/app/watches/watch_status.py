"""The status of each watch: its best offer in the store, the distance to its limit, and why it does not fire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from gpuwatch.app.market.current_offers import current_offers
from gpuwatch.app.watches.blocked import WatchRule, blocked, watch_rules
from gpuwatch.app.watches.check import WatchView, watch_fields
from gpuwatch.app.watches.current_limits import current_limits
from gpuwatch.app.watches.nearest import nearest_view
from gpuwatch.bootstrap import open_store_read_only, real_now
from gpuwatch.bootstrap.provider_access import is_polled_for
from gpuwatch.bootstrap.rules import commissions_of, stored_max_age, stored_pace
from gpuwatch.domain.market.figure_text import count_text, percent_text
from gpuwatch.domain.market.json_view import Moment
from gpuwatch.domain.market.money import MICRO, per_unit_hour
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match, Observation, WatchMemory, decide
from gpuwatch.domain.watches.match import clauses_of, failures, is_near, match_of, price_for, rank
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.alerts.offer_alerts import decision_text
from gpuwatch.engine.market.browse import OfferFilter
from gpuwatch.engine.market.empty_answers import emptied, emptied_text
from gpuwatch.engine.market.row_budget import next_reset
from gpuwatch.storage.alerts.alert_rows import SqlSilences
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.history.queries.poll_queries import last_polls, rows_used
from gpuwatch.storage.market.provider_holds import SqlHolds
from gpuwatch.storage.unit_of_work import SqlDecisionStore

if TYPE_CHECKING:
    from gpuwatch.domain.launches.life.admission import WatchBlock
    from gpuwatch.domain.market.offer import Offer
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.alerts.pauses import PauseTable
    from gpuwatch.storage.setup.database import Database


# Facts of an offer in the store. Other clauses cannot be evaluated and do not reject offers here.
_RECORDED = frozenset(
    {"providers", "gpu", "kind", "rentable", "gpu_count", "max_price", "spot", "min_vram_gib", "regions"}
    | {"min_reliability", "verified", "max_job_cost", "job"}
)
_SIZES: dict[str, Callable[[Offer], object]] = {  # facts of machines without GPUs alone
    "min_vcpu": lambda offer: offer.vcpu,
    "min_ram_gib": lambda offer: offer.ram_gib,
}
_PRICE_CLAUSES = frozenset({"max_price", "max_job_cost"})


class WatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one watch.

    Attributes:
        matches: the offers in the store that it accepts, as far as can be determined; cheapest first.
        nearest: the cheapest offer that only its price excludes, or the best match.
        unchecked: clauses about facts that are not in the store.
        why: why it fires, or why not, and why it does not rent what it finds.
        blocked: why it does not act although offers match; None: it does, or it only sends alerts.
        cheapest: its cheapest offer at any price on demand (False) and as spot (True), as far as there is one.
        rejected: of the offers at or under its limit that it does not accept: the first setting that rejects them, and
            how many.
    """

    watch: Watch
    matches: tuple[Match, ...]
    nearest: Match | None
    unchecked: tuple[str, ...]
    why: str
    blocked: WatchBlock | None
    fired_at: datetime | None
    under_since: datetime | None
    paused: str | None
    silenced_until: datetime | None
    seen_at: datetime | None  # the newest complete poll of its providers
    next_poll_at: datetime | None
    decision: Decision
    cheapest: Mapping[bool, Match] = {}
    rejected: Mapping[str, int] = {}
    is_empty: bool = False  # every provider's answers became empty, so that nothing is known

    @property
    def limit_usd_gpu_hour(self) -> float:
        """The threshold in force."""
        return float(self.watch.max_price_usd_gpu_hour)

    @property
    def distance(self) -> float | None:
        """The distance of the nearest offer to the limit: 0.06 is 6 % above; 0 or less is at or under it."""
        if self.nearest is None or not self.limit_usd_gpu_hour or self.watch.unlimited:
            return None
        return self.nearest.price_microusd_gpu_hour / MICRO / self.limit_usd_gpu_hour - 1

    @property
    def sentence(self) -> str:
        """What it finds now, and why it does not act on it, for a person."""
        if self.state == "no data":
            return self.why
        paused = "" if self.paused is None else f"Paused: {self.paused}."
        if not self.matches:
            return " ".join(filter(None, (paused, _nearest_text(self))))
        best = self.matches[0]
        price = per_unit_hour(best.price_microusd_gpu_hour / MICRO, best.offer.gpu_count)
        found = f"{best.offer.gpu if best.offer.gpu_count else 'a machine without GPUs'} at {price} matches"
        if self.distance is not None:
            found += f", {percent_text(-self.distance, 0)} under its limit" if self.distance < 0 else ", at its limit"
        block = "" if self.blocked is None else self.blocked.sentence
        return " ".join(filter(None, (f"{found}.", block or paused)))

    @property
    def state(self) -> str:
        """One of "paused", "no data", "matched", "waiting"."""
        if self.paused is not None:
            return "paused"
        if self.seen_at is None or self.is_empty:
            return "no data"
        return "matched" if self.matches else "waiting"


def watches_text(statuses: Sequence[WatchStatus]) -> str:
    """All of them in one line: "4 watches: 1 matched, 3 waiting"."""
    blocked = sum(status.state == "matched" and status.blocked is not None for status in statuses)
    counts = {
        "matched": sum(status.state == "matched" for status in statuses) - blocked,
        "matched but blocked": blocked,
        "waiting": sum(status.state == "waiting" for status in statuses),
        "paused": sum(status.state == "paused" for status in statuses),
        "without data": sum(status.state == "no data" for status in statuses),
    }
    parts = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"{count_text(len(statuses), 'watch', 'watches')}{f': {parts}' if parts else ''}"


def reason_lines(statuses: Sequence[WatchStatus]) -> Iterator[str]:
    """Why watches do not act on what they find, or find nothing out; one line each."""
    for status in statuses:
        if status.blocked is not None:
            yield f"{status.watch.name}: {status.blocked.text}"
        elif status.paused is not None:
            yield f"{status.watch.name}: paused: {status.paused}"
        elif status.state == "no data":
            yield f"{status.watch.name}: {status.why}"


def _nearest_text(status: WatchStatus) -> str:
    view = nearest_view(status.watch, status.nearest)
    return "No offer fits." if view is None else f"{view.sentence[:1].upper()}{view.sentence[1:]}."


def watch_statuses(settings: Settings, watches: Sequence[Watch] | None = None) -> list[WatchStatus]:
    """All watches in the order of the settings, or the given ones. Sends no request.

    Raises:
        StoreError: the store cannot be read.
    """
    selected = settings.watches if watches is None else watches
    limits = current_limits(settings, selected, keep=False, from_daemon=True)
    offers: dict[str, list[Offer]] = {}
    gpus = tuple(dict.fromkeys(gpu for watch in selected for gpu in watch.gpu_names))
    for offer, _ in current_offers(settings, OfferFilter(gpu_names=gpus, spots=(False, True))).offers if gpus else ():
        offers.setdefault(offer.gpu, []).append(offer)
    with open_store_read_only(settings) as store:
        stored = _StatusInputs(settings, store, real_now())
        return [
            stored.status(watch, [offer for gpu in dict.fromkeys(watch.gpu_names) for offer in offers.get(gpu, ())])
            for watch in limits.watches
        ]


def rules_of(settings: Settings, status: WatchStatus, now: datetime) -> tuple[WatchRule, ...]:
    """Every rule that a watch must meet before it acts, in the daemon's order. Raises StoreError."""
    nearest = () if status.nearest is None else (status.nearest,)
    return tuple(watch_rules(settings, status.watch, status.decision, status.matches or nearest, now))


class _StatusInputs:
    """The other facts in the store, read once for all watches."""

    def __init__(self, settings: Settings, store: Database, now: datetime) -> None:
        self._settings = settings
        self._now = now
        self._memories = SqlDecisionStore(store).memories()
        self._pauses: PauseTable = SqlPauseRepository(store).load()
        self._silences = {silence.watch: silence.until for silence in SqlSilences(store).in_force(now)}
        self._polls = last_polls(store)
        self._paces = {name: stored_pace(settings, name, store) for name in settings.providers}
        self._ages = {name: stored_max_age(settings, name, pace) for name, pace in self._paces.items()}
        self._rows_used = rows_used(store, now)
        holds = {name: emptied(found, now) for name, found in SqlHolds(store).load_all().items()}
        self._emptied = {name: hold for name, hold in holds.items() if hold is not None and name in settings.providers}
        self._commissions = commissions_of(settings)

    def status(self, watch: Watch, offers: Sequence[Offer]) -> WatchStatus:
        polled = [name for name in self._settings.providers if is_polled_for(name, watch)]
        seen = [poll.at for name in polled if (poll := self._polls.get(name)) is not None]
        memory = self._memories.get(watch.name, WatchMemory())
        rated = _rate_offers(watch, offers, self._commissions, self._now)
        decision = self._decision(watch, rated.matches, offers, memory, polled)
        block = blocked(self._settings, watch, decision, self._now)
        return WatchStatus(
            watch=watch,
            matches=rated.matches,
            nearest=rated.nearest,
            unchecked=rated.unchecked,
            why=self._why(watch, decision, block, polled),
            blocked=block,
            fired_at=memory.fired_at,
            under_since=memory.under_since,
            paused=self._paused(watch.name),
            silenced_until=self._silences.get(watch.name),
            seen_at=max(seen, default=None),
            is_empty=bool(polled) and all(name in self._emptied for name in polled),
            next_poll_at=self._next_poll(polled),
            decision=decision,
            cheapest=rated.cheapest,
            rejected=rated.rejected,
        )

    def _decision(
        self, watch: Watch, matches: tuple[Match, ...], offers: Sequence[Offer], memory: WatchMemory, polled: list[str]
    ) -> Decision:
        polls = {name: self._polls.get(name) for name in polled}
        is_known = bool(polled) and all(
            poll is not None and abs(self._now - poll.at) <= self._ages[name] and name not in self._emptied
            for name, poll in polls.items()
        )
        near = bool(matches) or is_near(watch, offers, self._commissions, self._now)
        seen = Observation(matches=matches, known=is_known, near=near, observed_at=self._now)
        return decide(watch, seen, memory, self._now, self._settings.timezone)

    def _why(self, watch: Watch, decision: Decision, block: WatchBlock | None, polled: Sequence[str]) -> str:
        texts = [decision_text(watch, decision, ZoneInfo(self._settings.timezone))]
        if block is not None and decision.true_now:
            texts.append(f"Not rented: {block.text}.")
        if decision.reason is DecisionReason.NO_DATA:
            texts += filter(None, map(self._own_pause, polled))
            texts += [f"{name}: {emptied_text(self._emptied[name])}." for name in polled if name in self._emptied]
        return " ".join(texts)

    def _own_pause(self, name: str) -> str | None:
        """Why gpuwatch itself does not poll a provider any more today."""
        rows_per_day = self._settings.providers[name].rows_per_day
        if not rows_per_day or self._rows_used.get(name, 0) < rows_per_day:
            return None
        until = format_moment(next_reset(self._now), ZoneInfo(self._settings.timezone))
        return (
            f"gpuwatch has used the {rows_per_day} rows of the day at {name} (rows_per_day) and polls again at {until}."
        )

    def _paused(self, name: str) -> str | None:
        for pause in self._pauses.in_force(self._now):
            if pause.binds(name):
                return pause.why or ("renting is paused" if pause.watch is None else "this watch is paused")
        breaker = self._pauses.breaker_of(name)
        return None if breaker is None or breaker.is_closed else breaker.why

    def _next_poll(self, polled: Sequence[str]) -> datetime | None:
        due = [poll.at + self._paces[name] for name in polled if (poll := self._polls.get(name)) is not None]
        return max(min(due), self._now) if due else None


class _RatedOffers(msgspec.Struct, frozen=True):
    matches: tuple[Match, ...]
    nearest: Match | None
    unchecked: tuple[str, ...]
    rejected: Mapping[str, int]
    cheapest: Mapping[bool, Match]


def _rate_offers(watch: Watch, offers: Sequence[Offer], commissions: Mapping[str, Any], now: datetime) -> _RatedOffers:
    """The offers that a watch accepts, based on the facts in the store."""
    matches, over_limit, unchecked, clauses = [], [], dict[str, None](), clauses_of(watch)
    rejected = Counter[str]()
    for offer in offers:
        if not offer.rentable:
            continue
        price = price_for(watch, offer, commissions)
        failed = [failure.clause for failure in failures(watch, offer, price, now, clauses)]
        failed_clauses = set(failed)
        recorded = _RECORDED | {clause for clause, of in _SIZES.items() if of(offer) is not None}
        unchecked |= dict.fromkeys(sorted(failed_clauses - recorded))
        failed_clauses &= recorded
        if not failed_clauses:
            matches.append(match_of(watch, offer, price))
        elif failed_clauses <= _PRICE_CLAUSES:
            over_limit.append(match_of(watch, offer, price))
        elif not failed_clauses & _PRICE_CLAUSES:
            rejected[next(clause for clause in failed if clause in failed_clauses)] += 1
    matches.sort(key=rank)
    nearest = matches[0] if matches else min(over_limit, key=rank, default=None)
    by_price = sorted((*matches, *over_limit), key=rank, reverse=True)
    cheapest = {match.offer.spot: match for match in by_price}  # of each type, the last one stays
    return _RatedOffers(tuple(matches), nearest, tuple(unchecked), rejected, cheapest)


class WatchStatusView(WatchView, frozen=True, kw_only=True):
    """The status of a watch."""

    group: str | None
    action: Action
    gpu: tuple[str, ...]
    state: str
    sentence: Annotated[str, Meta(description="What it finds now, and why it does not act on it.")]
    why: Annotated[str, Meta(description="Why it fires, or why not.")]
    best_price_usd_gpu_hour: float | None
    best_usd_gpu_hour: float | None
    limit_usd_gpu_hour: float | None
    distance: Annotated[float | None, Meta(description="Of the nearest offer: 0.06 is 6 % above the limit.")]
    unchecked: Annotated[tuple[str, ...], Meta(description="Conditions about facts that are not in the store.")]
    paused: str | None
    silenced_until: Moment | None
    fired_at: Moment | None
    under_since: Moment | None
    seen_at: Moment | None
    last_poll_at: Moment | None
    next_poll_at: Moment | None


def watch_status_view(status: WatchStatus, times_under: int | None = None) -> WatchStatusView:
    """The status of a watch as other programs see it.

    Args:
        times_under: how often the price was under its limit (`times_under_limits`); None: it was not counted.
    """
    nearest = nearest_view(status.watch, status.nearest, times_under)
    fields = watch_fields(status.watch, status.matches, status.blocked, nearest)
    best_usd = None if status.nearest is None else status.nearest.price_microusd_gpu_hour / MICRO
    return WatchStatusView.of(
        status,
        status.watch,
        **fields,
        best_price_usd_gpu_hour=best_usd,
        best_usd_gpu_hour=best_usd,
        limit_usd_gpu_hour=fields["max_price"],
        distance=None if status.distance is None else round(status.distance, 6),
        last_poll_at=status.seen_at,
    )
