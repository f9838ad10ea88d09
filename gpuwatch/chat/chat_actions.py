"""Every command and button, by name: a messenger calls them with what a person typed or pressed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec

from gpuwatch.chat import deciding, reading
from gpuwatch.chat.jobs import jobs
from gpuwatch.chat.launches import kept_disks, rent
from gpuwatch.chat.plan.plan import plan
from gpuwatch.chat.replies import ChatContext, ChatReply, simple_reply
from gpuwatch.chat.watches import pausing
from gpuwatch.engine.alerts.alert_buttons import ButtonAction, SignedButton, subject_key
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.redaction import redact

log = logging.getLogger(__name__)

CommandHandler = Callable[[ChatContext, str], ChatReply]
PressHandler = Callable[[ChatContext, SignedButton], ChatReply]
FAILED = "That failed; see gpuwatch's log for the reason. Current state: /status"


class ChatCommand(msgspec.Struct, frozen=True):
    """One command: its help line, and the function that carries it out."""

    about: str
    run: CommandHandler


COMMANDS: Mapping[str, ChatCommand] = {
    "status": ChatCommand("Providers, launches, pending approvals", reading.status),
    "watches": ChatCommand("Watches with their limits: /watches, /watches GROUP", reading.watches),
    "why": ChatCommand("Why a watch does not act: /why WATCH", reading.why_not),
    "market": ChatCommand("What is cheap now, by GPU", reading.market),
    "offers": ChatCommand("Cheapest offers of a GPU: /offers H100", reading.offers),
    "history": ChatCommand("Price chart of the last month: /history H100", reading.history),
    "launches": ChatCommand("Launches, state and cost", reading.launches),
    "jobs": ChatCommand("Queue, running jobs, cost: /jobs, /jobs NAME", jobs.jobs),
    "costs": ChatCommand("This month, forecast, budgets", reading.costs),
    "approve": ChatCommand("Approve a quote and rent it: /approve ID", deciding.approve),
    "deny": ChatCommand("Reject a quote: /deny ID", deciding.deny),
    "rent": ChatCommand("Rent an offer now: /rent OFFER PROVIDER 4h", rent.rent),
    "stop": ChatCommand("End a launch, or keep its disk: /stop ID, /stop ID keep", deciding.stop),
    "start": ChatCommand("Start a machine again whose disk is kept: /start ID 4h", kept_disks.start),
    "extend": ChatCommand("Extend a launch: /extend ID 2h", deciding.extend),
    "resolve": ChatCommand("Settle a held launch: /resolve ID, /resolve ID INSTANCE", deciding.resolve),
    "pause": ChatCommand("Pause renting: /pause, /pause WATCH 6h because …, /pause group NAME", pausing.pause),
    "resume": ChatCommand("Resume renting: /resume, /resume WATCH, /resume group NAME", pausing.resume),
    "silence": ChatCommand(
        "Mute alerts: /silence WATCH 6h, /silence group NAME 6h, /silence WATCH end", pausing.silence
    ),
    "plan": ChatCommand("GPUs that fit a model: /plan 70b, /plan 48gb", plan),
}


def answer_command(context: ChatContext, name: str, argument: str) -> ChatReply:
    """Carry out a command; an unknown one returns the list. Never raises."""
    command = COMMANDS.get(name)
    if command is None:
        return simple_reply(f"Unknown command {name!r}. See /help.")
    return _run_guarded(lambda: command.run(context, argument))


def run_press(context: ChatContext, button: SignedButton) -> ChatReply:
    """Carry out a button press. Never raises."""
    return _run_guarded(lambda: _PRESSES[button.action](context, button))


def _run_guarded(work: Callable[[], ChatReply]) -> ChatReply:
    try:
        return work()
    except GpuwatchError as error:
        text = redact(str(error))
        return simple_reply(text[:1].upper() + text[1:])
    except Exception:
        log.exception("a command from the chat failed")
        return simple_reply(FAILED)


def _about(run: CommandHandler) -> PressHandler:
    return lambda context, button: run(context, button.subject)


def _of_gpu(run: CommandHandler) -> PressHandler:
    def press(context: ChatContext, button: SignedButton) -> ChatReply:
        gpu = next((name for name in reading.known_gpus(context) if subject_key(name) == button.subject), None)
        if gpu is None:
            raise UsageError("that GPU is no longer in the settings; use its name: /offers H100")
        return run(context, gpu)

    return press


def _of_watch(run: CommandHandler) -> PressHandler:
    return lambda context, button: run(context, pausing.watch_of(context, button.subject) or "")


_PRESSES: Mapping[ButtonAction, PressHandler] = {
    ButtonAction.APPROVE: deciding.approve_pressed,
    ButtonAction.DENY: deciding.deny_pressed,
    ButtonAction.SILENCE: pausing.silence_pressed,
    ButtonAction.WHY: _about(reading.why),
    ButtonAction.WHY_NOT: _of_watch(reading.why_not),
    ButtonAction.STOP: _about(deciding.stop),
    ButtonAction.STOP_NOW: deciding.stop_confirmed,
    ButtonAction.KEEP: _about(kept_disks.keep),
    ButtonAction.KEEP_NOW: kept_disks.keep_confirmed,
    ButtonAction.START: _about(kept_disks.start),
    ButtonAction.START_NOW: kept_disks.start_confirmed,
    ButtonAction.EXTEND: _about(deciding.extend),
    ButtonAction.EXTEND_BY: deciding.extend_by_pressed,
    ButtonAction.EXTEND_NOW: deciding.extend_confirmed,
    ButtonAction.ABSENT_NOW: deciding.absent_confirmed,
    ButtonAction.RENT: rent.rent_pressed,
    ButtonAction.RENT_FOR: rent.rent_for_pressed,
    ButtonAction.COST: _about(reading.cost_of),
    ButtonAction.PAUSE: pausing.pause_pressed,
    ButtonAction.RESUME: pausing.resume_pressed,
    ButtonAction.OFFERS: _of_gpu(reading.offers),
    ButtonAction.HISTORY: _of_gpu(reading.history),
    ButtonAction.PLAN: _about(plan),
    ButtonAction.CANCEL: deciding.cancelled,
    ButtonAction.JOB_LOG: jobs.log_pressed,
    ButtonAction.JOB_CANCEL: jobs.cancel_pressed,
    ButtonAction.JOB_CANCEL_NOW: jobs.cancel_confirmed,
    ButtonAction.JOB_RETRY: jobs.retry_pressed,
    ButtonAction.JOB_RETRY_NOW: jobs.retry_confirmed,
    ButtonAction.SERIES_END: jobs.end_pressed,
    ButtonAction.SERIES_END_NOW: jobs.end_confirmed,
}
assert set(_PRESSES) == set(ButtonAction)
