"""Base classes of commands: examples in the help, a suggestion for a mistyped name; refuses options without effect."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from gpuwatch.errors import UsageError

Entry = tuple[str, str]  # one line of help, "module:attribute"


class _WithExamples(click.Command):
    """A command whose help ends with examples and optional lists of names."""

    def __init__(
        self,
        *args: Any,
        examples: Sequence[str] = (),
        lists: Callable[[], Mapping[str, Sequence[str]]] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.examples = tuple(examples)
        self.lists = lists  # heading → names, such as those of the installed channels

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        for heading, names in (self.lists() if self.lists else {}).items():
            with formatter.section(heading):
                formatter.write_text(", ".join(names))
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


class Command(_WithExamples):
    """A command."""


class Group(_WithExamples, click.Group):
    """A command group that suggests the nearest name for an unknown subcommand."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.list_commands(ctx), n=3)
            more = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{more}")
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """Imports a command only when it runs; holds the one-line help of each."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, Entry]], **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.sections = sections
        self.entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.entries:
            return None
        module, _, attribute = self.entries[cmd_name][1].partition(":")
        command: click.Command = getattr(
            importlib.import_module(module if "gpuwatch." in module else f"gpuwatch.cli.{module}"), attribute
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        wide = max(map(len, self.entries))
        for heading, entries in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(wide), line) for name, (line, _) in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing the commands, or options if one is being typed."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=line) for name, (line, _) in self.entries.items() if name.startswith(incomplete)
        ]


def refuse_given(reason: str, *names: str) -> None:
    """Reject options that would be ignored. Raises UsageError: names the first one on the command line, and why.

    Args:
        names: parameter names of the command's function.
    """
    ctx = click.get_current_context()
    for param in ctx.command.params:
        if param.name in names and ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"{param.opts[0]} {reason}")
