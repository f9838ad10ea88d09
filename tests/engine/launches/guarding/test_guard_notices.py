"""The texts about events of a launch."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from gpuwatch.engine.launches.guarding import guard_alerts as notices
from tests.builders import NOON
from tests.domain.launches.guard_values import a_running_launch

BERLIN = ZoneInfo("Europe/Berlin")


def test_times_are_reported_in_the_owners_zone() -> None:
    """Noon is 12:00 UTC, an hour later in Berlin in November."""
    launch = a_running_launch(max_runtime_s=3600.0)
    assert notices.runtime(launch, BERLIN).headline == "max_runtime ends at 14:00 CET"
    reported = notices.contract(launch, NOON + timedelta(minutes=30), "", BERLIN)
    assert reported.headline == "its host ends the contract at 2026-11-21 13:30 CET"
    assert "its max_runtime extends to 2026-11-21 14:00 CET" in reported.why
    assert notices.maintenance(NOON, BERLIN).headline == "its host announces maintenance at 2026-11-21 13:00 CET"
