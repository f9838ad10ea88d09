"""Every provider that rents declares its prerequisites, and its page explains each."""

from __future__ import annotations

import re

import msgspec
import pytest

from gpuwatch import providers
from gpuwatch.ports import Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.ports.prerequisites import OrderCheck, OrderValidation, Prerequisite, PrerequisiteName, PrerequisiteProbe
from gpuwatch.testing import Bench
from tests.checkout import ROOT
from tests.contracts.benches import BENCHES

DOCS = ROOT / "docs"
RENTING = [name for name in providers.names() if providers.info(name).launches]


@pytest.mark.parametrize("name", RENTING)
def test_what_a_provider_declares_is_explained_where_it_says(name: str) -> None:
    declared = providers.info(name).prerequisites
    assert PrerequisiteName.CREDENTIALS in {one.name for one in declared}
    for one in declared:
        page, _, anchor = one.docs.partition("#")
        headings = re.findall(r"^#+ (.+)$", (DOCS / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert one.about


NEEDING_A_KEY = [name for name in RENTING if "ssh_key" in BENCHES[name].options]


def about_the_key(bench: Bench, url: str, **options: str | None) -> Prerequisite:
    with msgspec.structs.replace(bench, options={**bench.options, **options}).pointed_at(url) as adapter:
        assert isinstance(adapter.launcher, PrerequisiteProbe), "doctor and rehearse would call it ready"
        (found,) = [
            prerequisite
            for prerequisite in adapter.launcher.prerequisites(())
            if prerequisite.name is PrerequisiteName.KEY_PAIR
        ]
        return found


@pytest.mark.parametrize("name", NEEDING_A_KEY)
def test_an_ssh_key_without_which_no_order_is_sent_is_asked_for_before(name: str) -> None:
    bench = BENCHES[name]
    assert PrerequisiteName.KEY_PAIR in {prerequisite.name for prerequisite in bench.info.prerequisites}
    with bench.place() as place:
        assert about_the_key(bench, place.url).met
        for lacking in (about_the_key(bench, place.url, ssh_key=wrong) for wrong in (None, "not-there")):
            assert (lacking.met, lacking.is_blocking) == (False, True)
            assert "ssh_key" in lacking.mend


@pytest.mark.parametrize("name", RENTING)
def test_what_cannot_be_ordered_is_known_before(name: str) -> None:
    bench = BENCHES[name]
    with bench.place() as place, bench.pointed_at(place.url) as adapter:
        assert isinstance(adapter.launcher, OrderCheck | OrderValidation)


SEEN_IN_SETTINGS = ("aws", "nebius", "tensordock")  # a part is known without a question


@pytest.mark.parametrize("name", RENTING)
def test_a_question_without_an_answer_blocks_nothing(name: str) -> None:
    bench = BENCHES[name]
    with bench.place() as place, bench.relaying(place.url) as relay:
        with bench.pointed_at(relay.url) as adapter:
            offers = adapter.market.search(Query()).offers[:2]
            orders = [Order(offer_id=offer.offer_id, label="gpuwatch-a", image="x/y", disk_gb=20.0) for offer in offers]
            lacking = _not_met(adapter, orders)
        relay.fail("", 500)
        with bench.pointed_at(relay.url) as adapter:
            assert _not_met(adapter, orders) <= lacking
            if isinstance(adapter.launcher, PrerequisiteProbe) and name not in SEEN_IN_SETTINGS:
                assert {one.met for one in adapter.launcher.prerequisites(orders)} <= {None}


def _not_met(adapter: Adapter, orders: list[Order]) -> set[tuple[str, str]]:
    if not isinstance(adapter.launcher, PrerequisiteProbe):
        return set()
    return {(one.name, one.place) for one in adapter.launcher.prerequisites(orders) if one.met is False}
