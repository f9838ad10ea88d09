"""`gpuwatch run` and `gpuwatch web` as processes: start, health, approvals over HTTP, a clean stop."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from gpuwatch.emulator import Marketplace
from gpuwatch.web.security.credentials import is_password
from tests import loopback_client
from tests.process.daemon_child import ROOT, Home, bargain, terminate, wait_for
from tests.web.api.test_api import Listener

pytestmark = pytest.mark.slow
MANAGE = "a-token-that-may-do-everything"
_TOKENS = f'tokens = [{{ name = "t", token = "{MANAGE}", scopes = ["read", "approve", "manage"] }}]\n'
BEARER = {"Authorization": f"Bearer {MANAGE}"}


@pytest.fixture
def market() -> Iterator[Marketplace]:
    with Marketplace(seed=7, key="demo-key", size=20) as opened:
        for row in opened.offers():
            opened.withdraw(row["id"])
        yield opened


def address(home: Home) -> str:
    return str(wait_for(lambda: re.search(r"web page: (http://[0-9.:]+)/", home.log()))[1])


def lines(*arguments: str, given: str = "", folder: Path) -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gpuwatch", *arguments]
    return subprocess.run(
        command, input=given, cwd=folder, env=env, capture_output=True, text=True, timeout=240, check=False
    )


def open_approvals(url: str, **headers: str) -> list[dict[str, object]]:
    found = loopback_client.items(url, "approvals", **headers)
    return [one for one in found if one["state"] == "open"]


def test_the_page_log_shows_what_the_daemon_logs_but_not_the_one_time_code(market: Marketplace, tmp_path: Path) -> None:
    """Every user of this machine may read; changes need the code in gpuwatch's own log."""
    home = Home(tmp_path, market.url, extra='[web]\nenabled = true\nlisten = "127.0.0.1:0"\n')
    with (
        home.daemon() as child,
        closing(loopback_client.client(base_url=address(home))) as client,
    ):
        code = str(wait_for(lambda: re.search(r"one-time code: ([a-z0-9-]+)", home.log()))[1])
        page = {"Accept": "text/html"}
        wait_for(lambda: "web page: " in client.get("/log", headers=page).text)
        assert client.post("/api/v1/session", json={"code": code}).status_code == 200
        newer = wait_for(lambda: [one for one in re.findall(r"one-time code: ([a-z0-9-]+)", home.log()) if one != code])
        with closing(loopback_client.client(base_url=client.base_url)) as other_user:
            for path in ("/log", "/log?q=code", "/alerts", "/settings", "/"):
                shown = other_user.get(path, headers=page).text
                assert code not in shown
                assert newer[-1] not in shown
            assert "web: login from" in other_user.get("/log", headers=page).text
        assert terminate(child)[0] == 0


def test_an_approval_is_answered_once_and_a_launch_is_stopped_once(market: Marketplace, tmp_path: Path) -> None:
    extra = f'[web]\nenabled = true\nlisten = "127.0.0.1:0"\n{_TOKENS}'
    home = Home(tmp_path, market.url, action="ask", extra=extra, max_active=1, max_total=1)
    bargain(market)
    with home.daemon() as child, closing(loopback_client.client(headers=BEARER)) as client:
        url = address(home)
        (quote,) = wait_for(lambda: open_approvals(url, **BEARER))
        here = f"{url}/api/v1/approvals/{quote['ask_id']}"
        first, again, other = (client.post(f"{here}/{word}") for word in ("approve", "approve", "deny"))
        assert (first.status_code, first.json()["changed"], first.json()["state"]) == (200, True, "approved")
        assert (again.status_code, again.json()["changed"]) == (200, False)
        assert again.json()["launch_id"] == first.json()["launch_id"]
        assert (other.status_code, other.json()["state"]) == (409, "approved")
        assert len(market.ledger.creates) == 1
        stop = f"{url}/api/v1/launches/{first.json()['launch_id']}/stop"
        stopped, twice = client.post(stop), client.post(stop)
        assert (stopped.status_code, stopped.json()["changed"]) == (200, True)
        assert (twice.status_code, twice.json()["changed"]) == (200, False)
        wait_for(lambda: client.get(f"{url}/api/v1/launches").json()["items"][0]["state"] == "ended")
        assert client.post(stop).json()["changed"] is False
        events = client.get(f"{url}/api/v1/alerts?kind=audit").json()["items"]
        assert [event["subject"] for event in events] == [quote["ask_id"], first.json()["launch_id"]]
        listed = home.launches()
        assert client.get(f"{url}/api/v1/launches").json()["items"] == listed
        assert terminate(child)[0] == 0


def test_it_stops_within_ten_seconds_although_clients_listen(market: Marketplace, tmp_path: Path) -> None:
    home = Home(tmp_path, market.url, action="alert", extra='[web]\nenabled = true\nlisten = "127.0.0.1:0"\n')
    with home.daemon() as child:
        url = address(home)
        assert wait_for(lambda: loopback_client.get(f"{url}/healthz").json()) == {"status": "ok"}
        for _ in range(3):
            Listener(url)
        code, took_s = terminate(child)
        assert code == 0
        assert took_s < 10
    assert "Traceback" not in home.log()


def test_an_address_in_use_harms_neither_polling_nor_the_end(market: Marketplace, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f'[web]\nenabled = true\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n'
        home = Home(tmp_path, market.url, action="alert", extra=listen)
        with home.daemon() as child:
            wait_for(lambda: "gpuwatch continues without the web page" in home.log())
            before = len(market.requests)
            wait_for(lambda: len(market.requests) > before + 2)
            assert terminate(child)[0] == 0


def test_a_reload_keeps_sessions_and_takes_new_settings(market: Marketplace, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    web = f'[web]\nenabled = true\nlisten = "127.0.0.1:{port}"\n'
    home = Home(tmp_path, market.url, action="alert", extra=web)
    with (
        home.daemon() as child,
        closing(loopback_client.client(base_url=f"http://127.0.0.1:{port}")) as client,
    ):
        address(home)
        code = wait_for(lambda: re.findall(r"one-time code: ([a-z0-9-]+)", home.log()))[-1]
        csrf = client.post("/api/v1/session", json={"code": code}).json()["csrf_token"]
        home.write(url=market.url, action="alert", extra=f'{web}trusted_hosts = ["gpu.example"]\n')
        child.send_signal(1)
        headers = {"Host": "gpu.example"}

        def is_answered() -> bool:
            try:
                return client.get("/api/v1/jobs", headers=headers).status_code == 200
            except httpx.TransportError:
                return False

        wait_for(is_answered)
        assert client.post("/api/v1/pause", headers={"X-CSRF-Token": csrf}).status_code == 200


@contextmanager
def web_alone(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "gpuwatch", "web", "--listen", "127.0.0.1:0", *arguments]
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child, [child.stdout.readline().strip() for _ in range(2)]
        finally:
            child.kill()


def test_the_page_alone_prints_its_address_and_a_code_and_ends_on_sigterm(tmp_path: Path) -> None:
    with web_alone(tmp_path) as (child, (first, second)):
        url = re.fullmatch(r"web page: (http://127\.0\.0\.1:[0-9]+/)", first)
        assert url
        assert re.fullmatch(r"one-time code: [a-z2-9]{4}-[a-z2-9]{4}-[a-z2-9]{4}", second)
        assert loopback_client.get(f"{url[1]}healthz").status_code == 200
        assert loopback_client.get(f"{url[1]}api/v1/offers").status_code == 503
        child.terminate()
        assert child.wait(240) == 0


@pytest.mark.parametrize(
    ("arguments", "settings", "code", "text"),
    [
        (("--listen", "0.0.0.0:0"), "", 2, "password_hash"),
        (("--listen", "nonsense"), "", 2, "expected an address and a port"),
        ((), '[web]\nlisten = "0.0.0.0:0"\n', 2, "web.listen"),
        ((), '[web]\ntokens = [{ name = "x", token_file = "/nothing", scopes = ["read"] }]\n', 2, "/nothing"),
        ((), '[web]\nnonsense = 1\n', 2, "web.nonsense"),
        (("--listen", "192.0.2.1:1"), f"[web]\n{_TOKENS}", 1, "cannot listen at 192.0.2.1:1"),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], settings: str, code: int, text: str
) -> None:
    (tmp_path / "gpuwatch.toml").write_text(settings)
    (tmp_path / "gpuwatch.toml").chmod(0o600)
    done = lines("web", *arguments, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_password_is_hashed_from_a_line_of_standard_input(tmp_path: Path) -> None:
    done = lines("web", "--hash-password", given="correct horse battery\n", folder=tmp_path)
    assert done.returncode == 0
    assert is_password("correct horse battery", done.stdout.strip())
    assert not is_password("wrong", done.stdout.strip())
    assert lines("web", "--hash-password", given="short\n", folder=tmp_path).returncode == 2
