"""Refusals of keys, paths, intervals and the row quota, in the recorded words."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from gpuwatch.emulator.routes import ROUTES
from tests import loopback_client
from tests.checkout import TESTS

RECORDED = json.loads((TESTS / "recorded" / "vastai" / "errors.json").read_text())


def recorded(endpoint: str, status: int) -> dict[str, Any]:
    """Return the recorded body of an endpoint's refusal."""
    body: dict[str, Any] = next(
        entry["body"] for entry in RECORDED if entry["endpoint"].startswith(endpoint) and entry["http_status"] == status
    )
    return body


def ask(market: Any, path: str, key: str | None = None, **params: str) -> httpx.Response:
    return loopback_client.get(
        market.url + path, headers={"Authorization": f"Bearer {key}"} if key else {}, params=params
    )


def test_searching_needs_no_key_and_the_rest_is_403_without_one(opened: Any) -> None:
    market = opened(size=10).market
    assert ask(market, "/api/v0/bundles/").status_code == 200
    answer = ask(market, "/api/v1/instances/")
    assert (answer.status_code, answer.json()) == (403, recorded("any without a key", 403))


def test_a_wrong_key_is_404_at_the_search_and_401_elsewhere(opened: Any) -> None:
    market = opened(size=10).market
    search, instances = (ask(market, path, "wrong") for path in ("/api/v0/bundles/", "/api/v1/instances/"))
    assert (search.status_code, search.json()) == (404, recorded("bundles", 404))
    assert (instances.status_code, instances.json()) == (401, recorded("any with a key", 401))


@pytest.mark.parametrize("status", [401, 403, 404])
def test_the_status_of_a_wrong_key_can_be_chosen(opened: Any, status: int) -> None:
    market = opened(bad_key_status=status).market
    for path in ("/api/v0/bundles/", "/api/v1/instances/", "/api/v0/users/current/"):
        answer = ask(market, path, "wrong")
        assert (answer.status_code, answer.json()["error"]) == (status, "auth_error")


def test_the_key_may_stand_in_the_url(opened: Any) -> None:
    market = opened().market
    assert ask(market, "/api/v0/users/current/", api_key="demo-key").status_code == 200
    assert ask(market, "/api/v0/users/current/", api_key="wrong").status_code == 401


def test_a_path_without_its_last_slash_is_301_with_a_body_that_looks_harmless(opened: Any) -> None:
    answer = ask(opened().market, "/api/v0/bundles")
    assert (answer.status_code, answer.headers["location"]) == (301, "/api/v0/bundles/")
    assert answer.json() == recorded("any path", 301)


@pytest.mark.parametrize(
    ("shape", "n"), [("text", 0), ("text-threshold", 1), ("detail", 2), ("headers", 3), ("rate_limit_exceeded", 5)]
)
def test_each_recorded_429_can_be_had(opened: Any, shape: str, n: int) -> None:
    one, expected = opened(), RECORDED[n]
    threshold = 3 if shape == "headers" else 2
    one.market.faults.add("search", "429", shape=shape, threshold_s=threshold)
    answer = one.http.post("/api/v0/bundles/", json={})
    assert answer.status_code == 429
    if "body_text" in expected:
        assert (answer.text, answer.headers["content-type"]) == (expected["body_text"], "text/plain")
    else:
        assert answer.json() == expected["body"]
    assert set(expected.get("headers", {})) <= {
        name.title().replace("Ratelimit", "RateLimit") for name in answer.headers
    }
    assert one.http.post("/api/v0/bundles/", json={}).status_code == 200


def test_the_fifth_shape_is_the_one_a_go_client_logged(opened: Any) -> None:
    one = opened()
    one.market.faults.add("create", "429", shape="message", threshold_s=4.5)
    body = one.rent(1).json()
    assert body["code"] == "429 Too Many Requests"
    assert "threshold=4.5*1.0" in body["message"]


def test_intervals_are_seconds_between_calls_of_one_endpoint(opened: Any) -> None:
    one = opened(intervals=True)
    statuses = []
    for pause in (0, 1.0, 1.1, 2.5):
        one.clock.advance(pause)
        statuses.append(one.http.post("/api/v0/bundles/", json={}).status_code)
    assert statuses == [200, 429, 200, 200]
    assert one.http.get("/api/v0/bundles/").status_code == 200


def test_the_row_quota_counts_rows_and_is_over_at_midnight_utc(opened: Any) -> None:
    one = opened(size=100, rows_per_day=100)
    assert [len(one.search()), len(one.search())] == [64, 64]
    answer = one.http.post("/api/v0/bundles/", json={})
    body = answer.json()
    assert (answer.status_code, body["error"], set(body)) == (429, "search_quota_exceeded", set(RECORDED[4]["body"]))
    assert int(answer.headers["x-ratelimit-reset"]) == one.clock() + body["retry_after"]
    one.clock.advance(body["retry_after"] - 1)
    assert one.http.post("/api/v0/bundles/", json={}).status_code == 429
    one.clock.advance(1)
    assert len(one.search()) == 64


@pytest.mark.parametrize(
    ("sent", "n"), [("[]", 6), ("{", 7), ('{"rentable": true}', 8)], ids=["no object", "no JSON", "a bare value"]
)
def test_bad_queries_are_answered_in_the_recorded_words(opened: Any, sent: str, n: int) -> None:
    answer = opened().http.post("/api/v0/bundles/", content=sent)
    assert (answer.status_code, answer.json()) == (400, RECORDED[n]["body"])


def test_an_id_that_is_no_number_and_a_key_twice_are_refused_as_recorded(opened: Any) -> None:
    one = opened()
    gone = one.http.request("DELETE", "/api/v0/instances/abc/", json={})
    assert gone.json() == recorded("DELETE instances/{id}/ id is not a number", 400)
    for expected in ({"success": True}, recorded("POST ssh/", 400)):
        answer = one.http.post("/api/v0/ssh/", json={"ssh_key": "ssh-ed25519 AAAA me"}).json()
        assert expected.items() <= answer.items()


@pytest.mark.parametrize(
    "body", [[], "x", 7, None, {"ids": ["a"], "instance_ids": ["b"], "state": 5, "label": 5, "price": "x"}]
)
def test_no_body_however_odd_breaks_an_endpoint(opened: Any, body: Any) -> None:
    one = opened()
    contract = one.rented(one.market.publish())
    for (method, pattern), route in ROUTES.items():
        if method == "GET" or route.endpoint in ("gpu_names", "log_file"):
            continue
        answer = one.http.request(method, pattern.replace("*", str(contract)), json=body)
        assert answer.status_code < 500, (route.endpoint, answer.text)


@pytest.mark.parametrize("sent", ["x", "7", "[1]", '{"label": 5}', '{"label": {"gt": 5}}', '[{"col": 5}]', "\x00"])
def test_no_parameter_however_odd_breaks_a_read(opened: Any, sent: str) -> None:
    one = opened()
    contract = one.rented(one.market.publish())
    names = ("select_filters", "order_by", "limit", "after_token", "select_cols", "q", "day")
    for (method, pattern), route in ROUTES.items():
        for name in names if method == "GET" and route.endpoint != "log_file" else ():
            answer = one.http.get(pattern.replace("*", str(contract)), params={name: sent})
            assert answer.status_code < 500, (route.endpoint, name, answer.text)


def test_the_request_log_holds_no_secret(opened: Any) -> None:
    one = opened()
    one.rent(1, image_login="-u me -p hunter2 registry")
    ask(one.market, "/api/v0/users/current/", api_key="demo-key")
    log = str(one.market.requests)
    assert "PUT" in log
    assert "demo-key" not in log
    assert "hunter2" not in log


def test_a_stricter_marketplace_refuses_a_search_before_its_own_interval(opened: Any) -> None:
    stand = opened(intervals=True, search_every_s=6.0)
    first, soon = (ask(stand.market, "/api/v0/bundles/").status_code for _ in range(2))
    stand.clock.advance(5.9)
    later = ask(stand.market, "/api/v0/bundles/").status_code
    stand.clock.advance(0.1)
    assert (first, soon, later, ask(stand.market, "/api/v0/bundles/").status_code) == (200, 429, 429, 200)
