"""Lambda's launcher, with its emulator: what takes several requests, and its rows."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.errors import OfferGone, OrderRateLimited, OrderRefused, PayloadChanged, RefusalKind
from gpuwatch.ports import InstanceState, Launcher, Order, ProviderSettings, Query
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.testing.suite import case
from tests.clocks import Clock
from tests.clouds.lambda_cloud import LambdaCloud
from tests.providers.clouds import cloud

BENCH = import_module("tests.providers.lambda.bench").BENCH
OFFER = "gpu_1x_h100_sxm5/us-east-1"


@contextmanager
def at(place: LambdaCloud, clock: Clock, **options: Any) -> Iterator[providers.Adapter]:
    http = PooledHttpClient()
    settings = ProviderSettings(
        name="lambda",
        base_url=place.url,
        api_key=place.key,
        search_interval_s=0.0,
        options={"ssh_key": "my-key"} | options,
    )
    now = datetime(2026, 11, 21, tzinfo=UTC)
    yield providers.build(settings, http, lambda: now, clock, clock.sleep)
    http.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def place(clock: Clock) -> Iterator[LambdaCloud]:
    with LambdaCloud(clock=clock, boots_s=180.0, ends_s=60.0) as place:
        yield place


@pytest.fixture
def launcher(place: LambdaCloud, clock: Clock) -> Iterator[Launcher]:
    with at(place, clock) as adapter:
        assert adapter.launcher is not None
        yield adapter.launcher


def an_order(offer_id: str = OFFER, **values: Any) -> Order:
    return Order(**({"offer_id": offer_id, "label": "gpuwatch-abc", "image": "x/y", "disk_gb": 20.0} | values))


def sent(place: LambdaCloud) -> Any:
    return next(request for request in reversed(place.requests) if request.method == "POST").body()


def test_it_boots_without_an_address_runs_ends_and_is_gone(
    place: LambdaCloud, launcher: Launcher, clock: Clock
) -> None:
    made = launcher.create(an_order())
    [booting] = launcher.list_instances()
    assert (booting.state, booting.ssh_host, booting.listed_usd_hour) == (InstanceState.STARTING, None, 4.29)
    clock.sleep(180)
    [running] = launcher.list_instances()
    assert (running.state, running.ssh_host, running.ssh_port) == (InstanceState.RUNNING, "198.51.100.1", 22)
    assert running.ssh_user == "ubuntu"
    assert (running.gpu, running.gpu_count, running.label) == ("H100 SXM", 1, "gpuwatch-abc")
    launcher.destroy(made.instance_id)
    assert [instance.status for instance in launcher.list_instances()] == ["terminating"]
    launcher.destroy(made.instance_id)  # the list shows that the end is in progress
    assert place.count("POST .*terminate") == 1
    clock.sleep(60)
    assert list(launcher.list_instances()) == []  # still answered, as terminated
    clock.sleep(60)
    launcher.destroy(made.instance_id)


def test_active_without_an_address_is_not_yet_running() -> None:
    row = {"id": "1f", "status": "active", "name": "x"}
    [found] = cloud("lambda").parse_instances([row])
    assert (found.state, found.label, found.listed_usd_hour) == (InstanceState.STARTING, "x", None)


def test_an_unhealthy_machine_is_offline_and_billed_as_before(
    place: LambdaCloud, launcher: Launcher, clock: Clock
) -> None:
    made = launcher.create(an_order())
    clock.sleep(180)
    place.sicken(made.instance_id)
    [sick] = launcher.list_instances()
    assert (sick.state, sick.stopped_usd_hour) == (InstanceState.OFFLINE, 4.29)


def test_the_token_of_its_notebook_is_never_kept(launcher: Launcher, clock: Clock) -> None:
    launcher.create(an_order())
    clock.sleep(180)
    assert "not-for-anybody" not in repr(launcher.list_instances())


def test_a_type_that_came_to_its_end_is_the_next_candidates_turn_and_a_wrong_key_is_not(
    place: LambdaCloud, launcher: Launcher, clock: Clock
) -> None:
    del place.kinds["gpu_1x_h100_sxm5"]
    with pytest.raises(OfferGone):
        launcher.create(an_order())
    with at(place, clock, ssh_key="another") as adapter:
        assert adapter.launcher is not None
        with pytest.raises(OrderRefused) as refused:
            adapter.launcher.create(an_order("gpu_1x_a10/us-west-1"))
    assert refused.value.kind is RefusalKind.BAD_ORDER


def test_a_key_as_the_user_of_http_basic_is_taken_by_the_emulator(place: LambdaCloud) -> None:
    for key, status in (("demo-key", 200), ("another", 401)):
        reported = {"Authorization": f"Basic {b64encode(f'{key}:'.encode()).decode()}"}
        http = PooledHttpClient()
        assert http.ask("GET", f"{place.url}/api/v1/instances", headers=reported).status == status
        http.close()


def test_the_limits_are_kept_over_everything_that_is_asked(clock: Clock) -> None:
    """The emulator answers 429 to requests faster than the vendor allows."""
    with LambdaCloud(clock=clock, strict=True) as place, at(place, clock) as adapter:
        assert adapter.launcher is not None
        began = clock()
        made = []
        for number in range(3):
            adapter.market.search(Query())
            made.append(adapter.launcher.create(an_order(label=f"gpuwatch-{number}")))
            adapter.launcher.list_instances()
        for one in made:
            adapter.launcher.destroy(one.instance_id)
        assert 24.0 <= clock() - began <= 33.0
        assert place.count("POST .*launch") == 3


def test_a_burst_over_candidates_keeps_the_distance_of_launches(clock: Clock) -> None:
    with LambdaCloud(clock=clock, strict=True) as place, at(place, clock) as adapter:
        assert adapter.launcher is not None
        sent_at = []
        for offer in adapter.market.search(Query(gpus=("H100 SXM",), count_max=1)).offers:
            place.sell_out(offer.offer_id)
            with pytest.raises(OfferGone):
                adapter.launcher.create(an_order(offer.offer_id))
            sent_at.append(clock())
    assert all(12.0 <= later - before <= 14.0 for before, later in pairwise(sent_at))
    assert len(sent_at) == 3


def test_too_many_launches_are_reported_with_the_time_to_wait(clock: Clock) -> None:
    with LambdaCloud(clock=clock, strict=True) as place, at(place, clock) as one, at(place, clock) as another:
        assert one.launcher is not None
        assert another.launcher is not None  # another process with the same key
        one.launcher.create(an_order())
        clock.sleep(2)
        with pytest.raises(OrderRateLimited) as limited:
            another.launcher.create(an_order())
        assert limited.value.retry_after_s == 12.0


def test_a_list_with_a_row_that_is_none_is_no_list() -> None:
    lambda_cloud = cloud("lambda")
    for row in ({"status": "active"}, {"id": "1"}, {"id": "", "status": "active"}, None, {"id": 1, "status": []}):
        with pytest.raises(PayloadChanged):
            lambda_cloud.parse_instances(lambda_cloud.rows_of({"data": [row]}))


def test_name_and_tag_may_disagree_ours_is_the_label() -> None:
    cases: list[Any] = [
        ([{"key": "gpuwatch", "value": "prod"}], "gpuwatch-abcdefgh2345", "gpuwatch-abcdefgh2345"),
        ([{"key": "gpuwatch", "value": "gpuwatch-abcdefgh2345"}], "renamed", "gpuwatch-abcdefgh2345"),
        ([{"key": "gpuwatch", "value": "prod"}], "mine", "mine"),
        ([], None, None),
    ]
    for tags, name, label in cases:
        with case((tags, name, label)):
            row = {"id": "1", "status": "active", "tags": tags, "name": name}
            [found] = cloud("lambda").parse_instances([row])
            assert found.label == label
