"""`/plan`: which GPUs are big enough for a model, cheapest first, as last polled."""

from __future__ import annotations

import re

from gpuwatch.app.plan.plan_fit import plan_fit
from gpuwatch.app.plan.plan_request import request_of
from gpuwatch.chat.replies import ChatContext, ChatReply, button_rows, listing, simple_reply
from gpuwatch.domain.market.money import dollars
from gpuwatch.domain.plan.plan_schema import FitRequest
from gpuwatch.engine.alerts.alert_buttons import ButtonAction
from gpuwatch.errors import UsageError

_SHOWN = 6
_SIZES = ("7b", "13b", "70b", "24gb", "80gb")
_WORDS = {"train": "training", "training": "training", "infer": "inference", "inference": "inference", "any": "any"}
_USAGE = "pass a model size or the memory: /plan 70b, /plan 7b train, /plan 48gb"
_GIGABYTES = re.compile(r"(\d+(?:\.\d+)?)\s*(?:gb|gib|g)", re.IGNORECASE)
_PARAMETERS = re.compile(r"\d+(?:\.\d+)?[bmt]", re.IGNORECASE)


def plan(context: ChatContext, argument: str) -> ChatReply:
    """List the cheapest GPUs that hold a model of this size, or have this much memory."""
    if not argument:
        buttons = [context.button(size, ButtonAction.PLAN, size) for size in _SIZES]
        return simple_reply(f"What is it for? You can {_USAGE}", button_rows(buttons))
    request = _request(argument)
    fit_plan = plan_fit(request, lambda: context.settings)
    if not fit_plan.prices:
        return simple_reply("Cannot tell: no prices have been polled yet.")
    items = [
        (
            f"{choice.gpu.name} × {choice.priced.cards}",
            f": {dollars(choice.usd_hour)} per hour at {choice.priced.provider}",
        )
        for choice in fit_plan.ranked.choices[:_SHOWN]
    ]
    need = f"{fit_plan.needs.vram_gb:.0f} GB of GPU memory" if fit_plan.needs.vram_gb else "any memory"
    if not items:
        return simple_reply(f"No known offer has {need} on up to {request.max_cards} cards.")
    return listing(f"{argument}: {need} for {fit_plan.needs.task.value}", items)


def _request(argument: str) -> FitRequest:
    size, *words = argument.lower().split()
    task = _WORDS.get(words[0]) if words else "inference"
    memory = _GIGABYTES.fullmatch(size)
    if task is None or len(words) > 1 or not (memory or _PARAMETERS.fullmatch(size)):
        raise UsageError(_USAGE)
    need = {"vram": float(memory[1])} if memory else {"model": size}
    return request_of(FitRequest, {"task": "any" if memory and not words else task, **need})
