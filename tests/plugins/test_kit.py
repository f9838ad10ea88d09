"""The conformance kit passes a correct provider, and each of its rules detects the one that breaks it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.errors import OrderError, ProviderError
from gpuwatch.ports import Created
from gpuwatch.providers.toolkit import validation
from gpuwatch.testing.launcher import LauncherSuite
from gpuwatch.testing.market import MarketSuite
from gpuwatch.testing.relay import relaying
from tests.plugins import acme
from tests.plugins.packages import install

CAUGHT = (AssertionError, ProviderError, OrderError, pytest.fail.Exception, AttributeError, TypeError, ValueError)


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = {"gpuwatch.providers": {"acme": "tests.plugins.acme"}}
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", "acme", {}, target)))


class TestMarket(MarketSuite):
    bench = acme.BENCH


class TestLauncher(LauncherSuite):
    bench = acme.BENCH


def run(suite: type[MarketSuite] | type[LauncherSuite], name: str) -> None:
    """Run one test of a suite, with its fixtures."""
    test = suite()
    with acme.BENCH.place() as place, relaying(place.url) as relay, acme.BENCH.pointed_at(relay.url) as adapter:
        have: dict[str, Any] = {"place": place, "relay": relay, "adapter": adapter}
        wanted = inspect.signature(getattr(test, name)).parameters
        if "offers" in wanted:
            from gpuwatch.ports import Query

            have["offers"] = adapter.market.search(Query()).offers
            relay.requests.clear()
        have["launcher"] = adapter.launcher
        getattr(test, name)(**{key: have[key] for key in wanted})


def twice(self: acme.Launcher, order: Any) -> Created:
    try:
        return REAL["create"](self, order)  # type: ignore[no-any-return]
    except OrderError:
        return REAL["create"](self, order)  # type: ignore[no-any-return]


def first_page(self: acme.Launcher) -> list[Any]:
    return [self.instance(row) for row in self.rest.get("/machines")["machines"]]


def forgiving(self: acme.Launcher) -> list[Any]:
    value = self.rest.get("/machines")
    rows = validation.objects(validation.at(value, "machines"))
    return [self.instance(row) for row in rows if row.get("id") and isinstance(row["id"], str)]


def unlabelled(self: acme.Launcher, row: Any) -> Any:
    return REAL["instance"](self, {**row, "name": str(row["name"]).upper()})


def believing(self: acme.Market, row: Any, now: Any) -> Any:
    import msgspec

    made = REAL["offer"](self, {**row, "usd": 1.0})
    return msgspec.structs.replace(made, quoted_usd_hour=row["usd"])


def nothing_for_no_data(self: acme.Market, value: Any, now: Any) -> Any:
    rows = value.get("types", []) if isinstance(value, dict) else []
    return REAL["understood"](self, {"types": rows}, now)


def anything_goes(self: acme.Launcher, order: Any) -> None:
    """Impossible orders are sent and fail there, or silently have another effect."""


def fails_when_gone(self: acme.Launcher, instance_id: str) -> None:
    if instance_id not in {instance.instance_id for instance in self.list_instances()}:
        raise OrderError("acme: no such machine")
    REAL["destroy"](self, instance_id)


def careless(self: acme.Launcher, instance_id: str) -> None:
    try:
        REAL["destroy"](self, instance_id)
    except OrderError:
        return


def always_there(self: acme.Launcher, got: Any) -> Created:
    return Created(instance_id="m1")


def asks_anyway(self: acme.Market, query: Any) -> Any:
    self.rest.get("/types")
    return REAL["search"](self, query)


def keyless(self: acme.Launcher) -> Any:
    return REAL["list_instances"](self) if self.rest.has_key else []


def plain_image(self: acme.Launcher, order: Any) -> str:
    return "ubuntu"


def usual_disk(self: acme.Launcher, order: Any) -> float:
    return 20.0


REAL: dict[str, Callable[..., Any]] = {
    **{name: vars(acme.Launcher)[name] for name in ("create", "instance", "destroy", "list_instances")},
    **{name: vars(acme.Market)[name] for name in ("offer", "understood", "search")},
}
BROKEN = [
    (LauncherSuite, acme.Launcher, "create", twice, "test_a_create_that_fails_is_sent_once"),
    (LauncherSuite, acme.Launcher, "create", twice, "test_a_lost_answer_is_unknown_and_found_by_its_label"),
    (LauncherSuite, acme.Launcher, "list_instances", first_page, "test_many_are_all_listed"),
    (LauncherSuite, acme.Launcher, "list_instances", forgiving, "test_an_odd_list_is_never_an_empty_one"),
    (LauncherSuite, acme.Launcher, "list_instances", forgiving, "test_a_hostile_list_is_an_error_or_whole"),
    (LauncherSuite, acme.Launcher, "instance", unlabelled, "test_what_is_rented_is_listed_with_its_label_and_ends"),
    (LauncherSuite, acme.Launcher, "destroy", fails_when_gone, "test_what_is_rented_is_listed_with_its_label_and_ends"),
    (LauncherSuite, acme.Launcher, "destroy", careless, "test_an_end_that_fails_is_reported"),
    (LauncherSuite, acme.Launcher, "destroy", careless, "test_what_never_left_is_refused_as_not_sent"),
    (LauncherSuite, acme.Launcher, "refuse", anything_goes, "test_a_bid_where_nothing_is_rented_by_bids_is_not_sent"),
    (LauncherSuite, acme.Launcher, "list_instances", keyless, "test_without_a_key_nothing_is_rented"),
    (LauncherSuite, acme.Launcher, "image", plain_image, "test_the_image_that_is_wanted_is_ordered"),
    (LauncherSuite, acme.Launcher, "disk_gb", usual_disk, "test_the_disk_that_is_priced_is_the_disk_that_is_ordered"),
    (LauncherSuite, acme.Launcher, "receipt", always_there, "test_a_create_that_fails_is_sent_once"),
    (MarketSuite, acme.Market, "offer", believing, "test_hostile_values_are_skipped_or_refused"),
    (
        MarketSuite,
        acme.Market,
        "understood",
        nothing_for_no_data,
        "test_an_answer_that_is_none_is_never_a_market_without_offers",
    ),
    (MarketSuite, acme.Market, "search", asks_anyway, "test_a_rental_type_that_it_lacks_is_answered_without_a_request"),
]


@pytest.mark.parametrize(("suite", "home", "name", "instead", "test"), BROKEN)
def test_a_broken_provider_is_caught(
    suite: Any, home: type, name: str, instead: Any, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = type("Broken", (suite,), {"bench": acme.BENCH})
    run(kind, test)
    monkeypatch.setattr(home, name, instead)
    with pytest.raises(CAUGHT):
        run(kind, test)


def test_a_lookup_that_only_looks_into_the_list_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class FromList(acme.Launcher):
        def get(self, instance_id: str) -> Any:
            return next((instance for instance in self.list_instances() if instance.instance_id == instance_id), None)

    # a separate class: `isinstance` with a protocol caches a class's members
    monkeypatch.setattr(acme, "Launcher", FromList)
    with pytest.raises(AssertionError, match="must request the single instance"):
        run(TestLauncher, "test_a_list_that_lags_behind_is_no_proof_that_one_is_gone")


def test_a_part_that_is_left_out_must_be_one() -> None:
    with pytest.raises(ValueError, match="unknown part in leaves_out: moonlight"):
        acme.Bench(name="acme", place=acme.Cloud, gpu="x", leaves_out={"moonlight": "it is day"})


def test_a_package_that_is_not_installed_says_so() -> None:
    bench = acme.Bench(name="nobody_installed_me", place=acme.Cloud, gpu="x")
    with pytest.raises(LookupError, match="install its package first"):
        _ = bench.info
