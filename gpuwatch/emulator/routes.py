"""Maps paths to endpoints, and checks who may call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpuwatch.emulator.answers import EmulatorReply, RefusedRequest, bad_key, no_key, refuse
from gpuwatch.emulator.endpoints import account_endpoints, lists, orders, reads
from gpuwatch.emulator.endpoints.charges import charges
from gpuwatch.emulator.limits import SEARCHES
from gpuwatch.emulator.request import EmulatorRequest
from gpuwatch.emulator.simulation import Simulation

Handler = Callable[[Simulation, EmulatorRequest], EmulatorReply]


class Route(NamedTuple):
    """One endpoint: its name for faults and limits, its handler, and whether it needs a key."""

    endpoint: str
    handle: Handler
    needs_key: bool = True


# `*` stands for one segment of the path; it becomes an id.
ROUTES: dict[tuple[str, str], Route] = {
    ("GET", "/api/v0/bundles/"): Route("search_get", reads.search_get, False),
    ("POST", "/api/v0/bundles/"): Route("search_post", reads.search_post, False),
    ("PUT", "/api/v0/search/asks/"): Route("search_asks", reads.search_asks, False),
    ("PUT", "/api/v0/bundles_bid_price/*/"): Route("bundles_bid_price", reads.bid_price, False),
    ("GET", "/api/v0/gpu_names/unique/"): Route("gpu_names", reads.gpu_names, False),
    ("GET", "/api/v0/gpu_types/"): Route("gpu_types", reads.gpu_types, False),
    ("PUT", "/api/v0/asks/*/"): Route("create", orders.create),
    ("POST", "/api/v0/asks/bulk/"): Route("bulk_create", orders.bulk_create),
    ("GET", "/api/v1/instances/"): Route("instances", lists.instances_v1),
    ("GET", "/api/v0/instances/"): Route("instances_v0", lists.instances_v0),
    ("PUT", "/api/v0/instances/"): Route("bulk_change", orders.bulk_change),
    ("DELETE", "/api/v0/instances/"): Route("bulk_destroy", orders.bulk_destroy),
    ("GET", "/api/v0/instances/*/"): Route("instance", lists.instance),
    ("PUT", "/api/v0/instances/*/"): Route("change", orders.change),
    ("DELETE", "/api/v0/instances/*/"): Route("destroy", orders.destroy),
    ("GET", "/api/v0/instances/pending-price-increases/"): Route("price_increases", reads.price_increases),
    ("PUT", "/api/v0/instances/accept-price-increase/"): Route("accept_increase", orders.accept_increase),
    ("PUT", "/api/v0/instances/reject-price-increase/"): Route("reject_increase", orders.reject_increase),
    ("PUT", "/api/v0/instances/bid_price/*/"): Route("bid", orders.set_bid),
    ("PUT", "/api/v0/instances/reboot/*/"): Route("reboot", orders.reboot),
    ("PUT", "/api/v0/instances/recycle/*/"): Route("recycle", orders.reboot),
    ("PUT", "/api/v0/instances/request_logs/*/"): Route("request_logs", reads.request_logs),
    ("GET", "/logs/*/*/"): Route("log_file", reads.log_file, False),
    ("GET", "/api/v0/users/current/"): Route("user", reads.user),
    ("GET", "/api/v0/users/spend-rate/"): Route("spend_rate", reads.spend_rate),
    ("GET", "/api/v0/charges/"): Route("charges", charges),
    ("GET", "/api/v0/ssh/"): Route("ssh", reads.ssh_list),
    ("POST", "/api/v0/ssh/"): Route("ssh_add", reads.ssh_add),
    ("GET", "/api/v0/instances/*/ssh/"): Route("attached_keys", account_endpoints.attached_keys),
    ("POST", "/api/v0/instances/*/ssh/"): Route("attach_key", account_endpoints.attach_key),
    ("DELETE", "/api/v0/instances/*/ssh/*/"): Route("detach_key", account_endpoints.detach_key),
    ("PUT", "/api/v0/instances/prepay/*/"): Route("prepay", account_endpoints.prepay),
    ("GET", "/api/v0/template/"): Route("templates", account_endpoints.templates),
    ("POST", "/api/v0/template/"): Route("create_template", account_endpoints.create_template),
    ("DELETE", "/api/v0/template/"): Route("delete_template", account_endpoints.delete_template),
    ("GET", "/api/v1/invoices/"): Route("invoices", account_endpoints.invoices),
    ("GET", "/api/v0/users/me/invoices/"): Route("invoices_v0", account_endpoints.invoices_v0),
}
ENDPOINTS = frozenset(route.endpoint for route in ROUTES.values())
_PATTERNS = sorted(
    ((method, pattern.split("/"), route) for (method, pattern), route in ROUTES.items() if "*" in pattern), key=str
)


def find_route(request: EmulatorRequest) -> Route | None:
    """Find the endpoint of a request, and store its ids in the request."""
    exact = ROUTES.get((request.method, request.path))
    if exact is not None:
        return exact
    segments = request.path.split("/")
    for method, pattern, route in _PATTERNS:
        if method == request.method and len(segments) == len(pattern) and path_matches(segments, pattern):
            request.ids = tuple(part for part, expected in zip(segments, pattern, strict=True) if expected == "*")
            return route
    return None


def path_matches(segments: list[str], pattern: list[str]) -> bool:
    """Whether every segment equals the pattern's, or the pattern allows any."""
    return all((expected == "*" and part) or expected == part for part, expected in zip(segments, pattern, strict=True))


def handle(simulation: Simulation, request: EmulatorRequest) -> EmulatorReply:
    """Answer a request after its faults were applied; runs under the simulation's lock."""
    with simulation.lock:
        request.now = simulation.settle()
        route = find_route(request)
        if route is None:
            return refuse(404, "not_found", "Not found").reply
        try:
            check_key(simulation, request, route)
            too_soon = simulation.limits.interval_refusal(route.endpoint, request.key or request.address, request.now)
            return too_soon or route.handle(simulation, request)
        except RefusedRequest as refusal:
            return refusal.reply
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            # An unexpected error is an answer, too; its code distinguishes it from errors of the marketplace.
            return refuse(500, "emulator_fault", f"{type(error).__name__}: {error}").reply


def check_key(simulation: Simulation, request: EmulatorRequest, route: Route) -> None:
    """Refuse a wrong key everywhere, and a missing key if one is needed.

    Raises:
        RefusedRequest: 404 at the search, 401 elsewhere, or as `bad_key_status` states; 403 without a key.
    """
    if request.key is None:
        if route.needs_key:
            raise no_key()
        return
    if request.key != simulation.options.key:
        default_status = 404 if route.endpoint in SEARCHES else 401
        raise bad_key(simulation.options.bad_key_status or default_status)
    request.keyed = True
