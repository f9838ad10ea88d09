"""The documents name every setting there is, and none that is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuwatch import providers
from gpuwatch.settings import load
from gpuwatch.settings.reference import Row, rows, watch_rows

ROOT = Path(__file__).parent.parent
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
DOCS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
_VARIABLE = re.compile(r"^# ((?:GPUWATCH_|[A-Z]+_API_)[A-Z0-9_]+)=(.*)$", re.MULTILINE)


def by_key(row: Row) -> str:
    return row.key


@pytest.mark.parametrize("row", rows(), ids=by_key)
def test_every_setting_stands_in_the_example_with_its_default(row: Row) -> None:
    line = next((value for name, value in _VARIABLE.findall(EXAMPLE) if name == row.variable), None)
    assert line is not None, f"add {row.variable} to .env.example"
    assert not row.default or line == row.default.strip('"')
    assert row.text in EXAMPLE


def test_the_example_names_no_variable_that_does_not_exist() -> None:
    known = {row.variable for row in rows()} | {"GPUWATCH_CONFIG", "GPUWATCH_WATCH"}
    known |= {key for name in providers.names() for key in providers.info(name).key_names}
    assert {name for name, _ in _VARIABLE.findall(EXAMPLE)} == known


@pytest.mark.parametrize("row", [*rows(), *watch_rows()], ids=by_key)
def test_every_setting_stands_in_the_documents_with_its_default(row: Row) -> None:
    shown = row.key.removeprefix("watch.")
    default = f"`{row.default}`" if row.default else "needed" if row.needed else "–"
    text = row.text.replace("|", "\\|")
    assert f"| `{shown}` | {default} | {text} |" in DOCS


def test_the_example_loads_with_every_line_taken_in(tmp_path: Path) -> None:
    """Copied to .env and uncommented, the example is right as it stands."""
    lines = [f"{name}={value}" for name, value in _VARIABLE.findall(EXAMPLE)]
    taken = [line for line in lines if not line.startswith("GPUWATCH_CONFIG=")]
    (tmp_path / ".env").write_text("\n".join(taken))
    settings = load(env={}, cwd=tmp_path)
    assert [watch.name for watch in settings.watches] == ["h100"]
    assert settings.channels.email is not None
    assert settings.providers["vastai"].api_key == "your-key"
