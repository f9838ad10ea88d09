"""`gpuwatch store prune` and `store stats`: what is kept, and what an owner decides."""

from __future__ import annotations

from datetime import timedelta

import time_machine
from sqlalchemy import update

from gpuwatch.cli import Exit
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.tables import history_state
from tests.cli.conftest import Shell
from tests.storage.stored_answers import NOON, an_answer, an_offer
from tests.upgraded_store import open_upgraded


def test_an_older_store_is_pruned_once_its_owner_has_decided(shell: Shell) -> None:
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    database = open_upgraded(url)
    history = SqlHistoryRecorder(database)
    for hour in range(0, 72, 6):
        history.record(an_answer(an_offer(usd_hour=1.0 + hour), after_s=hour * 3600), lane="sweep")
    with database.write() as connection:
        connection.execute(update(history_state).values(kept_by_default=0))
    database.close()
    shell.settings(f'database_url = "{url}"\n')
    with time_machine.travel(NOON + timedelta(days=500), tick=False):
        stats = shell("store", "stats")
        assert "all, as [history] keep is not set" in stats.out
        assert "would delete" in shell("doctor").out
        refused = shell("store", "prune")
        assert refused.code == Exit.USAGE
        assert "set it, or --keep-days" in refused.err
        shell.settings(f'database_url = "{url}"\n[history]\nkeep = {{ polls = "1d" }}\n')
        growth = shell("store", "stats", "--json").json["growth"]
        assert growth["is_in_force"]
        assert growth["keep"] == {"polls": "1d", "intervals": "400d", "hourly": "forever"}
        over = {one["table"]: one["rows_over"] for one in growth["tables"]}
        pruned = shell("store", "prune", "--vacuum", "--json").json
        assert pruned["rows"]["price_interval"] == pruned["intervals"] == 11
        assert over["price_interval"] == 10  # an hour is rolled up before its prices go
        assert pruned["bytes"] == (shell.folder / "gpuwatch.db").stat().st_size
        assert "note  database" not in shell("doctor").out
    open_database(url).close()
