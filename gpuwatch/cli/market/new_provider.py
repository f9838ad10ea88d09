"""`gpuwatch new-provider`: generate a package for a new provider."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import json_option
from gpuwatch.cli.output import json_out


@click.command(
    "new-provider", cls=Command, examples=("gpuwatch new-provider mycloud", "gpuwatch new-provider mycloud --into src")
)
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="New or empty folder. Default: ./gpuwatch-NAME.",
)
@json_option
def new_provider(name: str, into: Path | None, as_json: bool) -> int:
    """Generate a package for a new provider: a module, a test double with the conformance kit, pyproject.toml.

    The generated package works and passes the kit for a fictional cloud. Each place that you must fill in has a
    failing test that names it. See: gpuwatch docs write-a-provider

    Exit codes: 0 written, 2 the name or the folder cannot be used.
    """
    from gpuwatch.app.setup.new_provider import new_package_json, write_package
    from gpuwatch.installation import package_hint

    package = write_package(name, into)
    if as_json:
        json_out(new_package_json(package))
        return Exit.DONE
    click.echo(f"{package.folder}: {', '.join(package.files)}")
    click.echo(f"{package.to_write} places to fill in; each is marked and has a failing test. Next:")
    click.echo(
        f"  cd {package.folder} && {package_hint('.[test]', '-e')} && {shlex.quote(sys.executable)} -m pytest -q"
    )
    return Exit.DONE
