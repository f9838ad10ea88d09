"""gRPC faults at the Nebius adapter: statuses, lost connections, invalid messages."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpuwatch.errors import (
    KeyRejected,
    OrderError,
    OrderRefused,
    PayloadChanged,
    ProviderDown,
    ProviderError,
    ProviderUnreachable,
    RateLimited,
    RefusalKind,
)
from gpuwatch.ports import Order, Query
from gpuwatch.providers.nebius.client import ordering_error, reading_error
from gpuwatch.testing.invariants import answer_problems
from tests.late import LateModule
from tests.providers.nebius.bench import BENCH

if TYPE_CHECKING:
    from tests.clouds.grpc_relay import GrpcRelay
    from tests.clouds.nebius import Nebius

cloud, relays, grpc = LateModule("tests.clouds.nebius"), LateModule("tests.clouds.grpc_relay"), LateModule("grpc")

OFFER = "gpu-h100-sxm/1gpu-16vcpu-200gb/eu-north1"
STATUSES = [
    ("UNAUTHENTICATED", KeyRejected),
    ("PERMISSION_DENIED", KeyRejected),
    ("RESOURCE_EXHAUSTED", RateLimited),
    ("UNAVAILABLE", ProviderDown),
    ("DEADLINE_EXCEEDED", ProviderDown),
    ("INTERNAL", ProviderDown),
    ("UNIMPLEMENTED", PayloadChanged),
    ("INVALID_ARGUMENT", PayloadChanged),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Nebius]:
    with cloud.Nebius() as place:
        yield place


@pytest.fixture
def relay(place: Nebius) -> Iterator[GrpcRelay]:
    with relays.relaying_grpc(place.url) as relay:
        yield relay


@pytest.mark.parametrize(("code", "error"), STATUSES)
def test_every_status_has_its_own_error(place: Nebius, code: str, error: type[ProviderError]) -> None:
    for _ in range(3):  # as often as a read is sent
        place.fail("ResourceAdviceService", grpc.StatusCode[code], "key demo-key is\nwrong")
    try:
        with BENCH.pointed_at(place.url) as adapter, pytest.raises(error) as caught:
            adapter.market.search(Query())
    finally:
        place.forget_failures()
    assert str(caught.value).startswith("nebius: ")
    assert "demo-key" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_without_an_address_is_unreachable_and_nothing_was_sent() -> None:
    error = Exception()
    text = (
        "errors resolving api.nebius.cloud:443: [field:hostname lookup error:address lookup failed]"  # as gRPC says it
    )
    error.status = SimpleNamespace(code=grpc.StatusCode.UNAVAILABLE, message=text)  # type: ignore[attr-defined]
    assert isinstance(reading_error(error), ProviderUnreachable)
    refused = ordering_error(error)
    assert isinstance(refused, OrderRefused)
    assert refused.kind is RefusalKind.NOT_SENT


def test_a_server_without_a_connection_is_unreachable_at_once() -> None:
    with BENCH.pointed_at("http://127.0.0.1:1") as adapter, pytest.raises(ProviderUnreachable):
        adapter.market.search(Query())


def test_a_silent_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with BENCH.pointed_at(url, timeout_s=0.3) as adapter, pytest.raises(ProviderDown):
            adapter.market.search(Query())


@pytest.mark.parametrize("body", [b"<html>", b"null", b"[" * 100_000, b"\xff" * 64])
def test_bytes_that_are_no_message_are_never_a_market_or_an_account_without_anything(
    relay: GrpcRelay, body: bytes
) -> None:
    with BENCH.pointed_at(relay.url) as adapter:
        assert adapter.launcher is not None
        relay.fail("ResourceAdviceService|InstanceService/List", 200, body)
        with pytest.raises(PayloadChanged):
            adapter.market.search(Query())
        with pytest.raises(ProviderError):
            adapter.launcher.list_instances()


def test_spoiled_bytes_are_refused_or_sound(relay: GrpcRelay) -> None:
    refused = 0
    for seed in range(24):
        draw = random.Random(seed)

        def corrupt(body: bytes, draw: random.Random = draw) -> bytes:
            spoiled = bytearray(body)
            if draw.random() < 0.1:
                spoiled[draw.randrange(len(body))] = draw.randrange(256)
            return bytes(spoiled)

        relay.requests.clear()
        relay.corrupt = corrupt
        with BENCH.pointed_at(relay.url) as adapter:
            try:
                answer = adapter.market.search(Query(spot=seed % 2 == 0))
            except ProviderError:
                refused += 1
                continue
        assert answer_problems(answer, BENCH.info) == [], f"seed {seed}"
    assert 0 < refused < 24


def test_a_field_that_the_sdk_does_not_know_is_skipped_and_loads_no_other_part_of_it(relay: GrpcRelay) -> None:
    unknown = b"\xf8\x7f\x01"  # field 2047, a number: 1
    relay.corrupt = lambda body: body + unknown
    with BENCH.pointed_at(relay.url) as adapter:
        assert adapter.market.search(Query()).offers
    assert [name for name in sys.modules if name.startswith("nebius.api.nebius.mk8s")] == []


def test_an_order_whose_answer_is_no_message_may_have_been_carried_out(relay: GrpcRelay) -> None:
    relay.fail(BENCH.creates, 200, b"<html>")
    order = Order(offer_id=OFFER, label="gpuwatch-x", image="x", disk_gb=50.0, env={"TOKEN": "s3cr3t-value"})
    with BENCH.pointed_at(relay.url) as adapter:
        assert adapter.launcher is not None
        with pytest.raises(OrderError) as caught:
            adapter.launcher.create(order)
    assert type(caught.value).__name__ == "OutcomeUnknown"
    assert "s3cr3t" not in str(caught.value)
