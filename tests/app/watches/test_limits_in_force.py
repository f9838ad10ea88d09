"""Pages and metrics show the automatic limit that a daemon follows, and compute it only where none does."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import msgspec

from gpuwatch.app.setup.metrics import MetricsReader
from gpuwatch.app.watches.current_limits import current_limits, limits_in_force
from gpuwatch.app.watches.watch_status import watch_statuses
from gpuwatch.bootstrap import real_now
from gpuwatch.storage.forecasts.forecast_rows import SqlAutoPriceWaits
from gpuwatch.storage.setup.database import open_database
from tests.web.served import settings_in

WATCHES = """
[[watch]]
name = "soon"
gpu = "H100 SXM"
max_price = "auto"
max_price_cap = 3.5
deadline = "2d"

[[watch]]
name = "plain"
gpu = "H100 SXM"
max_price = 1.25
"""


def test_a_limit_that_a_daemon_stored_lately_is_shown(tmp_path: Path) -> None:
    settings, now = settings_in(tmp_path, WATCHES), real_now()
    store = open_database(settings.database_url)
    waits, (watch, _) = SqlAutoPriceWaits(store, {}), settings.watches
    waits.begin_wait(watch, now)

    def limit() -> float:
        limits = [float(one.max_price_usd_gpu_hour) for one in limits_in_force(settings, settings.watches).watches]
        assert [status.limit_usd_gpu_hour for status in watch_statuses(settings)] == limits
        shown = MetricsReader().read(settings, now).values["gpuwatch_watch_max_price_usd_gpu_hour"]
        assert shown == {("soon",): limits[0], ("plain",): 1.25}
        return limits[0]

    assert limit() == 3.5  # nobody has computed one, and there is no history
    waits.save_limit(watch, Decimal("2.10"), now - timedelta(minutes=40))
    assert limit() == 2.1
    assert current_limits(settings, [watch], keep=False).watches[0].max_price_usd_gpu_hour == Decimal("3.5")  # a check
    lower = msgspec.structs.replace(watch, auto=msgspec.structs.replace(watch.auto, cap_usd_gpu_hour=Decimal(2)))
    assert limits_in_force(settings, [lower]).watches[0].max_price_usd_gpu_hour == 2  # a limit never exceeds the cap
    for of_another_clock in (now - timedelta(hours=2), now + timedelta(days=1)):
        waits.save_limit(watch, Decimal("2.10"), of_another_clock)
        assert limit() == 3.5
    store.close()
