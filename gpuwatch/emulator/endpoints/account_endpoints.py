"""Other requests of the marketplace's own client: keys of one instance, templates, payments, prepayments.

source: the requests and the fields that the official client of 2026-08 sends and reads, and the examples of
docs.vast.ai/api-reference (billing/show-invoices, instances/prepay-instance; read 2026-11-26); the texts are our own.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from gpuwatch.emulator.answers import EmulatorReply, bare_refusal, refuse, reply
from gpuwatch.emulator.endpoints.orders import instance_of, is_number
from gpuwatch.emulator.market.offer_query import OPERATORS
from gpuwatch.emulator.request import EmulatorRequest
from gpuwatch.emulator.simulation import Simulation

KEY_PREFIXES = ("ssh-", "ecdsa-", "sk-")
HOURS_A_MONTH = 720


def attach_key(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """POST instances/{id}/ssh/: add a public key, once."""
    instance = instance_of(simulation, request.path_id())
    key = request.body().get("ssh_key")
    if not isinstance(key, str) or not key.startswith(KEY_PREFIXES):
        raise refuse(400, "invalid_args", "Invalid SSH key")
    keys = simulation.account.instance_keys.setdefault(instance.id, {})
    if key in keys.values():
        raise refuse(400, "duplicate", "SSH key already associated with instance")
    keys[max(keys, default=0) + 1] = key
    return reply({"success": True, "msg": "SSH key added to instance."})


def attached_keys(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET instances/{id}/ssh/: the keys of one instance."""
    keys = simulation.account.instance_keys.get(instance_of(simulation, request.path_id()).id, {})
    return reply({"success": True, "ssh_keys": [{"id": number, "public_key": key} for number, key in keys.items()]})


def detach_key(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """DELETE instances/{id}/ssh/{key}/: by its number in the list."""
    keys = simulation.account.instance_keys.get(instance_of(simulation, request.path_id()).id, {})
    number = request.ids[1]
    if not number.isdigit() or keys.pop(int(number), None) is None:
        raise refuse(404, "not_found", f"SSH key {number:.40} not found")
    return reply({"success": True, "msg": "SSH key removed from instance."})


def templates(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET template/: the account's templates that pass `select_filters`."""
    filters = _filters(request)
    found = [template for template in simulation.account.templates.values() if _matches(template, filters)]
    return reply({"success": True, "templates_found": len(found), "templates": found})


def create_template(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """POST template/: its hash is computed from its contents, so the same contents are the same template."""
    body = request.body()
    if not isinstance(body.get("image"), str) or not body["image"]:
        raise refuse(400, "invalid_args", "Invalid args: 'image' is missing")
    hash_id = hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()[:32]
    stored = simulation.account.templates
    fields = body | {"creator_id": simulation.options.account_id, "created_at": request.now, "count_created": 0}
    number = 1 + max((one["id"] for one in stored.values()), default=0)
    template = stored.setdefault(hash_id, {"id": number, "hash_id": hash_id, **fields})
    return reply({"success": True, "msg": "Template created.", "template": template})


def delete_template(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """DELETE template/: by hash or number."""
    body, stored = request.body(), simulation.account.templates
    criterion = ("hash_id", body["hash_id"]) if body.get("hash_id") else ("id", body.get("template_id"))
    found = [hash_id for hash_id, one in stored.items() if one[criterion[0]] == criterion[1]]
    if not found:
        raise refuse(404, "not_found", "Template not found")
    del stored[found[0]]
    return reply({"success": True, "msg": "Template deleted."})


def invoices(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET v1 invoices/: the one payment behind the account's credit, if its day is requested."""
    filters = _filters(request)
    period, service = filters.get("when", {}), filters.get("service", {})
    bounds = [end for end in (period.get("gte"), period.get("lte")) if is_number(end)]
    if len(bounds) < 2:
        raise refuse(400, None, "Must provide both 'when' gte and lte filters for invoices")
    paid_at = simulation.account.paid_at
    is_requested = bounds[0] <= paid_at <= bounds[1] and _value_matches("stripe_payments", service)
    rows = [_payment(simulation)] if is_requested else []
    return reply({"success": True, "count": len(rows), "total": len(rows), "next_token": None, "results": rows})


def invoices_v0(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET users/me/invoices/: the deprecated endpoint; only payments, because charges are at charges/."""
    paid_at = simulation.account.paid_at
    bounds = [request.param("sdate", 0), request.param("edate", request.now)]
    if not all(is_number(end) for end in bounds):
        raise refuse(400, "invalid_args", "Invalid args: 'sdate' and 'edate' are Unix seconds")
    is_requested = bounds[0] <= paid_at <= bounds[1]
    amount = simulation.options.credit_usd
    row = {"id": 1, "description": "Stripe payment", "quantity": "", "rate": "", "amount": amount, "type": "payment"}
    credit = round(simulation.fleet.credit(request.now), 6)
    current = {"charges": round(amount - credit, 6), "service_fee": 0.0, "total": round(amount - credit, 6)}
    rows = [row | {"timestamp": paid_at, "instance_id": None}] if is_requested else []
    return reply({"success": True, "invoices": rows, "current": current | {"credit": credit}})


def prepay(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """PUT instances/prepay/{id}/: cheaper GPUs from now on; the amount stays in the credit until it is used."""
    instance, amount = instance_of(simulation, request.path_id()), request.body().get("amount")
    if not is_number(amount) or amount <= 0 or instance.is_bid:
        raise refuse(400, "invalid_args", "Invalid args: 'amount' of an on-demand instance")
    if amount > simulation.fleet.credit(request.now):
        raise refuse(400, "insufficient_credit", "You lack credit, see the billing page.")
    months = amount / ((instance.base_usd_hour + instance.disk_usd_hour) * HOURS_A_MONTH)
    rate = _discount_rate(months)
    gpu, disk = instance.base_usd_hour * (1 - rate), instance.row["storage_cost"]
    simulation.fleet.change_rates(instance, gpu, disk, request.now)
    return reply({"success": True, "timescale": months, "discount_rate": rate})


def _filters(request: EmulatorRequest) -> dict[str, dict[str, Any]]:
    """Return the conditions of `select_filters` for each column.

    Raises:
        RefusedRequest: it is not an object of objects of known operators.
    """
    filters = request.param("select_filters") or {}
    if not isinstance(filters, dict) or not all(isinstance(one, dict) for one in filters.values()):
        raise bare_refusal(400, "invalid_request", "Error in query parameters: Input should be a valid dictionary")
    unknown = [op for operations in filters.values() for op in operations if op not in OPERATORS]
    if unknown:
        raise bare_refusal(400, "invalid_request", f"Error in query parameters: unknown operator {unknown[0]:.40}")
    return filters


def _matches(template: dict[str, Any], filters: dict[str, dict[str, Any]]) -> bool:
    """Whether a template has every requested column, with a matching value."""
    return all(
        column in template and _value_matches(template[column], operations) for column, operations in filters.items()
    )


def _value_matches(value: Any, operations: dict[str, Any]) -> bool:
    """Whether a value passes every comparison; values that cannot be compared do not."""
    try:
        return all(OPERATORS[op](value, operand) for op, operand in operations.items())
    except TypeError:
        return False


def _payment(simulation: Simulation) -> dict[str, Any]:
    """Return the row of the payment: incoming money is negative, as in the documented example."""
    paid_at = simulation.account.paid_at
    return {
        "start": paid_at,
        "end": paid_at,
        "type": "credit",
        "source": "stripe",
        "description": "Manual billing from VISA ending in 4242",
        "amount": -simulation.options.credit_usd,
        "metadata": {"invoice_id": 1, "service": "stripe_payments", "last4": "4242", "network": "visa"},
        "items": [],
    }


def _discount_rate(months: float) -> float:
    """Return the discount: the client's 0.2 for one month and 0.3 for three, linear otherwise; at most 0.4."""
    return 0.2 * months if months < 1 else min(0.4, 0.15 + 0.05 * months)
