"""A stranger adds a cloud in one file: an invented one, written on the base of clouds, passes the conformance kit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwatch.app.setup.new_provider import package_files
from gpuwatch.errors import PayloadChanged
from gpuwatch.testing import Bench, EmulatorRequest, LauncherSuite, MarketSuite, ProviderServer, RefusedRequest, reply
from tests.plugins import nimbus
from tests.plugins.packages import install

LINES_MAX = 300  # of a provider in one file
PAGE_ROWS = 2


class Nimbus(ProviderServer):
    """The invented cloud on loopback, written from what its documents would say."""

    ROUTES = (
        ("GET", "/plans", "plans"),
        ("GET", "/keys", "keys"),
        ("GET", "/account", "account"),
        ("POST", "/servers", "create"),
        ("GET", "/servers", "servers"),
        ("GET", r"/servers/(\d+)", "server"),
        ("DELETE", r"/servers/(\d+)", "delete"),
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.rented: dict[int, dict[str, Any]] = {}
        self.sold_out: set[str] = set()

    def sell_out(self, offer_id: str) -> None:
        """Refuse orders of an offer from now on, although a search still shows it."""
        self.sold_out.add(offer_id)

    def key_of(self, request: EmulatorRequest) -> str | None:
        return request.headers.get("x-nimbus-key")

    def routed(self, request: EmulatorRequest) -> Any:
        if not request.keyed:
            raise RefusedRequest(reply({"code": "no_key", "message": "wrong key"}, 401))
        return super().routed(request)

    def plans(self, _request: EmulatorRequest) -> Any:
        machines = [("h100-1", "H100 SXM5 80GB", 1, 80, 239), ("h100-8", "H100 SXM5 80GB", 8, 80, 1912),
                    ("l40s-1", "L40S", 1, 48, 99), ("cpu-4", None, 0, None, 4)]  # fmt: skip
        return {"plans": [
            {"slug": slug, "cents": cents, "cpus": 16, "disk": 500, "stock": {"par1": 3, "ams2": 0},
             "accelerator": {"model": model, "count": count, "gib": gib}}
            for slug, model, count, gib, cents in machines
        ]}  # fmt: skip

    def keys(self, _request: EmulatorRequest) -> Any:
        return {"keys": [{"id": "key-1"}]}

    def account(self, _request: EmulatorRequest) -> Any:
        return {"credit": 12.5, "currency": "USD"}

    def create(self, request: EmulatorRequest) -> Any:
        wanted = request.body()
        if f"{wanted['plan']}/{wanted['region']}" in self.sold_out:
            raise RefusedRequest(reply({"code": "sold_out", "message": "none left"}, 409))
        number = 1000 + len(self.rented)
        cents = next(plan["cents"] for plan in self.plans(request)["plans"] if plan["slug"] == wanted["plan"])
        self.rented[number] = {
            "id": number,
            "name": wanted["name"],
            "status": "on",
            "cents": cents,
            "ipv4": "192.0.2.7",
        }
        return {"server": self.rented[number]}

    def servers(self, request: EmulatorRequest) -> Any:
        first, rows = int(request.params.get("from", "0")), list(self.rented.values())
        return {"servers": rows[first : first + PAGE_ROWS], "total": len(rows)}

    def server(self, _request: EmulatorRequest, number: str) -> Any:
        if int(number) not in self.rented:
            raise RefusedRequest(reply({"code": "no_server", "message": "no such server"}, 404))
        return {"server": self.rented[int(number)]}

    def delete(self, request: EmulatorRequest, number: str) -> Any:
        self.server(request, number)
        del self.rented[int(number)]
        return {}


BENCH = Bench(
    name="nimbus",
    place=Nimbus,
    gpu="H100 SXM",
    options={"ssh_key": "key-1"},
    sell_out=Nimbus.sell_out,
    creates=r"^POST /servers ",
    ends=r"^DELETE /servers/",
    many=5,
)


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = {"gpuwatch.providers": {"nimbus": "tests.plugins.nimbus"}}
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", "nimbus", {}, target)))


class TestMarket(MarketSuite):
    bench = BENCH


class TestLauncher(LauncherSuite):
    bench = BENCH


def test_a_cloud_is_one_file_of_300_lines() -> None:
    """The invented one, and the one that `gpuwatch providers new` writes."""
    sources = [Path(nimbus.__file__).read_text(encoding="utf-8"), package_files("sky_cloud")["sky_cloud.py"]]
    assert [len(source.splitlines()) for source in sources if len(source.splitlines()) > LINES_MAX] == []


def test_the_money_of_the_account_is_read_with_its_currency() -> None:
    with BENCH.place() as place, BENCH.pointed_at(place.url) as adapter:
        assert adapter.launcher is not None
        assert adapter.launcher.credit_usd() == 12.5


def test_a_server_that_ends_is_not_ended_again() -> None:
    with BENCH.place() as place, BENCH.relaying(place.url) as relay, BENCH.pointed_at(relay.url) as adapter:
        launcher: Any = adapter.launcher
        place.rented[7] = {"id": 7, "name": "gpuwatch-a", "status": "going", "cents": 99, "ipv4": None}
        launcher.list_instances()
        launcher.destroy("7")
        assert relay.count(BENCH.ends) == 0


def test_a_list_without_an_end_is_an_error() -> None:
    class Endless(Nimbus):
        def servers(self, _request: EmulatorRequest) -> Any:
            row = {"id": 7, "name": "gpuwatch-a", "status": "on", "cents": 99, "ipv4": None}
            return {"servers": [row], "total": 10_000}

    with Endless() as place, BENCH.relaying(place.url) as relay, BENCH.pointed_at(relay.url) as adapter:
        assert adapter.launcher is not None
        with pytest.raises(PayloadChanged, match="incomplete: it ends after 50"):
            adapter.launcher.list_instances()
        assert relay.count("^GET /servers") == 50
