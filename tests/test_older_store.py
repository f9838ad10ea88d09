"""A database of an older gpuwatch keeps every row when it is upgraded, and everything in it can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Boolean, Connection, MetaData, select

from gpuwatch.domain.launches.instances.machines_and_places import MachineVerdict
from gpuwatch.domain.launches.launch import LaunchState
from gpuwatch.domain.launches.life.owner_decisions import ApprovalState
from gpuwatch.ports import AlertKind, Severity
from gpuwatch.storage.alerts.outbox import Outbox
from gpuwatch.storage.alerts.pauses import SqlPauseRepository
from gpuwatch.storage.history.queries.history_queries import known_gpu_names
from gpuwatch.storage.history.queries.poll_queries import format_changes
from gpuwatch.storage.history.queries.stored_prices import market_at
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.launches.hook_runs import SqlHookQueue
from gpuwatch.storage.launches.invoice_rows import SqlInvoiceRepository, SqlUtilisationRepository
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.launches.renting_blocks import SqlChecklistRepository, SqlMachineNoteRepository
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.migrate import alembic_config, newest_schema, upgrade
from gpuwatch.storage.unit_of_work import SqlDecisionStore
from gpuwatch.storage.watches.take_over import take_over
from tests.checkout import TESTS

# every table, filled by the gpuwatch of schema 0004 through its own repositories
OLDER: dict[str, list[dict[str, Any]]] = json.loads((TESTS / "recorded" / "store-0004.json").read_text())
RENAMED_TABLES = {
    "ask": "approval",
    "charge": "invoice_line",
    "seen_word": "seen_value",
    "stranger": "foreign_instance",
    "use_sample": "utilisation_sample",
    "watch_memory": "watch_state",
}
RENAMED_COLUMNS = {
    ("ask", "ask_id"): "approval_id",
    ("ask", "words"): "message",
    ("ask", "silent_until_ms"): "muted_until_ms",
    ("seen_word", "word"): "value",
    ("auto_price", "reckoned_at_ms"): "computed_at_ms",
    ("checklist_tick", "words"): "note",
    ("delivery", "taken"): "settled_recipients",
    ("launch_event", "provider_words"): "provider_message",
}
ADDED = {
    "history_state": {"rewritten": 0, "packed_to_day": None, "kept_by_default": 0},
    "alert": {"severity": "warning", "subject": "h100", "headline": "h", "routed_at_ms": 1772452800000, "owner": ""},
    "provider_health": {"lane": "hunt", "not_understood": 0, "reported": 1},
    "delivery": {"first_try_at_ms": None},
    "poll": {"not_understood": None},
    "launch": {
        "account_id": None,
        "install_id": None,
        "watch_id": None,
        "terms": None,
        "spent_microusd": None,
        "ssh": None,
        "started_by": None,
        "kept": None,
        "interruption": None,
    },
    "series": {"download_microusd_gb": None, "upload_microusd_gb": None, "vcpu_milli": None, "ram_mib": None},
    "job": {"changed": 0, "series": None, "planned_at_ms": None},
    "ask": {"agent_microusd": None, "rent": None},
    "watch_memory": {"spot_wait_since_ms": None, "spot_idle_since_ms": None},
}
POLL_TOTALS = [
    {
        "provider": "vastai", "gpu": "", "spot": 0, "lane": "sweep", "searches": 3, "rows": 3, "answered_s": 1772460000,
        "answered_rows": 1, "answered_skipped": 0, "complete_s": 1772460000, "complete_rows": 1,
    }
]  # fmt: skip
ENDED_S = {1772452800: 1772456400, 1772456400: 1772460000}  # start of a price → its end, which is stored now
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LAUNCH = "a" * 12


@pytest.fixture
def older(empty_database_url: str) -> Iterator[Database]:
    """The database as that gpuwatch left it."""
    database = open_database(empty_database_url)
    with database.write() as connection:
        create_older(connection)
    yield database
    database.close()


def create_older(connection: Connection) -> None:
    """Create the tables of schema 0004, with every recorded row."""
    command.upgrade(alembic_config(connection), "0004")
    tables = MetaData()
    tables.reflect(connection)
    connection.execute(tables.tables["history_state"].delete())
    for table in tables.sorted_tables:
        for row in OLDER.get(table.name, ()):
            values = {
                name: bytes.fromhex(value["hex"])
                if isinstance(value, dict)
                else bool(value)
                if isinstance(table.c[name].type, Boolean)
                else value
                for name, value in row.items()
            }
            connection.execute(table.insert(), values)


def _rows(database: Database) -> dict[str, list[dict[str, Any]]]:
    tables = MetaData()
    with database.read() as connection:
        tables.reflect(connection)
        found = {
            name: [
                {
                    key: {"hex": value.hex()} if isinstance(value, bytes) else value
                    for key, value in row._mapping.items()
                }
                for row in connection.execute(select(table))
            ]
            for name, table in tables.tables.items()
        }
    found.pop("alembic_version")
    return {name: sorted(rows, key=repr) for name, rows in found.items() if rows}


def _expected() -> dict[str, list[dict[str, Any]]]:
    return {"poll_total": POLL_TOTALS, "job_changes": [{"id": 1, "changes": 0}]} | {
        RENAMED_TABLES.get(table, table): sorted(
            (
                {RENAMED_COLUMNS.get((table, name), name): value for name, value in row.items()}
                | ADDED.get(table, {})
                | ({"ended_s": ENDED_S.get(row["seen_from_s"])} if table == "price_interval" else {})
                for row in rows
            ),
            key=repr,
        )
        for table, rows in OLDER.items()
    }


def test_the_recorded_rows_are_about_every_renamed_table() -> None:
    assert RENAMED_TABLES.keys() | {table for table, _ in RENAMED_COLUMNS} <= OLDER.keys()
    assert all(OLDER.values())


def test_an_upgrade_keeps_every_row_and_value(older: Database) -> None:
    assert upgrade(older) == [f"{number:04}" for number in range(5, int(newest_schema()) + 1)]
    assert _rows(older) == _expected()


def test_a_downgrade_brings_the_older_rows_back(older: Database) -> None:
    before = _rows(older)
    upgrade(older)
    with older.write() as connection:
        command.downgrade(alembic_config(connection), "0004")
    assert _rows(older) == before


def test_the_older_schema_still_tells_its_gpu_names(older: Database) -> None:
    names = known_gpu_names(older)
    assert "Z900" in names
    upgrade(older)
    assert known_gpu_names(older) == names


def test_launches_and_approvals_are_read_as_they_were(older: Database) -> None:
    upgrade(older)
    repository = SqlLaunchRepository(older)
    launch = repository.get(LAUNCH)
    assert launch is not None
    assert (launch.state, launch.price_microusd_hour, launch.promised.disk_gb) == (LaunchState.STARTING, 3_600_000, 8.0)
    assert repository.events(LAUNCH)[-1].provider_words == "instance 7 is loading"
    assert repository.known_foreign_instances("vastai") == {"4711"}
    approved, denied, left = sorted(SqlApprovalRepository(older).recent(NOON), key=lambda one: one.approval_id)
    assert (approved.state, approved.launch_id) == (ApprovalState.APPROVED, LAUNCH)
    assert (denied.state, denied.words) == (ApprovalState.DENIED, "too far")
    assert (left.state, left.match.offer.machine_id) == (ApprovalState.OPEN, "99")
    (run,) = SqlHookQueue(older).lease(NOON + timedelta(hours=1), 5, 60.0)
    assert json.loads(run.body)["launch_id"] == LAUNCH


def test_what_the_owner_said_still_holds(older: Database) -> None:
    upgrade(older)
    assert SqlPauseRepository(older).load().by_hand[0].why == "holiday"
    (avoided,) = SqlMachineNoteRepository(older).avoided(NOON + timedelta(hours=1)).values()
    assert avoided.by_owner
    assert MachineVerdict(OLDER["machine_note"][0]["verdict"]) is MachineVerdict.BLOCKED
    (tick,) = SqlChecklistRepository(older).load("h100")
    assert (tick.item, tick.words) == ("amp", "run 7")


def test_a_watch_whose_name_now_marks_an_owner_keeps_its_launch_under_a_plain_name(older: Database) -> None:
    """Its launch is another owner's until then: nothing is followed or ended under a name that two lists may have."""
    with older.write() as connection:
        for table in ("alert", "ask", "checklist_tick", "launch", "watch_memory"):
            connection.exec_driver_sql(f"UPDATE {table} SET watch = 'lab::h100'")
    upgrade(older)
    repository = SqlLaunchRepository(older)
    assert repository.own_alive() == []
    taken = take_over(older, {"h100"}, previous="lab", owner="", now=NOON)
    assert (taken.watches, taken.active_launches) == (("h100",), 1)
    assert [launch.launch_id for launch in repository.own_alive()] == [LAUNCH]
    rows, expected = _rows(older), _expected()
    for table in ("approval", "checklist_tick", "watch_state"):
        assert rows[table] == expected[table], table


def test_alerts_history_and_samples_are_read(older: Database) -> None:
    upgrade(older)
    outbox = Outbox(older)
    assert outbox.new_address("telegram", "1") == "2"
    due = {one.channel: one for one in outbox.lease(datetime(2026, 3, 2, 12, tzinfo=UTC), 5, 60.0)}
    assert due["email"].taken == ("k1", "!k2")
    assert due["email"].alert.headline == "h"
    assert SqlUtilisationRepository(older).mean(LAUNCH) == 97.5
    assert [row.microusd for row in SqlInvoiceRepository(older).all()] == [3_600_000]
    assert [change.text for change in format_changes(older)["vastai"]] == ["new field: x"]
    store = SqlDecisionStore(older)
    assert store.memories()["h100"].misses == 2
    assert store.provider_health()["vastai", "hunt"].last_error == "503"
    polls = [row["at_s"] for row in OLDER["poll"]]
    found = market_at(older, datetime.fromtimestamp(max(polls), UTC))
    assert [offer.identity.machine_id for offer in found] == ["77"]


@pytest.mark.parametrize(
    ("kind", "did", "now", "severity"),
    [
        ("offer", "Nothing: the decision is yours.", AlertKind.MATCH, Severity.INFO),
        ("launch", "Launch aaaaaaaaaaaa is running.", AlertKind.RENT, Severity.INFO),
        ("launch", "Launch aaaaaaaaaaaa has ended.", AlertKind.END, Severity.INFO),
        ("seeing", "gpuwatch evaluates all its watches again.", AlertKind.RECOVERED, Severity.INFO),
        ("held", "Launch aaaaaaaaaaaa is held.", AlertKind.HELD, Severity.CRITICAL),
    ],
)
def test_an_older_alert_is_read_by_its_new_kind(
    older: Database, kind: str, did: str, now: AlertKind, severity: Severity
) -> None:
    with older.write() as connection:
        tables = MetaData()
        tables.reflect(connection)
        row = OLDER["alert"][0] | {"alert_id": "a0", "kind": kind, "once_key": None}
        row["body"] = json.dumps(json.loads(row["body"]) | {"alert_id": "a0", "kind": kind, "did": did})
        connection.execute(tables.tables["alert"].insert(), row)
        connection.execute(tables.tables["delivery"].insert(), OLDER["delivery"][1] | {"alert_id": "a0"})
    upgrade(older)
    due = Outbox(older).lease(datetime(2026, 3, 2, 12, tzinfo=UTC), 5, 60.0, ["telegram"])[0]
    assert (due.alert.kind, due.alert.severity, due.alert.subject) == (now, severity, "h100")
    with older.write() as connection:
        command.downgrade(alembic_config(connection), "0004")
        stored = connection.exec_driver_sql("SELECT kind, body FROM alert WHERE alert_id = 'a0'").one()
    assert (stored[0], json.loads(stored[1])["kind"]) == (kind, kind)
