"""Charges: of which instance, day and kind; impossible ones do not count."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, date, datetime
from typing import Any

import httpx
import pytest
import respx
from hypothesis import given
from hypothesis import strategies as st
from vast_double import URL

from gpuwatch import providers
from gpuwatch.emulator import Delays, ManualClock, Marketplace
from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import Launcher, Order, ProviderCharge, ProviderSettings
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.vastai.charges import ChargeItem, charges_of, charges_page
from gpuwatch.testing.suite import case
from tests.clocks import Clock

DAY = date(2026, 11, 20)
NEXT = date(2026, 11, 21)
MIDNIGHT_S = 1_795_132_800
DAY_S = 86_400
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def _item(kind: str = "gpu", amount: float = 1.0, days: int = 1, **values: Any) -> dict[str, Any]:
    return {"start": MIDNIGHT_S, "end": MIDNIGHT_S + (days - 1) * DAY_S, "type": kind, "amount": amount} | values


def _row(*items: dict[str, Any], amount: float | None = None, source: str | None = "instance-7") -> dict[str, Any]:
    total = sum(item["amount"] for item in items) if amount is None else amount
    return _item("instance", total, items=list(items), source=source)


def _body(*rows: dict[str, Any], **values: Any) -> bytes:
    return json.dumps({"success": True, "results": rows, "total": len(rows), "next_token": None} | values).encode()


def _charged(*rows: dict[str, Any], since: date = DAY, until: date = DAY) -> list[ProviderCharge]:
    return charges_of(charges_page(_body(*rows)).results, since, until, NOW)


def _sums(*rows: dict[str, Any]) -> dict[str, float]:
    return {charge.kind: charge.usd for charge in _charged(*rows)}


@pytest.fixture
def route(respx_mock: respx.MockRouter) -> respx.Route:
    return respx_mock.get(f"{URL}/api/v0/charges/")


def test_each_kind_is_distinguished() -> None:
    items = [_item("gpu", 2.0), _item("disk", 0.1), _item("bwd", 0.2), _item("bwu", 0.3), _item("new", 0.4)]
    assert _sums(_row(*items)) == {"gpu": 2.0, "disk": 0.1, "download": 0.2, "upload": 0.3, "other": 0.4}


def test_two_items_of_a_kind_are_one_charge() -> None:
    """A price that changed during the day gives two items."""
    assert _charged(_row(_item(amount=2.0), _item(amount=0.5))) == [
        ProviderCharge(instance_id="7", day=DAY, kind="gpu", usd=2.5, final=True)
    ]


def test_what_the_items_do_not_explain_is_other() -> None:
    assert _sums(_row(_item(amount=2.0), amount=3.0)) == {"gpu": 2.0, "other": 1.0}
    assert _sums(_row(amount=0.7)) == {"other": 0.7}
    assert _sums(_row(_item(amount=2.0), amount=1.5)) == {"gpu": 2.0, "other": -0.5}  # a discount


def test_the_rounding_of_the_marketplace_is_no_charge() -> None:
    assert _sums(_row(_item(amount=2.0004), amount=2.0)) == {"gpu": 2.0004}


def test_a_credit_for_downtime_is_negative_and_other() -> None:
    assert _sums(_row(_item("gpu", 2.0), _item("sla", -0.25))) == {"gpu": 2.0, "other": -0.25}


def test_items_within_items_are_counted_once() -> None:
    nested = _item("workergroup", 2.1, items=[_item("gpu", 2.0), _item("disk", 0.1)])
    assert _sums(_row(nested)) == {"gpu": 2.0, "disk": 0.1}


def test_an_item_of_several_days_is_spread_over_those_asked_for() -> None:
    row = _row(_item(amount=3.0, days=3))
    assert [(charge.day, charge.usd) for charge in _charged(row, until=date(2026, 11, 22))] == [
        (DAY, 1.0), (NEXT, 1.0), (date(2026, 11, 22), 1.0),
    ]  # fmt: skip
    assert [(charge.day, charge.usd) for charge in _charged(row)] == [(DAY, 3.0)]
    assert _charged(row, since=date(2026, 12, 1), until=date(2026, 12, 2)) == []


def test_a_day_is_final_once_it_is_over() -> None:
    charged = _charged(_row(_item(amount=2.0, days=2)), until=NEXT)
    assert [(charge.day, charge.final) for charge in charged] == [(DAY, True), (NEXT, False)]


def test_what_is_of_no_instance_is_left_out() -> None:
    cases: list[Any] = ["volume-9", "endpoint-3", None, "", "instance"]
    for source in cases:
        with case(source):
            assert _charged(_row(_item(), source=source)) == []


def test_the_impossible_is_refused() -> None:
    cases: list[Any] = [
        _row(_item(amount=-1.0), amount=1.0),
        _row(_item(amount=1e12)),
        _row(amount=-1.0),
        _row(_item(start=-1)),
        _row(_item(start=MIDNIGHT_S + 1, end=MIDNIGHT_S)),
        _row(_item(end=1e18)),
        _row(_item(), source="instance-../7"),
        _row(_item(), source="instance-" + "7" * 30),
    ]
    for row in cases:
        with case(row), pytest.raises(PayloadChanged):
            _charged(row)


def test_an_amount_that_is_no_number_is_refused() -> None:
    cases: list[Any] = [b"NaN", b"Infinity", b"1e999", b'"1"', b"null", b"true"]
    for amount in cases:
        with case(amount), pytest.raises(PayloadChanged):
            charges_page(_body(_row(_item(amount=123456.0))).replace(b"123456.0", amount))


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["success", "results", "items", "amount", "start", "end", "type", "source", "total", "next_token"]
    ), inner, max_size=6), max_leaves=12,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_no_answer_breaks_it(body: bytes) -> None:
    try:
        charged = charges_of(charges_page(body).results, DAY, NEXT, NOW)
    except PayloadChanged:
        return
    assert all(DAY <= charge.day <= NEXT and abs(charge.usd) < 1e9 for charge in charged)


amounts = st.integers(0, 10_000_000).map(lambda mills: mills / 1000)
kinds = st.sampled_from(["gpu", "disk", "bwd", "bwu", "sla", "x"])


@given(st.lists(st.tuples(kinds, amounts, st.integers(1, 4)), max_size=6), amounts)
def test_the_sum_is_what_was_charged(items: list[tuple[str, float, int]], total: float) -> None:
    """Whatever the items are, the charges of a row add up to its amount, except for rounding."""
    row = _row(*(_item(kind, amount, days) for kind, amount, days in items), amount=total)
    parsed = [ChargeItem(**row | {"items": [ChargeItem(**item) for item in row["items"]]})]
    charged = charges_of(parsed, DAY, date(2026, 11, 30), NOW)
    assert sum(charge.usd for charge in charged) == pytest.approx(total, abs=0.0005 * (len(items) + 1) + 1e-4)


# --- queries ----------------------------------------------------------------------------------------------------------


def test_a_day_is_asked_for_by_itself_and_all_its_pages_are_followed(route: respx.Route, launcher: Launcher) -> None:
    first = httpx.Response(200, content=_body(_row(_item()), total=2, next_token="t0"))
    last = httpx.Response(200, content=_body(_row(_item(), source="instance-8"), total=2))
    route.mock(side_effect=[first, last])
    assert [charge.instance_id for charge in launcher.charges(DAY, DAY) or ()] == ["7", "8"]
    asked, more = (call.request for call in route.calls)
    assert json.loads(asked.url.params["select_filters"]) == {
        "day": {"gte": MIDNIGHT_S, "lte": MIDNIGHT_S + DAY_S - 1}, "type": {"in": ["instance"]},
    }  # fmt: skip
    assert (asked.url.params["limit"], asked.url.params.get("after_token")) == ("500", None)
    assert more.url.params["after_token"] == "t0"


def test_days_are_asked_a_second_apart(route: respx.Route, launcher: Launcher, clock: Clock) -> None:
    route.respond(content=_body())
    assert launcher.charges(DAY, date(2026, 11, 22)) == []
    assert clock.seconds == pytest.approx(1002.0)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200, content=_body(_row(_item()), total=2)),  # fewer than stated
        httpx.Response(200, content=_body(_row(_item()), total=9, next_token="same")),  # repeating pages
        httpx.Response(200, content=_body(success=False)),
        httpx.Response(400, json={"success": False, "msg": "Must provide both 'day' gte and lte filters"}),
        httpx.Response(404, json={"success": False, "error": "auth_error", "msg": "Invalid user key"}),
    ],
)
def test_an_odd_answer_is_an_error(route: respx.Route, launcher: Launcher, answer: httpx.Response) -> None:
    route.mock(return_value=answer)
    with pytest.raises(ProviderError):
        launcher.charges(DAY, DAY)


def test_the_marketplaces_own_books_are_read_back() -> None:
    """Over real HTTP: five hours before midnight and three after it, disk and traffic included."""
    waits, clock = Clock(), ManualClock(MIDNIGHT_S + 19 * 3600.0)
    quick = Delays(created_s=0.0, ssh_s=0.0, loading_s=0.0, running_s=0.0)
    with (
        Marketplace(size=0, clock=clock, delays=quick, charge_decimals=6) as market,
        closing(PooledHttpClient()) as http,
    ):
        offer = market.publish(usd_hour=2.0, storage_cost=7.2, inet_down_cost=0.01, disk_space=100.0)
        settings = ProviderSettings(name="vastai", base_url=market.url, api_key="demo-key", search_interval_s=0.0)
        adapter = providers.build(settings, http, lambda: datetime.fromtimestamp(clock(), UTC), waits, waits.sleep)
        assert adapter.launcher is not None
        made = adapter.launcher.create(Order(offer_id=str(offer), label="l", image="i", disk_gb=10.0))
        clock.advance(3600.0)
        market.transfer(int(made.instance_id), down_gb=50.0)
        clock.advance(7 * 3600.0)
        charged = adapter.launcher.charges(DAY, NEXT)
    assert {charge.instance_id for charge in charged} == {made.instance_id}
    assert [(charge.day, charge.kind, charge.final) for charge in charged] == [
        (DAY, "disk", True), (DAY, "download", True), (DAY, "gpu", True), (NEXT, "disk", False), (NEXT, "gpu", False),
    ]  # fmt: skip
    assert [charge.usd for charge in charged] == pytest.approx([0.5, 0.5, 10.0, 0.3, 6.0])
