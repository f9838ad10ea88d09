"""`gpuwatch completion`: the script that lets a shell complete commands, watches, GPUs, providers and launches."""

from __future__ import annotations

import click

from gpuwatch.cli import main
from gpuwatch.cli.command import Command

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

    It completes commands and options, and the names of watches, GPUs, providers and launches. Start a new shell
    afterwards. For zsh, the folder must be in $fpath before compinit runs.
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:  # pragma: no cover  click has all three
        raise click.UsageError(f"there is no completion for {shell}")
    script = found(main, {}, "gpuwatch", "_GPUWATCH_COMPLETE")
    click.echo(script.source_template % script.source_vars())
