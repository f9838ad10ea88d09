"""Pauses and silences: of everything, a watch or a group, for a while. They need no confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

from gpuwatch.app.alerts.alerts import end_silence
from gpuwatch.app.alerts.alerts import silence as silence_watch
from gpuwatch.app.watches.pauses import pause as pause_renting
from gpuwatch.app.watches.pauses import pause_lines, pauses
from gpuwatch.app.watches.pauses import resume as resume_renting
from gpuwatch.app.watches.watch_selection import no_such_watch, require_group
from gpuwatch.chat.replies import ChatContext, ChatReply, button_rows, simple_reply
from gpuwatch.domain.setup.durations import format_moment, parse_duration
from gpuwatch.domain.watches.owner_names import Purpose, owned_name
from gpuwatch.engine.alerts.alert_buttons import SILENCE_FOR, ButtonAction, SignedButton, subject_key
from gpuwatch.errors import UsageError

_EVERYTHING = "all"
_GROUP = "group"
_END = "end"
_FROM = "from the chat"


class _Scope(NamedTuple):
    """What to pause or to silence; neither a watch nor a group: everything."""

    watch: str | None
    group: str | None
    for_s: float | None  # None: not given


def pause(context: ChatContext, argument: str) -> ChatReply:
    """Pause renting: everything, a watch or a group, perhaps for a while. Needs no confirmation: it saves money."""
    text, _, why = argument.partition("because ")
    what = _scope(context, text)
    _, paused = pause_renting(
        context.settings, what.watch, what.for_s, why.strip() or _FROM, actor=context.actor, group=what.group
    )
    return _pauses_reply(context, pause_lines(paused, context.now, context.settings.timezone))


def pause_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Pause one watch, or everything."""
    return pause(context, watch_of(context, button.subject) or _EVERYTHING)


def resume(context: ChatContext, argument: str) -> ChatReply:
    """Resume renting: everything, or a watch or group, which also closes their circuit breakers."""
    group = _group(context, argument)
    name = None if group is not None or argument.lower() in {"", _EVERYTHING} else argument
    resumed, left = resume_renting(context.settings, name, actor=context.actor, group=group)
    if group is not None:
        text = f"Resumed: group {group}." if resumed else f"Not paused: group {group}."
    elif name is None:
        text = "Renting is resumed." if resumed else "Renting was not paused."
    else:
        text = f"Resumed: watch {name}." if resumed else f"Not paused: watch {name}."
    return _pauses_reply(context, [text, *pause_lines(left, context.now, context.settings.timezone)])


def resume_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Resume what this button names."""
    return resume(context, watch_of(context, button.subject) or _EVERYTHING)


def silence(context: ChatContext, argument: str) -> ChatReply:
    """Silence a watch's offers for a while; launches and money are still reported."""
    if not argument:
        buttons = [
            context.button(f"{watch.name}, 6 h", ButtonAction.SILENCE, subject_key(watch.name))
            for watch in context.settings.watches
        ]
        return simple_reply("Which watch? For example: /silence NAME 6h", button_rows(buttons, 2))
    name, _, last = argument.rpartition(" ")
    what = _scope(context, name if last == _END else argument)
    if what.watch is None and what.group is None:
        raise UsageError("expected a watch or a group: /silence NAME 6h")
    text = _silence_ended(context, what) if last == _END else _silenced(context, what)
    return simple_reply(text, notice=text)


def _silence_ended(context: ChatContext, what: _Scope) -> str:
    watch, group = what.watch, what.group
    was_silenced = end_silence(context.settings, watch, actor=context.actor, group=group)
    if group is not None:
        return f"Group {group} sends alerts again." if was_silenced else f"Group {group} was not silenced."
    return f"Watch {watch} sends alerts again." if was_silenced else f"Watch {watch} was not silenced."


def _silenced(context: ChatContext, what: _Scope) -> str:
    watch, group, for_s = what.watch, what.group, what.for_s or SILENCE_FOR.total_seconds()
    (first, *_) = silence_watch(context.settings, watch, for_s, actor=context.actor, group=group)
    until = format_moment(first.until, ZoneInfo(context.settings.timezone))
    if group is not None:
        return f"No offer alerts for group {group} until {until}. Alerts about launches and money are still sent."
    return f"No offer alerts for {watch} until {until}. Alerts about launches and money are still sent."


def silence_pressed(context: ChatContext, button: SignedButton) -> ChatReply:
    """Silence one watch for six hours."""
    name = watch_of(context, button.subject)
    if name is None:
        raise UsageError("expected a watch: /silence NAME 6h")
    return silence(context, name)


def _pauses_reply(context: ChatContext, lines: Sequence[str]) -> ChatReply:
    held = pauses(context.settings)
    paused_watches = [pause_.watch for pause_ in held.in_force(context.now)] + [
        pause_.watch for pause_ in held.open_breakers()
    ]
    buttons = [
        context.button(
            f"Resume {watch}" if watch else "Resume renting",
            ButtonAction.RESUME,
            _EVERYTHING if watch is None else subject_key(watch),
        )
        for watch in dict.fromkeys(paused_watches)
    ]
    return simple_reply("\n".join(lines) or "Nothing is paused.", button_rows(buttons, 1))


def _scope(context: ChatContext, argument: str) -> _Scope:
    """Parse `NAME 6h`, `NAME`, `group NAME 6h`, `6h`, `all`, or nothing."""
    text = argument.strip()
    known = _watch_names(context)
    head, _, last = text.rpartition(" ")
    for_s = None if text in known else _duration_or_none(last)
    if for_s is not None:
        text = head.removesuffix("--for").removesuffix(" for").strip()
    if text.lower() in {"", _EVERYTHING}:
        return _Scope(None, None, for_s)
    if (group := _group(context, text)) is not None:
        return _Scope(None, group, for_s)
    if text not in known and Purpose.of(text).job is not None:
        return _Scope(text, None, for_s)
    text = text if text in known else owned_name(context.settings.owner, text)
    if text not in known and text not in _paused_watches(context):
        raise no_such_watch(text, known)
    return _Scope(text, None, for_s)


def _group(context: ChatContext, text: str) -> str | None:
    """The group that `group NAME` names; None: a watch is called so, or no group is meant. Raises UsageError."""
    word, _, name = text.strip().partition(" ")
    if word.lower() != _GROUP or not name or text in _watch_names(context):
        return None
    return require_group(context.settings, name.strip())


def _duration_or_none(text: str) -> float | None:
    try:
        return parse_duration(text)
    except ValueError:
        return None


def _watch_names(context: ChatContext) -> list[str]:
    return [*(watch.name for watch in context.settings.watches), *context.settings.left_out]


def _paused_watches(context: ChatContext) -> list[str]:
    """Return the watches paused by hand or by their circuit breaker, also those that are no longer in the settings."""
    held = pauses(context.settings)
    names = [*(pause_.watch for pause_ in held.by_hand), *(breaker.watch for breaker in held.breakers)]
    return [name for name in names if name]


def watch_of(context: ChatContext, key: str) -> str | None:
    """Return the watch that a button stands for; None: everything."""
    if key == _EVERYTHING:
        return None
    names = [*_watch_names(context), *_paused_watches(context)]
    watch = next((name for name in names if subject_key(name) == key), None)
    if watch is None:
        raise UsageError("that watch is no longer in the settings; nothing was done")
    return watch
