"""`gpuwatch demo`: the daemon against an embedded marketplace."""

from __future__ import annotations

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command


@click.command(cls=Command, examples=("gpuwatch demo",))
def demo() -> int:
    """Run the daemon against an embedded marketplace on loopback: polls, a price drop, an alert, a launch and its end.

    Takes about 20 seconds; your own settings and database are not touched.
    """
    import logging

    from gpuwatch.app.demo import play

    logging.disable(logging.WARNING)
    return Exit.DONE if play(click.echo) else Exit.FAILED
