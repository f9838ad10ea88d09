"""`gpuwatch run`: the daemon, and `gpuwatch web`: the page and the API without it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import config_option
from gpuwatch.cli.output import note
from gpuwatch.errors import SettingsError, UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings


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

    from gpuwatch.app.setup.sharing.alert_pictures import alert_pictures
    from gpuwatch.chat.interface import ChatInterface, Webhooks
    from gpuwatch.daemon.process import serve
    from gpuwatch.web.serving import WebInterface

    webhooks = Webhooks()
    interfaces = (alert_pictures, ChatInterface(webhooks), WebInterface(config, webhooks))
    code = serve(config, log_format=log_format, verbose=verbose, interfaces=interfaces)
    logging.shutdown()
    # All state is stored by now. Exit without joining threads: the interpreter would wait for one that a hanging
    # provider blocks.
    os._exit(code)


@click.command(
    cls=Command,
    examples=("gpuwatch web", "gpuwatch web --listen 127.0.0.1:9000", "gpuwatch web --hash-password"),
)
@click.option("--listen", metavar="HOST:PORT", default=None, help="Address and port. Default: [web] listen.")
@click.option("--hash-password", is_flag=True, help="Print the hash of a password for [web] password_hash.")
@config_option
def web(listen: str | None, hash_password: bool, config: str | None) -> int:
    """Serve the web page and the HTTP API until stopped. `gpuwatch run` serves them if [web] enabled = true.

    Exit codes: 0 stopped, 1 cannot listen there, 2 usage, or settings are wrong.
    """
    if hash_password:
        if listen is not None:
            raise UsageError("--hash-password cannot be combined with --listen")
        return _print_hash()
    from gpuwatch.bootstrap.settings_loading import load_settings

    settings = load_settings(config)
    if listen is not None:
        from msgspec.structs import replace

        settings = replace(settings, web=replace(settings.web, listen=listen))
    _require_address(settings.web.listen, settings)
    return _serve(settings, config)


def _require_address(listen: str, settings: Settings) -> None:
    """Check the address. Raises SettingsError: it would be open to everybody; UsageError: invalid address."""
    from gpuwatch.settings.model import listen_fault, split_listen

    try:
        split_listen(listen)
    except ValueError as error:
        raise UsageError(f"--listen: {error}") from None
    if (fault := listen_fault(settings.web)) is not None:
        raise SettingsError([f"web.listen: {fault}"])


def _serve(settings: Settings, config: str | None) -> int:
    import logging
    import os

    from gpuwatch.daemon import logs
    from gpuwatch.daemon.service_manager import SignalHandler
    from gpuwatch.redaction import redact
    from gpuwatch.web.serving import serving

    signals = SignalHandler()
    logs.configure(redact=redact)
    with serving(settings, _announce, config):
        while not signals.stop:
            signals.wait(3600.0)
    logging.shutdown()
    os._exit(0)  # do not wait for a thread that a hanging provider blocks


def _announce(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


def _print_hash() -> int:
    """Prompt twice on a terminal; else read one line of standard input."""
    from gpuwatch.web.security.credentials import MIN_PASSWORD_LENGTH, hash_password

    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < MIN_PASSWORD_LENGTH:
        note(f"expected a password of at least {MIN_PASSWORD_LENGTH} characters")
        return Exit.USAGE
    click.echo(hash_password(password))
    return Exit.DONE
