"""Golden requests: what each adapter of a cloud of machines sends, from a search to the end of an instance.

`make golden` writes `sent/NAME.json` again: method, path, query, headers and body of each request at the stand-in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from gpuwatch.errors import OrderError
from gpuwatch.ports import InstanceLookup, Order, Query
from gpuwatch.ports.prerequisites import PrerequisiteProbe
from gpuwatch.testing import Bench
from gpuwatch.testing.loopback import ReceivedRequest
from tests.checkout import TESTS

CLOUDS: Final = ("hyperstack", "lambda", "primeintellect", "shadeform", "verda", "vultr")
_OWN_HEADERS: Final = frozenset({"host", "connection", "content-length", "accept-encoding", "user-agent"})
_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|(?<=[/\"])[0-9a-f]{16,32}(?=[/\"?]|$)")


def sent_path(name: str) -> Path:
    """Return the path of a provider's golden requests."""
    return TESTS / "providers" / "sent" / f"{name}.json"


def sent_by(bench: Bench) -> dict[str, list[Any]]:
    """Return step → the requests of the adapter, sorted: some are sent in parallel. Ids are replaced."""
    found: dict[str, list[Any]] = {}
    with bench.place() as place, bench.relaying(place.url) as relay, bench.pointed_at(relay.url) as adapter:
        for step, run in _steps(adapter):
            relay.requests.clear()
            run()
            found[step] = sorted(map(_shown, relay.requests), key=json.dumps)
    return found


def _steps(adapter: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    market, launcher, offers = adapter.market, adapter.launcher, []
    yield "search on demand", lambda: offers.extend(market.search(Query()).offers)
    yield "search spot", lambda: market.search(Query(spot=True))
    for offer in offers[:2]:
        order = Order(offer_id=offer.offer_id, label="gpuwatch-abcdefgh2345-x_y Z", image="x/y", disk_gb=137.0)
        started = Order(**{**_fields(order), "onstart": "echo hi", "env": {"NAME": "it's"}, "label": "gpuwatch-2"})
        for variant, one in (("plain", order), ("onstart and env", started)):
            yield f"create {offer.offer_id}, {variant}", lambda one=one: _refused(lambda: launcher.create(one))  # type: ignore[misc]
    created = list(launcher.list_instances())
    yield "list", launcher.list_instances
    if isinstance(launcher, InstanceLookup):
        yield "get", lambda: launcher.get(created[0].instance_id)
    if isinstance(launcher, PrerequisiteProbe):
        orders = [Order(offer_id=offer.offer_id, label="l", image="x/y", disk_gb=1.0) for offer in offers[:1]]
        yield "prerequisites", lambda: launcher.prerequisites(orders)
    yield "credit", launcher.credit_usd
    for instance in created:
        yield f"destroy {_ID.sub('ID', instance.instance_id)}", lambda one=instance: launcher.destroy(one.instance_id)  # type: ignore[misc]
    yield "destroy again", lambda: launcher.destroy(created[0].instance_id)
    yield "list again", launcher.list_instances


def _fields(order: Order) -> dict[str, Any]:
    return {name: getattr(order, name) for name in order.__struct_fields__}


def _refused(attempt: Callable[[], object]) -> None:
    """An order that the provider cannot carry out is refused before it is sent: that is shown as no request."""
    try:
        attempt()
    except OrderError:
        return


def _shown(request: ReceivedRequest) -> Any:
    headers = {name: value for name, value in sorted(request.headers.items()) if name not in _OWN_HEADERS}
    text = request.body.decode()
    return {
        "request": _ID.sub("ID", f"{request.method} {request.target}"),
        "headers": headers,
        "body": json.loads(_ID.sub("ID", text)) if text else None,
    }


def write() -> None:
    """Write all golden requests."""
    from tests.contracts.benches import BENCHES

    for name in CLOUDS:
        sent_path(name).parent.mkdir(exist_ok=True)
        sent_path(name).write_text(json.dumps(sent_by(BENCHES[name]), indent=1, ensure_ascii=False) + "\n", "utf-8")
