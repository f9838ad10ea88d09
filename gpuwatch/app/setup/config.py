"""Names for shell completion. A caller treats any error as "no names".

The settings file: create one, and show the settings in force.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.errors import GpuwatchError
from gpuwatch.settings.reference import schema_text
from gpuwatch.settings.show import SCHEMA_FILE, Origin, template


def watches(config: str | None) -> list[str]:
    """The names of the watches in the settings."""
    return [watch.name for watch in load_settings(config).watches]


def checklists(config: str | None) -> list[str]:
    """Names with a checklist: the watches, and the jobs that are not over."""
    from gpuwatch.app.jobs.jobs import listed_jobs

    try:
        queued = [job.watch_name for job in listed_jobs(load_settings(config))]
    except GpuwatchError:  # no database yet
        queued = []
    return [*watches(config), *queued]


def gpus(_config: str | None) -> list[str]:
    """Families and models without spaces: gpuwatch accepts both spellings, but a shell would split the other one."""
    from gpuwatch.domain.market.gpu_names import catalog

    rows = catalog().gpus()
    return sorted({name.replace(" ", "-") for row in rows for name in (row.family, row.name)})


def providers(_config: str | None) -> list[str]:
    """All installed providers."""
    from gpuwatch.providers import names

    return list(names())


def launches(config: str | None) -> list[str]:
    """The ids of the launches, newest first."""
    from gpuwatch.app.launches.launches import all_launches

    return [launch.launch_id for launch in reversed(all_launches(load_settings(config, for_stopping=True)))]


def approvals(config: str | None) -> list[str]:
    """The ids of the approvals of the last week."""
    from gpuwatch.app.launches.approvals import recent_approvals

    return [approval.approval_id for approval in recent_approvals(load_settings(config))]


def jobs(config: str | None) -> list[str]:
    """The names of the jobs, newest first."""
    from gpuwatch.app.jobs.jobs import listed_jobs

    return [job.name for job in reversed(listed_jobs(load_settings(config, for_stopping=True), all_jobs=True))]


def write_settings(target: Path, *, force: bool) -> Path:
    """Write a commented settings file, and its schema for editors beside it; make their folder. Returns the schema's
    path.

    Raises:
        GpuwatchError: it exists and `force` is not set, or it cannot be written.
    """
    schema = target.parent / SCHEMA_FILE
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise GpuwatchError(f"cannot create {error.filename}: {error.strerror}") from None
    try:
        _write(target, template(), os.O_TRUNC if force else os.O_EXCL)
        _write(schema, schema_text(), os.O_TRUNC)
    except FileExistsError:
        raise GpuwatchError(f"{target} already exists; overwrite it with --force") from None
    except OSError as error:
        raise GpuwatchError(f"cannot write {error.filename or target}: {error.strerror}") from None
    return schema


def _write(path: Path, text: str, mode: int) -> None:
    """Make it readable only for its owner, because it may contain keys."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | mode, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)


def settings_json(file: str | None, origins: Sequence[Origin]) -> dict[str, Any]:
    """JSON of `gpuwatch config show`."""
    rows = [{"key": origin.key, "value": _with_numbers(origin.value), "origin": origin.origin} for origin in origins]
    return {"source_file": file, "settings": rows}


def _with_numbers(value: Any) -> Any:
    """Convert exact decimals to JSON numbers, at any depth."""
    if isinstance(value, list):
        return [_with_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_numbers(item) for key, item in value.items()}
    return float(value) if isinstance(value, Decimal) else value
