"""The commands, one file each. A file is imported only when its command runs, so that `--help` starts quickly."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from errno import EDQUOT, EFBIG, EIO, ENOSPC, EPIPE

import click

from gpuwatch import __version__
from gpuwatch.cli.base import LazyGroup
from gpuwatch.cli.commands import ALIASES, SECTIONS, SHORT_NAMES
from gpuwatch.errors import GpuwatchError, ProviderStateUnknown, SettingsError, StoreNotReady, UsageError


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    DONE = 0
    FAILED = 1  # `check`: every provider answered, and nothing matched
    USAGE = 2
    CANNOT_TELL = 3


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    aliases=ALIASES | SHORT_NAMES,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=("gpuwatch check --gpu H100 --max-price 3.50", "gpuwatch init", "gpuwatch run"),
)
@click.option("--config", metavar="FILE", type=click.Path(dir_okay=False), help="Settings file.")
@click.version_option(__version__, message="gpuwatch %(version)s")
@click.pass_context
def main(ctx: click.Context, config: str | None) -> None:
    """Watch GPU marketplaces; get an alert, or rent, when an offer is at or under your price."""
    ctx.obj = config


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; each error is one line on standard error."""
    from gpuwatch.cli.output import make_output_safe

    make_output_safe()
    try:
        code = main.main(args=None if argv is None else list(argv), prog_name="gpuwatch", standalone_mode=False)
        sys.stdout.flush()
    except (click.ClickException, GpuwatchError) as error:
        return _report_error(error)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except OSError as error:
        if not is_unwritten(error):
            raise
        return report_unwritten(error)
    except SystemExit:  # click exits this way when the reader is gone, as in `| head`, and silences the stream
        if "PacifyFlush" not in type(sys.stdout).__name__:
            raise
        return Exit.DONE
    return code if isinstance(code, int) else Exit.DONE


def is_unwritten(error: OSError) -> bool:
    """Whether output could not be written; an error that names a file, or of another kind, is not about the output."""
    return error.filename is None and error.errno in {EPIPE, ENOSPC, EDQUOT, EFBIG, EIO}


def report_unwritten(error: OSError) -> Exit:
    """Report output that could not be written, and return the exit code. A reader that is gone, as in `| head`, is no
    failure. Everything else that is still to be written, also at the end of the process, goes nowhere.
    """
    with suppress(OSError, ValueError):  # ValueError: no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return Exit.DONE
    with suppress(OSError):
        click.echo(f"gpuwatch: cannot write: {error}", err=True)
    return Exit.CANNOT_TELL


def _report_error(error: click.ClickException | GpuwatchError) -> Exit:
    """Print what is wrong; returns the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
    elif isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx else "gpuwatch"
        text = " ".join(error.format_message().split())
        click.echo(f"{command}: {text}{'' if text.endswith(('.', '?')) else '.'} See: {command} --help", err=True)
    elif isinstance(error, click.ClickException):
        error.show()
        return Exit.FAILED
    elif isinstance(error, SettingsError | UsageError):
        click.echo(str(error), err=True)
    else:
        click.echo(f"gpuwatch: {error}", err=True)
        return Exit.CANNOT_TELL if isinstance(error, StoreNotReady | ProviderStateUnknown) else Exit.FAILED
    return Exit.USAGE
