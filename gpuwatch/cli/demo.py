"""`gpuwatch demo`: see it work, without a key, a network or a risk."""

from __future__ import annotations

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Command


@click.command(cls=Command, examples=("gpuwatch demo",))
def demo() -> int:
    """The whole daemon against an embedded marketplace on loopback: polls, a price drop, the alert, a launch, its end.

    Takes about 20 seconds; your own settings and database are not touched.
    """
    import logging

    from gpuwatch.app.demo import play

    logging.disable(logging.WARNING)
    return Exit.DONE if play(click.echo) else Exit.FAILED
