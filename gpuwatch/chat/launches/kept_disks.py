"""Stop a machine with its disk kept, and start it again; both ask for confirmation first."""

from __future__ import annotations

from gpuwatch.app.launches.keep_disk import kept_for_s, request_keep, request_start, runtime_at_start_s
from gpuwatch.app.launches.launches import all_launches
from gpuwatch.app.launches.most_cost import upper_text
from gpuwatch.chat.reading import active_launch, launch_text
from gpuwatch.chat.replies import ChatContext, ChatReply, button_rows, listing, question, simple_reply
from gpuwatch.domain.launches.launch import Launch
from gpuwatch.domain.market.money import dollars, usd
from gpuwatch.domain.setup.durations import format_duration, parse_duration
from gpuwatch.engine.alerts.alert_buttons import ButtonAction, SignedButton, bound_to
from gpuwatch.errors import UsageError

_SUBJECT_LENGTH = 18  # maximum of a button's subject, in characters


def keep(context: ChatContext, launch_id: str) -> ChatReply:
    """Ask whether to stop it with its disk kept."""
    launch = active_launch(context, launch_id)
    disk = dollars(usd(launch.with_commission(launch.disk_microusd_hour) * 24))
    until = format_duration(kept_for_s(context.settings, launch))
    text = (
        f"Stop launch {launch_id} and keep its disk? The disk costs {disk} a day and is destroyed after {until}."
        " Meanwhile its GPUs may be rented to others."
    )
    rows = context.confirmation("Yes, keep the disk", ButtonAction.KEEP_NOW, launch_id, _binding(launch))
    return question(text, rows)


def keep_confirmed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Stop it; an alert says when the provider confirms it."""
    _require_same(context, button.subject, button.bound)
    changed = request_keep(context.settings, button.subject, actor=context.actor)[1]
    text = f"Launch {button.subject} is being stopped; an alert follows when its disk alone is billed."
    return _answered(context, button.subject, text, changed=changed)


def start(context: ChatContext, argument: str) -> ChatReply:
    """Ask whether to start it again; without an id, list the machines whose disks are kept."""
    launch_id, _, for_text = argument.partition(" ")
    if not launch_id:
        return _kept_launches(context)
    launch = active_launch(context, launch_id)
    wanted_s = _seconds(for_text) if for_text.strip() else None
    runtime_s = runtime_at_start_s(context.settings, launch, wanted_s)
    most = upper_text(round(launch.bound_microusd_hour * runtime_s / 3600))
    hourly = dollars(usd(launch.price_microusd_hour))
    text = f"Start launch {launch_id} again for {format_duration(runtime_s)}? {hourly} per hour, at most {most}."
    subject = launch_id if wanted_s is None else f"{launch_id}-{format_duration(wanted_s)}"
    if len(subject) > _SUBJECT_LENGTH:
        raise UsageError(f"{for_text} is too precise for a button; use: gpuwatch launches start {launch_id} --for 4h")
    rows = context.confirmation(f"Yes, start {launch_id}", ButtonAction.START_NOW, subject, _binding(launch))
    return question(text, rows)


def start_confirmed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Start it, if limits, budgets and its contract allow it; an alert says when it runs."""
    launch_id, _, for_text = button.subject.partition("-")
    _require_same(context, launch_id, button.bound)
    runtime_s = _seconds(for_text) if for_text else None
    changed = request_start(context.settings, launch_id, runtime_s, actor=context.actor)[1]
    text = f"Launch {launch_id} is being started; an alert follows when it runs, or if its GPUs are taken."
    return _answered(context, launch_id, text, changed=changed)


def _answered(context: ChatContext, launch_id: str, text: str, *, changed: bool) -> ChatReply:
    text = text if changed else "Nothing changed: that is already on its way."
    return simple_reply(text, [context.launch_buttons(launch_id)], notice=text)


def _kept_launches(context: ChatContext) -> ChatReply:
    kept = [launch for launch in all_launches(context.settings) if launch.is_kept and not launch.is_over]
    if not kept:
        return simple_reply("No disk of a stopped machine is kept.")
    zone = context.settings.timezone
    items = [(launch.launch_id, f": {launch_text(launch, context.now, zone)}") for launch in kept]
    buttons = [context.button(f"Start {one.launch_id}", ButtonAction.START, one.launch_id) for one in kept]
    return listing("Which machine should start again?", items, button_rows(buttons, 1))


def _binding(launch: Launch) -> str:
    return bound_to(launch.launch_id, launch.max_runtime_s, launch.kept is None)


def _require_same(context: ChatContext, launch_id: str, bound: str) -> None:
    if _binding(active_launch(context, launch_id)) != bound:
        raise UsageError(f"launch {launch_id} has changed in the meantime; nothing was done. See: /launches")


def _seconds(text: str) -> float:
    try:
        return float(parse_duration(text.strip().removeprefix("--for").strip()))
    except ValueError as error:
        raise UsageError(str(error)) from error
