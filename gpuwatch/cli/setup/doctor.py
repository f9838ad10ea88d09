"""`gpuwatch doctor`: check the installation, and report how to fix problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import all_warnings_settings_option, json_option, provider_option
from gpuwatch.cli.output import json_out

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_SIGNS = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}


@click.command(cls=Command, examples=("gpuwatch doctor", "gpuwatch doctor --json"))
@provider_option("Check only this provider, including what it needs before the first launch.")
@json_option
@all_warnings_settings_option
def doctor(provider: str | None, as_json: bool, settings: Settings) -> int:
    """Check settings, database, keys, channels and clock. Rents nothing and sends no messages.

    Exit codes: 0 fine, 1 a check failed, 2 the settings are wrong.
    """
    from gpuwatch.app.setup.doctor import run_checks

    findings = list(run_checks(settings, provider))
    if as_json:
        json_out(findings)
    else:
        for finding in findings:
            click.echo(f"{_SIGNS[finding.state]} {finding.area}: {finding.text}")
            if finding.mend:
                click.echo(f"      → {finding.mend}")
    return Exit.FAILED if any(finding.state == "fault" for finding in findings) else Exit.DONE
