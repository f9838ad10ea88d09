"""Rent one offer now, without a watch: a fresh search prices it, a person confirms the quote, and it is rented once.

A quote is an approval whose watch exists for it alone, so that its answer takes the path of every other approval: the
price is checked again, and pauses, budgets, accounts and prerequisites are those of a launch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from gpuwatch.app.launches.approvals import ApprovalView, approval_view, request_terms
from gpuwatch.app.launches.most_cost import most_cost_microusd, quoted_launch
from gpuwatch.app.market.current_offers import current_offers
from gpuwatch.app.market.offers import OfferView, markets_now, named_providers, offer_view
from gpuwatch.app.market.outbid_risk import OutbidRiskView, risk_of, risk_view
from gpuwatch.bootstrap import new_id, open_store, open_store_read_only, real_now
from gpuwatch.bootstrap.provider_access import label_lengths, not_rentable
from gpuwatch.bootstrap.rules import commissions_of
from gpuwatch.domain.launches.launch import Intent
from gpuwatch.domain.launches.life.owner_decisions import Approval
from gpuwatch.domain.launches.rent_terms import RentTerms, rent_watch
from gpuwatch.domain.market.json_view import usd_number
from gpuwatch.domain.market.money import dollars, price_text, usd
from gpuwatch.domain.market.offer import OfferKind, clean, gpus_text
from gpuwatch.domain.market.outbid_risk import OutbidRisk
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match, WatchMemory
from gpuwatch.domain.watches.match import failures, match_of, price_for
from gpuwatch.domain.watches.owner_names import RENT_NAME, owned_name
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.launches.renting.owner_decisions import request_approval
from gpuwatch.engine.market.browse import OfferFilter
from gpuwatch.engine.setup.leadership import role_of
from gpuwatch.errors import ProviderStateUnknown, StoreNotReady, UsageError
from gpuwatch.storage.history.queries.stored_prices import LastListing, last_listing
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from gpuwatch.storage.watches.running_hosts import has_leader

if TYPE_CHECKING:
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

_WITHIN_S = 30.0  # of the search
_LONGEST_S = 366 * 86_400.0


class RentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person asks for."""

    provider: str
    offer_id: str
    terms: RentTerms
    spot: bool = False


class RentQuote(msgspec.Struct, frozen=True, kw_only=True):
    """A priced offer that awaits its confirmation: `approvals.approve` with its id rents it, once.

    Attributes:
        most_microusd: the most that it can cost in all, commission and disk included; None: unknown.
        is_followed: a daemon runs, which ends it in time.
        risk: of being outbid; None: nobody bids for this offer.
    """

    approval: Approval
    most_microusd: int | None
    is_followed: bool
    risk: OutbidRisk | None = None

    @property
    def traffic(self) -> str:
        """What traffic costs in addition: "$0.01/GB down"; empty: nothing, or it is unknown."""
        offer, parts = self.approval.match.offer, []
        if offer.download_usd_gb:
            rate = price_text(Decimal(repr(offer.download_usd_gb)), most=6)
            parts.append(f"${rate}/GB down")
        if offer.upload_usd_gb:
            rate = price_text(Decimal(repr(offer.upload_usd_gb)), most=6)
            parts.append(f"${rate}/GB up")
        return ", ".join(parts)


class RentRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was rented. `text`: one line; `nearest`: if the offer is gone, what comes closest to it."""

    text: str
    nearest: Match | None = None


def quote_rent(settings: Settings, request: RentRequest, *, respects_denials: bool = False) -> RentQuote | RentRefusal:
    """Price an offer by a fresh search, and check all that a launch needs and is known without an order.

    What the request leaves out is that of `[defaults.watch]`, as far as `RentDefaults` has it. The same request again,
    while its quote is open and costs no more, returns the same quote.

    Args:
        respects_denials: refuse an offer that the owner denied within the last day.

    Raises:
        UsageError: no such provider, or the settings do not allow it.
        ProviderStateUnknown: the provider did not answer.
        StoreError: nothing was written.
    """
    _require_bounds(settings, request)
    last = last_known(settings, request)
    on_sale = _search(settings, request, last)
    found = next((match for match in on_sale if match.offer.offer_id == request.offer_id), None)
    if found is None:
        return _gone(request, last, on_sale, [] if last is None else _elsewhere(settings, request, last))
    terms = request.terms.with_defaults(settings.rent_defaults)
    if terms.ssh_key is not None and not os.access(terms.ssh_key, os.R_OK):
        raise UsageError(f"[defaults.watch] launch.ssh_key: expected a readable file; cannot read {terms.ssh_key}")
    watch = rent_watch(owned_name(settings.owner, RENT_NAME), found.offer, terms)
    match = match_of(watch, found.offer, price_for(watch, found.offer, commissions_of(settings)))
    if broken := failures(watch, found.offer, match.price, real_now()):
        return RentRefusal(text=f"it cannot be rented: {broken[0].text}")
    with open_store(settings) as store:
        reason = DecisionReason.REPEAT_DUE if respects_denials else DecisionReason.FIRST_MATCH
        return _quote(settings, store, watch, match, (terms, reason))


def _require_bounds(settings: Settings, request: RentRequest) -> None:
    """As for a watch that rents: its money and its time are limited."""
    named_providers(settings, [request.provider])
    if not 1 <= request.terms.max_runtime_s <= _LONGEST_S:
        raise UsageError("expected a duration from 1s to a year, such as 4h")
    if not settings.dry_run and settings.budget.max_usd_hour is None:
        raise UsageError("set max_usd_hour in [budget] first: without it gpuwatch rents nothing")


def last_known(settings: Settings, request: RentRequest) -> LastListing | None:
    """What the store knows of the offer; None: nothing. Raises StoreError."""
    try:
        with open_store_read_only(settings) as store:
            return last_listing(store, request.provider, request.offer_id, spot=request.spot)
    except StoreNotReady:
        return None


def _search(settings: Settings, request: RentRequest, last: LastListing | None) -> list[Match]:
    """The offers on sale there now: those like the last listing of the requested one, or all."""
    wanted = OfferFilter(
        gpu_names=() if last is None else (last.gpu,),
        count_min=1 if last is None else last.gpu_count,
        count_max=None if last is None else last.gpu_count,
        spots=(request.spot,),
        disk_gb=request.terms.disk_gb,
        kinds=frozenset({OfferKind.LIVE}),
    )
    (answer,) = markets_now(settings, wanted, [request.provider], None, _WITHIN_S)
    if answer.error is not None and all(match.offer.offer_id != request.offer_id for match in answer.matches):
        raise ProviderStateUnknown(f"nothing was rented: the price could not be checked at {request.provider}: "
                                   f"{answer.error}")  # fmt: skip
    return list(answer.matches)


def _elsewhere(settings: Settings, request: RentRequest, last: LastListing) -> list[Match]:
    """The same number of the same GPU at the other providers where gpuwatch can rent, as last polled."""
    unable = not_rentable(settings)
    left_out = {request.provider, *unable.no_launcher, *unable.no_key}
    names = [name for name in settings.providers if name not in left_out]
    if not names:
        return []
    wanted = OfferFilter(
        gpu_names=(last.gpu,),
        count_min=last.gpu_count,
        count_max=last.gpu_count,
        spots=(request.spot,),
        disk_gb=request.terms.disk_gb,
        kinds=frozenset({OfferKind.LIVE}),
    )
    return [match for match in current_offers(settings, wanted, names).matches if match.offer.rentable]


def _gone(
    request: RentRequest, last: LastListing | None, on_sale: Iterable[Match], elsewhere: Iterable[Match]
) -> RentRefusal:
    what = f"offer {clean(request.offer_id, 64)!r} is not on sale at {request.provider}"
    if last is None:
        return RentRefusal(text=f"{what}; see: gpuwatch offers --provider {request.provider}")
    alike = sorted([*on_sale, *elsewhere], key=lambda match: match.price.price_microusd_hour)
    dearer = [match for match in alike if match.price.listed_microusd_hour >= last.microusd_hour]
    nearest = next(iter([*dearer, *reversed(alike)]), None)
    if nearest is None:
        return RentRefusal(text=f"{what}, nor is any other {gpus_text(last.gpu, last.gpu_count)}")
    price = dollars(usd(nearest.price.price_microusd_hour))
    gpus = gpus_text(last.gpu, last.gpu_count)
    offer_id, provider = nearest.offer.offer_id, nearest.offer.provider
    text = f"{what}; the nearest {gpus} is offer {offer_id} at {price} an hour"
    if provider != request.provider:
        text = f"{what}; the nearest {gpus} is offer {offer_id} of {provider}, as last polled, at {price} an hour"
    return RentRefusal(text=text, nearest=nearest)


def _quote(
    settings: Settings, store: Database, watch: Watch, match: Match, asked_for: tuple[RentTerms, DecisionReason]
) -> RentQuote | RentRefusal:
    now, (terms, reason) = real_now(), asked_for
    decision = Decision(
        watch=watch.name,
        reason=reason,
        decided_at=now,
        matches=(match,),
        memory=WatchMemory(fired_at=now),
    )

    def intent(left: Sequence[Match]) -> Intent:
        return Intent(
            watch=watch,
            match=left[0],
            launch_id=new_id(),
            dry_run=settings.dry_run,
            label_lengths=label_lengths(settings.providers),
            rent=terms,
        )

    with SqlDecisionStore(store).open() as uow:
        asked = request_approval(uow, watch, decision, intent, request_terms(settings))
    if asked is None or asked.ask is None:
        return RentRefusal(text="it cannot be rented now" if asked is None else asked.why_not)
    most = most_cost_microusd(quoted_launch(asked.ask.match, watch, now), now)
    return RentQuote(
        approval=asked.ask,
        most_microusd=most,
        is_followed=has_leader(store, role_of(settings.owner)),
        risk=risk_of(store, asked.ask.match, watch, now),
    )


class RentQuoteView(ApprovalView, frozen=True, kw_only=True):
    """A priced offer that awaits its confirmation, until its deadline."""

    max_runtime_s: float
    most_usd: Annotated[float | None, Meta(description="The most it can cost in all, commission and disk included.")]
    outbid_risk: Annotated[OutbidRiskView | None, Meta(description="null: nobody bids for this offer.")]
    dry_run: Annotated[bool, Meta(description="True: nothing is rented.")]
    daemon_runs: Annotated[bool, Meta(description="False: nothing ends it in time until `gpuwatch run` runs.")]


def rent_quote_view(settings: Settings, quote: RentQuote, request: RentRequest) -> RentQuoteView:
    """A quote as other programs see it."""
    return RentQuoteView.of(
        approval_view(quote.approval, real_now()),
        max_runtime_s=request.terms.max_runtime_s,
        most_usd=usd_number(quote.most_microusd),
        outbid_risk=risk_view(quote.risk),
        dry_run=settings.dry_run,
        daemon_runs=quote.is_followed,
    )


def nearest_view(refusal: RentRefusal) -> OfferView | None:
    """What comes closest to an offer that is gone, as other programs see it."""
    near = refusal.nearest
    return None if near is None else offer_view(near.offer, near.price)
