"""Verda's launcher, with its emulator: what the conformance suites do not cover."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gpuwatch.errors import KeyRejected, OfferGone, OrderRefused, OutcomeUnknown, RefusalKind
from gpuwatch.ports import InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.testing.relay import relaying
from tests.clouds.verda import NVME_USD_GB_MONTH, SSH_KEY, Verda
from tests.providers.verda.bench import BENCH

LABEL = "gpuwatch-abcdefgh2345"


@pytest.fixture
def place() -> Iterator[Verda]:
    with Verda() as place:
        yield place


@pytest.fixture
def adapter(place: Verda) -> Iterator[Adapter]:
    with BENCH.pointed_at(place.url) as adapter:
        yield adapter


def order(offer_id: str = "1H100.80S.30V/FIN-03", **values: Any) -> Order:
    plain: dict[str, Any] = {"offer_id": offer_id, "label": LABEL, "image": "x/y", "disk_gb": 50.0}
    return Order(**(plain | values))


def launcher(adapter: Adapter) -> Any:
    assert adapter.launcher is not None
    return adapter.launcher


# --- offers -----------------------------------------------------------------------------------------------------------


def test_only_what_is_free_somewhere_is_an_offer(adapter: Adapter) -> None:
    demand = {offer.offer_id for offer in adapter.market.search(Query()).offers}
    spot = {offer.offer_id for offer in adapter.market.search(Query(spot=True)).offers}
    assert "8H100.80S.176V/FIN-03" in demand
    assert "8H100.80S.176V/FIN-03/spot" not in spot
    assert "1A100.22V/ICE-01/spot" in spot
    assert "1A100.22V/ICE-01" not in demand
    assert not any(one.startswith(("1B300", "CPU")) for one in demand | spot)


def test_a_price_includes_the_smallest_system_disk(adapter: Adapter) -> None:
    [found] = [offer for offer in adapter.market.search(Query()).offers if offer.offer_id == "1H100.80S.30V/FIN-03"]
    assert found.quoted_usd_hour == pytest.approx(2.29 + NVME_USD_GB_MONTH * 50 / 720)
    assert (found.quoted_disk_gb, found.disk_usd_gb_month, found.terms.least_disk_gb) == (50.0, 0.2, 50.0)
    assert (found.country, found.region) == ("FI", "FIN-03")


def test_stock_of_one_place_that_cannot_be_read_makes_the_answer_a_part(place: Verda) -> None:
    with relaying(place.url) as relay, BENCH.pointed_at(relay.url) as adapter:
        body = b'[{"location_code": "FIN-03", "availabilities": ["1H100.80S.30V"]}, {"location_code": 7}]'
        relay.fail("instance-availability", 200, body)
        answer = adapter.market.search(Query())
    assert [offer.offer_id for offer in answer.offers] == ["1H100.80S.30V/FIN-03"]
    assert answer.completeness.value == "partial"


# --- signing in -------------------------------------------------------------------------------------------------------


def test_one_token_serves_until_it_is_old(place: Verda, adapter: Adapter) -> None:
    adapter.market.search(Query())
    launcher(adapter).list_instances()
    assert place.count("POST /.*token") == 1


def test_a_token_that_ends_early_is_replaced_once(place: Verda, adapter: Adapter) -> None:
    launcher(adapter).list_instances()
    place.revoke_tokens()
    assert launcher(adapter).list_instances() == []
    assert place.count("POST /.*token") == 2


def test_an_order_with_a_token_that_ended_is_refused_and_sent_once(place: Verda, adapter: Adapter) -> None:
    launcher(adapter).list_instances()
    place.revoke_tokens()
    with pytest.raises(OrderRefused) as refused:
        launcher(adapter).create(order())
    assert refused.value.kind is RefusalKind.KEY
    assert place.count("POST /instances") == 1
    assert launcher(adapter).create(order()).instance_id in place.machines


def test_half_of_the_credentials_is_no_key(place: Verda) -> None:
    half = msgspec.structs.replace(BENCH, options={"ssh_key": SSH_KEY})
    with half.pointed_at(place.url) as adapter, pytest.raises(KeyRejected, match="client_id"):
        adapter.market.search(Query())
    assert place.requests == []


# --- renting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted_gb", "ordered_gb"), [(0.0, 50), (50.0, 50), (120.5, 121), (500.0, 500)])
def test_the_disk_that_was_priced_is_the_disk_that_is_ordered(
    place: Verda, adapter: Adapter, wanted_gb: float, ordered_gb: int
) -> None:
    launcher(adapter).create(order(disk_gb=wanted_gb))
    [volume] = place.volumes.values()
    assert volume["size"] == ordered_gb


def test_the_disk_and_the_start_script_end_with_the_instance(place: Verda, adapter: Adapter) -> None:
    made = launcher(adapter).create(order(onstart="echo hello", env={"TOKEN": "s3cr3t-value"}))
    assert len(place.volumes) == len(place.scripts) == 1
    launcher(adapter).destroy(made.instance_id)
    assert place.volumes == {}
    assert place.scripts == {}


def test_the_start_script_ends_with_the_next_request_if_the_answer_to_the_first_is_lost(
    place: Verda, adapter: Adapter
) -> None:
    made = launcher(adapter).create(order(onstart="echo hello"))
    launcher(adapter).list_instances()
    place.fail("PUT /instances", None, carried_out=True)
    with pytest.raises(OutcomeUnknown):
        launcher(adapter).destroy(made.instance_id)
    launcher(adapter).destroy(made.instance_id)
    assert place.scripts == {}


def test_the_disk_ends_too_when_nothing_was_listed_since(place: Verda) -> None:
    with BENCH.pointed_at(place.url) as first:
        made = launcher(first).create(order())
    with BENCH.pointed_at(place.url) as second:
        launcher(second).destroy(made.instance_id)
    assert place.volumes == {}


def test_a_spot_disk_dies_with_its_instance(place: Verda) -> None:
    with relaying(place.url) as relay, BENCH.pointed_at(relay.url) as adapter:
        launcher(adapter).create(order("1H100.80S.30V/FIN-02/spot", bid_usd_hour=0.9))
        assert relay.count(r'^POST /instances .*"on_spot_discontinue":\s?"delete_permanently"') == 1
        assert relay.count(r'^POST /instances .*"is_spot":\s?true') == 1
    [machine] = place.machines.values()
    assert machine["is_spot"] is True


def test_an_offer_of_the_other_rental_type_is_refused(place: Verda, adapter: Adapter) -> None:
    for wrong in (order("1H100.80S.30V/FIN-02/spot"), order(bid_usd_hour=0.9)):
        with pytest.raises(OrderRefused) as refused:
            launcher(adapter).create(wrong)
        assert refused.value.kind is RefusalKind.BAD_ORDER
    assert place.machines == {}


def test_no_stock_is_a_503_that_says_so_and_leaves_no_script(place: Verda, adapter: Adapter) -> None:
    place.sell_out("1H100.80S.30V/FIN-03")
    with pytest.raises(OfferGone, match="Not enough resources"):
        launcher(adapter).create(order(onstart="echo hello"))
    assert place.scripts == {}


def test_without_a_start_script_stored_nothing_is_rented(place: Verda, adapter: Adapter) -> None:
    place.fail("POST /scripts", 500)
    with pytest.raises(OrderRefused, match="nothing was rented"):
        launcher(adapter).create(order(onstart="echo hello"))
    assert place.machines == {}


def test_an_older_gpu_gets_the_image_that_fits_it(place: Verda, adapter: Adapter) -> None:
    made = launcher(adapter).create(order("1V100.6V/FIN-01"))
    assert place.machines[made.instance_id]["image"] == "2088da25-bb0d-41cc-a191-dccae45d96fd"


def test_what_is_still_provisioning_cannot_be_ended_and_says_so() -> None:
    now = [1_795_262_400.0]
    with Verda(boots_s=120.0, clock=lambda: now[0]) as place, BENCH.pointed_at(place.url) as adapter:
        made = launcher(adapter).create(order())
        [listed] = launcher(adapter).list_instances()
        assert (listed.state, listed.ssh_host) == (InstanceState.STARTING, None)
        with pytest.raises(OrderRefused, match="provisioning"):
            launcher(adapter).destroy(made.instance_id)
        now[0] += 121.0
        launcher(adapter).destroy(made.instance_id)
        assert launcher(adapter).list_instances() == []


def test_the_balance_is_the_credit(adapter: Adapter) -> None:
    assert launcher(adapter).credit_usd() == 100.0
