"""Money has one spelling in every text of a terminal: "$12.50", "$1.48/h", "$1.48/GPU-h" (`domain/market/money.py`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.domain.market.money import dollars, per_gpu_hour, per_hour

PACKAGE = Path(gpuwatch.__file__).parent
FLOORS = ("app", "cli", "chat", "domain", "engine", "web")
# "1.48 $", "1.48 $/h", a heading "$/GPU-h" or "cost $", "$1.48 an hour" in a text that is put together
OTHER = re.compile(r"\$/(?:GPU-)?h\b|\{\} \$|\d \$|\$ (?:per|an|a) (?:GPU-)?hour|^\$ \w|\w \$$")


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every text but docstrings; what is filled in is "{}"."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = (node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body)
    docs = {id(statement.value) for statement in first if isinstance(statement, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (docs | parts):
            yield node.lineno, node.value


@pytest.mark.parametrize("floor", FLOORS)
def test_no_text_spells_money_otherwise(floor: str) -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in sorted((PACKAGE / floor).rglob("*.py"))
        for line, text in _texts(ast.parse(path.read_text(encoding="utf-8")))
        if OTHER.search(text)
    ]
    assert found == [], "use dollars, per_hour or per_gpu_hour"


def test_the_spelling() -> None:
    assert (dollars(12.5), per_hour(1.48), per_gpu_hour(1.48)) == ("$12.50", "$1.48/h", "$1.48/GPU-h")
    assert (per_hour(0.123456), per_gpu_hour(2, least=3, most=3)) == ("$0.1235/h", "$2.000/GPU-h")
    assert (dollars(-0.0), dollars(-3), dollars(0.001)) == ("$0.00", "-$3.00", "<$0.01")


@pytest.mark.parametrize(
    "text", ["1.48 $/h", "$/GPU-h", "cost $", "$ job", "{} $ in all", "for {} $ per GPU-hour", "it cost 3 $"]
)
def test_other_spellings_are_found(text: str) -> None:
    assert OTHER.search(text)
