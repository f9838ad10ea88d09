"""Runs a mutant in a fork of a process that has already collected the tests.

A mutant in the body of a function gets its new code in the fork, in memory: no import, no written file. A mutant that
takes effect when its module is imported (a constant, a default, a computation during imports) runs in a fork of a
second process, which has imported libraries but nothing of gpuwatch.

The choice of tests and their time limits follow from one measured run of all tests: the tests that run the line, those
of the module's own test file first, then the fastest; a test may take ten times its processor time. Tests of
Hypothesis have a fixed seed and few examples, and do not shrink.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.util
import json
import multiprocessing
import os
import select
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from multiprocessing.connection import Connection
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

from benchmarks.mutant_map import LineTracer, MutantLike, MutantPlace, TestMap

_OPTIONS = ["-p", "no:randomly", "-p", "no:cacheprovider", "-k", "not postgresql"]
_OPTIONS += ["-o", "tmp_path_retention_policy=none", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
_LIBRARIES = [
    "alembic",
    "apscheduler",
    "click",
    "httpx",
    "msgspec",
    "numpy",
    "pydantic",
    "rich",
    "sqlalchemy",
    "tenacity",
]
_FILES_MAX = 12  # test files that a process without gpuwatch collects per mutant


@dataclass(frozen=True)
class Limits:
    """Time limits for one mutant."""

    budget_s: float  # processor time of its tests without a mutation
    examples: int


@dataclass(frozen=True)
class Verdict:
    """The result of the tests for a mutant."""

    verdict: str  # "killed", "timeout" or "survived"
    by: str | None
    ran: int  # number of tests
    covering: int  # number of tests that run the line


def run_mutants(mutants: Sequence[Any], tests: list[str], map_file: Path, report: Path, limits: Limits) -> None:
    """Run each mutant and append its verdict to the report."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    fresh, end = multiprocessing.Pipe()
    server = multiprocessing.get_context("fork").Process(target=_serve_fresh, args=(end, limits), daemon=True)
    server.start()
    sources = [str(file) for file in sorted(Path("gpuwatch").rglob("*.py")) if _is_mutable(file)]
    plugin = _Run(mutants, LineTracer(sources), map_file, report, limits, fresh)
    # its own folder: in the numbered ones, other runs delete files that forks still need
    with tempfile.TemporaryDirectory() as folder, plugin.tracer.active():
        code = pytest.main([*_OPTIONS, f"--basetemp={folder}/tests", *tests], plugins=[plugin])
    if plugin.failure or code not in {0, 5}:
        sys.exit(f"pytest stopped with {code}: {plugin.failure}")


def _is_mutable(file: Path) -> bool:
    return file.parts[1] in {"domain", "engine", "storage"}


class _Run:
    """A plugin that collects the tests, then runs mutants in forks instead of tests."""

    def __init__(
        self,
        mutants: Sequence[Any],
        tracer: LineTracer,
        map_file: Path,
        report: Path,
        limits: Limits,
        fresh: Connection,
    ) -> None:
        self._mutants, self.tracer, self._map_file, self._report = mutants, tracer, map_file, report
        self._limits, self._fresh = limits, fresh
        self._kills: Counter[str] = Counter()
        self._out = os.fdopen(os.dup(1), "w")
        self.failure = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failure = f"{self.failure}\n{report.longreprtext}"

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        few_examples(items, self._limits.examples)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if self.failure:
            return True
        session.config.pluginmanager.unregister(name="terminalreporter")
        self._items = {item.nodeid: item for item in session.items}
        self._warm_up(session.items)
        self.tracer.stop()
        at_import = self.tracer.taken()
        if not self._map_file.exists():
            _in_fork(lambda _: self._measure(session.items), 7200)
        self._map = TestMap(json.loads(self._map_file.read_text()))
        self._at_import = {file: set(lines) for file, lines in at_import.items()}
        self._functions = _functions_of(self.tracer.files)
        self._caches = _caches()
        gc.freeze()  # forks share memory that the collector does not touch
        for number, mutant in enumerate(self._mutants):
            begun = time.monotonic()
            found = self._verdict(mutant)
            row = asdict(mutant) | asdict(found) | {"wall_s": round(time.monotonic() - begun, 2)}
            with self._report.open("a") as report:
                report.write(json.dumps(row) + "\n")
            if found.verdict == "survived":
                print(f"survived {mutant.file}:{mutant.line} {mutant.before}  →  {mutant.after}", file=self._out)
            if number % 50 == 49:
                print(f"{number + 1} of {len(self._mutants)}", file=self._out)
            self._out.flush()
        return True

    def _warm_up(self, items: list[pytest.Item]) -> None:
        """Create the template of the databases once; the next test uses another folder."""
        stored = [item for item in items if "_sqlite_template" in getattr(item, "fixturenames", ())]
        others = [item for item in items if stored and item.path.parent != stored[0].path.parent]
        if others:
            run_tests([stored[0]], {}, after=others[0])

    def _measure(self, items: list[pytest.Item]) -> None:
        rows = {}
        caches = _caches()
        for number, item in enumerate(items):
            if number == 0 or item.path != items[number - 1].path:
                for cached in caches:  # else only the very first test would seem to run the code that fills them
                    cached.cache_clear()
            self.tracer.taken()
            begun = time.process_time()
            with self.tracer.active():
                failed, _ = run_tests([item], {}, after=items[(number + 1) % len(items)])
            if not failed:
                rows[item.nodeid] = {"cpu_s": round(time.process_time() - begun, 4), "lines": self.tracer.taken()}
            else:
                print(f"fails unmutated: {item.nodeid}", file=self._out, flush=True)
            if number % 200 == 0:
                print(f"measured {number} of {len(items)}", file=self._out, flush=True)
        self._map_file.write_text(json.dumps(rows))

    def _verdict(self, mutant: MutantLike) -> Verdict:
        tree = mutant.tree()
        code = compile(tree, str(Path(mutant.file).resolve()), "exec")
        place = MutantPlace(tree, mutant)
        functions = self._functions.get((code.co_filename, place.function, place.first_line), [])
        new = _code_in(code, place.function, place.first_line)
        in_memory = bool(
            new and functions and place.in_body
            and self._at_import.get(mutant.file, set()).isdisjoint(place.lines)  # it may have created functions
            and all(function.__code__.co_freevars == new.co_freevars for function in functions)
        )  # fmt: skip
        covering = place.tests(self._map)
        chosen = self._chosen(mutant, covering, len(self._items) if in_memory else _FILES_MAX)
        cpu_s = {test: self._map.cpu_s[test] for test in chosen}
        wall_s = 60 + 20 * sum(cpu_s.values())
        if not chosen:
            return Verdict("survived", None, 0, 0)
        if in_memory:
            assert new
            answer = _in_fork(lambda pipe: self._run_in_memory(functions, new, cpu_s, pipe), wall_s)
        else:
            module = ".".join(Path(mutant.file).with_suffix("").parts)
            self._fresh.send((module, ast.unparse(tree), cpu_s, wall_s))
            answer = self._fresh.recv()
        if answer is None:
            return Verdict("timeout", None, len(chosen), len(covering))
        failed, ran = answer
        if failed in self._items:
            if not self._passes_alone(failed):
                del self._items[failed]
                return self._verdict(mutant)
            self._kills[failed] += 1
        return Verdict("killed" if failed else "survived", failed, ran, len(covering))

    def _passes_alone(self, test: str) -> bool:
        """Whether it passes without a mutant if it runs first; determined once, at its first kill."""
        if not self._kills[test]:
            item = self._items[test]
            return _in_fork(lambda pipe: pipe.send(run_tests([item], {}, after=item)), 120) == (None, 1)
        return True

    def _chosen(self, mutant: MutantLike, covering: set[str], files_max: int) -> list[str]:
        """Return tests that killed before, those of the own test file, then the fastest, within the budget."""
        stem = Path(mutant.file).stem
        cpu_s = self._map.cpu_s
        covering = {test for test in (covering | {mutant.by}) & cpu_s.keys() if test in self._items}
        order = sorted(covering, key=lambda one: (one != mutant.by, stem not in one, -self._kills[one], cpu_s[one]))
        chosen: list[str] = []
        files: set[str] = set()
        left_s = self._limits.budget_s
        for test in order:
            files.add(test.split("::")[0])
            if chosen and (cpu_s[test] > left_s or len(files) > files_max):
                continue
            chosen.append(test)
            left_s -= cpu_s[test]
        return chosen

    def _run_in_memory(
        self, functions: list[FunctionType], new: CodeType, cpu_s: dict[str, float], pipe: Connection
    ) -> None:
        for function in functions:
            function.__code__ = new
        for cached in self._caches:
            cached.cache_clear()
        items = [self._items[test] for test in cpu_s]
        pipe.send(run_tests(items, cpu_s, after=items[0]))


def few_examples(items: Iterable[pytest.Item], examples: int) -> None:
    """Set a fixed seed, few examples and no shrinking for every test of Hypothesis."""
    for item in items:
        function = getattr(getattr(item, "obj", None), "__func__", getattr(item, "obj", None))
        owner, name = function, "_hypothesis_internal_use_settings"
        if isinstance(getattr(getattr(item, "cls", None), "settings", None), settings):
            owner, name = item.cls, "settings"  # type: ignore[attr-defined]
        given = getattr(owner, name, None)
        if given is not None:
            few = min(given.max_examples, examples)
            phases = (Phase.explicit, Phase.generate)
            setattr(owner, name, settings(given, max_examples=few, derandomize=True, database=None, phases=phases))


def run_tests(items: list[pytest.Item], cpu_s: dict[str, float], after: pytest.Item) -> tuple[str | None, int]:
    """Run tests until one fails; return its name, and how many ran. Too much processor time ends the process."""
    failed: list[str] = []

    class _Listener:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report.nodeid)

    manager = items[0].config.pluginmanager
    listener = _Listener()
    manager.register(listener)
    for number, item in enumerate(items):
        if item.nodeid in cpu_s:
            signal.setitimer(signal.ITIMER_PROF, 3 + 10 * cpu_s[item.nodeid])
        following = items[number + 1] if number + 1 < len(items) else after
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failed:
            break
    signal.setitimer(signal.ITIMER_PROF, 0)
    manager.unregister(listener)
    return (failed[0] if failed else None), number + 1


def _in_fork(work: Any, wall_s: float) -> Any:
    """Return what `work(pipe)` sends from a fork; None if it sends nothing in time."""
    here, there = multiprocessing.Pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            work(there)
        except BaseException as problem:
            with suppress(OSError):
                there.send((f"{type(problem).__name__} outside a test", 0))
        finally:
            os._exit(0)
    there.close()
    try:
        ready, _, _ = select.select([here.fileno()], [], [], wall_s)
        return here.recv() if ready else None
    except EOFError:  # it ended without an answer: killed by SIGPROF, or finished
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        here.close()


def _functions_of(files: list[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """Return every function object of some files by file, dotted name and first line."""
    wanted = {str(Path(file).resolve()) for file in files}
    found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename in wanted:
            code = one.__code__
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(one)
    return found


def _caches() -> list[Any]:
    """Return every `functools.cache` of gpuwatch: values cached during imports would hide mutants."""
    cached = [one for one in gc.get_objects() if hasattr(type(one), "cache_clear")]
    return [one for one in cached if str(one.__module__).startswith("gpuwatch.")]


def _code_in(code: CodeType, name: str, first_line: int) -> CodeType | None:
    """Return the code of a function within the code of its module."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_qualname == name and inner.co_firstlineno == first_line:
                return inner
            if name.startswith(f"{inner.co_qualname}."):
                return _code_in(inner, name, first_line)
    return None


class _MutantLoader(SourceFileLoader):
    """Loads a module from changed source."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec")


class _MutantFinder:
    def __init__(self, module: str, source: str) -> None:
        self._module, self._source = module, source

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._module:
            return None
        file = str(Path(*name.split(".")).with_suffix(".py").resolve())
        return importlib.util.spec_from_file_location(name, file, loader=_MutantLoader(name, file, self._source))


class _FreshRun:
    """A plugin: runs the chosen tests until one fails."""

    def __init__(self, cpu_s: dict[str, float], limits: Limits) -> None:
        self._cpu_s, self._limits = cpu_s, limits
        self.answer: tuple[str | None, int] = ("collection", 0)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        session.config.pluginmanager.unregister(name="terminalreporter")
        by_name = {item.nodeid: item for item in session.items}
        items = [by_name[test] for test in self._cpu_s if test in by_name]
        if session.testsfailed == 0 and items:
            few_examples(items, self._limits.examples)
            self.answer = run_tests(items, self._cpu_s, after=items[0])
        return True


def _serve_fresh(requests: Connection, limits: Limits) -> None:
    """Run mutants in forks of this process, which has loaded only libraries."""
    while True:
        try:
            module, source, cpu_s, wall_s = requests.recv()
        except EOFError:
            return
        requests.send(_in_fork(lambda pipe: pipe.send(_fresh(module, source, cpu_s, limits)), wall_s))  # noqa: B023


def _fresh(module: str, source: str, cpu_s: dict[str, float], limits: Limits) -> tuple[str | None, int]:
    sys.meta_path.insert(0, _MutantFinder(module, source))  # type: ignore[arg-type]
    plugin = _FreshRun(cpu_s, limits)
    with tempfile.TemporaryDirectory() as folder:
        files = dict.fromkeys(test.split("::")[0] for test in cpu_s)
        pytest.main([*_OPTIONS, f"--basetemp={folder}/tests", *files], plugins=[plugin])
    return plugin.answer
