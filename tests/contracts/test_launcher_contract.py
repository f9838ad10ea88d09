"""What every provider's renting side keeps to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
from benches import BENCHES
from loopback_http import serving

from gpuwatch import providers
from gpuwatch.errors import (
    OfferGone,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    RefusalKind,
)
from gpuwatch.ports import InstanceState, Order, Query

RENTING = {name: bench for name, bench in BENCHES.items() if providers.info(name).launches}
each_provider = pytest.mark.parametrize("bench", RENTING.values(), ids=list(RENTING))
Bench = dict[str, Any]


def _order(offer_id: str, **values: Any) -> Order:
    return Order(**({"offer_id": offer_id, "label": "gpuwatch-abc", "image": "x/y", "disk_gb": 20.0} | values))


@pytest.fixture
def place(bench: Bench) -> Iterator[Any]:
    with bench["marketplace"]() as place:
        yield place


@pytest.fixture
def adapter(bench: Bench, place: Any) -> Iterator[providers.Adapter]:
    with bench["pointed_at"](place.url) as adapter:
        yield adapter


@each_provider
def test_what_is_rented_is_listed_with_its_label_and_ends(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    offer = adapter.market.search(Query()).offers[0]
    made = adapter.launcher.create(_order(offer.offer_id))
    assert made.starting
    [found] = adapter.launcher.list_instances()
    assert (found.instance_id, found.label, found.spot) == (made.instance_id, "gpuwatch-abc", False)
    assert found.state in (InstanceState.STARTING, InstanceState.RUNNING)
    adapter.launcher.destroy(made.instance_id)
    adapter.launcher.destroy(made.instance_id)  # again: no error
    assert list(adapter.launcher.list_instances()) == []


@each_provider
def test_a_bid_is_rented_as_a_bid(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    offer = next(o for o in adapter.market.search(Query(spot=True)).offers if o.min_bid_usd_hour)
    bid = (offer.min_bid_usd_hour or 0) * 1.5
    adapter.launcher.create(_order(offer.offer_id, bid_usd_hour=bid))
    assert [instance.spot for instance in adapter.launcher.list_instances()] == [True]


@each_provider
@pytest.mark.parametrize("count", [26, 60])
def test_all_pages_are_listed(adapter: providers.Adapter, count: int) -> None:
    assert adapter.launcher is not None
    machines = {offer.machine_id: offer for offer in adapter.market.search(Query()).offers}
    made = [adapter.launcher.create(_order(offer.offer_id)).instance_id for offer in list(machines.values())[:count]]
    assert sorted(instance.instance_id for instance in adapter.launcher.list_instances()) == sorted(made)


@each_provider
def test_an_offer_that_is_gone_is_told(adapter: providers.Adapter, place: Any) -> None:
    assert adapter.launcher is not None
    offer = adapter.market.search(Query()).offers[0]
    place.take(int(offer.offer_id))
    with pytest.raises(OfferGone):
        adapter.launcher.create(_order(offer.offer_id))


@each_provider
def test_credit_is_told(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    assert adapter.launcher.credit_usd() == pytest.approx(100.0)


@each_provider
@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, b"{}", OrderRefused),
        (429, b"too many", OrderRateLimited),
        (410, b"{}", OfferGone),
        (500, b"", OutcomeUnknown),
        (502, b"<html>", OutcomeUnknown),
        (200, b"", OutcomeUnknown),
        (200, b"<html>", OutcomeUnknown),
        (200, b"{", OutcomeUnknown),
    ],
)
def test_a_create_that_fails_is_sent_once(bench: Bench, status: int, body: bytes, error: type[Exception]) -> None:
    answered = serving(lambda request, wire: wire.answer(status, body))
    with answered as server, bench["pointed_at"](server.url) as adapter:
        with pytest.raises(error):
            adapter.launcher.create(_order("1"))
        assert len(server.requests) == 1


@each_provider
@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_lost_answer_is_an_unknown_outcome(bench: Bench, ending: str) -> None:
    with serving(lambda request, wire: getattr(wire, ending)()) as server, bench["pointed_at"](server.url) as adapter:
        with pytest.raises(OutcomeUnknown):
            adapter.launcher.create(_order("1"))
        with pytest.raises(OutcomeUnknown):
            adapter.launcher.destroy("1")
        assert len(server.requests) == 2


@each_provider
def test_what_never_left_is_refused_as_not_sent(bench: Bench) -> None:
    with bench["pointed_at"]("http://127.0.0.1:1") as adapter:
        with pytest.raises(OrderRefused) as refused:
            adapter.launcher.create(_order("1"))
        assert refused.value.kind is RefusalKind.NOT_SENT


@each_provider
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"<html>", b'{"instances": null}', b'{"instances": []}'])
def test_an_odd_list_is_never_an_empty_one(bench: Bench, body: bytes) -> None:
    answered = serving(lambda request, wire: wire.answer(200, body))
    with answered as server, bench["pointed_at"](server.url) as adapter, pytest.raises(ProviderError):
        adapter.launcher.list_instances()


# --- bids, price increases, charges --------------------------------------------------------------------------------


@each_provider
def test_a_bid_can_be_raised(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    offer = next(o for o in adapter.market.search(Query(spot=True)).offers if o.min_bid_usd_hour)
    bid = (offer.min_bid_usd_hour or 0) * 1.5
    made = adapter.launcher.create(_order(offer.offer_id, bid_usd_hour=bid))
    adapter.launcher.change_bid(made.instance_id, bid * 2)
    [found] = adapter.launcher.list_instances()
    assert found.bid_usd_hour == pytest.approx(bid * 2)


@each_provider
def test_a_bid_for_what_is_rented_on_demand_or_gone_is_refused(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    made = adapter.launcher.create(_order(adapter.market.search(Query()).offers[0].offer_id))
    with pytest.raises(OrderRefused):
        adapter.launcher.change_bid(made.instance_id, 1.0)
    adapter.launcher.destroy(made.instance_id)
    with pytest.raises(OrderRefused):
        adapter.launcher.change_bid(made.instance_id, 1.0)


@each_provider
@pytest.mark.parametrize("bid", [0.0, -1.0, 1e6, float("nan"), float("inf")])
def test_an_impossible_bid_is_not_sent(bench: Bench, bid: float) -> None:
    with serving(lambda request, wire: wire.answer(200)) as server, bench["pointed_at"](server.url) as adapter:
        with pytest.raises(OrderRefused) as refused:
            adapter.launcher.change_bid("1", bid)
        assert (refused.value.kind, server.requests) == (RefusalKind.BID_TOO_LOW, [])


@each_provider
@pytest.mark.parametrize("accept", [True, False])
def test_an_increase_is_told_and_answered_once(adapter: providers.Adapter, place: Any, accept: bool) -> None:
    assert adapter.launcher is not None
    offer = next(o for o in adapter.market.search(Query()).offers if o.gpu_count > 1)
    made = adapter.launcher.create(_order(offer.offer_id))
    assert list(adapter.launcher.price_increases()) == []
    [rented] = adapter.launcher.list_instances()
    number = place.propose_increase(int(made.instance_id), gpu_usd_hour=9.0)
    [told] = adapter.launcher.price_increases()
    assert (told.increase_id, told.instance_id) == (str(number), made.instance_id)
    assert told.old_usd_hour == pytest.approx((rented.listed_usd_hour or 0) - (rented.stopped_usd_hour or 0))
    assert told.new_usd_hour == pytest.approx(9.0)
    assert told.effective_at == rented.ends_at
    adapter.launcher.answer_increase(told.increase_id, accept)
    assert place.increase_answers() == {number: "accepted" if accept else "rejected"}
    assert list(adapter.launcher.price_increases()) == []
    with pytest.raises(OrderRefused):
        adapter.launcher.answer_increase(told.increase_id, accept)


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


@each_provider
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
    bench: Bench, change: Callable[[Any], object], status: int, body: bytes, error: type[Exception]
) -> None:
    answered = serving(lambda request, wire: wire.answer(status, body))
    with answered as server, bench["pointed_at"](server.url) as adapter:
        with pytest.raises(error):
            change(adapter.launcher)
        assert len(server.requests) == 1


@each_provider
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.parametrize("ending", ["close", "reset"])
def test_a_change_whose_answer_is_lost_is_an_unknown_outcome(
    bench: Bench, change: Callable[[Any], object], ending: str
) -> None:
    with serving(lambda request, wire: getattr(wire, ending)()) as server, bench["pointed_at"](server.url) as adapter:
        with pytest.raises(OutcomeUnknown):
            change(adapter.launcher)
        assert len(server.requests) == 1


@each_provider
@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=list(QUESTIONS))
@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"<html>", b'{"success": true}', b'{"results": null}'])
def test_an_odd_answer_is_never_nothing(bench: Bench, ask: Callable[[Any], object], body: bytes) -> None:
    answered = serving(lambda request, wire: wire.answer(200, body))
    with answered as server, bench["pointed_at"](server.url) as adapter, pytest.raises(ProviderError):
        ask(adapter.launcher)


@each_provider
def test_no_days_cost_no_request(bench: Bench) -> None:
    with serving(lambda request, wire: wire.answer(500)) as server, bench["pointed_at"](server.url) as adapter:
        assert list(adapter.launcher.charges(DAY, date(2026, 11, 19))) == []
        assert server.requests == []
