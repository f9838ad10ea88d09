"""`--watch NAME` and `--write` of `gpuwatch plan`: print a plan's `[[watch]]`, or add it to the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from gpuwatch.cli.output import note
from gpuwatch.errors import UsageError

Command = Callable[..., Any]


def watch_options(help_text: str) -> Callable[[Command], Command]:
    """Both options; they arrive as `watch: str | None` and `write: bool`."""

    def decorate(command: Command) -> Command:
        command = click.option("--write", is_flag=True, help="With --watch: add it to the settings file.")(command)
        return click.option("--watch", metavar="NAME", help=help_text)(command)

    return decorate


def refuse_watch_with(watch: str | None, *, write: bool, as_json: bool) -> None:
    """Reject conflicting options. Raises UsageError."""
    if write and watch is None:
        raise UsageError("--write requires --watch NAME")
    if watch is not None and as_json:
        raise UsageError("use either --watch, which prints TOML, or --json")


def put_watch(name: str, watch: str, config: str | None, *, write: bool) -> None:
    """Print the watch, or add it to the settings file. Raises what `add_watch` raises."""
    from gpuwatch.app.plan.plan_watch import add_watch

    if not write:
        click.echo(watch, nl=False)
        return
    path = add_watch(config, name, watch)
    click.echo(f"watch {name} added to {path}")
    note(f"test it with: gpuwatch check {name}; on past prices: gpuwatch backtest {name}")
