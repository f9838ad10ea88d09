"""The real daemon acts on changes: a new low, a drop, and restocked offers, which it also rents, for a limited cost."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from gpuwatch.bootstrap import real_now
from gpuwatch.emulator import Marketplace
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.builders import an_offer
from tests.engine.uow_fakes import an_answer
from tests.process.audit import launches, rows
from tests.process.daemon_child import Home, wait_for, wait_for_searches

A100 = "A100 SXM 80GB"
WATCHES = """
[[watch]]
name = "low"
gpu = "A100 SXM4"
new_low = "30d"

[[watch]]
name = "young"
gpu = "RTX 4090"
new_low = "30d"

[[watch]]
name = "drop"
gpu = "A100 SXM4"
drop_by = "20%"

[[watch]]
name = "rare"
gpu = "A100 SXM4"
percentile = 5

[[watch]]
name = "back"
gpu = "L40S"
restock = true

[[watch]]
name = "stock"
gpu = "L40S"
restock = true
action = "launch"
max_job_cost = 8
launch = { max_runtime = "1h", max_total = 1 }
"""
EMPTY = "SELECT watch FROM watch_state WHERE watch IN ('back', 'stock') AND misses >= 2"


def twelve_days(database: Database, usd: float) -> None:
    """An A100 an hour ago, two hours ago …, at one price."""
    now, history = real_now(), SqlHistoryRecorder(database)
    for hours in range(12 * 24, 0, -1):
        at = now - timedelta(hours=hours)
        facts = {"gpu": A100, "gpu_family": "A100", "disk_usd_gb_month": None}
        answer = an_answer(an_offer(quoted_usd_hour=usd, observed_at=at, **facts), at=at)
        history.record(answer, lane="sweep", gpu=A100, spot=False)


def test_a_low_a_drop_and_a_restock_reach_the_outbox(
    tmp_path: Path, sqlite_url: str, sqlite_database: Database
) -> None:
    twelve_days(sqlite_database, 1.0)
    with Marketplace(seed=1, key="demo-key", size=8, odd_rows=False) as market:
        for row in market.offers():
            market.withdraw(row["id"])
        market.publish(gpu="A100 SXM4", count=1, usd_hour=1.0)
        market.publish(gpu="RTX 4090", count=1, usd_hour=0.01)
        home = Home(tmp_path, market.url, extra=WATCHES, action="alert", database_url=sqlite_url)

        def alerted() -> set[str]:
            return {row["watch"] for row in rows(sqlite_url, "SELECT watch FROM alert") if row["watch"]}

        with home.daemon():
            wait_for(lambda: "watch young: new_low for RTX 4090 does not fire: too little history" in home.log())
            wait_for(lambda: len(rows(sqlite_url, EMPTY)) == 2)  # the proof that a restock needs
            wait_for_searches(market, 12)
            wait_for(lambda: alerted() == {"rare"})  # the constant price of all hours is also among the lowest
            market.publish(gpu="A100 SXM4", count=1, usd_hour=0.7)
            market.publish(gpu="L40S", count=1, usd_hour=7.0)  # $8.40 with the commission: an hour is too expensive
            market.publish(gpu="L40S", count=1, usd_hour=5.0)
            wait_for(lambda: alerted() == {"low", "drop", "rare", "back", "stock"})
            wait_for(lambda: launches(sqlite_url))

        assert [(row["watch"], row["listed_microusd_hour"]) for row in launches(sqlite_url)] == [("stock", 5_000_000)]
        explained = home.run("check", "low", "--explain", "--no-store")
        assert f"new_low for {A100}: $" in explained.stdout + explained.stderr
        assert "is not under $" in explained.stdout + explained.stderr
