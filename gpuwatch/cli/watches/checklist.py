"""`gpuwatch watches checklist`: what a watch requires before it rents, and `handover`: its offer as a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, Group, command_actor
from gpuwatch.cli.options import completes, config_option, json_option, provider_option, settings_option
from gpuwatch.cli.output import json_out, local, note
from gpuwatch.domain.launches.life.owner_decisions import KNOWN_ITEMS
from gpuwatch.domain.market.offer import clean
from gpuwatch.domain.watches.watch import Action, ChecklistPolicy
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.app.watches.checklist import ChecklistStatus
    from gpuwatch.settings import Settings


_INDENT = "      "


class DefaultShowGroup(Group):
    """Makes `gpuwatch watches checklist WATCH` equal to `gpuwatch watches checklist show WATCH`."""

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
    examples=("gpuwatch watches checklist", "gpuwatch watches checklist tick h100-night dry_epoch --note 'run 17'"),
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


@checklist.command(examples=("gpuwatch watches checklist show h100-night",))
@click.argument("watch", required=False, shell_complete=completes("checklists"))
@json_option
@settings_option
def show(watch: str | None, as_json: bool, settings: Settings) -> None:
    """Show the checklist of one WATCH, or of all."""
    from gpuwatch.app.watches.checklist import checklist_statuses

    statuses = checklist_statuses(settings, watch)
    _print(statuses, as_json, settings.timezone)
    if not as_json and not any(status.required for status in statuses):
        _print_known()


@checklist.command(examples=("gpuwatch watches checklist tick h100-night dry_epoch loss_falls",))
@click.argument("watch", shell_complete=completes("checklists"))
@click.argument("items", metavar="ITEM...", nargs=-1, required=True)
@click.option("--note", default="", help="Note for your own records, such as a link to the run.")
@json_option
@settings_option
def tick(watch: str, items: tuple[str, ...], note: str, as_json: bool, settings: Settings) -> None:
    """Tick ITEMs of WATCH as done. They stay ticked until you untick them."""
    from gpuwatch.app.watches.checklist import tick as keep

    _print([keep(settings, watch, items, note, actor=command_actor())], as_json, settings.timezone)


@checklist.command(
    examples=(
        "gpuwatch watches checklist untick h100-night dry_epoch",
        "gpuwatch watches checklist untick h100-night --all",
    )
)
@click.argument("watch", shell_complete=completes("checklists"))
@click.argument("items", metavar="ITEM...", nargs=-1)
@click.option("--all", "all_items", is_flag=True, help="Untick every item, as for a new job.")
@json_option
@settings_option
def untick(watch: str, items: tuple[str, ...], all_items: bool, as_json: bool, settings: Settings) -> None:
    """Untick ITEMs of WATCH, so that they block its next launch. Running instances continue."""
    from gpuwatch.app.watches.checklist import untick as untick_items

    if bool(items) == all_items:
        raise UsageError("name the items, or use --all")
    unticked_items, left = untick_items(settings, watch, items, actor=command_actor())
    if not unticked_items:
        note("none of them was ticked")
    _print([left], as_json, settings.timezone)


def _print(statuses: Sequence[ChecklistStatus], as_json: bool, timezone: str) -> None:
    from gpuwatch.app.watches.checklist import checklist_json

    if as_json:
        json_out([checklist_json(status) for status in statuses])
        return
    for checklist in statuses:
        _print_standing(checklist, timezone)


def _print_standing(status: ChecklistStatus, timezone: str) -> None:
    click.echo(f"{status.watch.name}: {_summary(status)}")
    for item in status.required:
        _print_item(status, item, timezone)
    for tick_ in status.ticks:
        if tick_.item not in status.required:
            click.echo(f"  [x] {_clean(tick_.item)} (no longer required)")


def _print_item(status: ChecklistStatus, item: str, timezone: str) -> None:

    tick_ = status.tick_of(item)
    if tick_ is not None:
        words = f": {_clean(tick_.words)}" if tick_.words else ""
        click.echo(f"  [x] {_clean(item)}  {local(tick_.at, timezone)}{words}")
        return
    click.echo(f"  [ ] {_clean(item)}" + (" (measured by the pilot)" if item in status.pilot else ""))
    if item in KNOWN_ITEMS:
        click.echo(_wrap_text(KNOWN_ITEMS[item]))


def _summary(status: ChecklistStatus) -> str:

    if not status.required:
        return 'requires nothing; list items in its settings, such as require = ["dry_epoch", "loss_falls"]'
    ticked = len(status.required) - len(status.missing)
    counted = f"{ticked} of {len(status.required)} done"
    if not status.missing:
        return counted
    if not status.blocking:
        return f"{counted}; it rents, and its pilot measures the rest: if an item fails, it stops and asks for approval"
    if status.watch.action is Action.ALERT:
        return f'{counted}; its alerts name the missing items (action = "alert")'
    if status.watch.require_policy is ChecklistPolicy.WARN:
        return f'{counted}; it rents anyway, and its alert names the missing items (require_policy = "warn")'
    return f'{counted}; it does not rent until the rest is ticked (require_policy = "block")'


def _print_known() -> None:

    click.echo("Known items (any other text defines a custom item):")
    for item, text in KNOWN_ITEMS.items():
        click.echo(f"  {item}\n{_wrap_text(text)}")


def _wrap_text(text: str) -> str:
    return click.wrap_text(text, width=100, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _clean(text: str) -> str:

    return clean(text, 500)


@click.command(
    cls=Command,
    examples=(
        "gpuwatch watches handover h100 --to skypilot --run 'python train.py' > task.yaml && sky launch task.yaml",
        "gpuwatch watches handover h100 --to dstack > h100.dstack.yml && dstack apply -f h100.dstack.yml",
    ),
)
@click.argument("watch", shell_complete=completes("watches"))
@click.option("--to", "tool", type=click.Choice(("skypilot", "dstack")), required=True, help="The orchestrator.")
@click.option("--run", "command", default="nvidia-smi", show_default=True, help="Command to run on the machine.")
@provider_option("Poll only this provider; may be repeated.", multiple=True)
@json_option
@settings_option
def handover(watch: str, tool: str, command: str, provider: tuple[str, ...], as_json: bool, settings: Settings) -> int:
    """Print the cheapest offer of a watch as a SkyPilot or dstack task, with its region, type and price cap.

    Rents and stores nothing. gpuwatch's budgets, limits and guard do not apply to what the orchestrator rents.

    Exit codes: 0 printed, 1 nothing matched, 2 usage or settings are wrong, 3 cannot tell.
    """
    from gpuwatch.app.watches.handover import handover as build_handover
    from gpuwatch.app.watches.handover import handover_json
    from gpuwatch.domain.watches.orchestrator_task import as_yaml

    result = build_handover(settings, watch, tool, command, provider)
    if as_json:
        json_out(handover_json(result))
    elif result.task is not None:
        click.echo(as_yaml(result.task), nl=False)
    for name in result.skipped:
        note(f"{name} has a matching offer, but {tool} does not support that provider")
    if result.task is not None:
        return Exit.DONE
    note(f"no offer within the limit of watch {watch!r} that {tool} could rent")
    return Exit.FAILED if result.complete else Exit.CANNOT_TELL
