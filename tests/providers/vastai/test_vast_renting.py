"""vast.ai's launcher beyond the common suite: bids, price increases, charges, credit, page counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from itertools import product
from typing import Any

import httpx
import pytest
import respx

from gpuwatch import providers
from gpuwatch.errors import OrderRateLimited, OrderRefused, OutcomeUnknown, ProviderError, RefusalKind
from gpuwatch.ports import DiskKeeper, InstanceState, Launcher, Order, Query
from gpuwatch.testing.faults import MALFORMED_LISTS
from gpuwatch.testing.suite import case
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


def test_a_start_whose_gpus_are_rented_to_another_waits_until_it_is_taken_back(
    adapter: providers.Adapter, place: Any
) -> None:
    assert isinstance(adapter.launcher, DiskKeeper)
    offer = adapter.market.search(Query()).offers[0]
    instance_id = adapter.launcher.create(_order(offer.offer_id)).instance_id
    adapter.launcher.stop_instance(instance_id)
    place.occupy(int(instance_id))
    assert adapter.launcher.start_instance(instance_id) is False
    [found] = adapter.launcher.list_instances()
    assert found.state is InstanceState.STOPPED
    assert found.stopped_usd_hour
    adapter.launcher.stop_instance(instance_id)
    place.give_back(int(found.machine_id or 0))
    [found] = adapter.launcher.list_instances()
    assert found.state is InstanceState.STOPPED, "nothing starts by itself after it was taken back"
    assert adapter.launcher.start_instance(instance_id)


def test_credit_is_reported(adapter: providers.Adapter) -> None:
    assert adapter.launcher is not None
    assert adapter.launcher.credit_usd() == pytest.approx(100.0)


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


@pytest.mark.respx
@pytest.mark.parametrize("bid", [0.0, -1.0, 1e6, float("nan"), float("inf")])
def test_an_impossible_bid_is_not_sent(launcher: Launcher, bid: float) -> None:
    with pytest.raises(OrderRefused) as refused:
        launcher.change_bid("1", bid)
    assert refused.value.kind is RefusalKind.BID_TOO_LOW


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


def test_a_change_that_fails_is_sent_once(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    answers: tuple[tuple[httpx.Response | Exception, type[Exception]], ...] = (
        (httpx.Response(401, json={}), OrderRefused),
        (httpx.Response(403, json={}), OrderRefused),
        (httpx.Response(404, json={"success": False, "error": "no_such_instance"}), OrderRefused),
        (httpx.Response(409, json={}), OrderRefused),
        (httpx.Response(500), OutcomeUnknown),
        (httpx.Response(502, html="<html>"), OutcomeUnknown),
        (httpx.Response(200), OutcomeUnknown),
        (httpx.Response(200, json={}), OutcomeUnknown),
        (httpx.Response(200, json={"success": False}), OutcomeUnknown),
        (httpx.ConnectError("refused"), OrderRefused),
        (httpx.ReadError("reset"), OutcomeUnknown),
        (httpx.ReadTimeout("silent"), OutcomeUnknown),
        (httpx.Response(429, text="too many"), OrderRateLimited),  # last, because it delays later requests
    )
    for (name, change), (answer, error) in product(CHANGES.items(), answers):
        respx_mock.reset()
        route = respx_mock.put().mock(side_effect=[answer])
        with case(f"{name}, {answer!r}"), pytest.raises(error):
            change(launcher)
        assert route.call_count == 1


def test_an_odd_answer_is_never_nothing(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    for (name, ask), body in product(QUESTIONS.items(), (*MALFORMED_LISTS, b'{"success": true}', b'{"results": null}')):
        respx_mock.get().respond(content=body)
        with case(f"{name}, {body[:20]!r}"), pytest.raises(ProviderError):
            ask(launcher)


@pytest.mark.respx
def test_no_days_cost_no_request(launcher: Launcher) -> None:
    assert list(launcher.charges(DAY, date(2026, 11, 19)) or ()) == []
