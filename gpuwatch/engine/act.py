"""The rent: a durable intent goes to the provider, once; what is not known afterwards is never repeated.

A launch arrives here as `requested`, committed to disk. From then on a crash anywhere is the same case as an answer
that was lost: `follow` looks for its label before anything else happens.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from gpuwatch.engine.failpoint import failpoint
from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.engine.quotes import Quotes, bid_usd_hour
from gpuwatch.engine.stepping import Stepper
from gpuwatch.errors import (
    OfferGone,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    RefusalKind,
)
from gpuwatch.launches.launch import End, Launch, LaunchMoved, Refusal, RefusalReason, offer_facts
from gpuwatch.launches.life import AnswerLost, Made, NothingMade, When
from gpuwatch.market.pricing import Commission
from gpuwatch.ports import Books, Created, Launcher, Market, Order
from gpuwatch.watches.decide import Match
from gpuwatch.watches.watch import Budget, LaunchSpec, Watch

log = logging.getLogger(__name__)

LEAST_DISK_GB = 8.0  # source: vastai.md §6, the smallest disk that can be ordered
_REFUSED: Mapping[RefusalKind, End] = {
    RefusalKind.NO_CREDIT: End.NO_CREDIT,
    RefusalKind.KEY: End.KEY,
    RefusalKind.BAD_ORDER: End.BAD_ORDER,
    RefusalKind.BID_TOO_LOW: End.BID_LOST,
    RefusalKind.NOT_SENT: End.NOT_SENT,
    RefusalKind.OTHER: End.REFUSED,
}


_END_OF = {RefusalReason.OFFER_TAKEN: End.OFFERS_GONE, RefusalReason.MACHINE_FAILED: End.OFFERS_GONE}


class Shop(msgspec.Struct, frozen=True):
    """One provider, as the actor needs it."""

    launcher: Launcher
    market: Market
    commission: Commission


class Actor:
    """Turns reserved launches into instances. One call per launch; several may run on threads.

    Args:
        budget: it binds again when a launch is pointed at another offer, or at the same at another price.
    """

    def __init__(
        self,
        books: Books,
        shops: Mapping[str, Shop],
        herald: Herald,
        clock: Callable[[], datetime],
        budget: Budget = Budget(),  # noqa: B008 a frozen value
    ) -> None:
        self._budget = budget
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
            shop = self._shops[launch.provider]
            rent = _Rent(_Desk(self._books, self._herald, self._clock, self._budget), shop, watch)
            return rent.through(launch, candidates, observed_at)
        finally:
            with self._lock:
                self._in_flight.discard(launch.launch_id)


class _Desk:
    """Writes down what came of an order: only this process knows the provider's answer."""

    def __init__(self, books: Books, herald: Herald, clock: Callable[[], datetime], budget: Budget) -> None:
        self.books = books
        self.clock = clock
        self.budget = budget
        self._stepper = Stepper(books, herald)

    def made(self, launch: Launch, created: Created) -> Launch:
        """There is a contract."""
        return self._tell(launch, Made(created.instance_id, created.starting))

    def lost(self, launch: Launch, error: OutcomeUnknown) -> Launch:
        """It may exist. Nothing is sent again; `follow` looks for the label."""
        log.warning("launch %s: its fate is not known: %s", launch.launch_id, error)
        return self._tell(launch, AnswerLost(str(error), error.instance_id))

    def failed(self, launch: Launch, reason: str) -> Launch:
        """Nothing was made, and the owner, who was told that it is being rented, hears that it is not."""
        log.warning("launch %s failed: %s", launch.launch_id, reason)
        return self._tell(launch, NothingMade(reason))

    def _tell(self, launch: Launch, seen: Made | AnswerLost | NothingMade) -> Launch:
        """What is to be destroyed, `follow` destroys: it looks at once."""
        now = self.clock()
        launch, _ = self._stepper.insist(launch, seen, When(now, now))
        return launch


class _Rent:
    """One launch's way through its candidates."""

    def __init__(self, desk: _Desk, shop: Shop, watch: Watch) -> None:
        self._desk = desk
        self._shop = shop
        self._watch = watch
        self._spec = watch.launch or LaunchSpec()
        self._quotes = Quotes(shop.market, shop.commission, watch, desk.clock)

    def through(self, launch: Launch, candidates: Sequence[Match], observed_at: datetime) -> Launch:
        mine = [match for match in candidates if match.offer.provider == launch.provider]
        mine.sort(key=lambda match: match.offer.offer_id != launch.offer_id)  # the reserved one first
        problem = End.OFFERS_GONE.text()
        for match in mine[: self._spec.max_tries]:
            try:
                quoted = self._quotes.of(match, observed_at)
            except ProviderError as error:
                return self._desk.failed(launch, End.NOT_CHECKED.text(str(error)))
            if quoted is None:
                problem = End.PRICE_ROSE.text(f"offer {match.offer.offer_id} is gone or dearer")
                continue
            try:
                pointed = self._point_at(launch, quoted)
            except LaunchMoved:  # another daemon, or the owner, has it: nothing was made so far
                return self._desk.failed(launch, End.REFUSED.text("it was taken over before it was asked for"))
            if isinstance(pointed, Refusal):
                problem = _END_OF.get(pointed.reason, End.BUDGET).text(pointed.text)
                continue
            launch, outcome = self._ask(pointed, quoted)
            if outcome is None:
                return launch
            problem = outcome
        return self._desk.failed(launch, problem)

    def _ask(self, launch: Launch, match: Match) -> tuple[Launch, str | None]:
        """Send the order, once. With a text: nothing was made, and the next candidate may be asked for."""
        failpoint("launch.before_send")
        try:
            return self._keep(launch, self._shop.launcher.create(self._order(launch, match))), None
        except OfferGone as error:
            return launch, End.OFFERS_GONE.text(str(error))
        except OrderRateLimited as error:
            return self._desk.failed(launch, End.RATE_LIMITED.text(str(error))), None
        except OrderRefused as error:
            if error.kind is RefusalKind.BID_TOO_LOW:
                return launch, End.BID_LOST.text(str(error))
            return self._desk.failed(launch, _REFUSED[error.kind].text(str(error))), None
        except OutcomeUnknown as error:
            failpoint("launch.no_answer")
            return self._desk.lost(launch, error), None

    def _point_at(self, launch: Launch, match: Match) -> Launch | Refusal:
        """Make the row say which offer is asked for and at what price, before it is."""
        facts = offer_facts(match, self._watch)
        if all(getattr(launch, name) == value for name, value in facts.items()):
            return launch
        desk = self._desk
        return desk.books.point_at(launch, match, self._watch, desk.budget, desk.clock())

    def _order(self, launch: Launch, match: Match) -> Order:
        offer, spec = match.offer, self._spec
        disk_gb = self._watch.disk_gb if self._watch.disk_gb is not None else offer.quoted_disk_gb
        env = {**spec.env, "GPUWATCH_LAUNCH_ID": launch.launch_id, "GPUWATCH_WATCH": launch.watch}
        return Order(
            offer_id=offer.offer_id,
            label=launch.label,
            image=spec.image,
            disk_gb=max(disk_gb, LEAST_DISK_GB),
            bid_usd_hour=bid_usd_hour(offer) if offer.spot else None,
            onstart=spec.onstart,
            env=env,
            runtype=spec.runtype,
            template=spec.template,
        )

    def _keep(self, launch: Launch, created: Created) -> Launch:
        failpoint("launch.after_send")
        kept = self._desk.made(launch, created)
        failpoint("launch.after_record")
        return kept
