"""One poll now: few queries, and an honest statement of what is unknown."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from itertools import count

import msgspec

from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.watches.watch import SpotPolicy
from gpuwatch.engine.market.watch_search import PAGE_ROWS
from gpuwatch.engine.watches.one_poll import check_provider, shared_queries
from gpuwatch.errors import NoRowUnderstood, ProviderDown
from gpuwatch.ports import Completeness
from tests.builders import a_watch, an_offer
from tests.engine.uow_fakes import NOON, ScriptedMarket, an_answer
from tests.engine.watches.test_evaluator import WATCH, h100

TWENTY = Commission("0.20")
CHEAP = a_watch(name="cheap", gpu_names=("RTX 3090",), max_price_usd_gpu_hour=Decimal("0.12"))


def checked(market: ScriptedMarket, *watches: object):  # type: ignore[no-untyped-def]
    return check_provider(market, watches, TWENTY, lambda: NOON)  # type: ignore[arg-type]


def test_ten_watches_are_one_question() -> None:
    watches = [msgspec.structs.replace(WATCH, name=f"w{n}") for n in range(10)]
    assert len(shared_queries([*watches, CHEAP], TWENTY)) == 1


def test_the_shared_question_asks_for_all_that_each_watch_asks_for() -> None:
    big = msgspec.structs.replace(WATCH, name="big", gpu_count_min=4, gpu_count_max=8, disk_gb=500.0)
    (query,) = shared_queries([big, CHEAP], TWENTY)
    assert query.gpus == ("H100 SXM", "RTX 3090")
    assert (query.count_min, query.count_max) == (1, 8)
    assert query.disk_gb is None
    assert (query.max_listed_usd_hour or 0) >= 8 * 3.0
    assert query.limit == PAGE_ROWS


def test_rental_types_are_asked_apart() -> None:
    spot = msgspec.structs.replace(WATCH, name="spot", spot=SpotPolicy.ONLY)
    assert len(shared_queries([WATCH, spot], TWENTY)) == 2


def test_each_watch_finds_its_own_offers_cheapest_first() -> None:
    answer = an_answer(
        h100(2.9, machine_id="1"), h100(2.5, machine_id="2"), an_offer(gpu="RTX 3090", quoted_usd_hour=0.1)
    )
    part = checked(ScriptedMarket(answer), WATCH, CHEAP)
    assert [match.offer.machine_id for match in part.matches["h100"]] == ["2", "1"]
    assert len(part.matches["cheap"]) == 1
    assert part.report.ok


def test_a_cut_answer_settles_the_watch_whose_ceiling_it_passed() -> None:
    cut = an_answer(an_offer(gpu="RTX 3090", quoted_usd_hour=0.5), completeness=Completeness.TRUNCATED, complete_to=0.5)
    whole = an_answer(h100())
    market = ScriptedMarket(cut, whole)
    part = checked(market, WATCH, CHEAP)
    assert len(market.asked) == 2
    assert market.asked[1].gpus == ("H100 SXM",)
    assert part.report.ok
    assert part.matches["h100"]


def test_a_watch_that_stays_unsettled_makes_the_report_say_so() -> None:
    cut = an_answer(
        an_offer(gpu="RTX 3090", quoted_usd_hour=0.05, reliability=0.1), completeness=Completeness.TRUNCATED
    )
    part = checked(ScriptedMarket(cut), msgspec.structs.replace(CHEAP, min_reliability=0.9))
    assert not part.report.ok
    assert "its answer was truncated" in (part.report.error or "")


def test_a_partial_answer_is_not_asked_for_again_by_each_watch() -> None:
    part = an_answer(completeness=Completeness.PARTIAL)
    market = ScriptedMarket(msgspec.structs.replace(part, incomplete_because="region eu: HTTP 502"))
    report = checked(market, WATCH, CHEAP).report
    assert (len(market.asked), report.ok, report.error) == (1, False, "answered only in part: region eu: HTTP 502")


def test_the_cut_page_of_a_single_watch_is_not_asked_for_again() -> None:
    cut = an_answer(
        an_offer(gpu="RTX 3090", quoted_usd_hour=0.05), completeness=Completeness.TRUNCATED, complete_to=0.05
    )
    market = ScriptedMarket(cut)
    part = checked(market, CHEAP)
    assert (len(market.asked), part.report.ok, len(part.matches["cheap"])) == (1, True, 1)


def test_a_provider_that_does_not_answer_is_reported_and_never_raises() -> None:
    part = checked(ScriptedMarket(ProviderDown("vastai: HTTP 502")), WATCH)
    assert not part.report.ok
    assert part.report.error == "HTTP 502"
    assert part.matches["h100"] == ()


def test_time_that_was_spent_in_vain_is_reported() -> None:
    ticks = count()
    market = ScriptedMarket(ProviderDown("vastai: no answer in time"))
    part = check_provider(market, [WATCH], TWENTY, lambda: NOON + timedelta(seconds=30 * next(ticks)))
    assert part.report.elapsed_s == 30.0


def test_rows_of_which_none_can_be_used_are_counted_too() -> None:
    part = checked(ScriptedMarket(NoRowUnderstood("vastai: none of 7 rows can be used", 7)), WATCH)
    assert (part.report.ok, sum(part.report.skipped.values())) == (False, 7)
    assert part.report.error == "none of 7 rows can be used"


def test_rows_that_were_not_understood_are_counted() -> None:
    part = checked(ScriptedMarket(an_answer(h100(), skipped={"price is not positive": 2, "no machine": 1})), WATCH)
    assert sum(part.report.skipped.values()) == 3
