"""The texts of alerts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gpuwatch.domain.alerts.alert import alert_lifetime
from gpuwatch.domain.alerts.market_texts import QUOTA_USED
from gpuwatch.domain.market.money import Commission, price_of
from gpuwatch.domain.market.offer import Offer, Verification
from gpuwatch.domain.setup.durations import format_moment
from gpuwatch.domain.watches.decide import Decision, DecisionReason, Match
from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.match import price_for
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.engine.alerts import health_alerts, offer_alerts
from gpuwatch.engine.alerts.alert_routing import grouped_alert, with_unreported
from gpuwatch.notifiers.toolkit import as_text
from gpuwatch.ports import HUNT, Alert, AlertKind, ProviderHealth, Severity

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
WATCH = Watch(name="h100-night", gpu=("H100",), gpu_names=("H100 SXM",), max_price_usd_gpu_hour=Decimal("3.60"))


def a_match(listed_usd_hour: float = 6.0, **changes: Any) -> Match:
    offer = Offer(
        provider="vastai",
        offer_id="28123456",
        machine_id="4711",
        gpu="H100 SXM",
        gpu_family="H100",
        gpu_wire="H100_SXM",
        gpu_known=True,
        gpu_count=2,
        gpu_memory_gib=80.0,
        spot=False,
        quoted_usd_hour=listed_usd_hour,
        quoted_disk_gb=8.0,
        disk_usd_gb_month=0.1,
        observed_at=NOON,
        region="Iceland, IS",
        reliability=0.9921,
        verification=Verification.VERIFIED,
    )
    offer = msgspec.structs.replace(offer, **changes)
    return Match(offer, price_of(offer, None, Commission("0.20")))


def reported(
    *matches: Match, watch: Watch = WATCH, reason: DecisionReason = DecisionReason.FIRST_MATCH, **extra: Any
) -> Alert:
    decision = Decision(watch=watch.name, reason=reason, decided_at=NOON, matches=matches or (a_match(),))
    options: dict[str, Any] = {"alert_id": "abc", "zone": BERLIN, "did": "Alerted only."} | extra
    return offer_alerts.offer_alert(watch, decision, **options)


def facts(alert: Alert) -> dict[str, str]:
    return dict(alert.facts)


# --- an offer --------------------------------------------------------------------------------------------------------
def test_an_offer_is_reported_with_every_number_that_decides() -> None:
    """Listed 6.00 for two GPUs is 3.00 a GPU, and 3.60 with 20 %."""
    alert = reported()
    assert alert.headline == "h100-night: H100 SXM × 2 at $3.60/GPU-h"
    assert facts(alert) == {
        "GPU": "H100 SXM × 2",
        "Price": "$3.60/GPU-h",
        "Listed": "$3.00/GPU-h, before 20 % commission",
        "Total": "$7.20/h for 2 GPUs",
        "Rental": "on demand",
        "Threshold": "$3.60/GPU-h",
        "Place": "Iceland, IS",
        "Machine": "80 GiB per GPU",
        "Reliability": "99.2 %, verified",
        "Offer": "28123456 at vastai, machine 4711",
        "Seen": "2026-11-21 13:00 CET",
    }
    assert alert.did == "Alerted only."
    assert alert.can_do[-1] == "Check again: gpuwatch check h100-night"


def test_what_a_provider_does_not_say_is_unknown() -> None:
    alert = reported(a_match(region=None, country=None, reliability=None, verification=None))
    assert facts(alert)["Place"] == "unknown"
    assert facts(alert)["Reliability"] == "unknown"


def test_an_interruptible_offer_says_so() -> None:
    assert facts(reported(a_match(spot=True)))["Rental"] == "spot (interruptible)"


def test_the_cheapest_three_are_listed() -> None:
    alert = reported(*(a_match(5.0 + n / 10, offer_id=str(n)) for n in range(5)))
    assert [line.offer_id for line in alert.offers] == ["0", "1", "2"]
    assert alert.why.endswith("4 more fit.")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (DecisionReason.FIRST_MATCH, "An offer is at or under the threshold (first_match)."),
        (DecisionReason.CHEAPER, "Cheaper by at least 5 % than in the last alert (cheaper)."),
        (DecisionReason.REPEAT_DUE, "Still at or under the threshold; reminder every 6h (repeat_due)."),
    ],
)
def test_the_reason_is_reported_in_words_and_as_it_is_logged(reason: DecisionReason, words: str) -> None:
    assert reported(reason=reason).why == words


@pytest.mark.parametrize("reason", DecisionReason)
def test_every_reason_has_words(reason: DecisionReason) -> None:
    assert f"({reason.value})" in reported(reason=reason).why


def test_a_held_watch_says_for_how_long() -> None:
    watch = msgspec.structs.replace(WATCH, hold_for_s=600.0)
    assert "has been for 10m" in reported(watch=watch).why


def test_a_link_is_made_from_the_providers_console() -> None:
    links = {"vastai": "https://cloud.vast.ai/create/?id={offer_id}"}
    assert reported(links=links).offers[0].url == "https://cloud.vast.ai/create/?id=28123456"
    assert reported(a_match(offer_id='"><a&b'), links=links).offers[0].url == (
        "https://cloud.vast.ai/create/?id=%22%3E%3Ca%26b"
    )
    assert reported().offers[0].url is None


def test_what_helps_is_what_the_caller_says_and_a_last_look() -> None:
    assert reported(can_do=("End it: gpuwatch launches stop abc",)).can_do == (
        "End it: gpuwatch launches stop abc",
        "Check again: gpuwatch check h100-night",
    )


def test_a_command_with_an_odd_watch_name_can_be_pasted() -> None:
    watch = msgspec.structs.replace(WATCH, name="my watch; rm -rf /")
    assert reported(watch=watch).can_do[-1] == "Check again: gpuwatch check 'my watch; rm -rf /'"


def test_a_jobs_traffic_is_shown_apart() -> None:
    watch = msgspec.structs.replace(WATCH, download_gb=500.0, upload_gb=100.0)
    alert = reported(a_match(download_usd_gb=0.01, upload_usd_gb=0.02), watch=watch)
    assert facts(alert)["Traffic"] == "$7.00 listed for one launch (500 GB down, 100 GB up), not in the price"
    assert facts(alert)["Price"] == facts(reported())["Price"]
    assert "Traffic unknown" not in facts(alert)


def test_traffic_in_the_price_is_a_part_of_it() -> None:
    launch = LaunchSpec(image="train", max_runtime_s=36_000.0)
    watch = msgspec.structs.replace(WATCH, download_gb=500.0, upload_gb=100.0, launch=launch)
    match = a_match(download_usd_gb=0.02)
    match = msgspec.structs.replace(match, price=price_for(watch, match.offer, {"vastai": Commission("0.20")}))
    alert = reported(match, watch=watch)
    assert facts(alert)["Traffic"] == "$10.00 listed for one launch (500 GB down), $1.00/h of the price"
    assert facts(alert)["Traffic unknown"] == "100 GB up: vastai does not state its price; not in the price"
    assert ", traffic $0.50 of it" in alert.headline  # of each of its two GPUs


# --- several alerts in one --------------------------------------------------------------------------------------------
def test_two_alerts_of_one_watch_are_not_two_watches() -> None:
    group = grouped_alert([reported(alert_id="first"), reported(a_match(5.0), alert_id="second")])
    assert group.headline == "h100-night: 2 alerts, from $3.00/GPU-h"


def test_one_alert_stays_as_it_is() -> None:
    assert grouped_alert([reported()]) == reported()


def test_several_alerts_become_one_that_names_the_cheapest() -> None:
    other = msgspec.structs.replace(WATCH, name="h100-day")
    dear, cheap = reported(a_match(7.0), alert_id="dear"), reported(a_match(5.0), alert_id="cheap", watch=other)
    group = grouped_alert([dear, cheap])
    assert group.headline == "2 watches have offers, from $3.00/GPU-h"
    text = as_text(group)
    assert text.index("alert dear") < text.index("alert cheap")


def test_a_group_sent_again_bears_the_same_id() -> None:
    both = [reported(alert_id="a"), reported(alert_id="b")]
    assert grouped_alert(both).alert_id == grouped_alert(both).alert_id
    assert grouped_alert(both).alert_id != grouped_alert(both[::-1]).alert_id


# --- other texts ------------------------------------------------------------------------------------------------------
def test_blindness_names_provider_time_and_error_without_secrets() -> None:
    error = "GET https://console.vast.ai/api/v0/users?api_key=abcdef0123456789 timed out"
    health = ProviderHealth(blind_since=NOON - timedelta(minutes=90), last_error=error)
    alert = health_alerts.blind_alert("vastai", HUNT, health, alert_id="x", now=NOON)
    assert alert.headline == "vastai is not answering: no complete answer for 1h30m"
    assert "timed out" in as_text(alert)
    assert "abcdef0123456789" not in as_text(alert)


def test_a_format_that_nobody_understands_is_one_alert_with_both_facts() -> None:
    health = ProviderHealth(blind_since=NOON, last_error="vastai: none of 12 rows can be used", not_understood=True)
    changes = ["new field: total", "price field gone: dph_total"]
    alert = health_alerts.blind_alert("vastai", HUNT, health, changes, alert_id="x", now=NOON)
    assert alert.severity is Severity.CRITICAL
    assert alert.headline == (
        "vastai is not understood: no row of a hunt answer can be used (price field gone: dph_total)"
    )
    assert facts(alert)["Changed"] == "new field: total; price field gone: dph_total"
    assert facts(alert)["Last error"] == "vastai: none of 12 rows can be used"


def test_a_spent_quota_is_blindness_with_its_end() -> None:
    alert = QUOTA_USED.alert("x", NOON, subject="vastai", resets=format_moment(NOON + timedelta(hours=12)))
    assert alert.kind is AlertKind.BLIND
    assert facts(alert)["Resets"] == "2026-11-22 00:00 UTC"


def test_seeing_again_says_how_long_it_was_dark() -> None:
    health = ProviderHealth(blind_since=NOON - timedelta(minutes=42))
    alert = health_alerts.recovery_alert("vastai", HUNT, health, alert_id="x", now=NOON)
    assert alert.headline == "vastai answers again, after 42m"


def test_a_price_that_is_gone_is_critical_and_named_in_the_headline() -> None:
    notes = ["new field: price_total", "field gone: dlperf", "price field gone: dph_total"]
    alert = health_alerts.drift_alert("vastai", notes, alert_id="x", now=NOON)
    assert alert.severity is Severity.CRITICAL
    assert alert.headline == "vastai changed its format: price field gone: dph_total"
    assert health_alerts.drift_alert("vastai", notes[:2], alert_id="x", now=NOON).severity is Severity.WARNING


def test_a_changed_format_lists_what_changed() -> None:
    notes = [f"new field: f{n}" for n in range(12)]
    changed = facts(health_alerts.drift_alert("vastai", notes, alert_id="x", now=NOON))["Changed"]
    assert changed.startswith("new field: f0; ")
    assert changed.endswith("; and 2 more")


def test_what_never_arrived_is_counted_and_named() -> None:
    alert = with_unreported(reported(), ["one", "two", "three", "four"])
    assert facts(alert)["Not sent here"] == "4 earlier alerts (1 more and: two; three; four)"
    assert with_unreported(reported(), []) == reported()


@pytest.mark.parametrize("kind", AlertKind)
def test_every_kind_has_a_time_after_which_it_is_stale(kind: AlertKind) -> None:
    assert timedelta(minutes=1) < alert_lifetime(kind) <= timedelta(days=7)


def test_money_waits_for_the_owner_longer_than_an_offer() -> None:
    assert alert_lifetime(AlertKind.HELD) > alert_lifetime(AlertKind.RENT) > alert_lifetime(AlertKind.MATCH)
