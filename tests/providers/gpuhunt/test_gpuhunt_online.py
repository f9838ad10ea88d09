"""Clouds that the library queries itself: with a time limit, without its log, and as no more than a partial answer."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.emulator.answers import EmulatorReply, reply
from gpuwatch.emulator.provider_server import ProviderServer
from gpuwatch.emulator.request import EmulatorRequest
from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderDown
from gpuwatch.ports import Completeness, Query
from gpuwatch.providers.gpuhunt import ONLINE
from gpuwatch.providers.gpuhunt.market import _CLASSES, TimeBox, query_library
from gpuwatch.testing.bench import Bench
from tests.clouds.gpuhunt import GpuhuntCatalogs

H100 = {
    "slug": "gpu-h100x1-80gb", "memory": 245760, "vcpus": 20, "disk": 720, "price_hourly": 3.39, "available": True,
    "regions": ["nyc2", "tor1"],
    "gpu_info": {"count": 1, "vram": {"amount": 80, "unit": "gib"}, "model": "nvidia_h100"},
    "disk_info": [{"type": "local", "size": {"amount": 720, "unit": "gib"}}],
}  # fmt: skip


class Droplets(ProviderServer):
    """DigitalOcean's sizes, as documented."""

    ROUTES = (("GET", r"/v2/sizes", "sizes"),)

    def sizes(self, request: EmulatorRequest) -> EmulatorReply:
        if not request.keyed:
            return reply({"id": "Unauthorized", "message": f"Unable to authenticate you with {request.key}"}, 401)
        return reply({"sizes": [H100], "links": {}, "meta": {"total": 1}})


@pytest.fixture
def droplets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Droplets]:
    with Droplets() as place:
        monkeypatch.setenv("DIGITAL_OCEAN_API_URL", place.url)
        monkeypatch.setenv("DIGITAL_OCEAN_API_KEY", "demo-key")
        yield place


def searched(timeout_s: float = 2.0, **options: Any) -> Any:
    bench = Bench(name="gpuhunt", place=GpuhuntCatalogs, gpu="H100 SXM", options=options)
    with GpuhuntCatalogs() as place, bench.pointed_at(place.url, timeout_s=timeout_s) as adapter:
        return adapter.market.search(Query())


def test_a_cloud_that_is_named_is_asked_and_its_prices_are_list_prices(droplets: Droplets) -> None:
    answer = searched(online=("digitalocean",), sellers=())
    assert {(o.terms.seller, o.kind, o.gpu, o.quoted_usd_hour) for o in answer.offers} == {
        ("digitalocean", OfferKind.LISTED, "H100", 3.39)
    }
    assert all("gpuhunt" in (offer.terms.note or "") for offer in answer.offers)
    assert droplets.requests


def test_nobody_is_asked_who_is_not_named(droplets: Droplets) -> None:
    assert searched(sellers=("verda",)).completeness is Completeness.COMPLETE
    assert droplets.requests == []


def test_one_that_fails_leaves_the_catalogs(droplets: Droplets) -> None:
    droplets.fail("GET", 500, times=50)
    answer = searched(online=("digitalocean",), sellers=("verda",))
    assert {offer.terms.seller for offer in answer.offers} == {"verda"}
    assert answer.completeness is Completeness.PARTIAL
    assert answer.skipped["digitalocean: no answer"] == 1


def test_a_cloud_that_is_silent_costs_no_more_than_its_time(droplets: Droplets) -> None:
    droplets.fail("GET", 200, times=9, delay_s=1.0)
    with pytest.raises(ProviderDown, match="no complete answer in time"):
        searched(timeout_s=0.2, online=("digitalocean",), sellers=())


@pytest.mark.parametrize(("status", "error"), [(401, KeyRejected), (403, KeyRejected), (503, ProviderDown)])
def test_what_it_answers_is_reported_without_its_words(droplets: Droplets, status: int, error: type[Exception]) -> None:
    droplets.fail("GET", status, {"message": "your key demo-key"}, times=9)
    with pytest.raises(error) as caught:
        query_library("digitalocean")
    assert "demo-key" not in str(caught.value)
    assert str(status) in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_answer_that_the_library_does_not_understand_is_a_changed_one(droplets: Droplets) -> None:
    droplets.fail("GET", 200, {"sizes": [{"slug": 1}]}, times=9)
    with pytest.raises(PayloadChanged, match="cannot parse the answer"):
        query_library("digitalocean")


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEEWEB_API_TOKEN", raising=False)
    with pytest.raises(KeyRejected, match="SEEWEB_API_TOKEN"):
        query_library("seeweb")


def test_what_hangs_is_not_begun_a_second_time() -> None:
    box, ends, begun = TimeBox(threading.Event()), threading.Event(), []

    def hang() -> list[int]:
        begun.append(1)
        ends.wait(10)
        return [1]

    for words in ("no complete answer in time", "has not answered an earlier request yet"):
        with pytest.raises(ProviderDown, match=words):
            box.run("x", hang, 0.05)
    assert box.run("y", lambda: [2], 1.0) == [2]
    ends.set()
    box._running["x"].join(5)
    assert box.run("x", hang, 1.0) == [1]
    assert len(begun) == 2


def test_a_stop_ends_the_wait() -> None:
    stop, ends = threading.Event(), threading.Event()
    stop.set()
    with pytest.raises(ProviderDown):
        TimeBox(stop).run("x", lambda: [ends.wait(30)], 60.0)
    ends.set()


def test_what_hangs_does_not_keep_a_process_alive() -> None:
    program = (
        "import threading\n"
        "from gpuwatch.providers.gpuhunt.market import TimeBox\n"
        "try:\n    TimeBox(threading.Event()).run('x', threading.Event().wait, 0.05)\n"
        "except Exception as error:\n    print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout == "ProviderDown\n"


def test_those_that_may_be_asked_are_the_librarys_and_can_be_built_from_the_environment() -> None:
    from gpuhunt._internal.default import ONLINE_PROVIDER_MODULES

    theirs = {module.rpartition(".")[2]: name for module, name in ONLINE_PROVIDER_MODULES}
    assert set(ONLINE) == set(_CLASSES) == set(theirs) - {"crusoe", "vastai"}
    assert all(theirs[name] == _CLASSES[name] for name in ONLINE)
