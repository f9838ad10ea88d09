"""When a queued job starts: never now outside of its windows, and in the owner's zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.app.jobs.job_plan import PlannedStart, planned_start
from gpuwatch.app.watches.watch_status import WatchStatus
from gpuwatch.domain.jobs.job_watch import price_cap, waiting_job_watch
from gpuwatch.domain.jobs.queue import QueuedJob
from gpuwatch.domain.launches.launch import RefusalReason
from gpuwatch.domain.launches.life.admission import BlockReason, WatchBlock
from gpuwatch.domain.plan.figures import FigureRange
from gpuwatch.domain.watches.decide import Decision, DecisionReason
from gpuwatch.domain.watches.watch import SpotPolicy
from gpuwatch.domain.watches.windows import is_open, opens_at
from tests.builders import NOON, a_match, a_watch, an_offer
from tests.builders_jobs import a_definition, a_job

BERLIN = ZoneInfo("Europe/Berlin")


def _planned(
    active: tuple[str, ...],
    block: WatchBlock | None = None,
    matches: int = 1,
    spot: SpotPolicy = SpotPolicy.NO,
) -> PlannedStart:
    definition = a_definition(active=active, hours=FigureRange(1, 2), resources=a_watch(spot=spot))
    job = a_job(definition=definition)
    found = (a_match(),) * matches
    status = WatchStatus(
        watch=waiting_job_watch(job, price_cap(job), NOON), matches=found, nearest=None, unchecked=(), why="",
        blocked=block, fired_at=None, under_since=None, paused=None, silenced_until=None, seen_at=NOON,
        next_poll_at=None,
        cheapest={True: a_match(an_offer(quoted_usd_hour=1.0, spot=True))},
        decision=Decision(watch="job", reason=DecisionReason.FIRST_MATCH, decided_at=NOON, matches=found),
    )  # fmt: skip
    return planned_start(QueuedJob(job=job, slack_s=None), status, NOON, BERLIN)


@pytest.mark.parametrize("matches", [0, 1])
def test_a_job_outside_its_window_does_not_start_now(matches: int) -> None:
    start = _planned(("22:00-08:00",), matches=matches)
    assert not start.rents_now
    opens = opens_at(("22:00-08:00",), NOON, BERLIN).astimezone(BERLIN)
    assert f"outside its active windows (22:00-08:00), not before {opens:%Y-%m-%d} 22:00 CE" in start.when


def test_a_job_inside_its_window_starts_now() -> None:
    start = _planned(("06:00-23:00",))
    assert (start.rents_now, start.when.split(":")[0]) == (True, "now")


def test_what_blocks_a_rent_is_not_now_either_but_a_dry_run_is_said_once_for_all() -> None:
    blocked = _planned((), WatchBlock(RefusalReason.MAX_USD_DAY, "the budget of the day is spent"))
    assert (blocked.rents_now, blocked.when.split(";")[0]) == (False, "the budget of the day is spent")
    assert _planned((), WatchBlock(BlockReason.DRY_RUN, "dry_run = true")).rents_now


def test_the_cost_of_both_types_is_shown_for_spot_first() -> None:
    start = _planned((), spot=SpotPolicy.FIRST)
    assert start.spot_first is not None
    assert start.spot_first.spot_usd == pytest.approx(2 * 1.2)
    assert start.spot_first.on_demand_usd is None
    assert _planned(()).spot_first is None


@pytest.mark.parametrize(
    ("now", "windows", "opens"),
    [
        (datetime(2026, 3, 2, 12, tzinfo=UTC), ("22:00-08:00",), datetime(2026, 3, 2, 21, tzinfo=UTC)),
        (datetime(2026, 3, 2, 12, tzinfo=UTC), ("Sat-Sun",), datetime(2026, 3, 6, 23, tzinfo=UTC)),
        (datetime(2026, 3, 2, 12, tzinfo=UTC), ("09:00-18:00",), datetime(2026, 3, 2, 12, tzinfo=UTC)),
        # the clock skips 02:00 to 03:00 on 2026-03-29
        (datetime(2026, 3, 29, 0, 30, tzinfo=UTC), ("02:30-02:45",), datetime(2026, 3, 30, 0, 30, tzinfo=UTC)),
    ],
)
def test_when_a_window_opens_next(now: datetime, windows: tuple[str, ...], opens: datetime) -> None:
    assert opens_at(windows, now, BERLIN) == opens
    assert is_open(windows, opens, BERLIN)
    assert opens == now or not is_open(windows, opens - timedelta(minutes=1), BERLIN)
