"""The page that rents one offer now: for how long, then one question with what it costs at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from gpuwatch.app.launches.approvals import approve
from gpuwatch.app.launches.most_cost import upper_text
from gpuwatch.app.launches.requests.rent import (
    RentQuote,
    RentRefusal,
    RentRequest,
    last_known,
    quote_rent,
)
from gpuwatch.app.market.outbid_risk import risk_text
from gpuwatch.app.reader_text import span
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.launches.rent_terms import RentTerms
from gpuwatch.domain.market.money import hourly_text
from gpuwatch.domain.market.offer import OfferKind, clean
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_composed
from gpuwatch.web.approvals.approval_texts import answer_text, machine_text, place_text, rate_of, stop_text
from gpuwatch.web.components import hardware
from gpuwatch.web.launches.rented_pages import chosen_hours
from gpuwatch.web.page import Confirm, FormAction, FormResult, Page, Redirect, Rerender, View, is_confirmed

if TYPE_CHECKING:
    from gpuwatch.domain.market.offer import Offer
    from gpuwatch.engine.launches.renting.candidate_selection import UnavailableProviders

_HOURS = (1, 4, 12, 24)


def rent_path(offer: Offer, unable: UnavailableProviders) -> str:
    """The address of this page for an offer; empty: gpuwatch cannot rent it."""
    if offer.kind is not OfferKind.LIVE or not offer.offer_id or unable.why_not(offer.provider) is not None:
        return ""
    return _path(offer.provider, offer.offer_id, spot=offer.spot)


def _path(provider: str, offer_id: str, *, spot: bool) -> str:
    return f"/rent?{urlencode({'provider': provider, 'offer': offer_id, **({'spot': 'yes'} if spot else {})})}"


def _show_rent(view: View) -> Mapping[str, Any]:
    request = _request(view, 0.0)
    known = last_known(view.settings, request)
    return {
        "provider": request.provider,
        "offer_id": request.offer_id,
        "spot": request.spot,
        "machine": clean(request.offer_id, 64) if known is None else hardware(clean(known.gpu), known.gpu_count),
        "seller": provider_title(request.provider),
        "choices": [(str(hours), _("{hours} h").format(hours=hours), "") for hours in _HOURS],
        "chosen": view.form.get("by", "4"),
        "other": view.form.get("other", ""),
        "image": view.form.get("image", ""),
        "fault": "",
    }


def _request(view: View, hours: float) -> RentRequest:
    """What the form, or the address, asks for. Raises UsageError: no offer is named, or not from a known provider."""
    given = view.form or view.query
    provider, offer_id = given.get("provider", ""), given.get("offer", "").strip()
    if provider not in view.settings.providers or not offer_id:
        raise UsageError(_("Choose an offer on the page of the market."))
    terms = RentTerms(max_runtime_s=hours * HOUR_S, image=given.get("image", "").strip()[:500] or None)
    return RentRequest(provider=provider, offer_id=offer_id[:64], terms=terms, spot=given.get("spot") == "yes")


def _rent(view: View) -> FormResult:
    try:
        hours = chosen_hours(view.form)
    except UsageError as error:
        return Rerender(values={"fault": str(error)})
    request = _request(view, hours)
    back = _path(request.provider, request.offer_id, spot=request.spot)
    try:
        if is_confirmed(view):
            return _confirmed(view, back)
        quote = quote_rent(view.settings, request)
    except GpuwatchError as error:
        return Redirect(text=_sentence(str(error)), to=back, is_error=True)
    if isinstance(quote, RentRefusal):
        near = quote.nearest
        to = back if near is None else _path(near.offer.provider, near.offer.offer_id, spot=near.offer.spot)
        return Redirect(text=_sentence(quote.text), to=to, is_error=True)
    return _question(view, request, quote, back)


def _question(view: View, request: RentRequest, quote: RentQuote, back: str) -> Confirm:
    match = quote.approval.match
    runtime = span(request.terms.max_runtime_s)
    most = "–" if quote.most_microusd is None else upper_text(quote.most_microusd)
    facts = [
        (_("Machine"), f"{machine_text(match.offer)} · {place_text(match.offer)}"),
        (_("Costs at most"), _("{amount} for {time}").format(amount=most, time=runtime)),
        (_("Price"), hourly_text(match.price.price_microusd_hour)),
    ]
    if quote.risk is not None:
        facts.append((_("Risk of being outbid"), risk_text(quote.risk)))
    if quote.traffic:
        facts.append((_("Traffic"), _("charged in addition: {rates}").format(rates=translate_composed(quote.traffic))))
    if view.settings.dry_run:
        facts.append((_("Dry run"), _("nothing is rented")))
    else:
        facts.append((_("You can stop"), stop_text(match)))
        if not quote.is_followed:
            facts.append((_("No daemon runs"), _("Start gpuwatch run, or nothing ends it in time.")))
    return Confirm(
        question=_("Rent it for {price} or less?").format(price=rate_of(match)),
        button=_("Rent it"),
        back=back,
        facts=tuple(facts),
        fields={"ask": quote.approval.approval_id},
    )


def _confirmed(view: View, back: str) -> Redirect:
    answer = approve(view.settings, view.form.get("ask", ""), actor=view.actor)
    launch_id = answer.approval.launch_id
    text = answer_text(answer)
    if launch_id is None:
        return Redirect(text=text, to=back, is_error=True)
    return Redirect(text=text, to=f"/launches/{launch_id}", is_error=answer.conflict)


def _sentence(text: str) -> str:
    text = translate_composed(clean(text, 600))
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


RENT_PAGE = Page(
    name="Rent",
    path="/rent",
    template="rent.html",
    show=_show_rent,
    order=12,
    actions=(FormAction(path="/rent", scope="manage", run=_rent),),
)
