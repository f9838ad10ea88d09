"""Mutation testing by hand: change one operator, constant or condition at a time and see whether a test notices.

    python benchmarks/mutants.py --seed 1 --sample 200 gpuwatch/domain/launches gpuwatch/domain/watches

Each mutant runs in a copy of the repository: first the tests of its room (tests/domain/ROOM), then the engine and
storage tests that import the module, directly or through a helper of theirs. docs/mutation.md holds the results.
Not part of `make check`: a mutant takes seconds to minutes.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
_COMPARE = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SLOW = {"test_launch_model.py", "test_budget_model.py"}  # models of many steps; minutes each
_FIRST_LIMIT_S, _SECOND_LIMIT_S = 90, 240


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """What one node may be replaced with; texts are left alone."""
    if isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.If | ast.IfExp):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield _with(node, value=ast.Constant(None))
    elif isinstance(node, ast.expr):
        yield from _operators(node)


def _operators(node: ast.expr) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARE:
        yield _with(node, ops=[_COMPARE[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        yield node.values[0]
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC and not _is_text(node):
        yield _with(node, op=_ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield _with(node, func=ast.Name(_CALLS[node.func.id], ast.Load()))


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    if isinstance(node.value, bool):
        yield ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield ast.Constant(node.value + 1)


def _with(node: ast.AST, **changes: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(one, ast.JoinedStr | ast.Constant) and not _is_number(one) for one in (node.left, node.right))


def _is_number(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, new: ast.AST) -> None:
        self._target, self._new = target, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._target else self.generic_visit(node)


def mutants_of(path: Path) -> list[tuple[Path, int, int, str, str]]:
    """(file, node number, variant number, line and code before, code after) of every mutant of a file."""
    found = []
    for number, node in enumerate(_candidates(ast.parse(path.read_text()))):
        for which, new in enumerate(variants(node)):
            line = getattr(node, "lineno", 0)
            found.append((path, number, which, f"{line}: {_short(node)}", _short(ast.fix_missing_locations(new))))
    return found


def _candidates(tree: ast.Module) -> list[ast.AST]:
    """Nodes of code that runs: no annotations, decorators or type-checking imports."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST] = []
        if isinstance(node, ast.FunctionDef):
            parts = [*node.decorator_list, *([node.returns] if node.returns else [])]
        elif isinstance(node, ast.ClassDef):
            parts = [*node.decorator_list, *node.bases, *node.keywords]
        elif isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            parts = [node.annotation]
        skipped.update(id(inner) for part in parts for inner in ast.walk(part))
    return [node for node in ast.walk(tree) if id(node) not in skipped]


def _short(node: ast.AST) -> str:
    text = f"if {ast.unparse(node.test)}: …" if isinstance(node, ast.If) else ast.unparse(node)
    return " ".join(text.split())[:110]


def write_mutant(work: Path, path: Path, number: int, which: int) -> None:
    """Write one mutant over the file of a copied repository."""
    tree = ast.parse(path.read_text())
    target = _candidates(tree)[number]
    new = list(variants(target))[which]
    tree = ast.fix_missing_locations(_Replace(target, new).visit(tree))
    (work / path.relative_to(ROOT)).write_text(ast.unparse(tree))


def tests_of(module: str, room: str) -> tuple[list[str], list[str]]:
    """The tests of the module's room, its own file first; and the engine and storage tests that import it."""
    name = module.rsplit(".", 1)[-1]
    near = sorted((ROOT / "tests" / "domain" / room).glob("test_*.py"), key=lambda one: name not in one.name)
    imports = re.compile(rf"from {re.escape(module)} import")
    helpers = {one.stem for one in (ROOT / "tests" / "engine").glob("*.py") if imports.search(one.read_text())}
    through = re.compile("|".join(rf"from tests\.engine\.{one} import" for one in sorted(helpers)) or "$^")
    far = []
    for folder in ("engine", "storage"):
        for one in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            text = one.read_text()
            if one.name not in _SLOW and (imports.search(text) or through.search(text)):
                far.append(str(one.relative_to(ROOT)))
    return [str(one.relative_to(ROOT)) for one in near], far


def verdict(work: Path, files: list[str], limit_s: float) -> str:
    """ "survived", "killed" or "timeout"."""
    if not files:
        return "survived"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += ["-k", "not postgresql", *files]
    environment = os.environ | {"PYTHONPATH": str(work), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(command, cwd=work, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        return "survived" if process.wait(limit_s) in {0, 5} else "killed"
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "timeout"


def run(mutant: tuple[Path, int, int, str, str], copies: Queue[Path]) -> dict[str, object]:
    """Try one mutant in a free copy of the repository."""
    path, number, which, before, after = mutant
    work = copies.get()
    try:
        write_mutant(work, path, number, which)
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        near, far = tests_of(module, path.parent.name)
        found = verdict(work, near, _FIRST_LIMIT_S)
        if found == "survived":
            found = verdict(work, far, _SECOND_LIMIT_S)
    finally:
        shutil.copy(path, work / path.relative_to(ROOT))
        copies.put(work)
    return {"file": str(path.relative_to(ROOT)), "before": before, "after": after, "verdict": found}


def main() -> None:
    """Draw a sample, run it, print each survivor and the counts."""
    parser = argparse.ArgumentParser(description="Seeded mutation testing of pure code.")
    parser.add_argument("places", nargs="+", type=Path, help="Files or folders below the repository.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=100, help="Mutants to draw; 0: all.")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--report", type=Path, help="Write every result as a JSON line.")
    chosen = parser.parse_args()
    paths = [ROOT / place for place in chosen.places]
    files = sorted({file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])})
    everything = [mutant for file in files for mutant in mutants_of(file)]
    size = min(chosen.sample or len(everything), len(everything))
    drawn = random.Random(chosen.seed).sample(everything, size)
    print(f"{size} of {len(everything)} mutants in {len(files)} files, seed {chosen.seed}", flush=True)
    counts = dict.fromkeys(("killed", "timeout", "survived"), 0)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        copies: Queue[Path] = Queue()
        for number in range(chosen.jobs):
            work = Path(folder) / str(number)
            for part in ("gpuwatch", "tests", "migrations", "benchmarks", "docs", "deploy"):
                shutil.copytree(ROOT / part, work / part, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "pyproject.toml", work)
            copies.put(work)
        for result in pool.map(lambda one: run(one, copies), drawn):
            counts[str(result["verdict"])] += 1
            if result["verdict"] == "survived":
                print(f"survived {result['file']}:{result['before']}  →  {result['after']}", flush=True)
            if chosen.report:
                with chosen.report.open("a") as report:
                    report.write(json.dumps(result) + "\n")
    print(f"{counts['killed']} killed, {counts['timeout']} timed out, {counts['survived']} survived of {size}")


if __name__ == "__main__":
    main()
