"""Options that several commands share, spelled once."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stderr
from math import isfinite
from typing import Any

import click

Command = Callable[..., Any]


class Between(click.FloatRange):
    """A finite number in a range: "nan" is in every range that click knows."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Raises click.BadParameter."""
        found = float(super().convert(value, param, ctx))
        if not isfinite(found):
            self.fail(f"{value!r} is no number", param, ctx)
        return found


def completes(kind: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Complete names in a shell; an error completes nothing and prints nothing.

    Args:
        kind: a function of `gpuwatch.app.completion`.
    """

    def found(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        try:
            with redirect_stderr(io.StringIO()):
                from gpuwatch.app import completion

                config = ctx.params.get("config") or ctx.find_root().params.get("config")
                names: list[str] = getattr(completion, kind)(config)
        except Exception:
            return []
        return [name for name in names if name.lower().startswith(incomplete.lower())]

    return found


def config_option(command: Command) -> Command:
    """`--config FILE`, also where it was given before the command's name; arrives as `config: str | None`."""
    return click.option(
        "--config",
        type=click.Path(dir_okay=False),
        help="The settings file.",
        callback=lambda ctx, _param, value: value or ctx.find_root().obj,
    )(command)


def json_option(command: Command) -> Command:
    """`--json`; arrives as `as_json: bool`."""
    return click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")(command)


def provider_option(command: Command) -> Command:
    """`--provider NAME`; arrives as `provider: str | None`. It may be left out where only one is enabled."""
    return click.option(
        "--provider",
        metavar="NAME",
        default=None,
        shell_complete=completes("providers"),
        help="Provider. Default: the one that is enabled.",
    )(command)


def duration_option(flag: str, name: str, text: str, default: str | None = None) -> Callable[[Command], Command]:
    """A duration above 0 as people write it (`2h`); arrives in seconds as `name: float | None`."""
    return click.option(
        flag, name, metavar="DURATION", default=default, show_default=default is not None, callback=_seconds, help=text
    )


def _seconds(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    from gpuwatch.domain.watches.durations import EXPECTED, parse_duration

    if value is None:
        return None
    try:
        seconds = parse_duration(value)
    except ValueError as fault:
        raise click.BadParameter(str(fault)) from fault
    if not seconds:
        raise click.BadParameter(f"expected {EXPECTED}, above 0")
    return seconds
