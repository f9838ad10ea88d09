"""Prices copied from a page: each states when and where, and an old one causes a warning."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pytest
import respx

from gpuwatch import providers
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.ports import Completeness, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.ports.market import SelfChecking
from gpuwatch.providers.pricelist.dated_lists import (
    STALE_AFTER_DAYS,
    DatedList,
    DatedLists,
    DatedPrice,
    load_dated_list,
    offers_of,
)
from gpuwatch.providers.toolkit.currency import ExchangeRate
from gpuwatch.testing.bench import Bench
from gpuwatch.testing.invariants import offer_problems
from gpuwatch.testing.suite import case
from tests.checkout import ROOT, TESTS
from tests.clouds.pricelist import PriceListServer

INFO = providers.info("pricelist")
[NAMES] = [spec.choices for spec in INFO.options if spec.name == "dated"]
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
DOLLAR = ExchangeRate("USD", 1.0)
LISTED = DatedList(
    name="mine",
    title="Mine",
    source="https://example.com/prices",
    read_on=date(2026, 11, 1),
    prices=(DatedPrice(gpu="H100 SXM", count=8, price=16.0, spot_price=8.0),),
)


def adapter_of(*names: str) -> AbstractContextManager[Adapter]:
    options = {"sources": ("ovh",), "dated": names}
    return Bench(name="pricelist", place=PriceListServer, gpu="L40S", options=options).pointed_at(INFO.base_url)


@pytest.fixture
def ovh(respx_mock: respx.MockRouter) -> None:
    """OVHcloud's recorded list, and the bank's rates."""
    recorded = (TESTS / "recorded" / "pricelist" / "ovh_reconstructed.json").read_bytes()
    respx_mock.get("https://eu.api.ovh.com/v1/order/catalog/public/cloud").respond(content=recorded)
    rates = '<Cube time="2026-11-20"><Cube currency="USD" rate="1.1500"/></Cube>'
    respx_mock.get("https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml").respond(text=rates)


def test_every_list_has_a_source_a_past_day_and_sound_offers_of_known_gpus() -> None:
    for name in NAMES:
        with case(name):
            listed = load_dated_list(name)
            assert listed.name == name
            assert listed.source.startswith("https://")
            assert date(2026, 1, 1) <= listed.read_on <= date(2026, 11, 23)
            offers = list(offers_of(listed, ExchangeRate(listed.currency, 1.1, date(2026, 11, 20)), NOON))
            assert offers
            assert [odd for offer in offers for odd in offer_problems(offer, INFO)] == []
            assert all(offer.gpu_known and offer.terms.seller == name for offer in offers)
            assert all(0.02 < offer.quoted_usd_hour / offer.gpu_count < 20 for offer in offers)
            assert len({offer.offer_id for offer in offers}) == len(offers)
            assert len({(offer.identity, offer.spot) for offer in offers}) == len(offers)


def test_the_page_names_every_list_and_its_day() -> None:
    page = (ROOT / "docs" / "providers" / "pricelist.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"| `{name}` | {load_dated_list(name).read_on} |" in page


@pytest.mark.parametrize(
    ("days", "kind"), [(STALE_AFTER_DAYS, OfferKind.LISTED), (STALE_AFTER_DAYS + 1, OfferKind.HISTORY)]
)
def test_after_ninety_days_it_is_a_price_of_the_past_and_counts_the_days(days: int, kind: OfferKind) -> None:
    listed = msgspec.structs.replace(LISTED, read_on=NOON.date() - timedelta(days=days))
    on_demand, spot = offers_of(listed, DOLLAR, NOON)
    assert (on_demand.kind, spot.kind) == (kind, kind)
    assert (on_demand.quoted_usd_hour, spot.quoted_usd_hour) == (16.0, 8.0)
    note = on_demand.terms.note or ""
    assert note.startswith(f"read on {listed.read_on}")
    assert (f"{days} days ago" in note) is (kind is OfferKind.HISTORY)
    assert "https://example.com/prices" in note


def test_any_unit_of_time_becomes_an_hour() -> None:
    cases: list[Any] = [("hour", 3.6), ("second", 0.001), ("month", 2628.0)]
    for per, price in cases:
        with case((per, price)):
            row = DatedPrice(gpu="H100", memory_gib=80, price=price)
            listed = msgspec.structs.replace(LISTED, per=per, prices=(row,))
            [offer] = offers_of(listed, DOLLAR, NOON)
            assert offer.quoted_usd_hour == pytest.approx(3.6)
            assert offer.gpu == "H100", "a socket is never guessed"


@pytest.mark.usefixtures("ovh")
def test_lists_are_shown_when_they_are_named_and_only_then() -> None:
    with adapter_of() as adapter:
        plain = {offer.terms.seller for offer in adapter.market.search(Query()).offers}
    with adapter_of("coreweave", "hetzner") as adapter:
        answer = adapter.market.search(Query())
        spot = adapter.market.search(Query(spot=True))
    sellers = {offer.terms.seller for offer in answer.offers}
    assert (plain, sellers) == ({"ovh"}, {"ovh", "coreweave", "hetzner"})
    assert answer.completeness is Completeness.COMPLETE
    assert {offer.terms.seller for offer in spot.offers} == {"coreweave"}
    [gex] = [offer for offer in answer.offers if offer.terms.seller == "hetzner"]
    assert gex.quoted_usd_hour == pytest.approx(999 / 730 * 1.15)


@pytest.mark.usefixtures("ovh")
def test_an_old_list_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with adapter_of("modal", "coreweave") as adapter:
        for _ in range(2):
            adapter.market.search(Query())
    [line] = [record.getMessage() for record in caplog.records if "read on" in record.getMessage()]
    assert "modal: read on 2026-07-01, 143 days ago" in line
    assert "https://modal.com/pricing" in line


@pytest.mark.parametrize(("days", "state"), [(STALE_AFTER_DAYS, "ok"), (STALE_AFTER_DAYS + 1, "note")])
def test_doctor_says_which_list_is_old_and_where_to_look_it_up(days: int, state: str) -> None:
    listed = load_dated_list(NAMES[0])
    lists = DatedLists((listed.name,), lambda _currency: DOLLAR)
    (found,) = lists.findings(listed.read_on + timedelta(days=days))
    assert (found.area, found.state) == ("pricelist", state)
    assert f"{listed.name}: read on {listed.read_on}, {days} days ago" in found.text
    assert (listed.source in (found.mend or "")) is (state == "note")


def test_doctor_gets_them_from_the_provider() -> None:
    with adapter_of("modal", "coreweave") as adapter:
        assert isinstance(adapter.market, SelfChecking)
        assert [finding.text.partition(":")[0] for finding in adapter.market.findings()] == ["modal", "coreweave"]
