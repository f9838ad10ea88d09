"""`gpuwatch plan card`: a card's specification with its sources, and what it is good for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.app.plan.plan_card import UNKNOWN, card_sheets, plan_card_json
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command
from gpuwatch.cli.options import completes, json_option
from gpuwatch.cli.output import echo, json_out, note
from gpuwatch.cli.terminal_tables import left, right, table, text

if TYPE_CHECKING:
    from gpuwatch.app.plan.plan_card import CardSheet

_FIGURES = (left("figure"), left("value"), text("source", drop=1))
_LARGEST = (left("largest model, 4,096 tokens"), right("one card"), right("eight cards"))


@click.command(cls=Command, examples=('gpuwatch plan card "H100 SXM"', "gpuwatch plan card 4090 --json"))
@click.argument("name", metavar="GPU", shell_complete=completes("gpus"))
@json_option
def card(name: str, as_json: bool) -> int:
    """Print a card's specification with its sources, and what it is good for."""
    sheets = card_sheets(name)
    if as_json:
        json_out(plan_card_json(sheets))
        return Exit.DONE
    for at, sheet in enumerate(sheets):
        if at:
            echo("")
        _print(sheet)
    note(f"{UNKNOWN}: no source states it. Offers: gpuwatch offers --gpu {name!r}")
    return Exit.DONE


def _print(sheet: CardSheet) -> None:
    table(_FIGURES, [(one.label, one.text, one.source or "–") for one in sheet.figures], title=sheet.title)
    echo("")
    echo("Good for")
    for line in sheet.uses:
        echo(f"- {line}")
    echo("")
    table(_LARGEST, [(work, _size(one), _size(eight)) for work, (one, eight) in sheet.largest.items()])
    if sheet.note:
        echo(f"Note: {sheet.note}")


def _size(billions: int | None) -> str:
    return "none" if billions is None else f"{billions}B"
