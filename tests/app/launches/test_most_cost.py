"""The most that a launch or a quote can cost."""

from __future__ import annotations

from datetime import timedelta

from gpuwatch.app.launches.most_cost import most_cost_microusd, quoted_launch
from gpuwatch.domain.launches.launch import LaunchState, PriceSpan
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.watch import Action, Watch
from tests.builders import NOON, a_match, a_watch, changed

HOUR, MICRO = timedelta(hours=1), 10**6
PROOF = 3_600_000 // 30  # two minutes at 3.60 $ an hour, until the end is proven


def watch(max_runtime_s: float | None = None) -> Watch:
    return a_watch(action=Action.ASK, launch=LaunchSpec(ready_within_s=0.0, max_runtime_s=max_runtime_s))


def test_a_quote_costs_its_price_until_its_latest_end_is_proven() -> None:
    quoted = quoted_launch(a_match(), watch(36_000.0), NOON)
    assert most_cost_microusd(quoted, NOON) == 36 * MICRO + PROOF
    assert most_cost_microusd(quoted_launch(a_match(), watch(), NOON), NOON) is None


def test_of_a_running_launch_what_was_spent_and_the_rest_at_its_highest_price() -> None:
    quoted = quoted_launch(a_match(), watch(36_000.0), NOON)
    span = PriceSpan(NOON, 3 * MICRO, 3_600_000)
    runs = changed(quoted, state=LaunchState.RUNNING, running_at=NOON, spans=(span,), instance_id="1")
    assert most_cost_microusd(runs, NOON) == most_cost_microusd(runs, NOON + 3 * HOUR) == 36 * MICRO + PROOF
    dearer = changed(runs, spans=(span, PriceSpan(NOON + HOUR, 6 * MICRO, 7_200_000)))
    assert most_cost_microusd(dearer, NOON + HOUR) == 3_600_000 + 9 * 7_200_000 + 2 * PROOF


def test_what_is_over_costs_what_it_cost() -> None:
    quoted = quoted_launch(a_match(), watch(36_000.0), NOON)
    span = PriceSpan(NOON, 3 * MICRO, 3_600_000)
    ended = changed(
        quoted, state=LaunchState.ENDED, instance_id="1", running_at=NOON, spans=(span,), ended_at=NOON + 2 * HOUR
    )
    assert most_cost_microusd(ended, NOON + 9 * HOUR) == 7_200_000
    assert most_cost_microusd(changed(quoted, dry_run=True), NOON) == 0
