"""What a refused order applies to, and for how long no order within that scope is sent again. Pure.

A quota of one region does not limit another, and a refusal by one provider does not stop an order at the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.launches.life.circuit_breaker import CLOCKS_DIFFER, CircuitBreaker
from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import OfferGone, OrderError, OrderRateLimited, OrderRefused, RefusalKind, RefusalScope

# Assumed if the provider does not state it: a person must fix a quota or an account setting; stock comes back by
# itself.
_LASTS_S: Mapping[RefusalScope, float] = {
    RefusalScope.OFFER: 60.0,
    RefusalScope.MACHINE: 60.0,
    RefusalScope.ZONE: 3600.0,
    RefusalScope.REGION_FAMILY: 3600.0,
    RefusalScope.ACCOUNT: 3600.0,
    RefusalScope.PROVIDER: 3600.0,
}
_RATE_LIMITED_S = 30.0
_LONGEST_S = 24 * 3600.0

_OF_KIND: Mapping[RefusalKind, RefusalScope] = {
    RefusalKind.NO_CREDIT: RefusalScope.ACCOUNT,
    RefusalKind.KEY: RefusalScope.ACCOUNT,
    RefusalKind.BAD_ORDER: RefusalScope.PROVIDER,
    RefusalKind.BID_TOO_LOW: RefusalScope.OFFER,
    RefusalKind.NOT_SENT: RefusalScope.PROVIDER,
    RefusalKind.OTHER: RefusalScope.PROVIDER,
}
_EVERYTHING = frozenset({RefusalScope.ACCOUNT, RefusalScope.PROVIDER})
_NAMES = {
    RefusalScope.OFFER: "offer {key}",
    RefusalScope.MACHINE: "{key}",
    RefusalScope.ZONE: "zone {key}",
    RefusalScope.REGION_FAMILY: "{key}",
    RefusalScope.ACCOUNT: "the whole account",
    RefusalScope.PROVIDER: "the whole provider",
}


class SkippedScope(msgspec.Struct, frozen=True, kw_only=True):
    """A scope in which no order is sent until a given time, because an order within it was refused.

    Attributes:
        key: the offer, machine, zone or quota; empty: the whole account or provider.
        watch: the refusal concerns only the orders of this watch; None: all orders.
        why: the provider's own text, cleaned.
        launch_id: the launch whose order was refused.
    """

    provider: str
    scope: RefusalScope
    key: str
    watch: str | None = None
    why: str
    since: datetime
    until: datetime
    launch_id: str | None = None

    @property
    def name(self) -> str:
        """The scope as text."""
        what = _NAMES[self.scope].format(key=self.key)
        return what if self.watch is None else f"{what} for watch {self.watch}"

    def covers(self, offer: Offer, watch: str) -> bool:
        """Return whether an order of this offer for this watch is within the scope."""
        if offer.provider != self.provider or self.watch not in {None, watch}:
            return False
        return self.scope in _EVERYTHING or self.key == scope_key(self.scope, offer)


class RefusedOrder(msgspec.Struct, frozen=True):
    """A refusal as a scope, and whether the next launches skip it, too: a single gone offer is soon irrelevant."""

    scope: SkippedScope
    is_kept: bool


def refused_order(error: OrderError, offer: Offer, watch: str, launch_id: str, now: datetime) -> RefusedOrder:
    """Return the scope of an order's refusal.

    Args:
        error: a definite refusal: no instance was created.
    """
    scope = _scope_of(error)
    is_watchs_own = isinstance(error, OrderRefused) and error.kind is RefusalKind.BAD_ORDER and error.scope is None
    lasts_s = min(max(0.0, _lasts_s(error, scope)), _LONGEST_S)
    skipped = SkippedScope(
        provider=offer.provider,
        scope=scope,
        key=scope_key(scope, offer),
        watch=watch if is_watchs_own else None,
        why=str(error),
        since=now,
        until=now + timedelta(seconds=lasts_s),
        launch_id=launch_id,
    )
    return RefusedOrder(skipped, _is_kept(error))


def whole_provider(offer: Offer, why: str, now: datetime) -> SkippedScope:
    """Return the scope of a provider that gave no usable answer: nothing was refused, so it is skipped only once."""
    return SkippedScope(provider=offer.provider, scope=RefusalScope.PROVIDER, key="", why=why, since=now, until=now)


def scope_key(scope: RefusalScope, offer: Offer) -> str:
    """Return the key of an offer within a scope; empty: the whole account or provider.

    If the provider does not name zones or quotas, the region and the machine type there are used instead.
    """
    if scope in _EVERYTHING:
        return ""
    if scope is RefusalScope.OFFER:
        return f"{offer.offer_id} (spot)" if offer.spot else offer.offer_id  # one id may be sold as both
    if scope is RefusalScope.MACHINE:
        return offer.identity.machine_id
    place = offer.region or offer.country or ""
    if scope is RefusalScope.ZONE:
        return offer.terms.zone or place
    if offer.terms.quota is not None:
        return offer.terms.quota
    return f"{place} {offer.terms.instance_type or offer.gpu} {'spot' if offer.spot else 'on demand'}".strip()


def skipped_by(scopes: Iterable[SkippedScope], offer: Offer, watch: str) -> SkippedScope | None:
    """Return the first of these scopes that contains an order of this offer."""
    return next((scope for scope in scopes if scope.covers(offer, watch)), None)


def scopes_in_force(
    scopes: Iterable[SkippedScope], now: datetime, breaker: CircuitBreaker | None = None
) -> list[SkippedScope]:
    """Return the scopes that still apply. `gpuwatch watches resume WATCH` lifts earlier refusals for that watch.

    Args:
        breaker: of the watch that wants to rent.
    """
    forgiven = breaker.at if breaker is not None and breaker.is_closed else None
    # a scope from the future was set before the clock was set back: nothing is skipped until the old time returns
    current = [scope for scope in scopes if scope.since - CLOCKS_DIFFER <= now < scope.until]
    return [scope for scope in current if forgiven is None or scope.since > forgiven]


def scope_refusal(scopes: Iterable[SkippedScope], offer: Offer, watch: str) -> LaunchRefusal | None:
    """Return why an offer must not be ordered now, or None."""
    found = skipped_by(scopes, offer, watch)
    if found is None:
        return None
    text = f"{found.provider}: {found.name} is skipped until {found.until:%Y-%m-%d %H:%M:%S} UTC ({found.why})"
    return LaunchRefusal(RefusalReason.COOLING, text)


def _scope_of(error: OrderError) -> RefusalScope:
    if isinstance(error, OfferGone):
        return error.scope or RefusalScope.OFFER
    if isinstance(error, OrderRefused):
        return error.scope or _OF_KIND[error.kind]
    return RefusalScope.PROVIDER


def _lasts_s(error: OrderError, scope: RefusalScope) -> float:
    if isinstance(error, OrderRateLimited):
        return _RATE_LIMITED_S if error.retry_after_s is None else error.retry_after_s
    stated_s = error.lasts_s if isinstance(error, OfferGone | OrderRefused) else None
    return _LASTS_S[scope] if stated_s is None else stated_s


def _is_kept(error: OrderError) -> bool:
    """Keep a scope that the adapter names; otherwise keep refusals that a person must fix, and rate limits."""
    if isinstance(error, OfferGone | OrderRefused) and error.scope is not None:
        return True
    if isinstance(error, OrderRefused):
        return error.kind in {RefusalKind.NO_CREDIT, RefusalKind.KEY, RefusalKind.BAD_ORDER}
    return isinstance(error, OrderRateLimited)
