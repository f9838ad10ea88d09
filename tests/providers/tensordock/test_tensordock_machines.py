"""TensorDock's machines: their state, their list, and their end."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.errors import KeyRejected, OrderError, OrderRefused, OutcomeUnknown, ProviderDown, ProviderError
from gpuwatch.ports import InstanceState, Launcher, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.testing.loopback import serving
from tests.clouds.tensordock import TensorDock
from tests.providers.tensordock.stand_in import BENCH, only, order, rented

S = InstanceState

# --- a machine's fields -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_machine_is_understood_in_every_shape(
    adapter: Adapter, place: TensorDock, launcher: Launcher, flat: bool, wrapped: bool
) -> None:
    place.flat_list, place.wrapped = flat, wrapped
    machine_id = rented(adapter)
    found = only(launcher)
    assert (found.instance_id, found.label, found.state) == (machine_id, "gpuwatch-abc", S.RUNNING)
    assert (found.gpu, found.gpu_count, found.disk_gb) == ("RTX 4090", 1, 100)
    assert found.ssh_port == 20456  # 22 was requested
    assert (found.ssh_host, found.ssh_user) == (place.machines[machine_id]["ipAddress"], "user")


def test_the_real_price_is_reported_even_if_it_is_not_the_listed_one(
    adapter: Adapter, place: TensorDock, launcher: Launcher
) -> None:
    place.rate_factor = 1.5
    offer = adapter.market.search(Query(gpus=("RTX 4090",))).offers[0]
    launcher.create(order(offer.offer_id))
    assert only(launcher).listed_usd_hour == pytest.approx(1.5 * offer.quoted_usd_hour, rel=1e-5)


def test_a_machine_runs_when_it_has_its_address(adapter: Adapter, place: TensorDock, launcher: Launcher) -> None:
    place.polls_to_ip = 1
    rented(adapter)
    states = []
    for _ in range(14):  # a second passes with each: polls of one machine are twelve seconds apart
        states.append(only(launcher).state)
    assert (states[0], states[-1]) == (S.STARTING, S.RUNNING)
    assert place.count(r"GET /api/v2/instances/.") == 2


def test_what_stops_in_its_first_minutes_has_failed(adapter: Adapter, place: TensorDock, launcher: Launcher) -> None:
    place.status = "creating"
    machine_id = rented(adapter)
    assert only(launcher).state is S.STARTING
    place.machines[machine_id]["status"] = "Stopped_Disassociated"
    assert only(launcher).state is S.FAILED
    with BENCH.pointed_at(place.url) as other:  # a process that did not create it cannot know its age
        assert other.launcher is not None
        assert only(other.launcher).state is S.STOPPED


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("queued", S.STARTING), ("Provisioning", S.STARTING), ("RUNNING", S.RUNNING), ("error", S.FAILED),
        ("stopping", S.FAILED), ("deleting", S.ENDING), ("hibernating", S.UNKNOWN),
    ],
)  # fmt: skip
def test_every_word_of_a_state_is_understood(
    adapter: Adapter, place: TensorDock, launcher: Launcher, status: str, state: InstanceState
) -> None:
    place.machines[rented(adapter)]["status"] = status
    assert (only(launcher).state, only(launcher).status) == (state, status)


def test_a_machine_to_which_no_port_leads_has_none(adapter: Adapter, place: TensorDock, launcher: Launcher) -> None:
    place.ignores_forwards = True
    rented(adapter, ports=("8000",))
    assert (only(launcher).ssh_host is not None, only(launcher).ssh_port) == (True, None)


def test_a_status_that_the_list_leaves_out_is_asked_of_the_machine(
    adapter: Adapter, place: TensorDock, launcher: Launcher
) -> None:
    machine_id = rented(adapter)
    place.fail("GET /api/v2/instances$", 200, {"data": [{"id": machine_id}]})
    found = only(launcher)
    assert (found.label, found.status, found.state) == ("gpuwatch-abc", "running", S.RUNNING)


def test_a_deleted_machine_is_no_instance(adapter: Adapter, place: TensorDock, launcher: Launcher) -> None:
    place.machines[rented(adapter)]["status"] = "Deleted"
    assert list(launcher.list_instances()) == []


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_machine_that_cannot_be_looked_at_makes_no_short_list(
    adapter: Adapter, place: TensorDock, launcher: Launcher
) -> None:
    for number in range(2):
        rented(adapter, label=f"gpuwatch-{number}")
    place.fail(r"GET /api/v2/instances/.", 500, {"error": "oops"}, times=3)
    with pytest.raises(ProviderDown):
        launcher.list_instances()
    assert [instance.label for instance in launcher.list_instances()] == ["gpuwatch-0", "gpuwatch-1"]


def test_a_machine_that_was_seen_keeps_what_it_said_while_it_cannot_be_looked_at(
    adapter: Adapter, place: TensorDock, launcher: Launcher
) -> None:
    machine_id = rented(adapter)
    price = only(launcher).listed_usd_hour
    place.machines[machine_id]["status"] = "stopped"
    place.fail(r"GET /api/v2/instances/.", 500, {"error": "oops"}, times=3)
    found = only(launcher)
    assert (found.state, found.listed_usd_hour) == (S.FAILED, price)


@pytest.mark.parametrize("as_200", [True, False])
def test_a_machine_that_is_listed_and_not_there_is_shown_as_the_list_has_it(
    adapter: Adapter, place: TensorDock, launcher: Launcher, as_200: bool
) -> None:
    machine_id = rented(adapter)
    body = {"error": "Instance not found"}
    place.fail(r"GET /api/v2/instances/.", 200 if as_200 else 404, body | {"status": 404} if as_200 else body)
    found = only(launcher)
    assert (found.instance_id, found.label, found.listed_usd_hour) == (machine_id, "gpuwatch-abc", None)


@pytest.mark.parametrize(
    "body",
    [
        {"data": {"instances": [{"attributes": {"name": "a", "status": "running"}}]}},
        {"data": {"instances": [17]}},
        {"data": [{"id": "a/b", "name": "x", "status": "running"}]},
        {"data": {}},
        {"data": None},
        {"instances": []},
        {"error": "oops"},
        {"error": "Unauthorized", "status": 401},
    ],
)
def test_a_list_with_a_machine_that_is_not_understood_is_no_list(
    launcher: Launcher, place: TensorDock, body: Any
) -> None:
    place.fail("GET /api/v2/instances", 200, body, times=3)
    with pytest.raises(ProviderError):
        launcher.list_instances()


def test_an_error_that_comes_as_http_200_is_no_empty_list_but_a_wrong_key(
    launcher: Launcher, place: TensorDock
) -> None:
    place.fail("GET /api/v2/instances", 200, {"error": "Unauthorized", "status": 401})
    with pytest.raises(KeyRejected):
        launcher.list_instances()


# --- ending -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_200", [True, False])
def test_what_is_gone_already_is_no_error(place: TensorDock, launcher: Launcher, as_200: bool) -> None:
    place.errors_as_200 = as_200
    launcher.destroy("468b716a-0000-4000-8000-000000000009")
    assert place.count("DELETE") == 1


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, b"<html>not found</html>", OrderRefused),
        (200, b"", OutcomeUnknown),
        (200, b"<html>", OutcomeUnknown),
        (200, b'{"error": "Instance is locked", "status": 409}', OrderRefused),
        (200, b'{"error": "oops"}', OutcomeUnknown),
        (502, b"", OutcomeUnknown),
        (200, b'{"error": "VM already terminated", "status": 400}', None),
        (204, b"", None),
    ],
)
def test_what_an_answer_to_a_destroy_means(status: int, body: bytes, error: type[OrderError] | None) -> None:
    answered = serving(lambda request, wire: wire.answer(status, body))
    with answered as server, BENCH.pointed_at(server.url) as adapter:
        assert adapter.launcher is not None
        if error is None:
            adapter.launcher.destroy("abc")
        else:
            with pytest.raises(error):
                adapter.launcher.destroy("abc")
        assert len(server.requests) == 1


def test_an_id_that_would_lead_elsewhere_is_not_sent(place: TensorDock, launcher: Launcher) -> None:
    with pytest.raises(OrderRefused):
        launcher.destroy("../billing")
    assert place.requests == []
