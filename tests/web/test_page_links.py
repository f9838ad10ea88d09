"""Alerts link to the page of what they are about: `web.public_url`."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
from starlette.routing import Match as RouteMatch

from gpuwatch.domain.alerts.alert import AlertKind
from gpuwatch.emulator import Marketplace
from gpuwatch.engine.alerts.page_links import page_path, with_page_links
from gpuwatch.errors import SettingsError
from gpuwatch.notifiers.toolkit import as_text
from gpuwatch.web.page_routes import page_routes
from tests import loopback_client
from tests.notifiers.samples import alerts_by_kind
from tests.process.daemon_child import Home, bargain, terminate, wait_for
from tests.web.served import PAGE, Served, settings_in
from tests.web.test_process import address

ALERTS = alerts_by_kind()
PUBLIC = "https://gpu.example.org"


@pytest.mark.parametrize("kind", list(ALERTS), ids=lambda kind: kind.value)
def test_every_alert_leads_to_a_page_that_exists(web: Served, kind: AlertKind) -> None:
    path = urlsplit(page_path(ALERTS[kind])).path
    scope = {"type": "http", "method": "GET", "path": path, "root_path": ""}
    assert any(route.matches(scope)[0] is RouteMatch.FULL for route in page_routes(web.context)), path


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (AlertKind.APPROVAL, "/approvals/uoyauilxpk2f"),
        (AlertKind.RENT, "/launches/k3f7q2mzt5ab"),
        (AlertKind.END, "/launches/k3f7q2mzt5ab"),
        (AlertKind.HELD, "/launches/k3f7q2mzt5ab"),
        (AlertKind.MATCH, "/market?gpu=H100+SXM&provider=vastai&spot=any&offer=28123456"),
        (AlertKind.BLIND, "/alerts"),
    ],
)
def test_it_is_the_page_of_what_it_is_about(kind: AlertKind, path: str) -> None:
    assert page_path(ALERTS[kind]) == path
    assert f"Open it in gpuwatch <{PUBLIC}{path}>" in as_text(ALERTS[kind])


def test_what_a_host_wrote_stays_within_its_place_of_the_address() -> None:
    line = msgspec.structs.replace(ALERTS[AlertKind.MATCH].offers[0], offer_id="1&provider=evil#x/../..", gpu="A\n<b>")
    path = page_path(msgspec.structs.replace(ALERTS[AlertKind.MATCH], offers=(line,)))
    assert path == "/market?gpu=A%0A%3Cb%3E&provider=vastai&spot=any&offer=1%26provider%3Devil%23x%2F..%2F.."


def test_without_an_address_there_is_no_link() -> None:
    alert = msgspec.structs.replace(ALERTS[AlertKind.RENT], page_url=None)
    assert with_page_links(alert, "") == alert
    assert "Open it in gpuwatch" not in as_text(alert)


def test_several_alerts_in_one_message_each_lead_to_their_own() -> None:
    whole = msgspec.structs.replace(
        ALERTS[AlertKind.MATCH], parts=(ALERTS[AlertKind.MATCH], ALERTS[AlertKind.APPROVAL]), offers=()
    )
    text = as_text(with_page_links(whole, PUBLIC))
    assert f"{PUBLIC}/approvals/uoyauilxpk2f" in text
    assert f"{PUBLIC}/market?" in text


def said_by(answer: httpx.Response) -> str:
    """What a page says, without the marks of code."""
    return re.sub(r"</?code[^>]*>", "", answer.text)


@pytest.mark.slow
def test_the_link_of_a_daemons_alert_opens_that_offer_or_says_that_it_is_gone(
    tmp_path: Path,
) -> None:
    extra = f'[web]\nenabled = true\nlisten = "127.0.0.1:0"\npublic_url = "{PUBLIC}/"\n'
    client = loopback_client.client(headers={"Host": "gpu.example.org"})
    with Marketplace(seed=7, key="demo-key", size=20) as market, closing(client):
        home = Home(tmp_path, market.url, action="alert", extra=extra)
        offer_id = bargain(market)
        with home.daemon() as child:
            url = address(home)
            alert, *_ = wait_for(lambda: client.get(f"{url}/api/v1/alerts?kind=match").json()["items"])
            link = alert["page_url"]
            assert link.startswith(f"{PUBLIC}/market?")
            opened = client.get(link.replace(PUBLIC, url), headers=PAGE)
            assert opened.status_code == 200
            assert "The offer of the alert is on sale" in opened.text
            assert f"offer {offer_id}" in said_by(opened)
            market.withdraw(offer_id)
            gone = f"Offer {offer_id} is not on sale any more"
            wait_for(lambda: gone in said_by(client.get(link.replace(PUBLIC, url), headers=PAGE)))
            assert terminate(child)[0] == 0


@pytest.mark.parametrize("text", ["gpu.example.org", "ftp://a", "https://a/b", "https://a b", "javascript:alert(1)"])
def test_what_is_no_address_of_a_page_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="expected the address of the page without a path"):
        settings_in(tmp_path, f'[web]\npublic_url = "{text}"\n', has_store=False)


def test_what_a_client_asks_for_is_text_on_the_page(web: Served) -> None:
    answer = web.client.get("/market?gpu=H100&offer=1%22%3E%3Cscript%3Ealert", headers=PAGE)
    assert answer.status_code == 200
    assert "&lt;script&gt;alert" in answer.text
    assert "<script>alert" not in answer.text
