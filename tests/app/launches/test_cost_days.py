"""The days of a month: they add up to the lines of `gpuwatch costs`, and with the forecast to the end of the month."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from sqlalchemy import insert

from gpuwatch.app.launches.costs import KEYS, cost_report
from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.launch import Intent, LaunchState, new_launch
from gpuwatch.domain.launches.money.launch_costs import month_of, predicted_cost
from gpuwatch.domain.launches.money.month_forecast import LEAST_DAYS, forecast_costs, forecast_days
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.storage.setup.launch_rows import launch_row_of
from gpuwatch.storage.setup.tables import launch as launches
from tests.builders import NOON, a_match, a_watch, changed
from tests.upgraded_store import open_upgraded
from tests.web.served import settings_in

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_WATCH = a_watch(action=Action.LAUNCH, launch=LaunchSpec())


def _launches(since: datetime, seed: int = 5) -> list[object]:
    """Ended launches of several watches, providers and GPUs, at odd prices over odd times."""
    drawn, found = random.Random(seed), []
    for number in range(60):
        began = since + timedelta(milliseconds=drawn.randrange(40 * 86_400_000))
        plain = new_launch(Intent(watch=_WATCH, match=a_match(), launch_id=f"{number:0>12}", dry_run=False), 0, began)
        found.append(
            changed(
                plain, state=LaunchState.ENDED, instance_id=str(number), slot=number, running_at=began,
                ended_at=began + timedelta(milliseconds=drawn.randrange(1, 300_000_000)),
                watch=drawn.choice(["night", "job:train", "ask"]), provider=drawn.choice(["vastai", "lambda"]),
                gpu=drawn.choice(["H100 SXM", "A100 PCIe"]), price_microusd_hour=drawn.randrange(1, 9_999_999),
            )
        )  # fmt: skip
    return found


def test_the_days_add_up_to_the_lines_to_the_micro_dollar(tmp_path: Path) -> None:
    since = datetime(2026, 2, 20, tzinfo=UTC)
    settings, made = settings_in(tmp_path), _launches(since)
    store = open_upgraded(settings.database_url)
    with store.write() as connection:
        connection.execute(insert(launches), [launch_row_of(launch) for launch in made])  # type: ignore[arg-type]
    store.close()
    begin, end = month_of(date(2026, 3, 1))
    costs = [predicted_cost(launch, real_now(), begin, end).effective for launch in made]  # type: ignore[arg-type]
    for by in KEYS:
        report = cost_report(settings, by, date(2026, 3, 1))
        assert [day.day for day in report.days] == [begin.date() + number * DAY for number in range(31)]
        for line in report.lines:
            assert sum(day.costs.get(line.key, 0) for day in report.days) == line.cost.effective, (by, line.key)
        assert sum(sum(day.costs.values()) for day in report.days) == report.total.cost.effective == sum(costs), by
        assert not any(day.ahead for day in report.days), by


def test_the_days_to_come_add_up_to_the_forecast() -> None:
    """At the mean of the days so far, with too few of them for one by what runs; the rest of today counts."""
    plain = new_launch(Intent(watch=_WATCH, match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON)
    running = changed(
        plain, state=LaunchState.RUNNING, instance_id="1", running_at=NOON, max_runtime_s=30 * 3600.0 + 0.007
    )
    end = month_of(NOON.date())[1]
    for case, now in (("by what runs", NOON + HOUR), ("at the mean", NOON + (LEAST_DAYS + 1) * DAY)):
        ahead = forecast_costs([running], now)
        days = forecast_days([running], now, ahead)
        assert (ahead.likely_effective == ahead.mean_effective) is (case == "at the mean")
        assert sum(days.values()) == ahead.likely_effective - predicted_cost(running, now).effective, case
        assert list(days) == [now.date() + number * DAY for number in range((end.date() - now.date()).days)], case
        assert all(microusd >= 0 for microusd in days.values()), case
    first, second, third = list(forecast_days([running], NOON, forecast_costs([running], NOON)).values())[:3]
    assert (first > 0, second > first, third) == (True, True, 0)  # it ends tomorrow
