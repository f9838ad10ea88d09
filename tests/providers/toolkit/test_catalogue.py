"""A complete catalogue: fetched once for all watches of a moment, as `INFO` declares."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.engine.watches.hunt import Hunter
from gpuwatch.errors import KeyRejected, PayloadChanged
from gpuwatch.ports import ProviderSettings, Query
from gpuwatch.ports.declarations import ProviderInfo, Tools
from gpuwatch.providers.toolkit.api_client import ApiClient
from gpuwatch.providers.toolkit.catalogue import CatalogueMarket, read_types
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.providers.toolkit.post_processing import ParseResult, RowSkipped
from tests.builders import a_watch, an_offer
from tests.engine.watches.test_evaluator import Bench

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Shop:
    """A provider that counts how often its catalogue is fetched; the test sets its clock."""

    def __init__(self, *, key: str | None = "a-key", **declared: object) -> None:
        self.fetched, self.now_s = 0, 0.0
        self.offers: list[Offer] = []
        http = PooledHttpClient(secrets=[])
        tools = Tools(
            http=http, now=lambda: NOW, monotonic=lambda: self.now_s, sleep=lambda _: None, stop=threading.Event()
        )
        info = ProviderInfo(name="acme", title="Acme", base_url="http://127.0.0.1:9", **declared)  # type: ignore[arg-type]
        client = ApiClient(ProviderSettings(name="acme", base_url=info.base_url, api_key=key), tools)
        self.market = CatalogueMarket(info, client, self._fetch, ttl_s=5.0)
        http.close()

    def _fetch(self, _: ApiClient) -> tuple[ParseResult, datetime]:
        self.fetched += 1
        return ParseResult(rows=3, offers=list(self.offers)), NOW


def test_one_answer_serves_all_watches_until_it_is_too_old() -> None:
    shop = Shop()
    assert [shop.market.search(Query()).rows for _ in range(3)] == [3, 3, 3]
    assert shop.fetched == 1
    shop.now_s = 5.1
    shop.market.search(Query())
    assert shop.fetched == 2


@pytest.mark.parametrize("usd", [0.00001, 9999.0])
def test_a_placeholder_in_a_live_catalogue_is_no_bargain_and_alone_no_answer(usd: float) -> None:
    placeholder = an_offer(gpu_count=8, quoted_usd_hour=usd)
    shop = Shop()
    shop.offers = [an_offer(offer_id="real", machine_id="real"), placeholder]
    answer = shop.market.search(Query())
    assert [offer.offer_id for offer in answer.offers] == ["real"]
    assert answer.skipped == {"a placeholder: nobody would ask this price": 1}
    shop.now_s, shop.offers = 6.0, [placeholder]
    with pytest.raises(PayloadChanged, match="none of 1 price can be used"):
        shop.market.search(Query())


def test_a_round_of_the_hunt_for_a_hundred_watches_costs_one_list() -> None:
    shop = Shop()
    watches = [
        a_watch(name=f"watch {n}", gpu_names=(f"GPU {n % 20}",), max_price_usd_gpu_hour=Decimal(n + 1))
        for n in range(100)
    ]
    bench, answers = Bench(*watches), list[object]()

    def record(_query: Query, answer: object, _now: datetime) -> None:
        answers.append(answer)

    hunter = Hunter(shop.market, watches, Commission(), bench.evaluator, record, threading.Event())
    hunter.run_round(lambda: NOW, 30.0, 30.0)
    assert (len(answers), shop.fetched) == (100, 1)


def test_a_rental_type_that_is_not_sold_costs_no_request() -> None:
    shop = Shop()
    answer = shop.market.search(Query(spot=True))
    assert (shop.fetched, answer.searches, list(answer.offers), answer.observed_at) == (0, 0, [], NOW)
    both = Shop(spots=(False, True))
    both.market.search(Query(spot=True))
    assert both.fetched == 1


def test_only_a_provider_that_declares_it_is_searched_without_a_key() -> None:
    with pytest.raises(KeyRejected):
        Shop(key=None).market.search(Query())
    assert Shop(key=None, searches_without_key=True).market.search(Query()).rows == 3


def test_what_cannot_be_read_is_counted_and_nothing_readable_is_an_error() -> None:
    assert read_types(["odd", "plain", "odd"], "acme", _read).skipped == {"odd": 2}
    with pytest.raises(PayloadChanged, match=r"none of 2 instance types can be used \(2 × odd\)"):
        read_types(["odd", "odd"], "acme", _read)


def test_a_type_without_a_gpu_does_not_prove_that_the_others_are_sold_out() -> None:
    with pytest.raises(PayloadChanged, match="none of 2 instance types"):
        read_types(["odd", "no GPU"], "acme", _read)
    assert read_types(["no GPU"], "acme", _read).offers == []


def _read(row: str, _: ParseResult) -> bool:
    if row == "odd":
        raise RowSkipped("odd")
    return row != "no GPU"


def test_joined_answers_add_up_and_name_their_source() -> None:
    whole = ParseResult(searches=0)
    whole.add(ParseResult(rows=2, skipped={"odd": 1}), "a")
    whole.add(ParseResult(rows=3, skipped={"odd": 2}, partial=True))
    assert (whole.rows, whole.searches, whole.partial) == (5, 2, True)
    assert whole.skipped == {"a: odd": 1, "odd": 2}
