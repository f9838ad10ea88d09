"""When the market was swept last, and what it cost."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.ports import Completeness
from gpuwatch.storage.database import Database
from gpuwatch.storage.history import History
from gpuwatch.storage.polls import LastSweep, last_sweep
from tests.storage.market import NOON, an_answer


def test_never_swept_is_none(database: Database) -> None:
    History(database).record(an_answer(rows=5), lane="hunt")
    assert last_sweep(database, "vastai") is None


def test_the_last_sweep_is_the_sum_of_its_searches(database: Database) -> None:
    history = History(database)
    history.record(an_answer(rows=900), lane="sweep", gpu="A40")
    for day in (2, 3):
        history.record(an_answer(rows=50 + day, after_s=day * 86_400), lane="sweep", gpu="H100 SXM")
        history.record(an_answer(rows=20, after_s=day * 86_400 + 9), lane="sweep", gpu="H100 SXM", spot=True)
    history.record(
        an_answer(rows=1, after_s=4 * 86_400, completeness=Completeness.PARTIAL), lane="sweep", gpu="H100 SXM"
    )
    expected = LastSweep(at=NOON + timedelta(days=3, seconds=9), rows=73)
    assert last_sweep(database, "vastai") == expected
