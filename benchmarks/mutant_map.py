"""Which tests run a line, and so may notice a mutant in it."""

from __future__ import annotations

import ast
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol


class MutantLike(Protocol):
    """A mutant to run: `benchmarks.mutants.Mutant`."""

    file: str
    line: int
    function: str
    by: str | None

    def tree(self) -> ast.Module: ...


class LineTracer:
    """Records which lines of some files run, in every thread."""

    def __init__(self, files: list[str]) -> None:
        self.files = files
        self._numbers = {str(Path(file).resolve()): number for number, file in enumerate(files)}
        self.seen: set[int] = set()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Trace until the end of the block, or until `stop`."""
        threading.settrace(self)
        sys.settrace(self)
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop tracing."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def taken(self) -> dict[str, list[int]]:
        """Return the lines by file since the last call."""
        lines: dict[str, list[int]] = defaultdict(list)
        for both in sorted(self.seen):
            number, line = divmod(both, 100_000)
            lines[self.files[number]].append(line)
        self.seen = set()
        return lines

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        number = self._numbers.get(frame.f_code.co_filename)
        if number is None:
            return None
        first, seen = number * 100_000, self.seen

        def local(frame: FrameType, event: str, arg: object) -> Any:
            if event == "line":
                seen.add(first + frame.f_lineno)
            return local

        return local


class TestMap:
    """Which tests run a line, and the duration of each."""

    def __init__(self, rows: dict[str, Any]) -> None:
        self.cpu_s = {test: row["cpu_s"] for test, row in rows.items()}
        self._by_file: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for test, row in rows.items():
            for file, lines in row["lines"].items():
                for line in lines:
                    self._by_file[file][line].append(test)

    def of_lines(self, file: str, lines: Iterable[int]) -> set[str]:
        found = self._by_file.get(file, {})
        return {test for line in lines for test in found.get(line, ())}

    def of_names(self, names: list[str]) -> set[str]:
        """Return tests of the lines that mention a constant or field, and tests whose file mentions it."""
        mentions = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
        found: set[str] = set()
        for file in self._by_file:
            lines = Path(file).read_text().splitlines()
            found |= self.of_lines(file, [number for number, text in enumerate(lines, 1) if mentions.search(text)])
        files = {test.split("::")[0] for test in self.cpu_s}
        near = {file for file in files if mentions.search(Path(file).read_text())}
        return found | {test for test in self.cpu_s if test.split("::")[0] in near}


class MutantPlace:
    """The place of a mutant: the outermost function around it, and its tests."""

    def __init__(self, tree: ast.Module, mutant: MutantLike) -> None:
        self._file, self._line = mutant.file, mutant.line
        self.function, self.first_line, self.in_body = "", 0, False
        self.lines, self._names = range(1, 100_000), list[str]()
        self._find(tree, "")

    def _find(self, parent: ast.AST, name: str) -> None:
        for node in getattr(parent, "body", ()):
            decorators = getattr(node, "decorator_list", ())
            first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
            if not first <= self._line <= node.end_lineno:
                continue
            if isinstance(node, ast.ClassDef):
                self.lines = range(first, node.end_lineno + 1)
                self._find(node, f"{name}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                self.function, self.first_line = f"{name}{node.name}", first
                self.in_body = self._line >= node.body[0].lineno and self._line > node.lineno
                self.lines = range(node.body[0].lineno, node.end_lineno + 1)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._names = [target.id for target in targets if isinstance(target, ast.Name)]

    def tests(self, known: TestMap) -> set[str]:
        """Return tests that run the line; else those that use the constant or field, or its function, class or file."""
        if self.in_body:
            return known.of_lines(self._file, [self._line]) or known.of_lines(self._file, self.lines)
        found = known.of_names(self._names) if self._names else set()
        return found or known.of_lines(self._file, self.lines) or known.of_lines(self._file, range(1, 100_000))
