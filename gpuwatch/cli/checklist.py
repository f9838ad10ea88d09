"""`gpuwatch checklist`: what must be done before a watch rents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.command import Group
from gpuwatch.cli.options import completes, config_option, json_option
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.app.checklist import ChecklistStatus

_INDENT = "      "


class ShowsByDefault(Group):
    """`gpuwatch checklist WATCH` is `gpuwatch checklist show WATCH`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            return "show", show, args
        return super().resolve_command(ctx, args)


@click.group(
    cls=ShowsByDefault,
    invoke_without_command=True,
    subcommand_metavar="[WATCH | COMMAND [ARGS]...]",
    examples=(
        "gpuwatch checklist",
        "gpuwatch checklist tick h100-night dry_epoch --note 'run 17'",
    ),
)
@json_option
@config_option
@click.pass_context
def checklist(ctx: click.Context, as_json: bool, config: str | None) -> int:
    """Show what must be done before a watch rents: the items of `require`, and which of them are ticked.

    A watch rents nothing until every item is ticked (require_policy = "block", the default). With "warn" it rents, and
    its alert names the missing items.
    """
    ctx.find_root().obj = config
    ctx.obj = as_json
    return Exit.DONE if ctx.invoked_subcommand is not None else _show(None, as_json, config)


@checklist.command(examples=("gpuwatch checklist show h100-night",))
@click.argument("watch", required=False, shell_complete=completes("watches"))
@json_option
@config_option
@click.pass_context
def show(ctx: click.Context, watch: str | None, as_json: bool, config: str | None) -> int:
    """Show the checklist of one WATCH, or of all."""
    return _show(watch, as_json or bool(ctx.obj), config)


@checklist.command(examples=("gpuwatch checklist tick h100-night dry_epoch loss_falls",))
@click.argument("watch", shell_complete=completes("watches"))
@click.argument("items", metavar="ITEM...", nargs=-1, required=True)
@click.option("--note", default="", help="Note for your own record, such as a link to the run.")
@json_option
@config_option
@click.pass_context
def tick(ctx: click.Context, watch: str, items: tuple[str, ...], note: str, as_json: bool, config: str | None) -> int:
    """Tick ITEMs of WATCH as done. They stay ticked until you untick them."""
    from gpuwatch.app.checklist import tick as keep
    from gpuwatch.bootstrap.settings_loading import load_settings

    loaded = load_settings(config)
    _print([keep(loaded, watch, items, note)], as_json or bool(ctx.obj), loaded.timezone)
    return Exit.DONE


@checklist.command(
    examples=(
        "gpuwatch checklist untick h100-night dry_epoch",
        "gpuwatch checklist untick h100-night --all",
    )
)
@click.argument("watch", shell_complete=completes("watches"))
@click.argument("items", metavar="ITEM...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Untick all of them, as for a new job.")
@json_option
@config_option
@click.pass_context
def untick(
    ctx: click.Context, watch: str, items: tuple[str, ...], everything: bool, as_json: bool, config: str | None
) -> int:
    """Untick ITEMs of WATCH: they must be done again before it next rents. Running instances continue."""
    from gpuwatch.app.checklist import untick as forget
    from gpuwatch.bootstrap.settings_loading import load_settings
    from gpuwatch.cli.output import note

    if bool(items) == everything:
        raise UsageError("name the items, or use --all")
    loaded = load_settings(config)
    undone, left = forget(loaded, watch, items)
    if not undone:
        note("none of them was ticked")
    _print([left], as_json or bool(ctx.obj), loaded.timezone)
    return Exit.DONE


def _show(watch: str | None, as_json: bool, config: str | None) -> Exit:
    from gpuwatch.app.checklist import checklist_statuses
    from gpuwatch.bootstrap.settings_loading import load_settings

    loaded = load_settings(config)
    found = checklist_statuses(loaded, watch)
    _print(found, as_json, loaded.timezone)
    if not as_json and not any(one.required for one in found):
        _print_known()
    return Exit.DONE


def _print(found: Sequence[ChecklistStatus], as_json: bool, timezone: str) -> None:
    from gpuwatch.app.checklist import checklist_json
    from gpuwatch.cli.output import json_out

    if as_json:
        json_out([checklist_json(one) for one in found])
        return
    for one in found:
        _print_standing(one, timezone)


def _print_standing(one: ChecklistStatus, timezone: str) -> None:
    click.echo(f"{one.watch.name}: {_summary(one)}")
    for item in one.required:
        _print_item(one, item, timezone)
    for tick_ in one.ticks:
        if tick_.item not in one.required:
            click.echo(f"  [x] {_clean(tick_.item)} (no longer required)")


def _print_item(one: ChecklistStatus, item: str, timezone: str) -> None:
    from gpuwatch.cli.output import local
    from gpuwatch.domain.launches.checklist import KNOWN_ITEMS

    done = one.tick_of(item)
    if done is not None:
        words = f": {_clean(done.words)}" if done.words else ""
        click.echo(f"  [x] {_clean(item)}  {local(done.at, timezone)}{words}")
        return
    click.echo(f"  [ ] {_clean(item)}")
    if item in KNOWN_ITEMS:
        click.echo(_wrapped(KNOWN_ITEMS[item]))


def _summary(one: ChecklistStatus) -> str:
    from gpuwatch.domain.watches.watch import Action, ChecklistPolicy

    if not one.required:
        return 'requires nothing; name items in its settings, such as require = ["dry_epoch", "loss_falls"]'
    done = len(one.required) - len(one.missing)
    counted = f"{done} of {len(one.required)} done"
    if not one.missing:
        return counted
    if one.watch.action is Action.ALERT:
        return f'{counted}; its alerts remind you of the rest (action = "alert")'
    if one.watch.require_policy is ChecklistPolicy.WARN:
        return f'{counted}; it rents anyway, and its alert says so (require_policy = "warn")'
    return f'{counted}; it rents nothing until the rest is ticked (require_policy = "block")'


def _print_known() -> None:
    from gpuwatch.domain.launches.checklist import KNOWN_ITEMS

    click.echo("Known items; any other text is an item of your own:")
    for item, text in KNOWN_ITEMS.items():
        click.echo(f"  {item}\n{_wrapped(text)}")


def _wrapped(text: str) -> str:
    return click.wrap_text(text, width=100, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _clean(text: str) -> str:
    from gpuwatch.domain.market.text import clean

    return clean(text, 500)
