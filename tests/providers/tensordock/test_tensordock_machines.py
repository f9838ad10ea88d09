"""TensorDock's machines: their state, and their list, which is an answer for each."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
import respx

from gpuwatch.errors import KeyRejected, ProviderDown, ProviderError
from gpuwatch.ports import Instance, InstanceState, Launcher
from gpuwatch.providers.tensordock import INFO
from tests.providers.tensordock.stand_in import BENCH, order, recorded
from tests.sent_requests import sent

S = InstanceState
pytestmark = pytest.mark.respx(base_url=f"{INFO.base_url}/api/v2")
FLAT = recorded("v2-instance-get-flat-live")
WRAPPED = recorded("v2-instance-get-wrapped-client-test")
ID = FLAT["id"]


def listed(respx_mock: respx.MockRouter, *rows: dict[str, Any]) -> respx.Route:
    """Route the list. Rows have an id, a name and a status."""
    return respx_mock.get("/instances").respond(json={"data": list(rows)})


def row(**changes: Any) -> dict[str, Any]:
    return {key: FLAT[key] for key in ("id", "name", "status")} | changes


def only(launcher: Launcher) -> Instance:
    [found] = launcher.list_instances()
    return found


# --- a machine's fields -----------------------------------------------------------------------------------------------


def test_the_list_has_the_names_and_each_machine_its_own_answer(
    respx_mock: respx.MockRouter, launcher: Launcher
) -> None:
    listed(respx_mock, row())
    respx_mock.get(f"/instances/{ID}").respond(json=FLAT)
    found = only(launcher)
    assert sent(respx_mock.calls) == [("GET", "/api/v2/instances", None), ("GET", f"/api/v2/instances/{ID}", None)]
    assert {call.request.headers["authorization"] for call in respx_mock.calls} == {"Bearer demo-key"}
    assert (found.instance_id, found.label, found.state) == (ID, "shopper-ssh-test-1234", S.RUNNING)
    assert (found.ssh_host, found.ssh_port, found.ssh_user) == ("174.94.145.71", 20456, "user")  # 22 was requested
    assert found.listed_usd_hour == 0.272999


@pytest.mark.parametrize("is_flat", [False, True])
@pytest.mark.parametrize(
    "machine", [WRAPPED, WRAPPED["data"], {"data": {"attributes": WRAPPED["data"], "id": "inst_123"}}]
)
def test_a_machine_is_understood_in_every_shape(
    respx_mock: respx.MockRouter, launcher: Launcher, is_flat: bool, machine: Any
) -> None:
    flat = {"id": "inst_123", "name": "gpu-worker-1", "status": "running"}
    nested = {"instances": [{"id": "inst_123", "attributes": {"name": "gpu-worker-1", "status": "running"}}]}
    respx_mock.get("/instances").respond(json={"data": [flat] if is_flat else nested})
    respx_mock.get("/instances/inst_123").respond(json=machine)
    found = only(launcher)
    assert (found.label, found.state, found.gpu, found.gpu_count) == ("gpu-worker-1", S.RUNNING, "RTX 4090", 1)
    assert (found.disk_gb, found.listed_usd_hour, found.ssh_port) == (200, 1.25, 22022)


def test_a_machine_runs_when_it_has_its_address(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    listed(respx_mock, row())
    shown = respx_mock.get(f"/instances/{ID}")
    shown.side_effect = [httpx.Response(200, json=FLAT | {"ipAddress": ""}), httpx.Response(200, json=FLAT)]
    states = [only(launcher).state for _ in range(14)]  # a second passes with each: polls of one are twelve apart
    assert (states[0], states[-1], shown.call_count) == (S.STARTING, S.RUNNING, 2)


def test_what_stops_in_its_first_minutes_has_failed(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    respx_mock.post("/instances").respond(json=recorded("v2-instance-create-response-live"))
    launcher.create(order())
    shown = respx_mock.get(f"/instances/{ID}").respond(json=FLAT)
    for status, state in (("creating", S.STARTING), ("Stopped_Disassociated", S.FAILED)):
        listed(respx_mock, row(status=status))
        assert only(launcher).state is state
    with BENCH.pointed_at(INFO.base_url) as other:  # a process that did not create it cannot know its age
        assert other.launcher is not None
        assert only(other.launcher).state is S.STOPPED
    assert shown.call_count == 3  # the list told another status each time


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("queued", S.STARTING), ("Provisioning", S.STARTING), ("RUNNING", S.RUNNING), ("error", S.FAILED),
        ("stopping", S.STOPPED), ("deleting", S.ENDING), ("hibernating", S.UNKNOWN),
    ],
)  # fmt: skip
def test_every_word_of_a_state_is_understood(
    respx_mock: respx.MockRouter, launcher: Launcher, status: str, state: InstanceState
) -> None:
    respx_mock.get(f"/instances/{ID}").respond(json=FLAT | {"status": status, "a new field": 1})
    found = launcher.get(ID)  # type: ignore[attr-defined]
    assert (found.state, found.status) == (state, status)


@pytest.mark.parametrize("forwards", [[], None, [{"internal_port": 8000, "external_port": 20000}]])
def test_a_machine_to_which_no_port_leads_has_none(
    respx_mock: respx.MockRouter, launcher: Launcher, forwards: Any
) -> None:
    listed(respx_mock, row())
    respx_mock.get(f"/instances/{ID}").respond(json=FLAT | {"portForwards": forwards})
    assert (only(launcher).ssh_host, only(launcher).ssh_port) == ("174.94.145.71", None)


def test_a_status_that_the_list_leaves_out_is_asked_of_the_machine(
    respx_mock: respx.MockRouter, launcher: Launcher
) -> None:
    listed(respx_mock, {"id": ID})
    respx_mock.get(f"/instances/{ID}").respond(json=FLAT)
    found = only(launcher)
    assert (found.label, found.status, found.state) == ("shopper-ssh-test-1234", "running", S.RUNNING)


def test_a_deleted_machine_is_no_instance(respx_mock: respx.MockRouter, launcher: Launcher) -> None:
    listed(respx_mock, row(status="Deleted"))
    assert list(launcher.list_instances()) == []


# --- lists ------------------------------------------------------------------------------------------------------------


def test_a_machine_that_cannot_be_looked_at_makes_no_short_list(
    respx_mock: respx.MockRouter, launcher: Launcher
) -> None:
    listed(respx_mock, row(id="a"), row(id="b"))
    respx_mock.get("/instances/a").respond(json=FLAT | {"id": "a"})
    respx_mock.get("/instances/b").respond(500)
    with pytest.raises(ProviderDown):
        launcher.list_instances()


def test_a_machine_that_was_seen_keeps_what_it_said_while_it_cannot_be_looked_at(
    respx_mock: respx.MockRouter, launcher: Launcher
) -> None:
    shown = respx_mock.get(f"/instances/{ID}").respond(json=FLAT)
    listed(respx_mock, row())
    assert only(launcher).listed_usd_hour == 0.272999
    shown.respond(500)
    listed(respx_mock, row(status="stopped"))
    assert (only(launcher).state, only(launcher).listed_usd_hour) == (S.STOPPED, 0.272999)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(404, json={"error": "Instance not found"}),
        httpx.Response(200, json={"error": "Instance not found", "status": 404}),
    ],
)
def test_a_machine_that_is_listed_and_not_there_is_shown_as_the_list_has_it(
    respx_mock: respx.MockRouter, launcher: Any, answer: httpx.Response
) -> None:
    listed(respx_mock, row())
    respx_mock.get(f"/instances/{ID}").mock(return_value=answer)
    found = only(launcher)
    assert (found.instance_id, found.label, found.listed_usd_hour) == (ID, "shopper-ssh-test-1234", None)
    assert launcher.get(ID) is None


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"data": {"instances": [{"attributes": {"name": "a", "status": "running"}}]}}, ProviderError),
        ({"data": {"instances": [17]}}, ProviderError),
        ({"data": [{"id": "a/b", "name": "x", "status": "running"}]}, ProviderError),
        ({"data": {}}, ProviderError),
        ({"data": None}, ProviderError),
        ({"instances": []}, ProviderError),
        ({"error": "oops"}, ProviderError),
        ({"error": "Unauthorized", "status": 401}, KeyRejected),
    ],
)
def test_a_list_with_a_machine_that_is_not_understood_is_no_list(
    respx_mock: respx.MockRouter, launcher: Launcher, body: Any, error: type[ProviderError]
) -> None:
    respx_mock.get("/instances").respond(json=body)
    with pytest.raises(error):
        launcher.list_instances()


@pytest.mark.parametrize("answer", [FLAT | {"id": "another"}, FLAT | {"status": None}, {"id": ID, "status": "running"}])
def test_an_answer_about_another_machine_or_half_of_one_is_none(
    respx_mock: respx.MockRouter, launcher: Any, answer: Any
) -> None:
    respx_mock.get(f"/instances/{ID}").respond(json=answer)
    with pytest.raises(ProviderError):
        launcher.get(ID)
