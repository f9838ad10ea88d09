"""`gpuwatch run`: the daemon."""

from __future__ import annotations

import click

from gpuwatch.cli.base import Command
from gpuwatch.cli.options import config_option


@click.command(
    cls=Command,
    examples=("gpuwatch run", "gpuwatch run --config /etc/gpuwatch/gpuwatch.toml --log-format json"),
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "text", "json"]),
    default="auto",
    help="Log format. auto: text on a terminal, else for systemd.",
)
@click.option("--verbose", "-v", is_flag=True, help="Log every poll.")
@config_option
def run(log_format: str, verbose: bool, config: str | None) -> int:
    """Run the daemon: poll, alert and rent until it is stopped.

    SIGTERM ends it within 10 seconds. SIGHUP reloads the settings; if they are wrong, the daemon keeps the old ones.
    """
    import logging
    import os

    from gpuwatch.chat.interface import ChatInterface
    from gpuwatch.chat.webhooks import Webhooks
    from gpuwatch.daemon.process import serve
    from gpuwatch.web.serving import WebInterface

    webhooks = Webhooks()
    interfaces = (ChatInterface(webhooks), WebInterface(config, webhooks))
    code = serve(config, log_format=log_format, verbose=verbose, interfaces=interfaces)
    logging.shutdown()
    # All state is stored by now. Exit without joining threads: the interpreter would wait for one that a hanging
    # provider blocks.
    os._exit(code)
