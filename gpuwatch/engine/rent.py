"""The rent of one launch: down a ladder of candidates, each asked for once, until one is made or none is left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from gpuwatch.engine.failpoint import failpoint
from gpuwatch.engine.launch_alerts import Herald
from gpuwatch.engine.ordering import order_of
from gpuwatch.engine.purse import Purse
from gpuwatch.engine.quotes import Quotes
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
from gpuwatch.launches.observed import AnswerLost, Made, NothingMade, When
from gpuwatch.market.pricing import Commission
from gpuwatch.ports import Books, Created, Launcher, Market
from gpuwatch.watches.decide import Match
from gpuwatch.watches.watch import Budget, LaunchSpec, Watch

log = logging.getLogger(__name__)

_REFUSED: Mapping[RefusalKind, End] = {
    RefusalKind.NO_CREDIT: End.NO_CREDIT,
    RefusalKind.KEY: End.KEY,
    RefusalKind.BAD_ORDER: End.BAD_ORDER,
    RefusalKind.BID_TOO_LOW: End.BID_LOST,
    RefusalKind.NOT_SENT: End.NOT_SENT,
    RefusalKind.OTHER: End.REFUSED,
}


_END_OF = {
    RefusalReason.OFFER_TAKEN: End.OFFERS_GONE,
    RefusalReason.MACHINE_FAILED: End.OFFERS_GONE,
    RefusalReason.PAUSED: End.PAUSED,
}


class Shop(msgspec.Struct, frozen=True):
    """One provider, as the actor needs it.

    Args:
        is_another: (instance, launch) → was that instance there before, and is not this launch's?
    """

    launcher: Launcher
    market: Market
    commission: Commission
    purse: Purse | None = None
    is_another: Callable[[str, str], bool] = lambda instance_id, launch_id: False


class RentDesk:
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


class Ladder:
    """One launch's way over its candidates: the reserved one first, then the next best, each at its price of now."""

    def __init__(self, desk: RentDesk, shop: Shop, watch: Watch) -> None:
        self._desk = desk
        self._shop = shop
        self._watch = watch
        self._spec = watch.launch or LaunchSpec()
        self._quotes = Quotes(shop.market, shop.commission, watch, desk.clock)

    def climb(self, launch: Launch, candidates: Sequence[Match], observed_at: datetime) -> Launch:
        """Ask for one after the other until one is made, its fate is not known, or there is no sense in going on.

        Raises:
            LaunchMoved: somebody else took the launch over; nothing more was done.
            StoreError: what happened could not be written down.
        """
        mine = [match for match in candidates if match.offer.provider == launch.provider]
        mine.sort(key=lambda match: match.offer.offer_id != launch.offer_id)
        until = self._desk.clock() + timedelta(seconds=self._spec.try_for_s)
        problem = End.OFFERS_GONE.text()
        for match in mine[: self._spec.max_tries]:
            try:
                launch, outcome = self._try(launch, match, observed_at)
            except ProviderError as error:
                return self._desk.failed(launch, End.NOT_CHECKED.text(str(error)))
            if outcome is None:
                return launch
            problem = outcome
            if self._desk.clock() >= until:
                break
        return self._desk.failed(launch, problem)

    def _try(self, launch: Launch, match: Match, observed_at: datetime) -> tuple[Launch, str | None]:
        """One candidate. With a text: nothing was made, and the next may be asked for. Raises ProviderError."""
        quoted = self._quotes.of(match, observed_at)
        if quoted is None:
            return launch, End.PRICE_ROSE.text(f"offer {match.offer.offer_id} is gone or dearer")
        try:
            pointed = self._point_at(launch, quoted)
            if isinstance(pointed, Refusal):
                return launch, _END_OF.get(pointed.reason, End.BUDGET).text(pointed.text)
            failpoint("launch.before_look")
            barred = self._barred(pointed)
        except LaunchMoved:  # another daemon, or the owner, has it: nothing was made so far
            return self._desk.failed(launch, End.NOT_SENT.text("it was taken over before it was asked for")), None
        if barred is not None:
            return self._desk.failed(pointed, barred), None
        return self._ask(pointed, quoted)

    def _barred(self, launch: Launch) -> str | None:
        """The last look before money is spent."""
        poor = self._shop.purse.too_little(launch.price_microusd_hour) if self._shop.purse else None
        if poor is not None:
            return End.NO_CREDIT.text(poor)
        refusal = self._desk.books.may_send(launch, self._desk.clock())
        return None if refusal is None else _END_OF.get(refusal.reason, End.PAUSED).text(refusal.text)

    def _ask(self, launch: Launch, match: Match) -> tuple[Launch, str | None]:
        """Send the order, once. With a text: nothing was made, and the next candidate may be asked for."""
        failpoint("launch.before_send")
        try:
            return self._keep(launch, self._create(launch, match)), None
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

    def _create(self, launch: Launch, match: Match) -> Created:
        """An answer that names an instance which was there before names another's: ours is looked for by its label."""
        try:
            created = self._shop.launcher.create(order_of(launch, match, self._watch))
        except OutcomeUnknown as error:
            if error.instance_id is None or not self._shop.is_another(error.instance_id, launch.launch_id):
                raise
            raise OutcomeUnknown(str(error)) from error
        except ProviderError as error:  # no word for an order: what was sent, and how far it came, is not known
            raise OutcomeUnknown(str(error)) from error
        if self._shop.is_another(created.instance_id, launch.launch_id):
            raise OutcomeUnknown(f"its answer names instance {created.instance_id}, which was there before")
        return created

    def _point_at(self, launch: Launch, match: Match) -> Launch | Refusal:
        """Make the row say which offer is asked for and at what price, before it is."""
        facts = offer_facts(match, self._watch)
        if all(getattr(launch, name) == value for name, value in facts.items()):
            return launch
        desk = self._desk
        return desk.books.point_at(launch, match, self._watch, desk.budget, desk.clock())

    def _keep(self, launch: Launch, created: Created) -> Launch:
        failpoint("launch.after_send")
        kept = self._desk.made(launch, created)
        failpoint("launch.after_record")
        return kept
