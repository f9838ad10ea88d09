"""The page that makes links for people without a login: to a chart, to the feed of alerts, to the calendar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from markupsafe import Markup

from gpuwatch.app.setup.sharing.share_links import SharedThing, make_link, revoke_links
from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.errors import UsageError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.web.page import Confirm, FormAction, Page, Redirect, Rerender, View, is_confirmed

_DAYS = {"1": 1, "7": 7, "30": 30}
_FEED_DAYS = {"30": 30, "365": 365}  # a reader asks for months


class _Wording(NamedTuple):
    """What the page says about one thing to share, and the page that it comes from."""

    heading: str
    answer: str
    source: str
    source_name: str


def _wording(thing: SharedThing, name: str) -> _Wording:
    chart = _("Whoever has the link sees the chart of 7 days until it ends, without a login, and nothing else.")
    path = quote(name, safe="")
    if thing is SharedThing.GPU:
        return _Wording(_("Share the chart of {name}").format(name=name), chart, f"/gpu/{path}", name)
    if thing is SharedThing.WATCH:
        chart += " " + _("It shows the name of the watch and your limit.")
        return _Wording(_("Share the chart of {name}").format(name=name), chart, f"/watches/{path}", name)
    if thing is SharedThing.ALERTS:
        answer = _("A feed reader cannot log in: whoever has this address reads your alerts until it ends.")
        return _Wording(_("Alerts as a feed"), answer, "/alerts", _("Alerts"))
    answer = _("Your calendar shows when machines end, watches may act and jobs are due; the address needs no login.")
    return _Wording(_("Ends and windows as a calendar"), answer, "/launches", _("Launches"))


def _show(view: View) -> Mapping[str, Any]:
    thing, name = _asked(view.query)
    return {
        "thing": thing.value,
        "name": name,
        "days": _choices(thing),
        "is_public": bool(view.settings.web.public_url),
        "link": None,
        **_wording(thing, name)._asdict(),
    }


def _share(view: View) -> Rerender:
    thing, name = _asked(view.query)  # the form posts to the address that it was opened with
    days = (_DAYS if thing.is_chart else _FEED_DAYS).get(view.form.get("days", ""))
    if days is None:
        raise UsageError(_("Choose how long the link is valid."))
    link = make_link(view.settings, thing, name, days * DAY_S, view.now, actor=view.actor)
    embed = Markup('<img src="{}" alt="{}" width="600">').format(
        link.picture_url, _("Price of {name}").format(name=name)
    )
    return Rerender(values={"link": link, "embed": str(embed)})


def _revoke(view: View) -> Confirm | Redirect:
    back = "/alerts"
    if not is_confirmed(view):
        return Confirm(
            question=_("End every link that was shared?"),
            button=_("End them all"),
            back=back,
            facts=((_("Ends"), _("shared charts, pictures in other pages, feeds and calendars")),),
        )
    revoke_links(view.settings, view.now, actor=view.actor)
    return Redirect(text=_("Every shared link has ended. New ones can be made."), to=back)


def _choices(thing: SharedThing) -> list[tuple[str, str]]:
    days = (_DAYS if thing.is_chart else _FEED_DAYS).items()
    return [(key, translate_plural("{count} day", "{count} days", count).format(count=count)) for key, count in days]


def _asked(values: Mapping[str, str]) -> tuple[SharedThing, str]:
    """What to share. Raises UsageError: nothing that can be shared."""
    for thing in SharedThing:
        if thing.value in values:
            return thing, values[thing.value][:200] if thing.is_chart else ""
    raise UsageError(_("Choose a GPU or a watch to share, from its page."))


SHARE_PAGE = Page(
    name="Share",
    path="/share",
    template="share.html",
    show=_show,
    order=71,
    actions=(
        FormAction(path="/share", scope="manage", run=_share),
        FormAction(path="/share/revoke", scope="manage", run=_revoke),
    ),
)
