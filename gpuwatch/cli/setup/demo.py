"""`gpuwatch demo`: the daemon against the embedded marketplace, and `providers emulator`: that marketplace alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.emulator.__main__ import FLAGS, serve_market

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


@click.command(cls=Command, examples=("gpuwatch demo", "gpuwatch demo --web", "gpuwatch demo --jobs"))
@click.option("--web", is_flag=True, help="Afterwards, serve the web page at a printed address until Ctrl-C.")
@click.option("--jobs", is_flag=True, help="Run a job on a local SSH server instead, up to its results.")
def demo(web: bool, jobs: bool) -> int:
    """Run the daemon against an embedded marketplace on loopback: polls, a price drop, an alert, a launch and its end.

    Takes about 20 seconds and does not touch your settings or database.
    """
    import logging

    if web and jobs:
        raise click.UsageError("use either --web or --jobs")
    logging.disable(logging.WARNING)
    if jobs:
        from gpuwatch.app.setup.demo_jobs import run_job_demo

        return Exit.DONE if run_job_demo(click.echo) else Exit.FAILED
    from gpuwatch.app.setup.demo import run_demo

    return Exit.DONE if run_demo(click.echo, _show_page if web else None) else Exit.FAILED


def _show_page(settings: Settings, file: Path) -> None:
    """Serve the page until SIGINT or SIGTERM."""
    from gpuwatch.daemon.service_manager import SignalHandler
    from gpuwatch.web.serving import serving

    signals = SignalHandler()
    with serving(settings, click.echo, str(file)):
        click.echo("   log in with the code to approve, stop and change; Ctrl-C ends the demo")
        while not signals.stop:
            signals.wait(3600.0)


_OPTIONS: list[click.Parameter] = [
    click.Option(
        [f"--{flag.name}"],
        type=None if flag.kind is bool else flag.kind,
        is_flag=flag.kind is bool,
        default=flag.default,
        show_default=flag.default not in {None, False},
        help=flag.about,
    )
    for flag in FLAGS
]


@click.command(
    cls=Command, params=_OPTIONS, examples=("gpuwatch providers emulator --seed 7 --tick-every 5 --control",)
)
def emulator(**options: Any) -> int:
    """Serve a marketplace on loopback until interrupted; the first line printed is its URL.

    A marketplace tells no past prices: `gpuwatch store import --recorded` gives your store two weeks of them.
    """
    return serve_market(**options)
