"""What a refused order is about, and for how long nothing within it is ordered again. Pure.

A quota of one region does not limit another, and no refusal of one provider stops an order at the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gpuwatch.domain.launches.circuit_breaker import CircuitBreaker
from gpuwatch.domain.launches.launch import LaunchRefusal, RefusalReason
from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import OfferGone, OrderError, OrderRateLimited, OrderRefused, RefusalKind, RefusalScope

# Assumed, as long as a provider does not say: a quota or a setting of the account is mended by a person, stock comes
# back by itself.
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
    """What is not ordered until a time, because an order within it was refused.

    Attributes:
        key: which offer, machine, zone or quota; empty: the whole account or provider.
        watch: the refusal is about this watch's order alone; None: about any.
        why: the provider's own text, cleaned.
        launch_id: whose order was refused.
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
        """What is skipped, for a person."""
        what = _NAMES[self.scope].format(key=self.key)
        return what if self.watch is None else f"{what} for watch {self.watch}"

    def covers(self, offer: Offer, watch: str) -> bool:
        """Return whether an order of this offer for this watch would be within it."""
        if offer.provider != self.provider or self.watch not in {None, watch}:
            return False
        return self.scope in _EVERYTHING or self.key == scope_key(self.scope, offer)


class RefusedOrder(msgspec.Struct, frozen=True):
    """A refusal as a scope, and whether the next launches skip it as well: what an offer's end says is soon over."""

    scope: SkippedScope
    is_kept: bool


def refused_order(error: OrderError, offer: Offer, watch: str, launch_id: str, now: datetime) -> RefusedOrder:
    """Return what an order's refusal is about.

    Args:
        error: a known refusal: nothing was made.
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
    """Return the scope of a provider that gave no usable answer: nothing was refused, so it is skipped once."""
    return SkippedScope(provider=offer.provider, scope=RefusalScope.PROVIDER, key="", why=why, since=now, until=now)


def scope_key(scope: RefusalScope, offer: Offer) -> str:
    """Return which one of its kind an offer belongs to; empty: the whole account or provider.

    Where the provider names no zone or quota, its region, and the type of the machine there, stand for them.
    """
    if scope in _EVERYTHING:
        return ""
    if scope is RefusalScope.OFFER:
        return f"{offer.offer_id} (spot)" if offer.spot else offer.offer_id  # one id may be sold both ways
    if scope is RefusalScope.MACHINE:
        return offer.identity.machine_id
    place = offer.region or offer.country or ""
    if scope is RefusalScope.ZONE:
        return offer.terms.zone or place
    if offer.terms.quota is not None:
        return offer.terms.quota
    return f"{place} {offer.terms.instance_type or offer.gpu} {'spot' if offer.spot else 'on demand'}".strip()


def skipped_by(scopes: Iterable[SkippedScope], offer: Offer, watch: str) -> SkippedScope | None:
    """Return the first of these scopes that an order would be within."""
    return next((one for one in scopes if one.covers(offer, watch)), None)


def scopes_in_force(
    scopes: Iterable[SkippedScope], now: datetime, breaker: CircuitBreaker | None = None
) -> list[SkippedScope]:
    """Return those that still hold. `gpuwatch resume WATCH` ends what was refused before it, for that watch.

    Args:
        breaker: of the watch that would rent.
    """
    forgiven = breaker.at if breaker is not None and breaker.is_closed else None
    # a clock that was set back must not skip for years: nothing lasts longer than `_LONGEST_S` from now
    latest = now + timedelta(seconds=_LONGEST_S)
    return [one for one in scopes if now < one.until <= latest and (forgiven is None or one.since > forgiven)]


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
    said = error.lasts_s if isinstance(error, OfferGone | OrderRefused) else None
    return _LASTS_S[scope] if said is None else said


def _is_kept(error: OrderError) -> bool:
    """An adapter that names a scope knows what it is about; of the others, what a person must mend, and a wait."""
    if isinstance(error, OfferGone | OrderRefused) and error.scope is not None:
        return True
    if isinstance(error, OrderRefused):
        return error.kind in {RefusalKind.NO_CREDIT, RefusalKind.KEY, RefusalKind.BAD_ORDER}
    return isinstance(error, OrderRateLimited)
