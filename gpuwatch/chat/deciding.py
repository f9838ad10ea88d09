"""Actions on what is rented: approve, stop, extend, resolve. Dangerous ones ask for confirmation."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

from gpuwatch.app.jobs.jobs import listed_jobs
from gpuwatch.app.launches.approvals import approve as approve_quote
from gpuwatch.app.launches.approvals import deny as deny_quote
from gpuwatch.app.launches.approvals import open_approvals, recent_approvals
from gpuwatch.app.launches.extend import extend as extend_launch
from gpuwatch.app.launches.launches import all_launches, resolve_absent, resolve_adopted
from gpuwatch.app.launches.running_machines import can_keep_disk
from gpuwatch.app.launches.stop import stop as stop_launches
from gpuwatch.chat.jobs.jobs import job_buttons
from gpuwatch.chat.launches.kept_disks import keep
from gpuwatch.chat.reading import active_launch, launch_text
from gpuwatch.chat.replies import ChatContext, ChatReply, button_rows, listing, question, simple_reply
from gpuwatch.domain.launches.instances.obligation import latest_end
from gpuwatch.domain.launches.launch import Launch, LaunchState
from gpuwatch.domain.launches.life.owner_decisions import Approval, ApprovalState
from gpuwatch.domain.launches.money.launch_costs import further_microusd_hour
from gpuwatch.domain.market.money import dollars, price_text, usd
from gpuwatch.domain.market.offer import gpus_text
from gpuwatch.domain.setup.durations import format_duration, format_moment, parse_duration
from gpuwatch.engine.alerts.alert_buttons import (
    ButtonAction,
    SignedButton,
    approval_binding,
    approval_buttons,
    bound_to,
)
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalOutcome
from gpuwatch.errors import UsageError
from gpuwatch.ports.alerts import ButtonRows

_EXTENSIONS = ("1h", "2h", "6h")
_EVERYTHING = "all"
_END = "end"
_KEEPING = frozenset({"keep", "keep-disk"})
_SUBJECT_LENGTH = 18  # maximum of a button's subject, in characters
_FROM = "from the chat"

# --- approvals --------------------------------------------------------------------------------------------------------


def approve(context: ChatContext, argument: str) -> ChatReply:
    """Rent the quoted offer, or nothing; without an id, list the pending approvals."""
    return _answer(context, argument) if argument else _list_approvals(context)


def deny(context: ChatContext, argument: str) -> ChatReply:
    """Deny it; without an id, list the pending approvals."""
    if not argument:
        return _list_approvals(context)
    approval_id, _, reason = argument.partition(" ")
    reply = deny_quote(context.settings, approval_id, reason or _FROM, actor=context.actor).reply
    return simple_reply(reply.text, notice=reply.text)


def _answer(context: ChatContext, approval_id: str) -> ChatReply:
    answer = approve_quote(context.settings, approval_id, actor=context.actor)
    reply, approval = answer.reply, answer.approval
    rows: ButtonRows = []
    if reply.launch is None and approval.state_at(context.now) is ApprovalState.OPEN:
        rows = [approval_buttons(approval, context.signer)]
    elif reply.outcome is ApprovalOutcome.RENTED and reply.launch is not None:
        rows = [context.launch_buttons(reply.launch.launch_id)]
    return simple_reply(reply.text, rows, notice=reply.text)


def approve_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Approve exactly what this button was offered for."""
    _require_same_quote(context, button)
    return _answer(context, button.subject)


def deny_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Deny what this button was offered for."""
    _require_same_quote(context, button)
    return deny(context, button.subject)


def _require_same_quote(context: ChatContext, button: SignedButton) -> None:
    approval = _approval(context, button.subject)
    if approval is None or approval_binding(approval) != button.bound:
        raise UsageError("this button belongs to another quote; nothing was done. See: /approve")


def _approval(context: ChatContext, approval_id: str) -> Approval | None:
    approvals = recent_approvals(context.settings)
    return next((approval for approval in approvals if approval.approval_id == approval_id), None)


def _list_approvals(context: ChatContext) -> ChatReply:
    approvals = open_approvals(context.settings, context.now)
    if not approvals:
        return simple_reply("No approval is pending.")
    zone = ZoneInfo(context.settings.timezone)
    items = [
        (approval.approval_id, f": {_quote(approval)}, open until {format_moment(approval.deadline, zone)}")
        for approval in approvals
    ]
    rows = [approval_buttons(approval, context.signer, approval.approval_id) for approval in approvals]
    return listing("Quotes that await your approval", items, rows)


def _quote(approval: Approval) -> str:
    offer, price = approval.match.offer, approval.match.price.price_microusd_hour
    offer_text = f"{gpus_text(offer.gpu, offer.gpu_count)} at {offer.provider}"
    if not offer.gpu_count:
        return f"{approval.watch}: {offer_text}, {dollars(usd(price))}/h"
    per_gpu = price_text(usd(price) / offer.gpu_count)
    return f"{approval.watch}: {offer_text}, {dollars(usd(price))}/h (${per_gpu}/GPU-h)"


# --- launches ---------------------------------------------------------------------------------------------------------


def stop(context: ChatContext, argument: str) -> ChatReply:
    """End a launch, after a confirmation; without an id, list those that can be ended."""
    if not argument:
        return _alive_launches(context, "Which launch should end?", "Stop", ButtonAction.STOP)
    launch_id, _, how = argument.partition(" ")
    launch = active_launch(context, launch_id)
    if how.strip().removeprefix("--") in _KEEPING:
        return keep(context, launch_id)
    text = launch_text(launch, context.now, context.settings.timezone)
    rows = list(context.confirmation(f"Yes, stop {launch_id}", ButtonAction.STOP_NOW, launch_id))
    if can_keep_disk(launch):
        rows.append([context.button("Stop, keep the disk…", ButtonAction.KEEP, launch_id)])
    return question(f"Stop launch {launch.launch_id}? Its instance and the data on it are destroyed.\n{text}", rows)


def stop_confirmed(context: ChatContext, button: SignedButton) -> ChatReply:
    """End it, and wait for the provider's confirmation."""
    reported: list[str] = []
    is_over = stop_launches(context.settings, [button.subject], reported.append, actor=context.actor)
    end = f"Launch {button.subject} has ended." if is_over else "Its end is not confirmed yet; gpuwatch keeps trying."
    rows = [[context.button("Cost", ButtonAction.COST, button.subject)]]
    return simple_reply("\n".join([*reported, end]), rows, notice=end)


def extend(context: ChatContext, argument: str) -> ChatReply:
    """Extend a launch, after a confirmation; without an id, list the running ones."""
    launch_id, _, by = argument.partition(" ")
    if not launch_id:
        return _alive_launches(context, "Which launch should run longer?", "Extend", ButtonAction.EXTEND)
    launch = active_launch(context, launch_id)
    if not by.strip():
        buttons = [
            context.button(f"+{each}", ButtonAction.EXTEND_BY, f"{launch_id}-{each}", _end_binding(launch))
            for each in _EXTENSIONS
        ]
        cancel = context.button("Cancel", ButtonAction.CANCEL, launch_id)
        return question(f"{_ends(context, launch)} By how much? Or: /extend {launch_id} 90m", [buttons, [cancel]])
    return _extend_question(context, launch, _duration(by.strip().removeprefix("--by").strip()))


def extend_by_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Ask for confirmation of the pressed extension."""
    launch_id, _, by = button.subject.partition("-")
    launch = _require_same_end(context, launch_id, button.bound)
    return _extend_question(context, launch, _duration(by))


def extend_confirmed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Extend it, provided that its end is still the displayed one, so that a second press adds nothing."""
    launch_id, _, by = button.subject.partition("-")
    launch = _require_same_end(context, launch_id, button.bound)
    extension = extend_launch(context.settings, launch.launch_id, float(_duration(by)), actor=context.actor)
    until = format_moment(extension.ends_at, ZoneInfo(context.settings.timezone))
    more = dollars(usd(extension.more_microusd))
    text = f"Launch {launch_id} now runs until {until} at the latest; additional cost up to {more}."
    return simple_reply(text, [context.launch_buttons(launch_id)], notice=text)


def resolve(context: ChatContext, argument: str) -> ChatReply:
    """Settle a held launch as the owner found it at the provider; that there is no instance needs a confirmation."""
    launch_id, _, instance = argument.partition(" ")
    if not launch_id:
        held = [one for one in all_launches(context.settings) if one.state is LaunchState.HELD]
        items = [(f"/resolve {one.launch_id}", f": {one.label}, {one.provider}") for one in held]
        return listing("Held launches", items) if held else simple_reply("No launch is held.")
    launch, instance = active_launch(context, launch_id), instance.strip()
    if instance:  # it must be listed there, and belong to no other launch
        return _resolved(resolve_adopted(context.settings, launch_id, instance, actor=context.actor))
    text = (
        f"Is there no instance {launch.label} at {launch.provider}? If it exists, it would run and cost money unseen."
        f" If it does: /resolve {launch_id} INSTANCE"
    )
    return question(text, context.confirmation("Yes, it does not exist", ButtonAction.ABSENT_NOW, launch_id))


def absent_confirmed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Close it: there is no instance."""
    return _resolved(resolve_absent(context.settings, button.subject, actor=context.actor))


def _resolved(launch: Launch) -> ChatReply:
    text = f"Launch {launch.launch_id} is {launch.state.value}."
    return simple_reply(text, notice=text)


def cancelled(context: ChatContext, button: SignedButton) -> ChatReply:
    """Report that nothing was done, and offer the actions on an active launch or a job again."""
    launch_id = button.subject.partition("-")[0]
    alive = [launch.launch_id for launch in all_launches(context.settings) if not launch.is_over]
    rows = [context.launch_buttons(launch_id)] if launch_id in alive else []
    if not rows and (job := next((job for job in listed_jobs(context.settings) if job.job_id == launch_id), None)):
        return simple_reply("Nothing was done.", [job_buttons(context, job)])
    return simple_reply("Cancelled; nothing was done.", rows)


def _extend_question(context: ChatContext, launch: Launch, by_s: float) -> ChatReply:
    ends_at = latest_end(launch)
    if ends_at is None:
        raise UsageError(f"launch {launch.launch_id} has no max_runtime; it runs until you stop it")
    by = format_duration(by_s)
    more = dollars(usd(round(further_microusd_hour(launch) * by_s / 3600)))
    until = format_moment(ends_at + timedelta(seconds=by_s), ZoneInfo(context.settings.timezone))
    subject = f"{launch.launch_id}-{by}"
    if len(subject) > _SUBJECT_LENGTH:
        raise UsageError(
            f"{by} is too precise for a button; use: gpuwatch launches extend {launch.launch_id} --by {by}"
        )
    rows = context.confirmation(f"Yes, +{by}", ButtonAction.EXTEND_NOW, subject, _end_binding(launch))
    return question(f"Extend launch {launch.launch_id} by {by}, to {until}? Additional cost: up to {more}.", rows)


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _end_binding(launch: Launch) -> str:
    return bound_to(launch.launch_id, launch.max_runtime_s)


def _require_same_end(context: ChatContext, launch_id: str, bound: str) -> Launch:
    launch = active_launch(context, launch_id)
    if _end_binding(launch) != bound:
        raise UsageError(
            f"its end has changed in the meantime. {_ends(context, launch)} To extend it: /extend {launch_id}"
        )
    return launch


def _ends(context: ChatContext, launch: Launch) -> str:
    ends_at = latest_end(launch)
    if ends_at is None:
        return f"Launch {launch.launch_id} has no max_runtime: it runs until you stop it."
    return f"Launch {launch.launch_id} ends {format_moment(ends_at, ZoneInfo(context.settings.timezone))}."


def _alive_launches(context: ChatContext, title: str, label: str, action: ButtonAction) -> ChatReply:
    alive = [launch for launch in all_launches(context.settings) if not launch.is_over]
    if not alive:
        return simple_reply("No launch is active.")
    items = [(launch.launch_id, f": {launch_text(launch, context.now, context.settings.timezone)}") for launch in alive]
    buttons = [context.button(f"{label} {launch.launch_id}", action, launch.launch_id) for launch in alive]
    return listing(title, items, button_rows(buttons, 1))
