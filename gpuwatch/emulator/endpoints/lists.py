"""The endpoints that list instances, and every way in which a list can be wrong."""

from __future__ import annotations

from typing import Any

from gpuwatch.emulator.answers import EmulatorReply, refuse, reply
from gpuwatch.emulator.instances.contracts import filter_and_sort, instance_row, label_counts, paginate
from gpuwatch.emulator.instances.emulated_instance import EmulatedInstance
from gpuwatch.emulator.request import EmulatorRequest, Fault
from gpuwatch.emulator.simulation import Simulation

# source: sentence from the official documentation's generated specification, 2026-08
V0_CLOSED = "Endpoint deprecated: /api/v0/instances/ is deprecated. Use /api/v1/instances/ instead."
LIST_FAULTS = frozenset(
    ["list_lag", "list_omits", "list_empty", "page_cut", "rows_twice", "rows_shuffled", "page_overlap", "page_twice"]
)


def instances_v1(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET v1 instances/: pages of at most 25, with counts over all of them."""
    cap, requested = simulation.options.page_cap, request.param("limit", simulation.options.page_cap)
    limit = 5 if not isinstance(requested, int) or requested <= 0 else min(requested, cap)
    filters, order = request.param("select_filters"), request.param("order_by")
    rows = filter_and_sort(visible_instances(simulation, request), filters, order)
    page_rows, token = paginate(rows, limit, request.params.get("after_token"))
    fault = request.fault if request.fault is not None and request.fault.kind in LIST_FAULTS else None
    if fault is not None:
        rows, page_rows, token = falsify(fault, rows, page_rows, token, limit, request)
        if fault.get("counts", "shown") == "true":
            rows = filter_and_sort(
                [instance_row(one, request.now) for one in simulation.fleet.alive.values()], filters, order
            )
    return reply(
        {
            "success": True,
            "total_instances": len(rows),
            "instances_found": len(page_rows),
            "label_counts": label_counts(rows),
            "instances": select_columns(page_rows, request.param("select_cols")),
            "next_token": token,
        }
    )


Rows = list[dict[str, Any]]


def falsify(
    fault: Fault, rows: Rows, page_rows: Rows, token: str | None, limit: int, request: EmulatorRequest
) -> tuple[Rows, Rows, str | None]:
    """Falsify a list; returns all rows (for the counts), the page, and its token."""
    match fault.kind:
        case "list_empty":
            return [], [], None
        case "page_cut":
            return rows, page_rows[: len(page_rows) // 2], None
        case "rows_twice":
            return repeat_rows(rows), repeat_rows(page_rows), token
        case "rows_shuffled":
            half = len(page_rows) // 2
            return rows, [*reversed(page_rows[half:]), *page_rows[:half]], token
        case "page_overlap":
            return rows, overlap_previous_page(rows, page_rows, int(fault.get("rows", 3))), token
        case "page_twice" if request.params.get("after_token"):
            first_page, first_token = paginate(rows, limit, None)
            return rows, first_page, first_token
        case _:
            return rows, page_rows, token


def repeat_rows(rows: Rows) -> Rows:
    """Show every row twice."""
    return [row for row in rows for _ in range(2)]


def overlap_previous_page(rows: Rows, page_rows: Rows, count: int) -> Rows:
    """Begin a page with the last rows of the previous page."""
    if not page_rows:
        return page_rows
    start = rows.index(page_rows[0])
    return rows[max(0, start - count) : start] + page_rows


def select_columns(rows: Rows, columns: Any) -> Rows:
    """Keep the requested columns; all of them for `["*"]` or nothing."""
    if not isinstance(columns, list) or not columns or "*" in columns:
        return rows
    return [{name: row[name] for name in map(str, columns) if name in row} for row in rows]


def visible_instances(simulation: Simulation, request: EmulatorRequest) -> Rows:
    """Return the visible instances: delayed if there is a lag, and without those that are omitted for a while."""
    lag = simulation.options.list_lag_s
    if request.has_fault("list_lag") and request.fault is not None:
        lag = float(request.fault.get("seconds", 30.0))
    listed_at = request.now - lag
    fleet = simulation.fleet
    instances = [*fleet.ended.values(), *fleet.alive.values()] if lag else list(fleet.alive.values())
    visible = [
        one
        for one in instances
        if one.created_at <= listed_at < one.ended_at and not is_omitted(simulation, request, one)
    ]
    return [
        instance_row(one.as_of(listed_at) if lag else one, listed_at) for one in sorted(visible, key=lambda one: one.id)
    ]


def is_omitted(simulation: Simulation, request: EmulatorRequest, instance: EmulatedInstance) -> bool:
    """Whether an instance is too young for a list."""
    seconds = simulation.options.list_omits_s
    if request.has_fault("list_omits") and request.fault is not None:
        seconds = float(request.fault.get("seconds", 30.0))
    return request.now < instance.created_at + seconds


def instances_v0(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET v0 instances/: closed for accounts created since June 2026."""
    if simulation.options.new_account:
        raise refuse(410, "deprecated_endpoint", V0_CLOSED)
    return reply({"instances": visible_instances(simulation, request)})


def instance(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """GET instances/{id}/: an object under a plural name, null when it is gone."""
    found = simulation.fleet.alive.get(request.path_id())
    if found is None or request.has_fault("instance_null"):
        return reply({"instances": None})
    if simulation.options.omits_single and is_omitted(simulation, request, found):
        return reply({"instances": None})
    return reply({"instances": instance_row(found, request.now)})
