"""Every statement that the program sends to a table that grows for years has an index that fits it.

Commands, pages, metrics and the daemon's writers run over a filled store while their statements are recorded; then the
database explains each. A scan of a large table is refused, unless the statement is named below with its reason.
Pruning is not among them: it walks each table in steps, by ranges of its key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from gpuwatch.app.setup.metrics import MetricsReader
from gpuwatch.bootstrap import real_now
from gpuwatch.cli import run
from gpuwatch.settings import load
from gpuwatch.storage.history.queries.history_queries import SqlHourlyLows, newest_prices, prices_on_sale
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.history.recording.poll_writer import pack_days
from gpuwatch.storage.setup.database import Database
from gpuwatch.web.page_frame import links
from tests.storage.history.recording.test_recorded_polls import LATER, fill
from tests.storage.stored_answers import NOON, an_answer, an_offer
from tests.web.served import served

LARGE = ("poll", "poll_day", "price_interval", "hourly", "launch")
SPAN = ("--since", "2026-03-01", "--until", "2026-03-07")
COMMANDS = (
    ("forecasts", "calendar", "H100 SXM", *SPAN, "--json"),
    ("forecasts", "advise", "H100 SXM", *SPAN, "--json"),
    ("forecasts", "backtest", *SPAN, "--json"),
    ("forecasts", "scores", "--json"),
    ("history", "H100", *SPAN, "--under", "1.50", "--json"),
    ("history", "H100", "--since", "all", "--json"),
    ("market", *SPAN, "--json"),
    ("providers", "--json"),
    ("launches", "--json"),
    ("launches", "costs", "--json"),
    ("approvals", "--json"),
    ("alerts", "list", "--json"),
    ("plan", "fit", "--vram", "40", "--json"),
    ("store", "export", "--lake", "lake", "--json"),
)
WATCHES = """
[record]
gpu = ["H100 SXM"]
[providers.vastai]
api_key = "demo-key"
[[watch]]
name = "plain"
gpu = "H100 SXM"
max_price = 1.60
[[watch]]
name = "auto"
gpu = "H100 SXM"
max_price = "auto"
max_price_cap = 3
deadline = "2d"
"""
# a part of the statement → why it may read the whole table
EXCEPTIONS = {
    "alert.once_key LIKE": "when an episode ends: from the newest alert on, which is nearly always enough",
    "FROM launch ORDER BY launch.intended_at_ms DESC": "`gpuwatch launches` lists every launch",
    "count(*) AS count_1 \nFROM launch GROUP BY launch.state": "a count of each state, from an index alone",
    "min(launch.requested_at_ms) AS min_1 \nFROM launch": "the first launch of each watch, from an index alone",
}

_OF_FEW = ("ix_alert_unrouted", "uq_job_name_open", "uq_launch_slot_alive", "uq_launch_offer_alive")  # partial indexes


@contextmanager
def recorded_statements() -> Iterator[dict[str, Any]]:
    """Record each statement of any engine, with the parameters of its first use."""
    found: dict[str, Any] = {}

    def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        found.setdefault(statement, parameters[0] if many else parameters)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def use_everything(database: Database, folder: Path) -> None:
    """Everything that reads or writes the history and launches."""
    recorder = fill(database)
    for command in COMMANDS:
        assert run(command) in (0, 1, 3), command
    settings = load(cwd=folder)
    MetricsReader().read(settings, real_now())
    with served(folder, more=WATCHES, has_store=False) as web:
        web.log_in()
        for page in [*(one.path for one in links()), "/gpu/H100%20SXM"]:
            web.client.get(page, headers={"Accept": "text/html"})
    newest_prices(database)
    prices_on_sale(database, "vastai")
    for gpus in (None, ["H100 SXM"]):
        SqlHourlyLows(database).hourly_lows(gpus, NOON, LATER)
    recorder.record(an_answer(an_offer(), after_s=9 * 86_400), lane="sweep")
    SqlHistoryRecorder(database).roll_up(LATER + timedelta(days=5))
    pack_days(database, int(LATER.timestamp()))
    recorder.record(an_answer(an_offer(), observed_at=LATER), lane="sweep", gpu="H100 SXM")  # the clock was set back


def scans(connection: Connection, statement: str, parameters: Any, large: Sequence[str]) -> list[str]:
    """Return the lines of a plan that read a whole large table."""
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        lines = [row[3] for row in rows]
        whole = re.compile(rf"^SCAN ({'|'.join(large)})(_\d+)?( USING|$)")
    else:
        rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
        lines = [row[0].strip(" ->") for row in rows]
        whole = re.compile(rf"^Seq Scan on ({'|'.join(large)})\b")
    return [line for line in lines if whole.match(line) and not any(name in line for name in _OF_FEW)]


def is_explained(statement: str, large: Sequence[str]) -> bool:
    names = set(re.findall(r"[a-z_]+", statement.lower()))
    return statement.lstrip()[:6].upper() in {"SELECT", "UPDATE", "DELETE"} and not names.isdisjoint(large)


def whole_scans(
    database: Database, statements: Mapping[str, Any], large: Sequence[str] = LARGE
) -> dict[str, list[str]]:
    """Return the statements that read a whole large table, each with these lines of its plan."""
    found = {}
    with database.write() as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # a scan is left where no index fits
        for statement, parameters in statements.items():
            is_judged = is_explained(statement, large) and not any(part in statement for part in EXCEPTIONS)
            if is_judged and (whole := scans(connection, statement, parameters, large)):
                found[statement] = whole
    return found


def test_no_statement_scans_a_large_table(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "gpuwatch.toml").write_text(f'database_url = "{database.url}"\n{WATCHES}')
    with recorded_statements() as statements:
        use_everything(database, tmp_path)
    found = whole_scans(database, statements)
    assert len(statements) > 60
    assert not found, "\n".join(f"{whole}: {statement}" for statement, whole in found.items())
