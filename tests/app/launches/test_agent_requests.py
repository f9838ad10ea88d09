"""What agents can reach by requests: never more than the owner gave, and nothing that the owner does not hear of."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from gpuwatch.app.alerts.alerts import event_filter, stored_events
from gpuwatch.app.launches.approvals import deny, open_approvals
from gpuwatch.app.launches.requests.agent_requests import request_end, request_launch, request_rent
from gpuwatch.app.launches.requests.rent import RentRequest
from gpuwatch.app.watches.agent_watch import create_agent_watch
from gpuwatch.bootstrap import real_now
from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.domain.launches.rent_terms import RentTerms
from gpuwatch.emulator import Marketplace
from gpuwatch.errors import ResourceNotFound, StoreError, UsageError
from gpuwatch.settings import Settings
from gpuwatch.storage.setup.daemon_lease import HostIdentity, RowLease, claim_daemon
from gpuwatch.storage.setup.database import open_database
from tests.conftest import Postgres
from tests.process.daemon_child import Home, bargain


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=7, key="demo-key", size=20) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        yield opened


def home_of(tmp_path: Path, market: Marketplace, more: str = "", **wanted: object) -> Home:
    extra = f"{more}[mcp]\nmax_usd_day = 50\n"
    return Home(tmp_path, market.url, action="ask", extra=extra, max_active=20, max_total=20, **wanted)


def settings_of(home: Home) -> Settings:
    return load_settings(str(home.folder / "gpuwatch.toml"))


def test_without_a_daemon_that_would_end_it_the_owner_decides(tmp_path: Path, market: Marketplace) -> None:
    home = home_of(tmp_path, market)
    bargain(market)
    asked = request_launch(settings_of(home), "cheap", None, "train")
    assert asked.awaits_owner
    assert not market.ledger.creates
    with claim_daemon(home.database_url):
        assert not request_launch(settings_of(home), "cheap", None, "train").awaits_owner
    assert len(market.ledger.creates) == 1


def test_on_postgresql_a_host_must_lead_and_eight_at_once_stay_within_what_was_given(
    tmp_path: Path, market: Marketplace, postgres: Postgres
) -> None:
    """Each can cost about 2 $, so that two fit into 5 $."""
    url = postgres.upgraded()
    home = home_of(tmp_path, market, database_url=url)
    file = tmp_path / "gpuwatch.toml"
    file.write_text(file.read_text().replace("max_usd_day = 50", "max_usd_day = 5"))
    offers = [bargain(market) for _ in range(9)]
    settings = settings_of(home)
    assert request_launch(settings, "cheap", str(offers[8]), "train").awaits_owner, "nobody leads"

    def ask(offer: int) -> bool:
        return not request_launch(settings, "cheap", str(offer), "train").awaits_owner

    with closing(open_database(url)) as database:
        RowLease(database, HostIdentity(holder="h1", role="main", host="a", version="1"), lambda: 100.0).tick()
        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(ask, offers[:8])) == 2
    assert len(market.ledger.creates) == 2
    postgres.give_back(url)


def test_a_watch_that_an_agent_added_asks_the_owner_whatever_agents_may_spend(
    tmp_path: Path, market: Marketplace
) -> None:
    home = home_of(tmp_path, market)
    config = str(tmp_path / "gpuwatch.toml")
    added = create_agent_watch(config, "mine", "H100", 900.0, "x", asks=True)
    assert added["watch"] == "agent-mine"
    bargain(market)
    with claim_daemon(home.database_url):
        assert request_launch(settings_of(home), "agent-mine", None, "train").awaits_owner
    assert not market.ledger.creates


def test_agents_add_a_few_watches_and_no_more(tmp_path: Path, market: Marketplace) -> None:
    home_of(tmp_path, market)
    config = str(tmp_path / "gpuwatch.toml")
    for number in range(20):
        create_agent_watch(config, f"w{number}", "H100", 1.0, "x", asks=False)
    with pytest.raises(UsageError, match="20 watches of agents exist"):
        create_agent_watch(config, "one more", "H100", 1.0, "x", asks=False)


def test_an_agent_changes_nothing_of_which_there_is_no_record(tmp_path: Path, market: Marketplace) -> None:
    home = home_of(tmp_path, market, database_url="postgresql://u@127.0.0.1:1/closed")
    before = (home.folder / "gpuwatch.toml").read_text()
    with pytest.raises(StoreError):
        create_agent_watch(str(home.folder / "gpuwatch.toml"), "mine", "H100", 1.0, "x", asks=False)
    assert (home.folder / "gpuwatch.toml").read_text() == before


def test_what_an_agent_cannot_rent_is_reported_to_the_owner(tmp_path: Path, market: Marketplace) -> None:
    """Its request stays open when the approval fails: without an alert nobody would know of it."""
    home = home_of(tmp_path, market)
    file = tmp_path / "gpuwatch.toml"
    tomorrow = f"{real_now() + timedelta(days=1):%a}".lower()
    text = file.read_text().replace('action = "ask"', f'action = "ask"\nactive = "{tomorrow} 00:00-24:00"')
    file.write_text(f"{text}stop_outside = true\n")
    bargain(market)
    with claim_daemon(home.database_url), pytest.raises(UsageError, match="outside `active`"):
        request_launch(settings_of(home), "cheap", None, "train")
    assert not market.ledger.creates
    assert "An agent asks for it (gpuwatch mcp): train" in home.run("alerts", "--json").stdout


def test_ten_quotes_await_the_owner_at_most(tmp_path: Path, market: Marketplace) -> None:
    home = home_of(tmp_path, market)
    offers = [bargain(market) for _ in range(11)]
    settings = settings_of(home)
    for offer in offers[:10]:
        assert request_launch(settings, "cheap", str(offer), "train").awaits_owner
    with pytest.raises(UsageError, match="10 quotes await"):
        request_launch(settings, "cheap", str(offers[10]), "train")


def test_an_agent_ends_nothing_of_another_owner(tmp_path: Path, market: Marketplace) -> None:
    home = home_of(tmp_path, market)
    bargain(market)
    with claim_daemon(home.database_url):
        answer = request_launch(settings_of(home), "cheap", None, "train").answer
    assert answer is not None
    assert answer.launch_id is not None
    text = (tmp_path / "gpuwatch.toml").read_text()
    (tmp_path / "other.toml").write_text(f'owner = "lab"\n{text}')
    with pytest.raises(ResourceNotFound):
        request_end(load_settings(str(tmp_path / "other.toml")), answer.launch_id, "spite")
    assert [launch["state"] for launch in home.launches()] in (["starting"], ["running"], ["ordered"])


def test_an_agent_asks_for_an_offer_without_a_watch_within_the_same_envelope(
    tmp_path: Path, market: Marketplace
) -> None:
    home = home_of(tmp_path, market)
    offer, other = str(bargain(market, 1.0)), str(bargain(market, 1.2))
    settings = settings_of(home)

    def rent(offer_id: str) -> RentRequest:
        return RentRequest(provider="vastai", offer_id=offer_id, terms=RentTerms(max_runtime_s=3600.0))

    asked = request_rent(settings, rent(offer), "train")
    assert asked.awaits_owner, "no daemon would end it"
    assert asked.approval.watch == "rent:now"
    assert any(one.alert.kind == "approval" for one in stored_events(settings, event_filter(3600.0)))
    with claim_daemon(home.database_url):
        assert not request_rent(settings, rent(offer), "train").awaits_owner
        assert len(market.ledger.creates) == 1
        small = msgspec.structs.replace(
            settings, mcp=msgspec.structs.replace(settings.mcp, max_usd_day=Decimal("0.01"))
        )
        assert request_rent(small, rent(other), "more").awaits_owner
        deny(settings, open_approvals(settings, real_now())[0].approval_id, actor="me")
        with pytest.raises(UsageError, match="nothing was requested"):
            request_rent(settings, rent(other), "again, although the owner denied it")
        with pytest.raises(UsageError, match="is not on sale"):
            request_rent(settings, rent("999"), "gone")
    assert len(market.ledger.creates) == 1
