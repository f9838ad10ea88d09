"""The terms of a watch at the time of a rent are stored with the launch, without secrets."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.launches.launch import Intent, new_launch
from gpuwatch.domain.launches.life.launch_record import governing_watch, stored_watch, terms_of
from gpuwatch.domain.watches.launch_spec import (
    BidSpec,
    Budget,
    BudgetPolicy,
    HookSpec,
    LaunchSpec,
    PriceIncreasePolicy,
    RegistrySpec,
    VerificationMode,
)
from gpuwatch.domain.watches.watch import Action, SpotPolicy
from gpuwatch.secret import Secret
from tests.builders import NOON, a_match, a_watch, changed

SPEC = LaunchSpec(
    bid=BidSpec(max_usd_gpu_hour=Decimal("1.20")),
    relaunch=True,
    verify=VerificationMode.SSH,
    idle_below=10.0,
    idle_for_s=60.0,
    stop_outside=True,
    on_price_increase=PriceIncreasePolicy.ACCEPT_UNDER,
    before_stop=HookSpec(command="save"),
    hook_timeout_s=60.0,
)
WATCH = a_watch(
    action=Action.LAUNCH,
    spot=SpotPolicy.ANY,
    active=("22:00-08:00",),
    budget=Budget(max_usd_day=Decimal(5), on_reached=BudgetPolicy.STOP),
    launch=SPEC,
)
LAUNCH = new_launch(Intent(watch=WATCH, match=a_match(), launch_id="a" * 12, dry_run=False), 0, NOON)


def test_what_following_needs_comes_back_as_it_was() -> None:
    assert stored_watch(terms_of(WATCH)) == WATCH


def test_no_secret_is_stored() -> None:
    secretive = changed(
        SPEC,
        env={"TOKEN": "canary-1"},
        secret_env={"ANOTHER": Secret("canary-6")},
        onstart="curl canary-2",
        registry=RegistrySpec(server="s", username="u", password=Secret("canary-3")),
        on_running=HookSpec(url=Secret("https://hooks.example.org/canary-4"), secret=Secret("canary-5")),
    )
    terms = terms_of(changed(WATCH, launch=secretive))
    assert "canary" not in terms
    assert stored_watch(terms) == WATCH


def test_the_settings_come_before_the_terms() -> None:
    launch = changed(LAUNCH, terms=terms_of(WATCH))
    now = changed(WATCH, max_price_usd_gpu_hour=Decimal(9))
    assert governing_watch(launch, {WATCH.name: now}) == now
    assert governing_watch(launch, {"other": now}) == WATCH


def test_a_launch_of_an_older_gpuwatch_has_no_watch() -> None:
    assert governing_watch(LAUNCH, {}) is None


@given(st.text(max_size=40))
def test_terms_that_make_no_sense_are_none(text: str) -> None:
    assert stored_watch(text) is None
