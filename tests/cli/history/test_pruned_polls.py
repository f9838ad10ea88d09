"""Single polls are deleted, and every answer stays the same: what they showed is packed."""

from __future__ import annotations

from datetime import timedelta

import time_machine

from gpuwatch.cli import Exit
from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.domain.setup.history_keep import FOREVER, HistoryKeep
from gpuwatch.storage.history.prune import prune
from gpuwatch.storage.setup.database import open_database
from tests.cli.conftest import Shell
from tests.cli.history.test_lake import COMMANDS
from tests.storage.aged_store import START, age
from tests.upgraded_store import open_upgraded

DAYS = 16
OTHERS = (
    ("forecasts", "advise", "RTX 4090", "--under", "2.5", "--json"),
    ("forecasts", "calendar", "RTX 4090", "--since", "all", "--provider", "runpod", "--json"),
    ("history", "RTX 4090", "--since", "all", "--every", "1h", "--csv"),
    ("history", "H100 SXM", "--since", "4d", "--under", "2.2", "--json"),
)


def test_every_answer_is_the_same_after_the_polls_are_deleted(shell: Shell) -> None:
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    database = open_upgraded(url)
    age(database, 0, DAYS)
    database.close()
    shell.settings(f'database_url = "{url}"\n')
    now = START + timedelta(days=DAYS)
    commands = (*COMMANDS, *OTHERS)
    with time_machine.travel(now, tick=False):
        before = {command: shell(*command) for command in commands}
        assert {ran.code for ran in before.values()} == {Exit.DONE}, [ran.err for ran in before.values() if ran.code]
        database = open_database(url)
        report = prune(database, HistoryKeep(polls_s=1.0 * DAY_S, intervals_s=FOREVER), now)
        database.close()
        assert report.polls > 12 * (DAYS - 3)
        assert set(report.rows) == {"poll"}
        for command, whole in before.items():
            assert shell(*command).out == whole.out, command
