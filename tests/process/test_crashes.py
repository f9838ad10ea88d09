"""Whatever dies, and whenever: no double launch, nothing unknown, no alert lost."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from gpuwatch.emulator import Delays, Marketplace
from tests.process.audit import rows
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for, wait_until_delivered
from tests.telegram_double import telegram

KILLS = 13  # of each seed: 52 in all
MAX_TOTAL = 3
FAULTS = (
    ("create", "timeout_after", 0.15), ("create", "502_after", 0.15), ("create", "reset_after", 0.1),
    ("create", "offer_gone", 0.15), ("create", "unparsable_after", 0.1), ("create", "refuse_create", 0.05),
    ("search", "502", 0.1), ("search", "429", 0.05), ("search", "cut", 0.05),
    ("list", "502", 0.1), ("list", "list_lag", 0.1),
    ("destroy", "500_after", 0.2),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(20261121, 20261125))
def test_fifty_kills_at_random_moments_under_faults(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with Marketplace(seed=seed, key="demo-key", size=60, delays=Delays(running_s=0.5)) as market, telegram() as double:
        for n in range(8):
            bargain(market, 1.4 + n / 50)
        for endpoint, kind, probability in FAULTS:
            market.faults.add(endpoint, kind, times=None, probability=probability)
        home = Home(tmp_path, market.url, max_active=2, max_total=MAX_TOTAL, extra=notify_by(double))
        for _ in range(KILLS):
            child = home.start()
            time.sleep(rng.uniform(0.3, 2.6))
            child.kill()
            child.wait()
        market.faults.clear()
        starts = home.log().count("watching")
        with home.daemon() as child:
            wait_for(lambda: home.log().count("watching") > starts)  # before it, SIGTERM meets no handler
            # on a busy machine no daemon before this one may have come as far as reserving a launch; what was reserved
            # may have been killed before its request left, and then nothing was made and nothing may be ordered yet
            wait_for(lambda: home.launches() and _all_known(home, market), within_s=60, every_s=1.0)
            wait_until_delivered(home.database_url)
            code, _ = terminate(child)
        assert code == 0
        _no_launch_was_doubled(market)
        assert len(market.ledger.creates) <= MAX_TOTAL
        reported = _alerts(home.database_url)
        assert reported
        assert reported <= {alert_id for alert_id in reported for shown in double.shown if alert_id in shown.text}


def _no_launch_was_doubled(market: Marketplace) -> None:
    doubled = {label: n for label, n in market.ledger.creates_by_label().items() if n > 1}
    assert doubled == {}


def _all_known(home: Home, market: Marketplace) -> bool:
    """Every instance that is alive belongs to a launch that is alive, and none is being looked for."""
    launches = home.launches()
    by_instance = {launch["instance_id"]: launch for launch in launches if launch["instance_id"]}
    alive = {str(instance) for instance in market.ledger.alive()}
    known = all(i in by_instance and by_instance[i]["state"] not in {"ended", "failed"} for i in alive)
    moving = any(launch["state"] in {"requested", "starting", "stopping"} for launch in launches)
    return known and not moving


def _alerts(database_url: str) -> set[str]:
    """Alerts that were due to Telegram and did not expire."""
    return {row["alert_id"] for row in rows(database_url, "SELECT alert_id FROM delivery WHERE state = 'sent'")}
