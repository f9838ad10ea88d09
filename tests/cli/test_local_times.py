"""Every reading command with timezone = "Asia/Tokyo": no output shows a time in UTC."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gpuwatch.bootstrap import real_now
from gpuwatch.domain.launches.launch import EndReason, LaunchState
from gpuwatch.domain.launches.life.circuit_breaker import CircuitBreaker
from gpuwatch.emulator import Marketplace
from gpuwatch.ports import Alert, AlertKind, ProviderHealth
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.alerts.pauses import save_breaker
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from tests.cli.conftest import Ran, Shell
from tests.cli.launches.test_asks import SETTINGS, House
from tests.cli.launches.test_launches import Rows
from tests.outbox import outbox_alert

LAUNCH, REFUSED = "abcdefghijkl", "mnopqrstuvwx"
PRIME = "h100.csv.gz"
MORE = """
[[watch]]
name = "auto"
gpu = ["H100"]
max_price = "auto"
max_price_cap = 3.60
deadline = "2d"
[[watch]]
name = "listed"
gpu = ["H100"]
max_price = 1.00
require = ["amp"]
"""
WITH_TIMES = (
    "check --explain --no-store",
    "asks",
    "launches",
    f"launches show {LAUNCH}",
    "machines",
    "pause listed --for 3h",
    "checklist",
    "providers",
    "doctor",
    "db stats",
    "db prune --keep-days 30",
    f"import {PRIME} --dry-run",
    f"market --data {PRIME}",
    f"calendar 'H100 SXM' --data {PRIME}",
    "history H100",
    f"history H100 --data {PRIME} --since 2025-10-20 --until 2025-10-22 --every 1h",
    f"backtest --gpu H100 --count 8 --max-price 1.85 --max-runtime 24h --data {PRIME}",
    f"advise H100 --count 8 --data {PRIME}",
    "plan fit --vram 60 --poll",
    "plan job --size-of 7B --method qlora --tokens 1M --poll",
)
WITHOUT_TIMES = (
    "offers",
    "costs",
    "calendar H100",
    "advise H100",
    "backtest --since 2025-01-01 --until 2025-01-02",  # nothing was polled then, however quick this machine is
    "market",
    "config show",
)


@pytest.fixture
def home(shell: Shell, market: Marketplace, monkeypatch: pytest.MonkeyPatch, h100_prices: Path) -> Iterator[Shell]:
    """A store with one of everything that has a time: a quote, launches, pauses, an alert, blindness."""
    monkeypatch.setenv("VAST_API_KEY", "demo-key")
    house, now = House(shell, market), real_now()
    house.fires()
    rows = Rows(shell.folder)
    rows.move(rows.reserve(LAUNCH, gpu="H100 SXM"), LaunchState.STARTING, instance_id="1")
    refused = rows.reserve(REFUSED, gpu="H100 SXM", offer_id="2", machine_id="2")
    rows.move(refused, LaunchState.FAILED, end_reason=EndReason.KEY.text("403 no permission"), ended_at=now)
    rows.store.close()
    zone(shell, "UTC")
    for line in (
        "machines block 77 --for 7d --why slow",
        "checklist tick listed amp",
        "pause h100 --for 2h",
        "check --gpu H100 --max-price 5",
    ):
        assert shell(*shlex.split(line)).code == 0, line
    with house.store.write() as connection:
        save_breaker(connection, CircuitBreaker(watch="auto", at=now, until=now + timedelta(hours=4), why="it fails"))
    with SqlDecisionStore(house.store).open() as work:
        work.save_health("vastai", "hunt", ProviderHealth(blind_since=now, last_error="502"))
    an_alert = Alert(alert_id="a1", kind=AlertKind.MATCH, created_at=now, headline="H100")
    Outbox(house.store).enqueue(outbox_alert(an_alert, ("email",), now + timedelta(hours=1)))
    (shell.folder / PRIME).symlink_to(h100_prices)
    yield shell
    house.store.close()


def zone(shell: Shell, name: str) -> None:
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    rest = SETTINGS.format(dry_run="false", url=url, action="ask", max_usd_hour=20.0)
    shell.settings(f'timezone = "{name}"\n{rest}{MORE}')


def times(ran: Ran) -> list[datetime]:
    found = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?", ran.out + ran.err)
    return [datetime.fromisoformat(one) for one in found]


@pytest.mark.parametrize("line", [*WITH_TIMES, *WITHOUT_TIMES], ids=lambda line: line.partition(" --data")[0])
def test_every_time_is_in_the_zone_of_the_settings(home: Shell, line: str) -> None:
    words = shlex.split(line)
    utc = home(*words)
    zone(home, "Asia/Tokyo")
    tokyo = home(*words)
    assert utc.code == tokyo.code
    assert tokyo.out + tokyo.err
    assert bool(times(utc)) == (line in WITH_TIMES), utc.out + utc.err
    late = [at - (then + timedelta(hours=9)) for then, at in zip(times(utc), times(tokyo), strict=True)]
    assert [one for one in late if abs(one) > timedelta(minutes=1)] == [], tokyo.out + tokyo.err
    shown = (tokyo.out + tokyo.err).replace("(UTC)", "")  # the months and days of bills and budgets, as docs/costs.md
    assert "UTC" not in shown, shown
    assert not re.search(r"\d\d:\d\d(:\d\d)?Z", shown), shown
