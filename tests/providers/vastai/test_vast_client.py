"""Which requests are retried, how long that may take, and the error of every refused query."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import httpx
import pytest
import respx
from vast_double import NOW, a_row, an_adapter

from gpuwatch.errors import GpuwatchError, KeyRejected, PayloadChanged, ProviderDown, QuotaSpent, RateLimited
from gpuwatch.ports import Market, Query
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from tests.clocks import Clock

GOOD = httpx.Response(200, json={"offers": [a_row()]})
MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)


def _error(bundles: respx.Route, market: Market, answer: httpx.Response) -> GpuwatchError:
    bundles.mock(return_value=answer)
    with pytest.raises(GpuwatchError) as caught:
        market.search(Query())
    return caught.value


@pytest.mark.parametrize(
    "failure",
    [
        httpx.Response(502, content=b"<html>"),
        httpx.Response(429, content=b"API requests too frequent"),
        httpx.ReadError("x"),
    ],
)
def test_a_search_is_asked_again_when_that_may_help(
    bundles: respx.Route, market: Market, failure: httpx.Response | Exception
) -> None:
    bundles.mock(side_effect=[failure, failure, GOOD])
    assert len(market.search(Query()).offers) == 1


def test_three_attempts_are_all(bundles: respx.Route, market: Market) -> None:
    assert isinstance(_error(bundles, market, httpx.Response(503)), ProviderDown)
    assert bundles.call_count == 3


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.Response(401, json={"error": "auth_error", "msg": "Invalid user key"}), KeyRejected),
        (httpx.Response(403, json={"error": "auth_error", "msg": "This action requires login."}), KeyRejected),
        (httpx.Response(404, json={"error": "auth_error", "msg": "Invalid user key"}), KeyRejected),
        (httpx.Response(404, json={"msg": "Invalid user key"}), KeyRejected),
        (httpx.Response(410, json={"error": "deprecated_endpoint"}), PayloadChanged),
        (httpx.Response(400, json={"error": "invalid_request", "msg": "Invalid query"}), PayloadChanged),
        (httpx.Response(200, content=b"<html>maintenance</html>"), PayloadChanged),
        (
            httpx.Response(429, json={"error": "search_quota_exceeded", "msg": "Daily search quota exceeded"}),
            QuotaSpent,
        ),
        (httpx.Response(429, headers={"retry-after": "300"}, content=b"slow down"), RateLimited),
    ],
)
def test_what_will_not_help_is_not_repeated(
    bundles: respx.Route, market: Market, answer: httpx.Response, kind: type[GpuwatchError]
) -> None:
    assert type(_error(bundles, market, answer)) is kind
    assert bundles.call_count == 1


def test_a_redirect_elsewhere_is_no_empty_market(bundles: respx.Route, market: Market) -> None:
    elsewhere = httpx.Response(301, headers={"location": "https://elsewhere.example/"}, json={"offers": []})
    error = _error(bundles, market, elsewhere)
    assert isinstance(error, ProviderDown)
    assert "base_url" in str(error)
    assert bundles.call_count == 1, "a redirect stays one"


def test_retry_after_is_waited_for_if_it_is_short(bundles: respx.Route, market: Market, clock: Clock) -> None:
    bundles.mock(side_effect=[httpx.Response(429, headers={"retry-after": "20"}), GOOD])
    market.search(Query())
    assert 20 <= sum(clock.slept) <= 29


@pytest.mark.parametrize(
    ("said", "expected_s"),
    [("-5", 1.0), ("1000000000", 3600.0), ("Sat, 21 Nov 2026 12:10:00 GMT", 600.0), ("soon", None), ("nan", None)],
)
def test_what_retry_after_says_is_held_within_reason(
    bundles: respx.Route, market: Market, said: str, expected_s: float | None
) -> None:
    error = _error(bundles, market, httpx.Response(429, headers={"retry-after": said}))
    assert isinstance(error, RateLimited)
    assert error.retry_after_s == expected_s


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({}, {}, MIDNIGHT),
        ({"x-ratelimit-reset": str(int(MIDNIGHT.timestamp()))}, {}, MIDNIGHT),
        ({"x-ratelimit-reset": "1790035200"}, {}, MIDNIGHT),
        ({"x-ratelimit-reset": "99999999999999"}, {"retry_after": -1}, MIDNIGHT),
        ({}, {"retry_after": 3600}, NOW + timedelta(hours=1)),
    ],
)
def test_a_spent_quota_says_when_it_begins_anew(
    bundles: respx.Route, market: Market, headers: dict[str, str], body: dict[str, int], expected: datetime
) -> None:
    answer = httpx.Response(429, headers=headers, json={"error": "search_quota_exceeded"} | body)
    error = _error(bundles, market, answer)
    assert isinstance(error, QuotaSpent)
    assert error.resets_at == expected


def test_a_server_that_hangs_costs_one_timeout_in_all(
    bundles: respx.Route, http: PooledHttpClient, clock: Clock
) -> None:
    def hang(request: httpx.Request) -> httpx.Response:
        clock.seconds += request.extensions["timeout"]["read"]
        raise httpx.ReadTimeout("")

    began_s = clock.seconds
    bundles.mock(side_effect=hang)
    with pytest.raises(ProviderDown):
        an_adapter(http, clock, timeout_s=10.0).market.search(Query())
    assert clock.seconds - began_s == 10.0


def test_searches_keep_their_distance(bundles: respx.Route, http: PooledHttpClient, clock: Clock) -> None:
    bundles.mock(return_value=GOOD)
    market = an_adapter(http, clock, search_interval_s=6.0).market
    for _ in range(3):
        market.search(Query())
    assert sum(clock.slept) == pytest.approx(12.0)


def test_the_servers_sentences_are_cleaned_and_cut(bundles: respx.Route, market: Market) -> None:
    error = _error(bundles, market, httpx.Response(400, json={"msg": "a\x1b[31m" + "b" * 10_000 + "k" * 64}))
    assert len(str(error)) < 250
    assert "\x1b" not in str(error)


def test_stopping_ends_the_wait(bundles: respx.Route, http: PooledHttpClient, clock: Clock) -> None:
    bundles.mock(return_value=GOOD)
    stop = threading.Event()
    market = an_adapter(http, clock, stop, search_interval_s=3600.0).market
    market.search(Query())
    stop.set()
    with pytest.raises(ProviderDown, match="stopping"):
        market.search(Query())
    assert bundles.call_count == 1
