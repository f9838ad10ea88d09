"""`gpuwatch emulator`: serve the embedded marketplace for your own tests."""

from __future__ import annotations

from typing import Any

import click

from gpuwatch.cli.base import Command
from gpuwatch.emulator.__main__ import FLAGS, serve_market

_OPTIONS: list[click.Parameter] = [
    click.Option(
        [f"--{flag.name}"],
        type=None if flag.kind is bool else flag.kind,
        is_flag=flag.kind is bool,
        default=flag.default,
        show_default=flag.default not in {None, False},
        help=flag.about,
    )
    for flag in FLAGS
]


@click.command(cls=Command, params=_OPTIONS, examples=("gpuwatch emulator --seed 7 --tick-every 5 --control",))
def emulator(**options: Any) -> int:
    """Serve a marketplace on loopback until interrupted; the first line printed is its URL."""
    return serve_market(**options)
