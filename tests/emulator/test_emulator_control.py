"""The marketplace as a process of its own, and its controls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import Any

from gpuwatch.emulator import ManualClock, Marketplace
from tests import loopback_client


def test_controls_are_only_there_when_asked_for(opened: Any) -> None:
    assert opened().http.get("/control/ledger").status_code == 301
    assert opened(control=True).http.get("/control/ledger").json()["creates"] == []


def test_another_process_can_publish_reprice_withdraw_and_read_the_books(opened: Any) -> None:
    one = opened(control=True)
    post = lambda name, **body: one.http.post(f"/control/{name}", json=body)  # noqa: E731
    offer_id = post("publish", gpu="H100 SXM", count=2, usd_hour=3.0).json()["offer_id"]
    post("reprice", offer_id=offer_id, usd_hour=2.5)
    assert [(row["id"], row["dph_base"]) for row in one.search()] == [(offer_id, 2.5)]
    contract = one.rented(offer_id)
    post("advance", seconds=75)
    post("befall", instance_id=contract, what="offline")
    assert one.show(contract)["actual_status"] == "offline"
    post("fault", endpoint="search", kind="500")
    assert one.http.post("/api/v0/bundles/", json={}).status_code == 500
    repository = one.http.get("/control/ledger").json()
    assert (repository["alive"], repository["creates_by_label"]) == ([contract], {"gpuwatch-1": 1})
    assert [seen["method"] for seen in one.http.get("/control/requests").json()["requests"]].count("PUT") == 1
    spare = post("publish").json()["offer_id"]
    post("withdraw", offer_id=spare)
    post("tick", times=2)
    assert one.search() == []


def test_another_process_can_let_everything_happen_that_a_test_can(opened: Any) -> None:
    one = opened(control=True)
    post = lambda name, **body: one.http.post(f"/control/{name}", json=body)  # noqa: E731
    contract = one.rented(one.market.publish(usd_hour=2.0, min_bid=0.5), price=1.0)
    post("advance", seconds=75)
    post("outbid", instance_id=contract, min_bid=1.5, as_stop=True)
    assert one.show(contract)["min_bid"] == 1.5
    post("befall", instance_id=contract, what="resume")
    post("advance", seconds=30)
    post("utilise", instance_id=contract, trace=[[0, 12.5]])
    post("raise_price", instance_id=contract, factor=2)
    post("befall", instance_id=contract, what="ssh", host="127.0.0.1", port=2222)
    row = one.http.get("/control/instances").json()["instances"][0]
    assert (row["gpu_util"], row["dph_base"], row["ssh_port"]) == (12.5, 2.0, 2222)
    rise = post("propose_increase", instance_id=contract, gpu_usd_hour=4, effective_after_s=60).json()
    pending = one.http.get("/api/v0/instances/pending-price-increases/").json()["pending_price_increases"]
    assert [line["pending_price_increase_id"] for line in pending] == [rise["pending_price_increase_id"]]
    post("change", list_omits_s=3600, ssh_at=["127.0.0.1", 9])
    assert one.list()["instances"] == []
    post("transfer", instance_id=contract, down_gb=1)
    assert post("credit", usd=0.4).json()["credit_usd"] == 0.4
    post("ends", instance_id=contract, after_s=5)
    post("advance", seconds=6)
    assert one.show(contract)["intended_status"] == "stopped"


def test_a_wrong_control_is_one_sentence(opened: Any) -> None:
    one = opened(control=True)
    for name, body in (
        ("publish", {"colour": "red"}),
        ("reprice", {"offer_id": 1}),
        ("fault", {"endpoint": "x", "kind": "y"}),
        ("change", {"seed": 8}),
        ("ends", {"instance_id": 1, "after_s": 5}),
    ):
        answer = one.http.post(f"/control/{name}", json=body)
        assert (answer.status_code, "\n" in answer.json()["msg"]) == (400, False)


def test_the_module_prints_its_url_serves_and_ends_with_sigterm() -> None:
    command = [sys.executable, "-m", "gpuwatch.emulator", "--port", "0", "--seed", "7", "--size", "20"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            assert len(loopback_client.get(f"{url}/api/v0/bundles/").json()["offers"]) == 20
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=240) == 0


def test_closing_ends_every_thread_even_with_clients_connected() -> None:
    before = threading.active_count()
    with (
        Marketplace(size=10, clock=ManualClock(), tick_every_s=0.01) as market,
        loopback_client.client(base_url=market.url) as http,
    ):
        market.faults.add("create", "never")
        assert http.get("/api/v0/bundles/").status_code == 200
        assert threading.active_count() > before
    assert threading.active_count() == before


def test_many_clients_at_once_rent_an_offer_only_once(opened: Any) -> None:
    one = opened()
    offer_id = one.market.publish()
    answers: list[int] = []

    def rent() -> None:
        headers = {"Authorization": "Bearer demo-key"}
        body = {"image": "a", "disk": 10}
        url = f"{one.market.url}/api/v0/asks/{offer_id}/"
        answers.append(loopback_client.request("PUT", url, json=body, headers=headers).status_code)

    threads = [threading.Thread(target=rent) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200] + [400] * 15
    assert len(one.market.ledger.creates) == 1


def test_a_request_that_is_not_http_ends_the_connection_and_nothing_else(opened: Any) -> None:
    import socket

    one = opened()
    host, port = one.market.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as rude:
        rude.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
        assert rude.recv(100) == b""
    assert one.search() == []
    assert json.loads(one.http.get("/nowhere/").text)["error"] == "not_found"
