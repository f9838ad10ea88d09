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
from gpuwatch.cli.base import Entry, LazyGroup
from gpuwatch.errors import GpuwatchError, ProviderStateUnknown, SettingsError, StoreNotReady, UsageError


class Exit(IntEnum):
    """Exit codes, the same for every command."""

    DONE = 0
    FAILED = 1  # `check`: every provider answered, and nothing matched
    USAGE = 2
    CANNOT_TELL = 3


# heading of --help → name → (one line of help, "module:command"); the order is the order of --help
SECTIONS: dict[str, dict[str, Entry]] = {
    "Watch": {
        "check": ("Poll once: which watches are at or under their threshold.", "watches.check:check"),
        "run": ("Run the daemon: poll, alert, rent.", "setup.run_daemon:run"),
        "demo": ("Run the daemon against an embedded marketplace.", "setup.demo:demo"),
        "web": ("Serve the web page and the HTTP API.", "setup.run_daemon:web"),
        "alerts": ("List recorded events: offers, launches, faults.", "alerts.alerts:alerts"),
        "silence": ("Mute the alerts of a watch for a while.", "alerts.alerts:silence"),
    },
    "Market": {
        "offers": ("List the offers on sale now, cheapest GPU first.", "market.offers:offers"),
        "market": ("Summarise each GPU: price now, changes, rank in its history.", "market.market:market"),
        "history": ("Show the price of a GPU over time.", "history.price_history:history"),
        "calendar": ("Test whether nights or weekends are cheaper.", "forecasts.calendar:calendar"),
    },
    "Rent": {
        "job": ("Queue work that runs when an offer meets its limit.", "jobs.jobs:job"),
        "rehearse": ("Check everything a launch needs, without placing the order.", "watches.check:rehearse"),
        "handover": ("Print a watch's offer as a task of SkyPilot or dstack.", "watches.checklist:handover"),
        "launches": ("List launches with their state and cost.", "launches.launches:launches"),
        "stop": ("End a launch and confirm that its instance is gone.", "launches.launches:stop"),
        "extend": ("Extend the runtime of a launch, if the budgets allow it.", "launches.launches:extend"),
        "asks": ("List quotes that await your approval.", "launches.approvals:asks"),
        "approve": ("Approve a quote: rent at its price or less.", "launches.approvals:approve"),
        "deny": ("Decline a quote; it is not offered again for a day.", "launches.approvals:deny"),
        "pause": ("Stop renting until you resume.", "launches.approvals:pause"),
        "resume": ("Allow renting again.", "launches.approvals:resume"),
        "machines": ("List, block or allow machines.", "market.avoided_machines:machines"),
        "adopt": ("Take over an instance that carries gpuwatch's label.", "launches.launches:adopt"),
        "accounts": ("List provider accounts and the launches active under each.", "market.providers:accounts"),
        "costs": ("Show spending, the current rate and the monthly forecast.", "launches.costs:costs"),
    },
    "Plan": {
        "advise": ("Wait or buy: the price to wait for before a deadline.", "forecasts.advise:advise"),
        "scores": ("Show how accurate past forecasts were.", "forecasts.scores:scores"),
        "backtest": ("Replay your watches over recorded prices.", "forecasts.backtest:backtest"),
        "plan": ("Estimate a job's memory, time and cost; compare rent and purchase.", "plan.plan:plan"),
        "checklist": ("Show or tick the items a watch requires before it rents.", "watches.checklist:checklist"),
        "dataset": ("Find and remove duplicates in a training data set.", "gpuwatch.dataset.command:dataset"),
    },
    "Store": {
        "import": ("Load price files into the store.", "history.price_files:import_"),
        "export": ("Write the store's prices to a file.", "history.price_files:export"),
        "db": ("Upgrade, back up, prune or measure the store.", "setup.db:db"),
    },
    "Setup": {
        "init": ("Write a commented gpuwatch.toml.", "setup.config:init"),
        "doctor": ("Check settings, database, keys, channels and clock.", "setup.config:doctor"),
        "config": ("Show the effective settings or their JSON Schema.", "setup.config:config"),
        "providers": ("List providers: status, credentials, quota plan.", "market.providers:providers"),
        "new-provider": ("Generate a package for a new provider.", "market.providers:new_provider"),
        "notify": ("Send a test message through each channel.", "alerts.alerts:notify"),
        "docs": ("Read the documentation.", "setup.help_commands:docs"),
        "emulator": ("Serve the embedded marketplace for your own tests.", "setup.demo:emulator"),
        "completion": ("Print the completion script for your shell.", "setup.help_commands:completion"),
    },
}
COMMANDS: dict[str, Entry] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
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
