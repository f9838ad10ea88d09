"""`gpuwatch job logs` and `gpuwatch job results`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command
from gpuwatch.cli.options import completes, json_option, stopping_settings_option
from gpuwatch.cli.output import displayable, json_out, note
from gpuwatch.cli.terminal_tables import left, right, table
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_OUTPUT_COLUMNS = (left("file"), right("bytes"), right("run", drop=1), left("sha256", drop=2))


@click.command(cls=Command, examples=("gpuwatch job logs qlora-8b", "gpuwatch job logs -f qlora-8b"))
@click.argument("name", metavar="JOB", shell_complete=completes("jobs"))
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the job ends.")
@click.option("--run", "run_number", type=click.IntRange(1), default=None, help="Run number. Default: the newest.")
@click.option("--tail", type=click.IntRange(0), default=None, metavar="N", help="Only the last N lines.")
@json_option
@stopping_settings_option
def logs(name: str, follow: bool, run_number: int | None, tail: int | None, as_json: bool, settings: Settings) -> None:
    """Show the output of a job's command. While the job runs, gpuwatch fetches it about once a minute."""
    from gpuwatch.app.jobs.job_output import follow_log, job_log

    if follow and (as_json or run_number is not None):
        raise UsageError("--follow shows the newest run: omit --json and --run")
    log = job_log(settings, name, run_number, tail)
    if log.is_at is not None:
        note(f"gpuwatch did not fetch it; see: {log.is_at}")
    elif follow:
        for line in follow_log(settings, name, tail):
            click.echo(displayable(line))
        return
    if as_json:
        json_out({
            "job_id": log.job.job_id, "name": log.job.name, "state": log.job.state.value,
            "run_number": log.run_number, "lines": list(log.lines),
            "is_at": log.is_at,
        })  # fmt: skip
        return
    for line in log.lines:
        click.echo(displayable(line))
    if not log.lines and log.is_at is None:
        note(f"job {log.job.name} is {log.job.state.value}: no log has been fetched yet")


@click.command(cls=Command, examples=("gpuwatch job results qlora-8b",))
@click.argument("name", metavar="JOB", shell_complete=completes("jobs"))
@json_option
@stopping_settings_option
def results(name: str, as_json: bool, settings: Settings) -> None:
    """List the result files of a job, fetched and verified by size and hash."""
    from gpuwatch.app.jobs.job_output import job_results

    job, files = job_results(settings, name)
    if as_json:
        json_out(files)
    elif files:
        rows = [(str(file.get("path", "–")), str(file.get("bytes", file.get("size", "–"))), str(file["run_number"]),
                 str(file.get("sha256", "–"))[:12]) for file in files]  # fmt: skip
        table(_OUTPUT_COLUMNS, rows)
    else:
        note(f"job {job.name} is {job.state.value}: no results have been fetched")
