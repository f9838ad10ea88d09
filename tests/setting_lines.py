"""The lines about settings in docs/settings.md and .env.example. `make golden` adds missing ones."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence

from gpuwatch import notifiers, providers
from gpuwatch.settings.reference import SettingRow, setting_rows, watch_rows
from tests.checkout import ROOT


def general_rows() -> list[SettingRow]:
    """Return all settings except those documented on a provider's page."""
    return [row for row in setting_rows() if row.path[0] != "providers" or row.path[1] == "vastai"]


def docs_line(row: SettingRow) -> str:
    """Return the row of the table in docs/settings.md."""
    default = f"`{row.default}`" if row.default else "needed" if row.needed else "–"
    text = row.text.replace("|", "\\|")
    return f"| `{row.key.removeprefix('watch.')}` | {default} | {text} |"


def example_lines(row: SettingRow) -> list[str]:
    """Return the lines of .env.example. A setting without a default has its channel's own example as value."""
    if row.default:
        return [f"# {row.text}", f"# {row.variable}=" + row.default.strip('"')]
    section, name = row.path[1], row.path[-1]
    shown = tomllib.loads(notifiers.info(section).template) if row.path[0] == "notify" else {}
    return [f"# {row.text} Example:", f"# {row.variable}={shown.get(name, f'your-{name}')}"]


def with_missing_rows(page: str, rows: Sequence[SettingRow]) -> str:
    """Return docs/settings.md with a line for each setting, after the line of the previous setting."""
    lines, at = page.splitlines(), 0
    for row in rows:
        start = docs_line(row).partition(" | ")[0] + " |"
        found = next((number for number, line in enumerate(lines) if line.startswith(start)), None)
        if found is None:
            found = at + 1
            lines.insert(found, docs_line(row))
        at = found
    return "\n".join(lines) + "\n"


def with_missing_variables(example: str, rows: Sequence[SettingRow]) -> str:
    """Return .env.example with a variable for each setting, and for the key of each provider."""
    lines, at = example.splitlines(), 0
    for row in rows:
        found = _line_of(lines, row.variable)
        if found is None:
            section = f"# --- [{'.'.join(row.path[:-1])}]"
            new = [*([] if section in lines else ["", section]), *example_lines(row)]
            lines[at + 1 : at + 1] = new
            found = at + len(new)
        at = found
    for name in providers.names():
        missing = [key for key in providers.info(name).key_names if _line_of(lines, key) is None]
        if missing:
            keys = [line for key in missing for line in ("# Secret; its key. Example:", f"# {key}=your-key")]
            lines += ["", f"# --- [providers.{name}]", *keys]
    return "\n".join(lines) + "\n"


def write() -> None:
    """Add missing lines."""
    for path, added in (
        (ROOT / "docs" / "settings.md", lambda text: with_missing_rows(text, [*general_rows(), *watch_rows()])),
        (ROOT / ".env.example", lambda text: with_missing_variables(text, general_rows())),
    ):
        path.write_text(added(path.read_text(encoding="utf-8")), encoding="utf-8")


def _line_of(lines: Sequence[str], variable: str) -> int | None:
    return next((number for number, line in enumerate(lines) if line.startswith(f"# {variable}=")), None)
