"""What a budget will have used at the end of its day or month, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpuwatch.domain.launches.launch import Intent, LaunchState, new_launch
from gpuwatch.domain.launches.money.launch_costs import midnight
from gpuwatch.domain.launches.money.month_forecast import budget_uses
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from tests.builders import NOON, a_match, a_watch, changed

HOUR = timedelta(hours=1)
TOMORROW = midnight(NOON.date()) + 24 * HOUR
NEXT_MONTH = datetime(2026, 12, 1, tzinfo=UTC)
BUDGET = Budget(max_usd_hour=Decimal(4), max_usd_day=Decimal(36), max_usd_month=Decimal(72))


def test_what_runs_goes_on_at_the_price_of_now_until_its_own_end_or_the_budgets() -> None:
    """A budget's day ends at midnight UTC; an hourly limit is a rate, which has no end."""
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
    plain = changed(
        new_launch(Intent(watch=watch, match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON),
        running_at=NOON,
        instance_id="1",
    )
    for case, changes, day_h, month_h in (
        ("without an end", {"max_runtime_s": None}, (TOMORROW - NOON) / HOUR, (NEXT_MONTH - NOON) / HOUR),
        ("ends today", {"max_runtime_s": 7200.0}, 2, 2),
        ("ends tomorrow", {"max_runtime_s": 15 * 3600.0}, (TOMORROW - NOON) / HOUR, 15),
        ("is being stopped", {"state": LaunchState.STOPPING}, 1, 1),
    ):
        launch = changed(plain, **{"state": LaunchState.RUNNING, **changes})
        uses = {use.limit_name: use for use in budget_uses(None, BUDGET, [launch], NOON + HOUR)}
        rate = uses["max_usd_day"].used  # of the hour that it ran
        assert uses["max_usd_day"].forecast_running == rate * day_h, case
        assert uses["max_usd_month"].forecast_running == rate * month_h, case
        ends = {name: use.ends_at for name, use in uses.items()}
        assert ends == {"max_usd_hour": None, "max_usd_day": TOMORROW, "max_usd_month": NEXT_MONTH}, case
        assert uses["max_usd_hour"].forecast_running is None, case
