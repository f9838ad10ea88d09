"""The layout obeys the rules in docs/architecture.md."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.checkout import ROOT

PACKAGE = ROOT / "gpuwatch"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES_MAX = 400
EXTRAS = PROJECT["project"]["optional-dependencies"]
LOCKS = {
    "runtime.txt": PROJECT["project"]["dependencies"],
    "server.txt": [
        *PROJECT["project"]["dependencies"],
        *chain(*(wanted for extra, wanted in EXTRAS.items() if extra not in {"dataset", "datatrove"})),
    ],
    "dataset.txt": [*PROJECT["project"]["dependencies"], *EXTRAS["dataset"]],
    "build.txt": PROJECT["dependency-groups"]["build"],
    "installer.txt": PROJECT["dependency-groups"]["installer"],
    "dev.txt": [
        *PROJECT["project"]["dependencies"],
        *(one for one in PROJECT["dependency-groups"]["dev"] if isinstance(one, str)),
    ],
    "model.txt": PROJECT["dependency-groups"]["model"],
    "official-client.txt": PROJECT["dependency-groups"]["official-client"],
}
each_lock = pytest.mark.parametrize("lock", LOCKS)


@cache
def _tracked() -> tuple[Path, ...]:
    """Return the repository's files; outside one (an unpacked sdist) every file that is not hidden."""
    asked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if asked.returncode:
        found = [path for path in ROOT.rglob("*") if path.is_file() and not _hidden(path)]
    else:
        found = [ROOT / name for name in asked.stdout.split("\0") if name]
    return tuple(path for path in found if path.is_file())


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(ROOT).parts)


class Source(NamedTuple):
    """The facts about a file of the package that the tests below need.

    `imports`: the top names of everything imported, also inside functions and for types. `taken`: the names of
    `from a.b import c`, as ("a.b", "c"); `taken_at_run_time`: without those only for types. `calls`: (line,
    "time.time") for each call of that form. `classes`: those at the top level. `matched_errors`: lines that compare the
    text of an error. `transitions`: lines that call a method of this name, on whatever object. `retries`: lines of
    loops that catch an error and wait.
    """

    imports: frozenset[str]
    taken: frozenset[tuple[str, str]]
    taken_at_run_time: frozenset[tuple[str, str]]
    calls: frozenset[tuple[int, str]]
    classes: tuple[str, ...]
    matched_errors: frozenset[int]
    transitions: frozenset[int]
    retries: frozenset[int]


@cache
def _sources() -> Mapping[str, Source]:
    """Parse every file once, without keeping the syntax trees."""
    return {path.relative_to(PACKAGE).as_posix(): _read(path) for path in sorted(PACKAGE.rglob("*.py"))}


def _read(path: Path) -> Source:
    module = ast.parse(path.read_text())
    nodes = list(ast.walk(module))
    for_types = {id(inner) for node in nodes if _is_for_types(node) for inner in ast.walk(node)}
    plain = {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    taken = [
        (node, (node.module, alias.name))
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module
        for alias in node.names
    ]
    return Source(
        imports=frozenset(plain | {place.partition(".")[0] for _, (place, _) in taken}),
        taken=frozenset(names for _, names in taken),
        taken_at_run_time=frozenset(names for node, names in taken if id(node) not in for_types),
        calls=frozenset(
            (node.lineno, f"{node.func.value.id}.{node.func.attr}")
            for node in nodes
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
        ),
        classes=tuple(node.name for node in module.body if isinstance(node, ast.ClassDef)),
        matched_errors=frozenset(_matched_errors(nodes)),
        transitions=frozenset(
            node.lineno
            for node in nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "transition"
        ),
        retries=frozenset(node.lineno for node in nodes if isinstance(node, ast.For | ast.While) and _is_retry(node)),
    )


def _is_retry(loop: ast.AST) -> bool:
    inner = list(ast.walk(loop))
    called = {getattr(node.func, "attr", getattr(node.func, "id", "")) for node in inner if isinstance(node, ast.Call)}
    catches = "suppress" in called or any(isinstance(node, ast.ExceptHandler) for node in inner)
    return catches and any(name.lstrip("_") in {"sleep", "wait"} for name in called)


def _matched_errors(nodes: Sequence[ast.AST]) -> Iterator[int]:
    """`str(error).startswith(…)` and `… in str(error)`; a text may be shortened, but nothing may depend on it."""
    for node in nodes:
        compared: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            compared = [node.func.value] if node.func.attr in {"startswith", "endswith", "find", "index"} else []
        elif isinstance(node, ast.Compare) and any(isinstance(one, ast.In | ast.NotIn | ast.Eq) for one in node.ops):
            compared = node.comparators if isinstance(node.left, ast.Constant | ast.Name) else []
        for value in compared:
            is_text = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "str"
            if is_text and any(isinstance(of, ast.Name) and of.id in {"error", "fault"} for of in value.args):
                yield node.lineno


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _importers(library: str) -> set[str]:
    return {name for name, source in _sources().items() if library in source.imports}


# --- imports ----------------------------------------------------------------------------------------------------------


def test_imports_run_one_way() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_http_client_alone_knows_httpx_and_its_sockets_httpcore() -> None:
    assert {name.rpartition("/")[0] for name in _importers("httpx")} == {"providers/toolkit/http"}
    assert _importers("httpcore") == {"providers/toolkit/http/wire.py"}


def test_the_scheduler_alone_knows_apscheduler() -> None:
    assert _importers("apscheduler") == {"daemon/scheduler.py"}


def test_a_loop_that_catches_errors_and_waits_is_tenacitys() -> None:
    """Except for the threads that watch the scheduler, and the emulator, which waits for its own processes."""
    assert {name for name, source in _sources().items() if source.retries} == {
        "daemon/scheduler.py",
        "emulator/instances/machine_sshd.py",
    }
    users = {
        name for name, source in _sources().items() if ("gpuwatch.daemon.scheduler", "repeating_thread") in source.taken
    }
    assert users == {"daemon/keeper_thread.py", "daemon/process.py"}


def test_storage_alone_knows_sqlalchemy_and_alembic() -> None:
    assert {name.partition("/")[0] for name in _importers("sqlalchemy") | _importers("alembic")} == {"storage"}


def test_the_store_is_reached_through_sqlalchemy_alone() -> None:
    """Few files touch a driver: the engines are made there, and SQLite's copy of a file in use has no other way."""
    assert _importers("sqlite3") == {"storage/setup/sqlite_driver.py"}
    assert _importers("psycopg") == {"storage/setup/postgres_connection.py"}
    opened = ("gpuwatch.storage.setup.sqlite_driver", "connect_read_only")
    openers = {name for name, source in _sources().items() if opened in source.taken}
    assert openers == {"storage/setup/backup.py", "storage/setup/database.py"}
    touched = re.compile(r"\b(driver_connection|dbapi_connection)\b|\.cursor\(|\.connection\.connection\b")
    assert {name for name in _sources() if touched.search((PACKAGE / name).read_text())} == {
        "storage/setup/database.py"
    }


def test_commands_leave_the_store_to_use_cases() -> None:
    """They may name its types; only `app/` opens it and queries it."""
    for name, source in _sources().items():
        if name.startswith("cli/"):
            assert [place for place, _ in source.taken_at_run_time if place.startswith("gpuwatch.storage")] == [], name


def test_judging_settings_alone_knows_pydantic() -> None:
    schemas = "watches/watch watches/watch_fields watches/launch_spec watches/watch_job_schema setup/fields"
    schemas += " setup/history_keep setup/store_addresses plan/plan_schema plan/workload plan/machines/own_hosts"
    schemas += " plan/parallelism/parallel_request jobs/job_values jobs/job_request"
    inner = {
        "app/plan/plan_request.py",
        "cli/setup/mcp.py",  # the SDK of agents describes its tools by it
        "ports/settings.py",
        *(f"domain/{name}.py" for name in schemas.split()),
    }
    for name in _importers("pydantic") | _importers("pydantic_core"):
        assert name.startswith("settings/") or name in inner


def test_the_emulator_knows_nothing_of_our_client() -> None:
    """It is built from the marketplace's documents: an error of the client must not be repeated in its judge."""
    for name, source in _sources().items():
        if name.startswith("emulator/"):
            known = {place for place, _ in source.taken}
            assert not [one for one in known if one.startswith(("gpuwatch.providers", "gpuwatch.engine"))], name


def test_wiring_alone_reads_the_clock() -> None:
    clocks = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today", "time.time"}
    readers = {name for name, source in _sources().items() if clocks & {call for _, call in source.calls}}
    assert readers == {"bootstrap/__init__.py"}


def test_check_starts_without_what_it_does_not_need() -> None:
    """These take tens of milliseconds each, before an answer is on the screen."""
    heavy = ("sqlalchemy", "alembic", "pydantic", "rich", "apscheduler", "httpcore", "httpx")
    program = f"import sys, gpuwatch.cli.watches.check; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_importing_a_module_does_nothing() -> None:
    """No top-level code opens a file, a socket or a thread: the package imports in an empty, read-only place."""
    modules = [
        "gpuwatch." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in _sources()
        if not name.startswith("migrations/") and name not in {"__init__.py", "__main__.py", "emulator/__main__.py"}
    ]
    program = (
        "import sys, threading, importlib\n"
        "hits = []\n"
        "sys.addaudithook(lambda event, args: hits.append((event, str(args)))"
        " if event in {'socket.connect', 'socket.bind', 'sqlite3.connect', 'subprocess.Popen'} else None)\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(hits, threading.active_count())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False, cwd="/"
    )
    assert (done.stdout.strip(), done.stderr) == ("[] 1", "")


# --- files ------------------------------------------------------------------------------------------------------------


def test_no_file_of_code_is_too_long_to_be_read_at_once() -> None:
    long = {path.relative_to(ROOT).as_posix(): _lines(path) for path in _tracked() if path.suffix == ".py"}
    assert {name: lines for name, lines in long.items() if lines > LINES_MAX} == {}


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_no_file_is_named_for_nothing() -> None:
    empty_names = {"utils", "util", "helpers", "common", "misc", "core", "models"}
    assert [path for path in _tracked() if path.stem in empty_names] == []


def test_no_file_names_a_package_registry() -> None:
    """Package sources are configured per machine; a lock with a host works nowhere else."""
    hosts = re.compile("py" + r"pi\.(org|io)|python" + r"hosted\.org|ana" + r"conda\.org")
    assert [path for path in _tracked() if hosts.search(path.read_text(errors="replace"))] == []


def test_a_decision_is_one_page() -> None:
    pages = sorted((ROOT / "docs/decisions").glob("*.md"))
    assert [page.name for page in pages if _lines(page) > 40] == []
    for page in pages:
        assert re.match(r"# \d{4} ", page.read_text()), page.name
        assert page.read_text()[2:6] == page.name[:4]


# --- locks ------------------------------------------------------------------------------------------------------------


def _pins(lock: str) -> dict[str, Version]:
    text = (ROOT / "requirements" / lock).read_text()
    return {
        canonicalize_name(name): Version(version)
        for name, version in re.findall(r"(?m)^([\w.-]+)(?:\[[^\]]+\])?==([^\s;]+)", text)
    }


def test_every_lock_is_looked_at_and_written_by_make_lock() -> None:
    assert {path.name for path in (ROOT / "requirements").glob("*.txt")} == set(LOCKS)
    assert set(re.findall(r"(?m)^lock (\S+)", (ROOT / "requirements/lock").read_text())) == set(LOCKS)


@each_lock
def test_a_lock_holds_each_direct_dependency_at_an_allowed_version(lock: str) -> None:
    pins = _pins(lock)
    for text in LOCKS[lock]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)]), text


@each_lock
def test_every_locked_package_has_a_hash(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    blocks = re.split(r"(?m)^(?=[\w.,\[\]-]+==)", text)
    assert len(blocks) > 1
    assert [block for block in blocks if "==" in block.partition("\n")[0] and "--hash=sha256:" not in block] == []


@each_lock
def test_a_lock_holds_pins_and_nothing_else(lock: str) -> None:
    for line in (ROOT / "requirements" / lock).read_text().splitlines():
        assert re.match(r"[\w.-]+(?:\[[\w,.-]+\])?==|    --hash=sha256:[0-9a-f]{64}|    #", line), line


def test_what_is_tested_is_what_is_installed() -> None:
    tested = _pins("dev.txt")
    for lock in ("runtime.txt", "server.txt", "dataset.txt", "build.txt"):
        assert {name: pin for name, pin in _pins(lock).items() if tested.get(name) != pin} == {}


def test_the_build_needs_nothing_that_is_not_locked() -> None:
    assert {canonicalize_name(Requirement(text).name) for text in PROJECT["build-system"]["requires"]} <= set(
        _pins("build.txt")
    )


def test_python_3_11_is_enough() -> None:
    assert PROJECT["project"]["requires-python"] == ">=3.11"
    assert PROJECT["tool"]["ruff"]["target-version"] == "py311"


CLOCKS = {"datetime.now", "datetime.utcnow", "time.time", "time.monotonic", "time.monotonic_ns", "time.perf_counter"}
MAY_READ_THE_CLOCK = ("bootstrap/", "emulator/", "testing/")  # the emulator's market runs in real time by itself
JOINS_THREADS = {"engine/alerts/alert_delivery.py"}  # limit for real threads to end


def test_only_bootstrap_reads_the_clock() -> None:
    """Elsewhere a clock is an argument; a function may be its default."""
    for name, source in _sources().items():
        if not name.startswith(MAY_READ_THE_CLOCK) and name not in JOINS_THREADS:
            assert [line for line, call in source.calls if call in CLOCKS] == [], name


def test_launches_change_their_state_through_one_door() -> None:
    """Whoever changes a state applies an event: so no change misses its alert, its hook or its free slot."""
    assert {name for name, source in _sources().items() if source.transitions} == {
        "engine/launches/following/transition_executor.py"
    }
    writes = re.compile(r"\b(update|delete)\(launch(es|_table)?\)")
    assert {name for name in _sources() if writes.search((PACKAGE / name).read_text())} == {
        "storage/launches/launch_repository.py", "storage/setup/account_rows.py",
        "storage/watches/watch_identities.py",  # account, watch
    }  # fmt: skip


def test_what_writes_the_database_has_the_name_of_a_write() -> None:
    """A reader may be called as often as anyone likes; whoever writes says so, and is a task or a command."""
    verbs = (
        "add adopt apply approve begin delete deny end enqueue ensure expire extend finish hand lease link mark note"
        " open pack pause prune receive record register release remove report resume retarget retry route save set"
        " silence skip store submit take tick transition untick update upgrade"
    )
    named = set()
    for path in sorted((PACKAGE / "storage").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            is_public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if is_public and ".write()" in ast.unparse(node) and node.name not in {"write"}:
                named.add(node.name)
    assert {name for name in named if name.partition("_")[0] not in verbs.split()} == set()


def test_nothing_depends_on_the_text_of_an_error() -> None:
    """An error carries what happens next in its class and its fields: a reworded text must change nothing."""
    assert {name: source.matched_errors for name, source in _sources().items() if source.matched_errors} == {}


def test_every_class_has_a_name_of_its_own() -> None:
    """A name for two things explains neither."""
    places: dict[str, list[str]] = {}
    for name, source in _sources().items():
        for class_name in source.classes:
            places.setdefault(class_name, []).append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
