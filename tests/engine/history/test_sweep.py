"""The sweep reads all of the watched and recorded GPUs, and records a gap where it could not."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import msgspec

from gpuwatch.domain.watches.watch import SpotPolicy
from gpuwatch.engine.history.sweep import Sweeper, sweep_targets
from gpuwatch.errors import ProviderDown, QuotaSpent, RateLimited
from gpuwatch.ports import Answer, Completeness
from tests.engine.uow_fakes import NOON, ScriptedMarket, an_answer
from tests.engine.watches.test_evaluator import WATCH, h100

TARGETS = (("H100 SXM", False), ("A100 SXM 80GB", False))


def sweep(market: ScriptedMarket, kept: list[object]) -> tuple[Sweeper, bool]:
    def keep(gpu: str, spot: bool, answer: object, now: datetime) -> None:
        kept.append((gpu, answer))

    sweeper = Sweeper(market, TARGETS, keep, threading.Event())
    return sweeper, sweeper.run(lambda: NOON)


def test_recorded_and_watched_gpus_are_read_each_rental_type_apart() -> None:
    spot = msgspec.structs.replace(WATCH, spot=SpotPolicy.ANY)
    targets = sweep_targets([spot], ["RTX 4090"])
    assert targets == (("RTX 4090", False), ("H100 SXM", False), ("H100 SXM", True))


def test_a_sweep_asks_for_everything_of_one_gpu_at_a_time() -> None:
    market = ScriptedMarket(an_answer(h100()))
    sweeper, whole = sweep(market, [])
    assert whole
    assert [(query.gpus, query.limit, query.max_listed_usd_hour) for query in market.asked] == [
        (("H100 SXM",), None, None),
        (("A100 SXM 80GB",), None, None),
    ]
    assert sweeper.rows == 2


def test_one_failing_search_is_a_gap_and_the_rest_goes_on() -> None:
    kept: list[object] = []
    market = ScriptedMarket(ProviderDown("HTTP 502"), an_answer(h100()))
    _, whole = sweep(market, kept)
    assert not whole
    assert isinstance(kept[0][1], ProviderDown)  # type: ignore[index]
    assert isinstance(kept[1][1], Answer)  # type: ignore[index]


def test_a_spent_quota_ends_the_round() -> None:
    market = ScriptedMarket(QuotaSpent("spent", datetime(2026, 11, 22, tzinfo=UTC)))
    sweep(market, [])
    assert len(market.asked) == 1


def test_a_sweep_that_was_broken_off_goes_on_where_it_stood() -> None:
    market = ScriptedMarket(an_answer(h100()), RateLimited("too often", 60.0), an_answer(h100(), h100(offer_id="2")))
    sweeper, whole = sweep(market, [])
    assert (whole, sweeper.is_unfinished) == (False, True)
    assert sweeper.run(lambda: NOON)
    assert [query.gpus for query in market.asked] == [("H100 SXM",), ("A100 SXM 80GB",), ("A100 SXM 80GB",)]
    assert (sweeper.rows, sweeper.is_unfinished) == (3, False)


def test_a_cut_answer_does_not_count_as_a_whole_sweep() -> None:
    sweeper, whole = sweep(ScriptedMarket(an_answer(h100(), completeness=Completeness.TRUNCATED)), [])
    assert not whole
    assert sweeper.rows is None
