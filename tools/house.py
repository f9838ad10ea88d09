"""Prints how the package is laid out: folders, files, kinds of lines, names that repeat, and modules by floor and noun.

    python -m tools.house                                     # the working tree
    python -m tools.house --revision v0.1 --revision tree     # a revision of git beside it
    python -m tools.house --folder tests

Everything is computed from the syntax trees; nothing is imported. Each line counts once: an empty line inside a text
belongs to the text, and a comment behind a statement to the statement.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
TREE = "tree"
NOUNS = ("market", "history", "forecasts", "watches", "launches", "jobs", "plan", "alerts", "setup")
FLOORS = ("cli", "web", "chat", "app", "engine", "storage", "domain")
KINDS = ("statements", "signatures", "imports", "docstrings", "comments", "blank")
SHORT, LONG = 80, 400  # lines


@dataclass(frozen=True)
class Module:
    """One file of Python: its place below the counted folder, its lines by kind, and the classes that it defines."""

    path: PurePosixPath
    lines: Counter[str]
    classes: int

    @property
    def size(self) -> int:
        """Lines of all kinds."""
        return self.lines.total()


def is_entry(path: PurePosixPath) -> bool:
    """`__init__` and `__main__` are found by their folder's name, so they are not counted among its modules."""
    return path.stem in {"__init__", "__main__"}


def paths(folder: str = "gpuwatch") -> Sequence[PurePosixPath]:
    """Return the Python files of the working tree below a folder, in order."""
    return [PurePosixPath(path.relative_to(ROOT / folder)) for path in sorted((ROOT / folder).rglob("*.py"))]


def sources(revision: str, folder: str = "gpuwatch") -> Mapping[PurePosixPath, str]:
    """Return the text of each Python file below a folder, of the working tree or of a revision of git."""
    if revision == TREE:
        return {path: (ROOT / folder / path).read_text(encoding="utf-8") for path in paths(folder)}
    archive = subprocess.run(["git", "archive", revision, folder], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        names = sorted(name for name in packed.getnames() if name.endswith(".py"))
        opened = {PurePosixPath(name).relative_to(folder): packed.extractfile(name) for name in names}
        return {path: one.read().decode() for path, one in opened.items() if one is not None}


def modules(revision: str, folder: str = "gpuwatch") -> Sequence[Module]:
    """Parse every file below a folder."""
    return [parsed(path, text) for path, text in sources(revision, folder).items()]


def parsed(path: PurePosixPath, text: str) -> Module:
    """Count the lines of one file."""
    nodes = list(ast.walk(ast.parse(text)))
    kinds = [_plain_kind(line.strip()) for line in text.splitlines()]
    for kind, first, last in sorted(_marked(nodes), key=lambda found: KINDS.index(found[0])):
        for number in range(first - 1, last):
            if kind != "signatures" or kinds[number] == "statements":
                kinds[number] = kind
    return Module(path, Counter(kinds), sum(isinstance(node, ast.ClassDef) for node in nodes))


def _plain_kind(line: str) -> str:
    return "blank" if not line else "comments" if line.startswith("#") else "statements"


def _marked(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int, int]]:
    """Kind, first and last line of what a line alone does not show; a later kind of `KINDS` wins."""
    for node in nodes:
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.lineno != node.end_lineno:
            yield "statements", node.lineno, node.end_lineno or node.lineno
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield "imports", node.lineno, node.end_lineno or node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0]
            starts = [first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))]
            yield "signatures", node.lineno, max(node.lineno, min(starts) - 1)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module) and node.body:
            first = node.body[0]
            if ast.get_docstring(node, clean=False) is not None:
                yield "docstrings", first.lineno, first.end_lineno or first.lineno


def repeated_names(found: Iterable[PurePosixPath]) -> Mapping[str, Sequence[PurePosixPath]]:
    """Return each module name that stands in more than one folder, with its paths."""
    places: dict[str, list[PurePosixPath]] = {}
    for path in found:
        if not is_entry(path):
            places.setdefault(path.stem, []).append(path)
    return {stem: same for stem, same in sorted(places.items()) if len(same) > 1}


def facts(found: Sequence[Module]) -> Mapping[str, str]:
    """Return the rows of the table."""
    named = [one for one in found if not is_entry(one.path)]
    in_folder = Counter(str(one.path.parent) for one in named)
    fullest, most = in_folder.most_common(1)[0]
    repeated = repeated_names(one.path for one in found)
    kinds: Counter[str] = sum((one.lines for one in found), Counter())
    sizes = sorted(one.size for one in named)
    return {
        "folders": f"{len({one.path.parent for one in found}):,}",
        "modules a folder, max": f"{most} ({fullest})",
        "folders of over 15 modules": f"{sum(count > 15 for count in in_folder.values())}",
        "depth, max": f"{max(len(one.path.parts) for one in found)}",
        "files": f"{len(found):,}",
        "lines": f"{kinds.total():,}",
        **{f"  {kind}": f"{kinds[kind]:,} ({kinds[kind] / kinds.total():.0%})" for kind in KINDS},
        "modules, median lines": f"{sizes[len(sizes) // 2]}",
        f"modules under {SHORT} lines": f"{sum(size < SHORT for size in sizes)}",
        f"modules over {LONG} lines": f"{sum(size > LONG for size in sizes)}",
        "classes": f"{sum(one.classes for one in found):,}",
        "names of several modules": f"{len(repeated)} ({sum(map(len, repeated.values()))} modules)",
    }


def by_noun(found: Iterable[PurePosixPath]) -> Mapping[tuple[str, str], Sequence[PurePosixPath]]:
    """Return the files of each floor's noun; a floor stands directly below the counted folder."""
    cells: dict[tuple[str, str], list[PurePosixPath]] = {}
    for path in found:
        if len(path.parts) > 2 and path.parts[0] in FLOORS and path.parts[1] in NOUNS:
            cells.setdefault((path.parts[0], path.parts[1]), []).append(path)
    return cells


def table(columns: Mapping[str, Sequence[Module]]) -> str:
    """Format the facts, a column for each revision."""
    shown = {name: facts(found) for name, found in columns.items()}
    rows = [("", *shown)] + [(row, *(one[row] for one in shown.values())) for row in next(iter(shown.values()))]
    return aligned(rows)


def floors_table(found: Sequence[Module]) -> str:
    """Format modules/lines for each floor and noun, and for what stands beside the nouns on a floor."""
    size = {one.path: one.size for one in found}
    cells = by_noun(size)
    rows: list[Sequence[str]] = [("modules/lines", *NOUNS, "beside them")]
    for floor in FLOORS:
        nouns = [cells.get((floor, noun), []) for noun in NOUNS]
        beside = [path for path in size if path.parts[0] == floor and path not in chain(*nouns)]
        counts = [
            (sum(not is_entry(path) for path in cell), sum(size[path] for path in cell)) for cell in (*nouns, beside)
        ]
        rows.append((floor, *(f"{count}/{lines}" if count else "–" for count, lines in counts)))
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as columns, all but the first to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = (
        f"{row[0]:<{widths[0]}}" + "".join(f"  {row[at]:>{widths[at]}}" for at in range(1, len(row))) for row in rows
    )
    return "\n".join(line.rstrip() for line in lines) + "\n"


def main() -> None:
    """Print both tables; the second one of the last revision named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--revision", action="append", help=f"of git, or `{TREE}`, the working tree (the default)")
    parser.add_argument("--folder", default="gpuwatch", help="gpuwatch or tests")
    parser.add_argument("--names", action="store_true", help="also list the names that several modules have")
    args = parser.parse_args()
    columns = {name: modules(name, args.folder) for name in args.revision or [TREE]}
    last = list(columns.values())[-1]
    sys.stdout.write(f"{table(columns)}\n{floors_table(last)}")
    if args.names:
        names = repeated_names(one.path for one in last)
        sys.stdout.writelines(f"{stem}: {', '.join(map(str, same))}\n" for stem, same in names.items())


if __name__ == "__main__":
    main()
