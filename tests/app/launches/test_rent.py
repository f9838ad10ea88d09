"""One offer, rented now at the embedded marketplace: its price, the budgets and a second press."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from gpuwatch.app.launches.approval_details import approval_detail_views
from gpuwatch.app.launches.approvals import ApprovalAnswer, approve, deny
from gpuwatch.app.launches.launches import all_launches
from gpuwatch.app.launches.requests.rent import RentQuote, RentRefusal, RentRequest, quote_rent, rent_quote_view
from gpuwatch.app.market.outbid_risk import risk_text
from gpuwatch.bootstrap import open_store, real_now
from gpuwatch.domain.launches.rent_terms import RentTerms
from gpuwatch.domain.watches.launch_spec import EndPolicy, VerificationMode
from gpuwatch.emulator import Marketplace
from gpuwatch.engine.launches.renting.owner_decisions import ApprovalOutcome
from gpuwatch.errors import ProviderStateUnknown, UsageError
from gpuwatch.ports import Answer, Completeness
from gpuwatch.settings import Settings
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from tests.builders import changed
from tests.storage import stored_answers
from tests.web.served import settings_in

RENTS = """
dry_run = false
[budget]
max_usd_hour = 5.0
max_usd_day = 20.0
[providers.vastai]
base_url = "{url}"
api_key = "demo-key"
search_interval = "0.05s"
"""


class Shop:
    """A marketplace, and settings that may rent there."""

    def __init__(self, market: Marketplace, folder: Path) -> None:
        self.market, self.folder = market, folder
        self.settings = settings_in(folder, RENTS.format(url=market.url))

    def sells(self, usd_hour: float) -> str:
        return str(self.market.publish(gpu="H100 SXM", count=1, usd_hour=usd_hour))

    def asked(self, offer_id: str, settings: Settings | None = None, **terms: object) -> RentQuote | RentRefusal:
        wanted = RentTerms(**({"max_runtime_s": 4 * 3600.0} | terms))  # type: ignore[arg-type]
        request = RentRequest(provider="vastai", offer_id=offer_id, terms=wanted)
        return quote_rent(settings or self.settings, request)

    def quoted(self, offer_id: str, **terms: object) -> RentQuote:
        quote = self.asked(offer_id, **terms)
        assert isinstance(quote, RentQuote), quote
        return quote

    def refused(self, offer_id: str, settings: Settings | None = None, **terms: object) -> RentRefusal:
        refusal = self.asked(offer_id, settings, **terms)
        assert isinstance(refusal, RentRefusal), refusal
        return refusal

    def approved(self, quote: RentQuote, actor: str = "the test") -> ApprovalAnswer:
        return approve(self.settings, quote.approval.approval_id, actor=actor)

    @property
    def creates(self) -> int:
        return len(self.market.ledger.creates)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Marketplace(seed=3, key="demo-key", size=0, odd_rows=False) as market:
        yield Shop(market, tmp_path)


def test_a_quote_says_what_it_costs_at_most_and_is_rented_once(shop: Shop) -> None:
    quote = shop.quoted(shop.sells(2.0), image="my/image", disk_gb=50.0)
    hourly = quote.approval.match.price.price_microusd_hour
    assert quote.most_microusd is not None
    assert 4 * hourly <= quote.most_microusd < 4.6 * hourly, "its start may take a while, too"
    assert not quote.is_followed
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(shop.approved, (quote, quote), ("command line (me)", "web page (me)"))
    assert {first.outcome, second.outcome} <= {ApprovalOutcome.RENTED}
    assert [first.changed, second.changed].count(True) == 1
    (launch,) = all_launches(shop.settings)
    assert (shop.creates, launch.launch_id) == (1, quote.approval.approval_id)
    assert launch.started_by in {"command line (me)", "web page (me)"}
    assert (launch.watch, launch.max_runtime_s) == ("rent:now", 4 * 3600.0)
    assert launch.promised.disk_gb == 50.0
    assert "is not on sale" in shop.refused(launch.offer_id).text


def test_the_same_request_has_the_same_quote_and_other_terms_a_new_one(shop: Shop) -> None:
    offer = shop.sells(2.0)
    first, again = shop.quoted(offer), shop.quoted(offer)
    assert again.approval.approval_id == first.approval.approval_id
    longer = shop.quoted(offer, max_runtime_s=7200.0)
    assert longer.approval.approval_id != first.approval.approval_id
    assert shop.approved(first).conflict
    assert deny(shop.settings, longer.approval.approval_id, actor="me").reply.text == "nothing was rented"
    assert shop.approved(shop.quoted(offer)).outcome is ApprovalOutcome.RENTED, "a denial mutes nothing"
    assert shop.creates == 1


def test_a_price_that_rose_is_refused_with_the_new_one(shop: Shop) -> None:
    offer = shop.sells(2.0)
    quote = shop.quoted(offer)
    shop.market.reprice(int(offer), 2.5)
    answer = shop.approved(quote)
    assert answer.outcome is ApprovalOutcome.REFUSED
    assert "it now costs $3" in answer.reply.text
    assert shop.creates == 0


def test_an_offer_that_is_gone_names_the_nearest_that_the_store_knows(shop: Shop) -> None:
    refusal = shop.refused("123456")
    assert "is not on sale at vastai; see: gpuwatch offers" in refusal.text
    assert refusal.nearest is None


def test_budgets_pauses_and_settings_refuse(shop: Shop) -> None:
    offer = shop.sells(3.0)
    too_long = shop.refused(offer, max_runtime_s=24 * 3600.0)
    assert too_long.text == "the daily budget has $20.00 left; 24 h would cost $86.40"
    dear = shop.sells(9.0)
    assert "the hourly budget" in shop.refused(dear).text
    unlimited = msgspec.structs.replace(
        shop.settings, budget=msgspec.structs.replace(shop.settings.budget, max_usd_hour=None)
    )
    with pytest.raises(UsageError, match="max_usd_hour"):
        shop.asked(offer, unlimited)
    with pytest.raises(UsageError, match="expected a duration"):
        shop.asked(offer, max_runtime_s=0.0)
    assert all_launches(shop.settings) == []


def test_a_dry_run_rents_nothing(shop: Shop) -> None:
    shop.settings = msgspec.structs.replace(shop.settings, dry_run=True)
    quote = shop.quoted(shop.sells(2.0))
    assert shop.approved(quote).outcome is ApprovalOutcome.WOULD_RENT
    assert shop.creates == 0


def test_a_provider_that_does_not_answer_leaves_it_open(shop: Shop) -> None:
    offer = shop.sells(2.0)
    shop.market.faults.add("search", "500", times=None)
    with pytest.raises(ProviderStateUnknown, match="could not be checked"):
        shop.asked(offer)


def test_a_bid_is_quoted_with_the_risk_from_its_machines_own_history(shop: Shop) -> None:
    offer_id = str(shop.market.publish(gpu="H100 SXM", count=1, usd_hour=2.0, min_bid=1.0))
    request = RentRequest(provider="vastai", offer_id=offer_id, terms=RentTerms(max_runtime_s=3600.0), spot=True)

    def quoted() -> RentQuote:
        quote = quote_rent(shop.settings, request)
        assert isinstance(quote, RentQuote), quote
        return quote

    first = quoted()
    assert first.risk is not None
    assert first.risk.over_share is None
    assert risk_text(first.risk) == "No history of this machine."
    now, offer = real_now(), first.approval.match.offer
    with open_store(shop.settings) as store:
        recorder = SqlHistoryRecorder(store)
        for hours, usd_hour in [*((back, 3.0 if back in (20, 21, 9) else 1.0) for back in range(30, 0, -1)), (0, 1.0)]:
            at = now - timedelta(hours=hours)
            past = changed(offer, quoted_usd_hour=usd_hour, disk_usd_gb_month=None, observed_at=at)
            answer = Answer(
                provider="vastai", observed_at=at, offers=(past,), completeness=Completeness.COMPLETE, rows=1
            )
            recorder.record(answer, lane="sweep", spot=True)
    again = quoted()
    assert again.approval.approval_id == first.approval.approval_id
    assert again.risk is not None
    assert (again.risk.rises, again.risk.over_share) == (2, pytest.approx(0.1, abs=0.01))
    assert "rose over it 2 times" in risk_text(again.risk)
    view = rent_quote_view(shop.settings, again, request)
    assert view.outbid_risk is not None
    assert (view.outbid_risk.bid_usd_hour, view.outbid_risk.rises) == (pytest.approx(1.0, abs=0.01), 2)
    (listed,) = approval_detail_views(shop.settings, [again.approval], real_now())
    assert listed.outbid_risk == view.outbid_risk
    assert shop.quoted(shop.sells(2.0)).risk is None, "nobody bids for it"


DEFAULTS = """
[defaults.watch]
disk_gb = 60
on_end = "stop"
max_per_day = 1
[defaults.watch.launch]
image = "my/image"
verify = "none"
idle_below = 5
env = { TOKEN = "not-in-the-store" }
"""


def test_what_it_leaves_out_is_that_of_the_defaults_and_no_secret(shop: Shop, tmp_path: Path) -> None:
    shop.settings = settings_in(tmp_path, RENTS.format(url=shop.market.url) + DEFAULTS)
    quote = shop.quoted(shop.sells(2.0))
    watch = quote.approval.own_watch
    assert watch is not None
    assert watch.launch is not None
    assert (watch.disk_gb, watch.on_end, watch.launch.image) == (60, EndPolicy.STOP, "my/image")
    assert (watch.launch.verify, watch.launch.env, watch.max_per_day) == (VerificationMode.NONE, {}, None)
    assert watch.launch.idle_below is None, "without idle_for it says nothing"
    said = shop.quoted(shop.sells(2.1), image="other/image").approval.own_watch
    assert said is not None
    assert said.launch is not None
    assert said.launch.image == "other/image"


def test_an_unreadable_key_of_the_defaults_rents_nothing(shop: Shop, tmp_path: Path) -> None:
    more = '[defaults.watch.launch]\nssh_key = "missing"\nverify = "ssh"\n'
    shop.settings = settings_in(tmp_path, RENTS.format(url=shop.market.url) + more)
    with pytest.raises(UsageError, match="ssh_key: expected a readable file"):
        shop.asked(shop.sells(2.0))


def test_an_offer_that_is_gone_names_the_nearest_at_any_provider(shop: Shop) -> None:
    """Prices elsewhere are those of the last poll; one where gpuwatch cannot rent is never named."""
    both = settings_in(shop.folder, RENTS.format(url=shop.market.url) + '[providers.runpod]\napi_key = "rpa_key"\n')
    gone, now = "48000999", real_now()
    with open_store(both) as store:
        history = SqlHistoryRecorder(store)
        for provider, offer_id, usd_hour in (("vastai", gone, 2.0), ("runpod", "H100:1", 2.2), ("gcp", "a3", 2.05)):
            offer = stored_answers.an_offer("m", usd_hour, provider=provider, offer_id=offer_id)
            answer = stored_answers.an_answer(offer, observed_at=now - timedelta(minutes=5))
            history.record(msgspec.structs.replace(answer, provider=provider), lane="sweep")
    shop.settings = both
    shop.sells(3.0)
    refusal = shop.refused(gone)
    assert refusal.nearest is not None
    assert refusal.nearest.offer.provider == "runpod", refusal.text
    assert "offer H100:1 of runpod, as last polled, at $2" in refusal.text
