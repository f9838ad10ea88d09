"""The rent: a durable intent goes to the provider, once; what is not known afterwards is never repeated.

A launch arrives here as `requested`, committed to disk. From then on a crash anywhere is the same case as an answer
that was lost: `follow` looks for its label before anything else happens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.engine.failpoint import failpoint
from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.engine.queries import queries_for
from gpuwatch.errors import (
    OfferGone,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    RefusalKind,
)
from gpuwatch.market.pricing import HOURS_A_MONTH, Commission
from gpuwatch.ports import Books, Created, Launcher, Market, News, Order
from gpuwatch.watches.decide import Match
from gpuwatch.watches.launches import End, Launch, LaunchMoved, LaunchState, offer_facts
from gpuwatch.watches.match import matches
from gpuwatch.watches.watch import LaunchSpec, Watch

log = logging.getLogger(__name__)

LEAST_DISK_GB = 8.0  # source: vastai.md §6, the smallest disk that can be ordered
_BID_STEP = 1e-6
_REFUSED: Mapping[RefusalKind, End] = {
    RefusalKind.NO_CREDIT: End.NO_CREDIT,
    RefusalKind.KEY: End.KEY,
    RefusalKind.BAD_ORDER: End.BAD_ORDER,
    RefusalKind.BID_TOO_LOW: End.BID_LOST,
    RefusalKind.NOT_SENT: End.NOT_SENT,
    RefusalKind.OTHER: End.REFUSED,
}


class Shop(msgspec.Struct, frozen=True):
    """One provider, as the actor needs it."""

    launcher: Launcher
    market: Market
    commission: Commission


class Actor:
    """Turns reserved launches into instances. One call per launch; several may run on threads."""

    def __init__(self, books: Books, shops: Mapping[str, Shop], herald: Herald, clock: Callable[[], datetime]) -> None:
        self._books = books
        self._shops = shops
        self._herald = herald
        self._clock = clock
        self._in_flight: set[str] = set()
        self._lock = threading.Lock()

    def in_flight(self) -> frozenset[str]:
        """Launches that are being asked for at this moment: nobody else may touch them."""
        with self._lock:
            return frozenset(self._in_flight)

    def act(self, launch: Launch, watch: Watch, candidates: Sequence[Match], observed_at: datetime) -> Launch:
        """Rent it: the reserved offer, or the next that fits if that one is gone.

        Raises:
            LaunchMoved: somebody else took it over; nothing more was done.
            StoreError: what happened could not be written down; the row says `requested` and is looked up later.
        """
        if launch.dry_run:
            return launch
        with self._lock:
            self._in_flight.add(launch.launch_id)
        try:
            rent = _Rent(self._books, self._shops[launch.provider], self._herald, self._clock, watch)
            return rent.through(launch, candidates, observed_at)
        finally:
            with self._lock:
                self._in_flight.discard(launch.launch_id)


class _Rent:
    """One launch's way through its candidates."""

    def __init__(self, books: Books, shop: Shop, herald: Herald, clock: Callable[[], datetime], watch: Watch) -> None:
        self._books = books
        self._shop = shop
        self._herald = herald
        self._clock = clock
        self._watch = watch
        self._spec = watch.launch or LaunchSpec()

    def through(self, launch: Launch, candidates: Sequence[Match], observed_at: datetime) -> Launch:
        mine = [m for m in candidates if m.offer.provider == launch.provider]
        mine.sort(
            key=lambda match: match.offer.offer_id != launch.offer_id
        )  # the reserved one first, the rest in order
        is_fresh = self._clock() - observed_at <= timedelta(seconds=self._spec.quote_ttl_s)
        problem = End.OFFERS_GONE.text()
        for match in mine[: self._spec.max_tries]:
            try:
                fresh = match if is_fresh else self._look_again(match)
            except ProviderError as error:
                return self._fail(launch, End.NOT_CHECKED.text(str(error)))
            if fresh is None:
                problem = End.PRICE_ROSE.text(f"offer {match.offer.offer_id} is gone or dearer")
                continue
            pointed = self._point_at(launch, fresh)
            if pointed is None:
                continue
            launch, outcome = self._ask(pointed, fresh)
            if outcome is None:
                return launch
            problem, is_fresh = outcome, False  # the list that named this offer is not quite true any more
        return self._fail(launch, problem)

    def _ask(self, launch: Launch, match: Match) -> tuple[Launch, str | None]:
        """Send the order, once. With a text: nothing was made, and the next candidate may be asked for."""
        failpoint("launch.before_send")
        try:
            return self._keep(launch, self._shop.launcher.create(self._order(launch, match))), None
        except OfferGone as error:
            return launch, End.OFFERS_GONE.text(str(error))
        except OrderRateLimited as error:
            return self._fail(launch, End.RATE_LIMITED.text(str(error))), None
        except OrderRefused as error:
            if error.kind is RefusalKind.BID_TOO_LOW:
                return launch, End.BID_LOST.text(str(error))
            return self._refused(launch, error), None
        except OutcomeUnknown as error:
            return self._lost(launch, error), None

    def _look_again(self, match: Match) -> Match | None:
        """The very offer as it is now, at or under the threshold with this watch's disk; its id may be a new one."""
        offer = match.offer
        for query in queries_for(self._watch, self._shop.commission, limit=None):
            if query.spot != offer.spot:
                continue
            answer = self._shop.market.search(
                msgspec.structs.replace(query, gpus=(offer.gpu,), count_min=offer.gpu_count, count_max=offer.gpu_count)
            )
            commissions = {answer.provider: self._shop.commission}
            for found in matches(self._watch, answer.offers, commissions, self._clock()):
                if found.offer.identity == offer.identity:
                    return found
        return None

    def _point_at(self, launch: Launch, match: Match) -> Launch | None:
        """Make the row say which offer is asked for, before it is; None: another launch of ours has that offer."""
        facts = offer_facts(match, self._watch.disk_gb)
        if all(getattr(launch, name) == value for name, value in facts.items()):
            return launch
        try:
            cause = f"offer {match.offer.offer_id}"
            return self._books.move(launch, LaunchState.REQUESTED, cause, self._clock(), **facts)
        except LaunchMoved:
            if self._books.get(launch.launch_id) != launch:
                raise
            return None

    def _order(self, launch: Launch, match: Match) -> Order:
        offer, spec = match.offer, self._spec
        disk_gb = self._watch.disk_gb if self._watch.disk_gb is not None else offer.quoted_disk_gb
        env = {**spec.env, "GPUWATCH_LAUNCH_ID": launch.launch_id, "GPUWATCH_WATCH": launch.watch}
        return Order(
            offer_id=offer.offer_id,
            label=launch.label,
            image=spec.image,
            disk_gb=max(disk_gb, LEAST_DISK_GB),
            bid_usd_hour=_bid_usd_hour(match) if offer.spot else None,
            onstart=spec.onstart,
            env=env,
            runtype=spec.runtype,
            template=spec.template,
        )

    def _keep(self, launch: Launch, created: Created) -> Launch:
        failpoint("launch.after_send")
        now = self._clock()
        if created.starting:
            moved = self._books.move(launch, LaunchState.STARTING, "created", now, instance_id=created.instance_id)
            failpoint("launch.after_record")
            return moved
        ending = msgspec.structs.replace(launch, state=LaunchState.STOPPING, instance_id=created.instance_id)
        why = "The provider made a contract that does not start. It is billed for its disk, so it is being destroyed."
        news = self._herald.moved(ending, "rented, but it does not start", why, now)
        return self._books.move(
            launch,
            LaunchState.STOPPING,
            End.BID_LOST.text(),
            now,
            news,
            instance_id=created.instance_id,
            end_reason=End.BID_LOST.text(),
        )

    def _lost(self, launch: Launch, error: OutcomeUnknown) -> Launch:
        """It may exist. Nothing is sent again; `follow` looks for the label."""
        log.warning("launch %s: its fate is not known: %s", launch.launch_id, error)
        instance_id = error.instance_id or launch.instance_id
        cause = f"the answer was lost: {error}"
        return self._books.move(launch, LaunchState.UNKNOWN, cause, self._clock(), instance_id=instance_id)

    def _refused(self, launch: Launch, error: OrderRefused) -> Launch:
        end = _REFUSED[error.kind].text(str(error))
        news = self._herald.refused(launch, end, self._clock()) if error.kind is not RefusalKind.NOT_SENT else None
        return self._fail(launch, end, news)

    def _fail(self, launch: Launch, reason: str, news: News | None = None) -> Launch:
        """Nothing was made."""
        now = self._clock()
        log.warning("launch %s failed: %s", launch.launch_id, reason)
        return self._books.move(launch, LaunchState.FAILED, reason, now, news, ended_at=now, end_reason=reason)


def _bid_usd_hour(match: Match) -> float:
    """What is bid for the GPUs: the quote without its disk, and never under the least bid."""
    offer = match.offer
    disk_usd_hour = (offer.disk_usd_gb_month or 0.0) * offer.quoted_disk_gb / HOURS_A_MONTH
    quoted = offer.quoted_usd_hour - disk_usd_hour
    return round(max(quoted, offer.min_bid_usd_hour or 0.0, _BID_STEP), 6)
