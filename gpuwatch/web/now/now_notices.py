"""What else needs the owner on Now, in one line and one link each: machines, providers, budgets, watches, jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from markupsafe import Markup

from gpuwatch import notifiers
from gpuwatch.app.alerts.needs import APPROVAL, HELD, IDLE
from gpuwatch.app.reader_text import clock_text, with_unit
from gpuwatch.app.watches.nearest import provider_title
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.market.offer import clean
from gpuwatch.language import translate as _
from gpuwatch.web.launches.machine_text import machine_name

if TYPE_CHECKING:
    from datetime import datetime

    from gpuwatch.app.alerts.needs import NeedView
    from gpuwatch.app.launches.running_machines import RunningMachine
    from gpuwatch.app.market.provider_status import ProviderStatus
    from gpuwatch.domain.launches.launch import Launch
    from gpuwatch.domain.launches.money.month_forecast import BudgetUse

_BUDGET_FROM, _BUDGET_FULL = 80.0, 95.0  # percent, as the colours of a meter


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """One line. `about`: what the link says to a screen reader after its word."""

    icon: str
    tone: str
    text: str | Markup
    path: str
    word: str
    about: str


def notices(
    needs: Sequence[NeedView],
    machines: Sequence[RunningMachine],
    silent: Sequence[tuple[ProviderStatus, datetime | None]],
    budgets: Sequence[BudgetUse],
) -> list[Notice]:
    """All lines, in the order of their urgency."""
    launches = {one.launch.launch_id: one.launch for one in machines}
    of_kind = [need for need in needs if need.kind not in {APPROVAL, HELD, IDLE}]
    unknown = [need for need in of_kind if need.kind == "unknown_instance"]
    return [
        *(_held(launches[need.subject]) for need in needs if need.kind == HELD and need.subject in launches),
        *(_idle(one, one.idle_since) for one in machines if one.idle_since is not None),
        *(_silent(status, since) for status, since in silent),
        *_budgets(budgets),
        *map(_of_need, unknown),
        *map(_of_need, (need for need in of_kind if need not in unknown)),
    ]


def _held(launch: Launch) -> Notice:
    text = _("{machine} needs your check: does it exist at {provider}?")
    name = machine_name(launch)
    return Notice(
        icon="st-held",
        tone="bad",
        text=text.format(machine=name, provider=provider_title(launch.provider)),
        path=f"/launches/{launch.launch_id}",
        word=_("Check"),
        about=name,
    )


def _idle(machine: RunningMachine, since: datetime) -> Notice:
    name = machine_name(machine.launch)
    percent = with_unit(f"{machine.used_percent or 0:.0f} %")
    if machine.idle_ends_at is None:
        text = _("{machine} uses {percent} of its GPU since {time}.").format(
            machine=name, percent=percent, time=clock_text(since)
        )
    else:
        text = _("{machine} uses {percent} of its GPU; it ends at {time} if that stays so.").format(
            machine=name, percent=percent, time=clock_text(machine.idle_ends_at)
        )
    return Notice(
        icon="warn", tone="warn", text=text, path=f"/launches/{machine.launch.launch_id}", word=_("Look"), about=name
    )


def _silent(status: ProviderStatus, since: datetime | None) -> Notice:
    title = status.info.title
    if status.status == "extra missing":
        text = _("{provider} is not polled: a part of gpuwatch that it needs is not installed.")
    elif status.status == "empty":
        text = _("{provider} answers without offers since {time}, so watches do not see it.")
    else:
        text = _("{provider} has not answered since {time}, so watches do not see it.")
    return Notice(
        icon="st-nodata",
        tone="warn",
        text=text.format(provider=title, time=clock_text(since)),
        path="/alerts?kind=blind",
        word=_("Details"),
        about=title,
    )


def _budgets(budgets: Sequence[BudgetUse]) -> Iterator[Notice]:
    for use in budgets:
        share = use.percent(use.used)
        if share is None or share < _BUDGET_FROM:
            continue
        name = budget_title(use)
        text = _("{budget}: {used} of {limit} used.").format(
            budget=name, used=dollars(usd(use.used)), limit=dollars(usd(use.limit))
        )
        is_full = share >= _BUDGET_FULL
        yield Notice(
            icon="st-held" if is_full else "warn",
            tone="bad" if is_full else "warn",
            text=text,
            path="/costs",
            word=_("Costs"),
            about=name,
        )


def budget_title(use: BudgetUse) -> str:
    """ "Daily budget"; of a watch: "Daily budget of h100"."""
    names = {
        "max_usd_hour": _("Hourly budget"),
        "max_usd_day": _("Daily budget"),
        "max_usd_month": _("Monthly budget"),
    }
    name = names[use.limit_name]
    return name if use.watch is None else _("{budget} of {watch}").format(budget=name, watch=use.watch)


def _of_need(need: NeedView) -> Notice:
    text, path, word, about = _words(need)
    is_bad = need.kind in {"unknown_instance", "rescue"}
    tone = "bad" if is_bad else "warn"
    return Notice(icon="st-held" if is_bad else "warn", tone=tone, text=text, path=path, word=word, about=about)


def _words(need: NeedView) -> tuple[str, str, str, str]:
    """Return the text, and the path, word and object of its link."""
    why = clean(need.reason or "", 200)
    if need.kind == "unknown_instance":
        text = _("A machine at {provider} has gpuwatch's label and belongs to no launch.")
        return text.format(provider=provider_title(need.reason or "")), "/launches", _("Look"), need.subject
    if need.kind == "rescue":
        return _("gpuwatch is in rescue mode and rents nothing: {why}.").format(why=why), "/settings", _("Settings"), ""
    if need.kind == "breaker":
        text = _("{watch} stopped renting, because several launches failed: {why}.")
        return text.format(watch=need.subject, why=why), _watch_path(need), _("Look"), need.subject
    if need.kind == "job":
        text = _("Job {job} needs you: {why}.").format(job=need.subject, why=why)
        return text, "/jobs", _("Jobs"), need.subject
    if need.kind == "undelivered":
        title = notifiers.info(need.subject).title if need.subject in notifiers.names() else need.subject
        text = _("Alerts do not arrive on {channel}: {why}.") if why else _("Alerts do not arrive on {channel}.")
        return text.format(channel=title, why=why), "/alerts", _("Alerts"), title
    text = _("{watch} matches and cannot act: {why}.").format(watch=need.subject, why=why)
    return text, _watch_path(need), _("Look"), need.subject


def _watch_path(need: NeedView) -> str:
    return f"/watches/{quote(need.subject, safe='')}"
