"""The endpoints that list instances, and every way in which a list can be wrong."""

from __future__ import annotations

from typing import Any

from gpuwatch.emulator.answers import EmulatorReply, refuse, reply
from gpuwatch.emulator.contracts import describe, label_counts, listed, page
from gpuwatch.emulator.instance import EmulatedInstance
from gpuwatch.emulator.request import EmulatorRequest, Fault
from gpuwatch.emulator.simulation import Simulation

# source: sentence from the official documentation's generated specification, 2026-08
V0_CLOSED = "Endpoint deprecated: /api/v0/instances/ is deprecated. Use /api/v1/instances/ instead."
LIES = frozenset(
    ["list_lag", "list_omits", "list_empty", "page_cut", "rows_twice", "rows_shuffled", "page_overlap", "page_twice"]
)


def instances_v1(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET v1 instances/: pages of at most 25, with counts over all of them."""
    cap, wish = simulation.options.page_cap, request.param("limit", simulation.options.page_cap)
    limit = 5 if not isinstance(wish, int) or wish <= 0 else min(wish, cap)
    filters, order = request.param("select_filters"), request.param("order_by")
    rows = listed(visible(simulation, request), filters, order)
    cut, token = page(rows, limit, request.params.get("after_token"))
    lie = request.quirk if request.quirk is not None and request.quirk.kind in LIES else None
    if lie is not None:
        rows, cut, token = lied(lie, rows, cut, token, limit, request)
        if lie.get("counts", "shown") == "true":
            rows = listed([describe(one, request.now) for one in simulation.fleet.alive.values()], filters, order)
    return reply(
        {
            "success": True,
            "total_instances": len(rows),
            "instances_found": len(cut),
            "label_counts": label_counts(rows),
            "instances": chosen_columns(cut, request.param("select_cols")),
            "next_token": token,
        }
    )


Rows = list[dict[str, Any]]


def lied(
    lie: Fault, rows: Rows, cut: Rows, token: str | None, limit: int, request: EmulatorRequest
) -> tuple[Rows, Rows, str | None]:
    """Falsify a list; returns all rows (for the counts), the page, and its token."""
    match lie.kind:
        case "list_empty":
            return [], [], None
        case "page_cut":
            return rows, cut[: len(cut) // 2], None
        case "rows_twice":
            return twice(rows), twice(cut), token
        case "rows_shuffled":
            half = len(cut) // 2
            return rows, [*reversed(cut[half:]), *cut[:half]], token
        case "page_overlap":
            return rows, overlapped(rows, cut, int(lie.get("rows", 3))), token
        case "page_twice" if request.params.get("after_token"):
            first, again = page(rows, limit, None)
            return rows, first, again
        case _:
            return rows, cut, token


def twice(rows: Rows) -> Rows:
    """Show every row twice."""
    return [row for row in rows for _ in range(2)]


def overlapped(rows: Rows, cut: Rows, count: int) -> Rows:
    """Begin a page with the last rows of the previous page."""
    if not cut:
        return cut
    start = rows.index(cut[0])
    return rows[max(0, start - count) : start] + cut


def chosen_columns(rows: Rows, columns: Any) -> Rows:
    """Keep the requested columns; all of them for `["*"]` or nothing."""
    if not isinstance(columns, list) or not columns or "*" in columns:
        return rows
    return [{name: row[name] for name in map(str, columns) if name in row} for row in rows]


def visible(simulation: Simulation, request: EmulatorRequest) -> Rows:
    """Return the visible instances: delayed if there is a lag, and without those that are omitted for a while."""
    lag = simulation.options.list_lag_s
    if request.has_quirk("list_lag") and request.quirk is not None:
        lag = float(request.quirk.get("seconds", 30.0))
    then = request.now - lag
    fleet = simulation.fleet
    everyone = [*fleet.gone.values(), *fleet.alive.values()] if lag else list(fleet.alive.values())
    shown = [one for one in everyone if one.created_at <= then < one.ended_at and not omitted(simulation, request, one)]
    return [describe(one.as_of(then) if lag else one, then) for one in sorted(shown, key=lambda one: one.id)]


def omitted(simulation: Simulation, request: EmulatorRequest, instance: EmulatedInstance) -> bool:
    """Whether an instance is too young for a list."""
    seconds = simulation.options.list_omits_s
    if request.has_quirk("list_omits") and request.quirk is not None:
        seconds = float(request.quirk.get("seconds", 30.0))
    return request.now < instance.created_at + seconds


def instances_v0(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET v0 instances/: closed for accounts created since June 2026."""
    if simulation.options.new_account:
        raise refuse(410, "deprecated_endpoint", V0_CLOSED)
    return reply({"instances": visible(simulation, request)})


def instance(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET instances/{id}/: an object under a plural name, null when it is gone."""
    found = simulation.fleet.alive.get(request.contract())
    if found is None or request.has_quirk("instance_null"):
        return reply({"instances": None})
    if simulation.options.omits_single and omitted(simulation, request, found):
        return reply({"instances": None})
    return reply({"instances": describe(found, request.now)})
