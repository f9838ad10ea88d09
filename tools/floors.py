"""Draws docs/pictures/floors.svg: the packages in the order of their imports, and the nouns that divide them.

    python -m tools.floors          # `make pictures` draws it, too

The order is that of the import contract in pyproject.toml, the cells are the folders that exist. The picture has no
numbers, so it changes only with a folder; `python -m tools.house` prints modules and lines of each cell.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence

from tools.house import FLOORS, NOUNS, ROOT, by_noun, is_entry, paths

PICTURE = ROOT / "docs" / "pictures" / "floors.svg"
_WIDTH, _EDGE, _FIRST, _STEP = 400, 6, 70, 36  # a phone's width; x of the first noun, and from noun to noun
_SHOWN, _HEAD, _ROW, _GAP = 640, 72, 20, 4
_CAPTION = ("Imports run down only. A cell is a folder, such as engine/launches;", "a split cell is divided once more.")
_STYLE = """
  svg { color-scheme: light dark }
  .paper { fill: #ffffff } text { fill: #1f2328; font: 12px system-ui, sans-serif } .note { font-size: 11px }
  .bar { fill: #e7eaee } .none { fill: none; stroke: #d5dae0 } .cell { fill: #2f6fb5 } .test { fill: #3d8b5f }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #0d1117 } text { fill: #e6edf3 } .bar { fill: #252b34 } .none { stroke: #30363d }
    .cell { fill: #5b9bdf } .test { fill: #5fb488 }
  }
"""


def cells() -> Mapping[tuple[str, str], int]:
    """Return for each floor and noun that has a folder its number of parts: the modules beside it, each own folder."""
    found = {
        key: max(1, len({path.parts[2:-1] for path in held if not is_entry(path)}))
        for key, held in by_noun(paths()).items()
    }
    return found | {("tests", noun): 1 for _, noun in by_noun(paths("tests"))}


def rows() -> Sequence[Sequence[str]]:
    """Return the packages from top to bottom; those of one row do not import each other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    down = next(one for one in project["tool"]["importlinter"]["contracts"] if one["name"] == "imports run down")
    found: list[list[str]] = []
    for layer in down["layers"]:
        named = [one for one in layer.replace("|", " ").split() if (ROOT / "gpuwatch" / one).is_dir()]
        bar = [one for one in named if one not in FLOORS]
        found += [[one] for one in named if one in FLOORS] + ([bar] if bar else [])
    return [*found, ["tests"]]


def as_svg() -> str:
    """Draw the whole picture."""
    shown, drawn = rows(), cells()
    bottom = _HEAD + len(shown) * (_ROW + _GAP)
    height = bottom + 16 * len(_CAPTION) + 8
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_SHOWN}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<title>The packages of gpuwatch, and the nouns that divide them</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        *(_heading(noun, number) for number, noun in enumerate(NOUNS)),
    ]
    for number, names in enumerate(shown):
        top = _HEAD + number * (_ROW + _GAP)
        lines += _floor(names[0], top, drawn) if names[0] in {*FLOORS, "tests"} else _bars(names, top)
    lines += [_text(_EDGE, bottom + 16 * (at + 1), text, "note") for at, text in enumerate(_CAPTION)]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _heading(noun: str, number: int) -> str:
    x, y = _FIRST + number * _STEP + 14, _HEAD - 8
    return f'<text transform="translate({x} {y}) rotate(-50)">{noun}</text>'


def _floor(name: str, top: int, drawn: Mapping[tuple[str, str], int]) -> Iterator[str]:
    yield _text(_EDGE, top + 14, name)
    for number, noun in enumerate(NOUNS):
        left, parts = _FIRST + number * _STEP, drawn.get((name, noun), 0)
        if not parts:
            yield _rect("none", left + 0.5, top + 0.5, _STEP - _GAP - 1, _ROW - 1)
            continue
        wide = (_STEP - _GAP - 2 * (parts - 1)) / parts
        yield f'<g id="{name}-{noun}">'
        for at in range(parts):
            yield _rect("test" if name == "tests" else "cell", left + at * (wide + 2), top, wide, _ROW)
        yield "</g>"


def _bars(names: Sequence[str], top: int) -> Iterator[str]:
    """Packages that no noun divides; those of one row share its width by the length of their names."""
    left, letters = float(_EDGE), sum(len(name) + 4 for name in names)
    whole = _FIRST + len(NOUNS) * _STEP - _GAP - _EDGE - _GAP * (len(names) - 1)
    for name in names:
        wide = whole * (len(name) + 4) / letters
        yield _rect("bar", left, top, wide, _ROW)
        yield _text(left + 6, top + 14, name)
        left += wide + _GAP


def _rect(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:.4g}" height="{height:g}" rx="2"/>'


def _text(x: float, y: float, text: str, kind: str = "name") -> str:
    return f'<text class="{kind}" x="{x:.4g}" y="{y:g}">{text}</text>'


def draw() -> None:
    """Write the picture."""
    PICTURE.write_text(as_svg(), encoding="utf-8")
    sys.stdout.write(f"{PICTURE}\n")


if __name__ == "__main__":
    draw()
