"""`gpuwatch docs`: the pages of the documentation, and `gpuwatch config completion`: a shell's completion script."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from gpuwatch.cli import main
from gpuwatch.cli.base import Command
from gpuwatch.installation import packaged_path

_SHELLS = ("bash", "zsh", "fish")
_FOLDERS = ("*.md", "providers/*.md", "ru/*.md")
_WIDTH = 100  # longer lines are hard to read
_MOST_PAGES = 5  # named where no page has the name


def _complete(_context: click.Context, _parameter: click.Parameter, begin: str) -> list[str]:
    return [name for name in documentation_pages() if name.startswith(begin)]


@click.command(cls=Command, examples=("gpuwatch docs", "gpuwatch docs settings", "gpuwatch docs runpod | less"))
@click.argument("topic", required=False, shell_complete=_complete)
def docs(topic: str | None) -> None:
    """Show a page of the documentation, or list the pages."""
    page_paths = documentation_pages()
    if topic is None:
        width = max(map(len, page_paths), default=0)
        for name, path in page_paths.items():
            click.echo(f"{name:{width}}  {_title(path)}")
        return
    text = page_paths[_page_of(topic, page_paths)].read_text(encoding="utf-8")
    if sys.stdout.isatty():
        _print_formatted(text)
    else:
        click.echo(text, nl=False)


def documentation_pages() -> dict[str, Path]:
    """Topic → file: `settings`, `providers/runpod`. Wheels and checkouts both contain the pages."""
    settings = packaged_path("docs/settings.md")
    paths = [path for name in _FOLDERS for path in settings.parent.glob(name)] if settings else []
    return dict(sorted((_topic(path), path) for path in paths))


def _topic(path: Path) -> str:
    name = path.stem if path.parent.name == "docs" else f"{path.parent.name}/{path.stem}"
    return name.removesuffix("/README")


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as opened:
        return next((line.lstrip("# ").rstrip() for line in opened if line.startswith("# ")), "")


def _page_of(topic: str, page_paths: dict[str, Path]) -> str:
    """Find the page of a topic in any spelling: `settings`, `settings.md`, `docs/settings.md#secrets`, `runpod`."""
    from difflib import get_close_matches

    from gpuwatch.errors import UsageError

    topic_name = topic.lower().partition("#")[0].removeprefix("docs/").removesuffix(".md").removesuffix("/")
    for name in (topic_name, f"providers/{topic_name}"):
        if name in page_paths:
            return name
    by_last_word = {name.rpartition("/")[2]: name for name in page_paths}
    near = get_close_matches(topic_name.rpartition("/")[2], by_last_word, n=1, cutoff=0.6)
    if near:
        raise UsageError(f"no page {topic!r}; did you mean {by_last_word[near[0]]}?")
    about = ", ".join(_pages_about(topic_name, page_paths)[:_MOST_PAGES])
    hint = f"it is in a heading of: {about}" if about else "run `gpuwatch docs` to list the pages"
    raise UsageError(f"no page {topic!r}; {hint}")


def _pages_about(topic: str, page_paths: dict[str, Path]) -> list[str]:
    """The pages with this text in a heading."""

    def has_it(path: Path) -> bool:
        with path.open(encoding="utf-8") as opened:
            return any(topic in line.lower() for line in opened if line.startswith("##"))

    return [name for name, path in page_paths.items() if topic in _title(path).lower() or has_it(path)]


def _print_formatted(text: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.print(Markdown(text, hyperlinks=False), width=min(console.width, _WIDTH))


@click.command(
    cls=Command,
    examples=(
        "gpuwatch config completion bash > ~/.local/share/bash-completion/completions/gpuwatch",
        "gpuwatch config completion zsh > ~/.zfunc/_gpuwatch",
        "gpuwatch config completion fish > ~/.config/fish/completions/gpuwatch.fish",
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
