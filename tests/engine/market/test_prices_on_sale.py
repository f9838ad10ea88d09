"""What is on sale after any answers is what a table by machine and GPU count would hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.search_query import OnSale, Query, SalePrice, listed_usd_hour, passes_filters
from gpuwatch.engine.market.known_prices import PricesOnSale
from gpuwatch.ports import Answer, Completeness
from tests.builders import an_offer, changed
from tests.engine.uow_fakes import an_answer

_DISK_GB = 8.0
_GPUS = ("H100 SXM", "RTX 4090")
_Table = dict[tuple[str, str | None, int], OnSale]

_OFFERS = st.builds(
    lambda gpu, machine, count, usd, reliability: an_offer(
        offer_id=machine, machine_id=machine, gpu=gpu, gpu_count=count, quoted_usd_hour=float(usd),
        quoted_disk_gb=_DISK_GB, reliability=reliability,
    ),
    st.sampled_from(_GPUS), st.sampled_from("ab"), st.integers(1, 2), st.sampled_from(["0.5", "1.0"]),
    st.sampled_from([0.9, 0.99]),
)  # fmt: skip
_SWEEPS = st.just(Query(gpus=_GPUS))
_HUNTS = st.builds(
    Query,
    gpus=st.sampled_from([_GPUS, _GPUS[:1]]),
    count_max=st.sampled_from([None, 1]),
    max_listed_usd_hour=st.sampled_from([None, 0.75]),
    verified=st.sampled_from([None, True]),
    min_reliability=st.sampled_from([None, 0.95]),
)
_POLLS = st.tuples(_SWEEPS | _HUNTS, st.lists(_OFFERS, min_size=1, max_size=4))


def _answer(query: Query, offers: list[OnSale]) -> Answer:
    """Return what a marketplace sends: each machine once, and only what was asked for."""
    by_machine = {(one.gpu, one.machine_id, one.gpu_count): one for one in offers}
    most = query.max_listed_usd_hour
    return an_answer(
        *(
            one
            for one in by_machine.values()
            if one.gpu in query.gpus and passes_filters(one, query) and (most is None or one.quoted_usd_hour <= most)
        )
    )


def _learn(table: _Table, known: set[str], query: Query, answer: Answer) -> bool:
    """The plain way; return whether something changed."""
    before, most = dict(table), query.max_listed_usd_hour
    is_everything = most is None and query.count_max is None and query.verified is None
    was_known = set(known)
    known |= set(query.gpus) if is_everything else set()
    gpus = known & set(query.gpus)
    for key, one in before.items():
        if (
            key[0] in gpus
            and passes_filters(one, query)
            and (most is None or listed_usd_hour(one, _DISK_GB) <= most + 1e-6)
        ):
            del table[key]
    table |= {(one.gpu, one.machine_id, one.gpu_count): one for one in answer.offers if one.gpu in gpus}
    return known != was_known or _facts(before) != _facts(table)


def _facts(table: _Table) -> dict[tuple[str, str | None, int], object]:
    return {key: (one.quoted_usd_hour, one.verified, one.reliability) for key, one in table.items()}


@given(st.lists(_POLLS, min_size=2, max_size=8))
def test_offers_vanish_come_back_and_change(polls: list[tuple[Query, list[OnSale]]]) -> None:
    prices, table, known = PricesOnSale(_DISK_GB), _Table(), set[str]()
    for query, offers in polls:
        answer = _answer(query, offers)
        changes = prices.changes
        prices.learn(query, answer)
        assert (prices.changes > changes) is _learn(table, known, query, answer)
        rows = prices.expected_rows()
        for gpu in _GPUS:
            for asked in (Query(gpus=(gpu,)), Query(gpus=(gpu,), count_max=1, max_listed_usd_hour=1.0)):
                most = asked.max_listed_usd_hour
                found = [
                    one.quoted_usd_hour
                    for key, one in table.items()
                    if key[0] == gpu and passes_filters(one, asked) and (most is None or one.quoted_usd_hour <= most)
                ]
                assert rows(asked) == (len(found) if gpu in known else None)
            assert prices.cheapest_usd_hour(Query(gpus=(gpu,))) == min(
                (one.quoted_usd_hour for key, one in table.items() if key[0] == gpu), default=None
            )


def test_what_searches_filter_by_is_news_at_the_same_price_too() -> None:
    prices, query, usd = PricesOnSale(_DISK_GB), Query(gpus=("H100 SXM",)), 1.0
    first = an_offer(gpu="H100 SXM", machine_id="a", quoted_usd_hour=usd, reliability=0.9)
    other_machine = changed(first, machine_id="b")
    more_reliable = changed(other_machine, quoted_usd_hour=float("1.0"), reliability=0.99)
    new_id = changed(more_reliable, quoted_usd_hour=float("1.0"), offer_id="2")
    counts = []
    for offer in (first, other_machine, more_reliable, new_id):
        prices.learn(query, an_answer(offer))
        counts.append(prices.changes)
    assert counts == [1, 2, 3, 3]


def test_a_truncated_answer_counts_up_to_where_it_is_complete() -> None:
    prices, query = PricesOnSale(_DISK_GB), Query(gpus=("H100 SXM",))
    cheap, dear = (an_offer(gpu="H100 SXM", machine_id=name, quoted_usd_hour=usd) for name, usd in (("a", 1), ("b", 2)))
    prices.learn(query, an_answer(cheap, dear))
    prices.learn(query, an_answer(completeness=Completeness.TRUNCATED, complete_to=1.5))
    assert prices.expected_rows()(query) == 1
    prices.learn(query, an_answer(completeness=Completeness.TRUNCATED))
    prices.learn(query, an_answer(completeness=Completeness.PARTIAL))
    assert prices.expected_rows()(query) == 1


def test_an_answer_takes_precedence_over_the_history() -> None:
    prices, query = PricesOnSale(_DISK_GB), Query(gpus=("H100 SXM",))
    history = {("H100 SXM", False): [SalePrice(1, 1.0, None, machine_id="a"), SalePrice(2, 3.0, None, machine_id="b")]}
    prices.begin_with(history)
    assert prices.expected_rows()(query) == 2
    prices.learn(Query(gpus=("H100 SXM",), count_max=1), an_answer())
    assert prices.expected_rows()(query) == 1
    prices.begin_with(history)
    assert prices.expected_rows()(query) == 1
