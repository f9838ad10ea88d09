"""What every provider's search side keeps to."""

from __future__ import annotations

from typing import Any

import pytest
from benches import BENCHES
from loopback_http import serving

from gpuwatch import providers
from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderDown, ProviderError, RateLimited
from gpuwatch.ports import Completeness, Query

each_provider = pytest.mark.parametrize("bench", BENCHES.values(), ids=list(BENCHES))
KEYLESS = {name: bench for name, bench in BENCHES.items() if providers.info(name).searches_without_key}
keyless = pytest.mark.parametrize("bench", KEYLESS.values(), ids=list(KEYLESS))
Bench = dict[str, Any]


def test_every_provider_has_a_bench() -> None:
    assert set(BENCHES) == set(providers.names())


@pytest.mark.parametrize("name", providers.names())
def test_every_provider_tells_its_name_and_address(name: str) -> None:
    info = providers.info(name)
    assert info.name == name
    assert info.base_url.startswith("https://")
    assert not info.base_url.endswith("/")


@each_provider
@pytest.mark.parametrize("spot", [False, True])
def test_offers_are_whole_unique_and_in_order(bench: Bench, spot: bool) -> None:
    with bench["marketplace"]() as place, bench["pointed_at"](place.url) as adapter:
        answer = adapter.market.search(Query(spot=spot))
        assert answer.provider == adapter.name == adapter.market.name
        assert answer.completeness is Completeness.COMPLETE
        assert len(answer.offers) > 50
        assert len({offer.identity for offer in answer.offers}) == len(answer.offers)
        prices = [offer.quoted_usd_hour for offer in answer.offers]
        assert prices == sorted(prices)
        for offer in answer.offers:
            assert offer.provider == adapter.name
            assert offer.spot is spot
            assert offer.quoted_usd_hour > 0
            assert offer.gpu_count >= 1
            assert offer.gpu
            assert offer.gpu_family
            assert offer.observed_at == answer.observed_at == bench["NOW"]
            assert offer.country is None or len(offer.country) == 2


@each_provider
def test_a_question_narrows_the_answer(bench: Bench) -> None:
    with bench["marketplace"]() as place, bench["pointed_at"](place.url) as adapter:
        everything = adapter.market.search(Query(gpus=(bench["GPU"],)))
        assert {offer.gpu for offer in everything.offers} == {bench["GPU"]}
        middle = everything.offers[len(everything.offers) // 2].quoted_usd_hour
        cheap = adapter.market.search(Query(gpus=(bench["GPU"],), max_listed_usd_hour=middle))
        assert [o.offer_id for o in cheap.offers] == [
            o.offer_id for o in everything.offers if o.quoted_usd_hour <= middle
        ]


@keyless
def test_without_a_key_the_whole_market_is_seen_too(bench: Bench) -> None:
    with bench["marketplace"]() as place:
        with bench["pointed_at"](place.url) as adapter:
            with_key = adapter.market.search(Query())
        with bench["pointed_at"](place.url, None) as adapter:
            without = adapter.market.search(Query())
        assert [o.offer_id for o in without.offers] == [o.offer_id for o in with_key.offers]


@each_provider
@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, b"{}", KeyRejected),
        (429, b"too many", RateLimited),
        (500, b"", ProviderDown),
        (502, b"<html>", ProviderDown),
        (200, b"", PayloadChanged),
        (200, b"<html>maintenance</html>", PayloadChanged),
        (200, b"{}", PayloadChanged),
        (200, b"[" * 200_000, PayloadChanged),
        (301, b"{}", ProviderError),
    ],
)
def test_every_failure_has_its_own_error(bench: Bench, status: int, body: bytes, error: type[ProviderError]) -> None:
    answered = serving(lambda request, wire: wire.answer(status, body))
    with answered as server, bench["pointed_at"](server.url) as adapter, pytest.raises(error):
        adapter.market.search(Query())


@each_provider
@pytest.mark.parametrize("fault", ["refused", "closed", "reset", "cut", "silent"])
def test_every_loss_of_connection_is_a_provider_that_is_down(bench: Bench, fault: str) -> None:
    def answer(request: Any, wire: Any) -> None:
        if fault == "closed":
            wire.close()
        elif fault == "reset":
            wire.reset()
        elif fault == "cut":
            wire.raw(b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"offers": [')
            wire.close()
        # silent: nothing at all

    with serving(answer) as server:
        url = "http://127.0.0.1:1" if fault == "refused" else server.url
        with bench["pointed_at"](url, timeout_s=0.5) as adapter, pytest.raises(ProviderDown):
            adapter.market.search(Query())
