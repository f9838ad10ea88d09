"""/control: publish, reprice and read the ledger from another process, if the marketplace was started with it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, refuse, reply
from gpuwatch.emulator.clock import ManualClock
from gpuwatch.emulator.request import EmulatorRequest
from gpuwatch.emulator.test_controls import MarketControls

Action = Callable[[MarketControls, dict[str, Any]], dict[str, Any]]


def control(market: MarketControls, request: EmulatorRequest) -> EmulatorReply:
    """Handle a request under /control/; an invalid one gets a 400 with one sentence."""
    name = request.path.removeprefix("/control/").strip("/")
    action = ACTIONS.get((request.method, name))
    if action is None:
        return refuse(404, "not_found", f"no such control: {request.method} {name}").reply
    try:
        return reply(action(market, request.body()))
    except RefusedRequest as refusal:
        return refusal.reply
    except (TypeError, ValueError, KeyError) as error:
        return refuse(400, "invalid_args", f"{type(error).__name__}: {error}").reply


def publish(market: MarketControls, body: dict[str, Any]) -> dict[str, Any]:
    """List a new offer; returns its id and the time when it became visible.

    With `"warm": true` large answers are encoded first: a benchmark then measures its subject and not this server.
    """
    warm = body.pop("warm", False)
    with market.locked():
        offer_id = market.publish(**body)
        if warm:
            market.warm()
    return {"offer_id": offer_id, "visible_ns": time.monotonic_ns()}


def reprice(market: MarketControls, body: dict[str, Any]) -> dict[str, Any]:
    """Change a price."""
    market.reprice(**body)
    return {"success": True, "visible_ns": time.monotonic_ns()}


def fault(market: MarketControls, body: dict[str, Any]) -> dict[str, Any]:
    """Switch on a fault, or switch off all of them with `{"clear": true}`."""
    if body.get("clear"):
        market.faults.clear()
    else:
        market.faults.add(**body)
    return {"success": True}


def tick(market: MarketControls, body: dict[str, Any]) -> dict[str, Any]:
    """Let the market move."""
    for _ in range(int(body.get("times", 1))):
        market.tick()
    if body.get("warm"):
        market.warm()
    return {"success": True}


def credit(market: MarketControls, body: dict[str, Any]) -> dict[str, Any]:
    """Set the account's credit."""
    market.credit_usd = float(body["usd"])
    return {"success": True, "credit_usd": market.credit_usd}


def method_control(name: str) -> Action:
    """Build a control for a method that returns nothing."""

    def act(market: MarketControls, body: dict[str, Any]) -> dict[str, Any]:
        getattr(market, name)(**body)
        return {"success": True}

    return act


def advance(market: MarketControls, body: dict[str, Any]) -> dict[str, Any]:
    """Advance a manual clock."""
    if not isinstance(market.clock, ManualClock):
        raise TypeError("this marketplace runs on the real clock")
    return {"now": market.clock.advance(float(body["seconds"]))}


METHODS = (
    "withdraw", "take", "occupy", "give_back", "befall", "outbid", "utilise", "ends", "raise_price", "transfer",
    "change",
)  # fmt: skip
ACTIONS: dict[tuple[str, str], Action] = {
    ("POST", "publish"): publish,
    ("POST", "reprice"): reprice,
    ("POST", "fault"): fault,
    ("POST", "tick"): tick,
    **{("POST", name): method_control(name) for name in METHODS},
    ("POST", "credit"): credit,
    ("POST", "propose_increase"): lambda market, body: {
        "success": True,
        "pending_price_increase_id": market.propose_increase(**body),
    },
    ("POST", "order"): lambda market, body: {"order": market.ordered(**body)},
    ("GET", "instances"): lambda market, _: {"instances": market.instances()},
    ("POST", "advance"): advance,
    ("GET", "ledger"): lambda market, _: market.ledger.summary(),
    ("GET", "requests"): lambda market, _: {"requests": [one._asdict() for one in market.requests]},
}
