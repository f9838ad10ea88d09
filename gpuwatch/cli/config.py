"""`gpuwatch config show|schema`, and `gpuwatch init`."""

from __future__ import annotations

from typing import Any

import click

from gpuwatch.cli.command import Command, Group
from gpuwatch.cli.options import config_option, json_option


@click.group(
    cls=Group,
    examples=(
        "gpuwatch config show",
        "gpuwatch config schema > gpuwatch.schema.json",
    ),
)
def config() -> None:
    """Show the effective settings or their JSON Schema."""


@config.command(
    examples=(
        "gpuwatch config show",
        "gpuwatch config show --json",
    )
)
@config_option
@json_option
def show(config: str | None, as_json: bool) -> None:
    """Show every effective setting and where it comes from. Secrets are masked."""
    from gpuwatch.cli import output, tables
    from gpuwatch.settings.show import origins

    file, found = origins(config)
    if as_json:
        rows = [{"key": one.key, "value": _numbers(one.value), "origin": one.origin} for one in found]
        output.json_out({"source_file": file, "settings": rows})
        return
    output.note(f"file: {file or 'none; environment and defaults'}")
    columns = (tables.left("setting"), tables.text("value"), tables.text("from", drop=1))
    tables.table(columns, [(one.key, _text(one.value), one.origin) for one in found])


@config.command(examples=("gpuwatch config schema > gpuwatch.schema.json",))
def schema() -> None:
    """Print the JSON Schema of gpuwatch.toml, for editors."""
    from gpuwatch.cli import output
    from gpuwatch.settings.json_schema import json_schema

    output.json_out(json_schema())


@click.command(
    cls=Command,
    examples=(
        "gpuwatch init",
        "gpuwatch init --config ~/.config/gpuwatch/gpuwatch.toml",
    ),
)
@config_option
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(config: str | None, force: bool) -> None:
    """Write a commented gpuwatch.toml, and its schema for editors beside it."""
    from pathlib import Path

    from gpuwatch.cli import output
    from gpuwatch.errors import GpuwatchError
    from gpuwatch.settings.json_schema import schema_text
    from gpuwatch.settings.template import SCHEMA_FILE, template

    target = Path(config or "gpuwatch.toml")
    try:
        _write(target, template(), force)
        _write(target.parent / SCHEMA_FILE, schema_text(), force=True)
    except FileExistsError:
        raise GpuwatchError(f"{target} exists already; --force overwrites it") from None
    except OSError as error:
        raise GpuwatchError(f"{error.filename or target} cannot be written: {error.strerror}") from None
    output.note(f"wrote {target} and {target.parent / SCHEMA_FILE}; next: edit the watch, then gpuwatch check")


def _write(path: Any, text: str, force: bool) -> None:
    """Readable by its owner alone: keys may be written into it."""
    import os

    mode = os.O_TRUNC if force else os.O_EXCL
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as opened:
        opened.write(text)


def _numbers(value: Any) -> Any:
    """Exact decimals as JSON numbers, at any depth."""
    from decimal import Decimal

    if isinstance(value, list):
        return [_numbers(one) for one in value]
    if isinstance(value, dict):
        return {key: _numbers(one) for key, one in value.items()}
    return float(value) if isinstance(value, Decimal) else value


def _text(value: Any) -> str:
    """A value as a TOML file would spell it, more or less."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_text(one)}" for key, one in value.items()) + " }"
    return "".join(c if c.isprintable() else "·" for c in str(value))
