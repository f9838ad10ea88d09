"""Some tests run in a process of their own, so that no worker keeps the libraries and models that they load.

The process is another pytest with a few files. It runs their tests in the worker's order and sends the reports back; it
ends before the worker runs any other test. Without workers, these tests run like all others.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from multiprocessing.connection import Connection, Pipe
from typing import Any

import pytest

# each row: files, folders and classes whose tests share a process. Where several rows fit, the first counts.
PLACES = (
    (  # language models
        "tests/dataset/test_embedding.py",
        "tests/dataset/test_int8.py",
        "tests/dataset/test_other_weights.py",
        "tests/dataset/test_packaged_graphs.py",
    ),
    ("tests/dataset/test_clusters.py",),
    ("tests/dataset", "tests/cli/test_html_pages.py"),
    (  # boto3, moto, and the clients of all providers at once
        "tests/providers/aws",
        "tests/providers/test_golden.py",
        "tests/providers/test_lookup.py",
        "tests/providers/test_prerequisites.py",
        "tests/emulator/test_emulator_aws.py",
        "tests/contracts/test_all_at_once.py",
        "tests/contracts/test_launcher_contract.py::Test_aws",
        "tests/contracts/test_market_contract.py::Test_aws",
        "tests/cli/watches/test_rehearse.py",
    ),
    (  # grpc
        "tests/providers/nebius",
        "tests/emulator/test_clouds.py",
        "tests/contracts/test_launcher_contract.py::Test_nebius",
        "tests/contracts/test_market_contract.py::Test_nebius",
    ),
    (  # scipy, pyarrow, matplotlib
        "tests/domain/forecasts/test_optimal_stopping.py",
        "tests/domain/history/test_price_series.py",
        "tests/domain/history/test_resampling.py",
        "tests/domain/history/test_survival.py",
        "tests/storage/history/imports/test_price_cells.py",
        "tests/storage/history/imports/test_price_export.py",
        "tests/storage/history/imports/test_price_import.py",
        "tests/cli/forecasts/test_advise.py",
        "tests/cli/forecasts/test_backtest.py",
        "tests/cli/forecasts/test_calendar.py",
        "tests/cli/setup/test_docs_command.py",
        "tests/cli/history/test_doubtful_files.py",
        "tests/cli/history/test_history.py",
        "tests/cli/history/test_history_chart.py",
        "tests/cli/test_local_times.py",
        "tests/cli/market/test_market.py",
        "tests/cli/history/test_older_prices.py",
        "tests/cli/setup/test_older_schema.py",
        "tests/cli/plan/test_plan_job.py",
        "tests/app/plan/test_plan_job.py",
        "tests/cli/plan/test_plan_watch.py",
        "tests/cli/plan/test_planner.py",
        "tests/cli/history/test_price_files.py",
        "tests/cli/test_tutorial.py",
        "tests/tools/test_best_schedule.py",
        "tests/cli/history/test_lake.py",
        "tests/storage/history/lake",
        "tests/test_query_plans.py",
    ),
)
Paths = tuple[str, ...]
WITHOUT_SLOW = "not slow"  # a test that loads a large library is slow
_PIPE = "GPUWATCH_TESTS_PIPE"  # names the descriptor at which the other process reads which test is next
_SAME_OPTIONS = ("--randomly-seed", "--hypothesis-profile")
_SHOWN_BYTES = 4000


def plugin_for(config: pytest.Config, places: Sequence[Paths] = PLACES) -> object | None:
    """Return the plugin of a worker, or of the process of a place; None without workers, or without slow tests."""
    if hasattr(config, "workerinput"):
        return None if config.option.markexpr == WITHOUT_SLOW else _Worker(places)
    return _OwnProcess(config, Connection(int(os.environ.pop(_PIPE)))) if _PIPE in os.environ else None


def place_of(item: pytest.Item, places: Sequence[Paths] = PLACES) -> Paths | None:
    """Return the row of a test that runs in a process of its own, None for all others."""
    return next((row for row in places if item.nodeid.startswith(_beginnings(row))), None)


@cache
def _beginnings(row: Paths) -> Paths:
    """Return how the names of a row's tests begin."""
    return tuple(f"{path}{separator}" for path in row for separator in ("/", "::"))


def _in_use(place: Paths, items: Sequence[pytest.Item]) -> Paths:
    """Return the paths of a row that have tests in this run: no other file needs to be collected."""
    return tuple(path for path in place if any(item.nodeid.startswith(_beginnings((path,))) for item in items))


class _Worker:
    """Lets the tests of these places run elsewhere, and reports the results."""

    def __init__(self, places: Sequence[Paths]) -> None:
        self._places = places
        self._child: _Child | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        place = place_of(item, self._places)
        if place is None:
            return None
        following = nextitem.nodeid if nextitem and place_of(nextitem, self._places) == place else None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, place, following):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        item.session._setupstate.teardown_exact(nextitem)  # the test before left what it has in common with this one
        return True

    def _reports(self, item: pytest.Item, place: Paths, following: str | None) -> list[pytest.TestReport]:
        child = self._child = self._child or _Child(item.config, _in_use(place, item.session.items))
        call = pytest.CallInfo.from_call(lambda: child.run(item.nodeid, following), "call", reraise=KeyboardInterrupt)
        if call.excinfo or following is None:
            child.end(kill=call.excinfo is not None)
            self._child = None
        if call.excinfo:  # the process died, or pytest-timeout interrupts
            return [pytest.TestReport.from_item_and_call(item, call)]
        hook = item.config.hook
        return [hook.pytest_report_from_serializable(config=item.config, data=data) for data in call.result or ()]


class _Child:
    """The process of a place, as its worker sees it."""

    def __init__(self, config: pytest.Config, place: Paths) -> None:
        self._connection, given = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 closed in end()
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        given_options = {name: config.getoption(name, None) for name in _SAME_OPTIONS}
        options = [f"{name}={value}" for name, value in given_options.items() if value is not None]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", *options, *place],
            cwd=config.rootpath, env=environ | {_PIPE: str(given.fileno())}, pass_fds=[given.fileno()],
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        given.close()

    def run(self, nodeid: str, following: str | None) -> list[Any]:
        """Run one test and return its reports as data. Raises RuntimeError: the process ended."""
        try:
            self._connection.send((nodeid, following))
            reports: list[Any] = self._connection.recv()
        except (EOFError, OSError) as error:
            code = self._process.wait()
            self._output.seek(0)
            shown = self._output.read()[-_SHOWN_BYTES:].decode(errors="replace")
            raise RuntimeError(f"its process ended with {code}: {shown}") from error
        return reports

    def end(self, *, kill: bool) -> None:
        """Wait until its fixtures are torn down, or kill it in the middle of a test."""
        if kill:
            self._process.kill()
        self._process.wait()
        self._connection.close()
        self._output.close()


class _OwnProcess:
    """Runs the tests that the worker names."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection
        self._reports: list[Any] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items: dict[str | None, pytest.Item] = {item.nodeid: item for item in session.items}
        following: str | None = ""
        while following is not None:
            nodeid, following = self._connection.recv()
            item = items[nodeid]
            item.ihook.pytest_runtest_protocol(item=item, nextitem=items.get(following))
            self._connection.send(self._reports)
            self._reports = []
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        hook = self._config.hook
        self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))
