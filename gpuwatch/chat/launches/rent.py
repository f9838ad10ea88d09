"""Rent one offer now: from an alert, or by its id. The quote names the highest cost; a press of its button rents it."""

from __future__ import annotations

from gpuwatch.app.launches.most_cost import upper_text
from gpuwatch.app.launches.requests.rent import RentQuote, RentRefusal, RentRequest, quote_rent
from gpuwatch.app.market.outbid_risk import risk_text
from gpuwatch.chat.reading import alert_of
from gpuwatch.chat.replies import ChatContext, ChatReply, question, simple_reply
from gpuwatch.domain.alerts import message_texts as texts
from gpuwatch.domain.launches.rent_terms import RentTerms
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.market.offer import gpus_text
from gpuwatch.domain.setup.durations import format_duration, parse_duration
from gpuwatch.engine.alerts.alert_buttons import ButtonAction, SignedButton, approval_binding
from gpuwatch.errors import UsageError

_HOURS = ("1h", "4h", "12h", "24h")
_SPOT = "spot"
_USAGE = "Which offer, and for how long? /rent OFFER PROVIDER 4h; find one with /offers H100"


def rent(context: ChatContext, argument: str) -> ChatReply:
    """Price an offer again, and ask whether to rent it."""
    words = argument.split()
    spot = _SPOT in words[1:]
    words = [words[0], *(word for word in words[1:] if word != _SPOT)] if words else []
    if len(words) == 2 and len(context.settings.providers) == 1:
        words.insert(1, next(iter(context.settings.providers)))
    if len(words) != 3:
        return simple_reply(_USAGE)
    offer_id, provider, duration = words
    return _quoted(context, provider, offer_id, duration, spot=spot)


def rent_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Ask for how long to rent the best offer of an alert."""
    offer = alert_of(context, button.subject).offers[0]
    buttons = [
        context.button(hours, ButtonAction.RENT_FOR, f"{button.subject}-{hours}", button.bound) for hours in _HOURS
    ]
    gpus = gpus_text(offer.gpu, offer.gpu_count)
    text = f"Rent {gpus} at {offer.provider}: for how long? Its price is checked again first."
    return question(text, [buttons, [context.button("Cancel", ButtonAction.CANCEL, button.subject)]])


def rent_for_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Price that offer again, and ask whether to rent it for this time."""
    alert_id, _, duration = button.subject.partition("-")
    offer = alert_of(context, alert_id).offers[0]
    return _quoted(context, offer.provider, offer.offer_id, duration, spot=offer.spot)


def _quoted(context: ChatContext, provider: str, offer_id: str, duration: str, *, spot: bool) -> ChatReply:
    try:
        terms = RentTerms(max_runtime_s=float(parse_duration(duration)))
    except ValueError as error:
        raise UsageError(str(error)) from error
    request = RentRequest(provider=provider, offer_id=offer_id, terms=terms, spot=spot)
    quote = quote_rent(context.settings, request)
    if isinstance(quote, RentRefusal):
        return simple_reply(f"Nothing was rented: {quote.text}.", notice=quote.text)
    return _question(context, request, quote)


def _question(context: ChatContext, request: RentRequest, quote: RentQuote) -> ChatReply:
    approval = quote.approval
    offer, hourly = approval.match.offer, dollars(usd(approval.match.price.price_microusd_hour))
    runtime = format_duration(request.terms.max_runtime_s)
    lines = [f"Rent {gpus_text(offer.gpu, offer.gpu_count)} at {offer.provider} for {hourly} an hour or less?"]
    if quote.most_microusd is not None:
        lines.append(f"It ends after {runtime} and costs {upper_text(quote.most_microusd)} at most.")
    if quote.risk is not None:
        lines.append(risk_text(quote.risk))
    if context.settings.dry_run:
        lines.append("Dry run: nothing is rented.")
    elif not quote.is_followed:
        lines.append("No daemon runs: nothing ends it in time.")
    binding, until = approval_binding(approval), approval.deadline
    buttons = [
        context.signer.button(texts.RENT_IT, ButtonAction.APPROVE, approval.approval_id, until, binding),
        context.signer.button("Cancel", ButtonAction.DENY, approval.approval_id, until, binding),
    ]
    return simple_reply("\n".join(lines), [buttons])
