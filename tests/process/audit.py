"""The audit after every fault: the marketplace's own books, compared with the database and the owner's alerts.

What must hold at any moment, after any death: no launch has two instances, no watch more than its limit, every active
instance with a label of ours is known or reported, no alert is lost, and no byte contains a secret.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from gpuwatch.emulator import Marketplace
from gpuwatch.storage.setup.database import open_database, sqlite_path
from gpuwatch.storage.setup.sqlite_driver import sqlite_driver
from tests.telegram_double import TelegramDouble

LABEL = "gpuwatch-"
OVER = frozenset({"ended", "failed"})
MOVING = frozenset({"intended", "requested", "starting", "stopping", "unknown"})
Row = Mapping[str, Any]


class Limits(NamedTuple):
    """A watch's limits at once, and in total (0: no limit)."""

    max_active: int = 1
    max_total: int = 1


def rows(database_url: str, sql: str) -> list[Row]:
    """Queries a daemon's database, while it runs or afterwards."""
    with _reader(database_url) as rows_of:
        return rows_of(sql)


@contextmanager
def _reader(database_url: str) -> Iterator[Callable[[str], list[Row]]]:
    """Yield a function that queries. SQLite is read by its driver alone: SQLAlchemy takes ten times as long to open it,
    and tests that wait for a state open it ten times a second.
    """
    path = sqlite_path(database_url)
    if path is not None:
        driver = sqlite_driver()
        with closing(driver.connect(f"file:{quote(str(path))}?mode=rw", uri=True, timeout=60)) as connection:
            connection.row_factory = driver.Row
            yield lambda sql: [dict(row) for row in connection.execute(sql)]
        return
    store = open_database(database_url)
    try:
        with store.read() as read:
            yield lambda sql: [dict(row) for row in read.exec_driver_sql(sql).mappings()]
    finally:
        store.close()


def launches(database_url: str) -> list[Row]:
    return rows(database_url, "SELECT * FROM launch ORDER BY intended_at_ms")


def job_state(database_url: str, name: str) -> str | None:
    """Return the state of a job; None: there is none of that name."""
    return next((str(row["state"]) for row in rows(database_url, "SELECT * FROM job") if row["name"] == name), None)


def undelivered(database_url: str) -> set[str]:
    """Return the alerts that wait for a channel."""
    waiting = "SELECT alert_id FROM delivery WHERE state = 'pending'"
    unrouted = "SELECT alert_id FROM alert WHERE routed_at_ms IS NULL"
    return {row["alert_id"] for row in rows(database_url, f"{waiting} UNION {unrouted}")}


class Audit:
    """Return everything that is wrong, as sentences; none: the promises held.

    Args:
        limits: by watch.
        double: where alerts are sent; None: nowhere.
    """

    def __init__(
        self, market: Marketplace, database_url: str, limits: Mapping[str, Limits], double: TelegramDouble | None
    ) -> None:
        self._entries = [e for e in market.ledger.entries if (e.label or "").startswith(LABEL)]
        alive = set(market.ledger.alive())
        self._alive = [e for e in self._entries if e.kind == "create" and e.instance_id in alive]
        self._limits = limits
        self._double = double
        is_sqlite = sqlite_path(database_url) is not None
        with _reader(database_url) as rows_of:
            self._launches = {row["label"]: row for row in rows_of("SELECT * FROM launch")}
            self._events = rows_of("SELECT launch_id, to_state FROM launch_event")
            self._alerts = rows_of("SELECT alert_id, kind, body, routed_at_ms FROM alert")
            self._deliveries = rows_of("SELECT alert_id, channel, state FROM delivery")
            self._whole = not is_sqlite or rows_of("PRAGMA integrity_check") == [{"integrity_check": "ok"}]

    def faults(self) -> list[str]:
        """Return all problems."""
        found = [*self._doubles(), *self._too_many_at_once(), *self._too_many_in_all(), *self._orphans()]
        found += [*self._untold_steps(), *self._lost_alerts()]
        return found + ([] if self._whole else ["the database is damaged"])

    def _doubles(self) -> Iterable[str]:
        made = Counter(entry.label for entry in self._entries if entry.kind == "create")
        for label, count in made.items():
            if count > 1:
                yield f"{label} was rented {count} times"

    def _too_many_at_once(self) -> Iterable[str]:
        alive: dict[int, str] = {}
        for entry in self._entries:
            if entry.kind == "create":
                alive[entry.instance_id] = self._watch(entry.label)
            elif entry.kind in {"destroy", "expired"}:
                alive.pop(entry.instance_id, None)
            for watch, count in Counter(alive.values()).items():
                if watch in self._limits and count > self._limits[watch].max_active:
                    yield f"{watch} had {count} instances at once"

    def _too_many_in_all(self) -> Iterable[str]:
        counted = Counter(row["watch"] for row in self._launches.values() if row["state"] != "failed")
        for watch, limits in self._limits.items():
            if limits.max_total and counted[watch] > limits.max_total:
                yield f"{watch} rented {counted[watch]} in all"

    def _orphans(self) -> Iterable[str]:
        """Check that an active instance belongs to an active launch, or was reported to the owner."""
        reported = [alert["body"] for alert in self._alerts if alert["kind"] == "orphan"]
        for entry in self._alive:
            row = self._launches.get(entry.label)
            mine = row is not None and row["state"] not in OVER
            if mine and row is not None and row["instance_id"] in {None, str(entry.instance_id)}:
                continue
            if not any(str(entry.instance_id) in body for body in reported):
                yield f"instance {entry.instance_id} ({entry.label}) is nobody's: {row and row['state']}"

    def _untold_steps(self) -> Iterable[str]:
        """Check that a launch's start and end each have an alert; failed ones have one an hour per cause."""
        not_rented = any("not rented: " in alert["body"] for alert in self._alerts)
        for row in self._launches.values():
            reported = sum(row["launch_id"] in alert["body"] for alert in self._alerts)
            steps = {event["to_state"] for event in self._events if event["launch_id"] == row["launch_id"]}
            wanted = ("running" in steps) + bool(steps & OVER)
            if not_rented and steps <= {"requested", "failed"}:
                continue
            if reported < wanted and not row["dry_run"]:
                yield f"launch {row['launch_id']} went through {sorted(steps)} with {reported} alerts"

    def _lost_alerts(self) -> Iterable[str]:
        if self._double is None:
            return
        shown = "\n".join(message.text for message in self._double.shown)
        state = {delivery["alert_id"]: delivery["state"] for delivery in self._deliveries}
        # a message for very many names lists the first ones, and how many more there are
        unnamed = sum(int(number) for number in re.findall(r"(\d+) more; see all", shown))
        for alert in self._alerts:
            if alert["kind"] == "audit":  # no channel sends it
                continue
            found = state.get(alert["alert_id"], "pending" if alert["routed_at_ms"] is None else "never queued")
            if found not in {"sent", "pending"}:
                yield f"alert {alert['alert_id']} ({alert['kind']}) is lost: {found}"
            elif found == "sent" and alert["alert_id"] not in shown:
                unnamed -= 1
                if unnamed >= 0:
                    continue
                yield f"alert {alert['alert_id']} ({alert['kind']}) is marked as sent and did not arrive"

    def _watch(self, label: str | None) -> str:
        row = self._launches.get(label)
        return f"nobody ({label})" if row is None else str(row["watch"])


def leaks(secrets: Iterable[str], folder: Path, *captured: str) -> list[str]:
    """Return secrets in any written or sent byte, except in the settings."""
    written = b"".join(
        path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "gpuwatch.toml"
    ) + "".join(captured).encode()  # fmt: skip
    return [f"a secret was written: {secret[:4]}…" for secret in secrets if secret.encode() in written]
