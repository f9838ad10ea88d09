"""Pictures: `--png FILE`, drawn by matplotlib (the extra `analysis`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gpuwatch.errors import UsageError

Command = Callable[..., Any]
_SIZE_INCHES = (10, 5)
_DPI = 120


def png_option(command: Command) -> Command:
    """`--png FILE`; arrives as `png: Path | None`."""
    return click.option(
        "--png", type=click.Path(dir_okay=False, path_type=Path), default=None, help="A picture into this file."
    )(command)


def save_png(path: Path, draw: Callable[[Any], None]) -> None:
    """Draw a picture and write it, whole or not at all.

    Args:
        draw: fills a `matplotlib.axes.Axes`.

    Raises:
        UsageError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        from gpuwatch.installation import install_hint

        raise UsageError(f"--png needs matplotlib: {install_hint('analysis')}") from fault
    figure = Figure(figsize=_SIZE_INCHES, dpi=_DPI, layout="constrained")
    draw(figure.subplots())
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        figure.savefig(part, format="png", metadata={"Software": None})  # equal data, equal bytes
        part.replace(path)
    except OSError as fault:
        raise UsageError(f"{path}: it cannot be written: {fault.strerror or fault}") from fault
    finally:
        part.unlink(missing_ok=True)
