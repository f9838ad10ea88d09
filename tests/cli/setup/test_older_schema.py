"""Commands that write do not upgrade an older schema: a daemon of the older version may be using it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.bootstrap import http_client, real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.domain.launches.launch import Intent, Launch, LaunchState
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action
from gpuwatch.emulator import Marketplace
from gpuwatch.errors import StoreInUse
from gpuwatch.ports import Order
from gpuwatch.providers import build
from gpuwatch.storage.launches.launch_repository import SqlLaunchRepository
from gpuwatch.storage.setup.daemon_lease import claim_daemon
from gpuwatch.storage.setup.database import open_database
from gpuwatch.storage.setup.migrate import newest_schema, revision, upgrade
from tests.builders import a_match, a_watch, an_offer
from tests.cli.conftest import Shell, older_schema
from tests.cli.test_store_is_only_read import PRICES, WATCH
from tests.conftest import Postgres
from tests.reserving import launch_or_refusal

ID = "abcdefghijkl"
WRITING = [
    ("pause",),
    ("resume",),
    ("silence", "w", "--for", "1h"),
    ("advise", "H100", "--record"),
    ("approve", ID),
    ("deny", ID),
    ("machines", "block", "7"),
    ("machines", "allow", "7"),
    ("checklist", "tick", "w", "amp"),
    ("checklist", "untick", "w", "amp"),
    ("job", "cancel", "train"),
    ("job", "retry", "train"),
    ("launches", "resolve", ID, "--absent"),
    ("adopt", "7", "--not-mine"),
    ("db", "prune", "--keep-days", "1"),
]
UPGRADING = [("db", "upgrade"), ("import", "prices.csv")]
ROW = "2026-11-01T00:00:00Z,vastai,1,DE,H100 SXM,1,80,false,2.5\n"


@pytest.fixture
def url(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> str:
    """An SQLite database that the settings name."""
    monkeypatch.setenv("VAST_API_KEY", "demo-key")
    found = f"sqlite:///{shell.folder}/gpuwatch.db"
    shell.settings(f'database_url = "{found}"\n{WATCH}')
    (shell.folder / "prices.csv").write_text(PRICES + ROW)
    return found


@pytest.fixture
def daemon(url: str) -> Iterator[None]:
    """A daemon that has locked the database."""
    with claim_daemon(url):
        yield


def _bytes(shell: Shell) -> bytes:
    return Path(shell.folder, "gpuwatch.db").read_bytes()


def _revision(url: str) -> str | None:
    database = open_database(url)
    try:
        return revision(database)
    finally:
        database.close()


def _rented(url: str, market: Marketplace) -> str:
    """A recorded launch with a running instance; returns the instance."""
    database = open_database(url)
    upgrade(database)
    watch = a_watch(action=Action.LAUNCH, launch=LaunchSpec())
    with database.write() as connection:
        intent = Intent(watch=watch, match=a_match(an_offer()), launch_id=ID, dry_run=False)
        launch = launch_or_refusal(connection, intent, Budget(), real_now())
    assert isinstance(launch, Launch)
    offer_id = str(market.publish(gpu="H100 SXM", count=1, usd_hour=2.0))
    loaded = load_settings(None)
    with http_client(loaded) as http:
        launcher = build(loaded.providers["vastai"].revealed(), http, real_now, lambda: 0.0).launcher
        assert launcher is not None
        made = launcher.create(Order(offer_id=offer_id, label=launch.label, image="x/y", disk_gb=8)).instance_id
    now = real_now()
    started = SqlLaunchRepository(database).transition(launch, LaunchState.STARTING, "created", now, instance_id=made)
    SqlLaunchRepository(database).transition(started, LaunchState.RUNNING, "runs", now, running_at=now)
    database.close()
    return made


@pytest.mark.parametrize("argv", WRITING, ids=" ".join)
def test_a_command_that_writes_says_what_to_run_and_changes_nothing(
    shell: Shell, url: str, argv: tuple[str, ...]
) -> None:
    older = older_schema(url)
    before = _bytes(shell)
    ran = shell(*argv)
    assert (ran.code, ran.out) == (Exit.CANNOT_TELL, ""), ran.err
    assert f"older schema ({older}" in ran.err
    assert "stop a running daemon, then run `gpuwatch store upgrade`" in ran.err
    assert ran.err.count("\n") == 1
    assert _bytes(shell) == before


@pytest.mark.parametrize("argv", UPGRADING, ids=" ".join)
def test_an_upgrade_runs_while_no_daemon_uses_the_database(shell: Shell, url: str, argv: tuple[str, ...]) -> None:
    older_schema(url)
    assert shell(*argv).code == Exit.DONE
    assert _revision(url) == newest_schema()


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("argv", UPGRADING, ids=" ".join)
def test_no_upgrade_runs_under_a_daemon(shell: Shell, url: str, argv: tuple[str, ...]) -> None:
    older_schema(url)
    before = _bytes(shell)
    ran = shell(*argv)
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert "a daemon (process" in ran.err
    assert _bytes(shell) == before


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("argv", UPGRADING, ids=" ".join)
def test_beside_a_daemon_of_this_version_they_work(shell: Shell, url: str, argv: tuple[str, ...]) -> None:
    database = open_database(url)
    upgrade(database)
    database.close()
    assert shell(*argv).code == Exit.DONE


@pytest.mark.parametrize("argv", [("stop", ID), ("stop", "--all")], ids=" ".join)
def test_stop_upgrades_a_database_that_no_daemon_uses(
    shell: Shell, url: str, market: Marketplace, argv: tuple[str, ...]
) -> None:
    _rented(url, market)
    older_schema(url)
    ran = shell(*argv)
    assert (ran.code, ran.out.splitlines()[-1]) == (Exit.DONE, f"launch {ID}: ended"), ran.err
    assert not market.instances()


@pytest.mark.usefixtures("daemon")
@pytest.mark.parametrize("argv", [("stop", ID), ("stop", "--all")], ids=" ".join)
def test_stop_beside_an_older_daemon_names_what_to_end_by_hand(
    shell: Shell, url: str, market: Marketplace, argv: tuple[str, ...]
) -> None:
    instance = _rented(url, market)
    older_schema(url)
    before = _bytes(shell)
    ran = shell(*argv)
    first, *by_hand = ran.err.splitlines()
    assert (ran.code, ran.out) == (Exit.CANNOT_TELL, "")
    assert first.startswith("gpuwatch: nothing was ended: ")
    assert "stop a running daemon" in first
    (line,) = by_hand
    assert line.startswith(f"manually: end instance {instance} with the label gpuwatch-{ID}")
    assert line.endswith(" at vastai")
    assert _bytes(shell) == before
    assert market.instances()


def test_on_postgresql_stop_leaves_an_older_schema_alone(shell: Shell, postgres: Postgres) -> None:
    url = postgres.empty()
    older = older_schema(url)
    shell.settings(f'database_url = "{url}"\n')
    ran = shell("stop", ID)
    assert ran.code == Exit.CANNOT_TELL
    assert "nothing was ended" in ran.err
    assert _revision(url) == older
    postgres.drop(url)


@pytest.mark.parametrize("seen_ago_s", [20, 50])
def test_on_postgresql_nothing_upgrades_under_a_daemon_of_an_older_version(
    shell: Shell, postgres: Postgres, seen_ago_s: int
) -> None:
    """Neither the command nor a daemon that starts; one that was not seen for 45 seconds is gone."""
    url = postgres.empty()
    older = older_schema(url)
    shell.settings(f'database_url = "{url}"\n')
    store = open_database(url)
    seen = f"extract(epoch FROM clock_timestamp()) * 1000 - {seen_ago_s * 1000}"
    with store.write() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO daemon_host VALUES ('h', 'main', 'old.example', '0.1.9', {seen}, {seen})"
        )
    ran = shell("upgrade", "--backed-up")
    if seen_ago_s < 45:
        assert (ran.code, ran.err.count("\n")) == (Exit.FAILED, 1), ran.err
        assert "gpuwatch 0.1.9 on old.example uses the database" in ran.err
        with pytest.raises(StoreInUse, match="stop it first"):
            upgrade(store)
        assert _revision(url) == older
    else:
        assert (ran.code, _revision(url)) == (Exit.DONE, newest_schema())
    store.close()
    postgres.drop(url)
