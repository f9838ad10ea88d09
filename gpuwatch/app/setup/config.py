"""The settings file: create one, and show the settings in force."""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpuwatch.errors import GpuwatchError
from gpuwatch.settings.reference import schema_text
from gpuwatch.settings.show import SCHEMA_FILE, Origin, template


def full_settings_text() -> str:
    """Every setting, commented."""
    return template()


def write_settings(target: Path, text: str, *, force: bool) -> Path:
    """Write a settings file, and its schema for editors beside it; make their folder. Returns the schema's path.

    Raises:
        GpuwatchError: it exists and `force` is not set, or it cannot be written.
    """
    schema = target.parent / SCHEMA_FILE
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise GpuwatchError(f"cannot create {error.filename}: {error.strerror}") from None
    try:
        _write(target, text, os.O_TRUNC if force else os.O_EXCL)
        _write(schema, schema_text(), os.O_TRUNC)
    except FileExistsError:
        raise already_there(target) from None
    except OSError as error:
        raise GpuwatchError(f"cannot write {error.filename or target}: {error.strerror}") from None
    return schema


def already_there(target: Path) -> GpuwatchError:
    """The error for a file that must not be overwritten."""
    return GpuwatchError(f"{target} already exists; overwrite it with --force")


def _write(path: Path, text: str, mode: int) -> None:
    """Make it readable only for its owner, because it may contain keys."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)


def settings_json(file: str | None, origins: Sequence[Origin]) -> dict[str, Any]:
    """JSON of `gpuwatch config show`."""
    rows = [
        {"key": one.key, "value": _with_numbers(one.value), "origin": one.origin, "source": one.source}
        for one in origins
    ]
    return {"source_file": file, "settings": rows}


def _with_numbers(value: Any) -> Any:
    """Convert exact decimals to JSON numbers, at any depth."""
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_numbers(item) for key, item in value.items()}
    return float(value) if isinstance(value, Decimal) else value
