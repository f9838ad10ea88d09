"""Options that several commands share, spelled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


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
