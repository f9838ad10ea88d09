"""Places in the real daemon: one whose machines do not start is followed by the one beside it within seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clouds.runpod import RunPod
from tests.clouds.verda import Verda
from tests.process.daemon_child import terminate, wait_for
from tests.process.test_crashes_elsewhere import Markets, ended
from tests.providers.runpod.bench import PLENTY

TYPE = "1H100.80S.30V"
SOON_S = 30.0  # far less than `ready_within` and the pause of the circuit breaker; a few seconds on an idle machine


@pytest.fixture
def place() -> Iterator[Verda]:
    with Verda() as place:
        place.sell_alike(TYPE, ("FIN-01", "FIN-02"))
        yield place


def orders(place: Verda) -> list[tuple[str, float]]:
    """The places of the orders, with their times."""
    sent = [request for request in place.requests if (request.method, request.path[-10:]) == ("POST", "/instances")]
    return [(json.loads(request.raw)["location_code"], request.now) for request in sent]


@pytest.mark.slow
@pytest.mark.parametrize("status", ["error", "no_capacity", "notfound", "deleting", "discontinued"])
def test_after_a_failed_start_the_place_beside_it_follows_within_seconds(
    tmp_path: Path, place: Verda, status: str
) -> None:
    place.ends_in["FIN-01"] = status
    markets = Markets(tmp_path, {"verda": place})
    child = markets.daemon()
    try:
        wait_for(lambda: "running" in markets.home.states())
        terminate(child)
    finally:
        ended(child)
    (first, first_at), (second, second_at) = orders(place)
    assert (first, second) == ("FIN-01", "FIN-02")
    assert second_at - first_at < SOON_S
    failed = next(launch for launch in markets.home.launches() if launch["state"] == "failed")
    assert status in failed["end_reason"]
    running = [one for one in place.machines.values() if place.ends_in.get(one["location"]) is None]
    assert len(running) == 1
    if status != "discontinued":  # it had ended by itself
        assert all(one["status"] == "discontinued" for one in place.machines.values() if one not in running)


@pytest.mark.slow
def test_a_status_that_nobody_documented_is_reported_once(tmp_path: Path, place: Verda) -> None:
    place.ends_in |= {"FIN-01": "haywire", "FIN-02": "haywire"}
    markets = Markets(tmp_path, {"verda": place})

    def reports() -> list[str]:
        events = json.loads(markets.home.run("alerts", "--json").stdout or "[]")
        return [one["headline"] for one in events if "haywire" in one["headline"]]

    for _ in range(2):  # a restart does not repeat it
        child = markets.daemon()
        try:
            listed = place.count("GET .*/instances$")
            wait_for(reports)
            wait_for(lambda before=listed: place.count("GET .*/instances$") > before + 2)
            terminate(child)
        finally:
            ended(child)
        assert len(reports()) == 1
    assert reports() == ["verda: unknown status of an instance: haywire"]


@pytest.mark.slow
def test_a_community_order_names_no_data_centre_although_the_catalogue_lists_some(tmp_path: Path) -> None:
    with RunPod(quotas=PLENTY) as place:
        for row in place.types.values():
            row.free, row.community_free = {}, 0
        wanted = place.types["NVIDIA GeForce RTX 4090"]
        wanted.community_free, wanted.community_places = 2, ("EU-CZ-1", "EU-RO-1")
        markets = Markets(tmp_path, {"runpod": place})
        child = markets.daemon()
        try:
            wait_for(lambda: "running" in markets.home.states())
            terminate(child)
        finally:
            ended(child)
        sent = [json.loads(one.raw) for one in place.requests if (one.method, one.path) == ("POST", "/v2/pods")]
        assert [(body["cloud"], body.get("dataCenterIds")) for body in sent] == [("COMMUNITY", None)]
