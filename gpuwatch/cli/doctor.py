"""`gpuwatch doctor`: check the installation, and say how to fix what is wrong."""

from __future__ import annotations

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command
from gpuwatch.cli.options import config_option, json_option

_SIGNS = {"ok": "ok   ", "note": "note ", "fault": "FAULT"}


@click.command(
    cls=Command,
    examples=(
        "gpuwatch doctor",
        "gpuwatch doctor --json",
    ),
)
@json_option
@config_option
def doctor(as_json: bool, config: str | None) -> int:
    """Check settings, database, keys, channels and clock. Rents nothing and sends no message.

    Exit codes: 0 fine, 1 something is broken, 2 the settings are wrong.
    """
    from gpuwatch.app.doctor import run_checks
    from gpuwatch.bootstrap.settings_loading import load_settings

    findings = list(run_checks(load_settings(config)))
    if as_json:
        import msgspec

        from gpuwatch.cli.output import json_out

        json_out([msgspec.structs.asdict(finding) for finding in findings])
    else:
        for finding in findings:
            click.echo(f"{_SIGNS[finding.state]} {finding.area}: {finding.text}")
            if finding.mend:
                click.echo(f"      → {finding.mend}")
    return Exit.FAILED if any(finding.state == "fault" for finding in findings) else Exit.DONE
