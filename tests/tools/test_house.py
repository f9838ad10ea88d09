"""The figures of the layout: what each line counts as, and which names repeat."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

from tools.house import aligned, by_noun, facts, floors_table, parsed, repeated_names, sources

SOURCE = '''"""What the module is for.

More of it.
"""

from __future__ import annotations

from typing import (
    NamedTuple,
)

# a comment of its own
TEXT = """first

# not a comment
"""  # a comment behind a statement


class Pair(NamedTuple):
    """Two numbers."""

    left: int

    @property
    def both(
        self,
    ) -> int:
        # why
        return self.left


def one_line() -> int: ...
'''
HERE = PurePosixPath("engine/market/pair.py")


def test_each_line_counts_once_by_its_kind() -> None:
    module = parsed(HERE, SOURCE)
    assert module.lines == Counter(
        docstrings=5, imports=4, comments=2, statements=7, signatures=5, blank=len(SOURCE.splitlines()) - 23
    )
    assert (module.size, module.classes) == (len(SOURCE.splitlines()), 1)


def test_entries_of_folders_are_no_repeated_names() -> None:
    found = [PurePosixPath(name) for name in ("a/__init__.py", "b/__init__.py", "a/x.py", "b/x.py", "b/y.py")]
    assert repeated_names(found) == {"x": found[2:4]}


def test_a_cell_holds_the_files_of_a_noun_and_of_its_parts() -> None:
    inner = PurePosixPath("engine/market/parts/half.py")
    beside = [PurePosixPath(name) for name in ("engine/pair.py", "ports/market/pair.py", "engine/tools/pair.py")]
    assert by_noun([HERE, inner, *beside]) == {("engine", "market"): [HERE, inner]}


def test_the_tables_show_modules_and_lines() -> None:
    found = [parsed(path, SOURCE) for path in (HERE, PurePosixPath("engine/pair.py"))]
    shown = facts(found)
    assert shown["modules a folder, max"] == "1 (engine/market)"
    assert shown["names of several modules"] == "1 (2 modules)"
    assert [line.split() for line in floors_table(found).splitlines() if line.startswith("engine")] == [
        ["engine", "1/32", *"––––––––", "1/32"]
    ]
    assert aligned([("a", "1"), ("bb", "22")]) == "a    1\nbb  22\n"


def test_the_working_tree_is_read() -> None:
    assert PurePosixPath("errors.py") in sources("tree")
