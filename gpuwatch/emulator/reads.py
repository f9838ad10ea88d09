"""The endpoints that only read: search, GPU names, instances, account, charges."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from gpuwatch.emulator.answers import Reply, bare, refuse, reply, text
from gpuwatch.emulator.contracts import describe, label_counts, listed, page
from gpuwatch.emulator.exchange import Exchange
from gpuwatch.emulator.hardware import GPUS
from gpuwatch.emulator.instances import GPU_BILLED
from gpuwatch.emulator.orders import instance_of
from gpuwatch.emulator.request import Request, decode

# source: sentence from the official documentation's generated specification, 2026-08
V0_CLOSED = "Endpoint deprecated: /api/v0/instances/ is deprecated. Use /api/v1/instances/ instead."


def search_get(exchange: Exchange, request: Request) -> Reply:
    """GET bundles/?q={…}: what stands beside `q` has no effect."""
    return search(exchange, request, decode(request.params["q"]) if "q" in request.params else {})


def search_post(exchange: Exchange, request: Request) -> Reply:
    """POST bundles/: the query is the body; one wrapped in `q` finds nothing, without a word."""
    query = request.decoded()
    if isinstance(query, dict) and "q" in query:
        return reply({"offers": []})
    return search(exchange, request, query)


def search_asks(exchange: Exchange, request: Request) -> Reply:
    """PUT search/asks/: the second door, with the query under `q`."""
    return search(exchange, request, request.body().get("q") or {})


def search(exchange: Exchange, request: Request, query: Any) -> Reply:
    """Answer a search, counting its rows against the day's quota."""
    identity = request.key or request.address
    spent = exchange.limits.quota(identity, request.now)
    if spent is not None:
        return spent
    answer = exchange.search.answer(query, request.now, request.keyed)
    exchange.limits.count(identity, answer.rows, request.now)
    if exchange.options.rows_per_day is None:
        return answer
    left = max(0, exchange.options.rows_per_day - exchange.limits.rows_today(identity, request.now))
    return replace(answer, headers=(("X-RateLimit-Remaining", str(left)),))


def gpu_names(exchange: Exchange, _: Request) -> Reply:
    """GET gpu_names/unique/: every name that is or could be on offer."""
    listed_now = {listing.slice.row["gpu_name"] for listing in exchange.market.listings.values()}
    return reply({"gpu_names": sorted(listed_now | {gpu.name for gpu in GPUS})})


def gpu_types(_: Exchange, __: Request) -> Reply:
    """GET gpu_types/: names with their memory."""
    return reply({"gpu_types": [{"name": gpu.name, "gpu_ram_mb": gpu.ram_mib} for gpu in GPUS]})


def instances_v1(exchange: Exchange, request: Request) -> Reply:
    """GET v1 instances/: pages of at most 25, with counts over all of them."""
    now = request.now
    everything = [describe(one, now) for one in visible(exchange, request)]
    rows = listed(everything, request.param("select_filters"), request.param("order_by"))
    limit = request.param("limit", exchange.options.page_cap)
    limit = 5 if not isinstance(limit, int) or limit <= 0 else min(limit, exchange.options.page_cap)
    cut, token = page(rows, limit, request.params.get("after_token"))
    body = {
        "success": True,
        "total_instances": len(rows),
        "instances_found": len(cut),
        "label_counts": label_counts(rows),
        "instances": chosen_columns(cut, request.param("select_cols")),
        "next_token": token,
    }
    if request.has_quirk("page_cut"):
        body |= {"instances": cut[: len(cut) // 2], "next_token": None}
    if request.has_quirk("list_empty"):
        body |= {"instances": [], "instances_found": 0, "total_instances": 0, "label_counts": {}, "next_token": None}
    return reply(body)


def chosen_columns(rows: list[dict[str, Any]], columns: Any) -> list[dict[str, Any]]:
    """Keep the asked columns; all of them for `["*"]` or nothing."""
    if not isinstance(columns, list) or not columns or "*" in columns:
        return rows
    return [{name: row[name] for name in map(str, columns) if name in row} for row in rows]


def visible(exchange: Exchange, request: Request) -> list[Any]:
    """Answer what a list shows: with a lag, young instances are missing and destroyed ones still there."""
    lag = exchange.options.list_lag_s
    if request.has_quirk("list_lag") and request.quirk is not None:
        lag = float(request.quirk.get("seconds", 30.0))
    then = request.now - lag
    shown = [one for one in exchange.fleet.alive.values() if lag == 0 or one.created_at <= then]
    if lag:
        ended = {entry.instance_id: entry.at for entry in exchange.ledger.destroys}
        shown += [one for one in exchange.fleet.gone.values() if one.created_at <= then < ended[one.id]]
    return shown


def instances_v0(exchange: Exchange, request: Request) -> Reply:
    """GET v0 instances/: closed for accounts made since June 2026."""
    if exchange.options.new_account:
        raise refuse(410, "deprecated_endpoint", V0_CLOSED)
    return reply({"instances": [describe(one, request.now) for one in visible(exchange, request)]})


def instance(exchange: Exchange, request: Request) -> Reply:
    """GET instances/{id}/: an object under a plural name, null when it is gone."""
    found = exchange.fleet.alive.get(request.contract())
    if found is None or request.has_quirk("instance_null"):
        return reply({"instances": None})
    return reply({"instances": describe(found, request.now)})


def user(exchange: Exchange, request: Request) -> Reply:
    """GET users/current/: credit and what the account is."""
    keys = exchange.account.ssh_keys
    credit = round(exchange.fleet.credit(request.now), 6)
    return reply(
        {
            "id": 123456,
            "key_id": 654321,
            "email": exchange.account.email,
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


def spend_rate(exchange: Exchange, _: Request) -> Reply:
    """GET users/spend-rate/: what is burnt per hour just now."""
    alive = list(exchange.fleet.alive.values())
    gpu = sum(one.base_usd_hour for one in alive if one.actual_status in GPU_BILLED)
    return reply(
        {
            "gpu_cost_per_hour": gpu,
            "container_storage_cost_per_hour": sum(one.disk_usd_hour for one in alive),
            "volume_storage_cost_per_hour": 0.0,
            "has_active_resources": bool(alive),
        }
    )


def charges(exchange: Exchange, request: Request) -> Reply:
    """GET charges/: what every instance cost; a day range is required."""
    filters = request.param("select_filters")
    day = filters.get("day") if isinstance(filters, dict) else request.param("day")
    if not isinstance(day, dict) or not {"gte", "lte"} <= set(day):
        raise refuse(400, None, "Must provide both 'day' gte and lte filters for instance charges")
    every = {**exchange.fleet.gone, **exchange.fleet.alive}
    rows = [charge_of(exchange, contract, request.now) for contract in sorted(every)]
    return reply({"success": True, "count": len(rows), "total": len(rows), "next_token": None, "results": rows})


def charge_of(exchange: Exchange, contract: int, now: float) -> dict[str, Any]:
    """Answer one instance's line of the charges."""
    one = exchange.fleet.alive.get(contract) or exchange.fleet.gone[contract]
    return {
        "start": int(one.created_at),
        "end": int(now),
        "type": "instance",
        "source": f"instance-{contract}",
        "description": f"Instance {contract} Charges",
        "amount": round(float(exchange.ledger.spent_usd(now, contract)), 6),
        "metadata": {"template_id": None, "label": one.label, "endpoint_id": None, "workergroup_id": None},
        "items": [],
    }


def ssh_list(exchange: Exchange, _: Request) -> Reply:
    """GET ssh/: the account's public keys, a bare list."""
    return reply(exchange.account.ssh_keys)


def ssh_add(exchange: Exchange, request: Request) -> Reply:
    """POST ssh/: one more public key, once."""
    key = request.body().get("ssh_key")
    if not isinstance(key, str) or not key.startswith(("ssh-", "ecdsa-", "sk-")):
        raise refuse(400, "invalid_args", "Invalid SSH key")
    if any(one["public_key"] == key for one in exchange.account.ssh_keys):
        raise refuse(400, "duplicate", "SSH key already exists")
    made = {"id": len(exchange.account.ssh_keys) + 1, "public_key": key, "created_at": request.now}
    exchange.account.ssh_keys.append(made)
    return reply({"success": True, "key": made})


def request_logs(exchange: Exchange, request: Request) -> Reply:
    """PUT instances/request_logs/{id}/: a place where the log will be in a moment."""
    one = instance_of(exchange, request.contract())
    return reply({"success": True, "result_url": f"{request.params.get('_base', '')}/logs/{one.id}/{request.now}/"})


def log_file(exchange: Exchange, request: Request) -> Reply:
    """GET the log itself: 403 at first, there a moment later."""
    contract, asked_at = request.ids
    if request.now - float(asked_at) < 0.2:
        return text("AccessDenied", 403, "application/xml")
    one = exchange.fleet.alive.get(int(contract)) or exchange.fleet.gone.get(int(contract))
    return text(f"container {contract}: {one.status_msg if one else 'gone'}\n", 200)


def price_increases(_: Exchange, __: Request) -> Reply:
    """GET instances/pending-price-increases/: hosts announce none here."""
    return reply({"success": True, "pending_price_increases": []})


def bid_price(exchange: Exchange, request: Request) -> Reply:
    """PUT bundles_bid_price/{id}/: the lowest bid of an offer."""
    listing = exchange.market.listings.get(request.contract())
    if listing is None:
        raise bare(404, "no_such_ask", f"Offer {request.contract()} does not exist or is not available.")
    return Reply(200, msgspec.json.encode({"success": True, "min_bid": listing.slice.min_bid_usd_hour}))
