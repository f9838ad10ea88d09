"""The endpoints that rent and change: create, start and stop, label, bid, reboot, destroy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeGuard

from gpuwatch.emulator.answers import (
    EmulatorReply,
    RefusedRequest,
    bad_create,
    bare_refusal,
    no_such_instance,
    offer_gone,
    refuse,
    reply,
)
from gpuwatch.emulator.instances.contracts import MASK
from gpuwatch.emulator.instances.emulated_instance import EmulatedInstance
from gpuwatch.emulator.instances.lifecycles import LIFECYCLE_FAULTS, QUEUED_MESSAGE
from gpuwatch.emulator.market.machines import EmulatedListing
from gpuwatch.emulator.request import EmulatorRequest, Fault
from gpuwatch.emulator.simulation import Simulation

MIN_DISK_GB = 8.0
MAX_ONSTART = 4048
MAX_LABEL_CREATE = 256
MAX_LABEL_CHANGE = 1024
BID_RANGE = (0.001, 128.0)
RUNTYPES = frozenset({
    "ssh", "jupyter", "args", "ssh_proxy", "ssh_direct", "jupyter_proxy", "jupyter_direct", "ssh_direc ssh_proxy",
    "jupyter_direc ssh_direc ssh_proxy", "jupyter_proxy ssh_proxy",
})  # fmt: skip


def create(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT asks/{id}/: rent an offer, or bid for it if a price is sent."""
    ask_id = path_ask_id(request)
    body = validate_create(ask_id, request.body())
    if request.has_fault("offer_gone") and request.fault is not None:
        raise offer_gone(ask_id, request.fault.get("shape", simulation.options.gone_shape))
    if request.has_fault("refuse_create"):
        return reply({"success": False, "error": "invalid_args", "msg": "error 400/3500: not now", "ask_id": ask_id})
    require_credit(simulation, ask_id, request.now)
    if body.get("vm") and not simulation.account.ssh_keys:
        raise bad_create(ask_id, "No SSH key on the account", "no_ssh_key_for_vm")
    listing = simulation.market.listings.get(ask_id)
    if listing is None:
        raise offer_gone(ask_id, simulation.options.gone_shape)
    return rent(simulation, request, listing, body)


def rent(
    simulation: Simulation, request: EmulatorRequest, listing: EmulatedListing, body: dict[str, Any]
) -> EmulatorReply:
    """Make the contract, running or, for a bid that loses at once, stopped."""
    if body["disk"] > listing.slice.row["disk_space"]:
        disk_max_gb = listing.slice.row["disk_space"]
        raise bad_create(listing.id, f"error 400/3471: Invalid args: 'disk' is limited to {disk_max_gb}")
    is_started = can_start(listing, body) and not request.has_fault("bid_lost")
    default = body.get("price") is None
    if not is_started and body.get("cancel_unavail", default) and not request.has_fault("bid_lost"):
        raise offer_gone(listing.id, "410")
    instance = simulation.fleet.create(listing, body, request.now, is_started=is_started)
    if is_started:
        apply_lifecycle_fault(simulation, instance, request.fault)
    if request.has_fault("duplicate_effect"):
        return create_twice(simulation, request, listing, instance)
    reported = instance.id
    if request.has_fault("stale_answer"):
        reported = next((one.instance_id for one in simulation.ledger.creates[-2::-1]), instance.id)
    return reply({"success": is_started, "new_contract": reported, "instance_api_key": MASK})


def create_twice(
    simulation: Simulation, request: EmulatorRequest, listing: EmulatedListing, first: EmulatedInstance
) -> EmulatorReply:
    """Apply the request twice: a second contract with the same label, which the answer does not mention.

    The twin is on a machine that is not on the market, so that the two do not share GPUs.
    """
    spare_machine = replace(listing.machine, id=simulation.market.id_sequences.next("machine"), holders={}, slices=[])
    twin_listing = EmulatedListing(
        listing.id, spare_machine, replace(listing.slice, row=listing.slice.row | {"machine_id": spare_machine.id})
    )
    twin = simulation.fleet.create(twin_listing, first.body, request.now)
    reported = twin if request.fault is not None and request.fault.get("tells", "first") == "second" else first
    return reply({"success": True, "new_contract": reported.id, "instance_api_key": MASK})


def can_start(listing: EmulatedListing, body: dict[str, Any]) -> bool:
    """Whether the GPUs are available: not rented out, and the bid is high enough."""
    price = body.get("price")
    return bool(listing.slice.row["rentable"]) and (price is None or price >= listing.slice.min_bid_usd_hour)


def apply_lifecycle_fault(simulation: Simulation, instance: EmulatedInstance, fault: Fault | None) -> None:
    """Let a fault decide how the new instance ends, or its real hardware."""
    if fault is not None and fault.kind in LIFECYCLE_FAULTS:
        simulation.fleet.inject_fault(instance, fault.kind, float(fault.get("after_s", 0.0)))
    if fault is not None and fault.kind == "other_hardware":
        instance.overrides = dict(fault.settings) or {"gpu_name": "RTX 3090", "gpu_ram": 24576, "gpu_totalram": 24576}


def path_ask_id(request: EmulatorRequest) -> int:
    """Return the offer id in the path."""
    if not request.ids[0].isdigit():
        raise bad_create(None, "error 400/3467: Invalid args: 'id' is required and must be a valid offer ID")
    return int(request.ids[0])


def validate_create(ask_id: int, body: dict[str, Any]) -> dict[str, Any]:
    """Check a create's body; returns the disk as a number, by default 10 GB."""
    if not body.get("image") and not (body.get("template_hash_id") or body.get("template_id")):
        raise bad_create(ask_id, "error 400/3468: Invalid args: 'image' is required without a template")
    for problem in create_problems(body):
        raise bad_create(ask_id, f"error 400/3469: Invalid args: {problem}")
    price = body.get("price")
    if price is not None and (not is_number(price) or not BID_RANGE[0] <= price <= BID_RANGE[1]):
        raise bad_create(ask_id, "Invalid price", "invalid_price")
    return body | {"disk": float(body.get("disk") or 10.0)}


def create_problems(body: dict[str, Any]) -> list[str]:
    """List what is wrong with a create's body, except image and price."""
    disk, label, env = body.get("disk"), body.get("label"), body.get("env")
    onstart, runtype = body.get("onstart"), body.get("runtype")
    checks = {
        "'client_id' must be 'me'": body.get("client_id", "me") == "me",
        "'image' must be text": isinstance(body.get("image") or "", str),
        f"'disk' must be a number of at least {MIN_DISK_GB:g}": disk is None
        or (is_number(disk) and disk >= MIN_DISK_GB),
        "label_too_long": label is None or (isinstance(label, str) and len(label) <= MAX_LABEL_CREATE),
        "'env' must be an object of texts": env is None or is_env(env),
        f"'onstart' is limited to {MAX_ONSTART} characters": onstart is None or len(str(onstart)) <= MAX_ONSTART,
        "'runtype' is not known": runtype is None or runtype in RUNTYPES,
        "'template_hash_id' must be text": isinstance(body.get("template_hash_id") or "", str),
        "'image_login' must be text": isinstance(body.get("image_login") or "", str),
        "'volume_info' must be an object": isinstance(body.get("volume_info") or {}, dict),
        "'args' must be a list of texts": is_text_list(body.get("args") or []),
        "'args_str' must be text": isinstance(body.get("args_str") or "", str),
        "'cancel_unavail' must be a boolean": isinstance(body.get("cancel_unavail", False), bool),
        "'target_state' must be running or stopped": body.get("target_state", "running") in ("running", "stopped"),
    }
    return [problem for problem, is_valid in checks.items() if not is_valid]


def is_text_list(value: Any) -> bool:
    """Accept a list of texts."""
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def is_env(env: Any) -> bool:
    """Accept both recorded forms: an object of texts, and a text of docker flags."""
    return isinstance(env, str) or (isinstance(env, dict) and all(isinstance(value, str) for value in env.values()))


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a JSON value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def require_credit(simulation: Simulation, ask_id: int, now: float) -> None:
    """Refuse a create without enough credit."""
    if not simulation.fleet.can_pay(now):
        raise bad_create(ask_id, "You lack credit, see the billing page.", "insufficient_credit")


def bulk_create(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """POST asks/bulk/: the same for several offers."""
    ids = request.body().get("ids")
    if not isinstance(ids, list) or not 0 < len(ids) <= 64:
        raise refuse(400, "invalid_args", "ids must be a list of 1 to 64 offers")
    results, created = [], 0
    for ask_id in ids:
        try:
            body = validate_create(int(ask_id), request.body())
            listing = simulation.market.listings.get(int(ask_id))
            if listing is None:
                raise offer_gone(int(ask_id), "404-spec")
            instance = simulation.fleet.create(listing, body, request.now)
            results.append({"ask_id": ask_id, "success": True, "new_contract": instance.id})
            created += 1
        except (ValueError, RefusedRequest):
            results.append({"ask_id": ask_id, "success": False, "error": "no_such_ask"})
    return reply({"success": created == len(ids), "results": results, "created": created, "failed": len(ids) - created})


def instance_of(simulation: Simulation, contract: int) -> EmulatedInstance:
    """Return a living instance.

    Raises:
        RefusedRequest: 404, it is gone or never existed.
    """
    instance = simulation.fleet.alive.get(contract)
    if instance is None:
        raise no_such_instance(contract)
    return instance


def change(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT instances/{id}/: a new state, a new label, or both."""
    instance = instance_of(simulation, request.path_id())
    body = request.body()
    if "label" in body:
        set_label(instance, body["label"], request.now)
    return set_state(simulation, instance, body["state"], request.now) if "state" in body else reply({"success": True})


def set_label(instance: EmulatedInstance, label: Any, now: float) -> None:
    """Change the label of an instance."""
    if label is not None and not isinstance(label, str):
        raise bare_refusal(400, "invalid_args", "label must be a string")
    if label and len(label) > MAX_LABEL_CHANGE:
        raise bare_refusal(400, "invalid_args", "label_too_long")
    instance.label = label
    instance.record_snapshot(now)


def set_state(simulation: Simulation, instance: EmulatedInstance, state: Any, now: float) -> EmulatorReply:
    """Start or stop an instance; a start may have to wait for its GPUs."""
    if state == "stopped":
        simulation.fleet.stop(instance, now)
    elif state == "running":
        if not simulation.fleet.can_pay(now):
            raise refuse(400, "missing_billing", "You lack credit, see the billing page.")
        if instance.expired_at is not None:
            raise refuse(400, "invalid_args", "Instance has expired and cannot be started.")
        if not simulation.fleet.start(instance, now):
            return reply({"success": False, "error": "resources_unavailable", "msg": QUEUED_MESSAGE})
    else:
        raise refuse(400, None, "Invalid target state")
    return reply({"success": True})


def bulk_change(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT instances/: the same state for up to 64 instances."""
    body = request.body()
    ids = body.get("ids")
    if not isinstance(ids, list) or len(ids) > 64:
        raise refuse(400, "invalid_args", "ids must be a list of at most 64 instances")
    for contract in require_ids(ids):
        set_state(simulation, instance_of(simulation, contract), body.get("state"), request.now)
    return reply({"success": True})


def destroy(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """DELETE instances/{id}/: for good, including its disk."""
    instance = instance_of(simulation, request.path_id())
    if request.has_fault("undead") and request.fault is not None:
        return fake_destroy(simulation, request.fault, instance, request.now)
    simulation.fleet.destroy(instance, request.now)
    return reply({"success": True})


def fake_destroy(simulation: Simulation, fault: Fault, instance: EmulatedInstance, now: float) -> EmulatorReply:
    """Report an instance as destroyed, but keep it: for `after_s` seconds, or for ever without that."""

    def destroy_now() -> None:
        if instance.id in simulation.fleet.alive:
            simulation.fleet.destroy(instance, simulation.clock())

    if fault.get("after_s", None) is not None:
        simulation.delayed_effects.append((now + float(fault.get("after_s", 0.0)), destroy_now))
    return reply({"success": True})


def accept_increase(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT instances/accept-price-increase/: the new rate, from the contract's present end on."""
    increase_id = path_increase_id(simulation, request)
    contract = simulation.fleet.accept(increase_id, request.now)
    return reply({"success": True, "pending_price_increase_id": increase_id, "contract_id": contract})


def reject_increase(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT instances/reject-price-increase/: nothing changes, the contract ends as planned."""
    increase_id = path_increase_id(simulation, request)
    contract = simulation.fleet.increases.settle(increase_id, "rejected").contract_id
    return reply({"success": True, "pending_price_increase_id": increase_id, "contract_id": contract})


def path_increase_id(simulation: Simulation, request: EmulatorRequest) -> int:
    """Return the announcement that the body names.

    Raises:
        RefusedRequest: 400 unless the body has only that number; 404 for one that is not pending.
    """
    body = request.body()
    increase_id = body.get("pending_price_increase_id")
    if set(body) != {"pending_price_increase_id"} or not isinstance(increase_id, int) or isinstance(increase_id, bool):
        raise bare_refusal(400, "invalid_request", "Error in request body: pending_price_increase_id and nothing else")
    if increase_id not in simulation.fleet.increases.pending:
        raise refuse(404, "no_pending_price_increase", "No pending price increase.")
    return increase_id


def bulk_destroy(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """DELETE instances/: several at once; skips those that are already gone."""
    ids = request.body().get("instance_ids")
    if not isinstance(ids, list):
        raise refuse(400, "invalid_args", "instance_ids must be a list")
    for contract in require_ids(ids):
        instance = simulation.fleet.alive.get(contract)
        if instance is not None:
            simulation.fleet.destroy(instance, request.now)
    return reply({"success": True})


def require_ids(ids: list[Any]) -> list[int]:
    """Check a list of ids."""
    if not all(isinstance(one, int) for one in ids):
        raise refuse(400, "invalid_args", "invalid instance_id")
    return ids


def set_bid(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT instances/bid_price/{id}/: a new bid for a spot contract."""
    instance = instance_of(simulation, request.path_id())
    price = request.body().get("price")
    if not instance.is_bid:
        raise bare_refusal(400, "invalid_args", "Can't change price of on-demand contract.")
    if price is None or not is_number(price) or price < BID_RANGE[0]:
        raise refuse(400, "invalid_args", "Please set a bid price >= 0.001.")
    simulation.fleet.set_bid(instance, float(price), request.now)
    return reply({"success": True})


def reboot(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT instances/reboot/{id}/ and recycle: the container restarts."""
    instance = instance_of(simulation, request.path_id())
    if instance.actual_status != "running":
        raise refuse(400, "invalid_args", "Instance is not running.")
    simulation.fleet.reboot(instance, request.now)
    return reply({"success": True})
