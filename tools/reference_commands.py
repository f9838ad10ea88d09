"""The block of docs/commands.md: every command, from its help, and the former names."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

import click

from gpuwatch.cli import main
from gpuwatch.cli.base import GroupEntry
from gpuwatch.cli.commands import ALIASES, SECTIONS, SHORT_NAMES

_WIDTH = 120
_COMMON = ("--config FILE", "--json", "--help", "-h")  # explained once, at the top of the page


def lines() -> Iterator[str]:
    """Return the block."""
    yield from _table()
    for heading, entries in SECTIONS.items():
        yield from ("", f"## {heading}")
        for name, entry in entries.items():
            if isinstance(entry, GroupEntry):
                yield from ("", f"### `gpuwatch {name}`", "", *_wrapped(entry.line))
                for inner in entry.commands:
                    yield from _command(f"gpuwatch {name} {inner}", inner, [name, inner], "####")
            else:
                yield from _command(f"gpuwatch {name}", name, [name], "###")
    yield from _former_names()


def _table() -> Iterator[str]:
    yield "| command | does |"
    yield "|---|---|"
    for entries in SECTIONS.values():
        for name, entry in entries.items():
            rows = {name: entry[0]} if not isinstance(entry, GroupEntry) else {}
            if isinstance(entry, GroupEntry):
                rows = {f"{name} {inner}": one[0] for inner, one in entry.commands.items()}
            for words, line in rows.items():
                yield f"| [`gpuwatch {words}`](#gpuwatch-{words.replace(' ', '-')}) | {_cell(line)} |"


def _command(title: str, name: str, words: list[str], level: str) -> Iterator[str]:
    context, found = click.Context(main, info_name="gpuwatch"), main
    command: click.Command = found
    for word in words:
        assert isinstance(command, click.Group)
        inner = command.get_command(context, word)
        assert inner is not None, words
        command, context = inner, click.Context(inner, info_name=word, parent=context)
    yield from ("", f"{level} `{title}`")
    yield from _text(command, context, title)
    if isinstance(command, click.Group):  # a group within a group, such as `gpuwatch plan dataset`
        for inner_name in command.list_commands(context):
            yield from _command(f"{title} {inner_name}", inner_name, [*words, inner_name], level + "#")


def _text(command: click.Command, context: click.Context, title: str) -> Iterator[str]:
    usage = " ".join(command.get_usage(context).removeprefix("Usage:").split())
    yield from ("", "```", *textwrap.wrap(usage, 118, subsequent_indent="    "), "```")
    for paragraph in inspect.cleandoc(command.help or "").replace("\b\n", "").split("\n\n"):
        yield from ("", *_wrapped(" ".join(paragraph.split())))
    records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    options = [one for one in records if one is not None and not one[0].startswith(_COMMON)]
    if options:
        yield from ("", "| option | does |", "|---|---|")
        for option, does in options:
            yield f"| `{_cell(option)}` | {_cell(does)} |"
    examples = getattr(command, "examples", ())
    if examples:
        yield from ("", "```sh", *examples, "```")


def _former_names() -> Iterator[str]:
    yield from ("", "## Former names", "")
    yield from _wrapped(
        "These commands had a name of their own before they moved into a group. The former names remain: they take "
        "the same options, and print and return the same. `gpuwatch --help` and shell completion do not list them. "
        "`gpuwatch job` without a command prints its help; `gpuwatch jobs` lists the jobs."
    )
    for name, words in SHORT_NAMES.items():
        yield from ("", f"`gpuwatch {name}` is short for `gpuwatch {' '.join(words)}`.")
    yield from ("", "| former name | today |", "|---|---|")
    for name, words in ALIASES.items():
        yield f"| `gpuwatch {name}` | `gpuwatch {' '.join(words)}` |"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text.replace("<", "&lt;").replace("*", "\\*"), _WIDTH, break_on_hyphens=False)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
