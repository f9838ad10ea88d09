"""Faults: what the client sees, and what really happened."""

from __future__ import annotations

import contextlib
import math
import time
import zlib
from typing import Any

import httpx
import pytest

from gpuwatch.emulator.fault_rules import KINDS
from tests import loopback_client

NO_EFFECT = ["429", "quota", "500", "502", "503", "garbage", "empty", "empty_object", "redirect", "reset", "never"]
EFFECT_WITHOUT_ANSWER = ["timeout_after", "reset_after", "500_after", "502_after", "unparsable_after"]


def attempt(one: Any, offer_id: int, answer_s: float = 60.0) -> httpx.Response | Exception:
    """Rent, wait this long for the answer, and return the result."""
    try:
        body = {"image": "a", "disk": 10, "label": "lost"}
        return loopback_client.request(
            "PUT",
            f"{one.market.url}/api/v0/asks/{offer_id}/",
            json=body,
            timeout=httpx.Timeout(60.0, read=answer_s),
            headers={"Authorization": f"Bearer {one.market.key}"},
        )
    except httpx.HTTPError as error:
        return error


def understood(answer: httpx.Response | Exception) -> bool:
    """Return whether a client can tell that a contract was created."""
    if isinstance(answer, Exception) or answer.status_code != 200:
        return False
    try:
        return "new_contract" in answer.json()
    except ValueError:
        return False


@pytest.mark.parametrize("kind", NO_EFFECT)
def test_these_have_no_effect(opened: Any, kind: str) -> None:
    one = opened()
    one.market.faults.add("create", kind)
    assert not understood(attempt(one, one.market.publish(), answer_s=0.3 if kind == "never" else 60.0))
    assert one.market.ledger.creates == ()


@pytest.mark.parametrize("kind", EFFECT_WITHOUT_ANSWER)
def test_these_take_effect_although_the_answer_is_lost(opened: Any, kind: str) -> None:
    one = opened()
    one.market.faults.add("create", kind)
    assert not understood(attempt(one, one.market.publish(), answer_s=0.3 if kind == "timeout_after" else 60.0))
    until = time.monotonic() + 60
    while not one.market.ledger.creates and time.monotonic() < until:
        time.sleep(0.01)
    assert one.market.ledger.creates_by_label() == {"lost": 1}


def test_a_late_request_takes_effect_only_after_the_client_gave_up(opened: Any) -> None:
    one = opened()
    one.market.faults.add("create", "late", after_s=30)
    assert isinstance(attempt(one, one.market.publish(), answer_s=0.3), httpx.TimeoutException)
    until = time.monotonic() + 60
    while not one.market._simulation.delayed_effects and time.monotonic() < until:
        time.sleep(0.01)
    one.clock.advance(29)
    assert one.market.ledger.creates == ()
    one.clock.advance(2)
    assert len(one.market.ledger.creates) == 1


def test_a_refused_create_makes_nothing_and_a_lost_bid_makes_a_contract(opened: Any) -> None:
    one = opened()
    for kind in ("refuse_create", "bid_lost"):
        one.market.faults.add("create", kind)
    refused, lost = (one.rent(one.market.publish()).json() for _ in range(2))
    assert (refused["success"], "new_contract" in refused) == (False, False)
    assert (lost["success"], "new_contract" in lost) == (False, True)
    assert len(one.market.ledger.creates) == 1


@pytest.mark.parametrize(("shape", "status"), [("400", 400), ("404", 404), ("404-spec", 404), ("410", 410)])
def test_an_offer_can_be_gone_at_the_create(opened: Any, shape: str, status: int) -> None:
    one = opened()
    one.market.faults.add("create", "offer_gone", shape=shape)
    answer = one.rent(one.market.publish())
    assert answer.status_code == status
    assert one.market.ledger.creates == ()


def test_a_price_can_change_between_search_and_create(opened: Any) -> None:
    one = opened()
    offer_id = one.market.publish(usd_hour=2.0)
    one.market.faults.add("create", "price_change", factor=1.5)
    assert one.show(one.rented(offer_id))["dph_base"] == 3.0


def test_lists_can_be_empty_cut_or_late_while_the_instances_are_there(opened: Any) -> None:
    one = opened()
    for _ in range(4):
        one.rented(one.market.publish())
    for kind, rows in (("list_empty", 0), ("page_cut", 2), ("list_lag", 0)):
        one.market.faults.add("list", kind)
        assert len(one.list()["instances"]) == rows
    assert len(one.list()["instances"]) == 4
    one.market.faults.add("instance", "instance_null")
    assert one.show(one.market.ledger.alive()[0]) is None


@pytest.mark.parametrize("kind", ["nan", "infinite", "huge", "negative", "zero", "null", "wrong_type", "missing"])
def test_values_can_be_spoilt_in_every_second_offer(opened: Any, kind: str) -> None:
    one = opened(size=10)
    one.market.faults.add("search", kind, field="dph_total")
    spoilt, good = one.search()[:2]
    value = spoilt.get("dph_total", "missing")
    is_bad = {
        "nan": lambda: math.isnan(value),
        "infinite": lambda: math.isinf(value),
        "huge": lambda: value == 1e308,
        "negative": lambda: value < 0,
        "zero": lambda: value == 0,
        "null": lambda: value is None,
        "wrong_type": lambda: isinstance(value, dict),
        "missing": lambda: value == "missing",
    }
    assert is_bad[kind]()
    assert good["dph_total"] > 0


def test_a_field_can_be_renamed_and_rows_can_come_twice(opened: Any) -> None:
    one = opened(size=5)
    one.market.faults.add("search", "renamed", field="dph_total", to="usd")
    assert all("usd" in row and "dph_total" not in row for row in one.search())
    one.market.faults.add("search", "duplicated")
    ids = [row["id"] for row in one.search()]
    assert len(ids) == 2 * len(set(ids))


def test_a_cut_answer_promises_more_than_it_sends(opened: Any) -> None:
    one = opened(size=20)
    one.market.faults.add("search", "cut")
    with pytest.raises(httpx.RemoteProtocolError):
        one.search()
    assert len(one.search()) == 20


def test_slow_waits_before_and_drip_within_the_answer(opened: Any) -> None:
    one = opened()
    for kind, settings in (("slow", {"delay_s": 0.2}), ("drip", {"pause_s": 0.2})):
        one.market.faults.add("search", kind, **settings)
        began = time.monotonic()
        assert one.search() == []
        assert time.monotonic() - began >= 0.2


def test_gzip_is_sent_when_asked_for_and_a_bomb_unasked(opened: Any) -> None:
    one = opened(size=64, gzip=True)
    zipped = one.http.post("/api/v0/bundles/", json={})
    plain = one.http.post("/api/v0/bundles/", json={}, headers={"Accept-Encoding": "identity"})
    assert zipped.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert zipped.json() == plain.json()
    one.market.faults.add("search", "gzip_bomb", size_mb=3)
    with one.http.stream("POST", "/api/v0/bundles/", json={}) as answer:
        packed = b"".join(answer.iter_raw())
    assert len(packed) < 10_000
    member = zlib.decompressobj(31)
    assert len(member.decompress(packed)) == 3_000_000
    assert member.eof


def test_times_skip_and_clear_govern_how_often(opened: Any) -> None:
    one = opened()

    def statuses(n: int) -> list[int]:
        return [one.http.post("/api/v0/bundles/", json={}).status_code for _ in range(n)]

    one.market.faults.add("search", "500", times=2, skip=1)
    assert statuses(4) == [200, 500, 500, 200]
    one.market.faults.add("any", "502", times=None)
    assert statuses(3) == [502] * 3
    one.market.faults.clear()
    assert statuses(1) == [200]


def test_a_probability_is_drawn_from_the_seed(opened: Any) -> None:
    runs = []
    for _ in range(2):
        one = opened()
        one.market.faults.add("search", "500", times=None, probability=0.3)
        runs.append([one.http.post("/api/v0/bundles/", json={}).status_code for _ in range(100)])
    assert runs[0] == runs[1]
    assert 15 <= runs[0].count(500) <= 45


def test_the_edge_answers_in_html_and_the_api_in_json(opened: Any) -> None:
    one = opened()
    for kind, content_type in (("502", "text/html"), ("500", "application/json")):
        one.market.faults.add("search", kind)
        assert one.http.post("/api/v0/bundles/", json={}).headers["content-type"] == content_type


@pytest.mark.parametrize("kind", sorted(KINDS - {"never", "late", "timeout_after", "gzip_bomb"}))
def test_every_kind_can_hit_every_endpoint_without_hurting_the_next_request(opened: Any, kind: str) -> None:
    one = opened(size=10)
    create = f"/api/v0/asks/{one.market.publish()}/"
    for method, path in (("POST", "/api/v0/bundles/"), ("PUT", create), ("GET", "/api/v1/instances/")):
        one.market.faults.add("any", kind, delay_s=0.01, pause_s=0.0001)
        with contextlib.suppress(httpx.HTTPError):
            one.http.request(method, path, json={"image": "a", "disk": 10} if method == "PUT" else {})
        one.market.faults.clear()
        assert one.http.get("/api/v0/users/current/").status_code == 200


def test_unknown_faults_and_endpoints_are_reported(opened: Any) -> None:
    faults = opened().market.faults
    with pytest.raises(ValueError, match="no such fault: explode"):
        faults.add("search", "explode")
    with pytest.raises(ValueError, match="no such endpoint: serach"):
        faults.add("serach", "500")
