"""A small cloud that rents, like another package's; the kit's own tests break one part of it at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from gpuwatch.plugin_api import (
    UNREADABLE,
    Adapter,
    Answer,
    ApiClient,
    BasicLauncher,
    Created,
    ErrorBody,
    HttpReply,
    Instance,
    InstanceState,
    KeyRejected,
    Offer,
    OfferGone,
    Order,
    OrderError,
    OrderRefused,
    OutcomeUnknown,
    ParseResult,
    PayloadChanged,
    ProviderInfo,
    ProviderSettings,
    Query,
    RefusalKind,
    Tools,
    at,
    build_answer,
    catalog,
    ordering_error,
    usd_hour,
    whole,
    word,
)
from gpuwatch.testing import Bench, EmulatorRequest, ProviderServer, RefusedRequest, reply

INFO = ProviderInfo(
    name="acme",
    title="Acme",
    base_url="https://api.acme.example",
    launches=True,
    no_lookup="its API answers for no single machine",
    searches_without_key=False,
)
_CANNOT = ("ports", "registry", "volume", "template", "self_destruct_at", "bid_usd_hour")
_STATES = {"up": InstanceState.RUNNING, "booting": InstanceState.STARTING}


def build(settings: ProviderSettings, tools: Tools) -> Adapter:
    rest = ApiClient(settings, tools, ordering=ordering)
    return Adapter(name="acme", info=INFO, market=Market(rest), launcher=Launcher(rest))


def ordering(name: str, reported: ErrorBody, got: HttpReply, now: datetime) -> OrderError:
    gone = got.status == 409 and reported.has("sold out")
    return OfferGone(f"{name}: {reported.summary}") if gone else ordering_error(name, reported, got, now)


class Market:
    name = "acme"

    def __init__(self, rest: ApiClient) -> None:
        self.rest = rest

    def search(self, query: Query) -> Answer:
        now, seen = self.rest.tools.now(), ParseResult(searches=0)
        if query.spot in INFO.spots:
            self.rest.require_key()
            seen = self.understood(self.rest.get("/types"), now)
        return build_answer(seen, query, self.name, observed_at=now, elapsed_s=0.0)

    def understood(self, value: Any, now: datetime) -> ParseResult:
        rows = at(value, "types")
        if not isinstance(rows, list):
            raise PayloadChanged("acme: the answer has no types")
        seen = ParseResult(rows=len(rows))
        for row in rows:
            made = self.offer(row, now)
            seen.offers.append(made) if made else seen.skip("a type that is none")
        return seen

    def offer(self, row: Any, now: datetime) -> Offer | None:
        type_id, gpu, usd = word(at(row, "id"), 64), word(at(row, "gpu")), usd_hour(at(row, "usd"))
        count = whole(at(row, "gpus"), 1, 64)
        if type_id is None or gpu is None or usd is None or count is None:
            return None
        named = catalog().resolve(gpu)
        return Offer(
            provider="acme", offer_id=type_id, machine_id=type_id, gpu=named.name, gpu_family=named.family,
            gpu_wire=gpu, gpu_known=named.known, gpu_count=count, gpu_memory_gib=None, spot=False,
            quoted_usd_hour=usd, quoted_disk_gb=0.0, disk_usd_gb_month=0.1, observed_at=now,
        )  # fmt: skip


class Launcher(BasicLauncher):
    name = "acme"

    def __init__(self, rest: ApiClient) -> None:
        self.rest = rest

    def create(self, order: Order) -> Created:
        self.refuse(order)
        wanted = {"type": order.offer_id, "name": order.label, "image": self.image(order), "env": dict(order.env)}
        return self.receipt(
            self.rest.order("POST", "/machines", wanted | {"start": order.onstart, "disk": self.disk_gb(order)})
        )

    def image(self, order: Order) -> str:
        return order.image

    def disk_gb(self, order: Order) -> float:
        return order.disk_gb

    def refuse(self, order: Order) -> None:
        if not self.rest.has_key:
            raise OrderRefused("acme: no key is set", RefusalKind.KEY)
        for name in _CANNOT:
            if getattr(order, name):
                raise OrderRefused(f"acme: it cannot do {name}", RefusalKind.BAD_ORDER)
        if order.runtype not in ("", "ssh"):
            raise OrderRefused("acme: it cannot do runtype", RefusalKind.BAD_ORDER)

    def receipt(self, got: HttpReply) -> Created:
        try:
            machine_id = word(at(msgspec.json.decode(got.body), "id"), 64)
        except UNREADABLE:
            machine_id = None
        if machine_id is None:
            raise OutcomeUnknown("acme: an answer without a machine")
        return Created(instance_id=machine_id)

    def list_instances(self) -> Sequence[Instance]:
        if not self.rest.has_key:
            raise KeyRejected("acme: no key is set")
        found: list[Instance] = []
        for page in range(1, 50):
            value = self.rest.get("/machines", {"page": str(page)}, kind="list")
            rows, more = at(value, "machines"), at(value, "more")
            if not isinstance(rows, list) or not isinstance(more, bool):
                raise PayloadChanged("acme: an answer without machines")
            found += [self.instance(row) for row in rows]
            if not more:
                return found
        raise PayloadChanged("acme: pages without end")

    def instance(self, row: Any) -> Instance:
        machine_id, status = word(at(row, "id"), 64), word(at(row, "status"))
        if machine_id is None:
            raise PayloadChanged("acme: a machine without an id")
        return Instance(
            instance_id=machine_id, label=word(at(row, "name")), status=status or "none", spot=False,
            state=_STATES.get(status or "", InstanceState.UNKNOWN), listed_usd_hour=usd_hour(at(row, "usd")),
        )  # fmt: skip

    def destroy(self, instance_id: str) -> None:
        if not (instance_id.isalnum() and len(instance_id) <= 64):
            raise OrderRefused("acme: it has no such id", RefusalKind.BAD_ORDER)
        self.rest.order("DELETE", f"/machines/{instance_id}")


class Cloud(ProviderServer):
    """Acme on loopback."""

    ROUTES = (
        ("GET", "/types", "types"),
        ("GET", "/machines", "listed"),
        ("POST", "/machines", "made"),
        ("DELETE", "/machines/(.+)", "ended"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.machines: dict[str, dict[str, Any]] = {}
        self.sold: set[str] = set()
        self.offers = [
            {"id": "a", "gpu": "H100 SXM5", "gpus": 1, "usd": 2.0},
            {"id": "b", "gpu": "H100 SXM5", "gpus": 8, "usd": 16.0},
            {"id": "c", "gpu": "L40S", "gpus": 1, "usd": 0.9},
        ]

    def types(self, request: EmulatorRequest) -> Mapping[str, Any]:
        self.check(request)
        return {"types": self.offers}

    def listed(self, request: EmulatorRequest) -> Mapping[str, Any]:
        self.check(request)
        first = 2 * (int(request.params.get("page", "1")) - 1)
        rows = list(self.machines.values())
        return {"machines": rows[first : first + 2], "more": len(rows) > first + 2}

    def made(self, request: EmulatorRequest) -> Mapping[str, Any]:
        self.check(request)
        wanted = request.body()
        kind = next((offer for offer in self.offers if offer["id"] == wanted["type"]), None)
        if kind is None:
            raise RefusedRequest(reply({"error": "no such type"}, 404))
        if kind["id"] in self.sold:
            raise RefusedRequest(reply({"error": "Sold out."}, 409))
        machine_id = f"m{len(self.requests)}"
        self.machines[machine_id] = {"id": machine_id, "name": wanted["name"], "status": "up", "usd": kind["usd"]}
        return {"id": machine_id}

    def ended(self, request: EmulatorRequest, machine_id: str) -> Mapping[str, Any]:
        self.check(request)
        self.machines.pop(machine_id, None)
        return {}

    def check(self, request: EmulatorRequest) -> None:
        if not request.keyed:
            raise RefusedRequest(reply({"error": "wrong key"}, 401))


BENCH = Bench(name="acme", place=Cloud, gpu="H100 SXM", sell_out=lambda cloud, offer_id: cloud.sold.add(offer_id))
