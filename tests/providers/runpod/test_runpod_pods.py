"""RunPod's pods as instances: which run, their cost, which are broken."""

from __future__ import annotations

import copy
import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

from gpuwatch.errors import PayloadChanged, ProviderError
from gpuwatch.ports import Instance, InstanceState
from gpuwatch.providers.runpod.launcher import charges_of, charges_params
from gpuwatch.providers.runpod.pods import RestartDetector, parse_pods
from gpuwatch.testing.suite import case
from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "runpod"
S = InstanceState
NOW = datetime(2026, 6, 2, 12, tzinfo=UTC)
DAY = date(2026, 6, 1)


def a_pod(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = copy.deepcopy(json.loads((RECORDED / "v2-pod-get-200.json").read_bytes()))
    return row | changes


def read(**changes: Any) -> Instance:
    [pod] = parse_pods({"pods": [a_pod(**changes)]})
    return pod.instance


def test_running_is_what_has_a_container_that_is_up() -> None:
    cases: list[Any] = [
        ("PROVISIONING", {}, S.STARTING),
        ("STARTING", None, S.STARTING),
        ("RUNNING", None, S.STARTING),
        ("RUNNING", {}, S.STARTING),
        ("RUNNING", {"uptime": None}, S.STARTING),
        ("RUNNING", {"uptime": -14, "ports": [{"private": 22, "public": 3444}]}, S.STARTING),
        ("RUNNING", {"uptime": 20}, S.STARTING),  # its port 22 is not mapped yet
        ("RUNNING", {"uptime": 20, "ports": [{"private": 22, "public": None}]}, S.STARTING),
        ("RUNNING", {"uptime": 20, "ports": [{"private": 22, "public": 34446}]}, S.RUNNING),
        ("RUNNING", {"uptime": 200}, S.RUNNING),  # no public address: the ports never come
        ("EXITED", {}, S.STOPPED),
        ("ERROR", None, S.FAILED),
        ("HIBERNATING", None, S.UNKNOWN),
    ]
    for status, runtime, state in cases:
        with case((status, runtime, state)):
            assert read(status=status, runtime=runtime).state is state


def test_what_is_terminated_is_no_instance() -> None:
    assert parse_pods({"pods": [a_pod(status="TERMINATED")]}) == []


def test_a_pod_costs_its_rate_and_its_disks_and_stopped_its_volume() -> None:
    reported = read()  # 50 GB of container disk, a volume of 20 GB
    assert reported.listed_usd_hour == pytest.approx(0.44 + 70 * 0.10 / 730)
    assert reported.stopped_usd_hour == pytest.approx(20 * 0.20 / 730)
    stopped = read(status="EXITED", cost=0, mounts={})
    assert (stopped.listed_usd_hour, stopped.stopped_usd_hour) == (None, 0.0)


def test_a_cost_that_is_none_is_not_known() -> None:
    cases: list[Any] = [None, "x", -1, 1e9, {}, True]
    for cost in cases:
        with case(cost):
            assert read(cost=cost).listed_usd_hour is None


def test_use_is_that_of_the_busiest_gpu_if_each_is_reported() -> None:
    cases: list[Any] = [
        (None, None),
        ([], None),
        ([{"util": 3}], None),  # of two
        ([{"util": 3}, {}], None),
        ([{"util": 3}, {"util": 140}], None),
        ([{"util": 0}, {"util": 87}], 87.0),
        ([{"util": 0}, {"util": 0}], 0.0),
    ]
    for gpus, used in cases:
        with case((gpus, used)):
            runtime = {"uptime": 500, "gpus": gpus}
            assert read(runtime=runtime, gpu={"id": "NVIDIA L4", "count": 2}).gpu_utilisation == used


def test_ssh_is_reported_where_it_answers_by_itself() -> None:
    assert (read().ssh_host, read().ssh_port) == ("195.26.233.3", 34446)
    mapped = read(ssh={"proxy": {"host": "ssh.runpod.io", "port": 22}, "direct": None})
    assert (mapped.ssh_host, mapped.ssh_port) == ("195.26.233.3", 34446)
    proxied = read(ssh={"proxy": {"host": "ssh.runpod.io", "port": 22}, "direct": None}, runtime={"uptime": 500})
    assert (proxied.ssh_host, proxied.ssh_port) == (None, None)


def test_the_label_is_the_name_as_it_was_sent() -> None:
    reported = read(name="gpuwatch-abc")
    assert (reported.label, reported.gpu, reported.gpu_count) == ("gpuwatch-abc", "RTX 4090", 1)
    assert reported.machine_id == "NVIDIA GeForce RTX 4090/SECURE/US-KS-2"
    assert reported.started_at == datetime(2026, 6, 1, 12, 2, tzinfo=UTC)


def test_a_pod_that_is_not_understood_spoils_the_list() -> None:
    cases: list[Any] = [None, 17, {}, {"id": "a"}, {"id": "../a", "status": "RUNNING"}, {"id": 5, "status": "x"}]
    for row in cases:
        with case(row), pytest.raises(PayloadChanged):
            parse_pods({"pods": [a_pod(), row]})


def test_a_list_that_hints_at_more_pages_is_not_whole() -> None:
    cases: list[Any] = [{"nextToken": "x"}, {"next": "/v2/pods?page=2"}, {"hasMore": True}, {"total": 2}]
    for more in cases:
        with case(more):
            with pytest.raises(ProviderError, match="incomplete"):
                parse_pods({"pods": [a_pod()]} | more)
            assert len(parse_pods({"pods": [a_pod()], "nextToken": None, "total": 1})) == 1


# --- restarts ---


def looked(restarts: RestartDetector, at_s: float, uptime: float | None, **changes: Any) -> InstanceState:
    runtime = {} if uptime is None else {"uptime": uptime, "ports": [{"private": 22, "public": 34446}]}
    [instance] = restarts.update(parse_pods({"pods": [a_pod(runtime=runtime, **changes)]}), at_s)
    return instance.state


def test_a_container_that_never_lives_long_is_a_failure() -> None:
    restarts = RestartDetector()
    states = [
        looked(restarts, at_s, uptime)
        for at_s, uptime in [(0, 7), (60, -14), (120, None), (170, 3), (179, 2), (181, 7)]
    ]
    assert states == [S.RUNNING, S.STARTING, S.STARTING, S.RUNNING, S.RUNNING, S.FAILED]


def test_an_uptime_that_is_reported_late_is_no_failure_until_it_stands_still_for_long() -> None:
    restarts = RestartDetector()
    looks = [(0, 5), (100, 5), (190, 5), (300, 60), (599, 61), (601, 62)]
    assert [looked(restarts, at_s, uptime) for at_s, uptime in looks] == [S.RUNNING] * 5 + [S.FAILED]


def test_a_healthy_container_grows_out_of_suspicion() -> None:
    restarts = RestartDetector()
    for at_s, uptime in [(0, 5), (60, 60), (110, 95), (200, 185)]:
        assert looked(restarts, at_s, uptime) is S.RUNNING
    for at_s, uptime in [(210, 3), (380, 80), (395, 88), (400, 92)]:  # one restart, by its owner
        assert looked(restarts, at_s, uptime) is S.RUNNING


def test_a_pod_that_was_stopped_begins_anew() -> None:
    restarts = RestartDetector()
    looked(restarts, 0, 5)
    assert looked(restarts, 100, None, status="EXITED") is S.STOPPED
    assert looked(restarts, 300, 5) is S.RUNNING


# --- charges ---


def a_record(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((RECORDED / "v2-billing-pods-200.json").read_bytes())["records"][0]
    return row | changes


def test_charges_come_by_pod_day_and_kind() -> None:
    assert charges_params(DAY, date(2026, 6, 2)) == {
        "bucketSize": "day", "startTime": "2026-06-01T00:00:00Z", "endTime": "2026-06-03T00:00:00Z",
    }  # fmt: skip
    found = charges_of({"records": [a_record(), a_record(totalAmount=13.34)]}, DAY, DAY, NOW)
    assert [(one.kind, one.usd, one.final) for one in found] == [
        ("disk", 2.48, True), ("gpu", 22.2, True), ("other", 1.0, True),
    ]  # fmt: skip


def test_a_day_that_was_not_asked_for_is_left_out_and_today_is_not_final() -> None:
    today = a_record(startTime="2026-06-02T00:00:00Z", endTime="2026-06-03T00:00:00Z")
    found = charges_of({"records": [a_record(), today]}, date(2026, 6, 2), date(2026, 6, 2), NOW)
    assert {(one.day, one.final) for one in found} == {(date(2026, 6, 2), False)}


def test_a_charge_that_is_not_understood_is_an_error() -> None:
    cases: list[Any] = [
        {"podId": None}, {"totalAmount": -1}, {"totalAmount": None}, {"gpuAmount": "x"}, {"startTime": "yesterday"},
        {"endTime": "2026-06-08T00:00:00Z"}, {"endTime": "2026-06-01T00:00:00Z"}, {"startTime": "2026-06-01T00:00:00"},
    ]  # fmt: skip
    for changes in cases:
        with case(changes), pytest.raises(PayloadChanged):
            charges_of({"records": [a_record(**changes)]}, DAY, DAY, NOW)


def test_a_list_of_charges_that_is_short_is_an_error() -> None:
    with pytest.raises(ProviderError, match="incomplete"):
        charges_of({"records": [a_record()], "metadata": {"recordCount": 2}}, DAY, DAY, NOW)
