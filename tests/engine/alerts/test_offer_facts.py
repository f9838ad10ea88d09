"""An alert's facts about unusual offers, and about stock with several sellers."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from gpuwatch.domain.market.offer import OfferKind, OfferTerms
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
