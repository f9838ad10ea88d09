"""The pages of rented machines: all, and one with its cost, use and timeline; stop, extend, resolve a held one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec

from gpuwatch.app.launches.budget_uses import spending_now
from gpuwatch.app.launches.extend import extend
from gpuwatch.app.launches.launches import (
    LaunchDetails,
    all_launches,
    launch_details,
    resolve_absent,
    resolve_adopted,
)
from gpuwatch.app.launches.most_cost import most_cost_microusd, upper_text
from gpuwatch.app.launches.running_machines import RunningMachine, running_machines
from gpuwatch.app.launches.stop import request_stop
from gpuwatch.app.reader_text import as_datetime, clock_text, day, percent, span, weekday
from gpuwatch.app.watches.watch_status import watch_statuses
from gpuwatch.bootstrap import open_store_read_only
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.money.bids_and_relocation import cheapest_move, launched_work
from gpuwatch.domain.launches.money.launch_costs import (
    BurnRate,
    cost_microusd,
    further_microusd_hour,
    remaining_cost,
)
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.setup.durations import HOUR_S, parse_duration
from gpuwatch.domain.watches.launch_spec import RelocateSpec
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.language import translate as _
from gpuwatch.language import translate_plural
from gpuwatch.web.launches.kept_disk_forms import KEPT_DISK_ACTIONS
from gpuwatch.web.launches.launch_answers import cheaper_text, check_line, end_words, launch_answer, launch_timeline
from gpuwatch.web.launches.launch_facts import launch_facts
from gpuwatch.web.launches.machine_text import machine_name, machines_run, provider_name
from gpuwatch.web.launches.use_chart import use_chart
from gpuwatch.web.page import Confirm, FormAction, FormResult, Page, Redirect, Rerender, View, is_confirmed

_OVER_SHOWN = 200
_HOURS = (1, 2, 4)
_LONGEST_H = 24 * 365


# --- all launches -----------------------------------------------------------------------------------------------------


class EndedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """One row of what ended."""

    launch: Launch
    cost_microusd: int
    hours: str
    reason: str


def _show_launches(view: View) -> Mapping[str, Any]:
    launches = all_launches(view.settings)
    alive = [launch for launch in launches if not launch.is_over]
    over = [launch for launch in launches if launch.is_over]
    with open_store_read_only(view.settings) as store:
        machines = running_machines(view.settings, store, alive, view.now)
    held = [machine for machine in machines if machine.launch.state is LaunchState.HELD]
    running = [machine for machine in machines if machine.launch.state is not LaunchState.HELD]
    return {
        "answer": _answer_of_all(held, running, over),
        "held": held,
        "running": running,
        "rate_now": sum(machine.rate_microusd_hour for machine in running),
        "check_line": check_line,
        "so_far": sum(machine.cost_microusd for machine in running),
        "days": _by_day(over[:_OVER_SHOWN], view.now),
        "left_out": max(0, len(over) - _OVER_SHOWN),
        "is_empty": not launches,
    }


def _answer_of_all(held: Sequence[RunningMachine], running: Sequence[RunningMachine], over: Sequence[Launch]) -> str:
    if held:
        text = translate_plural("{count} machine needs your check.", "{count} machines need your check.", len(held))
        return text.format(count=len(held))
    if running:
        rate_microusd_hour = sum(machine.rate_microusd_hour for machine in running)
        kept = sum(machine.launch.is_kept for machine in running)
        return machines_run(BurnRate(launches=len(running), effective=rate_microusd_hour, kept=kept))
    return _("No machine runs.") if over else _("Nothing was rented yet.")


def _by_day(over: Sequence[Launch], now: datetime) -> list[tuple[str, list[EndedLaunch]]]:
    def day_of(launch: Launch) -> datetime:
        at = as_datetime(launch.ended_at or launch.intended_at)
        return at.replace(hour=0, minute=0, second=0, microsecond=0)

    newest_first = sorted(over, key=lambda launch: launch.ended_at or launch.intended_at, reverse=True)
    days = groupby(newest_first, key=day_of)
    return [(f"{weekday(at)} {day(at)}", [_ended(launch, now) for launch in launches]) for at, launches in days]


def _ended(launch: Launch, now: datetime) -> EndedLaunch:
    ran_s = None
    if launch.running_at is not None and launch.ended_at is not None:
        ran_s = (launch.ended_at - launch.running_at).total_seconds()
    cost = cost_microusd(launch, now)
    return EndedLaunch(launch=launch, cost_microusd=cost, hours=span(ran_s), reason=end_words(launch.end_reason))


# --- one launch -------------------------------------------------------------------------------------------------------


def _show_launch(view: View) -> Mapping[str, Any]:
    details = launch_details(view.settings, view.path["id"], view.now)
    machine, launch = details.machine, details.launch
    return {
        "machine": machine,
        "launch": launch,
        "answer": launch_answer(machine, view.now),
        "used_s": max(0.0, ((launch.ended_at or view.now) - machine.began_at).total_seconds()),
        "chart_data": use_chart(details, view.now),
        "samples": details.utilisation,
        "use_line": _use_line(machine, details.mean_percent),
        "useful": details.useful_microusd_hour,
        "facts": launch_facts(details),
        "cheaper": _cheaper_elsewhere(view, details),
        "timeline": launch_timeline(machine, details.events, view.now),
        "may_resolve": _is_unresolved(launch),
        "check_line": check_line,
    }


def _cheaper_elsewhere(view: View, details: LaunchDetails) -> str | None:
    """Where such a machine costs less now, what moving would save, and whether it is worth it; None: nowhere."""
    launch, watch = details.launch, details.watch
    if launch.state is not LaunchState.RUNNING or launch.dry_run or watch is None:
        return None
    (status,) = watch_statuses(view.settings, [watch])
    found = cheapest_move(launch, launched_work(launch, watch.job, view.now), status.matches, view.now)
    if found is None or found.match.price.rent_microusd_hour >= launch.price_microusd_hour:
        return None
    return cheaper_text(found, watch.relocate or RelocateSpec())


def _use_line(machine: RunningMachine, mean: float | None) -> str:
    parts = []
    if machine.used_percent is not None:
        parts.append(_("{percent} now").format(percent=percent(machine.used_percent / 100)))
    if mean is not None:
        parts.append(_("{percent} on average").format(percent=percent(mean / 100)))
    return " · ".join(parts)


def _is_unresolved(launch: Launch) -> bool:
    """Whether the owner can say what became of it."""
    is_lost = launch.state in {LaunchState.HELD, LaunchState.UNKNOWN}
    return is_lost or (launch.is_by_command and launch.state is LaunchState.RUNNING)


def _page_of(launch: Launch) -> str:
    return f"/launches/{launch.launch_id}"


# --- stop -------------------------------------------------------------------------------------------------------------


def _stop(view: View) -> FormResult:
    launch = _launch(view)
    if launch.is_over:
        return Redirect(text=_("It has already ended; nothing changed."), to=_page_of(launch))
    if not is_confirmed(view):
        question = _("Stop {machine} at {provider}?").format(
            machine=machine_name(launch), provider=provider_name(launch)
        )
        return Confirm(
            question=question,
            button=_("Stop it"),
            back=_page_of(launch),
            facts=_stop_facts(launch, view.now),
            ends_something=True,
        )
    try:
        changed = request_stop(view.settings, launch.launch_id, actor=view.actor)[1]
    except UsageError as error:
        return Redirect(text=str(error), to=_page_of(launch), is_error=True)
    text = _("It is being ended; this page shows when the provider confirms it.") if changed else _("It already ends.")
    return Redirect(text=text, to=_page_of(launch))


def _stop_facts(launch: Launch, now: datetime) -> tuple[tuple[str, str], ...]:
    facts = [(_("Cost so far"), dollars(usd(cost_microusd(launch, now))))]
    ends_at = latest_end(launch)
    if ends_at is not None:
        saved = remaining_cost(launch, now, ends_at)[1]
        facts.append(
            (_("Saved"), _("{amount} until {clock}").format(amount=dollars(usd(saved)), clock=clock_text(ends_at)))
        )
    facts.append((_("Lost"), _("Everything on its disk that was not copied elsewhere.")))
    return tuple(facts)


def _launch(view: View) -> Launch:
    return launch_details(view.settings, view.path["id"], view.now).launch


# --- extend -----------------------------------------------------------------------------------------------------------


def _show_extend(view: View) -> Mapping[str, Any]:
    launch = _launch(view)
    return {
        "launch": launch,
        "home": _page_of(launch),
        "ends_at": latest_end(launch),
        "choices": [_choice(launch, hours, view.now) for hours in _HOURS],
        "budgets": _budgets_left(view),
        "each_hour": further_microusd_hour(launch),
        "chosen": view.form.get("by", "1"),
        "other": view.form.get("other", ""),
        "fault": "",
    }


def _choice(launch: Launch, hours: int, now: datetime) -> tuple[str, str, str]:
    """Return value, title and what it means."""
    runtime_s = (launch.max_runtime_s or 0.0) + hours * HOUR_S
    longer = msgspec.structs.replace(launch, max_runtime_s=runtime_s)
    most = upper_text(most_cost_microusd(longer, now) or 0)
    text = _("ends by {clock}, at most {most}").format(clock=clock_text(latest_end(longer)), most=most)
    return str(hours), _("+{hours} h").format(hours=hours), text


def _budgets_left(view: View) -> list[tuple[str, str]]:
    names = {"max_usd_hour": _("Hourly budget"), "max_usd_day": _("Daily budget"), "max_usd_month": _("Monthly budget")}
    uses = [use for use in spending_now(view.settings, view.now).budgets if use.watch is None]
    text = _("{left} of {limit} left")
    return [
        (
            names[use.limit_name],
            text.format(left=dollars(usd(max(0, use.limit - use.used))), limit=dollars(usd(use.limit))),
        )
        for use in uses
    ]


def _extend(view: View) -> FormResult:
    launch = _launch(view)
    if "by" not in view.form:
        return Rerender(values={})
    try:
        hours = chosen_hours(view.form)
    except UsageError as error:
        return Rerender(values={"fault": str(error)})
    try:
        extension = extend(view.settings, launch.launch_id, hours * HOUR_S, actor=view.actor)
    except GpuwatchError as error:
        return Redirect(text=str(error), to=_page_of(launch), is_error=True)
    text = _("It ends by {clock} now, for at most {more} more.").format(
        clock=clock_text(extension.ends_at), more=upper_text(extension.more_microusd)
    )
    if not extension.is_contract_known:
        text += " " + _("The provider does not list it now: its contract may end earlier.")
    return Redirect(text=text, to=_page_of(launch))


def chosen_hours(form: Mapping[str, str]) -> float:
    """Return the chosen hours. Raises UsageError: no such number."""
    text = form["by"] if form["by"] != "other" else form.get("other", "").strip()
    try:
        hours = parse_duration(f"{text}h") / HOUR_S
    except ValueError:
        raise UsageError(_("Write a number of hours, such as 8.")) from None
    if not 0 < hours <= _LONGEST_H:
        raise UsageError(_("Between a minute and a year."))
    return hours


# --- resolve ----------------------------------------------------------------------------------------------------------


def _show_exists(view: View) -> Mapping[str, Any]:
    launch = _launch(view)
    return {
        "launch": launch,
        "home": _page_of(launch),
        "provider": provider_name(launch),
        "instance": view.form.get("instance", launch.instance_id or ""),
        "fault": "",
    }


def _exists(view: View) -> FormResult:
    launch = _launch(view)
    if "instance" not in view.form:
        return Rerender(values={})
    instance = view.form["instance"].strip()
    if not instance:
        return Rerender(values={"fault": _("Write the number of the instance, as the provider shows it.")})
    return _resolved(
        launch,
        lambda: resolve_adopted(view.settings, launch.launch_id, instance, actor=view.actor),
        _("gpuwatch follows instance {instance} again.").format(instance=instance),
    )


def _absent(view: View) -> FormResult:
    launch = _launch(view)
    if not is_confirmed(view):
        question = _("Is there no such instance at {provider}?").format(provider=provider_name(launch))
        facts = (
            (_("Label to look for"), launch.label),
            (_("Then"), _("The launch is closed, and its budget is free again.")),
            (_("If it exists"), _("It would run and cost money unseen. Look twice.")),
        )
        return Confirm(question=question, button=_("It does not exist"), back=_page_of(launch), facts=facts)
    return _resolved(
        launch,
        lambda: resolve_absent(view.settings, launch.launch_id, actor=view.actor),
        _("The launch is closed: nothing was made."),
    )


def _resolved(launch: Launch, resolve: Any, done: str) -> Redirect:
    try:
        resolve()
    except GpuwatchError as error:
        return Redirect(text=str(error), to=_page_of(launch), is_error=True)
    return Redirect(text=done, to=_page_of(launch))


# --- the pages --------------------------------------------------------------------------------------------------------

LAUNCHES_PAGE = Page(name="Launches", path="/launches", template="launches.html", show=_show_launches, order=30)
LAUNCH_PAGE = Page(
    name="Launch",
    path="/launches/{id}",
    template="launch.html",
    show=_show_launch,
    order=31,
    actions=(
        FormAction(path="/launches/{id}/stop", scope="manage", run=_stop),
        FormAction(path="/launches/{id}/absent", scope="manage", run=_absent),
        *KEPT_DISK_ACTIONS,
    ),
    scripts=("vendor/uplot/uPlot.iife.min.js", "charts.js"),
)
EXTEND_PAGE = Page(
    name="Extend",
    path="/launches/{id}/extend",
    template="extend.html",
    show=_show_extend,
    order=31,
    actions=(FormAction(path="/launches/{id}/extend", scope="manage", run=_extend),),
)
EXISTS_PAGE = Page(
    name="It exists",
    path="/launches/{id}/exists",
    template="exists.html",
    show=_show_exists,
    order=31,
    actions=(FormAction(path="/launches/{id}/exists", scope="manage", run=_exists),),
)
