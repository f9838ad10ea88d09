"""Base classes of commands: examples in the help, a suggestion for a mistyped name; refuses options without effect."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from gpuwatch.errors import UsageError

Entry = tuple[str, str]  # one line of help, "module:attribute"


def command_actor() -> str:
    """Who runs this command, for the audit event of what it changes: "command line (root)"."""
    import os
    import pwd

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container without a name for its user
        name = f"user {os.getuid()}"
    return f"command line ({name})"


class GroupEntry(NamedTuple):
    """A group of commands, before any of them is imported."""

    line: str  # one line of help
    commands: Mapping[str, Entry]  # "list", if there is one, also runs without a name
    examples: tuple[str, ...]


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
            near = self.suggestions(ctx, args[0])
            more = f" Did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{more}")
        return super().resolve_command(ctx, args)

    def suggestions(self, ctx: click.Context, typed: str) -> list[str]:
        """The commands, at most three, whose names are nearest to what was typed."""
        from difflib import get_close_matches

        meant: dict[str, list[str]] = {}
        for name, command in self.known_names(ctx):
            meant.setdefault(name, []).append(command)
        near = [command for name in get_close_matches(typed, meant, n=3) for command in meant[name]]
        return list(dict.fromkeys(near))[:3]

    def known_names(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        """Names that a user may have meant, each with the command to type instead."""
        return ((name, name) for name in self.list_commands(ctx))


class LazyGroup(Group):
    """Imports a command only when it runs; holds the one-line help of each.

    Args:
        sections: heading of the help → name → command.
        aliases: former name, hidden from the help → the words that are typed today.
        default: runs when no command is named, with its options; if it takes names, also when one of them is named.
    """

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Mapping[str, Entry | GroupEntry]],
        aliases: Mapping[str, tuple[str, ...]] | None = None,
        default: click.Command | None = None,
        **attributes: Any,
    ) -> None:
        if default is not None:
            options = [param for param in default.params if not isinstance(param, click.Argument)]
            attributes |= {"params": options, "callback": _unless_named(default)}
        self._default = default
        super().__init__(*args, invoke_without_command=default is not None, **attributes)
        self.sections = sections
        self.aliases = aliases or {}
        self.entries = {name: entry for section in sections.values() for name, entry in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        *group, name = self.aliases.get(cmd_name, (cmd_name,))
        outer = self.entries.get(group[0]) if group else None
        entry = outer.commands.get(name) if isinstance(outer, GroupEntry) else self.entries.get(name)
        return None if entry is None else _loaded(name, entry, has_default=cmd_name not in self.aliases)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A name that is no command is one that the default command takes."""
        if self._default is not None and _takes_names(self._default) and self.get_command(ctx, args[0]) is None:
            return self._default.name, self._default, args
        return super().resolve_command(ctx, args)

    def known_names(self, ctx: click.Context) -> Iterator[tuple[str, str]]:
        yield from super().known_names(ctx)
        yield from ((alias, " ".join(words)) for alias, words in self.aliases.items())
        for group, entry in self.entries.items():
            if isinstance(entry, GroupEntry):
                yield from ((name, f"{group} {name}") for name in entry.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        wide = max(map(len, self.entries))
        for heading, entries in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(wide), entry[0]) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing the commands, or options if one is being typed."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=entry[0]) for name, entry in self.entries.items() if name.startswith(incomplete)
        ]


def _loaded(name: str, entry: Entry | GroupEntry, *, has_default: bool = True) -> click.Command:
    """Import a command, or build a group. A group's former name answers as it did: it has no default."""
    if not isinstance(entry, GroupEntry):
        module, _, attribute = entry[1].partition(":")
        place = module if module.startswith("gpuwatch.") else f"gpuwatch.cli.{module}"
        command: click.Command = getattr(importlib.import_module(place), attribute)
        return command
    first = entry.commands.get("list") if has_default else None
    default = None if first is None else _loaded("list", first)
    return LazyGroup(
        name,
        sections={"Commands": entry.commands},
        default=default,
        help=default.help if default else entry.line,
        examples=entry.examples,
        lists=getattr(default, "lists", None),
    )


def _takes_names(command: click.Command) -> bool:
    return any(isinstance(param, click.Argument) for param in command.params)


def _unless_named(default: click.Command) -> Callable[..., Any]:
    """A group's callback, which click calls with the group's options before a command as well."""
    no_names = {param.name: () for param in default.params if isinstance(param, click.Argument) and param.name}

    def call(**options: Any) -> Any:
        if click.get_current_context().invoked_subcommand is None and default.callback is not None:
            return default.callback(**options, **no_names)
        return None

    return call


def refuse_given(reason: str, *names: str) -> None:
    """Reject options that would be ignored. Raises UsageError: names the first one on the command line, and why.

    Args:
        names: parameter names of the command's function.
    """
    ctx = click.get_current_context()
    for param in ctx.command.params:
        if param.name in names and ctx.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"{param.opts[0]} {reason}")


# --- how figures are computed, on request -----------------------------------------------------------------------------

_METHOD = "gpuwatch.method"
_METHOD_HELP = "Also show how the figures are computed."


def method_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--method`, `-v`: `wants_method` returns it."""
    return click.option("--method", "-v", is_flag=True, expose_value=False, callback=_set_method, help=_METHOD_HELP)(
        command
    )


def verbose_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--verbose`, `-v`: the same for commands in which `--method` is that of a training."""
    return click.option("--verbose", "-v", is_flag=True, expose_value=False, callback=_set_method, help=_METHOD_HELP)(
        command
    )


def _set_method(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[_METHOD] = value


def wants_method() -> bool:
    """Whether the command that runs is to show how its figures are computed."""
    return bool(click.get_current_context().meta.get(_METHOD))
