"""What an owner must know to answer an approval: figures from the store alone."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert

from gpuwatch.app.launches.approval_details import (
    ApprovalDetails,
    approval_detail_views,
    approval_details,
    left_microusd,
    offer_odds,
)
from gpuwatch.app.launches.approvals import recent_approvals
from gpuwatch.app.market.market_ranks import market_ranks
from gpuwatch.app.reader_text import NBSP
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.history.market_history import MarketFilter
from gpuwatch.domain.launches.launch import Intent, LaunchState, new_launch
from gpuwatch.domain.setup.durations import HOUR_S
from gpuwatch.domain.watches.launch_spec import Budget
from gpuwatch.settings import Settings
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import hourly, segment
from gpuwatch.storage.setup.tables import launch as launches
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from gpuwatch.web.approvals.approval_texts import rank_text
from tests.builders import a_match, a_watch, changed
from tests.web.served import settings_in

MICRO = 10**6
ASKS = """
[budget]
max_usd_hour = 100
max_usd_day = 40
max_usd_month = 500

[[watch]]
name = "cheap"
gpu = ["H100"]
max_price = 7.20
action = "ask"
[watch.launch]
max_runtime = "10h"
ready_within = "1s"
"""


def asking(folder: Path, text: str = ASKS) -> Settings:
    settings, now = settings_in(folder, text), real_now()
    intent = Intent(watch=settings.watches[0], match=a_match(), launch_id="a" * 12, dry_run=False)
    with open_store(settings) as store, SqlDecisionStore(store).open() as uow:
        uow.request_approval(intent, Budget(), now + timedelta(minutes=15), now, False)
    return settings


def with_month(settings: Settings, lowest: range) -> None:
    """Hours with these lowest listed prices in micro-dollars, up to now."""
    last = int(real_now().timestamp()) // HOUR_S
    of_all = {"q1_microusd": 1, "median_microusd": 1, "q3_microusd": 1, "offers": 1, "offer_seconds": 1, "sketch": b""}
    part = {"id": 1, "provider": "vastai", "gpu": "H100 SXM", "gpu_count": 1, "spot": 0, "gpu_family": "H100"}
    with open_store(settings) as store, store.write() as connection:
        connection.execute(insert(segment), part)
        rows = [{"segment_id": 1, "hour": last - at, "min_microusd": low, **of_all} for at, low in enumerate(lowest)]
        connection.execute(insert(hourly), rows)


def only(settings: Settings) -> ApprovalDetails:
    (details,) = approval_details(settings, recent_approvals(settings), real_now())
    return details


def test_distance_bound_and_the_least_budget_that_is_left(tmp_path: Path) -> None:
    details = only(asking(tmp_path))
    assert details.distance == -0.5
    assert details.limit_microusd_gpu_hour == 7_200_000
    proof = 3_600_000 // 30
    assert details.most_microusd is not None
    assert 0 <= details.most_microusd - 36 * MICRO - proof < 1000  # and its disk for the second until it must run
    assert details.runtime_s == 36_000
    assert details.left is not None
    assert (details.left.limit_name, left_microusd(details.left)) == ("max_usd_day", 40 * MICRO)


def test_the_rank_is_that_of_the_market_and_the_strip_has_the_commission(tmp_path: Path) -> None:
    settings = asking(tmp_path)
    assert only(settings).rank is None  # too little history
    with_month(settings, range(2_500_000, 3_500_000, 10_000))
    rank = only(settings).rank
    assert rank is not None
    assert (rank.spread.high, rank.now) == (4_188_000, 3_600_000)
    assert rank_text(rank).replace(NBSP, " ") == "Usual in 30 days at all providers"
    of_market = market_ranks(settings, MarketFilter(spot=False), real_now())["H100 SXM"]
    (view,) = approval_detail_views(settings, recent_approvals(settings), real_now())
    assert view.price_rank == pytest.approx(of_market.share_below(rank.now), abs=0.01)  # an hour may have begun
    assert rank.past.text(rank.now) == of_market.text(rank.now)


def test_a_machine_that_was_rented_before_is_known(tmp_path: Path) -> None:
    settings, now = asking(tmp_path), real_now()
    plain = new_launch(Intent(watch=a_watch(), match=a_match(), launch_id="b" * 12, dry_run=False), 0, now)
    ran = changed(plain, state=LaunchState.ENDED, running_at=now, ended_at=now, instance_id="7")
    rows = [ran, changed(ran, launch_id="c" * 12, machine_id="78"), changed(ran, launch_id="d" * 12, running_at=None)]
    with open_store(settings) as store, store.write() as connection:
        for row in rows:
            connection.execute(insert(launches), launch_row_of(row))
    assert only(settings).used_before == 1


def test_of_a_watch_that_is_gone_the_quote_alone_is_known(tmp_path: Path) -> None:
    settings = changed(asking(tmp_path), watches=())
    details = only(settings)
    assert (details.watch, details.most_microusd, details.distance) == (None, None, None)


def test_without_history_the_odds_are_unknown(tmp_path: Path) -> None:
    settings = asking(tmp_path)
    (approval,) = recent_approvals(settings)
    assert offer_odds(settings, approval.match, real_now()) is None


def test_programs_get_the_figures_of_open_ones(tmp_path: Path) -> None:
    settings = asking(tmp_path)
    (view,) = approval_detail_views(settings, recent_approvals(settings), real_now())
    assert (view.limit_usd_gpu_hour, view.above_limit, view.budget_left_usd, view.launches_on_machine) == (
        7.2,
        -0.5,
        40.0,
        0,
    )
    later = real_now() + timedelta(hours=1)
    (expired,) = approval_detail_views(settings, recent_approvals(settings), later)
    assert (expired.state, expired.most_usd, expired.budget_left_usd) == ("expired", None, None)
