"""Reads job files (`jobs/NAME.toml`): one line per error, with the file, its line and the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpuwatch.domain.jobs.job import JobDefinition
from gpuwatch.domain.jobs.job_file_schema import RESOURCE_KEYS, JobFileTable
from gpuwatch.errors import SettingsError
from gpuwatch.settings.plugin_options import unknown_key
from gpuwatch.settings.settings_errors import Location, error_line, validation_errors
from gpuwatch.settings.settings_file import MAX_FILE_BYTES
from gpuwatch.settings.sources import Sources, parse_file

MAX_SCRIPT_BYTES = 1024 * 1024


def read_job_file(path: Path) -> JobDefinition:
    """The job that a file describes.

    Raises:
        SettingsError: it cannot be read, or is invalid; one line per error.
    """
    sources = Sources(file=path, content=_read_bytes(path), external=(), env={}, cwd=Path.cwd())
    tree = {"name": path.stem, **parse_file(sources)}
    errors: list[tuple[Location, str]] = list(_wrong_resources(tree))
    table: JobFileTable | None = None
    try:
        table = JobFileTable.model_validate(tree)
    except ValidationError as error:
        errors += [
            validation_error
            for validation_error in validation_errors(error, JobFileTable)
            if validation_error[0] not in {loc for loc, _ in errors}
        ]
    script = None
    if table is not None and table.script is not None:
        try:
            script = _script(table.script, path.parent)
        except ValueError as error:
            errors.append((("script",), str(error)))
    if errors or table is None:
        raise SettingsError([_line(loc, text, sources, tree) for loc, text in dict.fromkeys(errors)])
    return table.value(script, str(path.resolve().parent))


def _line(loc: Location, text: str, sources: Sources, tree: dict[str, Any]) -> str:
    if loc:
        return error_line(loc, text, sources, tree, {})
    return f"{sources.display_name}: {text}"


def _wrong_resources(tree: dict[str, Any]) -> list[tuple[Location, str]]:
    """Keys of a watch that do not describe an offer: the queue sets them."""
    resources = tree.get("resources")
    if not isinstance(resources, dict):
        return []
    return [(("resources", key), unknown_key(key, RESOURCE_KEYS)) for key in resources if key not in RESOURCE_KEYS]


def _script(text: str, folder: Path) -> str:
    """The text itself if it has several lines or starts with `#!`, else the contents of the file it names."""
    if "\n" in text.strip() or text.startswith("#!"):
        return text
    try:
        with (folder / text).open("rb") as file:
            content = file.read(MAX_SCRIPT_BYTES + 1)
        if len(content) > MAX_SCRIPT_BYTES:
            raise ValueError("expected a script of at most 1 MB; let it download larger files")
        return content.decode()
    except OSError as error:
        raise ValueError(f"expected a script, or the path of its file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("expected a script in UTF-8 text") from None


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError([f"{path}: cannot read the file: {error.strerror}"]) from None
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError([f"{path}: expected a file of at most 4 MB"])
    return content
