"""The endpoints that only read: search, GPU names, account, keys, logs, announced price increases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from gpuwatch.emulator.answers import EmulatorReply, bare_refusal, refuse, reply, text_reply
from gpuwatch.emulator.endpoints.orders import instance_of
from gpuwatch.emulator.instances.emulated_instance import GPU_BILLED
from gpuwatch.emulator.market.hardware import GPUS
from gpuwatch.emulator.request import EmulatorRequest, decode
from gpuwatch.emulator.simulation import Simulation


def search_get(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET bundles/?q={…}: other parameters than `q` have no effect."""
    return search(simulation, request, decode(request.params["q"]) if "q" in request.params else {})


def search_post(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """POST bundles/: the query is the body; a query inside `q` finds nothing, without an error."""
    query = request.decode_body()
    if isinstance(query, dict) and "q" in query:
        return reply({"offers": []})
    return search(simulation, request, query)


def search_asks(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT search/asks/: the second endpoint, with the query under `q`."""
    return search(simulation, request, request.body().get("q") or {})


def search(simulation: Simulation, request: EmulatorRequest, query: Any) -> EmulatorReply:
    """Answer a search, and count its rows against the day's quota."""
    identity = request.key or request.address
    refusal = simulation.limits.quota_refusal(identity, request.now)
    if refusal is not None:
        return refusal
    answer = simulation.search.answer(query, request.now, request.keyed)
    simulation.limits.count_rows(identity, answer.rows, request.now)
    if simulation.options.rows_per_day is None:
        return answer
    remaining = max(0, simulation.options.rows_per_day - simulation.limits.rows_today(identity, request.now))
    return replace(answer, headers=(("X-RateLimit-Remaining", str(remaining)),))


def gpu_names(simulation: Simulation, _: EmulatorRequest) -> EmulatorReply:
    """GET gpu_names/unique/: every name that is or could be on offer."""
    listed_names = {listing.slice.row["gpu_name"] for listing in simulation.market.listings.values()}
    return reply({"gpu_names": sorted(listed_names | {gpu.name for gpu in GPUS})})


def gpu_types(_: Simulation, __: EmulatorRequest) -> EmulatorReply:
    """GET gpu_types/: names with their memory."""
    return reply({"gpu_types": [{"name": gpu.name, "gpu_ram_mb": gpu.ram_mib} for gpu in GPUS]})


def user(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET users/current/: credit and account data."""
    keys = simulation.account.ssh_keys
    credit = round(simulation.fleet.credit(request.now), 6)
    return reply(
        {
            "id": simulation.options.account_id,
            "key_id": 654321,
            "email": simulation.account.email,
            "username": "renter",
            "fullname": "Example Renter",
            "credit": credit,
            "balance": 0.0,
            "balance_threshold": 10.0,
            "balance_threshold_enabled": True,
            "can_pay": credit > 0,
            "has_billing": True,
            "last4": "4242",
            "billaddress_line1": None,
            "billaddress_line2": None,
            "billaddress_city": None,
            "billaddress_zip": None,
            "billaddress_country": "DE",
            "billed_expected": 0.0,
            "billed_verified": None,
            "paid_expected": 0.0,
            "paid_verified": None,
            "ssh_key": keys[0]["public_key"] if keys else "",
            "sid": "0000000000000000",
            "api_key": "masked",
        }
    )


def spend_rate(simulation: Simulation, _: EmulatorRequest) -> EmulatorReply:
    """GET users/spend-rate/: the current hourly cost."""
    alive = list(simulation.fleet.alive.values())
    gpu = sum(one.base_usd_hour for one in alive if one.actual_status in GPU_BILLED)
    return reply(
        {
            "gpu_cost_per_hour": gpu,
            "container_storage_cost_per_hour": sum(one.disk_usd_hour for one in alive),
            "volume_storage_cost_per_hour": 0.0,
            "has_active_resources": bool(alive),
        }
    )


def ssh_list(simulation: Simulation, _: EmulatorRequest) -> EmulatorReply:
    """GET ssh/: the account's public keys, a bare list."""
    return reply(simulation.account.ssh_keys)


def ssh_add(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """POST ssh/: add a public key, once."""
    key = request.body().get("ssh_key")
    if not isinstance(key, str) or not key.startswith(("ssh-", "ecdsa-", "sk-")):
        raise refuse(400, "invalid_args", "Invalid SSH key")
    if any(ssh_key["public_key"] == key for ssh_key in simulation.account.ssh_keys):
        raise refuse(400, "duplicate", "SSH key already exists")
    key_row = {"id": len(simulation.account.ssh_keys) + 1, "public_key": key, "created_at": request.now}
    simulation.account.ssh_keys.append(key_row)
    return reply({"success": True, "key": key_row})


def request_logs(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT instances/request_logs/{id}/: a URL where the log will be in a moment."""
    one = instance_of(simulation, request.path_id())
    return reply({"success": True, "result_url": f"{request.params.get('_base', '')}/logs/{one.id}/{request.now}/"})


def log_file(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET the log itself: 403 at first, there a moment later."""
    contract, requested_at = request.ids
    if request.now - float(requested_at) < 0.2:
        return text_reply("AccessDenied", 403, "application/xml")
    one = simulation.fleet.alive.get(int(contract)) or simulation.fleet.ended.get(int(contract))
    return text_reply(f"container {contract}: {one.status_msg if one else 'gone'}\n", 200)


def price_increases(simulation: Simulation, _: EmulatorRequest) -> EmulatorReply:
    """GET instances/pending-price-increases/: announcements without an answer."""
    rows = [one.row() for one in simulation.fleet.increases.pending.values()]
    return reply({"success": True, "count": len(rows), "truncated": False, "pending_price_increases": rows})


def bid_price(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT bundles_bid_price/{id}/: the minimum bid of an offer."""
    listing = simulation.market.listings.get(request.path_id())
    if listing is None:
        raise bare_refusal(404, "no_such_ask", f"Offer {request.path_id()} does not exist or is not available.")
    return EmulatorReply(200, msgspec.json.encode({"success": True, "min_bid": listing.slice.min_bid_usd_hour}))
