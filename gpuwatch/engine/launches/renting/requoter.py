"""What a candidate costs right before it is rented, and whether the account can pay for it.

- `Requoter` prices a candidate again, because an old answer is not a current price.
- `BalanceCache`: the last known balance, refreshed from time to time, so that no launch waits for the provider.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.market.money import MICRO, Commission, disk_usd_hour, dollars, threshold_microusd, usd
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.computed_limits import first_bid_usd_hour, most_microusd
from gpuwatch.domain.watches.decide import Match
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.match import match_of, matches, price_for
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.market.watch_search import PAGE_ROWS, find_offer, queries_for
from gpuwatch.errors import ProviderError
from gpuwatch.ports import Answer, Launcher, Market, Query

log = logging.getLogger(__name__)

REFRESH_S = 120.0
STALE_S = 600.0  # an older balance counts as unknown
_BID_STEP = 2e-6  # rounding of a bid


class Requoter:
    """Current prices of a watch's candidates. An observed price is current until it is older than `quote_ttl`."""

    def __init__(self, market: Market, commission: Commission, watch: Watch, clock: Callable[[], datetime]) -> None:
        self._market = market
        self._commission = commission
        self._watch = watch
        self._clock = clock
        self._ttl = timedelta(seconds=(watch.launch or LaunchSpec()).quote_ttl_s)
        self._answers: dict[Query, Answer] = {}

    def requote(self, match: Match) -> Match | None:
        """Return the same offer at its current price, with this watch's disk; its id may have changed.

        None: it is gone, or over the limit.

        Raises:
            ProviderError: its price is unknown.
        """
        if self._is_fresh(match.offer.observed_at):
            return payable_match(match, self._watch, self._commission)
        _, offer = find_offer(self._search, self._query(match.offer), match.offer.identity)
        if offer is None:
            return None
        found = matches(self._watch, [offer], {offer.provider: self._commission}, self._clock())
        return payable_match(found[0], self._watch, self._commission) if found else None

    def _is_fresh(self, observed_at: datetime) -> bool:
        return timedelta(0) <= self._clock() - observed_at <= self._ttl

    def _query(self, offer: Offer) -> Query:
        queries = queries_for(self._watch, self._commission, limit=PAGE_ROWS)
        mine = next(query for query in queries if query.spot == offer.spot)
        return msgspec.structs.replace(mine, gpus=(offer.gpu,), count_min=offer.gpu_count, count_max=offer.gpu_count)

    def _search(self, query: Query) -> Answer:
        """Search, and cache the answer: it often contains the next candidate, too."""
        answer = self._answers.get(query)
        if answer is None or not self._is_fresh(answer.observed_at):
            answer = self._answers[query] = self._market.search(query)
        return answer


def payable_match(match: Match, watch: Watch, commission: Commission) -> Match | None:
    """Return the match at the price to pay; None: over the limit. Only a bid differs: at least the minimum bid.

    The limit is the watch's threshold or, if the watch sets its own bid, the `max` of the bid.
    """
    offer = match.offer
    if not offer.spot:
        return match
    spec = None if watch.launch is None else watch.launch.bid
    quoted = first_bid_usd_hour(offer, spec, match.price.commission_rate) + disk_usd_hour(offer)
    if quoted <= offer.quoted_usd_hour + _BID_STEP:
        return match
    dearer = msgspec.structs.replace(offer, quoted_usd_hour=quoted)
    price = price_for(watch, dearer, {offer.provider: commission})
    limit, compared = watch.max_price_usd_gpu_hour, price.price_microusd_hour
    if spec is not None:  # a limit of what is bid, and traffic is not bid for
        limit, compared = spec.max_usd_gpu_hour, price.rent_microusd_hour
    if compared > threshold_microusd(limit, offer.gpu_count):
        return None
    quote = match_of(watch, dearer, price)
    dear_job = quote.job_microusd is not None and quote.job_microusd > most_microusd(watch)
    return None if dear_job else quote


class BalanceCache:
    """The balance at one provider. An unknown balance blocks nothing.

    Args:
        monotonic: seconds.
    """

    def __init__(self, launcher: Launcher, monotonic: Callable[[], float]) -> None:
        self._launcher = launcher
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: tuple[float, int] | None = None  # (tick, micro-dollars)

    def refresh(self) -> None:
        """Fetch the balance from the provider."""
        try:
            credit_usd = self._launcher.credit_usd()
        except ProviderError as error:
            log.info("the balance is unknown: %s", error, extra={"provider": self._launcher.name})
            return
        with self._lock:
            self._known = None if credit_usd is None else (self._monotonic(), round(credit_usd * MICRO))

    def why_unaffordable(self, price_microusd_hour: int) -> str | None:
        """Return in one line why the balance does not cover one hour at this price; None: it does, or it is unknown."""
        with self._lock:
            known = self._known
        if known is None or self._monotonic() - known[0] > STALE_S or known[1] >= price_microusd_hour:
            return None
        balance, price = usd(known[1]), usd(price_microusd_hour)
        return f"the balance of {dollars(balance)} at {self._launcher.name} is less than one hour at {dollars(price)}"
