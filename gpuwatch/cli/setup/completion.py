"""`gpuwatch completion`: print a shell's completion script."""

from __future__ import annotations

import click

from gpuwatch.cli import main
from gpuwatch.cli.base import Command

_SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=Command,
    examples=(
        "gpuwatch completion bash > ~/.local/share/bash-completion/completions/gpuwatch",
        "gpuwatch completion zsh > ~/.zfunc/_gpuwatch",
        "gpuwatch completion fish > ~/.config/fish/completions/gpuwatch.fish",
    ),
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    Completes commands, options, and the names of watches, GPUs, providers and launches. Start a new shell
    afterwards. For zsh, add the folder to $fpath before compinit runs.
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    if completion_class is None:  # pragma: no cover  click supports all three
        raise click.UsageError(f"completion for {shell} is not supported")
    script = completion_class(main, {}, "gpuwatch", "_GPUWATCH_COMPLETE")
    click.echo(script.source_template % script.source_vars())
