"""`gpuwatch config show|schema`, and `gpuwatch doctor`, which checks the installation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import all_warnings_settings_option, config_option, json_option, provider_option
from gpuwatch.cli.output import json_out, note, print_finding
from gpuwatch.cli.terminal_tables import left, table, text

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_SIGNS = {"ok": "ok   ", "note": "note ", "fault": "FAULT", "unknown": "note "}


@click.command(cls=Command, examples=("gpuwatch config show", "gpuwatch config show --json"))
@config_option
@json_option
def show(config: str | None, as_json: bool) -> None:
    """Show every effective setting and where it comes from. Secrets are masked."""
    from gpuwatch.app.setup.config import settings_json
    from gpuwatch.settings.show import origins

    file, origin_of = origins(config)
    if as_json:
        json_out(settings_json(file, origin_of))
        return
    note(f"file: {file or 'none; environment and defaults'}")
    columns = (left("setting"), text("value"), text("from", drop=1))
    table(columns, [(origin.key, _text(origin.value), origin.source) for origin in origin_of])


@click.command(cls=Command, examples=("gpuwatch config schema > gpuwatch.schema.json", "gpuwatch config schema --jobs"))
@click.option("--jobs", is_flag=True, help="Print the schema of job files (jobs/NAME.toml).")
@click.option("--json", is_flag=True, expose_value=False, help="Print JSON, as without this option.")
def schema(jobs: bool) -> None:
    """Print the JSON Schema of gpuwatch.toml, for editors."""
    from gpuwatch.settings.reference import job_json_schema, json_schema

    json_out(job_json_schema() if jobs else json_schema())


def _text(value: Any) -> str:
    """A value roughly as TOML spells it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_text(item)}" for key, item in value.items()) + " }"
    return "".join(c if c.isprintable() else "·" for c in str(value))


@click.command(cls=Command, examples=("gpuwatch doctor", "gpuwatch doctor --json"))
@provider_option("Check only this provider, including what it needs before the first launch.")
@json_option
@all_warnings_settings_option
def doctor(provider: str | None, as_json: bool, settings: Settings) -> int:
    """Check settings, database, keys, channels and clock. Rents nothing and sends no messages.

    Exit codes: 0 fine, 1 a check failed, 2 the settings are wrong.
    """
    from gpuwatch.app.setup.doctor import run_checks
    from gpuwatch.ports.findings import finding_json

    findings = list(run_checks(settings, provider))
    if as_json:
        json_out([finding_json(finding) for finding in findings])
    else:
        for finding in findings:
            print_finding(finding, _SIGNS)
    return Exit.FAILED if any(finding.state == "fault" for finding in findings) else Exit.DONE
