"""An alert's facts about unusual offers, and about stock with several sellers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from gpuwatch.domain.market.offer import Identity, OfferKind, OfferTerms
from gpuwatch.domain.market.outbid_risk import RecordedBid
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match
from gpuwatch.domain.watches.watch import Action
from gpuwatch.engine.alerts.offer_alerts import offer_alert
from gpuwatch.notifiers.toolkit import as_text
from gpuwatch.ports import Alert
from tests.builders import NOON, a_match, a_watch, an_offer


def reported(*matches: Match, action: Action = Action.ALERT) -> Alert:
    watch = a_watch(name="w", max_price_usd_gpu_hour=Decimal(5), action=action)
    decision = Decision(watch="w", reason=DecisionReason.FIRST_MATCH, decided_at=NOON, matches=matches)
    return offer_alert(watch, decision, alert_id="abc", zone=ZoneInfo("UTC"), did="")


def sold(provider: str, **changes: Any) -> Match:
    return a_match(an_offer(provider=provider, offer_id=f"{provider}-1", disk_usd_gb_month=None, **changes))


def test_a_plain_offer_has_none_of_these_facts() -> None:
    labels = [label for label, _ in reported(sold("vastai")).facts]
    assert not {"Kind", "Sold by", "Elsewhere", "Processor", "Terms", "Note"} & set(labels)


def test_a_list_price_says_so_in_subject_fact_line_and_advice() -> None:
    alert = reported(sold("azure", kind=OfferKind.LISTED, terms=OfferTerms(instance_type="ND96isr H100 v5")))
    assert alert.headline.endswith("/GPU-h (listed)")
    assert dict(alert.facts)["Kind"] == "list price; stock is unknown"
    assert alert.can_do[0] == "Check whether azure has it in stock: ND96isr H100 v5"
    beside = as_text(reported(sold("vastai"), sold("azure", kind=OfferKind.LISTED)))
    assert "· azure (listed), offer azure-1" in beside


def test_seller_currency_payment_and_processor_are_reported_in_words() -> None:
    terms = OfferTerms(
        seller="oracle",
        currency="EUR",
        usd_rate=1.16,
        usd_rate_on=date(2026, 11, 20),
        prepaid=True,
        note="SXM or PCIe is not known",
    )
    facts = dict(reported(sold("pricelist", terms=terms, cpu_arch="arm64")).facts)
    assert facts["Sold by"] == "oracle, through pricelist"
    assert facts["Terms"] == "EUR at 1.16 of 2026-11-20, prepaid"
    assert facts["Processor"] == "Arm: x86 images do not run there"
    assert facts["Note"] == "SXM or PCIe is not known"


def test_what_a_seller_writes_stays_text() -> None:
    text = as_text(reported(sold("pricelist", terms=OfferTerms(seller="evil\n\x1b[31m<b>", note="a\nb"))))
    assert "evil [31m<b>, through pricelist" in text
    assert "Note: a b" in text


def test_resold_stock_is_one_line_of_the_alert_and_counts_once() -> None:
    resold = sold("shadeform", quoted_usd_hour=2.99, terms=OfferTerms(seller="lambda"))
    alert = reported(resold, sold("lambda"), sold("vastai", quoted_usd_hour=3.5))
    assert [(line.provider, line.marks) for line in alert.offers] == [
        ("lambda", ("also via shadeform",)),
        ("vastai", ()),
    ]
    assert dict(alert.facts)["Elsewhere"] == "also via shadeform"
    assert "1 more fits" in alert.why


def test_what_is_rented_is_what_is_reported_first_whoever_sells_it() -> None:
    resold = sold("shadeform", quoted_usd_hour=2.99, terms=OfferTerms(seller="lambda"))
    alert = reported(resold, sold("lambda"), action=Action.LAUNCH)
    assert [(line.provider, line.marks) for line in alert.offers] == [
        ("shadeform", ("via lambda", "also at lambda")),
    ]


def test_a_spot_offer_says_how_often_its_first_bid_would_have_lost() -> None:
    """The bids of all shown offers are read at once; a machine without a day of history has no share."""
    asked: list[Sequence[Identity]] = []
    risky, new, fixed = (
        a_match(
            an_offer(
                machine_id=f"m{number}", quoted_usd_hour=1.0, spot=True, min_bid_usd_hour=bid, disk_usd_gb_month=None
            )
        )
        for number, bid in enumerate((0.9, 0.9, None))
    )

    def recorded(machines: Collection[Identity], since_s: int, until_s: int) -> dict[Identity, list[RecordedBid]]:
        asked.append(list(machines))
        third = (until_s - since_s) // 3
        bids = [(0.5, since_s, since_s + third), (2.0, since_s + third, until_s)]
        return {
            risky.offer.identity: [RecordedBid(start, end, round(usd * 1e6)) for usd, start, end in bids],
            new.offer.identity: [RecordedBid(until_s - 3600, until_s, 500_000)],
        }

    def alert_of(*matches: Match) -> Alert:
        decision = Decision(watch="w", reason=DecisionReason.FIRST_MATCH, decided_at=NOON, matches=matches)
        watch = a_watch(name="w", max_price_usd_gpu_hour=Decimal(5))
        return offer_alert(watch, decision, alert_id="abc", zone=ZoneInfo("UTC"), did="", recorded_bids=recorded)

    alert = alert_of(risky, new, fixed)
    assert dict(alert.facts)["Outbid risk"] == (
        "the lowest winning bid was over $1.00/h 67 % of the time, and rose over it 1× (known for 14d of 14 days)"
    )
    assert ["outbid 67 % of the time" in line.marks for line in alert.offers] == [True, False, False]
    assert asked == [[risky.offer.identity, new.offer.identity]]
    assert dict(alert_of(new).facts)["Outbid risk"].startswith("unknown: ")
    asked.clear()
    assert "Outbid risk" not in dict(alert_of(fixed).facts)
    assert not asked, "nobody bids: nothing is read"
