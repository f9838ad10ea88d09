"""`gpuwatch share`: a link for people without a login, to a chart, to the feed of alerts or to the calendar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import Command, command_actor
from gpuwatch.cli.options import duration_option, json_option, settings_option
from gpuwatch.cli.output import displayable, json_out, local
from gpuwatch.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.settings import Settings

_REVOKE = "revoke"
_THINGS = ("gpu", "watch", "alerts", "calendar", _REVOKE)
_NAMED = frozenset({"gpu", "watch"})


@click.command(
    cls=Command,
    examples=(
        "gpuwatch share gpu H100 --for 7d",
        "gpuwatch share watch h100-night --for 1d",
        "gpuwatch share alerts --for 365d",
        "gpuwatch share revoke",
    ),
)
@click.argument("what", type=click.Choice(_THINGS))
@click.argument("name", required=False)
@duration_option("--for", "for_s", "How long the link is valid, at most 366d.", default="7d")
@json_option
@settings_option
def share(what: str, name: str | None, for_s: float, as_json: bool, settings: Settings) -> None:
    """Make a link that shows one chart, the feed of alerts or the calendar without a login, until it ends.

    `gpu` and `watch` take a NAME: their link shows the chart of 7 days, and nothing else. `revoke` ends every link.
    """
    from gpuwatch.app.setup.sharing.share_links import SharedThing, make_link, revoke_links
    from gpuwatch.bootstrap import real_now

    if (what in _NAMED) != (name is not None):
        raise UsageError(f"gpuwatch share {what}: " + ("expected a NAME" if what in _NAMED else "it takes no NAME"))
    if what == _REVOKE:
        revoke_links(settings, real_now(), actor=command_actor())
        if as_json:
            json_out({"revoked": True})
        else:
            click.echo("every shared link has ended")
        return
    link = make_link(settings, SharedThing(what), name or "", for_s, real_now(), actor=command_actor())
    if as_json:
        json_out(link.json())
        return
    click.echo(displayable(link.url))
    if link.picture_url is not None:
        click.echo(f"picture: {displayable(link.picture_url)}")
    click.echo(f"valid until {local(link.until, settings.timezone)}")
    if not settings.web.public_url:
        click.echo("only this machine can open it: set web.public_url", err=True)
