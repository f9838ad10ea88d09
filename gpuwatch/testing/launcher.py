"""The rules for the renting side of every provider, as a suite for pytest."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from gpuwatch.domain.market.offer import Offer
from gpuwatch.errors import (
    KeyRejected,
    OfferGone,
    OrderError,
    OrderRefused,
    OutcomeUnknown,
    ProviderError,
    ProviderUnreachable,
    RefusalKind,
)
from gpuwatch.ports import InstanceState, Launcher, Order, Registry, Volume
from gpuwatch.ports.declarations import Adapter
from gpuwatch.ports.prerequisites import OrderCheck
from gpuwatch.testing.account import AccountSuite, MoneySuite
from gpuwatch.testing.disk_keeping import DiskKeeperSuite
from gpuwatch.testing.end_moving import EndMoverSuite
from gpuwatch.testing.faults import (
    LOSSES,
    MALFORMED_LISTS,
    NOT_CREATED,
    NOWHERE,
    STATUSES,
    UNREADABLE,
    ServerFault,
)
from gpuwatch.testing.hostile import corrupt_body, with_junk
from gpuwatch.testing.invariants import instance_problems
from gpuwatch.testing.lookup import LABEL
from gpuwatch.testing.loopback import ReplyWriter
from gpuwatch.testing.ordered import OrderedSuite
from gpuwatch.testing.relay import Relay, contains_text, relaying
from gpuwatch.testing.suite import case, part

SECRET = "kit-secret-value-7391"  # noqa: S105 not a real secret
ORDER_FEATURES: dict[str, tuple[dict[str, Any], str]] = {  # name → values of an order, and what its request then holds
    "ports": ({"ports": ("8000", "53/udp")}, "8000"),
    "registry": ({"registry": Registry(server="ghcr.io", username="me", password=SECRET)}, SECRET),
    "volume": ({"volume": Volume(mount="/kit-data", volume_id="17")}, "/kit-data"),
    "template": ({"template": "a-template"}, "a-template"),
    "self-destruction": ({"self_destruct_at": datetime(2026, 11, 22, tzinfo=UTC)}, ""),
    "onstart": ({"onstart": f"echo {SECRET}"}, SECRET),
    "env": ({"env": {"KIT_TOKEN": SECRET}}, SECRET),
    "runtype": ({"runtype": "jupyter"}, "upyter"),
}


class LauncherSuite(AccountSuite, DiskKeeperSuite, EndMoverSuite, OrderedSuite, MoneySuite):
    """To run it: `class TestMine(LauncherSuite): bench = BENCH`."""

    # --- rent, list, end ---------------------------------------------------------------------------------------------

    def test_what_is_rented_is_listed_with_its_label_and_ends(
        self, adapter: Adapter, launcher: Launcher, offers: Sequence[Offer], relay: Relay, place: Any
    ) -> None:
        label = f"{LABEL}-abcdefgh-abcdefgh ".ljust(adapter.info.label_length, "x")[: adapter.info.label_length]
        created = launcher.create(self.order(offers[0].offer_id, label))
        assert created.starting
        assert relay.count(self.bench.creates) == 1
        [found] = launcher.list_instances()
        assert instance_problems(found) == []
        assert (found.instance_id, found.label) == (created.instance_id, label)
        assert not found.spot
        assert found.state in (InstanceState.STARTING, InstanceState.RUNNING)
        launcher.destroy(created.instance_id)
        self.wait_for_end(place)
        assert list(launcher.list_instances()) == []
        launcher.destroy(created.instance_id)  # again: no error
        assert list(launcher.list_instances()) == []

    def test_what_runs_is_reported_with_its_price(
        self, launcher: Launcher, offers: Sequence[Offer], place: Any
    ) -> None:
        launcher.create(self.order(offers[0].offer_id))
        self.wait_for_end(place)
        [found] = launcher.list_instances()
        listed, quoted = found.listed_usd_hour, offers[0].quoted_usd_hour
        assert listed is None or quoted / 3 < listed < quoted * 3, "cents, or per GPU?"
        assert found.gpu in (None, offers[0].gpu)
        assert found.gpu_count in (None, offers[0].gpu_count)

    def test_many_are_all_listed(self, launcher: Launcher, offers: Sequence[Offer]) -> None:
        labels = self._create_many(launcher, offers)
        listed = launcher.list_instances()
        assert sorted(one.instance_id for one in listed) == sorted(labels)
        assert sorted(one.label or "" for one in listed) == sorted(labels.values())

    def test_ending_one_leaves_the_others(self, launcher: Launcher, offers: Sequence[Offer], place: Any) -> None:
        instance_ids = [launcher.create(self.order(offers[n].offer_id, f"gpuwatch-{n}")).instance_id for n in range(2)]
        launcher.destroy(instance_ids[0])
        self.wait_for_end(place)
        assert [instance.instance_id for instance in launcher.list_instances()] == instance_ids[1:]

    @part("pages")
    def test_a_missing_page_is_never_a_short_list(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        self._create_many(launcher, offers)
        relay.requests.clear()
        launcher.list_instances()
        pages = len(relay.requests)
        for page in range(pages):
            relay.restore()
            relay.fail("", 500, skip=page)
            with pytest.raises(ProviderError):
                launcher.list_instances()

    @part("gone")
    def test_an_offer_that_is_gone_is_reported(self, launcher: Launcher, offers: Sequence[Offer], place: Any) -> None:
        assert self.bench.sell_out is not None, "set sell_out in the bench, or list `gone` in leaves_out with a reason"
        self.bench.sell_out(place, offers[0].offer_id)
        with pytest.raises(OfferGone):
            launcher.create(self.order(offers[0].offer_id))
        assert list(launcher.list_instances()) == []

    # --- failing creates ---------------------------------------------------------------------------------------------

    @part("ordering")
    def test_a_create_that_fails_is_sent_once(self, offers: Sequence[Offer], relay: Relay) -> None:
        order = self.order(offers[0].offer_id, env={"KIT_TOKEN": SECRET})
        for fault in (*STATUSES, *UNREADABLE, *self._losses()):
            override = self.expected_error(fault.status, Exception, OrderError)
            relay.restore()
            relay.requests.clear()
            relay.fault(self.bench.creates, fault)
            with case(fault.name), self.bench.pointed_at(relay.url) as adapter:
                assert adapter.launcher is not None
                expected = fault.ordering if override is Exception else override
                error = self.check_error(expected, lambda: adapter.launcher.create(order), SECRET)  # type: ignore[union-attr]
                assert relay.count(self.bench.creates) == 1
                assert getattr(error, "kind", None) is not RefusalKind.NOT_SENT

    @part("ordering")
    def test_no_error_shows_the_key_or_the_order(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        key = self.bench.key or "demo-key"
        relay.fail(self.bench.creates, 400, b'{"error": "wrong: Bearer %b"}' % key.encode())
        order = self.order(offers[0].offer_id, env={"KIT_TOKEN": SECRET})
        self.check_error(OrderError, lambda: launcher.create(order), key, SECRET)
        assert key not in repr(launcher)

    @part("lost")
    def test_a_lost_answer_is_unknown_and_found_by_its_label(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        labels = []
        machines = _one_per_machine(offers)
        endings = {"closed": ReplyWriter.close, "reset": ReplyWriter.reset, "500": lambda writer: writer.answer(500)}
        for number, (name, ending) in enumerate(endings.items()):
            labels.append(f"gpuwatch-{name}")
            relay.requests.clear()
            relay.lose(self.bench.creates, ending)
            with case(name), pytest.raises(OutcomeUnknown):
                launcher.create(self.order(machines[number % len(machines)].offer_id, labels[-1]))
            assert relay.count(self.bench.creates) == 1
            relay.restore()
            assert sorted(instance.label or "" for instance in launcher.list_instances()) == sorted(labels)

    @part("lost")
    def test_an_order_that_got_lost_on_its_way_is_unknown_too(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        relay.lose(self.bench.creates, carried_out=False)
        with pytest.raises(OutcomeUnknown):
            launcher.create(self.order(offers[0].offer_id))
        assert relay.count(self.bench.creates) == 1
        relay.restore()
        assert list(launcher.list_instances()) == []

    @part("lost")
    def test_an_end_whose_answer_is_lost_is_not_repeated(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay, place: Any
    ) -> None:
        created = launcher.create(self.order(offers[0].offer_id))
        relay.requests.clear()
        relay.lose(self.bench.ends)
        with pytest.raises((OutcomeUnknown, ProviderError)):
            launcher.destroy(created.instance_id)
        assert relay.count(self.bench.ends) == 1
        relay.restore()
        self.wait_for_end(place)
        assert list(launcher.list_instances()) == []

    @part("lost")
    def test_an_end_that_fails_is_reported(self, launcher: Launcher, offers: Sequence[Offer], relay: Relay) -> None:
        """Any 2xx may say that it is done; a 404 alone does not, and may be a refusal or no answer at all."""
        created = launcher.create(self.order(offers[0].offer_id))
        for fault in (*STATUSES, *self._losses()):
            launcher.list_instances()
            relay.restore()
            relay.requests.clear()
            relay.fault(self.bench.ends, fault)
            with case(fault.name):
                override = self.expected_error(fault.status, OfferGone, OrderError)
                ordering = (OrderRefused, OutcomeUnknown) if fault.status == 404 else fault.ordering
                expected = tuple(set(ordering) - {OfferGone}) if override is OfferGone else override
                error = self.check_error(expected, lambda: launcher.destroy(created.instance_id))
                assert relay.count(self.bench.ends) == 1
                assert getattr(error, "kind", None) is not RefusalKind.NOT_SENT
        relay.restore()
        assert [instance.instance_id for instance in launcher.list_instances()] == [created.instance_id]

    @part("not_sent")
    def test_what_never_left_is_refused_as_not_sent(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        created = launcher.create(self.order(offers[0].offer_id))
        with self.bench.pointed_at(NOWHERE) as adapter:
            unreachable = adapter.launcher
            assert unreachable is not None
            for attempt in (
                lambda: unreachable.create(self.order(offers[0].offer_id)),
                lambda: unreachable.destroy(created.instance_id),
            ):
                error = self.check_error(OrderRefused, attempt)
                assert getattr(error, "kind", None) is RefusalKind.NOT_SENT
            self.check_error(ProviderUnreachable, unreachable.list_instances)

    def _losses(self) -> tuple[ServerFault, ...]:
        return () if "losses" in self.bench.leaves_out else LOSSES

    # --- unsupported operations --------------------------------------------------------------------------------------

    @part("bids")
    def test_a_bid_where_nothing_is_rented_by_bids_is_not_sent(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        if True in self.bench.info.spots:
            pytest.skip(f"{self.bench.name} has spot")
        with pytest.raises(OrderRefused):
            launcher.create(self.order(offers[0].offer_id, bid_usd_hour=1.0))
        with pytest.raises(OrderRefused):
            launcher.change_bid("1", 1.0)
        assert relay.requests == []

    def test_what_it_cannot_do_is_refused_before_anything_is_sent(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay, place: Any
    ) -> None:
        """What is not refused is in the request."""
        machines = _one_per_machine(offers)
        for number, (name, (feature, wanted)) in enumerate(ORDER_FEATURES.items()):
            relay.requests.clear()
            order = self.order(machines[number % len(machines)].offer_id, **feature)
            with case(name):
                refusal = self._create_refusal(launcher, order)
                assert relay.count(self.bench.creates) == (0 if refusal else 1)
                assert refusal or any(contains_text(request, wanted) for request in relay.requests), wanted
                assert refusal or any(contains_text(request, LABEL) for request in relay.requests)
                assert refusal is None or refusal.kind is RefusalKind.BAD_ORDER
                assert SECRET not in str(refusal)
                if isinstance(launcher, OrderCheck):  # `rehearse` reports before the rent what a rent would report
                    relay.requests.clear()
                    assert str(self._check_refusal(launcher, order)) == str(refusal)
                    assert relay.requests == []
                for instance in launcher.list_instances():
                    launcher.destroy(instance.instance_id)
                self.wait_for_end(place)

    def test_what_ends_itself_is_declared(self, launcher: Launcher, offers: Sequence[Offer]) -> None:
        """`ProviderInfo.self_destruct` describes an order with it; without that, such an order is refused."""
        feature = ORDER_FEATURES["self-destruction"][0] | ORDER_FEATURES["onstart"][0]
        refusal = self._create_refusal(launcher, self.order(offers[0].offer_id, **feature))
        assert (refusal is None) == (self.bench.info.self_destruct is not None), refusal

    def _check_refusal(self, launcher: OrderCheck, order: Order) -> OrderRefused | None:
        try:
            launcher.check_order(order)
        except OrderRefused as refusal:
            return refusal
        return None

    def _create_refusal(self, launcher: Launcher, order: Order) -> OrderRefused | None:
        try:
            launcher.create(order)
        except OrderRefused as refusal:
            return refusal
        return None

    def test_an_offer_id_that_is_none_is_an_order_refused(self, launcher: Launcher) -> None:
        for offer_id in ("", "nonsense", "../../x", "a b\n", "x" * 5000, "1/2/3/4/5/6", "\u202e"):
            with case(repr(offer_id[:20])), pytest.raises(NOT_CREATED):
                launcher.create(self.order(offer_id))
        assert list(launcher.list_instances()) == []

    def test_what_is_no_id_ends_nothing(self, launcher: Launcher, relay: Relay) -> None:
        for instance_id in ("", "../../x", "a b\n", "x" * 5000, "\u202e"):
            with case(repr(instance_id[:20])), pytest.raises(OrderRefused):
                launcher.destroy(instance_id)
        assert relay.requests == []

    def test_without_a_key_nothing_is_rented(self, place: Any, offers: Sequence[Offer]) -> None:
        if self.bench.info.own_credentials or self.bench.key is None:
            pytest.skip(f"{self.bench.name} receives no key from gpuwatch")
        with relaying(place.url) as relay, self.bench.pointed_at(relay.url, None) as adapter:
            if adapter.launcher is None:
                return
            with pytest.raises(OrderRefused) as raised:
                adapter.launcher.create(self.order(offers[0].offer_id))
            assert raised.value.kind is RefusalKind.KEY
            with pytest.raises(KeyRejected):
                adapter.launcher.list_instances()

    # --- lists -------------------------------------------------------------------------------------------------------

    @part("lists")
    def test_a_list_that_fails_says_why(self, launcher: Launcher, relay: Relay) -> None:
        for fault in (*UNREADABLE, *LOSSES, *STATUSES):
            relay.restore()
            relay.requests.clear()
            relay.fault("", fault)
            with case(fault.name):
                self.check_error(
                    self.expected_error(fault.status, fault.reading, ProviderError), launcher.list_instances
                )

    @part("lists")
    def test_an_odd_list_is_never_an_empty_one(self, launcher: Launcher, relay: Relay) -> None:
        assert list(launcher.list_instances()) == []
        plain_array = relay.bodies[-1].lstrip().startswith(b"[")  # an empty list is then []
        for body in MALFORMED_LISTS:
            if plain_array and body == b"[]":
                continue
            relay.restore()
            relay.fail("", 200, body)
            with case(body[:20]), pytest.raises(ProviderError):
                launcher.list_instances()

    @part("lists")
    def test_a_hostile_list_is_an_error_or_whole(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        count = len(self._create_many(launcher, offers[:2], 2))
        for rate, seed in product((0.01, 0.1, 0.3), range(12)):
            relay.requests.clear()
            relay.corrupt = lambda body, rate=rate, seed=seed: corrupt_body(body, seed, rate)
            try:
                found = launcher.list_instances()
            except ProviderError:
                continue
            assert [problem for one in found for problem in instance_problems(one)] == [], f"{rate}, seed {seed}"
            assert len(found) >= count, f"{rate}, seed {seed}: a malformed instance must not be omitted"

    @part("lists")
    def test_junk_in_a_list_is_an_error_or_left_out(
        self, launcher: Launcher, offers: Sequence[Offer], relay: Relay
    ) -> None:
        labels = self._create_many(launcher, offers[:2], 2)
        relay.corrupt = with_junk
        try:
            found = {instance.instance_id for instance in launcher.list_instances()}
        except ProviderError:
            return
        assert found == set(labels)

    def _create_many(self, launcher: Launcher, offers: Sequence[Offer], count: int = 0) -> dict[str, str]:
        """Rent several; return their ids → labels."""
        labels = {}
        machines = _one_per_machine(offers)
        for n in range(count or self.bench.many):
            label = f"gpuwatch-many{n}"
            labels[launcher.create(self.order(machines[n % len(machines)].offer_id, label)).instance_id] = label
        return labels


def _one_per_machine(offers: Sequence[Offer]) -> list[Offer]:
    """Return one offer of each machine: if hosts sell, a rented machine has no second offer."""
    return list({offer.machine_id or offer.offer_id: offer for offer in offers}.values())
