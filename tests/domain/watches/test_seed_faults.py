"""The faults of the script that gpuwatch replaces, each as a rule that holds now.

That script searched for "H100 80GB", took the first row of the first page, compared the whole offer's price, ignored
its own memory clause, mailed every five minutes, and recorded nothing.
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.money import Commission
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.decide import DecisionReason, Observation, WatchMemory, decide
from gpuwatch.domain.watches.match import failures, matches, price_for
from gpuwatch.domain.watches.watch import Watch
from tests.builders import NOON, a_watch, an_offer

VAST = {"vastai": Commission("0.20")}
FIVE_MINUTES = timedelta(minutes=5)


def _look(watch: Watch, *offers: Offer, complete: bool = True) -> Observation:
    found = matches(watch, offers, VAST, NOON)
    return Observation(matches=found, known=complete or bool(found), near=bool(found), observed_at=NOON)


def test_a_name_that_no_market_uses_finds_the_gpus_that_are_meant() -> None:
    """No offer is spelled "H100 80GB": the script's search was always empty."""
    names = catalog().wanted("H100 80GB")
    watch = a_watch(gpu=("H100 80GB",), gpu_names=names)
    spelled = [catalog().resolve(name, 79.6) for name in ("H100 SXM", "H100 PCIE")] + [
        catalog().resolve("H100 NVL", 93.6)
    ]
    offers = [an_offer(gpu=gpu.name, offer_id=gpu.name) for gpu in spelled]
    assert len(matches(watch, offers, VAST, NOON)) == 3


def test_a_name_that_nobody_knows_is_a_fault_with_a_suggestion() -> None:
    assert catalog().wanted("H1000") == ()
    assert "H100" in catalog().suggest("H1000")


def test_a_truncated_page_without_a_match_is_no_data() -> None:
    """It proves nothing: neither "no offers" nor a step towards rearming."""
    reported = WatchMemory(fired_at=NOON, fired_microusd_gpu_hour=3_600_000.0, misses=1)
    decision = decide(a_watch(), _look(a_watch(), complete=False), reported, NOON)
    assert decision.reason is DecisionReason.NO_DATA
    assert decision.memory == reported


def test_the_cheapest_is_taken_not_the_first() -> None:
    first = an_offer(offer_id="first", machine_id="1", quoted_usd_hour=2.9)
    cheapest = an_offer(offer_id="cheapest", machine_id="2", quoted_usd_hour=1.9)
    decision = decide(a_watch(), _look(a_watch(), first, cheapest), WatchMemory(), NOON)
    assert decision.best is not None
    assert decision.best.offer.offer_id == "cheapest"


def test_the_price_of_one_gpu_is_compared_not_that_of_the_offer() -> None:
    """Eight GPUs for 16 $ are cheap; the script compared 16 with 3.60."""
    watch = a_watch(gpu_count_max=8)
    eight = an_offer(gpu_count=8, quoted_usd_hour=16.0)
    assert decide(watch, _look(watch, eight), WatchMemory(), NOON).reason is DecisionReason.FIRST_MATCH
    assert not matches(a_watch(max_price_usd_gpu_hour=Decimal("2.39"), gpu_count_max=8), [eight], VAST, NOON)


def test_nothing_is_said_again_every_five_minutes() -> None:
    """Twelve hours at the same price: reported at the start and, by default, every six hours."""
    memory, reported = WatchMemory(), []
    for step in range(12 * 12 + 1):
        now = NOON + step * FIVE_MINUTES
        decision = decide(a_watch(), _look(a_watch(), an_offer()), memory, now)
        memory = decision.memory
        reported += [(now - NOON, decision.reason)] if decision.fires else []
    hours = [timedelta(hours=count) for count in (0, 6, 12)]
    assert reported == list(
        zip(hours, [DecisionReason.FIRST_MATCH, DecisionReason.REPEAT_DUE, DecisionReason.REPEAT_DUE], strict=True)
    )


def test_the_memory_that_is_asked_for_is_asked_for() -> None:
    """The script had min_gpu_memory = 80 and never used it."""
    small = catalog().resolve("A100 SXM4", 40.0)
    watch = a_watch(gpu=("A100",), gpu_names=catalog().wanted("A100"), min_vram_gib=80.0)
    offer = an_offer(gpu=small.name, gpu_memory_gib=40.0, quoted_usd_hour=0.8)
    assert matches(watch, [offer], VAST, NOON) == ()
    assert [failure.clause for failure in failures(watch, offer, price_for(watch, offer, VAST), NOON)] == [
        "min_vram_gib"
    ]


def test_every_look_leaves_something_to_be_kept() -> None:
    """Whatever the reason: when, why, at which prices, and a memory that survives a restart."""
    fired = decide(a_watch(), _look(a_watch(), an_offer()), WatchMemory(), NOON)
    record = msgspec.json.decode(msgspec.json.encode(fired))
    assert (record["watch"], record["reason"], record["decided_at"]) == ("h100", "first_match", "2026-11-21T12:00:00Z")
    assert record["matches"][0]["price"]["price_microusd_hour"] == 3_600_000
    restarted = msgspec.convert(record["memory"], WatchMemory)
    after = decide(a_watch(), _look(a_watch(), an_offer()), restarted, NOON + FIVE_MINUTES)
    assert after.reason is DecisionReason.NOTHING_NEW
    for look in (_look(a_watch()), _look(a_watch(), complete=False)):
        assert decide(a_watch(), look, after.memory, NOON + FIVE_MINUTES).decided_at == NOON + FIVE_MINUTES
