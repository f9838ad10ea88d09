"""`gpuwatch checklist`: the items a watch requires before it rents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.command import Group
from gpuwatch.cli.options import completes, config_option, json_option, settings_option
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.domain.launches.checklist import KNOWN_ITEMS
from gpuwatch.domain.market.text import clean
from gpuwatch.domain.watches.watch import Action, ChecklistPolicy
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.app.checklist import ChecklistStatus
    from gpuwatch.settings import Settings

_INDENT = "      "


class DefaultShowGroup(Group):
    """Makes `gpuwatch checklist WATCH` equal to `gpuwatch checklist show WATCH`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            return "show", show, args
        return super().resolve_command(ctx, args)


@click.group(
    cls=DefaultShowGroup,
    invoke_without_command=True,
    subcommand_metavar="[WATCH | COMMAND [ARGS]...]",
    examples=("gpuwatch checklist", "gpuwatch checklist tick h100-night dry_epoch --note 'run 17'"),
)
@json_option
@config_option
@click.pass_context
def checklist(ctx: click.Context, as_json: bool, config: str | None) -> None:
    """Show the items that a watch requires before it rents (`require`), and which of them are ticked.

    By default (require_policy = "block"), a watch does not rent until every item is ticked. With "warn" it rents, and
    its alert names the missing items.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show, as_json=as_json, config=config)


@checklist.command(examples=("gpuwatch checklist show h100-night",))
@click.argument("watch", required=False, shell_complete=completes("checklists"))
@json_option
@settings_option
def show(watch: str | None, as_json: bool, settings: Settings) -> None:
    """Show the checklist of one WATCH, or of all."""
    from gpuwatch.app.checklist import checklist_statuses

    found = checklist_statuses(settings, watch)
    _print(found, as_json, settings.timezone)
    if not as_json and not any(one.required for one in found):
        _print_known()


@checklist.command(examples=("gpuwatch checklist tick h100-night dry_epoch loss_falls",))
@click.argument("watch", shell_complete=completes("checklists"))
@click.argument("items", metavar="ITEM...", nargs=-1, required=True)
@click.option("--note", default="", help="Note for your own records, such as a link to the run.")
@json_option
@settings_option
def tick(watch: str, items: tuple[str, ...], note: str, as_json: bool, settings: Settings) -> None:
    """Tick ITEMs of WATCH as done. They stay ticked until you untick them."""
    from gpuwatch.app.checklist import tick as keep

    _print([keep(settings, watch, items, note)], as_json, settings.timezone)


@checklist.command(
    examples=("gpuwatch checklist untick h100-night dry_epoch", "gpuwatch checklist untick h100-night --all")
)
@click.argument("watch", shell_complete=completes("checklists"))
@click.argument("items", metavar="ITEM...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Untick every item, as for a new job.")
@json_option
@settings_option
def untick(watch: str, items: tuple[str, ...], everything: bool, as_json: bool, settings: Settings) -> None:
    """Untick ITEMs of WATCH, so that they block its next launch. Running instances continue."""
    from gpuwatch.app.checklist import untick as forget

    if bool(items) == everything:
        raise UsageError("name the items, or use --all")
    undone, left = forget(settings, watch, items)
    if not undone:
        note("none of them was ticked")
    _print([left], as_json, settings.timezone)


def _print(found: Sequence[ChecklistStatus], as_json: bool, timezone: str) -> None:
    from gpuwatch.app.checklist import checklist_json

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

    done = one.tick_of(item)
    if done is not None:
        words = f": {_clean(done.words)}" if done.words else ""
        click.echo(f"  [x] {_clean(item)}  {local(done.at, timezone)}{words}")
        return
    click.echo(f"  [ ] {_clean(item)}" + (" (measured by the pilot)" if item in one.pilot else ""))
    if item in KNOWN_ITEMS:
        click.echo(_wrapped(KNOWN_ITEMS[item]))


def _summary(one: ChecklistStatus) -> str:

    if not one.required:
        return 'requires nothing; list items in its settings, such as require = ["dry_epoch", "loss_falls"]'
    done = len(one.required) - len(one.missing)
    counted = f"{done} of {len(one.required)} done"
    if not one.missing:
        return counted
    if not one.holding:
        return f"{counted}; it rents, and its pilot measures the rest: if an item fails, it stops and asks for approval"
    if one.watch.action is Action.ALERT:
        return f'{counted}; its alerts name the missing items (action = "alert")'
    if one.watch.require_policy is ChecklistPolicy.WARN:
        return f'{counted}; it rents anyway, and its alert names the missing items (require_policy = "warn")'
    return f'{counted}; it does not rent until the rest is ticked (require_policy = "block")'


def _print_known() -> None:

    click.echo("Known items (any other text defines a custom item):")
    for item, text in KNOWN_ITEMS.items():
        click.echo(f"  {item}\n{_wrapped(text)}")


def _wrapped(text: str) -> str:
    return click.wrap_text(text, width=100, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _clean(text: str) -> str:

    return clean(text, 500)
