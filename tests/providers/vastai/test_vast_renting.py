"""vast.ai's launcher beyond the common suite: bids, price increases, charges, credit, page counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.errors import OfferGone, OrderRateLimited, OrderRefused, OutcomeUnknown, ProviderError, RefusalKind
from gpuwatch.ports import Order, Query
from gpuwatch.testing.loopback import serving
from tests.providers.vastai.bench import marketplace, pointed_at


def _order(offer_id: str, **values: Any) -> Order:
    return Order(**({"offer_id": offer_id, "label": "gpuwatch-abc", "image": "x/y", "disk_gb": 20.0} | values))


@pytest.fixture
def place() -> Iterator[Any]:
    with marketplace() as place:
        yield place


@pytest.fixture
def adapter(place: Any) -> Iterator[providers.Adapter]:
    with pointed_at(place.url) as adapter:
        yield adapter


def test_a_bid_is_rented_as_a_bid(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    offer = next(o for o in adapter.market.search(Query(spot=True)).offers if o.min_bid_usd_hour)
    bid = (offer.min_bid_usd_hour or 0) * 1.5
    adapter.launcher.create(_order(offer.offer_id, bid_usd_hour=bid))
    assert [instance.spot for instance in adapter.launcher.list_instances()] == [True]


@pytest.mark.parametrize("count", [26, 60])
def test_all_pages_are_listed(adapter: providers.Adapter, count: int) -> None:
    assert adapter.launcher is not None
    machines = {offer.machine_id: offer for offer in adapter.market.search(Query()).offers}
    made = [adapter.launcher.create(_order(offer.offer_id)).instance_id for offer in list(machines.values())[:count]]
    assert sorted(instance.instance_id for instance in adapter.launcher.list_instances()) == sorted(made)


def test_credit_is_reported(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    assert adapter.launcher.credit_usd() == pytest.approx(100.0)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"<html>", b'{"instances": null}', b'{"instances": []}'])
def test_an_odd_list_is_never_an_empty_one(body: bytes) -> None:
    answered = serving(lambda request, wire: wire.answer(200, body))
    with answered as server, pointed_at(server.url) as adapter, pytest.raises(ProviderError):
        adapter.launcher.list_instances()


def test_a_410_is_an_offer_that_is_gone() -> None:
    with serving(lambda request, wire: wire.answer(410, b"{}")) as server, pointed_at(server.url) as adapter:
        with pytest.raises(OfferGone):
            adapter.launcher.create(_order("1"))
        assert len(server.requests) == 1


# --- bids, price increases, charges --------------------------------------------------------------------------------


def test_a_bid_can_be_raised(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    offer = next(o for o in adapter.market.search(Query(spot=True)).offers if o.min_bid_usd_hour)
    bid = (offer.min_bid_usd_hour or 0) * 1.5
    made = adapter.launcher.create(_order(offer.offer_id, bid_usd_hour=bid))
    adapter.launcher.change_bid(made.instance_id, bid * 2)
    [found] = adapter.launcher.list_instances()
    assert found.bid_usd_hour == pytest.approx(bid * 2)


def test_a_bid_for_what_is_rented_on_demand_or_gone_is_refused(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    made = adapter.launcher.create(_order(adapter.market.search(Query()).offers[0].offer_id))
    with pytest.raises(OrderRefused):
        adapter.launcher.change_bid(made.instance_id, 1.0)
    adapter.launcher.destroy(made.instance_id)
    with pytest.raises(OrderRefused):
        adapter.launcher.change_bid(made.instance_id, 1.0)


@pytest.mark.parametrize("bid", [0.0, -1.0, 1e6, float("nan"), float("inf")])
def test_an_impossible_bid_is_not_sent(bid: float) -> None:
    with serving(lambda request, wire: wire.answer(200)) as server, pointed_at(server.url) as adapter:
        with pytest.raises(OrderRefused) as refused:
            adapter.launcher.change_bid("1", bid)
        assert (refused.value.kind, server.requests) == (RefusalKind.BID_TOO_LOW, [])


@pytest.mark.parametrize("accept", [True, False])
def test_an_increase_is_reported_and_answered_once(adapter: providers.Adapter, place: Any, accept: bool) -> None:
    assert adapter.launcher is not None
    offer = next(o for o in adapter.market.search(Query()).offers if o.gpu_count > 1)
    made = adapter.launcher.create(_order(offer.offer_id))
    assert list(adapter.launcher.price_increases()) == []
    [rented] = adapter.launcher.list_instances()
    number = place.propose_increase(int(made.instance_id), gpu_usd_hour=9.0)
    [reported] = adapter.launcher.price_increases()
    assert (reported.increase_id, reported.instance_id) == (str(number), made.instance_id)
    assert reported.new_usd_hour == pytest.approx(9.0)
    assert reported.effective_at == rented.ends_at
    adapter.launcher.answer_increase(reported.increase_id, accept)
    assert place.increase_answers() == {number: "accepted" if accept else "rejected"}
    assert list(adapter.launcher.price_increases()) == []
    with pytest.raises(OrderRefused):
        adapter.launcher.answer_increase(reported.increase_id, accept)


CHANGES: dict[str, Callable[[Any], object]] = {
    "change_bid": lambda launcher: launcher.change_bid("1", 1.0),
    "accept": lambda launcher: launcher.answer_increase("1", accept=True),
    "reject": lambda launcher: launcher.answer_increase("1", accept=False),
}
DAY = date(2026, 11, 20)
QUESTIONS: dict[str, Callable[[Any], object]] = {
    "charges": lambda launcher: launcher.charges(DAY, DAY),
    "price_increases": lambda launcher: launcher.price_increases(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, b"{}", OrderRefused),
        (403, b"{}", OrderRefused),
        (404, b'{"success": false, "error": "no_such_instance"}', OrderRefused),
        (409, b"{}", OrderRefused),
        (429, b"too many", OrderRateLimited),
        (500, b"", OutcomeUnknown),
        (502, b"<html>", OutcomeUnknown),
        (200, b"", OutcomeUnknown),
        (200, b"{}", OutcomeUnknown),
        (200, b'{"success": false}', OutcomeUnknown),
    ],
)
def test_a_change_that_fails_is_sent_once(
    change: Callable[[Any], object], status: int, body: bytes, error: type[Exception]
) -> None:
    answered = serving(lambda request, wire: wire.answer(status, body))
    with answered as server, pointed_at(server.url) as adapter:
        with pytest.raises(error):
            change(adapter.launcher)
        assert len(server.requests) == 1


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_change_whose_answer_is_lost_is_an_unknown_outcome(change: Callable[[Any], object], ending: str) -> None:
    with serving(lambda request, wire: getattr(wire, ending)()) as server, pointed_at(server.url) as adapter:
        with pytest.raises(OutcomeUnknown):
            change(adapter.launcher)
        assert len(server.requests) == 1


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=list(QUESTIONS))
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"<html>", b'{"success": true}', b'{"results": null}'])
def test_an_odd_answer_is_never_nothing(ask: Callable[[Any], object], body: bytes) -> None:
    answered = serving(lambda request, wire: wire.answer(200, body))
    with answered as server, pointed_at(server.url) as adapter, pytest.raises(ProviderError):
        ask(adapter.launcher)


def test_no_days_cost_no_request() -> None:
    with serving(lambda request, wire: wire.answer(500)) as server, pointed_at(server.url) as adapter:
        assert list(adapter.launcher.charges(DAY, date(2026, 11, 19))) == []
        assert server.requests == []
