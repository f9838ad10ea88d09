"""Options and checks that the commands of `gpuwatch plan` share: figures, conflicts, `--watch NAME` and `--write`."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin
from zoneinfo import ZoneInfo

import click

from gpuwatch.app.plan.plan_request import file_values, label_of, set_values
from gpuwatch.app.plan.plan_size import published_text
from gpuwatch.bootstrap import real_now
from gpuwatch.cli import base
from gpuwatch.cli.options import completes
from gpuwatch.cli.output import echo, note
from gpuwatch.domain.jobs.queue import deadline_from
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.plan.figures import parse_figure
from gpuwatch.domain.plan.workload import ModelKeys
from gpuwatch.domain.setup.durations import EnvText
from gpuwatch.domain.setup.fields import Table, number_in
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

Command = Callable[..., Any]


class Figure(click.ParamType[Any]):
    """A number with a suffix: "52k"."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse the value."""
        try:
            return parse_figure(value)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


class PlanCommand(base.Command):
    """A command that says where a former option went, such as `--seed`: to an example file."""

    def __init__(self, *args: Any, example: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.example = example

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if (text := self.moved(error.option_name, typed)) is None:
                raise
            raise UsageError(text) from None

    def moved(self, option: str, _typed: Sequence[str]) -> str | None:
        """Where a former option went; None: there was none of that name."""
        if option != "--seed":
            return None
        return f"--seed is now a file with the sources' figures: gpuwatch plan {self.name} {self.example}"


class KeyCommand(PlanCommand):
    """A command whose figures are the keys of one table: options for a few of them, `--set` and a file for all."""

    def __init__(self, *args: Any, keys: type[Table], options: Mapping[str, str], **more: Any) -> None:
        super().__init__(*args, **more)
        self.keys, self.options = keys, options

    def moved(self, option: str, typed: Sequence[str]) -> str | None:
        """Where a former option went; None: there was none of that name."""
        key = option.lstrip("-").replace("-", "_")
        key, value = _RENAMED.get(key, (key, ""))
        if key not in _keys_of(self.keys):
            return super().moved(option, typed)
        if not value:
            value = "true" if isinstance(self.keys.model_fields[key].default, bool) else _value_of(option, typed)
        if (label := label_of(key, self.options)) != key:
            return f"{option} is now {label}: {label} {value}"
        file_text = f"{key} = {_toml(value)} under [plan] in a job file"
        return f"{option} is now a key: --set {shlex.quote(f'{key}={value}')}, or {file_text}"


# key → its options, where they are not named after it
_NAMES = {"model": ["--model", "--size-of", "--params"], "poll": ["--poll", "--now"]}

# former option → its key and, for a switch that was two options, the value
_RENAMED = {
    "keep_activations": ("recompute", "false"), "plain_attention": ("fused_attention", "false"),
    "fused": ("fused_attention", "true"), "no_master": ("master", "false"),
}  # fmt: skip


def _keys_of(kind: type[Table]) -> list[str]:
    return [key for key in kind.model_fields if key not in kind.unused_keys]


def _value_of(option: str, typed: Sequence[str]) -> str:
    """What was typed for an option."""
    for at, text in enumerate(typed):
        if text.startswith(f"{option}="):
            return text.partition("=")[2]
        if text == option and at + 1 < len(typed):
            return typed[at + 1]
    return "VALUE"


def _toml(value: str) -> str:
    return value if value in {"true", "false"} or not isinstance(number_in(value), str) else f'"{value}"'


def key_options(kind: type[Table], options: Mapping[str, str], arguments: str = "[FILE]") -> Callable[..., Any]:
    """`FILE`, `--set`, `--keys` and an option for some keys; they arrive as `values`, the stated keys.

    Args:
        options: option → key.
        arguments: the metavar of what is typed without an option: a file whose name ends in .toml, and candidates.
    """

    keys = _keys_of(kind)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def call(*args: Any, arguments: tuple[str, ...], sets: tuple[str, ...], **given: Any) -> Any:
            values = _stated(kind, arguments, sets)
            typed = {key: given.pop(key) for key in options.values()}
            values |= {key: _typed(value) for key, value in typed.items() if value not in (None, False, ())}
            return command(*args, values=values, **given)

        for option, key in reversed(list(options.items())):
            call = _key_option(kind, option, key)(call)
        call = click.option("--keys", is_flag=True, is_eager=True, expose_value=False, callback=_print_keys(kind),
                            help="List all keys, and exit.")(call)  # fmt: skip
        call = click.option(
            "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key (--keys lists them); may be repeated.",
            shell_complete=lambda _ctx, _param, start: [f"{key}=" for key in keys if key.startswith(start)],
        )(call)  # fmt: skip
        return click.argument("arguments", nargs=-1, metavar=arguments)(call)

    return decorate


def _typed(value: Any) -> Any:
    if isinstance(value, tuple):
        return [EnvText(text) for text in value]
    return EnvText(value) if isinstance(value, str) else value


def _stated(kind: type[Table], arguments: Sequence[str], sets: Sequence[str]) -> dict[str, Any]:
    """The keys of the file, of `--set`, and the candidates. Raises UsageError."""
    paths = [text for text in arguments if text.endswith(".toml")]
    others = [text for text in arguments if text not in paths]
    if len(paths) > 1 or (others and "candidates" not in kind.model_fields):
        raise UsageError(f"expected one FILE whose name ends in .toml, not {(paths[1:] or others)[0]!r}")
    values = (file_values(Path(paths[0]), kind) if paths else {}) | set_values(sets)
    return values | ({"candidates": others} if others else {})


def _key_option(kind: type[Table], option: str, key: str) -> Callable[..., Any]:
    """The option of a key, from its field."""
    field = kind.model_fields[key]
    names = [*_NAMES.get(key, [option]), key]
    more: dict[str, Any] = {"help": field.description}
    if isinstance(field.default, bool):
        return click.option(*names, is_flag=True, **more)
    if choices := _choices(field.annotation):
        more["type"] = click.Choice(choices)
    if names_of := {"gpu": "gpus", "against": "gpus", "card": "gpus", "provider": "providers"}.get(key):
        more["shell_complete"] = completes(names_of)
    if field.default not in (None, ()):
        more["show_default"] = str(field.default)
    return click.option(*names, default=None, multiple=field.default == (), **more)


def _choices(annotation: Any) -> list[str]:
    """The texts that a field allows; empty: any."""
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return [str(one) for one in annotation]
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [text for part in get_args(annotation) for text in _choices(part)]


def _print_keys(kind: type[Table]) -> Callable[[click.Context, click.Parameter, bool], None]:
    def show(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if not value or ctx.resilient_parsing:
            return
        for key in _keys_of(kind):
            field = kind.model_fields[key]
            stated, default = field.description or "", field.default
            if default not in (None, (), False) and "Default:" not in stated:
                text = "-".join(map(str, default)) if isinstance(default, tuple) else str(default)
                text = text.lower() if isinstance(default, bool) else text
                stated += f" Default: {text}."
            echo(f"{key:<22} {stated}")
        ctx.exit()

    return show


def by_option(command: Command) -> Command:
    """`--by WHEN`; arrives as `by: str | None`."""
    return click.option("--by", default=None, metavar="WHEN", help='Deadline: "Sunday", a date, a time, "2d".')(command)


def deadline(by: str, settings: Settings) -> datetime:
    """The time that `--by` states. Raises UsageError."""
    try:
        return deadline_from(by, real_now(), ZoneInfo(settings.timezone))
    except ValueError as error:
        raise UsageError(f"--by {error}") from None


def within(deadline: datetime) -> EnvText:
    """The time until then, as a key states it."""
    return EnvText(f"{round((deadline - real_now()).total_seconds())}s")


def note_model(request: ModelKeys) -> None:
    """Print what is not understood of a model's own config.json, and its quantisation."""
    if (work := request.workload()) is not None:
        for line in (*work.model.remarks, *published_text(work)):
            note(clean(line, 1_000))


def watch_options(help_text: str) -> Callable[[Command], Command]:
    """Both options; they arrive as `watch: str | None` and `write: bool`."""

    def decorate(command: Command) -> Command:
        command = click.option("--write", is_flag=True, help="With --watch: add it to the settings file.")(command)
        return click.option("--watch", metavar="NAME", help=help_text)(command)

    return decorate


def refuse_watch_with(watch: str | None, *, write: bool, as_json: bool) -> None:
    """Reject conflicting options. Raises UsageError."""
    if write and watch is None:
        raise UsageError("--write requires --watch NAME")
    if watch is not None and as_json:
        raise UsageError("use either --watch, which prints TOML, or --json")


def put_watch(name: str, watch: str, config: str | None, *, write: bool) -> None:
    """Print the watch, or add it to the settings file. Raises what `add_watch` raises."""
    from gpuwatch.app.plan.plan_watch import add_watch

    if not write:
        click.echo(watch, nl=False)
        return
    path = add_watch(config, name, watch)
    click.echo(f"watch {name} added to {path}")
    note(f"test it with: gpuwatch check {name}; on past prices: gpuwatch forecasts backtest {name}")
