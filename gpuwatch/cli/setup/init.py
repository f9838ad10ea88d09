"""`gpuwatch init`: asks on a terminal, and writes gpuwatch.toml and .env."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import config_option
from gpuwatch.cli.output import note
from gpuwatch.errors import UsageError
from gpuwatch.home_folder import expand_home

if TYPE_CHECKING:
    from gpuwatch.app.setup.first_watch.questions import GivenAnswers

_INDENT = " " * 5
_MAX_WIDTH = 100


@click.command(
    cls=Command,
    examples=(
        "gpuwatch init",
        "gpuwatch init --gpu 4090 --max-price 0.40 --yes",
        "gpuwatch init --full --config ~/.config/gpuwatch/gpuwatch.toml",
    ),
)
@click.option("--gpu", metavar="GPU", help="GPU to watch, in any spelling.")
@click.option("--max-price", metavar="USD", help="Limit in USD per GPU-hour, reserve included.")
@click.option(
    "--action",
    type=click.Choice(["alert", "ask", "launch"]),
    help="What the watch does. launch: rents, but only once dry_run is false. Default: alert.",
)
@click.option("--yes", "-y", is_flag=True, help="Ask nothing; requires --gpu and --max-price.")
@click.option("--full", is_flag=True, help="Write every setting, commented, and ask nothing.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@config_option
def init(
    gpu: str | None, max_price: str | None, action: str | None, yes: bool, full: bool, force: bool, config: str | None
) -> int:
    """Set up gpuwatch: five questions on a terminal, then gpuwatch.toml, and .env for the secrets.

    Nothing is written before the last answer; Ctrl-C ends it at any question.
    """
    from gpuwatch.app.setup.config import already_there, full_settings_text, write_settings
    from gpuwatch.app.setup.first_watch.questions import Answered, GivenAnswers, first_watch
    from gpuwatch.app.setup.first_watch.setting_up import open_surroundings, write_first_watch

    target = _target(config)
    given = GivenAnswers(gpu=gpu, max_price=max_price, action=action)
    if full:
        if given != GivenAnswers():
            raise UsageError("--full writes an example watch: use it without --gpu, --max-price and --action")
        schema = write_settings(target, full_settings_text(), force=force)
        note(f"wrote {target} and {schema}; next: edit the watch, then gpuwatch check")
        return Exit.DONE
    if not yes:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError(
                "init asks on a terminal, and here is none: add --gpu H100 --max-price 2.50 --yes, or use --full"
            )
        return _ask_and_write(target, given, force=force)
    if target.exists() and not force:
        raise already_there(target)
    with open_surroundings(target) as around:
        answered = Answered(first=first_watch(given, around))
    write_first_watch(target, answered, {}, force=force)
    note(f"wrote {target}; next: gpuwatch doctor, then gpuwatch run")
    return Exit.DONE


def _target(config: str | None) -> Path:
    name = config or os.environ.get("GPUWATCH_CONFIG") or "gpuwatch.toml"
    try:
        return expand_home(name)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None


def _ask_and_write(target: Path, given: GivenAnswers, *, force: bool) -> int:
    from gpuwatch.app.setup.first_watch.questions import ask_first_watch
    from gpuwatch.app.setup.first_watch.setting_up import (
        new_variables,
        open_surroundings,
        replaced_variables,
        write_first_watch,
    )

    dialog = TerminalDialog()
    if target.exists() and not force:
        if not dialog.confirm(f"{_shown(target)} exists. Replace it after the questions", default=False):
            _echo("Nothing was changed. To edit the file: gpuwatch docs settings.")
            return Exit.DONE
        force = True
    _echo("Five questions. Enter takes what stands in [brackets]; until the last one nothing is written.")
    with open_surroundings(target) as around:
        answered = ask_first_watch(dialog, given, around)
    variables = new_variables(target, answered)
    for name in replaced_variables(target, variables):
        if not dialog.confirm(f".env already sets {name} to something else. Replace it", default=False):
            del variables[name]
    settings = write_first_watch(target, answered, variables, force=force)
    _echo(f"Wrote {_shown(target)}" + (f", and {', '.join(variables)} to .env (mode 600)." if variables else "."))
    if (folder := target.parent.absolute()) != Path.cwd():
        _echo(f"Start gpuwatch in {folder}, so that it finds both: cd {folder}")
    _echo("Check it: gpuwatch doctor. Run it always: gpuwatch service install.")
    if settings.watches and dialog.confirm("Start it now (gpuwatch run; Ctrl-C ends it)", default=True):
        from gpuwatch.cli.setup.run_daemon import run

        config = str(target.absolute())
        os.chdir(folder)
        return int(click.get_current_context().invoke(run, config=config))
    return Exit.DONE


def _shown(path: Path) -> str:
    return path.name if path.parent.absolute() == Path.cwd() else str(path)


def _echo(text: str, indent: str = "", next_indent: str = "") -> None:
    width = min(shutil.get_terminal_size().columns, _MAX_WIDTH)
    for line in wrap(text, width, initial_indent=indent, subsequent_indent=next_indent, break_on_hyphens=False):
        click.echo(line)


class TerminalDialog:
    """Implements `ports.dialog.Dialog` on the terminal. Ctrl-C and the end of the input raise click's Abort."""

    def say(self, text: str) -> None:
        """Show a line, wrapped at the terminal's width and indented below the number of its question."""
        _echo(text, "" if text[1:3] == "/5" else _INDENT, _INDENT)

    def ask(self, question: str, default: str = "") -> str:
        """Ask for a line."""
        return str(click.prompt(f"   > {question}", default=default, show_default=bool(default))).strip()

    def ask_secret(self, question: str) -> str:
        """Ask for a line that is not shown."""
        return str(click.prompt(f"   > {question}", default="", show_default=False, hide_input=True)).strip()

    def confirm(self, question: str, *, default: bool) -> bool:
        """Ask for yes or no."""
        return click.confirm(f"   > {question}?", default=default)

    def waiting(self, text: str) -> AbstractContextManager[object]:
        """A spinner, where the terminal has one."""
        if not sys.stderr.isatty():
            return nullcontext()
        from rich.console import Console

        return Console(stderr=True).status(f"{text} …")
