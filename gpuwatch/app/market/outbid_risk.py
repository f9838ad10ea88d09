"""The risk that a bid loses its machine, from that machine's own history, shown before it is rented."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from gpuwatch.app.reader_text import percent, span
from gpuwatch.domain.market.json_view import JsonView, usd_number
from gpuwatch.domain.market.money import hourly_text, microusd
from gpuwatch.domain.market.outbid_risk import RISK_DAYS, OutbidRisk, outbid_risk
from gpuwatch.domain.watches.computed_limits import first_bid_usd_hour
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.storage.history.queries.machine_prices import machine_prices

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.storage.setup.database import Database


def risk_of(store: Database, quote: Match, watch: Watch | None, now: datetime) -> OutbidRisk | None:
    """What the bid that would be made met at its machine; None: nobody bids for this offer. Raises StoreError."""
    offer = quote.offer
    if not offer.spot or offer.min_bid_usd_hour is None:
        return None
    spec = None if watch is None or watch.launch is None else watch.launch.bid
    bid = microusd(repr(first_bid_usd_hour(offer, spec, quote.price.commission_rate)))
    until_s = int(now.timestamp())
    since_s = int((now - timedelta(days=RISK_DAYS)).timestamp())
    return outbid_risk(machine_prices(store, offer.identity, since_s, until_s), bid, until_s)


def risk_text(risk: OutbidRisk) -> str:
    """What the owner reads before renting."""
    return " ".join(_sentences(risk))


def _sentences(risk: OutbidRisk) -> Iterator[str]:
    if not risk.is_known:
        text = _("No history of this machine: its bids were watched for {time}, and it takes a day.")
        yield text.format(time=span(risk.watched_s)) if risk.watched_s else _("No history of this machine.")
        return
    text = translate_plural(
        "In {days} days the lowest winning bid was over your {bid} {percent} of the time, and rose over it once "
        "(watched for {time}).",
        "In {days} days the lowest winning bid was over your {bid} {percent} of the time, and rose over it "
        "{count} times (watched for {time}).",
        risk.rises,
    )
    yield text.format(
        days=risk.days,
        bid=hourly_text(risk.bid_microusd_hour),
        percent=percent(risk.over_share),
        count=risk.rises,
        time=span(risk.watched_s),
    )
    if risk.away_s:
        text = _("It was not on sale for {time}: rented on demand, which also ends a bid's machine, or offline.")
        yield text.format(time=span(risk.away_s))


class OutbidRiskView(JsonView, frozen=True, kw_only=True):
    """The risk of being outbid, from the machine's own recorded prices."""

    bid_usd_hour: Annotated[float, Meta(description="Listed, for the GPUs only.")]
    days: int
    watched_s: Annotated[int, Meta(description="How long of it the machine's bids are known.")]
    over_share: Annotated[
        float | None, Meta(description="0.12: 12 % of that time the lowest winning bid was higher; null: under a day.")
    ]
    rises: Annotated[int | None, Meta(description="How often it rose over the bid; null: under a day.")]
    away_s: Annotated[int, Meta(description="Not on sale: rented on demand, or offline.")]


def risk_view(risk: OutbidRisk | None) -> OutbidRiskView | None:
    """The risk as other programs see it."""
    if risk is None:
        return None
    share = risk.over_share
    return OutbidRiskView.of(
        risk,
        bid_usd_hour=usd_number(risk.bid_microusd_hour),
        over_share=None if share is None else round(share, 6),
        rises=risk.rises if risk.is_known else None,
    )
