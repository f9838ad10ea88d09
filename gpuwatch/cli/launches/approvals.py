"""`gpuwatch approvals`: the quotes of watches with `action = "ask"`, and the owner's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.bootstrap import real_now
from gpuwatch.cli import Exit
from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.market.offers import gpu_text
from gpuwatch.cli.options import completes, json_option, settings_option
from gpuwatch.cli.output import json_out
from gpuwatch.cli.terminal_tables import left, print_list, right, text
from gpuwatch.domain.market.money import dollars, per_hour
from gpuwatch.domain.market.offer import clean, place_text

if TYPE_CHECKING:
    from gpuwatch.engine.launches.renting.owner_decisions import ApprovalReply
    from gpuwatch.settings import Settings


EXIT_OF_OUTCOME = {"refused": Exit.FAILED, "no_answer": Exit.CANNOT_TELL}  # of an `ApprovalOutcome`; else done
_COLUMNS = (
    left("ask", "ask_id"),
    left("watch", "watch", drop=2),
    left("state", "state"),
    left("GPU", lambda ask: gpu_text(ask.offer)),
    right("price", lambda ask: per_hour(ask.offer.price_usd_hour, least=3, most=3)),
    right("at most", lambda ask: "–" if ask.most_usd is None else dollars(ask.most_usd), drop=1),
    left("machine", lambda ask: ask.offer.machine_id, drop=4),
    left("place", lambda ask: place_text(ask.offer.region, ask.offer.country), drop=5),
    left("open until", "deadline"),
    text("words", "words", drop=3),
)


@click.command(cls=Command, examples=("gpuwatch approvals list",))
@json_option
@settings_option
def asks(as_json: bool, settings: Settings) -> None:
    """List the quotes that await your approval, and those of the last week."""
    from gpuwatch.app.launches.approval_details import approval_detail_views
    from gpuwatch.app.launches.approvals import recent_approvals

    approvals = approval_detail_views(settings, recent_approvals(settings), real_now())
    print_list(approvals, _COLUMNS, "no quotes in the last week", as_json=as_json, timezone=settings.timezone)


@click.command(cls=Command, examples=("gpuwatch approvals approve uoyauilxpk2f",))
@click.argument("ask_id", shell_complete=completes("approvals"))
@json_option
@settings_option
def approve(ask_id: str, as_json: bool, settings: Settings) -> int:
    """Approve a quote: rent at its price or less, or not at all.

    Exit codes: 0 rented, 1 refused (nothing was rented), 2 no such quote, or the settings forbid it, 3 the
    provider did not answer.
    """
    from gpuwatch.app.launches.approvals import approve as rent

    return _print_reply(rent(settings, ask_id, actor=command_actor()).reply, as_json)


@click.command(cls=Command, examples=("gpuwatch approvals deny uoyauilxpk2f --why 'too far away'",))
@click.argument("ask_id", shell_complete=completes("approvals"))
@click.option("--why", default="", help="Reason, for your own records.")
@json_option
@settings_option
def deny(ask_id: str, why: str, as_json: bool, settings: Settings) -> int:
    """Decline a quote. Its watch does not offer it again for 24 hours."""
    from gpuwatch.app.launches.approvals import deny as refuse

    return _print_reply(refuse(settings, ask_id, why, actor=command_actor()).reply, as_json)


def _print_reply(reply: ApprovalReply, as_json: bool) -> Exit:
    code = EXIT_OF_OUTCOME.get(reply.outcome, Exit.DONE)
    if as_json:
        from gpuwatch.app.launches.approvals import reply_view

        json_out(reply_view(reply))
        return code

    click.echo(clean(reply.text, 1000), err=code is not Exit.DONE)
    return code
