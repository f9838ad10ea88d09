"""The risk that a bid loses its machine, from that machine's own history, shown before it is rented."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from gpuwatch import providers
from gpuwatch.app.reader_text import percent, span
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.market.json_view import JsonView, usd_number
from gpuwatch.domain.market.money import hourly_text
from gpuwatch.domain.market.outbid_risk import OutbidRisk
from gpuwatch.domain.watches.computed_limits import outbid_risks, takes_bids
from gpuwatch.errors import StoreError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.storage.history.queries.machine_prices import recorded_bids

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.domain.market.offer import Identity
    from gpuwatch.domain.watches.decide import Match
    from gpuwatch.domain.watches.watch import Watch
    from gpuwatch.settings import Settings
    from gpuwatch.storage.setup.database import Database

log = logging.getLogger(__name__)


def risk_of(store: Database, quote: Match, watch: Watch | None, now: datetime) -> OutbidRisk | None:
    """What the bid that would be made met at its machine; None: nobody bids for this offer. Raises StoreError."""
    if not takes_bids(quote.offer):
        return None
    with store.read() as connection:
        return outbid_risks([quote], watch, now, partial(recorded_bids, connection))[quote.offer.identity]


def known_risks(settings: Settings, shown: Iterable[Match], now: datetime) -> Mapping[Identity, OutbidRisk]:
    """What a bid at the price met at each machine in a list, by one query; without those of which too little is known.

    Recorded offers do not say that they take bids: their provider does. An empty result: no store, or none is known.
    """
    wanted = [
        match for match in shown if takes_bids(match.offer) or (match.offer.spot and _is_auction(match.offer.provider))
    ]
    if not wanted:
        return {}
    try:
        with open_store_read_only(settings) as store, store.read() as connection:
            found = outbid_risks(wanted, None, now, partial(recorded_bids, connection))
    except StoreError as error:
        log.info("the risk of being outbid is unknown: %s", error)
        return {}
    return {machine: risk for machine, risk in found.items() if risk.is_known}


def _is_auction(provider: str) -> bool:
    return provider in providers.names() and providers.info(provider).takes_bids


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
