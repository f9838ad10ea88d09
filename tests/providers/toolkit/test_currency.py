"""Foreign prices in dollars: the day's rate, an old one, none, and a hostile one."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime

import httpx
import pytest
import respx

from gpuwatch.errors import PayloadChanged
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.toolkit.currency import (
    BUILT_IN_ON,
    BUILT_IN_USD_PER_EUR,
    ExchangeRate,
    ExchangeRates,
    Fixing,
    rate_of,
    read_fixing,
)
from gpuwatch.providers.toolkit.http.client import PooledHttpClient

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
FILE = """<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01">
	<Cube>
		<Cube time='{day}'>
			<Cube currency='USD' rate='{usd}'/>
			<Cube currency='GBP' rate='0.8800'/>
		</Cube>
	</Cube>
</gesmes:Envelope>"""


def file(day: str = "2026-11-20", usd: str = "1.1500") -> bytes:
    return FILE.format(day=day, usd=usd).encode()


class _Times:
    """The clocks, which the test sets."""

    now, now_s = NOW, 0.0


@pytest.fixture
def times() -> _Times:
    return _Times()


@pytest.fixture
def rates(http: PooledHttpClient, times: _Times) -> ExchangeRates:
    tools = Tools(
        http=http, now=lambda: times.now, monotonic=lambda: times.now_s, sleep=lambda _: None, stop=threading.Event()
    )
    return ExchangeRates(tools)


@pytest.fixture
def bank(respx_mock: respx.MockRouter) -> respx.Route:
    """The route of the bank's file."""
    return respx_mock.get("https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml").respond(content=file())


def test_the_euro_is_computed_with_the_rate_of_the_day_and_its_date(bank: respx.Route, rates: ExchangeRates) -> None:
    assert rates.rate("EUR") == ExchangeRate("EUR", 1.15, date(2026, 11, 20), None)
    assert bank.calls.last.request.headers["accept"] == "application/xml"


@pytest.mark.usefixtures("bank")
def test_another_currency_goes_by_the_euro(rates: ExchangeRates) -> None:
    rate = rates.rate("GBP")
    assert rate is not None
    assert rate.usd == pytest.approx(1.15 / 0.88)


def test_a_currency_without_a_rate_has_none_and_the_dollar_needs_none(bank: respx.Route, rates: ExchangeRates) -> None:
    assert rates.rate("USD") == ExchangeRate("USD", 1.0)
    assert bank.call_count == 0
    assert rates.rate("XXX") is None
    assert rates.rate("") is None


def test_the_rate_is_fetched_once_a_day(bank: respx.Route, rates: ExchangeRates, times: _Times) -> None:
    for hour in (0, 1, 23):
        times.now_s = hour * 3600.0
        rates.rate("EUR")
    assert bank.call_count == 1
    times.now_s = 24 * 3600.0
    bank.respond(content=file("2026-11-21", "1.2"))
    rate = rates.rate("EUR")
    assert rate is not None
    assert (rate.usd, bank.call_count) == (1.2, 2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>maintenance</html>",
        file(usd="0"),
        file(usd="0.0001"),
        file(usd="1e3"),
        file(usd="115"),
        file(usd="NaN"),
        file(usd="-1.15"),
        file(usd="1.15'/><Cube currency='USD' rate='1.25"),
        file(day="2026-13-45"),
        file(day="tomorrow"),
        file(day="2027-11-20"),
        file(day="2024-11-20"),
        file().replace(b"USD", b"usd"),
        file().replace(b"currency", b"name"),
        b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><Cube time="2026-11-20">&b;</Cube>',
        b"<Cube time=" * 20_000,
        b"[" * 200_000,
        b"\xff\xfe" * 1000,
    ],
)
def test_a_rate_that_cannot_be_is_not_believed_and_the_built_in_one_is_reported(
    bank: respx.Route, rates: ExchangeRates, body: bytes
) -> None:
    bank.respond(content=body)
    rate = rates.rate("EUR")
    assert rate is not None
    assert (rate.usd, rate.on) == (BUILT_IN_USD_PER_EUR, BUILT_IN_ON)
    assert "built-in rate of 2025-06-30" in (rate.note or "")


def test_a_bank_that_is_away_leaves_the_last_rate_and_is_asked_again_after_an_hour(
    bank: respx.Route, rates: ExchangeRates, times: _Times
) -> None:
    rates.rate("EUR")
    bank.respond(503)
    for later_s, requests in ((25 * 3600.0, 2), (25 * 3600.0 + 600, 2), (26 * 3600.0, 3)):
        times.now_s = later_s
        rate = rates.rate("EUR")
        assert rate is not None
        assert (rate.usd, rate.note, bank.call_count) == (1.15, None, requests)


def test_a_rate_of_more_than_seven_days_says_so(bank: respx.Route, rates: ExchangeRates, times: _Times) -> None:
    bank.respond(content=file("2026-11-14"))
    rate = rates.rate("EUR")
    assert rate is not None
    assert rate.note is None
    times.now = datetime(2026, 11, 22, tzinfo=UTC)
    rate = rates.rate("EUR")
    assert rate is not None
    assert rate.note == "EUR converted at a rate of 2026-11-14, 8 days old"


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.ReadTimeout("silent")])
def test_a_server_that_is_not_there_is_no_error_to_those_who_ask(
    bank: respx.Route, rates: ExchangeRates, failure: Exception
) -> None:
    bank.mock(side_effect=failure)
    rate = rates.rate("EUR")
    assert rate is not None
    assert rate.on == BUILT_IN_ON


def test_of_several_days_the_first_counts() -> None:
    both = file() + file("2026-11-19", "1.9")
    assert read_fixing(both) == Fixing(date(2026, 11, 20), {"USD": 1.15, "GBP": 0.88})


def test_two_rates_for_one_currency_are_none() -> None:
    with pytest.raises(PayloadChanged, match="GBP"):
        read_fixing(file().replace(b"</Cube>", b"<Cube currency='GBP' rate='0.5'/></Cube>", 1))


def test_the_built_in_rate_knows_the_euro_alone() -> None:
    built_in = Fixing(BUILT_IN_ON, {"USD": BUILT_IN_USD_PER_EUR}, True)
    assert rate_of("EUR", built_in, BUILT_IN_ON) is not None
    assert rate_of("GBP", built_in, BUILT_IN_ON) is None
