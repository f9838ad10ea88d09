"""The texts about events of a launch."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import cast
from zoneinfo import ZoneInfo

from gpuwatch.domain.alerts.alert import OutboxAlert
from gpuwatch.engine.alerts.alert_reporter import AlertReporter
from gpuwatch.engine.alerts.launch_alerts import LaunchAlerts
from gpuwatch.engine.launches.guarding.guard_alerts import GuardAlerts
from gpuwatch.ports import AlertQueue
from tests.builders import NOON
from tests.domain.launches.guard_values import a_running_launch


def test_times_are_reported_in_the_owners_zone() -> None:
    """Noon is 12:00 UTC, an hour later in Berlin in November."""
    launch = a_running_launch(max_runtime_s=3600.0)
    stored: list[OutboxAlert] = []
    queue = cast("AlertQueue", SimpleNamespace(enqueue=stored.append))
    alerts = GuardAlerts(AlertReporter(queue, str), LaunchAlerts(lambda: "abc"), ZoneInfo("Europe/Berlin"))
    alerts.runtime_nearly_over(launch, NOON)
    alerts.contract_ends(launch, NOON + timedelta(minutes=30), "", NOON)
    alerts.maintenance(launch, NOON, NOON)
    runtime, contract, maintenance = (one.alert for one in stored)
    assert runtime.headline.endswith(": its longest runtime ends at 14:00 CET")
    assert contract.headline.endswith(": its host ends the contract at 2026-11-21 13:30 CET")
    assert "its longest runtime extends to 2026-11-21 14:00 CET" in contract.why
    assert maintenance.headline.endswith(": its host announces maintenance at 2026-11-21 13:00 CET")
