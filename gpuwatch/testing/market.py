"""The rules for the search side of every provider, as a suite for pytest."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

from gpuwatch.domain.market.offer import NO_GPU, OfferKind
from gpuwatch.domain.market.search_query import query_of
from gpuwatch.errors import KeyRejected, ProviderDown, ProviderError, ProviderUnreachable
from gpuwatch.ports import Answer, Completeness, Query
from gpuwatch.ports.declarations import Adapter, ProviderInfo
from gpuwatch.providers.toolkit.post_processing import listed_usd_hour
from gpuwatch.testing.faults import LOSSES, NOWHERE, STATUSES, UNREADABLE, ServerFault
from gpuwatch.testing.hostile import corrupt_body, with_junk
from gpuwatch.testing.invariants import answer_problems
from gpuwatch.testing.loopback import serving
from gpuwatch.testing.relay import Relay, request_text
from gpuwatch.testing.suite import Suite, case, part

REQUESTS_CHECKED = 3  # of a search: some send one for each place and each number of GPUs


class MarketSuite(Suite):
    """To run it: `class TestMine(MarketSuite): bench = BENCH`."""

    def test_what_it_says_of_itself_is_sound(self) -> None:
        info = self.bench.info
        assert info.name == self.bench.name
        assert info.title
        assert info.base_url.startswith("https://")
        assert not info.base_url.endswith("/")
        assert info.spots
        assert info.kinds
        assert OfferKind.LIVE in info.kinds or not info.launches, "rentable offers must be live"
        assert info.billing.minimum_s >= 0
        assert info.billing.step_s >= 0
        assert _option_problems(info) == []

    def test_the_adapter_bears_its_name_everywhere(self, adapter: Adapter) -> None:
        assert adapter.name == adapter.market.name == self.bench.name
        assert adapter.info == self.bench.info
        assert (adapter.launcher is not None) == self.bench.info.launches
        assert adapter.launcher is None or adapter.launcher.name == self.bench.name

    def test_offers_are_whole_unique_and_in_order(self, adapter: Adapter) -> None:
        for spot in self.bench.info.spots:
            answer = adapter.market.search(Query(spot=spot))
            assert answer_problems(answer, self.bench.info) == []
            assert answer.completeness is Completeness.COMPLETE
            assert len(answer.offers) >= (1 if spot else 3)
            assert {offer.spot for offer in answer.offers} == {spot}

    def test_a_rental_type_that_it_lacks_is_answered_without_a_request(self, adapter: Adapter, relay: Relay) -> None:
        missing_types = [spot for spot in (False, True) if spot not in self.bench.info.spots]
        if not missing_types:
            pytest.skip(f"{self.bench.name} has both rental types")
        answer = adapter.market.search(Query(spot=missing_types[0]))
        assert (list(answer.offers), answer.completeness) == ([], Completeness.COMPLETE)
        assert relay.requests == []

    def test_asked_again_an_offer_is_the_same(self, place: Any) -> None:
        searches = []
        for _ in range(2):
            with self.bench.pointed_at(place.url) as adapter:
                offers = adapter.market.search(Query()).offers
                searches.append({(offer.identity, offer.offer_id) for offer in offers})
        assert searches[0] == searches[1]

    @part("narrowing")
    def test_a_gpu_narrows_the_answer(self, adapter: Adapter) -> None:
        gpu = self.bench.gpu
        all_offers = adapter.market.search(Query()).offers
        found = adapter.market.search(Query(gpus=(gpu,))).offers
        assert len(found) >= 2
        assert {offer.gpu for offer in found} == {gpu}
        assert {offer.identity for offer in found} == {offer.identity for offer in all_offers if offer.gpu == gpu}

    def test_machines_without_gpus_are_offers_of_their_own_query_alone(self, adapter: Adapter) -> None:
        if not self.bench.info.sells_cpu_machines:
            pytest.skip(f"{self.bench.name} sells no machines without GPUs")
        answer = adapter.market.search(query_of(NO_GPU, spot=False))
        assert answer_problems(answer, self.bench.info) == []
        assert {(offer.gpu, offer.gpu_count, offer.gpu_memory_gib) for offer in answer.offers} == {(NO_GPU, 0, None)}
        assert all(offer.vcpu and offer.ram_gib for offer in answer.offers), "watches ask for their size"
        assert NO_GPU not in {offer.gpu for offer in adapter.market.search(Query()).offers}

    @part("narrowing")
    def test_a_price_narrows_the_answer(self, adapter: Adapter) -> None:
        all_offers = adapter.market.search(Query(gpus=(self.bench.gpu,))).offers
        median_usd_hour = all_offers[len(all_offers) // 2].quoted_usd_hour
        cheap = adapter.market.search(Query(gpus=(self.bench.gpu,), max_listed_usd_hour=median_usd_hour)).offers
        assert [offer.offer_id for offer in cheap] == [
            offer.offer_id for offer in all_offers if offer.quoted_usd_hour <= median_usd_hour
        ]

    @part("narrowing")
    def test_a_number_of_gpus_narrows_the_answer(self, adapter: Adapter) -> None:
        all_offers = adapter.market.search(Query()).offers
        count = all_offers[0].gpu_count
        found = adapter.market.search(Query(count_min=count, count_max=count)).offers
        assert {offer.identity for offer in found} == {
            offer.identity for offer in all_offers if offer.gpu_count == count
        }
        assert list(adapter.market.search(Query(count_min=10_000)).offers) == []

    @part("narrowing")
    def test_a_gpu_that_is_not_there_is_no_offer_and_no_error(self, adapter: Adapter) -> None:
        answer = adapter.market.search(Query(gpus=("no such gpu 9000",)))
        assert (list(answer.offers), answer.completeness) == ([], Completeness.COMPLETE)

    @part("narrowing")
    def test_more_disk_is_never_cheaper(self, adapter: Adapter) -> None:
        prices = [
            {offer.identity: listed_usd_hour(offer, query) for offer in adapter.market.search(query).offers}
            for query in (Query(disk_gb=20.0), Query(disk_gb=200.0))
        ]
        assert all(prices[1][one] >= usd * 0.999 for one, usd in prices[0].items() if one in prices[1])

    @part("keyless")
    def test_without_a_key_it_answers_or_says_that_it_wants_one(self, place: Any) -> None:
        if self.bench.info.own_credentials or self.bench.key is None:
            pytest.skip(f"{self.bench.name} receives no key from gpuwatch")
        with self.bench.pointed_at(place.url) as adapter:
            keyed_offers = adapter.market.search(Query()).offers
        with self.bench.pointed_at(place.url, None) as adapter:
            if not self.bench.info.searches_without_key:
                with pytest.raises(KeyRejected):
                    adapter.market.search(Query())
                return
            keyless_offers = adapter.market.search(Query()).offers
        assert [offer.offer_id for offer in keyless_offers] == [offer.offer_id for offer in keyed_offers]

    @part("statuses")
    def test_every_status_has_its_own_error(self) -> None:
        key = self.bench.key or "demo-key"
        reported = ServerFault("the key", ProviderError, (), 400, b'{"error": "bad key %b"}' % key.encode())
        self._check_errors((*STATUSES, reported), key)

    @part("garbage")
    def test_an_answer_that_is_none_is_never_a_market_without_offers(self) -> None:
        self._check_errors(UNREADABLE)

    @part("losses")
    def test_every_loss_of_connection_is_a_provider_that_is_down(self) -> None:
        silence = ServerFault("silence", ProviderDown, (), ending=lambda _: None)
        self._check_errors(LOSSES)
        self._check_errors((silence,), timeout_s=0.1)
        with self.bench.pointed_at(NOWHERE) as adapter:
            self.check_error(ProviderUnreachable, lambda: adapter.market.search(Query()))

    def _check_errors(self, faults: tuple[ServerFault, ...], *secrets: str, timeout_s: float = 20.0) -> None:
        """Check what a search makes of a server that answers every request with a fault."""
        query = Query(spot=self.bench.info.spots[0])
        fault = faults[0]
        with serving(lambda _, writer: fault.answer(writer)) as server:
            for fault in faults:
                with case(fault.name), self.bench.pointed_at(server.url, timeout_s=timeout_s) as adapter:
                    expected = self.expected_error(fault.status, fault.reading, ProviderError)
                    text = str(self.check_error(expected, lambda: adapter.market.search(query), *secrets))
                    assert text.startswith(f"{self.bench.name}: ")

    @part("whole")
    def test_without_the_answer_to_one_of_its_requests_an_answer_is_not_whole(self, relay: Relay) -> None:
        self._search(relay.url, self.bench.info.spots[0])
        lines = list(dict.fromkeys(request_text(request) for request in relay.requests))
        for line in lines[:REQUESTS_CHECKED]:
            for status, body in ((404, b"{}"), (500, b"")):
                relay.restore()
                relay.requests.clear()
                relay.fail(f"^{re.escape(line)}$", status, body)
                with case(f"{status} {body!r} to {line}"):
                    answer = self._search(relay.url, self.bench.info.spots[0])
                    assert answer is None or answer.completeness is not Completeness.COMPLETE

    @part("hostile")
    def test_hostile_values_are_skipped_or_refused(self, relay: Relay) -> None:
        spots = self.bench.info.spots
        for rate, seed in product((0.003, 0.03, 0.3), range(4)):
            relay.requests.clear()
            relay.corrupt = lambda body, rate=rate, seed=seed: corrupt_body(body, seed, rate)
            with case(f"{rate}, seed {seed}"):
                answer = self._search(relay.url, spots[seed % len(spots)])
                assert answer is None or answer_problems(answer, self.bench.info) == []

    @part("hostile")
    def test_rows_that_are_none_leave_the_others(self, place: Any, relay: Relay) -> None:
        expected, relay.corrupt = self._search(place.url, False), with_junk
        found = self._search(relay.url, False)
        assert expected is not None
        assert found is not None, "junk rows must not reject the whole answer"
        assert [offer.offer_id for offer in found.offers] == [offer.offer_id for offer in expected.offers]

    def _search(self, url: str, spot: bool) -> Answer | None:
        with self.bench.pointed_at(url) as adapter:
            try:
                return adapter.market.search(Query(spot=spot))
            except ProviderError:
                return None


def _option_problems(info: ProviderInfo) -> list[str]:
    """Return options whose default does not match their kind, or that cannot be set."""
    kinds = {"text": str, "number": int | float, "integer": int, "switch": bool, "texts": tuple}
    problems = []
    for spec in info.options:
        if spec.default is not None and not isinstance(spec.default, kinds[spec.kind]):
            problems.append(f"{spec.name}: the default is not a {spec.kind}")
        if not spec.about or "\n" in spec.about or not spec.name.isidentifier() or not spec.name.islower():
            problems.append(f"{spec.name}: expected a lower-case name and a one-line description")
    names = [spec.name for spec in info.options]
    return problems + [f"{name}: twice" for name in set(names) if names.count(name) > 1]
