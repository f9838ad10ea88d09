"""Options and checks that the commands of `gpuwatch plan` share: figures, conflicts, `--watch NAME` and `--write`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from gpuwatch.cli.output import note
from gpuwatch.domain.plan.figures import FigureRange, parse_figure, parse_range
from gpuwatch.errors import UsageError

Command = Callable[..., Any]
ANY_PRICE = click.option("--any-price", is_flag=True, help="Rank implausibly cheap offers with the others.")


class Figure(click.ParamType[Any]):
    """A number with a suffix: "52k"."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the value."""
        try:
            return parse_figure(value)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


class Figures(click.ParamType[Any]):
    """A number or a range: "0.03-0.10"."""

    name = "number or range"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> FigureRange:
        """Parse the value."""
        try:
            return value if isinstance(value, FigureRange) else parse_range(value)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


def decimal_option(_ctx: click.Context, param: click.Parameter, text: str | None) -> Decimal | None:
    """A callback for a decimal number. Raises UsageError."""
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        raise UsageError(f"{param.opts[0]} {text!r}: expected a number") from None


def pairs(_ctx: click.Context, param: click.Parameter, texts: Sequence[str]) -> dict[str, str] | None:
    """A callback for figures by GPUs: "4x H100=2.5". Raises UsageError."""
    values = {}
    for text in texts:
        gpus, _, figure = text.rpartition("=")
        if not gpus.strip():
            raise UsageError(f'{param.opts[0]} {text!r}: expected GPUs and a number, such as "4x H100=2.5"')
        values[gpus.strip()] = figure.strip()
    return values or None


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
