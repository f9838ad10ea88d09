"""The commands, one file a noun. Each file is imported only when its command runs: `--help` must be quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from enum import IntEnum

import click

from gpuwatch.errors import GpuwatchError, SettingsError, UsageError


class Exit(IntEnum):
    """Exit codes, CONTRACT §3."""

    DONE = 0
    FAILED = 1  # `check`: every provider answered, and nothing matched
    USAGE = 2
    CANNOT_TELL = 3


# name → (one line of help, "module:command"); the order is the order of --help
COMMANDS: dict[str, tuple[str, str]] = {
    "check": ("One poll now: which watches are under their threshold.", "check:check"),
    "run": ("The daemon: polls, alerts, launches, until it is stopped.", "run:run"),
    "demo": ("The whole daemon against an embedded marketplace; no key, no network.", "demo:demo"),
    "offers": ("The market now, sorted by GPU price.", "offers:offers"),
    "history": ("Price over time for a GPU, from the store.", "history:history"),
    "market": ("Each GPU on one page: now, its changes, its place in its own history.", "market:market"),
    "calendar": ("Is it cheaper at night, or at weekends? By hour of the week.", "calendar:calendar"),
    "advise": ("Wait or buy: what a deadline lets you hope for.", "advise:advise"),
    "backtest": ("What your watches would have done.", "backtest:backtest"),
    "plan": ("What a job needs and costs; rent, buy, which GPU.", "plan:plan"),
    "checklist": ("What must be done before a watch rents: see, tick.", "checklist:checklist"),
    "dataset": ("Less to train on: what of a data set repeats itself.", "dataset:dataset"),
    "import": ("Prices that others recorded, into the store.", "price_files:import_"),
    "export": ("The store's prices, into a file.", "price_files:export"),
    "launches": ("What was rented, its state and cost.", "launches:launches"),
    "stop": ("End a launch, and see that it is gone.", "launches:stop"),
    "costs": ("What was spent, what is billed now, and where the month is heading.", "costs:costs"),
    "asks": ("Questions that wait for your word.", "asks:asks"),
    "approve": ("Rent what a question quoted, at its price or less.", "asks:approve"),
    "deny": ("Do not rent it, and do not ask again for a day.", "asks:deny"),
    "pause": ("Rent nothing new until it is resumed.", "pause:pause"),
    "resume": ("Rent again.", "pause:resume"),
    "machines": ("Machines that are not rented: see, forgive, block, allow.", "machines:machines"),
    "adopt": ("Take over an instance that carries gpuwatch's label.", "adopt:adopt"),
    "notify": ("Send a test message through each channel.", "notify:notify"),
    "providers": ("The providers, and how each day's row quota is planned.", "providers:providers"),
    "init": ("Write a commented gpuwatch.toml.", "config:init"),
    "doctor": ("Check settings, database, keys, channels and clock.", "doctor:doctor"),
    "config": ("Show the effective settings, or their JSON Schema.", "config:config"),
    "db": ("The store: upgrade, backup, prune, stats.", "db:db"),
}


class LazyGroup(click.Group):
    """Knows each command's help without importing it."""

    table: Mapping[str, tuple[str, str]] = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][1].partition(":")
        command: click.Command = getattr(importlib.import_module(f"gpuwatch.cli.{module}"), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (text, _) in self.table.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", type=click.Path(dir_okay=False), help="The settings file.")
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=lambda c, _p, v: _version(c, v))
@click.pass_context
def main(ctx: click.Context, config: str | None) -> None:
    """Watches GPU marketplaces and alerts, or rents, when an offer is at or under your price."""
    ctx.obj = config


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command and answer its exit code; faults become one line each on standard error."""
    from gpuwatch.cli.output import make_output_safe

    make_output_safe()
    try:
        code = main.main(args=None if argv is None else list(argv), prog_name="gpuwatch", standalone_mode=False)
    except (click.ClickException, GpuwatchError) as fault:
        return _told(fault)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return Exit.DONE
    except SystemExit:  # click leaves so where nobody reads any more, as behind `| head`, and muffles the stream
        if "PacifyFlush" not in type(sys.stdout).__name__:
            raise
        return Exit.DONE
    return code if isinstance(code, int) else Exit.DONE


def _told(fault: click.ClickException | GpuwatchError) -> Exit:
    """Say what is wrong."""
    if isinstance(fault, click.exceptions.NoArgsIsHelpError):
        click.echo(fault.ctx.get_help() if fault.ctx else "", err=True)
    elif isinstance(fault, click.UsageError):
        place = fault.ctx.command_path if fault.ctx else "gpuwatch"
        click.echo(f"{place}: {' '.join(fault.format_message().split())} See: {place} --help", err=True)
    elif isinstance(fault, click.ClickException):
        fault.show()
        return Exit.FAILED
    elif isinstance(fault, SettingsError | UsageError):
        click.echo(str(fault), err=True)
    else:
        click.echo(f"gpuwatch: {fault}", err=True)
        return Exit.FAILED
    return Exit.USAGE


def _version(ctx: click.Context, wanted: bool) -> None:
    if wanted:
        from gpuwatch import __version__

        click.echo(f"gpuwatch {__version__}")
        ctx.exit()
