"""Mutation testing by hand: changes one operator, constant or condition at a time and checks whether a test fails.

    PYTHONPATH=. python -m benchmarks.mutants --seed 1 --sample 2000 --report mutants.jsonl gpuwatch/domain

The first run measures which tests run which lines, and their durations (`--map` stores that). Then each mutant runs the
tests that run its line, the most promising first, until one fails; see `benchmarks/mutant_runs.py`. A run continues a
report where it stopped. `--again REPORT` runs the survivors of a report again. `benchmarks/mutant_revisions.py`
compares two revisions; docs/mutation.md has the results.
Not part of `make check`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.mutant_runs import Limits, run_mutants

TESTS = ["tests/domain", "tests/engine", "tests/storage", "tests/settings", "tests/bootstrap"]
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


@dataclass(frozen=True)
class Mutant:
    """One change: the index of a file's node, and of its variant."""

    file: str
    node: int
    variant: int
    line: int
    function: str  # dotted; "" at the level of the module
    before: str
    after: str
    by: str | None = None  # the test that killed it in an earlier report; it is tried first

    def tree(self) -> ast.Module:
        """Return the file with the change; every node keeps its position."""
        tree = ast.parse(Path(self.file).read_text())
        target = _candidates(tree)[self.node]
        new = list(variants(target))[self.variant]
        for inner in ast.walk(new):
            if "lineno" in inner._attributes and not hasattr(inner, "lineno"):
                ast.copy_location(inner, target)
        changed: ast.Module = _Replace(target, ast.copy_location(new, target)).visit(tree)
        return ast.fix_missing_locations(changed)


def mutants_of(path: Path) -> list[Mutant]:
    """Yield every mutant of a file."""
    tree = ast.parse(path.read_text())
    owners = dict(_owners(tree))
    found = []
    for number, node in enumerate(_candidates(tree)):
        for which, new in enumerate(variants(node)):
            texts = _short(node), _short(ast.fix_missing_locations(new))
            found.append(Mutant(str(path), number, which, getattr(node, "lineno", 0), owners.get(id(node), ""), *texts))
    return found


def _owners(tree: ast.AST, name: str = "") -> Iterator[tuple[int, str]]:
    """Return the dotted name of the function or class of each node."""
    for node in ast.iter_child_nodes(tree):
        inner = name
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = f"{name}.{node.name}".lstrip(".")
        yield id(node), inner
        yield from _owners(node, inner)


def variants(node: ast.AST) -> Iterator[ast.AST]:
    """Yield replacements of one node; texts are not changed."""
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


def _candidates(tree: ast.Module) -> list[ast.AST]:
    """Yield nodes of code that runs: no annotations, decorators or type-checking imports."""
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


def draw(places: list[Path], seed: int, sample: int) -> tuple[list[Mutant], int]:
    """Return a seeded sample, and the total number."""
    files = sorted({file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])})
    everything = [mutant for file in files for mutant in mutants_of(file)]
    return random.Random(seed).sample(everything, min(sample or len(everything), len(everything))), len(everything)


def found_again(report: Path, verdict: str) -> list[Mutant]:
    """Return the mutants of this tree that a report gave a verdict, found by function and code, also in another file.

    Lines and files may have moved. A change outside functions must be in the same file; a text that a function has
    several times is found several times.
    """
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    wanted = {identity(row): row["file"] for row in rows if row["verdict"] == verdict}
    killers = {identity(row): row["by"] for row in rows}
    everything = [mutant for file in sorted(Path("gpuwatch").rglob("*.py")) for mutant in mutants_of(file)]
    same = [mutant for mutant in everything if identity(asdict(mutant)) in wanted]
    in_place = {identity(asdict(mutant)) for mutant in same if mutant.file == wanted[identity(asdict(mutant))]}
    return [
        replace(mutant, by=killers[key])
        for mutant in same
        if mutant.file == wanted[(key := identity(asdict(mutant)))] or (mutant.function and key not in in_place)
    ]


def identity(row: dict[str, object]) -> tuple[object, ...]:
    """Return what a mutant keeps when its code moves."""
    return row["function"], row["before"], row["after"]


def main() -> None:
    """Draw a sample, run what the report lacks, print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "places", nargs="*", type=Path, help="Files or folders below the repository, the working folder."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=100, help="Mutants to draw; 0: all.")
    parser.add_argument("--report", type=Path, required=True, help="Append every result as a JSON line.")
    parser.add_argument("--map", type=Path, default=Path("mutants-map.json"), help="Which tests run which lines.")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument("--budget", type=float, default=10.0, help="Unmutated processor seconds of tests a mutant.")
    parser.add_argument("--examples", type=int, default=20, help="Examples of Hypothesis a test; its steps, too.")
    parser.add_argument("--again", type=Path, help="Run the mutants of this report instead of a draw.")
    parser.add_argument("--verdict", default="survived", help="Which of them.")
    chosen = parser.parse_args()
    if chosen.again:
        drawn = found_again(chosen.again, chosen.verdict)
    else:
        drawn, total = draw(chosen.places, chosen.seed, chosen.sample)
        print(f"{len(drawn)} of {total} mutants, seed {chosen.seed}", flush=True)
    rows = [json.loads(line) for line in chosen.report.read_text().splitlines()] if chosen.report.exists() else []
    done = {(row["file"], row["node"], row["variant"]) for row in rows}
    left = [mutant for mutant in drawn if (mutant.file, mutant.node, mutant.variant) not in done]
    run_mutants(left, chosen.tests, chosen.map, chosen.report, Limits(chosen.budget, chosen.examples))
    rows = [json.loads(line) for line in chosen.report.read_text().splitlines()]
    print(dict(Counter(row["verdict"] for row in rows)))


if __name__ == "__main__":
    main()
